"""Target networks of every kind of weight in replicas of a strategy, against NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from default_rows import slow

from tfrl import layers, training

TAU = 0.25


class Scaled:
    """A layer with a weight, and with a floating and a whole number as its state."""

    def init(self, signature, rng):  # noqa: ARG002
        state = np.zeros([], np.float32), np.zeros([], np.int32)
        return np.ones(signature.shape[-1:], np.float32), state

    def pure_fn(self, x, weights, state, rng):  # noqa: ARG002
        return x * weights, (state[0] + 0.1, state[1] + 1)


STATEFUL = {
    "RunningNormalization": layers.RunningNormalization,
    "AsKeras": lambda: layers.AsKeras(Scaled()),
    "BatchNormalization": keras.layers.BatchNormalization,
}


def network_with(name):
    return keras.Sequential(
        [keras.Input([3]), STATEFUL[name](), keras.layers.Dense(1, name="head")]
    )


def copies(strategy, network):
    """The weights as each replica has them, `[replica][weight]`."""
    found = [
        [x.numpy() for x in strategy.experimental_local_results(weight.value)]
        for weight in network.weights
    ]
    return list(zip(*found, strict=True))


def followed(network, targets, models, *, due):
    """The oracle: what the targets of all replicas should be after a call."""
    if not due:
        return targets
    return [
        [
            (1 - TAU) * target + TAU * model if weight.trainable else model
            for weight, target, model in zip(network.weights, *pair, strict=True)
        ]
        for pair in zip(targets, models, strict=True)
    ]


class Watch(keras.callbacks.Callback):
    """Compares the targets after every step."""

    def __init__(self, strategy, network, target, period):
        super().__init__()
        self.compare = comparison(strategy, network, target, period)

    def on_train_batch_end(self, batch, logs=None):  # noqa: ARG002
        self.compare()


def comparison(strategy, network, target, period):
    """A function to be called after every call of the updater."""
    expected, calls = [copies(strategy, target)], []

    def compare():
        calls.append(None)
        models = copies(strategy, network)
        due = len(calls) % period == 0
        expected[0] = followed(network, expected[0], models, due=due)
        for mine, yours in zip(copies(strategy, target), expected[0], strict=True):
            for weight, wanted in zip(mine, yours, strict=True):
                # What is near zero is a sum of numbers that are not, each rounded.
                atol = 2e-7 * max(1.0, np.abs(wanted).max(initial=0.0))
                np.testing.assert_allclose(weight, wanted, rtol=1e-6, atol=atol)

    return compare


def strategy_of_two():
    # The default way of reducing leaves a thread pool to the garbage collector.
    return tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )


@pytest.mark.parametrize("period", [2, *slow(1, 3)])
@pytest.mark.parametrize("where", ["replicas", "nested", "across"])
@pytest.mark.parametrize("name", STATEFUL)
def test_calls_of_all_kinds_of_weights(name, where, period):
    strategy = strategy_of_two()
    with strategy.scope():
        network, target = network_with(name), network_with(name)
        update = layers.TargetUpdater(network, target, tau=TAU, period=period)
    nested = tf.function(update)
    call = {
        "replicas": tf.function(lambda: strategy.run(update)),
        "nested": tf.function(lambda: strategy.run(nested)),
        "across": tf.function(update),
    }[where]
    rng = np.random.default_rng(0)
    compare = comparison(strategy, network, target, period)
    for _ in range(2 * period):
        for weight in network.weights:
            weight.assign((9 * rng.normal(size=weight.shape)).astype(weight.dtype))
        call()
        compare()


@pytest.mark.parametrize("name", STATEFUL)
def test_delayed_targets_of_all_kinds_of_weights(name):
    strategy = strategy_of_two()
    with strategy.scope():
        network, target = network_with(name), network_with(name)
        options = {"period": 2, "delayed_update": True}
        update = layers.TargetUpdater(network, target, **options)
    call = tf.function(lambda: strategy.run(update))
    seen = [network.get_weights()]
    for _ in range(3):
        for weight in network.weights:
            weight.assign(weight + 1)
        seen.append(network.get_weights())
        call()
        call()
        for own in copies(strategy, target):
            for weight, wanted in zip(own, seen[-2], strict=True):
                np.testing.assert_array_equal(weight, wanted)


@pytest.mark.parametrize("period", [2, *slow(1, 3)])
@pytest.mark.parametrize("name", STATEFUL)
def test_training_in_replicas(name, period):
    strategy = strategy_of_two()
    with strategy.scope():
        network, target = network_with(name), network_with(name)
        model = training.FitModel(
            network,
            lambda model, batch: tf.square(model.network(batch, training=True)[:, 0]),
            target_updater=layers.TargetUpdater(
                network, target, tau=TAU, period=period
            ),
        )
        model.compile(keras.optimizers.SGD(0.1))
    rows = np.random.default_rng(0).normal(size=[48, 3]).astype(np.float32)
    watch = Watch(strategy, network, target, period)
    data = tf.data.Dataset.from_tensor_slices(rows).batch(8)
    model.fit(data, verbose=0, callbacks=[watch])
    kept = {w.path: w.numpy() for w in network.weights if not w.trainable}
    assert any(np.any(value != 0) for value in kept.values())
