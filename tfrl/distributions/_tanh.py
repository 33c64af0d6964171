"""Tanh into bounds, its inverse and its slope; `SquashedNormal` and heads use them.

Imports no TensorFlow Probability.
"""

import math

import tensorflow as tf

from tfrl._internal import precision

_LOG_2 = math.log(2.0)
# One minus the largest number of a dtype below 1: what tanh can still tell from 1.
_MARGINS = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-24, "float64": 2**-53}


def half_range(low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    """Half the distance of the bounds, which itself may overflow."""
    return 0.5 * high - 0.5 * low


def squash(raw: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    """Returns `clip(centre + half_range * tanh(raw), low, high)`."""
    centre = 0.5 * low + 0.5 * high
    # Clipped: rounding may lead beyond a bound.
    actions = centre + half_range(low, high) * tf.tanh(raw)
    return tf.clip_by_value(actions, low, high)


def unsquash(actions: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    """Returns what `squash` maps to `actions`: finite, at and beyond the bounds too.

    With t the place between the bounds in [-1, 1], it is

        atanh(t) = sign(t) * ln(1 + 2 |t| / (1 - |t|)) / 2

    where `1 - |t|`, the distance from the nearer bound, is taken directly from that
    bound. It counts as at least the least one that `squash` can leave: from there on
    the result is a constant, whose gradient is 0.
    """
    centre, half = 0.5 * low + 0.5 * high, half_range(low, high)
    actions = tf.clip_by_value(actions, low, high)
    below = actions < centre
    distance = tf.where(below, actions - low, high - actions)
    distance = precision.quotient(distance, half)
    # Not abs(), whose slope in the centre is 0.
    place = tf.where(below, centre - actions, actions - centre)
    place = precision.quotient(place, half)
    margin = tf.constant(_MARGINS[actions.dtype.name], actions.dtype)
    at_bound = distance <= margin
    distance = tf.where(at_bound, margin, distance)
    place = tf.where(at_bound, 1.0 - margin, place)
    raw = 0.5 * tf.math.log1p(2.0 * place / distance)
    return tf.where(below, -raw, raw)


def log_slope(raw: tf.Tensor) -> tf.Tensor:
    """Returns `log(1 - tanh(raw)^2)`, the slope of `squash` for a half range of 1.

    `2 (log 2 - |raw| - log(1 + exp(-2 |raw|)))` neither overflows nor cancels in the
    tails.
    """
    size = tf.abs(raw)
    # Not log1p: its relative precision is not needed, and XLA takes longer for it.
    return 2.0 * (_LOG_2 - size - tf.math.log(1.0 + tf.exp(-2.0 * size)))
