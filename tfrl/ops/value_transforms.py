"""Maps between returns and the smaller numbers a network learns to predict.

Each is odd, increasing and invertible: it keeps the sign, changes small values little
but for a factor, and grows slowly, so that returns of very different sizes can be
learned side by side. Both directions keep their relative accuracy for inputs of any
size and have their derivatives everywhere, 0 included. They have no log determinant:
for random variables see `tfrl.bijectors`.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tfrl._internal import checks, operands, precision
from tfrl.core import compile

TensorLike: TypeAlias = operands.TensorLike


class InvertibleTransform:
    """Interface of a map and its inverse; subclasses define both.

    Example:
        >>> class Halved(InvertibleTransform):
        ...     def transform(self, x):
        ...         return x / 2
        ...     def inverse_transform(self, y):
        ...         return y * 2
        >>> Halved().inverse_transform(Halved().transform(3.0))
        3.0
    """

    def transform(self, x: TensorLike) -> tf.Tensor:
        """Returns the image of `x`, in its shape and dtype."""
        raise NotImplementedError(f"{type(self).__name__} does not define `transform`")

    def inverse_transform(self, y: TensorLike) -> tf.Tensor:
        """Returns the `x` whose image is `y`, in its shape and dtype."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define `inverse_transform`"
        )


class Log1pTransform(InvertibleTransform):
    """Logarithmic growth.

        y = alpha * sign(x) * ln(1 + |x|)
        x = sign(y) * (exp(|y| / alpha) - 1)

    Args:
        alpha: the slope at 0, positive.

    Raises:
        ValueError: if `alpha` is not positive.

    Example:
        >>> Log1pTransform(alpha=2.0).transform([-1.0, 0.0, 1e6]).numpy()
        array([-1.3862944,  0.       , 27.631023 ], dtype=float32)
    """

    def __init__(self, alpha: float = 20) -> None:
        checks.check_positive("Log1pTransform", "alpha", alpha)
        self.alpha = alpha

    def transform(self, x: TensorLike) -> tf.Tensor:
        """Returns the image of `x`, floating, in its shape and dtype."""
        return _applied("Log1pTransform.transform", "x", x, _log1p, self.alpha)

    def inverse_transform(self, y: TensorLike) -> tf.Tensor:
        """Returns the `x` whose image is `y`, floating, in its shape and dtype."""
        where = "Log1pTransform.inverse_transform"
        return _applied(where, "y", y, _expm1, self.alpha)


class Sqrt1pTransform(InvertibleTransform):
    """Growth like the square root: `SqrtLinearTransform` without its linear part.

        y = sign(x) * (sqrt(|x| + 1) - 1) = x / (sqrt(|x| + 1) + 1)
        x = y * (|y| + 2)

    Example:
        >>> Sqrt1pTransform().transform([-3.0, 0.0, 99.0]).numpy()
        array([-1.,  0.,  9.], dtype=float32)
    """

    def transform(self, x: TensorLike) -> tf.Tensor:
        """Returns the image of `x`, floating, in its shape and dtype."""
        return _applied("Sqrt1pTransform.transform", "x", x, _sqrt_linear, 0.0)

    def inverse_transform(self, y: TensorLike) -> tf.Tensor:
        """Returns the `x` whose image is `y`, floating, in its shape and dtype."""
        where = "Sqrt1pTransform.inverse_transform"
        return _applied(where, "y", y, _square_quadratic, 0.0)


class SqrtLinearTransform(InvertibleTransform):
    """Growth like the square root, with a linear part that keeps the slope above eps.

        y = sign(x) * (sqrt(|x| + 1) - 1) + eps * x
        x = p * (|p| + 2)   where   p = y / (b + sqrt(b^2 + eps * |y|)),  b = 1/2 + eps

    The inverse is the root of eps p^2 + 2 b p = |y| in the form that subtracts nothing.

    Args:
        eps: weight of the linear part, at least 0.

    Raises:
        ValueError: if `eps` is negative.

    Example:
        >>> transform = SqrtLinearTransform(eps=0.01)
        >>> transform.transform([-3.0, 0.0, 99.0]).numpy()
        array([-1.03,  0.  ,  9.99], dtype=float32)
        >>> transform.inverse_transform([-1.03, 0.0]).numpy()
        array([-3.,  0.], dtype=float32)

    References:
        Pohlen et al. (2018), "Observe and Look Further: Achieving Consistent
        Performance on Atari", proposition A.2; used by Schrittwieser et al. (2020),
        "Mastering Atari, Go, chess and shogi by planning with a learned model",
        appendix F.
    """

    def __init__(self, eps: float = 0.001) -> None:
        checks.check_within("SqrtLinearTransform", "eps", eps, 0.0, np.inf)
        self.eps = eps

    def transform(self, x: TensorLike) -> tf.Tensor:
        """Returns the image of `x`, floating, in its shape and dtype."""
        where = "SqrtLinearTransform.transform"
        return _applied(where, "x", x, _sqrt_linear, self.eps)

    def inverse_transform(self, y: TensorLike) -> tf.Tensor:
        """Returns the `x` whose image is `y`, floating, in its shape and dtype."""
        where = "SqrtLinearTransform.inverse_transform"
        return _applied(where, "y", y, _square_quadratic, self.eps)


def check_transform(where: str, transform: Any) -> None:
    """Raises a TypeError unless a transform, or None, maps in both directions.

    Args:
        where: name of the function that checks.
        transform: value of its argument of this name.

    Raises:
        TypeError: if it does not.

    Example:
        >>> check_transform("td_lambda_return", tf.math.log1p)
        Traceback (most recent call last):
        ...
        TypeError: `td_lambda_return`: `transform` expected an InvertibleTransform or
        None; got <...log1p...>
    """
    directions = ("transform", "inverse_transform")
    found = (getattr(transform, name, None) for name in directions)
    if transform is not None and not all(map(callable, found)):
        kind = "an InvertibleTransform or None"
        raise checks.wrong_type(where, "transform", transform, kind)


def _applied(
    where: str,
    name: str,
    value: TensorLike,
    function: Callable[[tf.Tensor, Any], tf.Tensor],
    parameter: float,
) -> tf.Tensor:
    tensor = operands.floating(where, name, value)
    return tf.cast(function(precision.widened(tensor), parameter), tensor.dtype)


def _onto_infinity(
    function: Callable[[tf.Tensor, Any], tf.Tensor],
) -> Callable[[tf.Tensor, Any], tf.Tensor]:
    """A map of the finite numbers, compiled, that takes infinities to themselves."""

    def extended(value: tf.Tensor, parameter: tf.Tensor) -> tf.Tensor:
        infinite = tf.math.is_inf(value)
        # A harmless number where there is an infinity: 0 * inf would reach gradients.
        finite = tf.where(infinite, tf.zeros_like(value), value)
        image = function(finite, tf.stop_gradient(tf.cast(parameter, value.dtype)))
        return tf.where(infinite, tf.stop_gradient(value), image)

    return compile.compiled(extended)


@_onto_infinity
def _log1p(x: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    negative, magnitude = _sign_and_magnitude(x)
    image = alpha * tf.math.log1p(magnitude)
    return tf.where(negative, -image, image)


@_onto_infinity
def _expm1(y: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    negative, magnitude = _sign_and_magnitude(y)
    # exp multiplies the rounding error of its argument by the argument: take whole
    # powers of e apart, whose remainder is exact.
    remainder = tf.math.floormod(magnitude, alpha)
    powers = tf.stop_gradient(tf.round((magnitude - remainder) / alpha))
    part = remainder / alpha
    image = tf.math.expm1(powers) * tf.exp(part) + tf.math.expm1(part)
    return tf.where(negative, -image, image)


@_onto_infinity
def _sqrt_linear(x: tf.Tensor, eps: tf.Tensor) -> tf.Tensor:
    return x / (tf.sqrt(tf.abs(x) + 1.0) + 1.0) + eps * x


@_onto_infinity
def _square_quadratic(y: tf.Tensor, eps: tf.Tensor) -> tf.Tensor:
    @tf.custom_gradient
    def image(y: tf.Tensor) -> Any:
        half = 0.5 + eps
        root = y / (half + tf.sqrt(half * half + eps * tf.abs(y)))

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            # The derivatives of quotient and product would overflow one by one.
            twice = 2.0 * tf.abs(root) + 2.0
            return upstream * (twice / (1.0 + eps * twice))

        return root * (tf.abs(root) + 2.0), gradient

    return image(y)


def _sign_and_magnitude(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Whether x < 0, and |x| with the derivative 1 at 0, where `tf.abs` has 0."""
    negative = x < 0
    return negative, tf.where(negative, -x, x)
