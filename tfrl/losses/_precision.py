"""The precision that losses compute in."""

import tensorflow as tf


def wide(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor in the dtype to compute in: float32 for the 16-bit dtypes.

    bfloat16 cannot count to 300, float16 cannot square 300: sums over bins and
    quantiles need more than either has.

    Args:
        tensor: floating.

    Returns:
        The tensor, cast if it is float16 or bfloat16.

    Example:
        >>> wide(tf.ones([2], tf.bfloat16)).dtype.name
        'float32'
    """
    narrow = tensor.dtype in (tf.float16, tf.bfloat16)
    return tf.cast(tensor, tf.float32) if narrow else tensor
