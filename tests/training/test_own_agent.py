"""An algorithm of one's own in everything that plays, keeps and hands on agents."""

import functools
import importlib.util
import pathlib
import re
import signal
import subprocess
import sys

import numpy as np
import own_agent
import pytest
import tensorflow as tf

import tfrl
from tfrl.environments import vector
from tfrl.summaries import run_log
from tfrl.training import cadence, experience, saved_run, trainer

FILE = pathlib.Path(own_agent.__file__)


def build(folder, **settings):
    return trainer.Trainer(
        folder,
        n_epochs=6,
        agent=own_agent.SlowQ(),
        make_envs=functools.partial(
            vector.make_vec, "CartPole-v1", vectorization="sync"
        ),
        n_envs=2,
        experience=experience.Replayed(
            500, 16, n_steps=8, updates_per_step=0.25, learning_starts=32
        ),
        intervals=cadence.Intervals(log_epochs=1, eval_episodes=2, checkpoint_epochs=2),
        **settings,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    with build(folder) as running:
        running.run(quiet=True)
    return folder, running.agent


def test_the_example_is_short_and_imports_what_is_public():
    text = FILE.read_text()
    program = text[text.index("@dataclasses") : text.index("def rehearse")]
    assert len(program.strip().splitlines()) <= 60
    assert not re.search(r"tfrl[.\w]*\._|import.* _", text)


def test_its_own_names_are_columns(whole):
    folder, _ = whole
    columns = run_log.read_metrics(folder / "metrics.csv")
    known = [name for name in columns if name.startswith("train/")]
    assert known == ["train/return_mean", "train/length_mean", "train/bellman_error"]
    # Nothing is learned before there are 32 steps.
    assert np.isnan(columns["train/bellman_error"][:1]).all()
    assert np.isfinite(columns["train/bellman_error"][1:]).all()


def test_it_resumes_to_the_bit(whole, tmp_path):
    with build(tmp_path) as cut:
        collect = cut._collector.collect

        def interrupted(*args):
            if cut.epoch == 2:
                signal.raise_signal(signal.SIGINT)
            return collect(*args)

        cut._collector.collect = interrupted
        assert cut.run(quiet=True) is None and cut.epoch == 3
    with build(tmp_path, resume=True) as resumed:
        resumed.run(quiet=True)
    pairs = zip(*map(tf.nest.flatten, (resumed.agent, whole[1])), strict=True)
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)


def test_it_is_opened_evaluated_exported_and_verified(whole, tmp_path):
    with saved_run.SavedRun.reopen(whole[0]) as run:
        assert len(run.evaluate(3).returns) == 3
        run.export(tmp_path / "policy")
        rows = np.random.default_rng(0).normal(size=[9, 4]).astype(np.float32)
        expected = run.policy.act(rows, temperature=0.0).actions
    assert max(tfrl.exporting.verify(tmp_path / "policy").values()) <= 1e-5
    model = tf.saved_model.load(tmp_path / "policy")
    found = model.signatures["serving_default"](observations=tf.constant(rows))
    np.testing.assert_array_equal(found["actions"], expected)


@pytest.mark.skipif(
    importlib.util.find_spec("pygame") is None, reason="the environment draws by it"
)
def test_it_is_recorded(whole, tmp_path, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with saved_run.SavedRun.reopen(whole[0]) as run:
        run.record(tmp_path / "film.gif", max_episode_steps=3, resize_to=(30, 20))
    assert (tmp_path / "film.gif").read_bytes()[:6] == b"GIF89a"


@pytest.mark.slow
def test_eight_replicas_learn_what_one_does():
    done = subprocess.run(
        [sys.executable, "-m", "tests.own_agent", "8"],
        cwd=FILE.parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 learn what 1 learns" in done.stdout and "0 failed" in done.stdout
