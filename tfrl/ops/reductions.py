"""Sums and products from each element to the end, covariance, explained variance.

float16 and bfloat16 are accumulated in wider types. What is squared is centred before,
so that a large common offset costs no digits.
"""

from collections.abc import Callable

import tensorflow as tf

from tfrl.core import checks, compile
from tfrl.ops import _arguments, _recurrence, _sequences, tensors


def cov(data: _arguments.TensorLike, rowvar: bool = False) -> tf.Tensor:
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
    observations = _arguments.ranked("cov", "data", data, at_least=1)
    checks.check_floating("cov", "data", observations)
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
        raise ValueError(
            f"`cov`: `data` expected at least 2 observations; got shape {shape}; "
            "collect more, or check `rowvar`"
        )
    matrix = _covariance(observations)
    return matrix[0, 0] if rank < 3 and variables == 1 else matrix


def explained_variance(
    ypred: _arguments.TensorLike,
    y: _arguments.TensorLike,
    valid_mask: _arguments.TensorLike | None = None,
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
        array([0.6666666, 0.       ], dtype=float32)
    """
    where = "explained_variance"
    prediction = _arguments.ranked(where, "ypred", ypred)
    checks.check_floating(where, "ypred", prediction)
    target = _sequences.alike(where, "y", y, prediction)
    checks.check_same_shape(where, ypred=prediction, y=target)
    if dim is not None:
        dim = _arguments.axis(where, "dim", dim, prediction)
    if valid_mask is None:
        return _explained_variance(prediction, target, None, dim=dim)
    mask = checks.as_tensor(where, "valid_mask", valid_mask)
    checks.check_same_shape(where, ypred=prediction, valid_mask=mask)
    return _explained_variance(prediction, target, mask, dim=dim)


def reverse_cumsum(x: _arguments.TensorLike, dim: int) -> tf.Tensor:
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
    tensor = _arguments.ranked("reverse_cumsum", "x", x, numeric=True)
    axis = _arguments.axis("reverse_cumsum", "dim", dim, tensor)
    sums = tf.cumsum(tensors.widened(tensor), axis=axis, reverse=True)
    return tf.cast(sums, tensor.dtype)


def reverse_cumprod(x: _arguments.TensorLike, dim: int) -> tf.Tensor:
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
    tensor = _arguments.ranked("reverse_cumprod", "x", x, numeric=True)
    axis = _arguments.axis("reverse_cumprod", "dim", dim, tensor)
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
    values = tensors.widened(observations)
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
    target = tensors.widened(y)
    # Residuals of elements that are not valid would spoil the gradient.
    nothing = tf.zeros_like(target)
    target = tf.where(valid, target, nothing)
    residual = target - tf.where(valid, tensors.widened(ypred), nothing)
    target, residual = _centred(target, valid, dim), _centred(residual, valid, dim)
    spread, unexplained = _norm(target, dim), _norm(residual, dim)
    varies = spread > 0
    ones = tf.ones_like(spread)
    # The square last: norms stay within the range that their squares leave.
    share = tf.where(varies, unexplained, 0 * ones) / tf.where(varies, spread, ones)
    fraction = tf.where(varies, 1 - tf.square(share), 0 * ones)
    fraction = tf.reshape(fraction, []) if dim is None else tf.squeeze(fraction, dim)
    return tf.cast(fraction, ypred.dtype)


def _norm(values: tf.Tensor, dim: int | None) -> tf.Tensor:
    """The root of the sum of squares along kept axes; its gradient at 0 is 0."""

    @tf.custom_gradient
    def norm(values: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tf.Tensor]]:
        # In units of the greatest, since squares overflow or vanish in others.
        unit = tf.reduce_max(tf.abs(values), axis=dim, keepdims=True)
        unit = tf.stop_gradient(tf.where(unit > 0, unit, tf.ones_like(unit)))
        squares = tf.reduce_sum(tf.square(values / unit), axis=dim, keepdims=True)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            # Anew: a second gradient must see how the norm itself changes.
            length = norm(values)
            return upstream * (
                values / tf.where(length > 0, length, tf.ones_like(length))
            )

        return tf.sqrt(squares) * unit, gradient

    return norm(values)


def _centred(values: tf.Tensor, valid: tf.Tensor, dim: int | None) -> tf.Tensor:
    """Deviations from the mean of the valid elements; 0 elsewhere."""
    nothing = tf.zeros_like(values)
    lowest = tf.fill(tf.shape(values), values.dtype.min)
    # Any of the values would do: what does not vary has then a mean of exactly 0.
    offset = tf.reduce_max(tf.where(valid, values, lowest), axis=dim, keepdims=True)
    values = tf.where(valid, values - tf.stop_gradient(offset), nothing)
    count = tf.reduce_sum(tf.cast(valid, values.dtype), axis=dim, keepdims=True)
    mean = tf.reduce_sum(values, axis=dim, keepdims=True) / tf.maximum(count, 1)
    return tf.where(valid, values - mean, nothing)
