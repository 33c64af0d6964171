"""Log-densities and entropies as formulas of `Wide` numbers.

Each takes the points and settings of a family by name and returns one number, with its
slopes, per point. `margin` is one minus the greatest number below 1 of the dtype.
"""

import numpy as np
from conformance import wide
from conformance.wide import LONG, Wide

LOG_2_PI = np.log(2 * LONG(np.pi))
LOG_PI = np.log(LONG(np.pi))


def normal(value, loc, scale, **_):
    z = (value - loc) / scale
    return -0.5 * (z * z) - wide.log(scale) - 0.5 * LOG_2_PI


def normal_entropy(scale, **_):
    return wide.log(scale) + 0.5 * (LOG_2_PI + 1)


def affine(value, loc, scale, **_):
    z = (value - loc) / scale
    return -0.5 * (z * z) - wide.log(wide.absolute(scale)) - 0.5 * LOG_2_PI


def affine_entropy(scale, **_):
    return normal_entropy(wide.absolute(scale))


def cauchy(value, loc, scale, **_):
    gap = value - loc
    return wide.log(scale) - wide.log(scale * scale + gap * gap) - LOG_PI


def cauchy_entropy(scale, **_):
    return wide.log(scale) + np.log(4 * LONG(np.pi))


def beta(value, concentration1, concentration0, **_):
    a, b = concentration1, concentration0
    powers = (a - 1) * wide.log(value) + (b - 1) * wide.log1p(-value)
    return powers - wide.log_beta(a, b)


def beta_terms(value, concentration1, concentration0):
    """Sizes of logarithms and digamma functions; how exact the formula itself is."""
    log = 1.0 + np.abs(np.log(value))
    sums = concentration1 * log + concentration0.astype(LONG) * value
    return {
        "": 1.0 + sums * np.finfo(LONG).eps / np.finfo(value.dtype).eps,
        "concentration1": 1 / concentration1 + log,
        "concentration0": 1 / concentration0 + np.log(concentration0 + 3.0),
    }


def beta_entropy(concentration1, concentration0, **_):
    a, b = concentration1, concentration0
    total = wide.digamma(a + b)
    rest = (a - 1) * (total - wide.digamma(a)) + (b - 1) * (total - wide.digamma(b))
    return wide.log_beta(a, b) + rest


def squashed(value, loc, scale, low, high, margin):
    """Closer to a bound than tanh can come, the last number before it counts."""
    half = 0.5 * high - 0.5 * low
    below = value.value < (low + half).value
    distance = wide.where(below, value - low, high - value) / half
    distance = wide.maximum(distance, margin)
    size = 0.5 * (wide.log(2 - distance) - wide.log(distance))
    raw = wide.where(below, -size, size)
    slope = wide.log(half) + wide.log(distance) + wide.log(2 - distance)
    return normal(raw, loc, scale) - slope


def size_of_truncated_normal(mass_floor):
    """How large log-density and slopes can be between two bounds.

    With the mode n and z its distance from the location in scales, they are at most

        |value - n| / scale * (2 |z| + |value - n| / scale) + logarithms

    and, as means over the interval are those of an exponential family, the slope of
    the location is at most `|value - n| / scale^2 + 1 / scale`. With a floor under the
    mass the location is felt from any distance: n is the location itself.
    """

    def size(value, loc, scale, lower_bound, upper_bound, **_):
        nearest = np.clip(loc.value, lower_bound.value, upper_bound.value)
        mode = loc.value if mass_floor else nearest
        s = scale.value
        step, start = np.abs(value.value - mode) / s, np.abs(mode - loc.value) / s
        slopes = {
            "loc": (step + 1) / s,
            "scale": (step * (2 * start + step) + 4) / s,
            "value": np.abs(value.value - loc.value) / s / s,
        }
        return Wide(step * (start + step) + 1e5, slopes)

    return size


def size_of_truncated_heavy(scale, **_):
    """Likewise of Cauchy's and Student's distribution, whose slopes are bounded."""
    slope = 8 / scale.value
    return Wide(0 * slope + 1e5, {"loc": slope, "scale": slope, "value": slope})


def masked(value, logits, mask, **_):
    """Of choices `value`; its slopes are arrays like the logits."""
    allowed = np.where(mask, logits.value, -np.inf)
    log_probs, probs = _log_softmax(allowed)
    rows = np.arange(len(value))
    chosen = np.eye(allowed.shape[-1])[value]
    return Wide(log_probs[rows, value], {"logits": chosen - probs})


def masked_entropy(logits, mask, **_):
    log_probs, probs = _log_softmax(np.where(mask, logits.value, -np.inf))
    finite = np.where(probs > 0, log_probs, 0)
    total = -np.sum(probs * finite, axis=-1)
    return Wide(total, {"logits": -probs * (finite + total[:, None])})


def one_hot(value, logits, **_):
    chosen = np.argmax(value.value, axis=-1)
    return masked(chosen, logits, np.ones(logits.value.shape, bool))


def one_hot_entropy(logits, **_):
    return masked_entropy(logits, np.ones(logits.value.shape, bool))


def one_hot_of_probs(value, probs, **_):
    total = np.sum(probs.value, axis=-1, keepdims=True)
    rows, chosen = np.arange(len(total)), np.argmax(value.value, axis=-1)
    own = probs.value[rows, chosen]
    slopes = np.eye(probs.value.shape[-1])[chosen] / own[:, None] - 1 / total
    return Wide(np.log(own) - np.log(total[:, 0]), {"probs": slopes})


def one_hot_terms(value, probs):
    return {"probs": 1 / np.sum(value * probs, axis=-1, keepdims=True)}


def one_hot_entropy_of_probs(probs, **_):
    total = np.sum(probs.value, axis=-1, keepdims=True)
    shares = probs.value / total
    logs = np.log(np.where(shares > 0, shares, 1))
    entropy = -np.sum(shares * logs, axis=-1)
    return Wide(entropy, {"probs": -(logs + entropy[:, None]) / total})


def product(value, loc, scale, option, logits, mask, **_):
    return normal(value, loc, scale) + masked(option, logits, mask)


def product_entropy(scale, logits, mask, **_):
    return normal_entropy(scale) + masked_entropy(logits, mask)


def _log_softmax(logits):
    shifted = logits - np.max(logits, axis=-1, keepdims=True)
    total = np.sum(np.exp(shifted), axis=-1, keepdims=True)
    return shifted - np.log(total), np.exp(shifted) / total
