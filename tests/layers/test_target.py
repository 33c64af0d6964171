"""Target networks follow, and what is periodic happens at its calls."""

import golden_io
import keras
import modes
import numpy as np
import pytest
import tensorflow as tf
from default_rows import slow

from tfrl import layers, schedules

UPDATES = golden_io.load("alf/common", symbol="TargetUpdater")
(PERIODS,) = golden_io.load("alf/common", symbol="Periodically")


def strategy_of_two():
    # The default way of reducing leaves a thread pool to the garbage collector.
    return tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )


def module_of(values):
    module = tf.Module()
    for name, value in values.items():
        setattr(module, name, tf.Variable(value, trainable=name != "buf"))
    return module


def dense(seed, units=2):
    layer = keras.layers.Dense(
        units, kernel_initializer=keras.initializers.RandomNormal(seed=seed)
    )
    layer.build([None, 3])
    return layer


def assert_equal_weights(one, two):
    for mine, yours in zip(one.weights, two.weights, strict=True):
        np.testing.assert_array_equal(mine.numpy(), yours.numpy())


@pytest.mark.parametrize("mode", ["eager", *slow("graph", "xla")])
@pytest.mark.parametrize("case", UPDATES, ids=golden_io.ids(UPDATES))
def test_recorded_updates(case, mode):
    given, out = dict(case["in"]), case["out"]
    model = module_of(given.pop("source_init"))
    target = module_of(given.pop("target_init"))
    states = given.pop("source_before_call")
    updater = layers.TargetUpdater(model, target, **given)
    update = modes.in_mode(mode, updater)

    def check(expected):
        for name, value in expected.items():
            got = getattr(target, name)
            np.testing.assert_allclose(got, value, **case["tol"])

    check(out["target_after_init"])
    for state, expected in zip(states, out["target_after_call"], strict=True):
        for name, value in state.items():
            getattr(model, name).assign(value)
        update()
        check(expected)


def test_recorded_periods():
    calls = []
    clock = layers.Periodically(lambda: calls.append(0), PERIODS["in"]["period"])
    for expected in PERIODS["out"]["body_calls_after_each_call"]:
        clock()
        assert len(calls) == expected


def slow_update(models, tau, period, delayed):
    """Yields the targets after each call, for one weight as plain numbers."""
    target = recent = models[0]
    for call, model in enumerate(models[1:], start=1):
        due = call % period == 0
        follow = tau * model + (1 - tau) * (recent if delayed else target)
        if due:
            target = recent if delayed else follow
        if delayed and (tau < 1 or due):
            recent = follow
        yield target


@pytest.mark.parametrize("delayed", [False, True], ids=["at once", "delayed"])
@pytest.mark.parametrize("period", [1, 3])
@pytest.mark.parametrize("tau", [1.0, 0.25, 0.0])
def test_equals_the_slow_way(tau, period, delayed):
    values = np.random.default_rng(0).normal(size=10)
    weight, target = tf.Variable(values[0]), tf.Variable(values[0])
    update = layers.TargetUpdater(weight, target, tau, period, delayed_update=delayed)
    for value, right in zip(
        values[1:], slow_update(values, tau, period, delayed), strict=True
    ):
        weight.assign(value)
        update()
        np.testing.assert_allclose(target, right, rtol=1e-13)


@modes.modes
def test_period_in_every_mode(mode):
    count = tf.Variable(0)
    clock = layers.Periodically(lambda: count.assign_add(1), period=3)
    run = modes.in_mode(mode, clock)
    seen = []
    for _ in range(7):
        run()
        seen.append(int(count))
    assert seen == [0, 0, 1, 1, 1, 2, 2]


def test_keras_models_with_statistics():
    def network():
        model = keras.Sequential(
            [keras.Input([3]), keras.layers.Dense(2), keras.layers.BatchNormalization()]
        )
        model.add(keras.layers.Dropout(0.5, seed=1))
        return model

    models, targets = [network(), dense(1)], [network(), dense(2)]
    update = layers.TargetUpdater(models, targets, tau=0.5)
    assert_equal_weights(models[0], targets[0])
    assert_equal_weights(models[1], targets[1])
    for weight in (*models[0].weights, *models[1].weights):
        weight.assign(weight + 2.0)
    before = [w.numpy() for w in targets[0].variables]
    update()
    for source, target, old in zip(
        models[0].variables, targets[0].variables, before, strict=True
    ):
        if source.name in ("moving_mean", "moving_variance"):
            np.testing.assert_array_equal(target, source)
        elif "seed" in source.name:
            np.testing.assert_array_equal(target, old)
        else:
            np.testing.assert_allclose(target, old + 1.0, rtol=1e-6)
    assert (update.models, update.target_models) == (models, targets)


def test_frozen_target_still_follows():
    model, target = dense(1), dense(2)
    target.trainable = False
    update = layers.TargetUpdater(model, target, tau=0.5, init_copy=False)
    middle = (model.kernel + target.kernel) / 2
    update()
    np.testing.assert_allclose(target.kernel, middle, rtol=1e-6)


def test_shared_weights_stay_out():
    shared = tf.Variable(1.0)
    one, two = module_of({"w": 1.0}), module_of({"w": 3.0})
    one.shared = two.shared = shared
    update = layers.TargetUpdater(one, two, tau=0.5, init_copy=False)
    update()
    assert (float(shared), float(two.w)) == (1.0, 2.0)


PRECISION = {"float16": 1e-3, "bfloat16": 1e-2, "float32": 1e-7, "float64": 1e-15}


@pytest.mark.parametrize("dtype", PRECISION)
def test_dtypes_are_kept(dtype):
    weight, target = tf.Variable(tf.ones([2], dtype)), tf.Variable(tf.zeros([2], dtype))
    layers.TargetUpdater(weight, target, tau=0.1, init_copy=False)()
    got = tf.cast(target, tf.float64)
    np.testing.assert_allclose(got, [0.1, 0.1], rtol=PRECISION[dtype])


def test_schedules_of_tau():
    weight, target = tf.Variable(1.0), tf.Variable(0.0)
    tau = schedules.StepScheduler("iterations", [(1, 0.5), (10, 0.0)])
    update = layers.TargetUpdater(weight, target, tau, init_copy=False)
    for iterations, right in ((0, 0.5), (5, 0.5)):
        with schedules.progress_context(schedules.Progress(iterations=iterations)):
            update()
        assert float(target) == right
    steps = tf.Variable(0)

    @tf.function
    def step():
        with schedules.progress_context(schedules.Progress(iterations=steps)):
            update()

    target.assign(0.0)
    step()
    assert float(target) == 0.5
    steps.assign(5)
    step()
    assert float(target) == 0.5


def test_checkpoints_keep_count_and_recent(tmp_path):
    def make():
        weight, target = tf.Variable(1.0), tf.Variable(0.0)
        update = layers.TargetUpdater(
            weight, target, tau=0.5, period=3, delayed_update=True
        )
        return weight, target, update

    weight, target, update = make()
    weight.assign(5.0)
    update(), update()
    path = tf.train.Checkpoint(update=update).save(str(tmp_path / "state"))
    other_weight, other, again = make()
    tf.train.Checkpoint(update=again).restore(path).assert_consumed()
    assert float(other_weight) == 1.0
    other_weight.assign(5.0)
    other.assign(target)
    for _ in range(4):
        update(), again()
        assert float(target) == float(other)
    assert float(target) == 4.875


@pytest.mark.parametrize("where", ["graph", *slow("replicas", "across")])
@pytest.mark.parametrize("delayed", [True, *slow(False)], ids=["delayed", "at once"])
def test_strategies(where, delayed):
    strategy = strategy_of_two()
    alone = dense(1), dense(2)
    options = {"tau": 0.5, "period": 2, "init_copy": False, "delayed_update": delayed}
    right = layers.TargetUpdater(*alone, **options)
    with strategy.scope():
        pair = dense(1), dense(2)
        update = layers.TargetUpdater(*pair, **options)
    calls = {
        "replicas": lambda: strategy.run(update),
        "across": update,
        "graph": tf.function(lambda: strategy.run(update)),
    }
    for step in range(4):
        for model in (alone[0], pair[0]):
            model.kernel.assign(tf.fill([3, 2], float(step)))
        right()
        calls[where]()
        for target in strategy.experimental_local_results(pair[1].kernel.value):
            np.testing.assert_array_equal(target, alone[1].kernel)


def test_a_strategy_asks_for_its_scope():
    with strategy_of_two().scope():
        pair = dense(1), dense(2)
    with pytest.raises(ValueError, match="`target_models` of a .* expected its scope"):
        layers.TargetUpdater(*pair)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"tau": 1.5}, ValueError, r"`tau` expected numbers in \[0.0, 1.0\]"),
        ({"tau": "slow"}, TypeError, "`tau` expected numbers"),
        ({"period": 0}, ValueError, "`period` expected"),
        ({"period": None}, TypeError, "`period` expected"),
        ({"models": "q"}, TypeError, "`models` expected Keras layers"),
        (
            {"models": keras.layers.Dense(2)},
            ValueError,
            "`models` expected built layers",
        ),
        (
            {"target_models": dense(0, units=3)},
            ValueError,
            r"expected float32 of shape \[3, 2\] for weight 0 \(kernel\).*\[3, 3\]",
        ),
        ({"target_models": []}, ValueError, "expected 2 weights.* got 0"),
        ({"models": [], "target_models": []}, ValueError, "own; got none"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_bad_arguments(change, error, match):
    given = {"models": dense(1), "target_models": dense(2)} | change
    with pytest.raises(error, match=f"`TargetUpdater`: .*{match}"):
        layers.TargetUpdater(**given)


def test_a_model_is_not_its_own_target():
    model = dense(1)
    with pytest.raises(ValueError, match="weights of their own; got those of"):
        layers.TargetUpdater(model, model)


def test_bad_periods():
    with pytest.raises(TypeError, match="`Periodically`: `body` expected a function"):
        layers.Periodically(3, 3)
    for period, error in ((0, ValueError), (None, TypeError), (1.5, TypeError)):
        with pytest.raises(error, match="`Periodically`: `period` expected"):
            layers.Periodically(print, period)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Keras' `quantize`
@pytest.mark.parametrize(
    ("change", "of"),
    [
        (lambda model: model.layers[0].enable_lora(2), 0),
        (lambda model: model.layers[0].enable_lora(2), 1),
        (lambda model: model.layers[0].quantize("int8"), 0),
    ],
)
def test_models_that_have_got_other_weights_are_refused(change, of):
    models = [
        keras.Sequential([keras.Input([3]), keras.layers.Dense(2, name="known")])
        for _ in range(2)
    ]
    update = layers.TargetUpdater(*models, tau=0.5)
    update()
    change(models[of])
    before = [x.numpy() for x in models[1].weights]
    name = ("models", "target_models")[of]
    with pytest.raises(ValueError, match=f"`{name}` .*; got new ones in 'known', as"):
        update()
    for x, y in zip(before, models[1].weights, strict=True):
        np.testing.assert_array_equal(x, y)
