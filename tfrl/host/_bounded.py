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

        LiteRT clips no float64. Those of other dtypes stay, those of which float32 has
        no normal number, and those between which it has none.
        """
        low, high = self._bounds
        if low.dtype != np.float64:
            return low, high
        size, known = np.abs([low, high]), np.finfo(np.float32)
        normal = (size >= float(known.tiny)) & (size <= float(known.max))
        if not (normal | (size == 0) | np.isinf(size)).all():
            return low, high
        least, most = low.astype("f"), high.astype("f")
        least = np.where(least < low, np.nextafter(least, np.float32(np.inf)), least)
        most = np.where(most > high, np.nextafter(most, np.float32(-np.inf)), most)
        return (least, most) if (least <= most).all() else (low, high)

    def _limits(self, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """Bounds for actions of a dtype, in the dtype in which they are clipped.

        That is the environment's, as rounding may lead beyond a bound, or float32 with
        bounds that float64, exact for it, keeps.
        """
        return self._bounds if dtype == np.float64 else self._narrow_bounds
