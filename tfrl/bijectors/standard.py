"""Elementary maps as bijectors: affine, exp, power, sigmoid; absolute value, softmax.

As everywhere in this room, a value on a bound of a map's range stands for its nearest
neighbour inside when it is inverted, and the inverse of a value beyond is NaN.
"""

import math
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl._internal import checks, precision
from tfrl.bijectors import _transform

TensorLike = _transform.TensorLike
_Class = TypeVar("_Class", bound=type)


def get_invertible(cls: _Class) -> _Class:
    """Declares that inverses of a bijector's own outputs must be exact.

    `inverse(forward(x))` then is x itself, the same tensor, where computing it would
    lose digits: tanh maps all numbers above 9 onto 1.0. The bijectors of TensorFlow
    Probability remember their pairs for as long as the output lives, so a class of
    them only has to be checked; use as a decorator. A copy of the output is computed
    like any other value.

    Args:
        cls: a class of bijectors.

    Returns:
        The class.

    Raises:
        TypeError: if it is not a class of bijectors.

    Example:
        >>> bijector = get_invertible(tfrl.bijectors.StableTanh)()
        >>> x = tf.constant([10.0])
        >>> y = bijector.forward(x)
        >>> bijector.inverse(y) is x, bijector.inverse(tf.identity(y)).numpy().round(3)
        (True, array([8.664], dtype=float32))
    """
    if not (isinstance(cls, type) and issubclass(cls, tfp.bijectors.Bijector)):
        expected = "a subclass of tfp.bijectors.Bijector"
        raise checks.wrong_type("get_invertible", "cls", cls, expected)
    return cls


class AffineTransform(_transform.Transform):
    """A scaling and a shift.

        y             = loc + scale * x
        ln |dy / dx|  = ln |scale|, summed over the last `event_dim` axes

    Args:
        loc: the shift, broadcast against x.
        scale: the factor, likewise; of either sign, not 0.
        event_dim: how many axes of x make one event.
        cache_size: 1 to give back the input whose output is inverted, 0 to compute it.
        validate_args: without effect: every number has an inverse.
        name: prefix of the ops; the name of the class by default.

    Raises:
        ValueError: if `scale` has a 0 or NaN, or `event_dim` is negative.
        TypeError: if `event_dim` is not an int.

    Example:
        >>> bijector = AffineTransform(1.0, [2.0, -3.0], event_dim=1)
        >>> bijector.forward([[1.0, 1.0]]).numpy()
        array([[ 3., -2.]], dtype=float32)
        >>> bijector.forward_log_det_jacobian([[1.0, 1.0]]).numpy()
        array([1.7917595], dtype=float32)
    """

    def __init__(
        self,
        loc: TensorLike,
        scale: TensorLike,
        event_dim: int = 0,
        *,
        cache_size: int = 1,
        validate_args: bool = False,
        name: str | None = None,
    ) -> None:
        parameters = dict(locals())
        where = "AffineTransform"
        self.event_dim = checks.check_whole_number(where, "event_dim", event_dim, low=0)
        super().__init__(parameters=parameters)
        _check_not_zero(where, "scale", self.scale)

    def _is_increasing(self) -> Any:
        return tf.convert_to_tensor(self.scale) > 0

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        loc, scale = self._operands(x)
        return loc + scale * x

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        loc, scale = self._operands(y)
        return precision.quotient(y - loc, scale)

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        loc, scale = self._operands(x)
        shape = tf.broadcast_dynamic_shape(tf.shape(x), tf.shape(loc))
        shape = tf.broadcast_dynamic_shape(shape, tf.shape(scale))
        slopes = tf.broadcast_to(tf.math.log(tf.abs(scale)), shape)
        return tf.reduce_sum(slopes, axis=list(range(-self.event_dim, 0)))

    def _operands(self, x: tf.Tensor) -> list[tf.Tensor]:
        return [precision.number(each, x.dtype) for each in (self.loc, self.scale)]


class ExpTransform(_transform.Elementwise):
    """The exponential function.

        y          = exp(x)
        ln dy / dx = x

    Args:
        cache_size: 1 to give back the input whose output is inverted, 0 to compute it.
        validate_args: raise where a value to invert is negative.
        name: prefix of the ops; the name of the class by default.

    Example:
        >>> ExpTransform().inverse([0.0, 1.0, -1.0]).numpy().round(3)
        array([-87.337,   0.   ,     nan], dtype=float32)
    """

    def _range(self) -> tuple[float, float]:
        return 0.0, math.inf

    def _map(self, x: tf.Tensor) -> tf.Tensor:
        return tf.exp(x)

    def _unmap(self, y: tf.Tensor) -> tf.Tensor:
        return tf.math.log(y)

    def _log_slope(self, x: tf.Tensor) -> tf.Tensor:
        return tf.identity(x)


class PowerTransform(_transform.Elementwise):
    """A power of positive numbers.

        y            = x ** exponent
        ln |dy / dx| = ln |exponent| + (exponent - 1) * ln x

    The log-determinant at 0 is that of the least positive number.

    Args:
        exponent: broadcast against x; of either sign, not 0.
        cache_size: 1 to give back the input whose output is inverted, 0 to compute it.
        validate_args: raise where a value to invert is negative.
        name: prefix of the ops; the name of the class by default.

    Raises:
        ValueError: if `exponent` has a 0 or NaN.

    Example:
        >>> bijector = PowerTransform(2.0)
        >>> bijector.inverse(bijector.forward([1.0, 3.0])).numpy()
        array([1., 3.], dtype=float32)
        >>> bijector.forward_log_det_jacobian([1.0, 3.0]).numpy()
        array([0.6931472, 1.7917595], dtype=float32)
    """

    def __init__(
        self,
        exponent: TensorLike,
        cache_size: int = 1,
        *,
        validate_args: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(parameters=dict(locals()))
        _check_not_zero("PowerTransform", "exponent", self.exponent)

    def _is_increasing(self) -> Any:
        return tf.convert_to_tensor(self.exponent) > 0

    def _range(self) -> tuple[float, float]:
        return 0.0, math.inf

    def _map(self, x: tf.Tensor) -> tf.Tensor:
        return tf.pow(x, precision.number(self.exponent, x.dtype))

    def _unmap(self, y: tf.Tensor) -> tf.Tensor:
        exponent = precision.number(self.exponent, y.dtype)
        # Where x would overflow it stays finite, as it does on the bound.
        most = tf.constant(y.dtype.max / 4.0, y.dtype)
        overflows = tf.math.log(y) / exponent > tf.math.log(most)
        safe = tf.where(overflows, tf.ones_like(y), y)
        return tf.where(overflows, most, tf.pow(safe, 1.0 / exponent))

    def _log_slope(self, x: tf.Tensor) -> tf.Tensor:
        exponent = precision.number(self.exponent, x.dtype)
        least = tf.constant(np.finfo(x.dtype.as_numpy_dtype).tiny, x.dtype)
        logs = tf.math.log(tf.maximum(tf.abs(x), least))
        slopes = tf.math.multiply_no_nan(logs, exponent - 1.0)
        return tf.math.log(tf.abs(exponent)) + slopes


class SigmoidTransform(_transform.Elementwise):
    """The logistic function.

        y          = 1 / (1 + exp(-x))
        x          = ln y - ln(1 - y)
        ln dy / dx = -softplus(x) - softplus(-x)

    Args:
        cache_size: 1 to give back the input whose output is inverted, 0 to compute it.
        validate_args: raise where a value to invert lies beyond 0 or 1.
        name: prefix of the ops; the name of the class by default.

    Example:
        >>> bijector = SigmoidTransform()
        >>> bijector.inverse([0.0, 0.5, 1.0, 1.5]).numpy().round(3)
        array([-87.337,   0.   ,  16.636,     nan], dtype=float32)
    """

    def _range(self) -> tuple[float, float]:
        return 0.0, 1.0

    def _map(self, x: tf.Tensor) -> tf.Tensor:
        return tf.sigmoid(x)

    def _unmap(self, y: tf.Tensor) -> tf.Tensor:
        return tf.math.log(y) - tf.math.log1p(-y)

    def _log_slope(self, x: tf.Tensor) -> tf.Tensor:
        return -tf.math.softplus(x) - tf.math.softplus(-x)


class AbsTransform(_transform.Elementwise):
    """The absolute value, whose inverse is the positive of the two inputs.

        y = |x|,   x = y

    It is not one to one, so it has no log-determinant and no density can be carried
    through it; `tfp.bijectors.AbsoluteValue` folds densities.

    Args:
        cache_size: 1 to give back the input whose output is inverted, 0 to compute it.
        validate_args: raise where a value to invert is negative.
        name: prefix of the ops; the name of the class by default.

    Example:
        >>> bijector = AbsTransform()
        >>> bijector.forward([-2.0, 3.0]).numpy(), bijector.inverse([2.0]).numpy()
        (array([2., 3.], dtype=float32), array([2.], dtype=float32))
    """

    def _is_increasing(self) -> Any:
        raise NotImplementedError("`AbsTransform` is not monotone")

    def _map(self, x: tf.Tensor) -> tf.Tensor:
        return tf.abs(x)

    def _unmap(self, y: tf.Tensor) -> tf.Tensor:
        return y

    def _log_slope(self, x: tf.Tensor) -> tf.Tensor:
        raise NotImplementedError(
            "`AbsTransform` has no log-determinant, it is not one to one; "
            "use tfp.bijectors.AbsoluteValue to transform a density"
        )


class SoftmaxTransform(_transform.Transform):
    """Probabilities from logits, along the last axis.

        y_i = exp(x_i) / sum_j exp(x_j),   x_i = ln y_i

    All shifts of the logits give the same probabilities; the inverse is the shift with
    the sum of exponentials 1. So there is no log-determinant.

    Args:
        cache_size: 1 to give back the input whose output is inverted, 0 to compute it.
        validate_args: without effect.
        name: prefix of the ops; the name of the class by default.

    Example:
        >>> bijector = SoftmaxTransform()
        >>> bijector.forward([0.0, 0.0]).numpy(), bijector.inverse([0.5, 0.5]).numpy()
        (array([0.5, 0.5], dtype=float32), array([-0.6931472, -0.6931472],
         dtype=float32))
    """

    event_dim = 1

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        checks.check_rank("SoftmaxTransform", "x", x, at_least=1)
        return tf.nn.softmax(x, axis=-1)

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        return tf.math.log(y)


def _check_not_zero(where: str, name: str, value: Any) -> None:
    known = _transform.known_value(value)
    if not tf.is_symbolic_tensor(known):
        magnitude = np.abs(known)
        if not np.all(magnitude > 0):
            raise ValueError(
                f"`{where}`: `{name}` expected numbers other than 0; got "
                f"{checks.shown(known)}"
            )
