"""The distributions of TensorFlow Probability that action heads stand for.

Apart from the heads, which draw and score by themselves: training loads none of this.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.distributions import _families, product, squashed

tfd = tfp.distributions
normal = tfd.MultivariateNormalDiag
squashed_normal = squashed.SquashedNormal
product_of = product.Product


class ActionCategorical(tfp.distributions.Categorical):
    """A categorical distribution that scores numbers of every dtype.

    Floats are what Keras makes of labels; between whole ones there is no mass.
    """

    def _log_prob(self, k: tf.Tensor) -> tf.Tensor:
        return _scored(super()._log_prob, k, self.dtype)


class ActionFiniteDiscrete(tfp.distributions.FiniteDiscrete):
    """A distribution over numbered outcomes that scores numbers of every dtype."""

    def _log_prob(self, x: tf.Tensor) -> tf.Tensor:
        return _scored(super()._log_prob, x, self.dtype)

    def _cdf(self, x: tf.Tensor) -> tf.Tensor:
        whole = tf.floor(x) if x.dtype.is_floating else x
        return super()._cdf(_as_choices(whole, self.dtype))


class ActionNormal(tfp.distributions.Normal):
    """A normal distribution that scores floats of every dtype."""

    def _log_prob(self, x: tf.Tensor) -> tf.Tensor:
        return super()._log_prob(_families.as_values(self, x))

    def _cdf(self, x: tf.Tensor) -> tf.Tensor:
        return super()._cdf(_families.as_values(self, x))

    def _log_cdf(self, x: tf.Tensor) -> tf.Tensor:
        return super()._log_cdf(_families.as_values(self, x))


def _scored(
    log_prob: Callable[[tf.Tensor], tf.Tensor], value: tf.Tensor, dtype: tf.DType
) -> tf.Tensor:
    """Log-masses of values, -inf of those that are not whole."""
    found = log_prob(_as_choices(value, dtype))
    if not value.dtype.is_floating:
        return found
    is_whole = tf.equal(value, tf.round(value))
    return tf.where(is_whole, found, tf.constant(-np.inf, found.dtype))


def _as_choices(value: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    # Spaces have int8 and uint8, which TensorFlow Probability's operations do not take.
    if value.dtype in (tf.int32, tf.int64):
        return value
    is_narrow = value.dtype.is_floating or value.dtype.size < 4
    return tf.cast(value, dtype if is_narrow else tf.int64)


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
        choice = ActionFiniteDiscrete(outcomes, logits=logits)
    else:
        choice = ActionCategorical(logits=logits, dtype=dtype)
    return tfd.Independent(choice, len(shape)) if shape else choice


def box_normal(loc: tf.Tensor, deviation: tf.Tensor, n_axes: int) -> Any:
    """Returns a normal of arrays of so many axes, of numbers where there are none."""
    one = ActionNormal(loc, deviation)
    return tfd.Independent(one, n_axes) if n_axes else one
