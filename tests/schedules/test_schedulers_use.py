"""Schedules in Keras optimizers, in gradient transforms and in gin files."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import rl_trainer, schedules
from tfrl.agents import gradient_transforms
from tfrl.configuring import configs

EXAMPLES = {
    "constant": schedules.ConstantScheduler(0.5),
    "step": schedules.StepScheduler("iterations", [(2, 1.0), (3, 0.5)], 1),
    "linear": schedules.LinearScheduler("iterations", [(0, 1.0), (2, 0.5), (4, 0.0)]),
    "exponential": schedules.ExponentialScheduler("iterations", 2.0, 0.5, 3),
    "cyclical": schedules.CyclicalScheduler("iterations", 0.0, 1.0, 3, "linear"),
    "stepwise": schedules.StepwiseLinearFunction((0, 1.0), (4, 0.5)),
}
every = pytest.mark.parametrize("schedule", EXAMPLES.values(), ids=EXAMPLES)


class ReadRate(keras.callbacks.Callback):
    """Reads the rate in effect when a batch begins."""

    def on_train_batch_begin(self, batch, logs=None):
        self.rates = [
            *getattr(self, "rates", []),
            float(self.model.optimizer.learning_rate),
        ]


@pytest.fixture(params=[False, True], ids=["graph", "xla"])
def fitted(request):
    """A model of one weight with slope 1, after 5 batches."""

    def fit(schedule):
        model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
        model.compile(
            keras.optimizers.SGD(schedule),
            loss=lambda y_true, y_pred: y_pred,
            jit_compile=request.param,
        )
        model.layers[0].set_weights([np.zeros([1, 1]), np.zeros([1])])
        reader = ReadRate()
        ones = np.ones([5, 1], np.float32)
        model.fit(ones, ones, batch_size=1, verbose=0, callbacks=[reader])
        return model, reader.rates

    return fit


def test_in_fit(fitted):
    schedule = EXAMPLES["linear"]
    model, rates = fitted(schedule)
    expected = [schedule(step) for step in range(5)]
    np.testing.assert_allclose(rates, expected, rtol=1e-6)
    kernel, _ = model.layers[0].get_weights()
    np.testing.assert_allclose(kernel, [[-sum(expected)]], rtol=1e-6)


# Keras reads its variables in a way that numpy 2 deprecates.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@every
def test_saved_with_a_model_and_its_optimizer(schedule, tmp_path):
    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(schedule), "mse", jit_compile=False)
    ones = np.ones([2, 1], np.float32)
    model.fit(ones, ones, batch_size=1, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    config = keras.saving.serialize_keras_object(schedule)
    assert keras.saving.deserialize_keras_object(config) == schedule
    assert int(loaded.optimizer.iterations) == 2
    np.testing.assert_allclose(loaded.optimizer.learning_rate, schedule(2), rtol=1e-6)
    twin = keras.optimizers.Adam.from_config(model.optimizer.get_config())
    np.testing.assert_allclose(twin.learning_rate, schedule(0), rtol=1e-6)


def test_one_trace_in_a_custom_loop():
    schedule = EXAMPLES["exponential"]
    optimizer = keras.optimizers.SGD(schedule)
    weight = keras.Variable(0.0)
    optimizer.build([weight])

    @tf.function(jit_compile=True, autograph=False)
    def step():
        optimizer.apply([tf.ones([])])

    for _ in range(4):
        step()
    expected = -sum(schedule(n) for n in range(4))
    np.testing.assert_allclose(weight, expected, rtol=1e-6)
    assert step.experimental_get_tracing_count() == 1


@every
def test_scales_the_updates_of_a_transform(schedule):
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


@pytest.fixture
def configured():
    made = configs.register(rl_trainer._CONFIGURABLES)
    yield made
    configs.clear()


def test_gin_builds_schedules(configured):
    def follow(rate=None, weight=None, cycle=None):
        return rate, weight, cycle

    follow = configs.register({"follow": follow}, module="tests")["follow"]
    configs.parse(
        bindings=[
            "follow.rate = @LinearScheduler()",
            "LinearScheduler.progress_type = 'env_steps'",
            "LinearScheduler.schedule = [(0, 1.0), (1_000, 0.1)]",
            "follow.weight = @StepScheduler()",
            "StepScheduler.progress_type = 'percent'",
            "StepScheduler.schedule = [(0.5, 1), (1.0, 2)]",
            "StepScheduler.warm_up_period = 0.25",
            "follow.cycle = @CyclicalScheduler",
            "CyclicalScheduler.switch_mode = 'linear'",
        ]
    )
    rate, weight, cycle = follow()
    assert rate == schedules.LinearScheduler("env_steps", [(0, 1.0), (1000, 0.1)])
    assert type(rate) is schedules.LinearScheduler
    assert weight == schedules.StepScheduler("percent", [(0.5, 1), (1.0, 2)], 0.25)
    assert cycle("percent", 0.0, 1.0, 0.1).switch_mode == "linear"
    configs.check_all_used()
    assert "LinearScheduler.schedule = [(0, 1.0), (1000, 0.1)]" in configs.operative()


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        ("LinearScheduler.schedule = [(0, 'a')]", "LinearScheduler.schedule"),
        ("LinearScheduler.shedule = [(0, 1.0)]", "did you mean `schedule`"),
        ("CyclicalScheduler.half_cycle_size = '3'", "float for `CyclicalScheduler"),
    ],
    ids=["pair", "name", "number"],
)
def test_gin_tells_mistakes(configured, binding, message):
    with pytest.raises(ValueError, match=f"bindings:1: expected .*{message}"):
        configs.parse(bindings=[binding])
