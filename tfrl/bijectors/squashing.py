"""Maps of the real numbers into an interval or a half-line, safe at their bounds.

A float as close to a bound as floats come is mapped onto the bound by rounding, so
values on a bound do come up: in samples and, above all, in stored actions. Here such
a value stands for its nearest neighbour inside, wherever it is inverted. So inverses,
log-determinants and log-probabilities are finite on the bounds, with gradient 0 in
the value. Values beyond a bound belong to no input: their inverse is NaN.
"""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks, precision
from tfrl.bijectors import _transform
from tfrl.core import compile
from tfrl.ops import activations

TensorLike = _transform.TensorLike

_softclip = compile.compiled(precision.softclip)
_inverse = compile.compiled(precision.inverse)
_log_slope = compile.compiled(precision.log_slope)
_stretched = compile.compiled(precision.stretched)
_stretched_inverse = compile.compiled(precision.stretched_inverse)
_stretched_log_slope = compile.compiled(precision.stretched_log_slope)


class StableTanh(_transform.Elementwise):
    """The hyperbolic tangent.

        y          = tanh(x)
        ln dy / dx = ln 4 - softplus(2 * x) - softplus(-2 * x)

    The largest input an inverse can give is 8.66 in float32 and 18.7 in float64.

    Args:
        cache_size: 1 to give back the input whose output is inverted, 0 to compute it.
        validate_args: raise where a value to invert lies beyond a bound.
        name: prefix of the ops; the name of the class by default.

    Example:
        >>> bijector = StableTanh()
        >>> bijector.inverse([0.0, 1.0, 1.5]).numpy().round(3)
        array([0.   , 8.664,   nan], dtype=float32)
        >>> x = tf.constant(30.0)
        >>> float(bijector.inverse(bijector.forward(x)))
        30.0
    """

    def _range(self) -> tuple[float, float]:
        return -1.0, 1.0

    def _map(self, x: tf.Tensor) -> tf.Tensor:
        return _tanh(x)

    def _unmap(self, y: tf.Tensor) -> tf.Tensor:
        return tf.atanh(y)

    def _log_slope(self, x: tf.Tensor) -> tf.Tensor:
        return _log_slope_of_tanh(x)


@compile.compiled
def _tanh(x: tf.Tensor) -> tf.Tensor:
    # tf.tanh errs by 5 units in the last place near 1, where inverses feel it, and its
    # gradient 1 - y^2 has no digits left there.
    small = tf.exp(-2.0 * tf.abs(x))
    outer = tf.sign(x) * (1.0 - 2.0 * small / (1.0 + small))
    return tf.where(tf.abs(x) < 0.55, tf.tanh(x), outer)


@compile.compiled
def _log_slope_of_tanh(x: tf.Tensor) -> tf.Tensor:
    return math.log(4.0) - tf.math.softplus(2.0 * x) - tf.math.softplus(-2.0 * x)


class Softsign(_transform.Elementwise):
    """A map into (-1, 1) with tails that leave slowly.

        y          = x / (1 + |x|)
        x          = y / (1 - |y|)
        ln dy / dx = -2 * ln(1 + |x|)

    Args:
        cache_size: 1 to give back the input whose output is inverted, 0 to compute it.
        validate_args: raise where a value to invert lies beyond a bound.
        name: prefix of the ops; the name of the class by default.

    Example:
        >>> bijector = Softsign()
        >>> bijector.forward([-3.0, 0.0, 1.0]).numpy()
        array([-0.75,  0.  ,  0.5 ], dtype=float32)
        >>> bijector.inverse([-0.75, 1.0]).numpy()
        array([-3.0000000e+00,  1.6777215e+07], dtype=float32)
    """

    def _range(self) -> tuple[float, float]:
        return -1.0, 1.0

    def _map(self, x: tf.Tensor) -> tf.Tensor:
        return activations.softsign(x)

    def _unmap(self, y: tf.Tensor) -> tf.Tensor:
        return y / (1.0 - tf.abs(y))

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        # Near its bounds y has an x that is beyond the range of float16.
        return tf.clip_by_value(super()._inverse(y), y.dtype.min, y.dtype.max)

    def _log_slope(self, x: tf.Tensor) -> tf.Tensor:
        return -2.0 * tf.math.log1p(tf.abs(x))


class _SoftBounds(_transform.Elementwise):
    """What the soft bounds share; `_range` gives the bounds, infinite ones are none."""

    def __init__(self, *, parameters: dict[str, Any]) -> None:
        super().__init__(parameters=parameters)
        where = type(self).__name__
        known = {
            name: _transform.known_value(getattr(self, name))
            for name in self._map_parameters
        }
        checks.check_positive(where, "hinge_softness", known.pop("hinge_softness"))
        for name, bound in known.items():
            checks.check_within(where, name, bound, -np.inf, np.inf)
        symbolic = any(map(tf.is_symbolic_tensor, known.values()))
        if len(known) == 2 and not symbolic:
            if not np.all(known["low"] < known["high"]):
                low, high = (checks.shown(known[x]) for x in ("low", "high"))
                raise ValueError(
                    f"`{where}`: `high` expected numbers > `low` {low}; got {high}"
                )

    def _map(self, x: tf.Tensor) -> tf.Tensor:
        return _softclip(x, *self._range(), self.hinge_softness)

    def _unmap(self, y: tf.Tensor) -> tf.Tensor:
        return _inverse(y, *self._range(), self.hinge_softness)

    def _log_slope(self, x: tf.Tensor) -> tf.Tensor:
        return _log_slope(x, *self._range(), self.hinge_softness)


class Softplus(_SoftBounds):
    """A smooth maximum of the input and 0.

        y          = s * ln(1 + exp(x / s)),   s = hinge_softness
        x          = y + s * ln(1 - exp(-y / s))
        ln dy / dx = -softplus(-x / s)

    Args:
        hinge_softness: how wide the bend is, in units of x; positive, broadcast
            against x.
        cache_size: 1 to give back the input whose output is inverted, 0 to compute it.
        validate_args: raise where a value to invert is negative.
        name: prefix of the ops; the name of the class by default.

    Raises:
        ValueError: if `hinge_softness` is not positive.

    Example:
        >>> bijector = Softplus(hinge_softness=0.1)
        >>> bijector.forward([-9.0, 0.0, 9.0]).numpy().round(3)
        array([0.   , 0.069, 9.   ], dtype=float32)
        >>> bijector.inverse([0.01, 500.0]).numpy().round(3)
        array([-2.25e-01,  5.00e+02], dtype=float32)
    """

    def __init__(
        self,
        hinge_softness: TensorLike = 1.0,
        cache_size: int = 1,
        *,
        validate_args: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(parameters=dict(locals()))

    def _range(self) -> tuple[Any, Any]:
        return 0.0, np.inf


class Softlower(_SoftBounds):
    """A smooth maximum of the input and a lower bound.

        y = low + s * softplus((x - low) / s),   s = hinge_softness

    Args:
        low: the bound, broadcast against x.
        hinge_softness: how wide the bend is, in units of x; positive.
        cache_size: 1 to give back the input whose output is inverted, 0 to compute it.
        validate_args: raise where a value to invert lies below `low`.
        name: prefix of the ops; the name of the class by default.

    Raises:
        ValueError: if `hinge_softness` is not positive or `low` is NaN.

    Example:
        >>> bijector = Softlower(low=-1.0, hinge_softness=0.1)
        >>> bijector.forward([-9.0, -1.0, 9.0]).numpy().round(3)
        array([-1.   , -0.931,  9.   ], dtype=float32)
    """

    def __init__(
        self,
        low: TensorLike,
        hinge_softness: TensorLike = 1.0,
        cache_size: int = 1,
        *,
        validate_args: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(parameters=dict(locals()))

    def _range(self) -> tuple[Any, Any]:
        return self.low, np.inf


class Softupper(_SoftBounds):
    """A smooth minimum of the input and an upper bound.

        y = high - s * softplus((high - x) / s),   s = hinge_softness

    Args:
        high: the bound, broadcast against x.
        hinge_softness: how wide the bend is, in units of x; positive.
        cache_size: 1 to give back the input whose output is inverted, 0 to compute it.
        validate_args: raise where a value to invert lies above `high`.
        name: prefix of the ops; the name of the class by default.

    Raises:
        ValueError: if `hinge_softness` is not positive or `high` is NaN.

    Example:
        >>> bijector = Softupper(high=1.0, hinge_softness=0.1)
        >>> bijector.forward([-9.0, 1.0, 9.0]).numpy().round(3)
        array([-9.   ,  0.931,  1.   ], dtype=float32)
    """

    def __init__(
        self,
        high: TensorLike,
        hinge_softness: TensorLike = 1.0,
        cache_size: int = 1,
        *,
        validate_args: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(parameters=dict(locals()))

    def _range(self) -> tuple[Any, Any]:
        return -np.inf, self.high


class Softclip(_SoftBounds):
    """A smooth clip to an interval that bends equally at both bounds.

        y = low + s * softplus((x - low) / s) - s * softplus((x - high) / s)

    with s = hinge_softness. An infinite bound is none.

    Args:
        low: the lower bound, broadcast against x.
        high: the upper bound, likewise.
        hinge_softness: how wide the bends are, in units of x; positive.
        cache_size: 1 to give back the input whose output is inverted, 0 to compute it.
        validate_args: raise where a value to invert lies beyond a bound.
        name: prefix of the ops; the name of the class by default.

    Raises:
        ValueError: if `hinge_softness` is not positive, or `low` not less than `high`.

    Example:
        >>> bijector = Softclip(low=-1.0, high=1.0)
        >>> bijector.forward([-9.0, 0.0, 1.0]).numpy()
        array([-0.99970996,  0.        ,  0.4337808 ], dtype=float32)
        >>> bijector.inverse([-1.0, 0.0, 0.4337808]).numpy().round(3)
        array([-17.49,   0.  ,   1.  ], dtype=float32)
    """

    def __init__(
        self,
        low: TensorLike,
        high: TensorLike,
        hinge_softness: TensorLike = 1.0,
        cache_size: int = 1,
        *,
        validate_args: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(parameters=dict(locals()))

    def _range(self) -> tuple[Any, Any]:
        return self.low, self.high


class SoftclipTF(Softclip):
    """A smooth clip to an interval, of TensorFlow Probability's shape.

        u(x) = softupper(softlower(x, low), high)
        y    = high - (high - low) * (high - u(x)) / (high - softupper(low, high))

    The bound from above moves the lower end, stretching the interval puts it back: so
    the two bends differ, unlike in `Softclip`.

    Args:
        low: the lower bound, finite, broadcast against x.
        high: the upper bound, likewise.
        hinge_softness: how wide the bends are, in units of x; positive.
        cache_size: 1 to give back the input whose output is inverted, 0 to compute it.
        validate_args: raise where a value to invert lies beyond a bound.
        name: prefix of the ops; the name of the class by default.

    Raises:
        ValueError: if `hinge_softness` is not positive, a bound is not finite, or `low`
            not less than `high`.

    Example:
        >>> SoftclipTF(low=-1.0, high=1.0).forward([-9.0, 0.0, 1.0]).numpy()
        array([-0.99972224, -0.02903748,  0.4060018 ], dtype=float32)
    """

    def __init__(
        self,
        low: TensorLike,
        high: TensorLike,
        hinge_softness: TensorLike = 1.0,
        cache_size: int = 1,
        *,
        validate_args: bool = False,
        name: str | None = None,
    ) -> None:
        _SoftBounds.__init__(self, parameters=dict(locals()))
        for bound in ("low", "high"):
            known = _transform.known_value(getattr(self, bound))
            checks.check_finite("SoftclipTF", bound, known)

    def _map(self, x: tf.Tensor) -> tf.Tensor:
        return _stretched(x, *self._range(), self.hinge_softness)

    def _unmap(self, y: tf.Tensor) -> tf.Tensor:
        return _stretched_inverse(y, *self._range(), self.hinge_softness)

    def _log_slope(self, x: tf.Tensor) -> tf.Tensor:
        return _stretched_log_slope(x, *self._range(), self.hinge_softness)
