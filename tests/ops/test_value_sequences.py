"""Sequences as the value ops take them: of any rank, time first or second."""

import numpy as np
import pytest
import tensorflow as tf

from tfrl import ops
from tfrl.ops import value


@value._over_time
def running(values, rewards, factor):
    """Uses rank, time axis and dtype of everything it gets."""
    return {"sum": tf.cumsum(values + factor * rewards), "last": values[::-1]}


def test_aligns_ranks_and_puts_time_first():
    values = np.arange(12.0).reshape(2, 3, 2)
    rewards = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    got = running(values, rewards, tf.constant(10.0, tf.float64), time_major=False)
    expected = np.cumsum(values + 10 * rewards[..., None], axis=1)
    np.testing.assert_allclose(got["sum"], expected)
    np.testing.assert_allclose(got["last"], values[:, ::-1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_dtypes_are_summed_in_float32(dtype):
    ones = tf.ones([4096, 1], dtype)
    total = running(ones, ones, tf.zeros([], dtype), time_major=True)["sum"]
    # Summed in the dtype itself it would stop at 2048 or 256.
    assert total.dtype == dtype
    assert float(total[-1, 0]) == 4096.0


def test_unknown_rank_is_refused():
    @tf.function(input_signature=[tf.TensorSpec(None)])
    def returns(values):
        return ops.td_lambda_return([1.0], [1.0], values)

    with pytest.raises(ValueError, match="`next_values` expected a known rank"):
        returns.get_concrete_function()


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ([0.5], ValueError, "`lambda_` expected the shape of `values`"),
        (np.float64(0.5), TypeError, "`lambda_` expected dtype float32"),
    ],
    ids=["shape", "dtype"],
)
def test_weights_refuse(value, error, message):
    twos = tf.ones([2, 2])
    with pytest.raises(error, match=message):
        ops.td_lambda_return(twos, twos, twos, tf.constant(value))
