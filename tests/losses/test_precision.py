"""Tests of `tfrl.losses._precision`."""

import pytest
import tensorflow as tf

from tfrl.losses import _precision


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float16", "float32"),
        ("bfloat16", "float32"),
        ("float32", "float32"),
        ("float64", "float64"),
    ],
)
def test_wide(dtype, expected):
    tensor = tf.constant([1.5], dtype)
    assert _precision.wide(tensor).dtype == expected
    assert _precision.wide(tensor).numpy() == [1.5]
