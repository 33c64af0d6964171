"""Elementary functions of numbers: of each, of several side by side, of all along axes.

Soft bounds are in `squashing`, the positions of extremes in `indices`, covariances and
cumulative sums in `reductions`.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tfrl._internal import checks, operands, precision
from tfrl.core import compile

TensorLike: TypeAlias = operands.TensorLike


def square(x: TensorLike) -> tf.Tensor:
    """Squares each number.

    Args:
        x: any numeric dtype and shape.

    Returns:
        `x * x`.

    Example:
        >>> square([-2, 3]).numpy()
        array([4, 9], dtype=int32)
    """
    return tf.square(checks.as_tensor("square", "x", x))


def clipped_exp(
    value: TensorLike, clip_value_min: TensorLike = -20, clip_value_max: TensorLike = 2
) -> tf.Tensor:
    """The exponential of clipped numbers.

        y = exp(min(max(value, clip_value_min), clip_value_max))

    Args:
        value: floating, of any shape.
        clip_value_min: the least exponent.
        clip_value_max: the greatest exponent.

    Returns:
        The shape and dtype of `value`. The gradient beyond the bounds is 0.

    Raises:
        TypeError: if `value` is not floating.

    Example:
        >>> clipped_exp([0.0, 1000.0], clip_value_max=1).numpy()
        array([1.       , 2.7182817], dtype=float32)
    """
    value = operands.floating("clipped_exp", "value", value)
    return tf.exp(tf.clip_by_value(value, clip_value_min, clip_value_max))


def clipped_logit(x: TensorLike, epsilon: TensorLike = 1e-15) -> tf.Tensor:
    """The logit of probabilities, finite at 0 and 1.

        y = ln(max(epsilon, x)) - ln(max(epsilon, 1 - x))

    Args:
        x: real numbers in [0, 1]; those outside count as the nearer end.
        epsilon: what the logarithms see at least, positive.

    Returns:
        The shape of `x`, in its dtype if that is floating, else in float32.

    Raises:
        ValueError: if `epsilon` is not positive.

    Example:
        >>> clipped_logit([0.0, 0.5, 0.75], epsilon=1e-6).numpy()
        array([-13.815511 ,   0.       ,   1.0986123], dtype=float32)
    """
    checks.check_positive("clipped_logit", "epsilon", epsilon)
    x = checks.as_tensor("clipped_logit", "x", x)
    return tf.cast(_clipped_logit(_computable(x), epsilon), _floating_dtype(x))


def binary_neg_entropy(p: TensorLike) -> tf.Tensor:
    """The negative entropy, in nats, of events that have two outcomes.

        y     = p * ln(p) + (1 - p) * ln(1 - p)
        dy/dp = ln(p) - ln(1 - p)

    Args:
        p: floating, the probability of one of the outcomes.

    Returns:
        The shape and dtype of `p`: numbers in [-ln 2, 0], exactly 0 where `p` is 0 or
        1, NaN where `p` is outside [0, 1]. At 0 and 1 the gradient is infinite.

    Raises:
        TypeError: if `p` is not floating.

    Example:
        >>> binary_neg_entropy([0.5, 1.0]).numpy()
        array([-0.6931472,  0.       ], dtype=float32)
    """
    p = operands.floating("binary_neg_entropy", "p", p)
    return _binary_neg_entropy(p)


def add_ignore_empty(x: Any, y: Any) -> Any:
    """The sum of two tensors, of which None and () are taken as absent.

    Args:
        x: a tensor, None or ().
        y: a tensor, None or ().

    Returns:
        `x + y`; if `y` is absent, `x` as it is, whatever it is; if `x` is absent, `y`.

    Example:
        >>> add_ignore_empty(None, tf.constant(2.0)).numpy()
        np.float32(2.0)
    """
    for absent, other in ((y, x), (x, y)):
        if absent is None or (isinstance(absent, tuple) and not absent):
            return other
    where = "add_ignore_empty"
    return tf.add(checks.as_tensor(where, "x", x), checks.as_tensor(where, "y", y))


def add_n(inputs: Iterable[TensorLike]) -> Any:
    """The sum of tensors that broadcast against each other.

    Args:
        inputs: tensors of one dtype; Python numbers take it.

    Returns:
        Their sum in the common shape; the Python number 0 if there are none.

    Raises:
        TypeError: if the dtypes differ.

    Example:
        >>> add_n([[1.0, 2.0], 10.0, [100.0, 100.0]]).numpy()
        array([111., 112.], dtype=float32)
    """
    return functools.reduce(tf.add, _alike("add_n", inputs, empty=True) or [0])


def mul_n(inputs: Iterable[TensorLike]) -> tf.Tensor:
    """The product of tensors that broadcast against each other.

    Args:
        inputs: one or more tensors of one dtype; Python numbers take it.

    Returns:
        Their product in the common shape.

    Raises:
        ValueError: if there are none.
        TypeError: if the dtypes differ.

    Example:
        >>> mul_n([[1.0, 2.0], 10.0, [3.0, 3.0]]).numpy()
        array([30., 60.], dtype=float32)
    """
    return functools.reduce(tf.multiply, _alike("mul_n", inputs))


def max_n(inputs: Iterable[TensorLike]) -> tf.Tensor:
    """The elementwise maximum of tensors that broadcast against each other.

    Args:
        inputs: one or more tensors of one dtype; Python numbers take it.

    Returns:
        The maximum in the common shape, NaN where an input is. Inputs that are equal
        and greatest share the gradient evenly.

    Raises:
        ValueError: if there are none.
        TypeError: if the dtypes differ.

    Example:
        >>> max_n([[1.0, 20.0], 10.0, [3.0, 3.0]]).numpy()
        array([10., 20.], dtype=float32)
    """
    return _max_n(_alike("max_n", inputs))


def min_n(inputs: Iterable[TensorLike]) -> tf.Tensor:
    """The elementwise minimum of tensors that broadcast against each other.

    Args:
        inputs: one or more tensors of one dtype; Python numbers take it.

    Returns:
        The minimum in the common shape, NaN where an input is. Inputs that are equal
        and least share the gradient evenly.

    Raises:
        ValueError: if there are none.
        TypeError: if the dtypes differ.

    Example:
        >>> min_n([[1.0, 20.0], 10.0, [3.0, 3.0]]).numpy()
        array([1., 3.], dtype=float32)
    """
    return _min_n(_alike("min_n", inputs))


def sum_to_leftmost(value: TensorLike, dim: int) -> tf.Tensor:
    """The sum over all axes but the first `dim`.

    Args:
        value: any numeric dtype.
        dim: how many axes to leave, at least 0.

    Returns:
        Of rank `dim`; `value` itself where that has no more axes.

    Raises:
        ValueError: if `dim` is negative.
        TypeError: if `dim` is not an int.

    Example:
        >>> sum_to_leftmost(tf.ones([2, 3, 4]), 1).numpy()
        array([12., 12.], dtype=float32)
    """
    value = operands.ranked("sum_to_leftmost", "value", value, numeric=True)
    dim = checks.check_whole_number("sum_to_leftmost", "dim", dim, low=0)
    axes = list(range(dim, value.shape.rank))
    if not axes:
        return value
    return tf.cast(tf.reduce_sum(precision.widened(value), axes), value.dtype)


def weighted_reduce_mean(
    x: Any, weight: TensorLike, dim: int | Sequence[int] | None = ()
) -> Any:
    """The weighted mean along axes.

        y = sum(weight * x) / max(sum(weight), 1e-10)

    Without any weight the mean is 0, not NaN. Elements of weight 0 may be NaN or
    infinite.

    Args:
        x: nest of real tensors of one shape.
        weight: of that shape, any real dtype or bool.
        dim: the axis or axes to reduce; all of them if () or None.

    Returns:
        The means in the structure of `x`, each in the dtype of its tensor if that is
        floating, else in float32.

    Raises:
        ValueError: if a shape is not that of `weight`, or an axis does not exist.

    Example:
        >>> x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
        >>> weighted_reduce_mean(x, [[3, 1], [0, 0]], dim=1).numpy()
        array([1.25, 0.  ], dtype=float32)
    """
    where = "weighted_reduce_mean"
    weight = operands.ranked(where, "weight", weight)
    x = tf.nest.map_structure(lambda leaf: checks.as_tensor(where, "x", leaf), x)
    for leaf in tf.nest.flatten(x):
        checks.check_same_shape(where, weight=weight, x=leaf)
    dims = dim if isinstance(dim, Sequence) else () if dim is None else (dim,)
    axes = tuple(operands.axis(where, "dim", each, weight) for each in dims)
    return _weighted_mean(x, weight, axes if axes else None)


def _alike(
    where: str, inputs: Iterable[TensorLike], empty: bool = False
) -> list[tf.Tensor]:
    """Several inputs as tensors of the dtype of the first that has one."""
    if not isinstance(inputs, Iterable) or isinstance(inputs, str | Mapping):
        raise checks.wrong_type(where, "inputs", inputs, "a list of tensors")
    inputs = list(inputs)
    if not (inputs or empty):
        raise ValueError(f"`{where}`: `inputs` expected at least one tensor; got none")
    if not inputs:
        return []
    leader = next((each for each in inputs if hasattr(each, "dtype")), inputs[0])
    leader = checks.as_tensor(where, "inputs", leader)
    return [operands.alike(where, "inputs", each, "inputs", leader) for each in inputs]


def _computable(tensor: tf.Tensor) -> tf.Tensor:
    """A real tensor in a dtype that is precise enough to compute in."""
    return precision.widened(tf.cast(tensor, _floating_dtype(tensor)))


def _floating_dtype(tensor: tf.Tensor) -> tf.DType:
    return tensor.dtype if tensor.dtype.is_floating else tf.float32


@compile.compiled
def _clipped_logit(x: tf.Tensor, epsilon: tf.Tensor) -> tf.Tensor:
    x = tf.clip_by_value(x, 0.0, 1.0)
    return tf.math.log(tf.maximum(x, epsilon)) - tf.math.log(
        tf.maximum(1.0 - x, epsilon)
    )


@compile.compiled
@tf.custom_gradient
def _binary_neg_entropy(p: tf.Tensor) -> Any:
    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        # What does not enter the loss has no gradient, at 0 and 1 neither.
        return tf.math.multiply_no_nan(tf.math.log(p) - tf.math.log1p(-p), upstream)

    return tf.math.xlogy(p, p) + tf.math.xlog1py(1.0 - p, -p), gradient


@compile.compiled
def _max_n(inputs: Sequence[tf.Tensor]) -> tf.Tensor:
    # Unlike `tf.maximum`, a reduction shares the gradient among equals.
    stacked = tf.stack(tf.experimental.numpy.broadcast_arrays(*inputs))
    return precision.greatest(stacked, axis=0)


@compile.compiled
def _min_n(inputs: Sequence[tf.Tensor]) -> tf.Tensor:
    stacked = tf.stack(tf.experimental.numpy.broadcast_arrays(*inputs))
    return precision.least(stacked, axis=0)


@compile.compiled(static=("axes",))
def _weighted_mean(x: Any, weight: tf.Tensor, axes: Sequence[int] | None) -> Any:
    def mean(leaf: tf.Tensor) -> tf.Tensor:
        values = _computable(leaf)
        weights = tf.cast(weight, values.dtype)
        # What has no weight would spoil the sum, and the gradients of all weights.
        counts = (weights != 0) | tf.math.is_finite(values)
        values = tf.where(counts, values, tf.zeros_like(values))
        total = tf.reduce_sum(weights, axes, keepdims=True)
        # Shares first: neither huge values nor tiny weights leave the range.
        shares = weights / tf.maximum(total, 1e-10)
        return tf.cast(tf.reduce_sum(shares * values, axes), _floating_dtype(leaf))

    return tf.nest.map_structure(mean, x)
