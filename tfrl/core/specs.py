"""Specs: what shape, dtype and bounds data has, and values made to measure."""

from typing import Any, Self

import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import random


def zeros_from_spec(nested_spec: Any, batch_size: Any) -> Any:
    """Returns zeros that match a nest of specs.

    Args:
        nested_spec: nest of specs. A leaf with `build_distribution` (a spec of a
            distribution) gives the distribution whose parameters are all zero.
        batch_size: size, or sequence of sizes, of the dimensions put before those of
            each spec; a scalar integer tensor will do.

    Returns:
        Nest of tensors `[*batch_size, *spec.shape]`.

    Raises:
        TypeError: if a leaf is no spec, or a size no integer.
        ValueError: if a spec has unknown dimensions, or a size is negative.

    Example:
        >>> spec = {"a": tf.TensorSpec([2]), "b": tf.TensorSpec([], tf.int64)}
        >>> zeros_from_spec(spec, 3)["a"].shape
        TensorShape([3, 2])
    """
    where = "zeros_from_spec"
    outer = list(batch_size) if isinstance(batch_size, list | tuple) else [batch_size]
    for size in outer:
        if not (tf.is_tensor(size) or isinstance(size, np.ndarray)):
            checks.check_whole_number(where, "batch_size", size, low=0)

    def zeros(spec: Any) -> Any:
        if hasattr(spec, "build_distribution"):
            return spec.build_distribution(
                zeros_from_spec(spec.input_params_spec, batch_size)
            )
        check_spec(where, "nested_spec", spec)
        checks.check_known_shape(where, "nested_spec", spec)
        return tf.zeros([*outer, *spec.shape], spec.dtype)

    return tf.nest.map_structure(zeros, nested_spec)


def check_spec(where: str, name: str, value: Any) -> None:
    """Raises a TypeError unless `value` has a shape and a dtype, as specs have.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        value: a leaf of its value.

    Raises:
        TypeError: if it lacks one of the two.

    Example:
        >>> check_spec("zeros", "spec", tf.TensorSpec([2]))
    """
    if not (hasattr(value, "shape") and hasattr(value, "dtype")):
        raise TypeError(
            f"`{where}`: `{name}` expected specs, such as tf.TensorSpec([2]); "
            f"got {type(value).__name__}"
        )


def get_initial_policy_state(batch_size: Any, policy_state_spec: Any) -> Any:
    """Returns the state a policy starts an episode with: zeros.

    Args:
        batch_size: number of states, see `zeros_from_spec`.
        policy_state_spec: nest of specs of one state; `()` for a policy without.

    Returns:
        Nest of tensors `[batch_size, *spec.shape]`.

    Raises:
        ValueError: if a spec has unknown dimensions.

    Example:
        >>> get_initial_policy_state(2, tf.TensorSpec([1])).numpy()
        array([[0.],
               [0.]], dtype=float32)
    """
    return zeros_from_spec(policy_state_spec, batch_size)


def flattened_size(spec: Any) -> np.int64:
    """Returns the number of elements of a spec, `prod(spec.shape)`.

    Args:
        spec: anything with a fully known `shape`.

    Returns:
        The number, 1 for a scalar.

    Raises:
        ValueError: if a dimension is unknown.

    Example:
        >>> int(flattened_size(tf.TensorSpec([2, 3])))
        6
    """
    checks.check_known_shape("flattened_size", "spec", spec)
    return np.prod(tuple(spec.shape), dtype=np.int64)


def is_same_spec(spec1: Any, spec2: Any) -> bool:
    """Whether two nests of specs describe the same data.

    Nests must agree in structure and container types, specs in class, shape and
    dtype, bounds up to rounding. Names do not matter.

    Args:
        spec1: nest of specs.
        spec2: nest of specs.

    Returns:
        The verdict; it never raises for a difference.

    Example:
        >>> wide = BoundedTensorSpec([2], tf.float32, 0.0, 2.0)
        >>> is_same_spec(wide, wide.replace(maximum=[2.0, 2.0], name="wide"))
        True
        >>> is_same_spec(wide, tf.TensorSpec([2]))
        False
    """
    try:
        tf.nest.assert_same_structure(spec1, spec2)
    except (TypeError, ValueError):
        return False
    pairs = zip(tf.nest.flatten(spec1), tf.nest.flatten(spec2), strict=True)
    return all(_same_leaf(one, two) for one, two in pairs)


def clip_to_spec(value: Any, spec: "BoundedTensorSpec") -> tf.Tensor:
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
        >>> spec = BoundedTensorSpec([2], tf.float32, -1.0, 1.0)
        >>> clip_to_spec([[3.0, -0.5]], spec).numpy()
        array([[ 1. , -0.5]], dtype=float32)
    """
    value = _checked_value("clip_to_spec", "value", value, spec)
    if spec.dtype.is_floating:
        checks.check_floating("clip_to_spec", "value", value)
    low, high = (_cast_bound(b, value.dtype) for b in (spec.minimum, spec.maximum))
    return tf.clip_by_value(value, low, high)


def scale_to_spec(tensor: Any, spec: "BoundedTensorSpec") -> tf.Tensor:
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
        >>> spec = BoundedTensorSpec([2], tf.float32, 0.0, 4.0)
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
    spec: "BoundedTensorSpec",
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
        >>> spec = BoundedTensorSpec([], tf.int64, 0, 3)
        >>> [int(part) for part in spec_means_and_magnitudes(spec)]
        [1, 1]
    """
    mean, magnitude = _mean_and_magnitude("spec_means_and_magnitudes", spec)
    return tf.constant(mean), tf.constant(magnitude)


class BoundedTensorSpec(tf.TensorSpec):
    """A `tf.TensorSpec` with a least and a greatest value.

    A leaf for `tf.nest`, a `tf.TensorSpec` for `tf.function` and `tf.data`, which see
    to shape and dtype only. Picklable and hashable.

    Args:
        shape: shape of the data, None for unknown dimensions.
        dtype: dtype of the data: floating-point, integer or bool.
        minimum: least value, a number or an array that broadcasts to `shape`.
        maximum: greatest value, likewise; inclusive.
        name: optional name.

    Attributes:
        minimum: read-only numpy array of the spec's dtype and shape, 1 standing for
            unknown dimensions.
        maximum: likewise.

    Raises:
        TypeError: if `dtype` is not numeric.
        ValueError: if a bound does not broadcast to the shape, is NaN, has no exact
            value in an integer dtype, or the minimum exceeds the maximum.

    Example:
        >>> BoundedTensorSpec([2], tf.float32, -1.0, [1.0, 2.0], name="action")
        BoundedTensorSpec(shape=(2,), dtype=tf.float32, name='action',
            minimum=[-1. -1.], maximum=[1. 2.])
    """

    __slots__ = ("_maximum", "_minimum")

    def __init__(
        self,
        shape: Any,
        dtype: Any = tf.float32,
        minimum: Any = 0,
        maximum: Any = 1,
        name: str | None = None,
    ) -> None:
        super().__init__(shape, dtype, name)
        self._minimum = _bound("minimum", minimum, self.shape, self.dtype)
        self._maximum = _bound("maximum", maximum, self.shape, self.dtype)
        if not np.all(self._minimum <= self._maximum):
            raise ValueError(
                "`BoundedTensorSpec`: `minimum` expected at most `maximum` "
                f"{self._maximum}; got {self._minimum}"
            )

    @property
    def minimum(self) -> np.ndarray:
        """The least value, per element."""
        return self._minimum

    @property
    def maximum(self) -> np.ndarray:
        """The greatest value, per element."""
        return self._maximum

    def replace(self, **changes: Any) -> Self:
        """Returns a spec in which some properties differ.

        Args:
            **changes: new values of `shape`, `dtype`, `minimum`, `maximum`, `name`.

        Returns:
            A new spec; this one stays as it is. Uniform bounds follow a new shape.

        Raises:
            ValueError: if a name is none of these, or the spec would be invalid.

        Example:
            >>> spec = BoundedTensorSpec([2], tf.float32, 0.0, 1.0)
            >>> spec.replace(shape=[3]).maximum
            array([1., 1., 1.], dtype=float32)
        """
        current = dict(zip(_FIELDS, self._state(), strict=True))
        for name in changes:
            checks.check_one_of("BoundedTensorSpec.replace", "changes", name, _FIELDS)
        return type(self)(**{**current, **changes})

    def sample(self, outer_dims: Any = (), seed: Any = None) -> tf.Tensor:
        """Draws values uniformly from the range of the spec.

        Args:
            outer_dims: sequence of sizes put before those of the spec.
            seed: int, int32 `[2]` tensor or None, see `tfrl.core.new_seed`.

        Returns:
            `[*outer_dims, *shape]` of the spec's dtype, bounds included.

        Raises:
            ValueError: if a bound is infinite or a dimension unknown.

        Example:
            >>> die = BoundedTensorSpec([], tf.int32, 1, 6)
            >>> die.sample([4], seed=0).shape
            TensorShape([4])
        """
        where = "BoundedTensorSpec.sample"
        checks.check_finite(where, "minimum", self.minimum)
        checks.check_finite(where, "maximum", self.maximum)
        checks.check_known_shape(where, "shape", self)
        seed = random.checked_seed(where, seed)
        shape = [*outer_dims, *self.shape]
        if self.dtype.is_floating:
            wide = tf.float32 if self.dtype.size < 4 else self.dtype
            unit = tf.random.stateless_uniform(shape, seed, dtype=wide)
            low, high = tf.cast(self.minimum, wide), tf.cast(self.maximum, wide)
            value = tf.clip_by_value(low * (1 - unit) + high * unit, low, high)
            return tf.cast(value, self.dtype)
        bits = tf.random.stateless_uniform(
            shape, seed, minval=None, maxval=None, dtype=tf.uint64
        )
        first, last = _as_uint64(self.minimum), _as_uint64(self.maximum)
        with np.errstate(over="ignore"):
            count = last - first + np.uint64(1)  # wraps to 0 where it is 2^64
        offset = tf.where(count == 0, bits, bits % np.maximum(count, np.uint64(1)))
        return tf.cast(tf.bitcast(first + offset, tf.int64), self.dtype)

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is type(self)
            and super().__eq__(other)
            and np.array_equal(self.minimum, other.minimum)
            and np.array_equal(self.maximum, other.maximum)
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype, self.name))

    def __repr__(self) -> str:
        return (
            f"BoundedTensorSpec(shape={self.shape}, dtype={self.dtype!r}, "
            f"name={self.name!r}, minimum={self.minimum}, maximum={self.maximum})"
        )

    def __reduce__(self) -> tuple:
        return type(self), self._state()

    def _state(self) -> tuple:
        low, high = (
            bound.flat[0] if bound.size and np.all(bound == bound.flat[0]) else bound
            for bound in (self.minimum, self.maximum)
        )
        return tuple(self.shape), self.dtype, low, high, self.name


_FIELDS = ("shape", "dtype", "minimum", "maximum", "name")


def _bound(name: str, value: Any, shape: tf.TensorShape, dtype: tf.DType) -> np.ndarray:
    where = "`BoundedTensorSpec`:"
    if not (dtype.is_floating or dtype.is_integer or dtype.is_bool):
        raise TypeError(
            f"{where} `dtype` expected floating-point, integer or bool; "
            f"got {dtype.name}; use tf.TensorSpec for data without bounds"
        )
    if shape.rank is None:
        raise ValueError(f"{where} `shape` expected a known rank; got {shape}")
    given = np.asarray(value)
    try:
        with np.errstate(all="ignore"):
            bound = given.astype(dtype.as_numpy_dtype)
            kept = np.isfinite(bound) == np.isfinite(given)
    except (OverflowError, TypeError, ValueError):
        kept = np.False_
    if not np.all(kept & (bound == given if not dtype.is_floating else given == given)):
        raise ValueError(
            f"{where} `{name}` expected numbers that {dtype.name} can hold; "
            f"got {checks.shown(value)}"
        )
    try:
        return np.broadcast_to(bound, [1 if dim is None else dim for dim in shape])
    except ValueError:
        raise ValueError(
            f"{where} `{name}` expected a number or an array that broadcasts to shape "
            f"{shape}; got shape {list(bound.shape)}"
        ) from None


def _as_uint64(bound: np.ndarray) -> np.ndarray:
    wide = bound.astype(np.uint64 if bound.dtype.kind == "u" else np.int64)
    return wide.view(np.uint64)


def _same_leaf(one: Any, two: Any) -> bool:
    if type(one) is not type(two):
        return False
    if not isinstance(one, tf.TensorSpec):
        return bool(one == two)
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    if not isinstance(one, BoundedTensorSpec):
        return True
    bounds = ((one.minimum, two.minimum), (one.maximum, two.maximum))
    return all(np.allclose(a.astype(float), b.astype(float)) for a, b in bounds)


def _cast_bound(bound: np.ndarray, dtype: tf.DType) -> tf.Tensor:
    if dtype.is_integer:
        bound = np.clip(bound, dtype.min, dtype.max)
    with np.errstate(over="ignore"):
        return tf.constant(bound.astype(dtype.as_numpy_dtype))


def _checked_value(where: str, name: str, value: Any, spec: Any) -> tf.Tensor:
    checks.check_type(where, "spec", spec, BoundedTensorSpec, "a BoundedTensorSpec")
    value = checks.as_tensor(where, name, value)
    if value.shape.rank is not None:
        rank = spec.shape.rank
        trailing = value.shape[max(value.shape.rank - rank, 0) :]
        if not trailing.is_compatible_with(spec.shape):
            raise ValueError(
                f"`{where}`: `{name}` expected a shape ending in "
                f"{spec.shape.as_list()}; got {value.shape.as_list()}"
            )
    return value


def _mean_and_magnitude(
    where: str, spec: BoundedTensorSpec
) -> tuple[np.ndarray, np.ndarray]:
    checks.check_type(where, "spec", spec, BoundedTensorSpec, "a BoundedTensorSpec")
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
