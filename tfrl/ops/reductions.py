"""Sums and products from each element to the end, covariance, explained variance.

float16 and bfloat16 are accumulated in wider types. What is squared is centred before,
so that a large common offset costs no digits.
"""

from typing import TypeAlias

import tensorflow as tf

from tfrl._internal import checks, operands, precision
from tfrl.core import compile
from tfrl.ops import _recurrence

TensorLike: TypeAlias = operands.TensorLike


def cov(data: TensorLike, rowvar: bool = False) -> tf.Tensor:
    """Covariance of variables, estimated from `N` observations of them.

        cov[i, j] = sum_n (x[n, i] - mean[i]) * (x[n, j] - mean[j]) / (N - 1)

    Which axis holds the observations depends on the rank of `data`:

    - `[N]`: observations of one variable;
    - `[N, D]`, or `[D, N]` if `rowvar`. A matrix of one row is one variable in both
      cases;
    - `[B, N, D]`: `B` batches, whatever `rowvar` is.

    Args:
        data: `[N]`, `[N, D]`, `[D, N]` or `[B, N, D]`, floating; the result has its
            dtype. Where a size is unknown while tracing the result has the axes of
            several variables, also of one: `[1, 1]`.
        rowvar: whether the rows of a matrix are the variables.

    Returns:
        `[D, D]`, or `[]` for one variable; `[B, D, D]` for batches.

    Raises:
        ValueError: if the rank is not 1, 2 or 3, or `N < 2`.
        TypeError: if `data` is not floating.

    Example:
        >>> cov([[1.0, 2.0], [3.0, 0.0], [5.0, 4.0]]).numpy()
        array([[4., 2.],
               [2., 4.]], dtype=float32)
    """
    observations = operands.leading("cov", "data", data, axes=1)
    rank, shape = observations.shape.rank, observations.shape
    if rank > 3:
        raise ValueError(
            f"`cov`: `data` expected rank of at most 3; got shape {shape}; merge the "
            "leading axes, for instance with `BatchSquash`"
        )
    if rank == 1:
        observations = observations[:, tf.newaxis]
    elif rank == 2 and (rowvar or shape[0] == 1):
        observations = tf.transpose(observations)
    elif rank == 2 and shape[0] is None:
        rows, columns = tf.unstack(tf.shape(observations))
        is_one = rows == 1
        observations = tf.reshape(
            observations,
            [tf.where(is_one, columns, rows), tf.where(is_one, rows, columns)],
        )
        observations.set_shape([None, None])
    count, variables = observations.shape[-2:]
    if count is not None and count < 2:
        raise ValueError(f"`cov`: `data` expected at least 2 rows; got shape {shape}")
    matrix = _covariance(observations)
    return matrix[0, 0] if rank < 3 and variables == 1 else matrix


def explained_variance(
    ypred: TensorLike,
    y: TensorLike,
    valid_mask: TensorLike | None = None,
    dim: int | None = None,
) -> tf.Tensor:
    """The fraction of the variance of `y` that a prediction of it explains.

        1 - Var[y - ypred] / Var[y]

    with variances over the valid elements. 1 is a perfect prediction up to a constant,
    0 is as good as any constant, below 0 is worse than that. Where `y` does not vary,
    or nothing is valid, the result is 0.

    Gradients flow into `ypred` and `y`. Elements that are not valid may be NaN or
    infinite.

    Args:
        ypred: the prediction, floating; the result has its dtype.
        y: what was predicted, in the shape and dtype of `ypred`.
        valid_mask: which elements count, bool or numbers other than 0, in the shape of
            `ypred`; None for all.
        dim: the axis to reduce; None for all axes.

    Returns:
        `[]`, or the shape of `y` without the axis `dim`.

    Raises:
        ValueError: if the shapes differ or there is no axis `dim`.
        TypeError: if `ypred` is not floating or `y` has another dtype.

    Example:
        >>> y = [[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]]
        >>> explained_variance([[1.0, 4.0], [2.0, 5.0], [2.0, 6.0]], y, dim=0).numpy()
        array([0.6666667, 0.       ], dtype=float32)
    """
    where = "explained_variance"
    prediction = operands.leading(where, "ypred", ypred)
    target = operands.equal(where, "y", y, "ypred", prediction)
    if dim is not None:
        dim = operands.axis(where, "dim", dim, prediction)
    if valid_mask is None:
        return _explained_variance(prediction, target, None, dim=dim)
    mask = checks.as_tensor(where, "valid_mask", valid_mask)
    checks.check_same_shape(where, ypred=prediction, valid_mask=mask)
    return _explained_variance(prediction, target, mask, dim=dim)


def reverse_cumsum(x: TensorLike, dim: int) -> tf.Tensor:
    """Sums from each element to the end of an axis.

        y[i] = x[i] + x[i + 1] + ... + x[-1]

    float16 and bfloat16 are summed in float32.

    Args:
        x: numbers of any dtype; the result has it.
        dim: the axis.

    Returns:
        The shape of `x`.

    Raises:
        ValueError: if there is no such axis.
        TypeError: if `dim` is not an int.

    Example:
        >>> reverse_cumsum([1.0, 2.0, 4.0], dim=0).numpy()
        array([7., 6., 4.], dtype=float32)
    """
    tensor = operands.ranked("reverse_cumsum", "x", x, numeric=True)
    axis = operands.axis("reverse_cumsum", "dim", dim, tensor)
    sums = tf.cumsum(precision.widened(tensor), axis=axis, reverse=True)
    return tf.cast(sums, tensor.dtype)


def reverse_cumprod(x: TensorLike, dim: int) -> tf.Tensor:
    """Products from each element to the end of an axis.

        y[i] = x[i] * x[i + 1] * ... * x[-1]

    The gradient never divides by `x`, so it is right where elements are 0. Floating
    products are formed in float64: one that leaves the range of the dtype on the way
    comes back if its end is within it.

    Args:
        x: numbers of any dtype; the result has it.
        dim: the axis.

    Returns:
        The shape of `x`.

    Raises:
        ValueError: if there is no such axis.
        TypeError: if `dim` is not an int.

    Example:
        >>> x = tf.constant([3.0, 0.0, 4.0])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     first = reverse_cumprod(x, dim=0)[0]
        >>> tape.gradient(first, x).numpy()
        array([ 0., 12.,  0.], dtype=float32)
    """
    tensor = operands.ranked("reverse_cumprod", "x", x, numeric=True)
    axis = operands.axis("reverse_cumprod", "dim", dim, tensor)
    if tensor.dtype.is_floating:
        return _reverse_cumprod(tensor, dim=axis)
    return tf.math.cumprod(tensor, axis=axis, reverse=True)


@compile.compiled(static=("dim",), jit_compile=True)
def _reverse_cumprod(x: tf.Tensor, dim: int) -> tf.Tensor:
    axes = list(range(x.shape.rank))
    axes[0], axes[dim] = dim, 0
    factors = tf.transpose(tf.cast(x, tf.float64), axes)
    one = tf.ones(tf.shape(factors)[1:], tf.float64)
    products = _recurrence.given_recurrence(factors, tf.zeros_like(factors), one)
    return tf.cast(tf.transpose(products, axes), x.dtype)


@compile.compiled
def _covariance(observations: tf.Tensor) -> tf.Tensor:
    values = precision.widened(observations)
    # Without an offset, a constant column has a mean of exactly 0.
    values -= tf.stop_gradient(values[..., :1, :])
    values -= tf.reduce_mean(values, axis=-2, keepdims=True)
    count = tf.cast(tf.shape(values)[-2], values.dtype)
    matrix = tf.matmul(values, values, transpose_a=True) / (count - 1)
    return tf.cast(matrix, observations.dtype)


@compile.compiled(static=("dim",))
def _explained_variance(
    ypred: tf.Tensor, y: tf.Tensor, valid_mask: tf.Tensor | None, dim: int | None
) -> tf.Tensor:
    if valid_mask is None:
        valid = tf.ones_like(y, tf.bool)
    else:
        valid = tf.cast(valid_mask, tf.bool)
    # In float64, which holds the squares. What is not valid would spoil the gradient.
    nothing = tf.zeros(tf.shape(y), tf.float64)
    target = tf.where(valid, tf.cast(y, tf.float64), nothing)
    residual = target - tf.where(valid, tf.cast(ypred, tf.float64), nothing)
    spread, unexplained = (_squares(each, valid, dim) for each in (target, residual))
    ones = tf.ones_like(spread)
    explained = 1 - unexplained / tf.where(spread > 0, spread, ones)
    return tf.cast(tf.where(spread > 0, explained, 0 * ones), ypred.dtype)


def _squares(values: tf.Tensor, valid: tf.Tensor, dim: int | None) -> tf.Tensor:
    """The sum of squares of the deviations from the mean of the valid elements."""
    nothing = tf.zeros_like(values)
    lowest = tf.fill(tf.shape(values), values.dtype.min)
    # Any of the values would do: what does not vary has then a mean of exactly 0.
    offset = tf.reduce_max(tf.where(valid, values, lowest), axis=dim, keepdims=True)
    values = tf.where(valid, values - tf.stop_gradient(offset), nothing)
    count = tf.reduce_sum(tf.cast(valid, values.dtype), axis=dim, keepdims=True)
    mean = tf.reduce_sum(values, axis=dim, keepdims=True) / tf.maximum(count, 1)
    return tf.reduce_sum(tf.where(valid, values - mean, nothing) ** 2, axis=dim)
