"""Log-density and entropy of the beta distribution for great concentrations, too.

The textbook formulas subtract terms of the size of the concentrations; in float32
nothing remains of the difference from 1e6 on. Here the great terms of Stirling's
formula are taken out before anything is computed.
"""

import math
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfrl._internal import precision
from tfrl.core import compile
from tfrl.distributions import _elementwise

_GREAT = 8.0
_NEAR = 0.2
# digamma(a) = log a - 1 / (2 a) - sum_k c_k a^(-2 k), k from 1.
_DIGAMMA_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
# log(1 + u) - u = r (-u + 2 r^2 sum_k r^(2 k) / (2 k + 3)), r = u / (2 + u).
_LOG_SERIES = tuple(1 / (2 * k + 3) for k in range(8))


@compile.compiled
def log_density(x: tf.Tensor, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Returns `log Beta(x; a, b)`; -inf outside of [0, 1], NaN for NaN."""
    shape, x, a, b = _elementwise.rows(x, a, b)
    inner = ~((x <= 0.0) | (x >= 1.0))
    inside = _log_density(tf.where(inner, x, 0.5), a, b)
    # At a bound the power is 0, 1 or infinite; its slope is left out. Where it is 1,
    # the density is the other concentration.
    low = x <= 0.0
    edge, other = tf.where(low, a, b), tf.where(low, b, a)
    at_bound = tf.math.xlogy(tf.stop_gradient(edge - 1.0), tf.zeros_like(x + edge))
    at_bound += tf.math.log(other)
    beyond = (x < 0.0) | (x > 1.0)
    outside = tf.where(beyond, tf.constant(-math.inf, x.dtype), at_bound)
    return tf.reshape(tf.where(inner, inside, outside), shape)


@compile.compiled
def entropy(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Returns the differential entropy of `Beta(a, b)` in nats."""
    shape, a, b = _elementwise.rows(a + tf.zeros_like(b), b + tf.zeros_like(a))
    total = a + b
    ends = tf.stack([a, b, total])
    logs, rests, rates = tf.math.log(ends), _correction(ends), _rate(ends)
    logs = 0.5 * (logs[0] + logs[1] - 3.0 * logs[2])
    inverses = 1.0 / total - 0.5 / a - 0.5 / b
    rests = rests[0] + rests[1] - rests[2]
    rates = (a - 1.0) * rates[0] + (b - 1.0) * rates[1] - (total - 2.0) * rates[2]
    constant = 0.5 * (1.0 + math.log(2.0 * math.pi))
    return tf.reshape(logs + inverses + rests + rates + constant, shape)


def _log_density(x: tf.Tensor, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Returns the log-density for `0 < x < 1`.

    The deviance from the mean is a log(x / p) + b log((1 - x) / q), p = a / (a + b),
    q = 1 - p. Near the mean its terms linear in x - p cancel and are left out.
    """
    log_x, log_rest = tf.math.log(x), tf.math.log1p(-x)
    swap = a > b
    less, more = tf.where(swap, b, a), tf.where(swap, a, b)
    rare, log_rare = tf.where(swap, 1.0 - x, x), tf.where(swap, log_rest, log_x)
    log_usual = tf.where(swap, log_x, log_rest)
    great = less >= _GREAT
    # Where another branch is taken, 1 keeps gradients finite.
    one = tf.ones([], a.dtype)
    odds = precision.quotient(less, more)
    log_q = -tf.math.log1p(odds)
    log_less = tf.math.log(less)
    log_odds = tf.where(
        great, tf.math.log(tf.where(great, odds, one)), log_less - tf.math.log(more)
    )
    of_far = less * (log_rare - log_odds - log_q) + more * (log_usual - log_q)
    against = precision.quotient(tf.where(great, more, one), tf.where(great, less, one))
    u = rare * (1.0 + against) - 1.0
    near = great & (tf.abs(u) < _NEAR)
    u = tf.where(near, u, tf.zeros_like(u))
    remainder = _log_remainder(tf.stack([u, -odds * u]))
    of_near = less * remainder[0] + more * remainder[1]
    rests = _correction(tf.stack([a, b, a + b]) + tf.zeros_like(odds))
    width = 0.5 * (log_less + log_q - math.log(2.0 * math.pi))
    width -= rests[0] + rests[1] - rests[2]
    return tf.where(near, of_near, of_far) - log_x - log_rest + width


@tf.custom_gradient
def _correction(x: tf.Tensor) -> Any:
    """What Stirling's formula leaves of log Gamma(x), and its gradient.

        log Gamma(x) - (x - 1/2) log x + x - log(2 pi) / 2

    The series serves 8 and more; below nothing cancels.
    """
    great = x >= _GREAT
    low = tf.where(great, tf.ones_like(x), x)
    of_low = tf.math.lgamma(low) - (low - 0.5) * tf.math.log(low) + low
    of_low -= 0.5 * math.log(2.0 * math.pi)
    of_great = tfp.math.log_gamma_correction(tf.where(great, x, _GREAT))
    return tf.where(great, of_great, of_low), lambda upstream: -upstream * _rate(x)


def _rate(x: tf.Tensor) -> tf.Tensor:
    """Returns `log x - 1 / (2 x) - digamma(x)`, what `_correction` falls by."""
    great = x >= _GREAT
    low = tf.where(great, tf.ones_like(x), x)
    of_low = tf.math.log(low) - 0.5 / low - tf.math.digamma(low)
    inverse_square = (1.0 / tf.where(great, x, tf.ones_like(x))) ** 2
    of_great = inverse_square * _polynomial(_DIGAMMA_SERIES, inverse_square)
    return tf.where(great, of_great, of_low)


def _log_remainder(u: tf.Tensor) -> tf.Tensor:
    # log(1 + u) - u for |u| < 0.2.
    r = u / (2.0 + u)
    square = r**2
    return r * (2.0 * square * _polynomial(_LOG_SERIES, square) - u)


def _polynomial(coefficients: tuple[float, ...], x: tf.Tensor) -> tf.Tensor:
    # The terms from the fifth on are below the digits of float32.
    used = coefficients if x.dtype == tf.float64 else coefficients[:4]
    value = used[-1] * x
    for coefficient in used[-2:0:-1]:
        value = (value + coefficient) * x
    return value + used[0]
