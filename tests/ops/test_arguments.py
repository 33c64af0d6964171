"""How arguments of ops are checked."""

import numpy as np
import pytest
import tensorflow as tf

from tfrl.ops import _arguments


def test_ranked_wants_a_known_rank():
    assert _arguments.ranked("op", "x", [1.0, 2.0], at_least=1).shape == [2]
    with pytest.raises(ValueError, match=r"`op`: `x` expected rank of at least 2; got"):
        _arguments.ranked("op", "x", [1.0], at_least=2)
    graph = tf.function(lambda x: _arguments.ranked("op", "x", x))
    with pytest.raises(ValueError, match="got shape <unknown>; set it with"):
        graph.get_concrete_function(tf.TensorSpec(None))


@pytest.mark.parametrize(("given", "expected"), [(0, 0), (-1, 2), (-3, 0), (2, 2)])
def test_axis_counts_from_the_front(given, expected):
    assert _arguments.axis("op", "dim", given, tf.zeros([1, 1, 1])) == expected
    assert (
        _arguments.axis("op", "dim", np.int64(given), tf.zeros([1, 1, 1])) == expected
    )


@pytest.mark.parametrize("axis", [3, -4])
def test_axis_must_exist(axis):
    with pytest.raises(ValueError, match=r"`op`: `dim` expected an int in \[-3, 2\]"):
        _arguments.axis("op", "dim", axis, tf.zeros([1, 1, 1]))


def test_floating_dtype():
    for dtype in ("bfloat16", np.float64, tf.float16):
        assert _arguments.floating_dtype("op", dtype) == dtype
    with pytest.raises(
        TypeError, match="`op`: `dtype` expected a floating-point dtype"
    ):
        _arguments.floating_dtype("op", tf.int32)
