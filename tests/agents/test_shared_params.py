"""Averages of what models share."""

import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import shared_params


def trees():
    return (
        {"body": {"w": tf.constant([1.0, 2.0])}, "pi": {"w": tf.constant([7.0])}},
        {"body": {"w": tf.constant([5.0, 6.0]), "b": tf.constant(1.0)}},
        {"body": {"b": tf.constant(4.0)}, "v": tf.constant(3.0)},
    )


@pytest.mark.parametrize(
    ("weights", "w", "b"),
    [(None, [3.0, 4.0], 2.5), ([3, 1, 1], [2.0, 3.0], 2.5), ([1, 1, 2], [3, 4], 3.0)],
    ids=["equal", "unequal", "last"],
)
def test_shared_leaves_get_the_mean_of_their_holders(weights, w, b):
    def sync():
        return shared_params.sync_shared_params(*trees(), weights=weights)

    for call in (sync, tf.function(sync, jit_compile=True)):
        first, second, third = call()
        tf.nest.assert_same_structure((first, second, third), trees())
        np.testing.assert_allclose(first["body"]["w"], w)
        np.testing.assert_allclose(second["body"]["w"], w)
        np.testing.assert_allclose(second["body"]["b"], b)
        np.testing.assert_allclose(third["body"]["b"], b)
        np.testing.assert_array_equal(first["pi"]["w"], [7.0])
        np.testing.assert_array_equal(third["v"], 3.0)


def test_one_dictionary_stays():
    (tree,) = shared_params.sync_shared_params({"w": tf.constant(2.0)})
    assert float(tree["w"]) == 2.0


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, -1.0]])
def test_bad_weights(weights):
    with pytest.raises(ValueError, match="`weights` expected 2 positive numbers"):
        shared_params.sync_shared_params({}, {}, weights=weights)


@pytest.mark.parametrize(
    "other",
    [tf.ones(3), tf.ones(2, tf.float64), {"w": tf.ones(2)}],
    ids=["shape", "dtype", "nest"],
)
def test_shared_names_of_different_things(other):
    with pytest.raises(ValueError, match="`params` expected tensors of one shape"):
        shared_params.sync_shared_params({"a": tf.ones(2)}, {"a": other})
