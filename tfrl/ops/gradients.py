"""Gradients: how long they are, shortened, scaled, and told in a few numbers."""

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks, operands
from tfrl.core import compile

_QUARTILES = ("min", "p25", "p50", "p75", "max")


def global_norm(tensors: Any) -> tf.Tensor:
    """Length of all tensors of a nest, laid out as one vector.

        norm = sqrt(sum of the squares of all entries)

    The squares of entries near the ends of the dtype's range neither overflow nor
    vanish. The gradient at the zero vector is 0.

    Args:
        tensors: nest of floating tensors of any shapes. None leaves do not count.

    Returns:
        Scalar; 0 for a nest without leaves. Its dtype is that of the tensors; where
        they differ, float64 if one is float64 and else float32.

    Raises:
        TypeError: if `tensors` is a single tensor, has no leaf but None, or a leaf is
            not floating.

    Example:
        >>> float(global_norm({"w": tf.constant([3.0]), "b": tf.constant([4.0])}))
        5.0
    """
    return _norm(_counted("global_norm", tensors))


def clip_by_global_norm(
    tensors: Any, clip_norm: Any, use_norm: Any = None, in_place: bool = False
) -> tuple[Any, Any]:
    """Shortens tensors together, so that their common length is at most `clip_norm`.

        tensor = tensor * clip_norm / norm   if norm > clip_norm,   norm = global_norm

    A norm of NaN or 0 leaves everything as it is. An infinite norm makes finite
    entries 0 and infinite ones NaN.

    Args:
        tensors: nest of floating tensors of any shapes. None leaves stay.
        clip_norm: the greatest length, a number or scalar >= 0.
        use_norm: the norm to take instead of computing it, a number or scalar.
        in_place: whether leaves that are variables are assigned their new values
            too. Tensors and arrays never change.

    Returns:
        The clipped tensors as a nest of the same structure and dtypes
        (`tf.IndexedSlices` become dense), and the norm before clipping: `use_norm` as
        given, or that of `global_norm`.

    Raises:
        TypeError: as in `global_norm`.
        ValueError: if `clip_norm` or `use_norm` is no scalar, or `clip_norm` negative.

    Example:
        >>> clipped, norm = clip_by_global_norm([tf.constant([3.0, 4.0]), None], 1.0)
        >>> clipped[0].numpy(), clipped[1], float(norm)
        (array([0.6, 0.8], dtype=float32), None, 5.0)

    References:
        Pascanu, Mikolov and Bengio, 2013, On the Difficulty of Training Recurrent
        Neural Networks, algorithm 1.
    """
    where = "clip_by_global_norm"
    limit = _limit(where, clip_norm)
    given = None if use_norm is None else _scalar(where, "use_norm", use_norm)
    clipped, norm = _clipped(_counted(where, tensors), limit, given)
    return _replaced(tensors, clipped, in_place), norm if use_norm is None else use_norm


def clip_by_norms(tensors: Any, clip_norm: Any, in_place: bool = False) -> Any:
    """Shortens each tensor by itself, so that no one is longer than `clip_norm`.

        tensor = tensor * clip_norm / max(norm of the tensor, clip_norm)

    NaN, 0 and infinity are treated as in `clip_by_global_norm`.

    Args:
        tensors: a floating tensor or a nest of them. None leaves stay.
        clip_norm: the greatest length of one tensor, a number or scalar >= 0.
        in_place: as in `clip_by_global_norm`.

    Returns:
        The clipped tensors in the same structure and dtypes.

    Raises:
        TypeError: if a leaf is not floating.
        ValueError: if `clip_norm` is no scalar or negative.

    Example:
        >>> clip_by_norms({"a": tf.constant([3.0, 4.0]), "b": tf.ones([1])}, 2.0)["a"]
        <tf.Tensor: shape=(2,), dtype=float32, numpy=array([1.2, 1.6], dtype=float32)>
    """
    where = "clip_by_norms"
    limit = _limit(where, clip_norm)
    clipped = _each_clipped(_floating(where, "tensors", tensors), limit)
    return _replaced(tensors, clipped, in_place)


def scale_gradient(tensor: Any, scale: Any, clone_input: bool = True) -> tf.Tensor:
    """Returns a tensor whose gradient arrives at the input multiplied by `scale`.

        output = tensor,     d loss / d tensor = scale * d loss / d output

    Args:
        tensor: floating, of any shape.
        scale: factor of the gradient, a number or scalar; negative reverses it.
        clone_input: kept for callers that pass it. A tensor of TensorFlow has no
            hooks, so either way only what is computed from the result is scaled: use
            the result in place of `tensor` wherever the factor shall hold.

    Returns:
        A tensor with the values, shape and dtype of `tensor`.

    Raises:
        TypeError: if `tensor` is not floating.
        ValueError: if `scale` is no scalar.

    Example:
        >>> x = tf.Variable(3.0)
        >>> with tf.GradientTape() as tape:
        ...     y = scale_gradient(x, 0.25) ** 2 + x
        >>> float(tape.gradient(y, x))
        2.5
    """
    del clone_input
    x = operands.floating("scale_gradient", "tensor", tensor)
    factor = _scalar("scale_gradient", "scale", scale)
    checks.check_finite("scale_gradient", "scale", factor)
    factor = tf.cast(factor, x.dtype)

    @tf.custom_gradient
    def identity(x: tf.Tensor) -> tuple[tf.Tensor, Any]:
        return tf.identity(x), lambda upstream: upstream * factor

    return identity(x)


def clip_gradient(tensor: Any, low: Any, high: Any) -> tf.Tensor:
    """Returns a tensor whose gradient arrives at the input clipped.

        output = tensor,     d loss / d tensor = clip(d loss / d output, low, high)

    Args:
        tensor: floating, of any shape.
        low: the least element of the gradient, a number or scalar.
        high: the greatest, not less.

    Returns:
        A tensor with the values, shape and dtype of `tensor`.

    Raises:
        TypeError: if `tensor` is not floating.
        ValueError: if a bound is no scalar, or `low` is known to be above `high`.

    Example:
        >>> x = tf.Variable([3.0, -0.1])
        >>> with tf.GradientTape() as tape:
        ...     y = tf.reduce_sum(clip_gradient(x, -1.0, 1.0) ** 2)
        >>> tape.gradient(y, x).numpy()
        array([ 1. , -0.2], dtype=float32)
    """
    where = "clip_gradient"
    x = operands.floating(where, "tensor", tensor)
    least, most = _scalar(where, "low", low), _scalar(where, "high", high)
    known = not (tf.is_symbolic_tensor(least) or tf.is_symbolic_tensor(most))
    if known and not float(least) <= float(most):
        raise ValueError(
            f"`{where}`: `low` expected at most `high`; got {float(least)} and "
            f"{float(most)}"
        )
    least, most = tf.cast(least, x.dtype), tf.cast(most, x.dtype)

    @tf.custom_gradient
    def identity(x: tf.Tensor) -> tuple[tf.Tensor, Any]:
        return tf.identity(x), lambda upstream: tf.clip_by_value(upstream, least, most)

    return identity(x)


def get_grads_diagnostics(
    grads: Any, key_prefix: str = "", keep_tree_structure: bool = False
) -> Any:
    """Greatest magnitude and length of gradients, to be logged.

        max = max |g|,     norm = sqrt(sum of g^2)     over all entries g

    Args:
        grads: nest of floating tensors of any shapes. None leaves do not count.
        key_prefix: put before the keys.
        keep_tree_structure: whether every tensor is told by itself.

    Returns:
        A dict with keys `max` and `norm` and scalars of the dtype that `global_norm`
        has; a nest like `grads` of such dicts if `keep_tree_structure`.

    Raises:
        TypeError: if a leaf is not floating.
        ValueError: if there is no leaf.

    Example:
        >>> found = get_grads_diagnostics([tf.constant([3.0, -4.0])], "actor/")
        >>> {key: float(value) for key, value in found.items()}
        {'actor/max': 4.0, 'actor/norm': 5.0}
    """
    where = "get_grads_diagnostics"
    leaves = _some(where, "grads", grads)
    if not keep_tree_structure:
        return _prefixed(key_prefix, _diagnostics(leaves))
    each = iter(_prefixed(key_prefix, _diagnostics([leaf])) for leaf in leaves)
    return tf.nest.map_structure(
        lambda leaf: None if leaf is None else next(each), grads
    )


def get_magnitude_quantiles(pytree: Any, key_prefix: str = "") -> dict[str, tf.Tensor]:
    """Quartiles of the magnitudes of all entries of a nest.

    Between two entries the quantile is interpolated linearly.

    Args:
        pytree: nest of floating tensors of any shapes, such as weights or gradients.
            None leaves do not count.
        key_prefix: put before the keys.

    Returns:
        A dict with keys `min`, `p25`, `p50`, `p75` and `max` and scalars of the dtype
        that `global_norm` has; all NaN if an entry is.

    Raises:
        TypeError: if a leaf is not floating.
        ValueError: if there is no leaf.

    Example:
        >>> found = get_magnitude_quantiles([tf.constant([-3.0, 1.0, 2.0])])
        >>> [float(value) for value in found.values()]
        [1.0, 1.5, 2.0, 2.5, 3.0]
    """
    quartiles = _quartiles(_some("get_magnitude_quantiles", "pytree", pytree))
    return _prefixed(key_prefix, quartiles)


@compile.compiled
def _norm(leaves: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.cast(_wide_norm(leaves), _common_dtype(leaves))


@compile.compiled
def _clipped(
    leaves: Sequence[tf.Tensor], limit: tf.Tensor, norm: tf.Tensor | None
) -> tuple[list[tf.Tensor], tf.Tensor]:
    norm = _wide_norm(leaves) if norm is None else norm
    clipped = [_shortened(leaf, limit, norm) for leaf in leaves]
    return clipped, tf.cast(norm, _common_dtype(leaves))


@compile.compiled
def _each_clipped(leaves: Sequence[tf.Tensor], limit: tf.Tensor) -> list[tf.Tensor]:
    return [_shortened(leaf, limit, _wide_norm([leaf])) for leaf in leaves]


@compile.compiled
def _diagnostics(leaves: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
    dtype = _common_dtype(leaves)
    largest = _largest([tf.cast(leaf, dtype) for leaf in leaves])
    return {"max": largest, "norm": _norm(leaves)}


@compile.compiled
def _quartiles(leaves: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
    dtype, wide = _common_dtype(leaves), _wide_dtype(leaves)
    flat = [tf.reshape(tf.abs(tf.cast(leaf, wide)), [-1]) for leaf in leaves]
    ordered = tf.sort(tf.concat(flat, axis=0))
    # In integers: n - 1 times a fraction of float32 misses entries of long vectors.
    last = tf.size(ordered, tf.int64) - 1
    quarters = tf.range(5, dtype=tf.int64) * last
    below = tf.gather(ordered, quarters // 4)
    above = tf.gather(ordered, tf.minimum(quarters // 4 + 1, last))
    # The gap between equal infinities would be NaN.
    between = (quarters % 4 > 0) & (above > below)
    gaps = tf.where(between, above, 1.0) - tf.where(between, below, 1.0)
    values = below + tf.cast(quarters % 4, wide) / 4 * gaps
    known = ~tf.reduce_any(tf.math.is_nan(ordered))
    values = tf.where(known, values, tf.constant(float("nan"), wide))
    return dict(zip(_QUARTILES, tf.unstack(tf.cast(values, dtype), 5), strict=True))


def _shortened(leaf: tf.Tensor, limit: tf.Tensor, norm: tf.Tensor) -> tf.Tensor:
    norm = tf.cast(norm, _wide_dtype([leaf]))
    limit = tf.cast(limit, norm.dtype)
    longer = norm > limit
    # First the quotient, which is at most 1: limit / norm may be too small a number.
    direction = tf.cast(leaf, norm.dtype) / tf.where(longer, norm, 1.0)
    return tf.where(longer, tf.cast(direction * limit, leaf.dtype), leaf)


def _wide_norm(leaves: Sequence[tf.Tensor]) -> tf.Tensor:
    """The norm in float32 or float64."""
    dtype = _wide_dtype(leaves)
    if not leaves:
        return tf.zeros([], dtype)
    return _length(*[tf.cast(leaf, dtype) for leaf in leaves])


@tf.custom_gradient
def _length(*entries: tf.Tensor) -> tuple[tf.Tensor, Any]:
    total = tf.add_n([tf.reduce_sum(tf.square(each)) for each in entries])
    # Squares that may have overflowed or vanished are summed once more, scaled: a
    # rare second pass costs less than to look for the largest entry always.
    plain = (total > 2.0**-60) & (total < 2.0**100)
    norm = tf.cond(plain, lambda: tf.sqrt(total), lambda: _scaled_length(entries))

    def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
        divisor = tf.where(norm == 0.0, tf.ones_like(norm), norm)
        return [upstream * (each / divisor) for each in entries]

    return norm, gradient


def _scaled_length(entries: Sequence[tf.Tensor]) -> tf.Tensor:
    limits = np.finfo(entries[0].dtype.as_numpy_dtype)
    scale = tf.clip_by_value(_largest(entries), limits.tiny, limits.max)
    squares = [tf.reduce_sum(tf.square(each / scale)) for each in entries]
    return scale * tf.sqrt(tf.add_n(squares))


def _largest(entries: Sequence[tf.Tensor]) -> tf.Tensor:
    # A tensor without entries has -inf as its maximum.
    each = [tf.maximum(tf.reduce_max(tf.abs(entry)), 0.0) for entry in entries]
    return tf.reduce_max(tf.stack(each))


def _wide_dtype(leaves: Sequence[tf.Tensor]) -> tf.DType:
    return tf.float64 if any(t.dtype == tf.float64 for t in leaves) else tf.float32


def _common_dtype(leaves: Sequence[tf.Tensor]) -> tf.DType:
    dtypes = {leaf.dtype for leaf in leaves}
    return dtypes.pop() if len(dtypes) == 1 else _wide_dtype(leaves)


def _limit(where: str, clip_norm: Any) -> tf.Tensor:
    limit = _scalar(where, "clip_norm", clip_norm)
    checks.check_within(where, "clip_norm", limit, 0.0, float("inf"))
    return limit


def _scalar(where: str, name: str, value: Any) -> tf.Tensor:
    # A number keeps all its digits until it meets a tensor.
    number = isinstance(value, numbers.Real)
    tensor = checks.as_tensor(
        where, name, value, tf.float64 if number else None, numeric=False
    )
    checks.check_rank(where, name, tensor, exact=0)
    return tensor


def _counted(where: str, tensors: Any) -> list[tf.Tensor]:
    """The leaves of a nest whose common length is asked for."""
    if not tf.nest.is_nested(tensors):
        raise checks.wrong_type(where, "tensors", tensors, "a list or nest of tensors")
    leaves = _floating(where, "tensors", tensors)
    if not leaves and tf.nest.flatten(tensors):
        raise TypeError(
            f"`{where}`: `tensors` expected a tensor among the leaves; got only None; "
            "differentiate with respect to what the loss depends on"
        )
    return leaves


def _some(where: str, name: str, nest: Any) -> list[tf.Tensor]:
    leaves = _floating(where, name, nest)
    if all(leaf.shape.num_elements() == 0 for leaf in leaves):
        raise ValueError(f"`{where}`: `{name}` expected an entry; got {nest!r:.80}")
    return leaves


def _floating(where: str, name: str, nest: Any) -> list[tf.Tensor]:
    given = [leaf for leaf in tf.nest.flatten(nest) if leaf is not None]
    return [operands.floating(where, name, leaf) for leaf in given]


def _replaced(nest: Any, values: Sequence[tf.Tensor], in_place: bool) -> Any:
    rest = iter(values)
    old = tf.nest.flatten(nest)
    new = [None if leaf is None else next(rest) for leaf in old]
    if in_place:
        for leaf, value in zip(old, new, strict=True):
            if hasattr(leaf, "assign"):
                leaf.assign(value)
    return tf.nest.pack_sequence_as(nest, new)


def _prefixed(prefix: str, values: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return {f"{prefix}{key}": value for key, value in values.items()}
