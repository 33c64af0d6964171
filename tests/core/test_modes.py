"""Tests of tfrl.core.modes."""

import inspect
import threading
import types

import golden_io
import pytest
import tensorflow as tf

from tfrl.core import modes
from tfrl.core.modes import ExeMode

PHASES = [
    ("rollout", modes.rollout_context, modes.mark_rollout, modes.is_rollout),
    ("replay", modes.replay_context, modes.mark_replay, modes.is_replay),
    ("eval", modes.eval_context, modes.mark_eval, modes.is_eval),
    ("pretrain", modes.pretrain_context, modes.mark_pretrain, modes.is_pretrain),
]
each_phase = pytest.mark.parametrize(
    ("name", "context", "mark", "predicate"), PHASES, ids=[row[0] for row in PHASES]
)


@each_phase
def test_context_sets_and_restores(name, context, mark, predicate):
    assert modes.exe_mode_name() == "other"
    with context():
        assert modes.exe_mode_name() == name
        holds = [row[3]() for row in PHASES]
        assert holds == [row[0] == name for row in PHASES]
    assert modes.exe_mode_name() == "other"
    assert not predicate()


@each_phase
def test_context_restores_after_an_exception(name, context, mark, predicate):
    with pytest.raises(RuntimeError, match="boom"):
        with context():
            raise RuntimeError("boom")
    assert modes.exe_mode_name() == "other"


@each_phase
def test_mark_keeps_metadata_and_restores(name, context, mark, predicate):
    @mark
    def phase(x: int, *, fail: bool = False) -> tuple:
        """Says where it is."""
        if fail:
            raise RuntimeError("boom")
        return x, modes.exe_mode_name()

    assert phase(3) == (3, name)
    assert phase.__name__ == "phase"
    assert phase.__doc__ == "Says where it is."
    assert list(inspect.signature(phase).parameters) == ["x", "fail"]
    with pytest.raises(RuntimeError, match="boom"):
        phase(1, fail=True)
    assert modes.exe_mode_name() == "other"


def test_contexts_nest_and_read_the_old_mode_on_entry():
    replay = modes.replay_context()
    with modes.eval_context():
        with replay:
            assert modes.is_replay()
        assert modes.is_eval()


def test_set_exe_mode_returns_the_old_mode():
    assert modes.set_exe_mode(2) is ExeMode.OTHER
    try:
        assert modes.is_replay()
    finally:
        assert modes.set_exe_mode(ExeMode.OTHER) is ExeMode.REPLAY


@pytest.mark.parametrize("mode", [5, -1, "eval", None])
def test_set_exe_mode_rejects(mode):
    with pytest.raises(ValueError, match="`set_exe_mode`: `mode` expected one of"):
        modes.set_exe_mode(mode)


def test_mode_can_be_passed():
    assert modes.exe_mode_name(ExeMode.EVAL) == "eval"
    for name, _, _, predicate in PHASES:
        assert predicate(ExeMode[name.upper()])
        assert not predicate(ExeMode.OTHER)
    with pytest.raises(ValueError, match="`is_eval`: `mode` expected one of"):
        modes.is_eval(7)


def test_is_training_golden():
    (case,) = golden_io.load("alf/common", symbol="is_training")
    for on_policy, mode, expected in case["out"]["onpolicy_mode_result"].tolist():
        alg = types.SimpleNamespace(on_policy=bool(on_policy))
        assert modes.is_training(alg, mode) == bool(expected)
        old = modes.set_exe_mode(mode)
        try:
            assert modes.is_training(alg) == bool(expected)
        finally:
            modes.set_exe_mode(old)


def test_is_training_rejects_what_has_no_on_policy():
    with pytest.raises(TypeError, match="`alg` expected an object with `on_policy`"):
        modes.is_training(object())


def test_threads_start_in_no_mode():
    seen = []
    with modes.eval_context():
        thread = threading.Thread(target=lambda: seen.append(modes.exe_mode_name()))
        thread.start()
        thread.join()
    assert seen == ["other"]


def test_mode_is_read_while_tracing():
    @tf.function
    def factor(x):
        return x * (2.0 if modes.is_eval() else 1.0)

    with modes.eval_context():
        assert float(factor(tf.constant(3.0))) == 6.0
    assert float(factor(tf.constant(3.0))) == 6.0
