"""Normalization on the host, by statistics learned in TensorFlow."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np


class HostNormalizer(NamedTuple):
    """What a normalizer knew at one moment, for NumPy arrays.

        y = (x - means) * scales

    computed in float64, clipped where asked. It holds NumPy arrays alone: calling it
    runs no TensorFlow, and it pickles. `Normalizer.numpy` makes one.

    Attributes:
        means: nest of float64 `shape`, what is subtracted.
        scales: nest of float64 `shape`, by what the difference is multiplied.

    Example:
        >>> host = HostNormalizer(means=np.array([1.0]), scales=np.array([0.5]))
        >>> host(np.array([[3.0], [9.0]], np.float32), clip_value=2.0).tolist()
        [[1.0], [2.0]]
    """

    means: Any
    scales: Any

    def __call__(self, values: Any, clip_value: float | None = -1.0) -> Any:
        """Normalizes a nest of arrays `[..., *shape]`.

        Args:
            values: dicts, lists and tuples of floating arrays, nested like the means.
            clip_value: bound on the absolute result if positive; None for none.

        Returns:
            The nest of new arrays in the dtypes of `values`.

        Raises:
            TypeError: if an array is not floating or the nest is another.
        """
        return _normalized(values, self.means, self.scales, clip_value)


def _normalized(values: Any, means: Any, scales: Any, clip_value: float | None) -> Any:
    if isinstance(means, np.ndarray):
        return _normalized_array(np.asarray(values), means, scales, clip_value)
    known = len(means) == len(values) if hasattr(values, "__len__") else False
    if known and isinstance(values, Mapping) and isinstance(means, Mapping):
        if values.keys() == means.keys():
            return {
                key: _normalized(value, means[key], scales[key], clip_value)
                for key, value in values.items()
            }
    elif known and isinstance(values, list | tuple) and isinstance(means, list | tuple):
        parts = [
            _normalized(*three, clip_value)
            for three in zip(values, means, scales, strict=True)
        ]
        return getattr(type(values), "_make", type(values))(parts)
    raise TypeError(
        f"`HostNormalizer`: `values` expected a nest like {type(means).__name__} of "
        f"{len(means)}; got {type(values).__name__}; nest it like the spec"
    )


def _normalized_array(
    values: np.ndarray, mean: np.ndarray, scale: np.ndarray, clip_value: float | None
) -> np.ndarray:
    if values.dtype.kind in "biuOSU":
        raise TypeError(
            "`HostNormalizer`: `values` expected a floating-point dtype; got "
            f"{values.dtype}; cast it with astype"
        )
    result = (values - mean) * scale  # float64, as the mean is
    if clip_value is not None and clip_value > 0:
        result = np.clip(result, -clip_value, clip_value)
    with np.errstate(over="ignore"):
        return result.astype(values.dtype)
