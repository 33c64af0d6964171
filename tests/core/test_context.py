"""Tests of tfrl.core.context, alone and under what is compiled."""

import contextvars
import dataclasses

import pytest
import tensorflow as tf

from tfrl import schedules
from tfrl.core import compile, context, modes
from tfrl.environments import current

LEVEL = contextvars.ContextVar("level", default=1)


def scaled(x):
    return x * context.followed(LEVEL.get)


def test_every_recorder_around_a_read_notes_it():
    assert context.followed(LEVEL.get) == 1
    with context.recorded() as outer:
        with context.recorded() as inner:
            context.followed(LEVEL.get)
        assert list(outer) == list(inner) == [LEVEL.get]
        with context.recorded() as other:
            pass
    assert not other


@dataclasses.dataclass(frozen=True)
class Fields:
    one: object
    two: object = 0


def test_keys_go_by_value_where_they_can():
    variable, array = tf.Variable(1.0), [1]
    assert context.key(Fields(1)) == context.key(Fields(1))
    assert context.key(Fields(1)) != context.key(Fields(2))
    for same in (variable, array):
        assert context.key(Fields(same)) == context.key(Fields(same))
        assert hash(context.key(same)) == hash(context.key(same))
    assert context.key([1]) != context.key([1])
    assert context.key(tf.Variable(1.0)) != context.key(variable)


@pytest.mark.parametrize("make", [compile.compiled, compile.jit], ids=["op", "jit"])
def test_a_trace_belongs_to_the_values_it_read(make):
    op = make(scaled)
    x = tf.constant(3.0)
    assert float(op(x)) == 3.0
    token = LEVEL.set(2)
    try:
        assert float(op(x)) == 6.0
    finally:
        LEVEL.reset(token)
    assert float(op(x)) == 3.0
    assert op.trace_count() == 2


def test_an_op_within_an_op_hands_on_what_it_read():
    inner = compile.compiled(scaled)
    outer = compile.compiled(lambda x: inner(x) + 1.0)
    assert float(outer(1.0)) == 2.0
    token = LEVEL.set(5)
    try:
        assert float(outer(1.0)) == 6.0
    finally:
        LEVEL.reset(token)


def test_a_branch_that_reads_more_is_told_apart_too():
    @compile.compiled
    def op(x):
        return scaled(x) if modes.is_eval() else x

    def values():
        with modes.eval_context():
            return float(op(1.0))

    assert (float(op(1.0)), values()) == (1.0, 1.0)
    token = LEVEL.set(7)
    try:
        assert (float(op(1.0)), values()) == (1.0, 7.0)
    finally:
        LEVEL.reset(token)
    assert (float(op(1.0)), values()) == (1.0, 1.0)


def test_ops_follow_mode_progress_and_environment():
    mode = compile.compiled(lambda x: x + (1.0 if modes.is_rollout() else 0.0))
    assert float(mode(0.0)) == 0.0
    with modes.rollout_context():
        assert float(mode(0.0)) == 1.0

    schedule = schedules.LinearScheduler("iterations", [(0, 0.0), (10, 1.0)])
    progress = compile.compiled(lambda x: x + schedule())
    for done in (0, 10, 5):
        with schedules.progress_context(schedules.Progress(iterations=done)):
            assert float(progress(0.0)) == done / 10
    count = progress.trace_count()
    steps = tf.Variable(0)
    for done in (0, 10, 5):
        steps.assign(done)
        with schedules.progress_context(schedules.Progress(iterations=steps)):
            assert float(progress(0.0)) == done / 10
    assert progress.trace_count() == count + 1

    environment = compile.compiled(lambda x: x + current.get_env().gain)
    for gain in (1.0, 2.0, 1.0):
        with current.environment_context(Environment(gain)):
            assert float(environment(0.0)) == gain


class Environment:
    def __init__(self, gain):
        self.gain = gain


def test_what_reads_nothing_has_one_trace_in_every_mode():
    op = compile.compiled(lambda x: 2.0 * x)
    op(1.0)
    with modes.eval_context():
        op(1.0)
    assert op.trace_count() == 1
