"""Schedules against recordings, by hand, as numbers and as tensors, and in use."""

import copy
import dataclasses
import math
import pickle

import golden_io
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import schedules
from tfrl.agents import gradient_transforms, keras_optimizers
from tfrl.configuring import configs
from tfrl.schedules import _schedule, schedulers
from tfrl.training import configurables

CASES = golden_io.load("alf/schedulers")
SWEEPS = [case for case in CASES if case["kind"] == "schedule"]
REFUSED = [case for case in CASES if case["kind"] == "raises"]
STEPWISE = golden_io.load("coax/schedule_noise", symbol="StepwiseLinearFunction")


def made(case):
    return getattr(schedules, case["symbol"].rsplit(".", 1)[-1])(**case["in"]["ctor"])


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
    traces = _schedule._interpolated.trace_count()
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
    # One eager trace for all schedules and each number of axes.
    assert _schedule._interpolated.trace_count() <= traces + 1


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


# Straight lines between points.

POINTS = {
    "one": [(3, 2.0)],
    "line": [(0, 1.0), (10, 0.0)],
    "jump": [(0, 1.0), (10, 0.5), (10, 0.1), (20, 0.3)],
    "leading-jump": [(-5, 1.0), (-5, 2.0), (-5, 3.0), (5, 0.0)],
    "last-jump": [(0, 1.0), (7, 1.0), (7, 4.0)],
    "far": [(1e15, -1.0), (2e15, 1e6)],
}


@dataclasses.dataclass(frozen=True)
class Line(schedulers.Scheduler):
    points: list
    progress_type: str = "iterations"

    def _points(self):
        return self.points


def slow(points, time):
    """Looks at one pair of neighbours after the other."""
    value = points[0][1]
    for (t0, v0), (t1, v1) in zip(points, points[1:], strict=False):
        if t0 <= time < t1:
            return v0 + (v1 - v0) * (time - t0) / (t1 - t0)
        if time >= t1:
            value = v1
    return value


def times_of(points):
    ends = [time for time, _ in points]
    between = [(a + b) / 2 for a, b in zip(ends, ends[1:], strict=False)]
    near = [time + step for time in ends for step in (-1, 1)]
    return [*ends, *between, *near, -1e30, 1e30, -np.inf, np.inf]


@pytest.mark.parametrize("points", POINTS.values(), ids=POINTS)
def test_equals_a_slow_loop(points):
    line, times = Line(points).value_at, times_of(points)
    expected = [slow(points, time) for time in times]
    np.testing.assert_allclose([line(time) for time in times], expected, rtol=1e-12)
    tensor = tf.reshape(tf.constant(times, tf.float64), [-1, 1])
    got = line(tensor)
    assert got.shape == tensor.shape
    np.testing.assert_allclose(got[:, 0], expected, rtol=1e-12)


def test_slope_is_the_gradient():
    line, x = Line(POINTS["jump"]), tf.constant([-1.0, 5.0, 15.0, 30.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = line(x)
    np.testing.assert_allclose(tape.gradient(y, x), [0.0, -0.05, 0.02, 0.0], rtol=1e-5)


# What is taken, and what is refused.


@dataclasses.dataclass(frozen=True)
class Halved(schedulers.Scheduler):
    """Shows what arrives."""

    progress_type: str = "iterations"
    divisor: float = 2.0

    def value_at(self, progress):
        if tf.is_tensor(progress):
            assert progress.dtype in (tf.float32, tf.float64)
        else:
            assert type(progress) is float
        return progress / self.divisor


def test_numbers_give_floats_and_tensors_give_tensors():
    numbers = [3, 3.0, True + 2, np.int64(3), np.float32(3), np.uint8(3), np.array(3)]
    values = [Halved()(number) for number in numbers]
    assert [(type(value), value) for value in values] == [(float, 1.5)] * len(values)
    for dtype in ("int32", "int64", "uint8", "float16", "float64"):
        given = tf.constant([3, 1], dtype)
        variable = keras.Variable([3, 1], dtype=dtype, trainable=False)
        for progress in (given, tf.Variable(given), variable, given.numpy()):
            value = Halved()(progress)
            assert tf.is_tensor(value)
            assert value.dtype == (dtype if dtype.startswith("float") else "float32")
            np.testing.assert_allclose(value, [1.5, 0.5])
    # Large integers are not rounded.
    root = schedules.LinearScheduler("iterations", [(0, 0.0), (2**40, 0), (2**41, 1)])
    assert float(root(tf.constant(2**40 + 1, tf.int64))) == 2.0**-40


def test_pairs_become_hashable():
    made = schedulers.LinearScheduler("percent", [[0, 1.0], (0, 2)])
    assert hash(made)
    assert made.schedule == ((0, 1.0), (0, 2))


PAIRS = [(10, 1.0), (20, 0.5)]
NO_PAIRS = {
    "empty": ([], TypeError),
    "number": (3.0, TypeError),
    "flat": ([1.0, 2.0], TypeError),
    "triple": ([(1, 2, 3)], TypeError),
    "text": ([(0, "a")], TypeError),
    "nan": ([(0, math.nan)], ValueError),
    "inf": ([(0, 1.0), (math.inf, 2.0)], ValueError),
    "descending": ([(2, 1.0), (1, 2.0)], ValueError),
}


@pytest.mark.parametrize(("pairs", "error"), NO_PAIRS.values(), ids=NO_PAIRS)
@pytest.mark.parametrize("kind", ["LinearScheduler", "StepScheduler"])
def test_refuses_what_are_no_pairs(kind, pairs, error):
    with pytest.raises(error, match=f"`{kind}`: `schedule` expected"):
        getattr(schedules, kind)("percent", pairs)


MISTAKES = [
    ("LinearScheduler", ("steps", [(0, 1), (1, 2)]), ValueError, "progress_type"),
    ("Scheduler", ("steps",), ValueError, "progress_type"),
    ("LinearScheduler", ("percent", [(0, 1.0)]), ValueError, "schedule"),
    ("StepScheduler", ("iterations", PAIRS, 6, 4), ValueError, "warm_up_period"),
    ("StepScheduler", ("iterations", PAIRS, 0, 10), ValueError, "warm_up_period"),
    ("StepScheduler", ("iterations", PAIRS, -1), ValueError, "warm_up_period"),
    ("ExponentialScheduler", ("percent", 1.0, 0.0, 1.0), ValueError, "decay_rate"),
    ("ExponentialScheduler", ("percent", 1.0, 0.5, -1), ValueError, "decay_time"),
    ("ExponentialScheduler", ("percent", None, 0.5, 1), TypeError, "initial_value"),
    ("CyclicalScheduler", ("percent", 0, 1, 0.1, "cos"), ValueError, "switch_mode"),
    ("CyclicalScheduler", ("percent", 0.0, 1.0, 0), ValueError, "half_cycle_size"),
    ("StepwiseLinearFunction", ((0, 1.0), (1, math.nan)), ValueError, "steps"),
    ("StepwiseLinearFunction", ((0, 1.0), [1, 2.0]), TypeError, "steps"),
    *(("ConstantScheduler", (x,), TypeError, "value") for x in ("1", True, None, 1j)),
    *(("ConstantScheduler", (x,), ValueError, "value") for x in (math.nan, math.inf)),
    ("Progress", (0.0, math.nan), ValueError, "iterations"),
    ("Progress", (0.0, math.inf), ValueError, "iterations"),
]


@pytest.mark.parametrize(("kind", "args", "error", "name"), MISTAKES)
def test_mistakes_are_told(kind, args, error, name):
    with pytest.raises(error, match=f"`{kind}`: `{name}` expected"):
        getattr(schedules, kind)(*args)


@every
def test_progress_that_is_no_finite_number_is_refused(schedule):
    message = f"`{type(schedule).__name__}`: `progress` expected"
    for given in (math.nan, np.float32(-np.inf), np.array([1.0, np.inf])):
        with pytest.raises(ValueError, match=f"{message} finite numbers"):
            schedule(given)
    for given in ("3", tf.constant(True)):
        with pytest.raises(TypeError, match=f"{message} a number or"):
            schedule(given)
    with pytest.raises(NotImplementedError):
        schedules.Scheduler("percent")(1)


# In use.


class ReadRate(keras.callbacks.Callback):
    """Reads the rate in effect when a batch begins."""

    def on_train_begin(self, logs=None):
        self.rates = []

    def on_train_batch_begin(self, batch, logs=None):
        self.rates.append(float(self.model.optimizer.learning_rate))


# Keras reads its variables in a way that numpy 2 deprecates.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_in_fit_and_saved_with_the_model(jit, tmp_path):
    """A model of one weight with slope 1, after 5 batches."""
    schedule = dataclasses.replace(EXAMPLES["linear"], progress_type="iterations")
    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(schedule)
    model.compile(optimizer, loss="mean_absolute_error", jit_compile=jit)
    model.layers[0].set_weights([np.zeros([1, 1]), np.zeros([1])])
    ones, reader = np.ones([5, 1], np.float32), ReadRate()
    model.fit(ones, 99 * ones, batch_size=1, verbose=0, callbacks=[reader])
    expected = [schedule(step) for step in range(5)]
    np.testing.assert_allclose(reader.rates, expected, rtol=1e-6)
    kernel, _ = model.layers[0].get_weights()
    np.testing.assert_allclose(kernel, [[sum(expected)]], rtol=1e-6)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.optimizer.learning_rate, schedule(5), rtol=1e-6)


def test_scales_the_updates_of_a_transform():
    schedule = dataclasses.replace(EXAMPLES["exponential"], progress_type="iterations")
    scale = gradient_transforms.scale_by_schedule(schedule)
    descend = gradient_transforms.sgd(schedule)
    assert scale == gradient_transforms.scale_by_schedule(schedule)

    @tf.function(jit_compile=True, autograph=False)
    def updates(grads, states):
        first, scaling = scale.update(grads, states[0])
        second, descending = descend.update(grads, states[1])
        return first[0], second[0], [scaling, descending]

    grads = [tf.constant(2.0)]
    states = [scale.init(grads), descend.init(grads)]
    for step in range(5):
        first, second, states = updates(grads, states)
        np.testing.assert_allclose(first, 2.0 * schedule(step), rtol=1e-6)
        np.testing.assert_allclose(second, -2.0 * schedule(step), rtol=1e-6)
    assert updates.experimental_get_tracing_count() == 1


def test_gin_builds_schedules(request):
    request.addfinalizer(configs.clear)
    made = configs.register(configurables.CONFIGURABLES)
    configs.parse(
        bindings=[
            "LinearScheduler.progress_type = 'env_steps'",
            "LinearScheduler.schedule = [(0, 1.0), (1_000, 0.1)]",
            "StepScheduler.progress_type = 'percent'",
            "StepScheduler.schedule = [(0.5, 1), (1.0, 2)]",
            "StepScheduler.warm_up_period = 0.25",
            "CyclicalScheduler.switch_mode = 'linear'",
        ]
    )
    rate = schedules.LinearScheduler("env_steps", [(0, 1.0), (1000, 0.1)])
    assert made["LinearScheduler"]() == rate
    weight = schedules.StepScheduler("percent", [(0.5, 1), (1.0, 2)], 0.25)
    assert made["StepScheduler"]() == weight
    cycle = made["CyclicalScheduler"]("percent", 0.0, 1.0, 0.1)
    assert cycle.switch_mode == "linear"
    configs.check_all_used()
    for binding, message in (
        ("LinearScheduler.schedule = [(0, 'a')]", "LinearScheduler.schedule"),
        ("LinearScheduler.shedule = [(0, 1.0)]", "did you mean `schedule`"),
        ("CyclicalScheduler.half_cycle_size = '3'", "float for `CyclicalScheduler"),
    ):
        with pytest.raises(ValueError, match=f"bindings:1: expected .*{message}"):
            configs.parse(bindings=[binding])


BY_SHARE = schedulers.LinearScheduler("percent", [(0.0, 1e-2), (1.0, 0.0)])
BY_STEPS = schedulers.StepScheduler("env_steps", [(9, 1e-2)])


@pytest.mark.parametrize("schedule", [BY_SHARE, BY_STEPS])
def test_an_optimizer_takes_what_counts_updates(schedule):
    kind = schedule.progress_type
    match = f"`learning_rate` expected a schedule of 'iterations'.* of '{kind}'"
    variable = keras.Variable(np.ones(2, "f"))
    sgd = keras.optimizers.SGD(schedule)
    with pytest.raises(ValueError, match=match):
        sgd.apply([tf.ones(2)], [variable])
    assert variable.numpy().tolist() == [1.0, 1.0]
    for make in (
        lambda: gradient_transforms.sgd(schedule),
        lambda: gradient_transforms.scale_by_schedule(schedule),
        lambda: keras_optimizers.from_keras(sgd),
    ):
        with pytest.raises(ValueError, match=match):
            make()
    assert float(schedule(tf.constant(0.0))) == pytest.approx(1e-2)
