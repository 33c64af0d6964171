"""Batches apart, losses weighted."""

import fit_examples as examples
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import core, losses
from tfrl.replay.sampling import transitions
from tfrl.training.fitting import _fit_data, _fit_losses

X, Y, W = tf.ones([2, 3]), tf.ones([2]), tf.constant([1.0, 0.5])
SAMPLE = transitions.Sample(X, tf.range(2), W, W)


@pytest.mark.parametrize(
    ("data", "batch", "weights"),
    [
        (X, X, None),
        ({"x": X}, {"x": X}, None),
        ((X,), X, None),
        ((X, Y), (X, Y), None),
        ((X, Y, W), (X, Y), W),
        (SAMPLE, SAMPLE, W),
        ((SAMPLE,), SAMPLE, W),
        (core.LossInfo(X, Y), core.LossInfo(X, Y), None),
        ([X, Y], [X, Y], None),
    ],
    ids=["tensor", "dict", "x", "xy", "xyw", "sample", "sample in x", "record", "list"],
)
def test_unpacked(data, batch, weights):
    found, own = _fit_data.unpacked(data)
    tf.nest.assert_same_structure(found, batch)
    assert all(
        a is b
        for a, b in zip(tf.nest.flatten(found), tf.nest.flatten(batch), strict=True)
    )
    assert own is weights


def told(result):
    return _fit_losses.told(lambda model, batch: result, examples.network(), X, True)


def part(losses, weights, batch, over_weights=False, network=()):
    given = losses, "extra"
    return _fit_losses.part(given, weights, batch, network, over_weights=over_weights)


def test_checked_results():
    half = tf.ones([2], tf.float16)
    for result in (half, (half, {"a": 1}), core.LossInfo(half, {"a": 1})):
        loss, extra = told(result)
        assert loss.dtype == tf.float32
        assert extra in ((), {"a": 1})
    assert told(tf.ones([2], tf.float64))[0].dtype == tf.float64
    for wrong in (None, [half], (half, {}, 3), {"loss": half}):
        with pytest.raises(TypeError, match="`loss_fn` expected to return a loss per"):
            told(wrong)


@pytest.mark.parametrize("over_weights", [False, True])
@pytest.mark.parametrize("shape", [[2], [2, 3]], ids=str)
def test_weighted(shape, over_weights):
    values = np.arange(1.0, 1.0 + np.prod(shape)).reshape(shape).astype(np.float32)
    full = np.broadcast_to(W.numpy().reshape([2] + [1] * (len(shape) - 1)), shape)
    right = np.sum(values * full) / (np.sum(full) if over_weights else values.size)
    for weights in (W, W[:, tf.newaxis]) if len(shape) == 1 else (W,):
        mean = part(tf.constant(values), weights, X, over_weights)
        np.testing.assert_allclose([mean.mean, mean.share], right, rtol=1e-6)
        np.testing.assert_array_equal(mean.weights, full)
        assert mean.extra == "extra"


def test_a_single_number_counts_for_the_batch():
    mean = part(tf.constant(3.0), None, {"x": X})
    assert (float(mean.mean), float(mean.share), float(mean.total)) == (3.0, 3.0, 2.0)
    with pytest.raises(ValueError, match="a loss per element of a batch with weights"):
        part(tf.constant(3.0), W, X)


def test_weights_of_zero_and_of_another_shape():
    mean = part(Y, 0 * W, X, over_weights=True)
    assert (float(mean.mean), float(mean.share)) == (0.0, 0.0)
    with pytest.raises(ValueError, match=r"begins with that of the weights, \(3,\)"):
        part(Y, tf.ones([3]), X, over_weights=True)


def test_priorities():
    info = losses.td_loss(Y, W)
    for extra in (info.extra, {"priorities": info.extra.priorities}):
        indices, found = _fit_data.priorities(SAMPLE, extra)
        np.testing.assert_allclose(found, np.abs(Y - W))
        assert indices is SAMPLE.indices
    with pytest.raises(ValueError, match="`loss_fn` expected to report `priorities`"):
        _fit_data.priorities(SAMPLE, ())


def test_shares_of_replicas():
    strategy = examples.strategy_of_two()
    with strategy.scope():
        assert float(part(Y, None, X).share) == 1.0
    shares = strategy.run(lambda: part(tf.ones([2]), None, X).share)
    found = [float(x) for x in strategy.experimental_local_results(shares)]
    assert found == [0.5, 0.5]


def test_penalty():
    layer = keras.layers.Dense(1, kernel_regularizer=keras.regularizers.L1(2.0))
    layer.build([None, 1])
    layer.kernel.assign([[3.0]])
    assert float(part(Y, None, X, network={"a": layer}).mean) == 7.0
