"""Quantile fractions for distributional critics, and their cosine embedding."""

from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tfrl._internal import checks, draws, operands, precision
from tfrl.core import compile, random

TensorLike: TypeAlias = operands.TensorLike


def quantiles(
    batch_size: int | tf.Tensor, num_quantiles: int = 200, *, dtype: Any = tf.float32
) -> tf.Tensor:
    """Evenly spaced quantile fractions.

        tau[b, i] = i / num_quantiles,    i = 0, ..., num_quantiles - 1

    Args:
        batch_size: `B`, an int or an integer scalar.
        num_quantiles: how many fractions, at least 1.
        dtype: floating dtype of the result.

    Returns:
        `[B, num_quantiles]`, in [0, 1).

    Raises:
        ValueError: if `batch_size` is negative or `num_quantiles` less than 1.
        TypeError: if a count is not an int or `dtype` not floating.

    Example:
        >>> quantiles(1, num_quantiles=4).numpy()
        array([[0.  , 0.25, 0.5 , 0.75]], dtype=float32)
    """
    size, count = _counts("quantiles", batch_size, num_quantiles)
    wanted = operands.floating_dtype("quantiles", dtype)
    row = tf.constant(np.arange(count) / count)
    return tf.tile(tf.cast(row, wanted)[tf.newaxis], [size, 1])


def quantiles_uniform(
    seed: Any,
    batch_size: int | tf.Tensor,
    num_quantiles: int = 32,
    *,
    dtype: Any = tf.float32,
) -> tf.Tensor:
    """Random quantile fractions: `[0, 1]` cut into pieces of random relative lengths.

        u[b, i] ~ Uniform(0, 1)
        tau[b, i] = (u[b, 0] + ... + u[b, i]) / (u[b, 0] + ... + u[b, num_quantiles-1])

    so that the fractions of a row rise, and the last is 1. The same `seed` gives the
    same fractions eagerly, in a graph and under XLA.

    Args:
        seed: int, int32 `[2]` tensor, or None for another draw at each call.
        batch_size: `B`, an int or an integer scalar.
        num_quantiles: how many fractions, at least 1.
        dtype: floating dtype of the result; float16 and bfloat16 are drawn in float32.

    Returns:
        `[B, num_quantiles]`, in (0, 1].

    Raises:
        ValueError: if `batch_size` is negative or `num_quantiles` less than 1.
        TypeError: if a count is not an int or `dtype` not floating.

    Example:
        >>> tau = quantiles_uniform(seed=3, batch_size=2, num_quantiles=8)
        >>> tau.shape, float(tau[0, -1])
        (TensorShape([2, 8]), 1.0)
    """
    size, count = _counts("quantiles_uniform", batch_size, num_quantiles)
    wanted = operands.floating_dtype("quantiles_uniform", dtype)
    lengths = draws.uniform(
        [size, count],
        random.checked_seed("quantiles_uniform", seed),
        tf.float64 if wanted == tf.float64 else tf.float32,
    )
    return tf.cast(_cuts(lengths), wanted)


def quantile_cos_embedding(quantile_fractions: TensorLike, n: int = 64) -> tf.Tensor:
    """Cosine features of quantile fractions.

        phi[..., i - 1] = cos(pi * i * tau),    i = 1, ..., n

    The constant i = 0 of the paper is left out: the bias of the layer that follows
    provides it.

    Args:
        quantile_fractions: `[...]`, tau, floating; the result has its dtype. float16
            and bfloat16 are computed in float32.
        n: how many features, at least 1.

    Returns:
        `[..., n]`.

    Raises:
        ValueError: if `n` is less than 1.
        TypeError: if `quantile_fractions` is not floating or `n` not an int.

    Example:
        >>> quantile_cos_embedding([0.0, 1.0], n=2).numpy()
        array([[ 1.,  1.],
               [-1.,  1.]], dtype=float32)

    References:
        Dabney, Ostrovski, Silver, Munos (2018), "Implicit Quantile Networks for
        Distributional Reinforcement Learning", equation 4.
    """
    where = "quantile_cos_embedding"
    fractions = operands.leading(where, "quantile_fractions", quantile_fractions)
    count = checks.check_whole_number(where, "n", n, low=1)
    return _cos_embedding(fractions, n=count)


@compile.compiled(static=("n",))
def _cos_embedding(fractions: tf.Tensor, n: int) -> tf.Tensor:
    # cos(pi * i * tau) has period 2 in tau: small angles keep their digits.
    angles = np.pi * tf.math.floormod(precision.widened(fractions), 2)
    frequencies = tf.range(1, n + 1, dtype=angles.dtype)
    return tf.cast(tf.cos(angles[..., tf.newaxis] * frequencies), fractions.dtype)


def _cuts(lengths: tf.Tensor) -> tf.Tensor:
    """Where pieces of lengths proportional to the positive ones given end."""
    ends = tf.cumsum(lengths, axis=-1)
    return ends / ends[:, -1:]


def _counts(where: str, batch_size: int | tf.Tensor, num_quantiles: int) -> Any:
    if not tf.is_tensor(batch_size):
        checks.check_whole_number(where, "batch_size", batch_size, low=0)
    return batch_size, checks.check_whole_number(
        where, "num_quantiles", num_quantiles, low=1
    )
