"""Counts and indices as they come in."""

import numpy as np
import pytest
import tensorflow as tf

from tfrl.replay import _indices


@pytest.mark.parametrize(
    "value",
    [[1, 2], (1, 2), np.array([1, 2], np.uint8), tf.constant([1, 2]), range(1, 3)],
    ids=["list", "tuple", "bytes", "tensor", "range"],
)
def test_integers_become_int64(value):
    array = _indices.int64_array("f", "idx", value)
    assert array.dtype == np.int64
    np.testing.assert_array_equal(array, [1, 2])
    tensor = _indices.int64_tensor("f", "idx", value)
    assert tensor.dtype == tf.int64
    np.testing.assert_array_equal(tensor, [1, 2])


@pytest.mark.parametrize("value", [[0.5], [True], ["a"], None], ids=str)
@pytest.mark.parametrize("convert", [_indices.int64_array, _indices.int64_tensor])
def test_all_else_is_refused(convert, value):
    with pytest.raises(TypeError, match="`f`: `idx` expected integers; got"):
        convert("f", "idx", value)


def test_no_index_is_none():
    assert _indices.int64_array("f", "idx", []).shape == (0,)
    assert _indices.int64_tensor("f", "idx", []).dtype == tf.int64


def test_least_and_every_serve_arrays_and_tensors():
    for make in (np.array, tf.constant):
        assert bool(_indices.every(make([True, True])))
        assert not bool(_indices.every(make([True, False])))
        np.testing.assert_array_equal(_indices.minimum(make([1, 5]), 3), [1, 3])
