"""Beta distributions, on the interval from 0 to 1.

Log-density, entropy and divergence are accurate for great concentrations, too. The
textbook formulas subtract terms of the size of the concentrations; in float32 nothing
remains of the difference from 1e6 on. Here the great terms of Stirling's formula are
taken out before anything is computed.
"""

import math
import operator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl._internal import checks, draws, precision
from tfrl.core import compile
from tfrl.distributions import _families, _truncation

tfd = tfp.distributions

# Below it a gamma draw of that concentration is 0 or its logarithm overflows, and a
# beta draw is at a bound whatever the number.
_LEAST_CONCENTRATION = 1e-30
_GREAT = 8.0
_NEAR = 0.2
# digamma(a) = log a - 1 / (2 a) - sum_k c_k a^(-2 k), k from 1.
_DIGAMMA_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
# log(1 + u) - u = r (-u + 2 r^2 sum_k r^(2 k) / (2 k + 3)), r = u / (2 + u).
_LOG_SERIES = tuple(1 / (2 * k + 3) for k in range(8))


def _concentrations(event_ndims: int) -> Any:
    """The class method by which TFP asks what the two arguments mean."""
    names = ("concentration1", "concentration0")
    return _families.annotated(
        lambda dtype: dict.fromkeys(
            names, _families.positive_property(dtype, event_ndims)
        )
    )


class DiagMultivariateBeta(_families.Diagonal):
    """Independent `Beta` along the last axis, which is one event.

    `log p(x) = sum_i log Beta(x_i; concentration1_i, concentration0_i)`.

    Args:
        concentration1: pulls to 1; `[..., D]`, floats > 0.
        concentration0: pulls to 0; > 0, a shape that broadcasts with `concentration1`.
        eps: as in `Beta`.
        validate_args: whether to check values at run time too.
        name: prefix of the ops.

    Raises:
        ValueError: if `concentration1` has no axis, and as `Beta`.

    Example:
        >>> dist = DiagMultivariateBeta([2.0, 1.0], [2.0, 3.0])
        >>> dist.event_shape, dist.mode().numpy().tolist()
        (TensorShape([2]), [0.5, 0.0])
    """

    def __init__(
        self,
        concentration1: Any,
        concentration0: Any,
        eps: float | None = None,
        validate_args: bool = False,
        name: str = "DiagMultivariateBeta",
    ) -> None:
        super().__init__(Beta, locals())

    _parameter_properties = _concentrations(event_ndims=1)

    concentration1 = property(
        operator.attrgetter("distribution.concentration1"),
        doc="The concentrations that pull to 1.",
    )
    concentration0 = property(
        operator.attrgetter("distribution.concentration0"),
        doc="The concentrations that pull to 0.",
    )


class Beta(tfp.distributions.Beta):
    """The beta distribution, with draws kept off the bounds.

        log p(x) = (a - 1) log x + (b - 1) log(1 - x) - log B(a, b)

    with `a = concentration1`, `b = concentration0`; -inf outside of [0, 1]. Draws are
    clipped to `[eps, 1 - eps]`, where `log_prob` and its gradient are finite; the
    density is that of the unclipped distribution. The mode is `(a - 1) / (a + b - 2)`
    where both exceed 1, else the bound of the greater concentration, 1 where they are
    equal.

    Draws are reparameterised: with `x = g1 / (g1 + g0)` of two gamma draws, the
    gradient flows through both by implicit differentiation, and it is 0 where a draw
    was clipped. Its gradient is finite for every concentration, and log-density,
    entropy and the divergence of two keep their digits where both concentrations are
    great. `cdf` keeps those of float32 up to concentrations of 1e6, and is wrong
    beyond. `quantile` is TFP's: it loses digits from concentrations of 100 on, and in
    float64 is wrong at 0.5.

    Args:
        concentration1: `a`, pulls to 1; floats > 0.
        concentration0: `b`, pulls to 0; > 0, a shape that broadcasts with `a`.
        eps: distance of draws from the bounds, in (0, 1/2); None for the dtype's
            machine epsilon.
        validate_args: whether to check values at run time too.
        allow_nan_stats: as for any TFP distribution; no statistic is undefined.
        name: prefix of the ops.

    Raises:
        ValueError: if the shapes contradict each other, a known concentration is not
            positive, or `eps` is outside its interval or so small that 1 - eps is 1.

    Example:
        >>> dist = Beta(2.0, 3.0)
        >>> round(float(dist.mode()), 4), round(float(dist.prob(0.5)), 4)
        (0.3333, 1.5)
        >>> draws = Beta(1e-3, 1e-3, eps=0.01).sample(100)
        >>> bool(tf.reduce_all((draws >= 0.01) & (draws <= 0.99)))
        True

    References:
        Figurnov, Mohamed, Mnih, 2018, Implicit Reparameterization Gradients.
    """

    def __init__(
        self,
        concentration1: Any,
        concentration0: Any,
        eps: float | None = None,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Beta",
    ) -> None:
        parameters = dict(locals())
        given = {"concentration1": concentration1, "concentration0": concentration0}
        _families.check_positive("Beta", **given)
        _families.check_broadcastable("Beta", **given)
        super().__init__(
            concentration1, concentration0, validate_args, allow_nan_stats, name=name
        )
        _families.keep(self, parameters)
        # np.finfo knows no bfloat16.
        least = float(np.spacing(self.dtype.as_numpy_dtype(1)))
        self._margin = least if eps is None else eps
        checks.check_within("Beta", "eps", self._margin, least / 2.0, 0.5)

    _parameter_properties = _concentrations(event_ndims=0)

    def _concentrations(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Both, in float32 if narrower: for that TensorFlow has no gamma function."""
        ones, zeros = self.concentration1, self.concentration0
        return precision.widened(ones), precision.widened(zeros)

    def _sample_n(self, n: Any, seed: Any = None) -> tf.Tensor:
        shape = self.batch_shape_tensor()
        both = tf.stack([tf.broadcast_to(x, shape) for x in self._concentrations()])
        shape = tf.concat([[n], tf.shape(both)], axis=0)
        drawable = tf.maximum(both, _LEAST_CONCENTRATION)
        log_gammas = draws.log_gamma(drawable, shape, seed)
        drawn = _draw(tf.broadcast_to(both, shape), log_gammas, self._margin)
        return tf.cast(drawn, self.dtype)

    def _log_prob(self, x: tf.Tensor) -> tf.Tensor:
        density = _log_density(precision.widened(x), *self._concentrations())
        return tf.cast(density, self.dtype)

    def _cdf(self, x: tf.Tensor) -> tf.Tensor:
        # In float32 TFP's loses all digits from concentrations of 1e5 on.
        ones, zeros, x = (tf.cast(v, tf.float64) for v in (*self._concentrations(), x))
        return tf.cast(tfd.Beta(ones, zeros).cdf(x), self.dtype)

    def _entropy(self) -> tf.Tensor:
        return tf.cast(_entropy(*self._concentrations()), self.dtype)

    def _mode(self) -> tf.Tensor:
        ones, zeros = self._concentrations()
        inside = (ones > 1.0) & (zeros > 1.0)
        width = tf.where(inside, ones - 1.0 + (zeros - 1.0), 1.0)
        at_bound = tf.cast(ones >= zeros, ones.dtype)
        return tf.cast(tf.where(inside, (ones - 1.0) / width, at_bound), self.dtype)

    def _mean(self) -> tf.Tensor:
        ones, zeros = self._concentrations()
        unit = tf.stop_gradient(tf.maximum(ones, zeros))
        return tf.cast(ones / unit / (ones / unit + zeros / unit), self.dtype)

    def _variance(self) -> tf.Tensor:
        return self._stddev() ** 2

    def _stddev(self) -> tf.Tensor:
        ones, zeros = self._concentrations()
        total = ones + zeros
        root = tf.sqrt(total)
        share = tf.sqrt(ones) / root * (tf.sqrt(zeros) / root)
        return tf.cast(share / tf.sqrt(total + 1.0), self.dtype)


def _draw(both: tf.Tensor, log_gammas: tf.Tensor, margin: float) -> tf.Tensor:
    """Returns clipped beta draws from the logarithms of gamma draws `[n, 2, ...]`.

    The gradient goes to their concentrations, `both`.
    """

    @tf.custom_gradient
    def draw(both: tf.Tensor) -> Any:
        logits = log_gammas[:, 0] - log_gammas[:, 1]
        share = tf.sigmoid(logits)
        clipped = tf.clip_by_value(share, margin, 1.0 - margin)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            slopes = share * tf.sigmoid(-logits)
            signed = tf.stack([slopes, -slopes], axis=1)
            inside = tf.expand_dims(tf.equal(share, clipped), 1)
            rates = signed * _log_gamma_rate(both, log_gammas)
            return tf.where(inside, tf.expand_dims(upstream, 1) * rates, 0.0)

        return clipped, gradient

    return draw(both)


def _log_gamma_rate(concentration: tf.Tensor, log_draw: tf.Tensor) -> tf.Tensor:
    """Returns d log x / d concentration of gamma draws x of a constant quantile.

    With `a` the concentration, three forms:
    - tiny x: from `cdf(x) = x^a / Gamma(a + 1) (1 - O(x))`,
      `(digamma(a + 1) - log x) / a`; x itself may underflow.
    - great `a`: from Wilson and Hilferty's `x = d (1 + z / sqrt(9 d))^3`, d = a - 1/3,
      `(3/2 (x / d)^(-1/3) - 1/2) / d`; its error at 1000 is below 4e-5 and falls
      with a^-1.5, where TensorFlow's kernel loses all digits.
    - else TensorFlow's kernel.
    """
    tiny, great = log_draw < -40.0, concentration > 1000.0
    of_tiny = (tf.math.digamma(concentration + 1.0) - log_draw) / concentration
    shifted = tf.where(great, concentration, 1000.0) - 1.0 / 3.0
    root = tf.where(great, log_draw - tf.math.log(shifted), 0.0) / 3.0
    of_great = (1.5 * tf.exp(-root) - 0.5) / shifted
    special = tiny | great
    alpha = tf.where(special, tf.ones_like(concentration), concentration)
    draw = tf.exp(tf.where(special, tf.zeros_like(log_draw), log_draw))
    of_usual = tf.raw_ops.RandomGammaGrad(alpha=alpha, sample=draw) / draw
    return tf.where(great, of_great, tf.where(tiny, of_tiny, of_usual))


@compile.compiled
def _log_density(x: tf.Tensor, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Returns `log Beta(x; a, b)`; -inf outside of [0, 1], NaN for NaN."""
    shape, x, a, b = _families.rows(x, a, b)
    inner = ~((x <= 0.0) | (x >= 1.0))
    inside = _log_density_inside(tf.where(inner, x, 0.5), a, b)
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
def _entropy(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Returns the differential entropy of `Beta(a, b)` in nats."""
    shape, a, b = _families.rows(a + tf.zeros_like(b), b + tf.zeros_like(a))
    total = a + b
    ends = tf.stack([a, b, total])
    logs, rests, rates = tf.math.log(ends), _correction(ends), _rate(ends)
    logs = 0.5 * (logs[0] + logs[1] - 3.0 * logs[2])
    inverses = 1.0 / total - 0.5 / a - 0.5 / b
    rests = rests[0] + rests[1] - rests[2]
    rates = (a - 1.0) * rates[0] + (b - 1.0) * rates[1] - (total - 2.0) * rates[2]
    constant = 0.5 * (1.0 + math.log(2.0 * math.pi))
    return tf.reshape(logs + inverses + rests + rates + constant, shape)


@compile.compiled
def _divergence(
    a: tf.Tensor, b: tf.Tensor, new_a: tf.Tensor, new_b: tf.Tensor
) -> tf.Tensor:
    """Returns `KL(Beta(a, b) || Beta(new_a, new_b))`.

    With D(x) how far log Gamma at the new number is above its tangent at the old x, it
    is D(a) + D(b) - D(a + b). By Stirling's formula the great terms of the three are,
    together, the new sum times the divergence of two coins.
    """
    given = tf.experimental.numpy.broadcast_arrays(a, b, new_a, new_b)
    old, new = (tf.stack([x, y, x + y]) for x, y in (given[:2], given[2:]))
    moves = new[:2] - old[:2]
    moves = tf.concat([moves, tf.reduce_sum(moves, axis=0, keepdims=True)], axis=0)
    # What is infinite would be taken off another as NaN: no quotient leaves the range.
    u = precision.quotient(moves, old)
    near, zeros, most = tf.abs(u) < _NEAR, tf.zeros_like(u), u.dtype.max
    small = tf.where(near, u, zeros)
    ratio = tf.where(near, tf.ones_like(u), precision.quotient(new, old))
    ratio = _truncation.at_least_tiny(tf.minimum(ratio, most))
    excess = tf.math.log(ratio) + _log_remainder(small)
    rise = 0.5 * tf.where(near, zeros, u) + moves * _rate(old)
    each = tf.minimum(rise, most / 8.0) - 0.5 * excess
    each += _correction(new) - _correction(old)
    return (
        new[2] * _coins(old, new, moves, small + excess) + each[0] + each[1] - each[2]
    )


def _coins(
    old: tf.Tensor, new: tf.Tensor, moves: tf.Tensor, logs: tf.Tensor
) -> tf.Tensor:
    """Divergence of a coin from a new one by weights: of both sides, and their sum.

    Args:
        old: of the coin whose divergence it is, as weights `[3, ...]`.
        new: of the new coin, whose chance is the mean's.
        moves: `new - old`.
        logs: `log(new / old)`.
    """
    total, new_total = (tf.stack([x[2], x[2]]) for x in (old, new))
    shares = _truncation.at_least_tiny(precision.quotient(old[:2], total))
    # A move from a great number hides a small new one, which does as well: the old
    # numbers cancel.
    moved = tf.where(0.5 * total > new_total, new[:2], moves[:2])
    gain = precision.quotient(moved, new_total) * shares[::-1]
    gains = tf.stack([gain[0] - gain[1], gain[1] - gain[0]])
    u = precision.quotient(gains, shares)
    near = tf.abs(u) < _NEAR
    u = tf.where(near, u, tf.zeros_like(u))
    excess = tf.where(near, _log_remainder(u), logs[:2] - logs[2])
    each = precision.quotient(new[:2], new_total) * excess
    each += gains * tf.where(near, u, -tf.ones_like(u))
    return tf.reduce_sum(each, axis=0)


def _log_density_inside(x: tf.Tensor, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
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


@tfd.RegisterKL(Beta, Beta)
def _kl_betas(a: Beta, b: Beta, name: str | None = None) -> tf.Tensor:
    with tf.name_scope(name or "kl_betas"):
        return tf.cast(_divergence(*a._concentrations(), *b._concentrations()), a.dtype)
