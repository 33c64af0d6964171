"""Numbers brought within bounds: given ones, softly, or those of their neighbours.

The soft bounds are built from the softplus of softness s,

    softplus_s(d) = s * ln(1 + exp(d / s))

which is 0 far below 0 and d far above. They are computed such that neither large inputs
nor a small softness overflows, with gradients in every argument that stay finite.
Where a bound lies far away the result is the input itself, so infinite bounds are none.
"""

from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tfrl._internal import checks, operands, precision
from tfrl.core import compile

TensorLike: TypeAlias = operands.TensorLike

_softclip = compile.compiled(precision.softclip)
_stretched = compile.compiled(precision.stretched)


def softlower(
    x: TensorLike, low: TensorLike, hinge_softness: TensorLike = 1.0
) -> tf.Tensor:
    """Bounds numbers softly from below.

        y = low + softplus_s(x - low),   s = hinge_softness

    Args:
        x: floating, of any shape; the result has its dtype.
        low: the bound, broadcast against `x`.
        hinge_softness: how wide the bend is, in units of `x`; positive.

    Returns:
        Numbers above `low` and `x`, in the broadcast shape.

    Raises:
        ValueError: if `hinge_softness` is not positive.
        TypeError: if `x` is not floating or `low` has another dtype.

    Example:
        >>> softlower([-9.0, 0.0, 9.0], low=0.0, hinge_softness=0.1).numpy()
        array([0.        , 0.06931472, 9.        ], dtype=float32)
    """
    return _bounded("softlower", x, hinge_softness, low=low)


def softupper(
    x: TensorLike, high: TensorLike, hinge_softness: TensorLike = 1.0
) -> tf.Tensor:
    """Bounds numbers softly from above.

        y = high - softplus_s(high - x),   s = hinge_softness

    Args:
        x: floating, of any shape; the result has its dtype.
        high: the bound, broadcast against `x`.
        hinge_softness: how wide the bend is, in units of `x`; positive.

    Returns:
        Numbers below `high` and `x`, in the broadcast shape.

    Raises:
        ValueError: if `hinge_softness` is not positive.
        TypeError: if `x` is not floating or `high` has another dtype.

    Example:
        >>> softupper([-9.0, 0.0, 9.0], high=0.0, hinge_softness=0.1).numpy()
        array([-9.        , -0.06931472,  0.        ], dtype=float32)
    """
    return _bounded("softupper", x, hinge_softness, high=high)


def softclip(
    x: TensorLike, low: TensorLike, high: TensorLike, hinge_softness: TensorLike = 1.0
) -> tf.Tensor:
    """Bounds numbers softly from both sides, bending equally at each.

        y = low + softplus_s(x - low) - softplus_s(x - high),   s = hinge_softness

    The middle of the interval stays where it is, and mirrored inputs give mirrored
    results. With a softness that is large against the interval, the result moves
    slowly around the middle.

    Args:
        x: floating, of any shape; the result has its dtype.
        low: the lower bound, broadcast against `x`.
        high: the upper bound, broadcast against `x`.
        hinge_softness: how wide the bends are, in units of `x`; positive.

    Returns:
        Numbers in [low, high], in the broadcast shape.

    Raises:
        ValueError: if `hinge_softness` is not positive, or `low` not less than `high`.
        TypeError: if `x` is not floating or a bound has another dtype.

    Example:
        >>> softclip([-9.0, 0.0, 1.0, 9.0], low=-1.0, high=1.0).numpy()
        array([-0.99970996,  0.        ,  0.4337808 ,  0.99970996], dtype=float32)
    """
    return _bounded("softclip", x, hinge_softness, low=low, high=high)


def softclip_tf(
    x: TensorLike, low: TensorLike, high: TensorLike, hinge_softness: TensorLike = 1.0
) -> tf.Tensor:
    """Bounds numbers softly from both sides, as TensorFlow Probability's `SoftClip`.

        u(x) = softupper(softlower(x, low), high)
        y    = high - (high - low) * (high - u(x)) / (high - softupper(low, high))

    The bound from above moves the lower end; stretching the interval puts it back. So
    both bounds are reached exactly, but the two bends differ, unlike in `softclip`.

    Args:
        x: floating, of any shape; the result has its dtype.
        low: the lower bound, finite, broadcast against `x`.
        high: the upper bound, finite, broadcast against `x`.
        hinge_softness: how wide the bends are, in units of `x`; positive.

    Returns:
        Numbers in [low, high], in the broadcast shape.

    Raises:
        ValueError: if `hinge_softness` is not positive, a bound is not finite, or `low`
            not less than `high`.
        TypeError: if `x` is not floating or a bound has another dtype.

    Example:
        >>> softclip_tf([-9.0, 0.0, 1.0, 9.0], low=-1.0, high=1.0).numpy()
        array([-0.99972224, -0.02903748,  0.4060018 ,  0.99968463], dtype=float32)
    """
    where = "softclip_tf"
    checks.check_finite(where, "low", _value(low))
    checks.check_finite(where, "high", _value(high))
    bounds = {"low": low, "high": high}
    return _bounded(where, x, hinge_softness, _stretched, **bounds)


def normalize_min_max(x: TensorLike) -> tf.Tensor:
    """Stretches each sample of a batch over [0, 1].

        y[i] = (x[i] - min(x[i])) / (max(x[i]) - min(x[i]) + 1e-10)

    A sample whose elements are all equal becomes 0, with gradients of 1e10. Keep such
    rows out where gradients flow: `tf.where(low < high, normalize_min_max(x), 0.0)`.

    Args:
        x: `[B, ...]`, of any real dtype.

    Returns:
        The shape of `x`, in its dtype if that is floating, else in float32.

    Raises:
        ValueError: if `x` has no batch axis.

    Example:
        >>> normalize_min_max([[3, 1, 5], [2, 2, 2]]).numpy()
        array([[0.5, 0. , 1. ],
               [0. , 0. , 0. ]], dtype=float32)

    References:
        Schrittwieser et al. (2020), "Mastering Atari, Go, chess and shogi by planning
        with a learned model", appendix G.
    """
    x = operands.ranked("normalize_min_max", "x", x, at_least=1, numeric=True)
    x = x if x.dtype.is_floating else tf.cast(x, tf.float32)
    return x if x.shape.num_elements() == 0 else _normalize_min_max(x)


def _bounded(
    where: str,
    x: TensorLike,
    hinge_softness: TensorLike,
    function: Any = _softclip,
    **bounds: TensorLike,
) -> tf.Tensor:
    """A soft bound of checked arguments, computed in at least float32."""
    x = operands.floating(where, "x", x)
    checks.check_positive(where, "hinge_softness", _value(hinge_softness))
    wide, found = precision.widened(x), {"low": -np.inf, "high": np.inf}
    for name, value in {**bounds, "hinge_softness": hinge_softness}.items():
        if type(value) in (int, float):
            found[name] = value
            continue
        tensor = checks.as_tensor(where, name, value, dtype_hint=wide.dtype)
        tensor = precision.widened(tensor)
        found[name] = operands.alike(where, name, tensor, "x", wide)
    if len(bounds) == 2:
        low, high = map(_value, bounds.values())
        symbolic = tf.is_symbolic_tensor(low) or tf.is_symbolic_tensor(high)
        if not symbolic and not np.all(np.less(low, high)):
            raise ValueError(
                f"`{where}`: `high` expected > `low` {checks.shown(low)}; got "
                f"{checks.shown(high)}"
            )
    return tf.cast(function(wide, *found.values()), x.dtype)


def _value(argument: TensorLike) -> Any:
    """What a check can look at: numpy of tensors and variables, except in graphs."""
    if not tf.is_tensor(argument):
        return argument
    tensor = tf.convert_to_tensor(argument)
    return tensor if tf.is_symbolic_tensor(tensor) else tensor.numpy()


@compile.compiled
def _normalize_min_max(x: tf.Tensor) -> tf.Tensor:
    wide = precision.widened(x)
    sizes = tf.shape(x)
    samples = tf.reshape(wide, [sizes[0], tf.reduce_prod(sizes[1:])])
    # Gathered, not reduced: among equal extremes the first has the gradient.
    above = samples - _taken(samples, tf.argmin(samples, axis=1))
    # Not (high - low) + 1e-10: graphs are rewritten, and (high + 1e-10) - low may be 0.
    scaled = above / (_taken(above, tf.argmax(above, axis=1)) + 1e-10)
    return tf.cast(tf.reshape(scaled, sizes), x.dtype)


def _taken(samples: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
    return tf.gather(samples, positions[:, tf.newaxis], batch_dims=1)
