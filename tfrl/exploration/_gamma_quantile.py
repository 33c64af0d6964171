"""The inverse of the regularised incomplete gamma function, in logarithms."""

import math

import tensorflow as tf

# Most arguments need 5; a root at the very end of its bracket is left to bisection.
_STEPS = 12
# Relative error of the series for x: about its square.
_LOG_SMALL = math.log(1e-5)


def log_gamma_quantile(shape: tf.Tensor, probability: tf.Tensor) -> tf.Tensor:
    """Returns the logarithm of the x with P(shape, x) = probability.

    P is the distribution function of a gamma variable of scale 1. The result is finite
    for every shape > 0 whose logarithm of P at 1 is not beyond the dtype, also where x
    is far below the least number of the dtype.

    Small x come from the series

        P(a, x) = x^a / Gamma(a + 1) * (1 - x a / (a + 1) + ...),

    others from Newton's method, kept by bisection between

        -log(1 - p^(1/a))    and    -log(1 - p^(1/a)) * Gamma(a + 1)^(1/a)

    Args:
        shape: greater than 0, float32 or float64.
        probability: in (0, 1), of the same dtype and shape.

    Returns:
        A tensor like both.

    References:
        Alzer, 1997, On some inequalities for the incomplete gamma function, theorem 1
        (the bracket). Wilson, Hilferty, 1931, The distribution of chi-square (the
        starting point).

    Example:
        >>> x = tf.exp(log_gamma_quantile(tf.constant(1.0), tf.constant(0.75)))
        >>> round(float(x), 4)  # of the exponential distribution: log 4
        1.3863
    """
    log_power = tf.math.log(probability) / shape
    log_x = log_power + tf.math.lgamma(1.0 + shape) / shape
    is_small = log_x < _LOG_SMALL
    one = tf.ones_like(shape)
    root = _log_root(
        tf.where(is_small, one, shape), tf.where(is_small, 0.5 * one, probability)
    )
    series = log_x + tf.exp(tf.minimum(log_x, _LOG_SMALL)) / (1.0 + shape)
    return tf.where(is_small, series, root)


def _log_root(a: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
    log_power = tf.math.log(p) / a
    one_end = tf.math.log(-_log_of_one_less_exp(log_power))
    other_end = one_end + tf.math.lgamma(1.0 + a) / a
    low, high = tf.minimum(one_end, other_end), tf.maximum(one_end, other_end)
    third_root = 1.0 - 1.0 / (9.0 * a) + tf.math.ndtri(p) / (3.0 * tf.sqrt(a))
    start = tf.math.log(a) + 3.0 * tf.math.log(tf.maximum(third_root, 1e-3))
    log_factor = tf.math.lgamma(a)

    def step(
        log_x: tf.Tensor, low: tf.Tensor, high: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        x = tf.exp(log_x)
        reached = tf.math.igamma(a, x)
        is_low = reached < p
        low, high = tf.where(is_low, log_x, low), tf.where(is_low, high, log_x)
        # log P is nearly a line in log x where P is small, and concave everywhere.
        gap = reached * tf.math.log(reached / p)
        newton = log_x - gap * tf.exp(x + log_factor - a * log_x)
        is_inside = (newton >= low) & (newton <= high)
        return tf.where(is_inside, newton, 0.5 * (low + high)), low, high

    log_x, _, _ = tf.while_loop(
        lambda *_: True,
        step,
        (tf.clip_by_value(start, low, high), low, high),
        maximum_iterations=_STEPS,
    )
    return log_x


def _log_of_one_less_exp(x: tf.Tensor) -> tf.Tensor:
    """`log(1 - exp(x))` for x < 0, without cancellation."""
    return tf.where(
        x > -math.log(2.0), tf.math.log(-tf.math.expm1(x)), tf.math.log1p(-tf.exp(x))
    )
