"""The links: own ones, clipping, and gradients made dense."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import _gradient_parts as parts
from tfrl.agents import gradient_transforms as transforms


@dataclasses.dataclass(frozen=True)
class Centered(parts.Part):
    """Takes the mean off each gradient, and counts."""

    def init(self, params):
        return {"count": tf.constant(0)}

    def update(self, grads, state, params):
        updates = tf.nest.map_structure(lambda g: g - tf.reduce_mean(g), grads)
        return updates, {"count": state["count"] + 1}


def test_an_own_part_joins_a_chain():
    transform = transforms.chain(
        transforms.GradientTransform((Centered(),)), transforms.sgd(1.0)
    )
    grads = [tf.constant([1.0, 3.0])]
    updates, state = transform.update(grads, transform.init(grads))
    assert updates[0].numpy().tolist() == [1.0, -1.0]
    assert int(state[0]["count"]) == 1
    with pytest.raises(NotImplementedError):
        parts.Part().update(grads, {}, None)


def test_clip_measures_what_it_says():
    grads = [tf.constant([3.0, 4.0]), tf.constant([0.0, -0.6])]
    by = {
        name: [g.numpy() for g in parts.Clip(1.0, name).update(grads, {}, None)[0]]
        for name in ("value", "norm", "global_norm")
    }
    norm = np.sqrt(25.36)
    np.testing.assert_allclose(by["value"], [[1, 1], [0, -0.6]], rtol=1e-6)
    np.testing.assert_allclose(by["norm"], [[0.6, 0.8], [0, -0.6]], rtol=1e-6)
    np.testing.assert_allclose(
        by["global_norm"], [[3 / norm, 4 / norm], [0, -0.6 / norm]], rtol=1e-6
    )


def test_adam_with_eps_under_the_biased_root():
    grad = np.float32([1e-3, -2.0])
    scale = parts.ScaleByAdam(0.9, 0.999, 1e-2, eps_hat=True)
    update, state = scale.update(
        [tf.constant(grad)], scale.init([tf.constant(grad)]), None
    )
    root = np.sqrt(0.001 * grad**2)
    expected = 0.1 * grad * np.sqrt(0.001) / 0.1 / (root + 1e-2)
    np.testing.assert_allclose(update[0], expected, rtol=1e-4)
    assert int(state["count"]) == 1


def test_rms_starts_at_its_initial_scale():
    scale = parts.ScaleByRms(0.5, 0.0, initial_scale=2.0)
    update, _ = scale.update([tf.ones(1)], scale.init([tf.ones(1)]), None)
    np.testing.assert_allclose(update[0], 1 / np.sqrt(1.5), rtol=1e-6)


def test_dense_gradients():
    params = {"a": tf.ones([3, 2]), "b": tf.ones([2]), "c": tf.ones([1])}
    slices = tf.IndexedSlices(tf.ones([3, 2]), tf.constant([2, 0, 2]))
    grads = {"a": slices, "b": None, "c": np.ones(1)}

    def dense():
        return parts.dense_gradients(grads, params)

    for call in (dense, tf.function(dense, jit_compile=True)):
        found = call()
        np.testing.assert_array_equal(found["a"], [[1, 1], [0, 0], [2, 2]])
        np.testing.assert_array_equal(found["b"], [0, 0])
        assert found["c"].dtype == tf.float32
    with_shape = tf.IndexedSlices(tf.ones([1, 2]), [1], dense_shape=tf.constant([2, 2]))
    np.testing.assert_array_equal(
        parts.dense_gradients([with_shape], None)[0], [[0, 0], [1, 1]]
    )


@pytest.mark.parametrize(
    ("grads", "params", "message"),
    [
        ([None], None, "`grads` expected tensors; got None"),
        ([1.0, 2.0], [tf.ones(())], "`grads` expected the nest of `params`"),
        ({"a": 1.0}, {"b": tf.ones(())}, "`grads` expected the nest of `params`"),
        ([tf.ones([2, 1])], [tf.ones([2])], r"shape \(2,\) .* got \(2, 1\)"),
    ],
)
def test_gradients_that_do_not_match(grads, params, message):
    with pytest.raises(ValueError, match=message):
        parts.dense_gradients(grads, params)
