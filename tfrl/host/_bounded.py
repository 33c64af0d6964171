"""Bounds to which actions are clipped."""

import functools

import numpy as np


class Bounded:
    """What heads of Box spaces know of the bounds `low` and `high`, in NumPy."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    dtype: str

    @functools.cached_property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array(self.low, self.dtype), np.array(self.high, self.dtype)

    @functools.cached_property
    def _narrow_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of float64 as the outermost float32 within them.

        LiteRT clips no float64. The bounds are returned as they are if they are of
        another dtype, if one is too large or too small for a normal float32, or if no
        float32 lies between them.
        """
        low, high = self._bounds
        if low.dtype != np.float64:
            return low, high
        size, float32 = np.abs([low, high]), np.finfo(np.float32)
        normal = (size >= float(float32.tiny)) & (size <= float(float32.max))
        if not (normal | (size == 0) | np.isinf(size)).all():
            return low, high
        least, most = low.astype("f"), high.astype("f")
        least = np.where(least < low, np.nextafter(least, np.float32(np.inf)), least)
        most = np.where(most > high, np.nextafter(most, np.float32(-np.inf)), most)
        return (least, most) if (least <= most).all() else (low, high)

    def _limits(self, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """Bounds for raw actions of a dtype, in the dtype in which they are clipped.

        That is the environment's, since rounding after it may lead beyond a bound. Raw
        actions of other dtypes than float64 are clipped in float32 in its place: a
        float32 within the bounds is the same number in float64.
        """
        return self._bounds if dtype == np.float64 else self._narrow_bounds
