"""A ring buffer of one stream of rows."""

from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.replay import _indices, locking, ring_buffer


class DataBuffer(ring_buffer.RingBuffer):
    """The last `capacity` rows of one stream, written in batches, drawn at random.

    A `RingBuffer` of one environment, of length `capacity`, whose rows are written
    many at a time and have no order in time. `RingBuffer` describes `device` and what
    it means for `tf.function`. Threads may share it, processes may not.

    Args:
        data_spec: nest of specs of one row, every dimension known.
        capacity: how many rows are kept.
        device: "cpu" for the host, or a TensorFlow device, which begins with "/".
        name: name of the module.
        seed: of the draws of `get_batch`: an int, on the host also a
            `np.random.Generator`, or None for a seed from the system. A checkpoint
            keeps the state of the generator.

    Raises:
        TypeError: if `capacity` is not an integer.
        ValueError: if `capacity` is less than 1, the spec has unknown dimensions, or
            there is no such device.

    Example:
        >>> buffer = DataBuffer(tf.TensorSpec([], tf.int64), capacity=3)
        >>> buffer.add_batch(np.arange(5))
        >>> buffer.get_all()
        array([2, 3, 4])
        >>> buffer.get_batch_by_indices([0, 2])
        array([2, 4])
        >>> bool(buffer.is_full()), int(buffer.current_size), int(buffer.current_pos)
        (True, 3, 3)
    """

    def __init__(
        self,
        data_spec: Any,
        capacity: int,
        device: str = "cpu",
        name: str = "DataBuffer",
        seed: int | np.random.Generator | None = None,
    ) -> None:
        checks.check_whole_number("DataBuffer", "capacity", capacity, low=1)
        super().__init__(data_spec, 1, max_length=capacity, device=device, name=name)
        self._draws: Any
        if self._on_host:
            self._draws = _indices.Draws("DataBuffer", seed)
        else:
            with tf.device(device):
                self._draws = (
                    tf.random.Generator.from_non_deterministic_state("philox")
                    if seed is None
                    else tf.random.Generator.from_seed(seed, "philox")
                )

    @property
    def current_size(self) -> Any:
        """Number of rows held, an int64 scalar."""
        return super().current_size[0]

    @property
    def current_pos(self) -> Any:
        """Position the next row gets, an int64 scalar."""
        return self.get_current_position()[0]

    def is_full(self) -> Any:
        """Whether the next row will overwrite the oldest, a bool scalar."""
        return self.current_size == self.max_length

    def add_batch(self, batch: Any) -> None:
        """Appends rows, in their order.

        From a batch of more than `capacity` rows the last `capacity` are taken, and the
        position grows by that many.

        Args:
            batch: nest of arrays `[B, *spec.shape]`; `B` may be 0.

        Raises:
            TypeError: if a dtype does not fit.
            ValueError: if the nest or a shape does not fit, or the leaves differ in
                `B`; the buffer is unchanged.
        """
        with self._lock:
            arrays = self._storage.layout.fitting(batch) if self._on_host else None
            count = len(arrays[0]) if arrays else 0
            if not arrays or not 0 < count <= self._length:
                self._add_any(batch)
                return
            position, size = self._positions.first()
            start, grown = position % self._length, min(size + count, self._length)
            rows: Any = slice(start, start + count)
            if start + count > self._length:
                rows = np.arange(start, start + count) % self._length
            self._storage.write(rows, arrays)
            self._positions.set(0, (position + count, grown))

    def _add_any(self, batch: Any) -> None:
        count: Any = self._batch_size("DataBuffer.add_batch", batch)
        if count is None:
            count = tf.shape(tf.nest.flatten(batch)[0], tf.int64)[0]
        if isinstance(count, tf.Tensor) or count > self._length:
            batch = tf.nest.map_structure(lambda leaf: leaf[-self._length :], batch)
            count = _indices.minimum(count, self._length)
        position, size = self._standing()
        rows = (position + _count_up(count)) % self._length
        self._storage.set(rows, batch)
        grown = _indices.minimum(size + count, self._length)
        self._positions.set(self._everyone, (position + count, grown))

    @locking.atomic
    def get_batch(self, batch_size: int, out: Any = None) -> Any:
        """Draws rows uniformly, with replacement.

        Args:
            batch_size: how many, at least 1.
            out: on the host, nest of arrays to read into. Large rows are read many
                times faster into existing arrays.

        Returns:
            Nest of arrays `[batch_size, *spec.shape]`, or `out`.

        Raises:
            TypeError: if `batch_size` is not an integer.
            ValueError: if it is less than 1 or the buffer is empty.
        """
        checks.check_whole_number(
            "DataBuffer.get_batch", "batch_size", batch_size, low=1
        )
        position, size = self._standing()
        size = _indices.ensured(
            size[0] > 0,
            size,
            "`DataBuffer.get_batch`: expected a buffer that holds rows, in number",
            "add some first",
        )
        if self._on_host:
            rows = self._drawn(int(batch_size), int(position[0]), int(size[0]))
        else:
            offsets = self._draws.uniform([batch_size], 0, size[0], tf.int64)
            rows = (position - size + offsets) % self._length
        return self._read(rows, out)

    @locking.atomic
    def get_batch_by_indices(self, indices: Any, out: Any = None) -> Any:
        """Reads rows by age.

        Args:
            indices: integers of any shape, from 0 for the oldest row to
                `current_size - 1` for the newest. In a full buffer they wrap around:
                they are taken modulo `capacity`, so that -1 is the newest row.
            out: on the host, nest of arrays to read into.

        Returns:
            Nest of arrays `[*indices.shape, *spec.shape]`, or `out`.

        Raises:
            TypeError: if `indices` are not integers.
            ValueError: if an index names a missing row.
        """
        where = "DataBuffer.get_batch_by_indices"
        position, size = self._standing()
        offsets = self._integers(where, "indices", indices)
        there = (offsets >= 0) & (offsets < size) | (size == self._length)
        offsets = _indices.ensured(
            _indices.every(there),
            offsets,
            f"`{where}`: `indices` expected integers from 0 on, less than the current "
            "size, as the buffer is not full",
            "ask `current_size`",
        )
        return self._read((position - size + offsets) % self._length, out)

    @locking.atomic
    def get_all(self) -> Any:
        """Returns all rows held, the oldest first.

        In a graph the number of rows is unknown, which XLA does not accept: there ask
        `get_batch_by_indices` for as many as are certain to be held.

        Returns:
            Nest of arrays `[current_size, *spec.shape]`, copies.
        """
        position, size = self._standing()
        offsets = position - size + _count_up(size[0])
        return self._read(offsets % self._length)

    def _drawn(self, batch_size: int, position: int, size: int) -> np.ndarray:
        """Returns rows drawn from those there are."""
        random, capacity = self._draws.generator, self._length
        start = 0 if size == capacity else (position - size) % capacity
        rows = random.integers(start, start + size, batch_size)
        return rows if start + size <= capacity else rows % capacity

    def _standing(self) -> tuple[Any, Any]:
        """Returns position and size, each `[1]`."""
        return self._positions.get(self._everyone)


def _count_up(count: Any) -> Any:
    if isinstance(count, tf.Tensor):
        return tf.range(count, dtype=tf.int64)
    return np.arange(count)
