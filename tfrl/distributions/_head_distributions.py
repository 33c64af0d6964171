"""The distributions of TensorFlow Probability that action heads stand for.

Apart from the heads, which draw and score by themselves: training loads none of this.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.distributions import product, squashed

tfd = tfp.distributions
normal = tfd.MultivariateNormalDiag
squashed_normal = squashed.SquashedNormal
product_of = product.Product


def choices(
    logits: tf.Tensor, first: int, dtype: tf.DType, shape: Sequence[int]
) -> Any:
    """Returns that of integers from `first` on, the choices of one action in a shape.

    Args:
        logits: `[..., *shape, n]`.
        first: the number of the first option.
        dtype: of the integers.
        shape: of one action.
    """
    choice: Any
    if first:
        outcomes = tf.range(first, first + logits.shape[-1], dtype=dtype)
        choice = tfd.FiniteDiscrete(outcomes, logits=logits)
    else:
        choice = tfd.Categorical(logits=logits, dtype=dtype)
    return tfd.Independent(choice, len(shape)) if shape else choice


def box_normal(loc: tf.Tensor, deviation: tf.Tensor, n_axes: int) -> Any:
    """Returns a normal of arrays of so many axes, of numbers where there are none."""
    one = tfd.Normal(loc, deviation)
    return tfd.Independent(one, n_axes) if n_axes else one
