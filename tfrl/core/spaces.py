"""Gymnasium spaces as specs, and specs as spaces."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from tfrl._internal import checks
from tfrl.core import specs


def spec_from_space(space: spaces.Space) -> Any:
    """Returns the specs of the elements of a Gymnasium space.

    Args:
        space: a `Box`, `Discrete` (from `start` on), `MultiDiscrete` or
            `MultiBinary`, or a `Dict` or `Tuple` of supported spaces.

    Returns:
        A `BoundedTensorSpec`, or a dict or tuple of specs.

    Raises:
        TypeError: if a space is of another class.

    Example:
        >>> spec = spec_from_space(gym.spaces.Discrete(3, start=1))
        >>> int(spec.minimum), int(spec.maximum), spec.dtype.name
        (1, 3, 'int64')
    """
    match space:
        case spaces.Dict():
            return {key: spec_from_space(part) for key, part in space.items()}
        case spaces.Tuple():
            return tuple(spec_from_space(part) for part in space)
        case spaces.Box():
            low, high = space.low, space.high
        case spaces.Discrete():
            low, high = space.start, space.start + space.n - 1
        case spaces.MultiDiscrete():
            low, high = space.start, space.start + space.nvec - 1
        case spaces.MultiBinary():
            low, high = 0, 1
        case _:
            kinds = "a Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple"
            raise checks.wrong_type("spec_from_space", "space", space, kinds)
    return specs.BoundedTensorSpec(space.shape, space.dtype, low, high)


def space_from_spec(spec: Any) -> spaces.Space:
    """Returns the Gymnasium space whose elements a nest of specs describes.

    Bounded int64 scalars give a `Discrete`, bounded int32 and int64 arrays a
    `MultiDiscrete`, all other specs a `Box` (unbounded as far as the dtype goes where
    the spec is), mappings a `Dict`, tuples and lists a `Tuple`.

    Args:
        spec: nest of specs.

    Returns:
        The space.

    Raises:
        TypeError: if a leaf is no spec of numbers.
        ValueError: if a dimension is unknown.

    Example:
        >>> space_from_spec({"a": specs.BoundedTensorSpec([], tf.int64, 1, 3)})
        Dict('a': Discrete(3, start=1))
    """
    if isinstance(spec, Mapping):
        return spaces.Dict({key: space_from_spec(part) for key, part in spec.items()})
    if isinstance(spec, list | tuple):
        return spaces.Tuple([space_from_spec(part) for part in spec])
    if not isinstance(spec, tf.TensorSpec) or spec.dtype == tf.string:
        kind = "a nest of tf.TensorSpec of numbers"
        raise checks.wrong_type("space_from_spec", "spec", spec, kind)
    checks.check_known_shape("space_from_spec", "spec", spec)
    shape = tuple(spec.shape)
    dtype = spec.dtype.as_numpy_dtype
    if not isinstance(spec, specs.BoundedTensorSpec):
        return spaces.Box(*_unbounded(spec.dtype), shape, dtype)
    low, high = spec.minimum, spec.maximum
    if spec.dtype in (tf.int32, tf.int64):
        counts = high.astype(object) - low.astype(object) + 1
        if np.all(counts <= np.iinfo(dtype).max):
            if shape:
                counts = counts.astype(dtype)
                return spaces.MultiDiscrete(counts, dtype=dtype, start=low)
            if spec.dtype == tf.int64:
                return spaces.Discrete(int(counts), start=int(low))
    return spaces.Box(low, high, shape, dtype)


def _unbounded(dtype: tf.DType) -> tuple[Any, Any]:
    if dtype.is_floating:
        return -np.inf, np.inf
    return (0, 1) if dtype.is_bool else (dtype.min, dtype.max)
