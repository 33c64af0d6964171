"""Numbers brought within bounds: given ones, softly, or those of their neighbours.

The soft bounds are built from the softplus of softness s,

    softplus_s(d) = s * ln(1 + exp(d / s))

which is 0 far below 0 and d far above. They are computed such that neither large inputs
nor a small softness overflows, with gradients in every argument that stay finite.
Where a bound lies far away the result is the input itself, so infinite bounds are none.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.core import checks, compile
from tfrl.ops import _arguments, _sequences, tensors

# In units of the softness: where exp(-distance) is 0 in every dtype.
_FAR = 1000.0


def softlower(
    x: _arguments.TensorLike,
    low: _arguments.TensorLike,
    hinge_softness: _arguments.TensorLike = 1.0,
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
    wide, softness, low = _operands("softlower", x, hinge_softness, low=low)
    return _cast_like(x, _softclip(wide, softness, low, np.inf))


def softupper(
    x: _arguments.TensorLike,
    high: _arguments.TensorLike,
    hinge_softness: _arguments.TensorLike = 1.0,
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
    wide, softness, high = _operands("softupper", x, hinge_softness, high=high)
    return _cast_like(x, _softclip(wide, softness, -np.inf, high))


def softclip(
    x: _arguments.TensorLike,
    low: _arguments.TensorLike,
    high: _arguments.TensorLike,
    hinge_softness: _arguments.TensorLike = 1.0,
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
    operands = _operands("softclip", x, hinge_softness, low=low, high=high)
    return _cast_like(x, _softclip(*operands))


def softclip_tf(
    x: _arguments.TensorLike,
    low: _arguments.TensorLike,
    high: _arguments.TensorLike,
    hinge_softness: _arguments.TensorLike = 1.0,
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
    operands = _operands(where, x, hinge_softness, low=low, high=high)
    return _cast_like(x, _softclip_tf(*operands))


def normalize_min_max(x: _arguments.TensorLike) -> tf.Tensor:
    """Stretches each sample of a batch over [0, 1].

        y[i] = (x[i] - min(x[i])) / (max(x[i]) - min(x[i]) + 1e-10)

    A sample whose elements are all equal becomes 0.

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
    x = _arguments.ranked("normalize_min_max", "x", x, at_least=1, numeric=True)
    return _normalize_min_max(x if x.dtype.is_floating else tf.cast(x, tf.float32))


def _operands(
    where: str,
    x: _arguments.TensorLike,
    hinge_softness: _arguments.TensorLike,
    **bounds: _arguments.TensorLike,
) -> tuple[Any, ...]:
    """The arguments of a soft bound, checked, as tensors of one dtype to compute in."""
    x = checks.as_tensor(where, "x", x)
    checks.check_floating(where, "x", x)
    checks.check_positive(where, "hinge_softness", _value(hinge_softness))
    wide = tensors.widened(x)
    found = {}
    for name, value in {"hinge_softness": hinge_softness, **bounds}.items():
        tensor = checks.as_tensor(where, name, value, dtype_hint=wide.dtype)
        tensor = tensors.widened(tensor)
        found[name] = _sequences.alike(where, name, tensor, wide)
    if len(bounds) == 2:
        low, high = map(_value, bounds.values())
        symbolic = tf.is_symbolic_tensor(low) or tf.is_symbolic_tensor(high)
        if not symbolic and not np.all(np.less(low, high)):
            raise ValueError(
                f"`{where}`: `high` expected numbers > `low` {low!r}; got {high!r}; "
                "swap or correct them"
            )
    return wide, *found.values()


def _value(argument: _arguments.TensorLike) -> Any:
    """What a check can look at: numpy of tensors and variables, except in graphs."""
    if not tf.is_tensor(argument):
        return argument
    tensor = tf.convert_to_tensor(argument)
    return tensor if tf.is_symbolic_tensor(tensor) else tensor.numpy()


def _cast_like(x: _arguments.TensorLike, result: tf.Tensor) -> tf.Tensor:
    return tf.cast(result, tf.convert_to_tensor(x).dtype)


@compile.compiled
def _softclip(
    x: tf.Tensor, softness: tf.Tensor, low: tf.Tensor, high: tf.Tensor
) -> tf.Tensor:
    parts = [tf.convert_to_tensor(each, x.dtype) for each in (x, low, high, softness)]
    return _bounded(*tf.experimental.numpy.broadcast_arrays(*parts))


@compile.compiled
def _softclip_tf(
    x: tf.Tensor, softness: tf.Tensor, low: tf.Tensor, high: tf.Tensor
) -> tf.Tensor:
    upper = _softclip(_softclip(x, softness, low, np.inf), softness, -np.inf, high)
    least = _softclip(low, softness, -np.inf, high)
    stretch = (high - low) / (high - least)
    # The same twice: each keeps the digits of the distance to its own bound.
    from_low = low + stretch * (upper - least)
    from_high = high - stretch * (high - upper)
    result = tf.where(x - low < high - x, from_low, from_high)
    # Rounding must not leave the interval, but the tails keep their gradient.
    excess = result - tf.clip_by_value(result, low, high)
    return result - tf.stop_gradient(excess)


@tf.custom_gradient
def _bounded(x: tf.Tensor, low: tf.Tensor, high: tf.Tensor, softness: tf.Tensor) -> Any:
    """`softclip` of tensors of one shape, whose bounds may be infinite.

    With a, b the distances from the bounds divided by the softness s, it is

        clip(x) + s * (ln(1 + exp(-a)) - ln(1 + exp(-b)))

    and the difference of the logarithms, if a <= b, is

        -ln(1 + (exp(a - b) - 1) * sigmoid(-a))
    """
    infinity = tf.constant(np.inf, x.dtype)
    above_low = tf.where(low == -infinity, infinity, x - low)
    above_high = tf.where(high == infinity, -infinity, x - high)
    from_low, from_high = tf.abs(above_low), tf.abs(above_high)
    nearer = tf.minimum(from_low, from_high) / softness
    gap = tf.minimum(tf.abs(above_low + above_high), high - low) / softness
    # Far from both bounds the gap may be inf - inf, and does not count.
    product = tf.math.multiply_no_nan(tf.math.expm1(-gap), tf.sigmoid(-nearer))
    bend = -softness * tf.math.log1p(product)
    clipped = tf.maximum(tf.minimum(x, high), low)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
        # Cut off where nothing changes any more, for the sake of second derivatives.
        far = _FAR * softness
        a = tf.clip_by_value(above_low, -far, far) / softness
        b = tf.clip_by_value(above_high, -far, far) / softness
        # sigmoid(a) - sigmoid(b) without cancellation.
        width = tf.minimum(high - low, far) / softness
        slope = -tf.math.expm1(-width) * tf.sigmoid(a) * tf.sigmoid(-b)
        factors = (slope, tf.sigmoid(-a), tf.sigmoid(b), _entropy(a) - _entropy(b))
        return tuple(upstream * factor for factor in factors)

    return clipped + tf.where(from_low <= from_high, bend, -bend), gradient


def _entropy(logits: tf.Tensor) -> tf.Tensor:
    """Of a coin with these logits; the derivative of `softplus_s` in s."""
    below = -tf.abs(logits)
    return tf.math.softplus(below) - below * tf.sigmoid(below)


@compile.compiled
def _normalize_min_max(x: tf.Tensor) -> tf.Tensor:
    wide = tensors.widened(x)
    sizes = tf.shape(x)
    samples = tf.reshape(wide, [sizes[0], tf.reduce_prod(sizes[1:])])
    # Gathered, not reduced: among equal extremes the first has the gradient.
    above = samples - _taken(samples, tf.argmin(samples, axis=1))
    # Not (high - low) + 1e-10: graphs are rewritten, and (high + 1e-10) - low may be 0.
    scaled = above / (_taken(above, tf.argmax(above, axis=1)) + 1e-10)
    return tf.cast(tf.reshape(scaled, sizes), x.dtype)


def _taken(samples: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
    return tf.gather(samples, positions[:, tf.newaxis], batch_dims=1)
