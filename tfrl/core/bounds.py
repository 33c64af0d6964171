"""Values and the bounds of their spec."""

from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import specs


def clip_to_spec(value: Any, spec: specs.BoundedTensorSpec) -> tf.Tensor:
    """Returns `min(max(value, spec.minimum), spec.maximum)`.

    Args:
        value: `[..., *spec.shape]`.
        spec: the spec with the bounds.

    Returns:
        A tensor with the shape and dtype of `value`.

    Raises:
        TypeError: if `spec` has no bounds, or is floating-point and `value` is not.
        ValueError: if the shape of `value` does not end in that of the spec.

    Example:
        >>> spec = specs.BoundedTensorSpec([2], tf.float32, -1.0, 1.0)
        >>> clip_to_spec([[3.0, -0.5]], spec).numpy()
        array([[ 1. , -0.5]], dtype=float32)
    """
    value = _checked_value("clip_to_spec", "value", value, spec)
    if spec.dtype.is_floating:
        checks.check_floating("clip_to_spec", "value", value)
    low, high = (_cast_bound(b, value.dtype) for b in (spec.minimum, spec.maximum))
    return tf.clip_by_value(value, low, high)


def scale_to_spec(tensor: Any, spec: specs.BoundedTensorSpec) -> tf.Tensor:
    """Maps [-1, 1] to the range of a spec: `mean + magnitude * tensor`.

    It neither clips nor casts: integer specs get fractional values, for their
    truncated mean and magnitude (`spec_means_and_magnitudes`).

    Args:
        tensor: `[..., *spec.shape]` floating-point, in [-1, 1].
        spec: the spec with finite bounds.

    Returns:
        A tensor with the shape and dtype of `tensor`.

    Raises:
        TypeError: if `spec` has no bounds or `tensor` is not floating-point.
        ValueError: if the shape of `tensor` does not end in that of the spec, or a
            bound is infinite.

    Example:
        >>> spec = specs.BoundedTensorSpec([2], tf.float32, 0.0, 4.0)
        >>> scale_to_spec([[-1.0, 0.5]], spec).numpy()
        array([[0., 3.]], dtype=float32)
    """
    tensor = _checked_value("scale_to_spec", "tensor", tensor, spec)
    checks.check_floating("scale_to_spec", "tensor", tensor)
    mean, magnitude = (
        tf.constant(part.astype(tensor.dtype.as_numpy_dtype))
        for part in _mean_and_magnitude("scale_to_spec", spec)
    )
    return mean + magnitude * tensor


def spec_means_and_magnitudes(
    spec: specs.BoundedTensorSpec,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns centre and half width of the range of a spec.

    `mean = (minimum + maximum) / 2`, `magnitude = (maximum - minimum) / 2`, both
    truncated towards 0 for integer specs.

    Args:
        spec: the spec with finite bounds.

    Returns:
        Mean and magnitude, tensors with the shape and dtype of the spec.

    Raises:
        TypeError: if `spec` has no bounds.
        ValueError: if a bound is infinite.

    Example:
        >>> spec = specs.BoundedTensorSpec([], tf.int64, 0, 3)
        >>> [int(part) for part in spec_means_and_magnitudes(spec)]
        [1, 1]
    """
    mean, magnitude = _mean_and_magnitude("spec_means_and_magnitudes", spec)
    return tf.constant(mean), tf.constant(magnitude)


def _cast_bound(bound: np.ndarray, dtype: tf.DType) -> tf.Tensor:
    if dtype.is_integer:
        bound = np.clip(bound, dtype.min, dtype.max)
    with np.errstate(over="ignore"):
        return tf.constant(bound.astype(dtype.as_numpy_dtype))


def _checked_value(where: str, name: str, value: Any, spec: Any) -> tf.Tensor:
    _check_bounded(where, spec)
    value = checks.as_tensor(where, name, value)
    if value.shape.rank is not None:
        rank = spec.shape.rank
        trailing = value.shape[max(value.shape.rank - rank, 0) :]
        if not trailing.is_compatible_with(spec.shape):
            raise ValueError(
                f"`{where}`: `{name}` expected a shape ending in "
                f"{spec.shape.as_list()}; got {value.shape.as_list()}; reshape it"
            )
    return value


def _check_bounded(where: str, spec: Any) -> None:
    if not isinstance(spec, specs.BoundedTensorSpec):
        raise TypeError(
            f"`{where}`: `spec` expected a BoundedTensorSpec; got {spec!r}; "
            "give the spec a minimum and a maximum"
        )


def _mean_and_magnitude(
    where: str, spec: specs.BoundedTensorSpec
) -> tuple[np.ndarray, np.ndarray]:
    _check_bounded(where, spec)
    low, high = spec.minimum, spec.maximum
    checks.check_finite(where, "spec.minimum", low)
    checks.check_finite(where, "spec.maximum", high)
    if spec.dtype.is_floating:
        return low / 2 + high / 2, high / 2 - low / 2
    # Python integers: sums of int64 bounds overflow int64.
    low, high = low.astype(object), high.astype(object)
    total, width = low + high, high - low
    mean, magnitude = np.abs(total) // 2 * np.sign(total), width // 2
    dtype = spec.dtype.as_numpy_dtype
    return np.asarray(mean).astype(dtype), np.asarray(magnitude).astype(dtype)
