"""Bijectors, their inverses and log-slopes as formulas of `Wide` numbers."""

import numpy as np
from conformance import wide

LOG_4 = np.log(wide.LONG(4))


def tanh(x):
    small = np.exp(-2 * np.abs(x.value))
    return x.chained(np.tanh(x.value), 4 * small / (1 + small) / (1 + small))


def inverse_tanh(y):
    return 0.5 * (wide.log1p(y) - wide.log1p(-y))


def tanh_log_slope(x):
    return LOG_4 - wide.softplus(2 * x) - wide.softplus(-2 * x)


def softsign(x):
    return x / (1 + wide.absolute(x))


def inverse_softsign(y):
    return y / (1 - wide.absolute(y))


def softsign_log_slope(x):
    return -2 * wide.log1p(wide.absolute(x))


def softplus(x, hinge_softness):
    return hinge_softness * wide.softplus(x / hinge_softness)


def inverse_softplus(y, hinge_softness):
    return y + hinge_softness * wide.log1mexp(y / hinge_softness)


def softplus_log_slope(x, hinge_softness):
    return -wide.softplus(-x / hinge_softness)


def softlower(x, low, hinge_softness):
    return low + softplus(x - low, hinge_softness)


def inverse_softlower(y, low, hinge_softness):
    return low + inverse_softplus(y - low, hinge_softness)


def softlower_log_slope(x, low, hinge_softness):
    return softplus_log_slope(x - low, hinge_softness)


def softupper(x, high, hinge_softness):
    return high - softplus(high - x, hinge_softness)


def inverse_softupper(y, high, hinge_softness):
    return high - inverse_softplus(high - y, hinge_softness)


def softupper_log_slope(x, high, hinge_softness):
    return softplus_log_slope(high - x, hinge_softness)


def softclip(x, low, high, hinge_softness):
    s = hinge_softness
    below, above = (x - low) / s, (x - high) / s
    inside = low + s * (wide.softplus(below) - wide.softplus(above))
    beyond = high + s * (wide.softplus(-below) - wide.softplus(-above))
    return wide.where(above.value > 0, beyond, inside)


def inverse_softclip(y, low, high, hinge_softness):
    s = hinge_softness
    return y + s * (wide.log1mexp((y - low) / s) - wide.log1mexp((high - y) / s))


def softclip_log_slope(x, low, high, hinge_softness):
    s = hinge_softness
    bends = wide.softplus((low - x) / s) + wide.softplus((x - high) / s)
    return wide.log1mexp((high - low) / s) - bends


def _rest(x, low, high, s):
    """How far, in bends, the lower-bounded number stays below the upper bound."""
    below = (x - low) / s
    near = (high - x) / s - wide.softplus(-below)
    return wide.where(below.value > 0, near, (high - low) / s - wide.softplus(below))


def softclip_tf(x, low, high, hinge_softness):
    s = hinge_softness
    rest = wide.softplus(_rest(x, low, high, s))
    return high - (high - low) * rest / wide.softplus((high - low) / s)


def inverse_softclip_tf(y, low, high, hinge_softness):
    s = hinge_softness
    width = (high - low) / s
    stretch = wide.softplus(width)
    gap = stretch * (y - low) / (high - low)
    from_low = gap - wide.log1p(wide.exp(gap - width) * wide.expm1(-gap))
    rest = stretch * (high - y) / (high - low)
    from_high = width - rest - wide.log1mexp(rest)
    bent = wide.where(gap.value < rest.value, from_low, from_high)
    return low + s * (bent + wide.log1mexp(bent))


def softclip_tf_log_slope(x, low, high, hinge_softness):
    s = hinge_softness
    width = (high - low) / s
    steepness = wide.log(width) - wide.log(wide.softplus(width))
    bends = wide.softplus(-_rest(x, low, high, s)) + wide.softplus((low - x) / s)
    return steepness - bends


def affine(x, loc, scale):
    return loc + scale * x


def inverse_affine(y, loc, scale):
    return (y - loc) / scale


def affine_log_slope(x, loc, scale):
    return 0 * x + wide.log(wide.absolute(scale))


def power(x, exponent):
    return wide.exp(exponent * wide.log(x))


def inverse_power(y, exponent):
    return power(y, 1 / exponent)


def power_log_slope(x, exponent):
    return wide.log(wide.absolute(exponent)) + (exponent - 1) * wide.log(x)


def inverse_sigmoid(y):
    return wide.log(y) - wide.log1p(-y)


def sigmoid_log_slope(x):
    return -wide.softplus(x) - wide.softplus(-x)


def itself(x):
    return 1 * x


def softmax(x):
    """Its sum is always 1: the slopes of all together are 0."""
    shifted = np.exp(x.value - np.max(x.value, axis=-1, keepdims=True))
    return x.chained(shifted / np.sum(shifted, axis=-1, keepdims=True), wide.LONG(0))
