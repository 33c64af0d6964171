"""Initial weights that Keras has, in every dtype."""

from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable("tfrl")
class Orthogonal(keras.initializers.Orthogonal):
    """Keras' orthogonal initial weights, in half precision too.

    A random matrix with orthonormal rows or columns times `gain`. Keras finds it by a
    QR decomposition, which TensorFlow has for float32 and float64 alone: for a layer
    whose dtype is `bfloat16` or `float16` it is computed in float32 and rounded. In
    other dtypes the values are those of `keras.initializers.Orthogonal`.

    Args:
        gain: what the matrix is multiplied by.
        seed: as of Keras.

    Example:
        >>> kernel = Orthogonal(seed=0)([2, 2], dtype="bfloat16")
        >>> kernel.dtype, (kernel @ tf.transpose(kernel)).numpy().round().tolist()
        (tf.bfloat16, [[1.0, 0.0], [0.0, 1.0]])
    """

    def __call__(self, shape: Any, dtype: Any = None) -> tf.Tensor:
        """Returns initial weights of a shape, of Keras' default dtype if None."""
        dtype = tf.as_dtype(dtype or keras.config.floatx())
        wide = dtype if dtype.size > 2 else tf.float32
        return tf.cast(super().__call__(shape, wide.name), dtype)
