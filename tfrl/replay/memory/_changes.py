"""Which rows of a storage were written since they were saved.

Writers set a flag per row, which is all they have time for. Whoever saves gathers the
flags into a version per segment, a range of rows: one that has the version it was saved
with has not changed. Both live where the rows live, so that processes that share the
rows share them too.
"""

import math
from typing import Any

import numpy as np

from tfrl.replay.memory import _row_layout

_SEGMENT_BYTES = 1 << 23
_WORD = 8
# The version of segments of which somebody has views, and so writes without telling.
_EXPOSED = -1
# How many folders a storage is saved to in turns without reading all of it.
_REMEMBERED = 8


class Segments:
    """How rows are divided into segments of a few MiB, or of a single larger row.

    Attributes:
        row_bytes: how many bytes a row has.
        rows: how many rows a segment has; the last one may have fewer.
        count: how many segments there are.
        memory_bytes: how many bytes `Changes` needs.
    """

    def __init__(self, layout: _row_layout.RowLayout) -> None:
        sizes = [math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in layout.leaves]
        self.row_bytes = sum(sizes)
        rows = max(_SEGMENT_BYTES // max(self.row_bytes, 1), 1)
        self.rows = min(rows, layout.capacity)
        self.count = -(-layout.capacity // self.rows)
        self.memory_bytes = _WORD * self.count + layout.capacity


class Changes:
    """What was written to the rows of a storage.

    Attributes:
        segments: how the rows are divided.

    Args:
        home: where the rows live, and this too, see `_homes`.
    """

    def __init__(self, home: Any) -> None:
        self.segments, self._home = home.segments, home
        self._flags: np.ndarray | None = None
        self._versions = np.zeros(0, np.int64)
        # The key of nothing saved, which is as good as zeros.
        self._saved: dict[str, Any] = {"": 0} if home.fresh else {}

    def touch(self, rows: Any) -> None:
        """Notes that rows, an int, a slice or an array of ints, are written."""
        flags = self._flags
        (self.all_flags() if flags is None else flags)[rows] = True

    def touch_all(self) -> None:
        """Notes that all rows are written."""
        self.all_flags()[:] = True

    def expose(self, rows: int | slice) -> None:
        """Notes that somebody has views of rows, and may write at any time."""
        part = rows if isinstance(rows, slice) else slice(rows, rows + 1)
        touched = range(len(self.all_flags()))[part]
        if touched:
            low, high = sorted((touched[0], touched[-1]))
            length = self.segments.rows
            self._versions[low // length : high // length + 1] = _EXPOSED

    def gather(self) -> np.ndarray:
        """Returns the versions of all segments now, a copy."""
        if self._flags is None and not self._home.exists(-1):
            return np.zeros(self.segments.count, np.int64)
        flags, length = self.all_flags(), self.segments.rows
        for k in range(self.segments.count):
            part = flags[k * length : (k + 1) * length]
            if part.any():
                part[:] = False
                self._versions[k] += self._versions[k] != _EXPOSED
        return self._versions.copy()

    def saved(self, key: str) -> Any:
        """Returns the versions that were saved under a key, None if that is unknown."""
        return self._saved.get(key)

    def remember(self, key: str, versions: np.ndarray) -> None:
        """Notes under which key segments of some versions are saved."""
        self._saved.pop(key, None)
        self._saved[key] = versions
        for oldest in list(self._saved)[:-_REMEMBERED]:
            del self._saved[oldest]

    def all_flags(self) -> np.ndarray:
        """Returns the flag of each row, to be set by who is in a hurry."""
        if self._flags is None:
            memory, size = self._home.array(-1), _WORD * self.segments.count
            self._versions = memory[:size].view(np.int64)
            self._flags = memory[size:].view(bool)
        return self._flags


def unchanged(versions: np.ndarray, saved: Any) -> np.ndarray:
    """Returns which segments have the version they were saved with, and no views.

    Others may be unchanged too, but that is not known.
    """
    if saved is None:
        return np.zeros(versions.shape, bool)
    return (versions == saved) & (versions != _EXPOSED)
