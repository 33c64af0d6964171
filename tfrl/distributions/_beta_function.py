"""Log-density and entropy of the beta distribution, with digits to spare.

The textbook formulas subtract terms of the size of the concentrations; in float32
nothing remains of the difference from 1e6 on. Where both are at least 8, Stirling's
series with its remainder takes the great terms out before anything is computed.
"""

import functools
import math

import tensorflow as tf
import tensorflow_probability as tfp

_GREAT = 8.0
_NEAR = 0.2
# digamma(a) = log a - 1 / (2 a) - sum_k c_k a^(-2 k), k from 1.
_DIGAMMA_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
# log(1 + u) - u = r (-u + 2 r^2 sum_k r^(2 k) / (2 k + 3)), r = u / (2 + u).
_LOG_SERIES = tuple(1 / (2 * k + 3) for k in range(8))


def log_density(x: tf.Tensor, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Returns `log Beta(x; a, b)`; -inf outside of [0, 1], NaN for NaN."""
    inner = ~((x <= 0.0) | (x >= 1.0))
    great = (a >= _GREAT) & (b >= _GREAT)
    safe = tf.where(inner, x, 0.5)
    log_x, log_rest = tf.math.log(safe), tf.math.log1p(-safe)
    # At a bound the power is 0, 1 or infinite; its slope is left out.
    edge = tf.stop_gradient(tf.where(x <= 0.0, a, b) - 1.0)
    at_bound = tf.math.xlogy(edge, tf.zeros_like(edge))
    # Where the other branch is taken, 1 keeps gradients finite.
    one = tf.ones([], a.dtype)
    small_a, small_b = tf.where(great, one, a), tf.where(great, one, b)
    powers = (small_a - 1.0) * log_x + (small_b - 1.0) * log_rest
    usual = tf.where(inner, powers, at_bound) - _log_beta(small_a, small_b)
    of_great = _great_log_density(
        safe,
        tf.where(great, a, _GREAT),
        tf.where(great, b, _GREAT),
        log_x,
        log_rest,
    )
    inside = tf.where(great & inner, of_great, usual)
    return tf.where((x < 0.0) | (x > 1.0), tf.constant(-math.inf, x.dtype), inside)


def entropy(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Returns the differential entropy of `Beta(a, b)` in nats."""
    great = (a >= _GREAT) & (b >= _GREAT)
    of_great = _great_entropy(tf.where(great, a, _GREAT), tf.where(great, b, _GREAT))
    one = tf.ones([], a.dtype)
    a, b = tf.where(great, one, a), tf.where(great, one, b)
    both = _stacked(a, b)
    usual = _log_beta(a, b) + tf.reduce_sum((both - 1.0) * _digamma_rise(both), axis=0)
    return tf.where(great, of_great, usual)


def _great_log_density(
    x: tf.Tensor, a: tf.Tensor, b: tf.Tensor, log_x: tf.Tensor, log_rest: tf.Tensor
) -> tf.Tensor:
    # The deviance is a log(x / p) + b log((1 - x) / q) with the mean p = a / (a + b),
    # q = 1 - p. Near the mean its terms linear in x - p cancel and are left out.
    odds, rest_odds = a / b, b / a
    u, v = x * (1.0 + rest_odds) - 1.0, (1.0 - x) * (1.0 + odds) - 1.0
    near = (tf.abs(u) < _NEAR) & (tf.abs(v) < _NEAR)
    remainder = _log_remainder(tf.where(near, tf.stack([u, v]), tf.zeros([], x.dtype)))
    of_near = a * remainder[0] + b * remainder[1]
    log_q = -tf.math.log1p(odds)
    of_far = a * (log_x + tf.math.log1p(rest_odds)) + b * (log_rest - log_q)
    deviance = tf.where(near, of_near, of_far)
    width = 0.5 * (tf.math.log(a) + log_q - math.log(2.0 * math.pi))
    return deviance - log_x - log_rest + width - _corrections(a, b)


def _great_entropy(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    total = a + b
    logs = tf.math.log(a) + tf.math.log(b) - 3.0 * tf.math.log(total)
    inverses = 1.0 / total - 0.5 / a - 0.5 / b
    remainder = _digamma_remainder(_stacked(a, b, total))
    remainders = (
        (a - 1.0) * remainder[0]
        + (b - 1.0) * remainder[1]
        - (total - 2.0) * remainder[2]
    )
    constant = 0.5 * (1.0 + math.log(2.0 * math.pi))
    return 0.5 * logs + inverses + _corrections(a, b) + remainders + constant


def _corrections(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    # What Stirling's formula leaves of log B(a, b).
    each = tfp.math.log_gamma_correction(_stacked(a, b, a + b))
    return each[0] + each[1] - each[2]


def _log_beta(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    # log B(a, b), at most one of the two great.
    swap = a < b
    less, more = tf.where(swap, a, b), tf.where(swap, b, a)
    great = more >= _GREAT
    safe = tf.where(great, more, _GREAT)
    total = safe + less
    correction = tfp.math.log_gamma_correction(_stacked(total, safe))
    rise = (safe - 0.5) * tf.math.log1p(less / safe)
    rise += less * (tf.math.log(total) - 1.0) + correction[0] - correction[1]
    log_gamma = tf.math.lgamma(_stacked(less, more, less + more))
    return log_gamma[0] - tf.where(great, rise, log_gamma[2] - log_gamma[1])


def _digamma_rise(both: tf.Tensor) -> tf.Tensor:
    # digamma(a + b) - digamma of a and b, stacked. The series serve arguments greater
    # by 8; digamma(x + 1) = digamma(x) + 1 / x leads back.
    total = tf.reduce_sum(both, axis=0)
    ends = tf.stack([total, both[0], both[1]])
    shifted = ends + _GREAT
    steps = tf.range(_GREAT, dtype=ends.dtype)
    back = tf.reduce_sum(1.0 / (ends[..., None] + steps), axis=-1)
    back += 0.5 / shifted + _digamma_remainder(shifted)
    return tf.math.log1p(both[::-1] / shifted[1:]) + back[1:] - back[0]


def _digamma_remainder(a: tf.Tensor) -> tf.Tensor:
    # log a - 1 / (2 a) - digamma(a) for a >= 8.
    inverse_square = (1.0 / a) ** 2
    return inverse_square * _polynomial(_DIGAMMA_SERIES, inverse_square)


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


def _stacked(*parts: tf.Tensor) -> tf.Tensor:
    # Of one shape: an operation on all is compiled once.
    shape = functools.reduce(tf.broadcast_dynamic_shape, map(tf.shape, parts))
    return tf.stack([tf.broadcast_to(part, shape) for part in parts])
