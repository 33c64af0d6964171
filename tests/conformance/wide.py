"""Numbers of great range with their derivatives: what formulas at extremes are made of.

A `Wide` is an array of long doubles, whose range (1e-4932 to 1e4932 where the hardware
has them) holds squares and quotients of all float64, together with its derivative by
each named input. Formulas written with them tell what a result and its gradients are,
or that they are beyond a dtype, independently of TensorFlow.
"""

import numpy as np
import scipy.special

LONG = np.longdouble
GREAT = LONG(40)  # from where on Stirling's series serves


class Wide:
    """Values, and their slopes by the name of the input."""

    def __init__(self, value, slopes=None):
        self.value = np.asarray(value, LONG)
        self.slopes = slopes or {}

    def chained(self, value, slope):
        """A function of this number: its value and its derivative here."""
        return Wide(value, {name: slope * s for name, s in self.slopes.items()})

    def __add__(self, other):
        other = wide(other)
        names = {**self.slopes, **other.slopes}
        slopes = {n: self.slopes.get(n, 0) + other.slopes.get(n, 0) for n in names}
        return Wide(self.value + other.value, slopes)

    def __mul__(self, other):
        other = wide(other)
        left = self.chained(self.value * other.value, other.value)
        return left + other.chained(LONG(0), self.value)

    def __truediv__(self, other):
        other = wide(other)
        return self * other.chained(1 / other.value, -1 / other.value / other.value)

    def __neg__(self):
        return self.chained(-self.value, LONG(-1))

    def __sub__(self, other):
        return self + -wide(other)

    def __rsub__(self, other):
        return wide(other) - self

    def __rtruediv__(self, other):
        return wide(other) / self

    __radd__, __rmul__ = __add__, __mul__


def wide(x):
    return x if isinstance(x, Wide) else Wide(x)


def inputs(arrays):
    """The inputs of a formula: each has the slope 1 by itself."""
    one = {name: np.ones(np.shape(x), LONG) for name, x in arrays.items()}
    return {name: Wide(x, {name: one[name]}) for name, x in arrays.items()}


def where(condition, x, y):
    x, y = wide(x), wide(y)
    slopes = {
        n: np.where(condition, x.slopes.get(n, LONG(0)), y.slopes.get(n, LONG(0)))
        for n in {**x.slopes, **y.slopes}
    }
    return Wide(np.where(condition, x.value, y.value), slopes)


def maximum(x, y):
    x, y = wide(x), wide(y)
    return where(x.value > y.value, x, y)


def absolute(x):
    return x.chained(np.abs(x.value), np.sign(x.value))


def exp(x):
    return x.chained(np.exp(x.value), np.exp(x.value))


def expm1(x):
    return x.chained(np.expm1(x.value), np.exp(x.value))


def log(x):
    return x.chained(np.log(x.value), 1 / x.value)


def log1p(x):
    return x.chained(np.log1p(x.value), 1 / (1 + x.value))


def sqrt(x):
    return x.chained(np.sqrt(x.value), 0.5 / np.sqrt(x.value))


def softplus(x):
    """ln(1 + exp(x)), whose slope is the logistic function."""
    value = np.maximum(x.value, 0) + np.log1p(np.exp(-np.abs(x.value)))
    return x.chained(value, np.exp(x.value - value))


def sigmoid(x):
    return exp(-softplus(-x))


def log1mexp(x):
    """ln(1 - exp(-x)) of positive x."""
    x_small, x_large = np.minimum(x.value, 0.5), np.maximum(x.value, 0.5)
    value = np.where(
        x.value < 0.5, np.log(-np.expm1(-x_small)), np.log1p(-np.exp(-x_large))
    )
    return x.chained(value, 1 / np.expm1(np.minimum(x.value, LONG(11000))))


def stirling(x):
    """What Stirling's formula leaves of ln Gamma(x), x being great."""
    y = 1 / (x * x)
    return (1 / LONG(12) - y * (1 / LONG(360) - y * (1 / LONG(1260) - y / 1680))) / x


def log_gamma(x):
    """ln Gamma(x) of positive x."""
    near = np.clip(x.value, 1e-3, GREAT).astype(np.float64)
    far, tiny = np.maximum(x.value, GREAT), np.minimum(x.value, LONG(1e-3))
    series = (far - 0.5) * np.log(far) - far + 0.5 * np.log(2 * LONG(np.pi))
    series += stirling(Wide(far)).value
    # -ln x - 0.5772 x + pi^2 / 12 x^2
    of_tiny = -np.log(tiny) - LONG(np.euler_gamma) * tiny
    of_tiny += LONG(np.pi) ** 2 / 12 * tiny * tiny
    value = np.where(x.value > GREAT, series, scipy.special.gammaln(near))
    value = np.where(x.value < 1e-3, of_tiny, value)
    return x.chained(value, digamma(Wide(x.value)).value)


def digamma(x):
    """The slope of `log_gamma`."""
    near = np.clip(x.value, 1e-3, 1e3).astype(np.float64)
    far, tiny = np.maximum(x.value, LONG(1e3)), np.minimum(x.value, LONG(1e-3))
    small, large = x.value < 1e-3, x.value > 1e3
    of_far = np.log(far) - 0.5 / far - 1 / (12 * far) / far
    of_far += 1 / (120 * far) / far / far / far
    of_tiny = -1 / tiny - LONG(np.euler_gamma) + LONG(np.pi) ** 2 / 6 * tiny
    rate = scipy.special.polygamma(1, near)
    rate = np.where(large, 1 / far + 0.5 / far / far, rate)
    rate = np.where(small, 1 / tiny / tiny + LONG(np.pi) ** 2 / 6, rate)
    value = np.where(large, of_far, scipy.special.digamma(near))
    return x.chained(np.where(small, of_tiny, value), rate)


def log_beta(a, b):
    """ln B(a, b), without the cancellation of the three functions."""
    swap = a.value < b.value
    less, more = where(swap, a, b), where(swap, b, a)
    great = more.value >= GREAT
    m = where(great, more, GREAT)
    total = m + less
    # ln Gamma(m + less) - ln Gamma(m) by Stirling's series.
    rise = (m - 0.5) * log1p(less / m) + less * (log(total) - 1)
    rise = rise + stirling(total) - stirling(m)
    usual = log_gamma(where(great, LONG(1), more) + less) - log_gamma(
        where(great, LONG(1), more)
    )
    return log_gamma(less) - where(great, rise, usual)
