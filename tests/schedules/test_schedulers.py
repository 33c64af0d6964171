"""Schedules against recordings, by hand, as numbers and as tensors."""

import copy
import math
import pickle

import golden_io
import numpy as np
import pytest
import tensorflow as tf

from tfrl import schedules

CASES = golden_io.load("alf/schedulers")
SWEEPS = [case for case in CASES if case["kind"] == "schedule"]
REFUSED = [case for case in CASES if case["kind"] == "raises"]
STEPWISE = golden_io.load("coax/schedule_noise", symbol="StepwiseLinearFunction")


def made(case):
    return getattr(schedules, case["symbol"].rsplit(".", 1)[-1])(**case["in"]["ctor"])


def test_recordings_are_there():
    # The other two describe what `test_progress` and `test_as_scheduler` test.
    assert [len(CASES), len(SWEEPS), len(REFUSED), len(STEPWISE)] == [28, 23, 3, 8]


@pytest.mark.parametrize("case", SWEEPS, ids=golden_io.ids(SWEEPS))
def test_sweeps_equal_the_recording(case):
    scheduler, sweep = made(case), case["in"]["progress"]
    expected = case["out"]["values"]
    if "only moves forward" in case.get("note", ""):
        # The recorded one had a memory; ours finds the value again.
        expected = np.array([1.0, 0.5, 0.1, 0.1, 1.0, 1.0, 0.5])
    values = [scheduler(each) for each in sweep.tolist()]
    np.testing.assert_allclose(values, expected, **case["tol"])
    np.testing.assert_allclose(scheduler(tf.constant(sweep)), expected, **case["tol"])
    # Backwards, and in what training has: whole steps, or a share in float32.
    whole = case["in"]["ctor"].get("progress_type") != "percent"
    some = np.flatnonzero(sweep == np.round(sweep)) if whole else slice(None)
    steps = tf.cast(sweep[some][::-1], tf.int64 if whole else tf.float32)
    np.testing.assert_allclose(scheduler(steps), expected[some][::-1], atol=1e-5)


@pytest.mark.parametrize("case", REFUSED, ids=golden_io.ids(REFUSED))
def test_refuses_as_recorded(case):
    with pytest.raises(ValueError, match="` expected "):
        made(case)


@pytest.mark.parametrize("case", STEPWISE, ids=golden_io.ids(STEPWISE))
def test_stepwise_equals_the_recording(case):
    inputs, outputs = case["inputs"], case["outputs"]
    if "value" in outputs:
        function = schedules.StepwiseLinearFunction(*case["kwargs"]["steps"])
        for name, values in (("timestep", "value"), ("timestep_float", "value_float")):
            got = [function(each) for each in inputs[name]]
            np.testing.assert_allclose(got, outputs[values], **case["tol"])
            assert {type(value) for value in got} == {float}
            got = function(tf.constant(inputs[name]))
            np.testing.assert_allclose(got, outputs[values], rtol=1e-6)
    elif isinstance(outputs["result"], golden_io.Raised):
        kind = {"TypeError": TypeError, "ValueError": ValueError}
        with pytest.raises(kind[outputs["result"].type], match="`steps` expected"):
            schedules.StepwiseLinearFunction(*inputs["args"])
    else:
        function = schedules.StepwiseLinearFunction(*inputs["args"])
        assert function(0) == outputs["result"]


def test_steps_and_warm_up_by_hand():
    steps = schedules.StepScheduler("env_steps", [(10, 4.0), (20, 2.0)], 4, 2)
    progress = [-1, 0, 2, 3, 5, 6, 9.9, 10, 19, 20, 1e9]
    expected = [0, 0, 0, 1, 3, 4, 4, 2, 2, 2, 2]
    assert [steps(each) for each in progress] == expected
    delayed = schedules.StepScheduler("env_steps", [(10, 4.0), (20, 2.0)], start=3)
    assert [delayed(each) for each in (0, 2.9, 3, 10)] == [0.0, 0.0, 4.0, 2.0]
    single = schedules.StepScheduler("percent", [(1.0, 0.5)])
    assert single(0.0) == single(1.0) == 0.5


def test_exponential_by_hand():
    decay = schedules.ExponentialScheduler("percent", 3.0, 0.25, 0.5)
    assert [decay(each) for each in (0.0, 0.25, 0.5, 1.0)] == [3.0, 1.5, 0.75, 0.1875]
    np.testing.assert_allclose(decay(tf.constant([0.0, 0.25, 1e30])), [3.0, 1.5, 0.0])


@pytest.mark.parametrize("switch_mode", ["step", "linear"])
def test_cycles_of_float32_percent(switch_mode):
    # In float32, 0.7 / 0.1 is not 7, and in a sum of tenths neither.
    cycle = schedules.CyclicalScheduler("percent", 5.0, 2.0, 0.1, switch_mode)
    tenths = np.cumsum(np.full(10, 0.1, np.float32))
    got = cycle(tf.constant(tenths))
    np.testing.assert_allclose(got, [2.0, 5.0] * 5, atol=1e-3)


def test_a_cycle_almost_complete_counts_as_complete():
    cycle = schedules.CyclicalScheduler("percent", 0.0, 1.0, 0.5)
    assert [cycle(1.0 - 1e-12), cycle(0.5 - 1e-12), cycle(0.49)] == [0.0, 1.0, 0.0]


EXAMPLES = {
    "constant": schedules.ConstantScheduler(0.5),
    "step": schedules.StepScheduler("iterations", [(4, 1.0), (8, 0.5)], 2, 1),
    "linear": schedules.LinearScheduler("env_steps", [(0, 1.0), (4, 0.5), (9, 0.0)]),
    "exponential": schedules.ExponentialScheduler("percent", 2.0, 0.5, 3),
    "cyclical": schedules.CyclicalScheduler("iterations", 0.0, 1.0, 3, "linear"),
    "stepwise": schedules.StepwiseLinearFunction((-3, 1.0), (4, 0.5), (9, 0.1)),
}
every = pytest.mark.parametrize("schedule", EXAMPLES.values(), ids=EXAMPLES)


@every
def test_numbers_tensors_graphs_and_xla_agree(schedule):
    steps = list(range(-2, 12))
    expected = [schedule(step) for step in steps]
    assert {type(value) for value in expected} == {float}

    @tf.function(jit_compile=True, autograph=False)
    def compiled(step):
        return schedule(step)

    @tf.function(input_signature=[tf.TensorSpec(None, tf.int64)], autograph=False)
    def unknown(step):
        return schedule(step)

    for function in (schedule, compiled, unknown):
        got = function(tf.constant(steps, tf.int64))
        assert got.dtype == tf.float32
        np.testing.assert_allclose(got, expected, atol=1e-6)
    for step, value in zip(steps, expected, strict=True):
        np.testing.assert_allclose(unknown(tf.constant(step, tf.int64)), value, 1e-6)
    assert unknown.experimental_get_tracing_count() == 1


@every
def test_are_values(schedule):
    schedule(3)
    for twin in (copy.deepcopy(schedule), pickle.loads(pickle.dumps(schedule))):
        assert twin == schedule
        assert hash(twin) == hash(schedule)
        assert twin(5) == schedule(5)
    others = [other for other in EXAMPLES.values() if other is not schedule]
    assert schedule not in others
    assert type(schedule).__name__ in repr(schedule)
    with pytest.raises(AttributeError, match="cannot assign"):
        schedule.progress_type = "percent"


@pytest.mark.parametrize("progress_type", ["percent", "iterations", "env_steps"])
def test_without_an_argument_the_current_progress_counts(progress_type):
    ramp = schedules.LinearScheduler(progress_type, [(0, 0.0), (1, 1.0)])
    constant = schedules.ConstantScheduler(0.25)
    assert (ramp(), ramp.progress(), constant()) == (0.0, 0, 0.25)
    with schedules.progress_context(schedules.Progress(**{progress_type: 1})):
        assert (ramp(), ramp.progress(), constant()) == (1.0, 1, 0.25)
        assert ramp(0.5) == 0.5
    counter = schedules.ExponentialScheduler("global_counter", 1.0, 0.5, 1)
    with schedules.progress_context(schedules.Progress(global_counter=3)):
        assert counter() == 0.125


def test_an_own_scheduler():
    class Root(schedules.Scheduler):
        def value_at(self, progress):
            return 4.0 * progress**0.5

    root = Root("env_steps")
    with schedules.progress_context(schedules.Progress(env_steps=9)):
        assert root() == 12.0
    assert float(root(tf.constant(4))) == 8.0
    assert root != Root("env_steps")
    assert Root.from_config(root.get_config()).progress_type == "env_steps"
    with pytest.raises(ValueError, match="`Root`: `progress_type` expected one of"):
        Root("episodes")


def test_as_scheduler():
    for callable_ in (EXAMPLES["linear"], EXAMPLES["constant"], abs, lambda: 3.0):
        assert schedules.as_scheduler(callable_) is callable_
    assert schedules.as_scheduler(2) == schedules.ConstantScheduler(2)
    assert schedules.as_scheduler(np.float32(0.5))() == 0.5
    with pytest.raises(TypeError, match="`value_or_scheduler` expected a number"):
        schedules.as_scheduler("0.5")


PAIRS = [(10, 1.0), (20, 0.5)]
MISTAKES = {
    "type": (
        lambda: schedules.LinearScheduler("steps", [(0, 1.0), (1, 2.0)]),
        ValueError,
        "`LinearScheduler`: `progress_type` expected one of .*; got 'steps'",
    ),
    "one-point": (
        lambda: schedules.LinearScheduler("percent", [(0, 1.0)]),
        ValueError,
        "`LinearScheduler`: `schedule` expected two or more pairs",
    ),
    "order": (
        lambda: schedules.StepScheduler("percent", PAIRS[::-1]),
        ValueError,
        r"`StepScheduler`: `schedule` expected progress that ascends; got \[20, 10\]",
    ),
    "warm-up": (
        lambda: schedules.StepScheduler("iterations", PAIRS, 6, 4),
        ValueError,
        r"`warm_up_period` expected start \+ warm_up_period < 10.*got 4 \+ 6",
    ),
    "late-start": (
        lambda: schedules.StepScheduler("iterations", PAIRS, start=10),
        ValueError,
        "`warm_up_period` expected",
    ),
    "negative": (
        lambda: schedules.StepScheduler("iterations", PAIRS, warm_up_period=-1),
        ValueError,
        "`StepScheduler`: `warm_up_period` expected a number of at least 0",
    ),
    "rate": (
        lambda: schedules.ExponentialScheduler("percent", 1.0, 0.0, 1.0),
        ValueError,
        "`ExponentialScheduler`: `decay_rate` expected numbers > 0; got 0.0",
    ),
    "time": (
        lambda: schedules.ExponentialScheduler("percent", 1.0, 0.5, -1),
        ValueError,
        "`decay_time` expected numbers > 0",
    ),
    "initial": (
        lambda: schedules.ExponentialScheduler("percent", None, 0.5, 1),
        TypeError,
        "`initial_value` expected a number; got None",
    ),
    "mode": (
        lambda: schedules.CyclicalScheduler("percent", 0.0, 1.0, 0.1, "cos"),
        ValueError,
        "`CyclicalScheduler`: `switch_mode` expected one of",
    ),
    "cycle": (
        lambda: schedules.CyclicalScheduler("percent", 0.0, 1.0, 0),
        ValueError,
        "`half_cycle_size` expected numbers > 0",
    ),
    "stepwise-values": (
        lambda: schedules.StepwiseLinearFunction((0, 1.0), (1, float("nan"))),
        ValueError,
        "`StepwiseLinearFunction`: `steps` expected finite numbers",
    ),
    "stepwise-pairs": (
        lambda: schedules.StepwiseLinearFunction((0, 1.0), [1, 2.0]),
        TypeError,
        r"`steps` expected two or more tuples \(int, number\)",
    ),
}


@pytest.mark.parametrize(("call", "error", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_told(call, error, message):
    with pytest.raises(error, match=message):
        call()


EVERY_SCHEDULE = [
    schedules.ConstantScheduler(1.0),
    schedules.StepScheduler("iterations", [(10, 1.0), (20, 0.5)]),
    schedules.LinearScheduler("iterations", [(0, 1.0), (10, 0.5)]),
    schedules.ExponentialScheduler("iterations", 1.0, 0.5, 10),
    schedules.CyclicalScheduler("percent", 0.0, 1.0, 0.1),
    schedules.StepwiseLinearFunction((0, 1.0), (10, 0.5)),
]


@pytest.mark.parametrize("schedule", EVERY_SCHEDULE, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_progress_that_is_not_finite_is_refused(schedule, bad):
    message = f"`{type(schedule).__name__}`: `progress` expected finite numbers"
    for given in (bad, np.float32(bad), tf.constant(bad), np.array([1.0, bad])):
        with pytest.raises(ValueError, match=message):
            schedule(given)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_constants_and_progress_are_finite(bad):
    with pytest.raises(ValueError, match="`ConstantScheduler`: `value` expected fini"):
        schedules.ConstantScheduler(bad)
    with pytest.raises(ValueError, match="`Progress`: `iterations` expected"):
        schedules.Progress(iterations=bad)
