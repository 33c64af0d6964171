"""Ring buffers: the last steps of each of many environments.

Positions count what was ever written and only grow. What is stored and where stands in
the storage: numpy arrays on the host, variables on a TensorFlow device. The arithmetic
here serves both.
"""

import threading
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.core import checks
from tfrl.replay import _indices, _ring_parts, locking


class RingBuffer(tf.Module):
    """The last `max_length` steps of each of `num_environments` environments.

        row of a step = env_id * max_length + position mod max_length
        earliest position = current position - size

    `enqueue` appends one step to each environment given and overwrites its oldest
    where there is no space; `dequeue` takes the oldest off; `get` reads any. Sizes
    shrink by taking off, positions only grow, save by `clear`.

    - `device="cpu"`: numpy arrays on the host. Arrays and eager tensors go in, numpy
      arrays come out, always copies. Calls inside `tf.function` are refused.
    - `device="/GPU:0"`, `"/CPU:0"` and so on: variables on that device. Tensors come
      out, eagerly, inside `tf.function` and under XLA. What is known while tracing is
      checked there. Too few steps, ids and positions out of range are found by
      assertions of the graph, which XLA drops: sizes then stay at least 0 and what is
      read are old rows. Duplicate ids are not found. Graphs that run at the same time
      are not kept apart.

    Methods are atomic among threads. With `allow_multiprocess` rows and positions are
    in shared memory: pass the buffer to a `multiprocessing.Process(args=...)`, spawned
    or forked, and it is the same there. Then `enqueue` and `dequeue` can also block,
    in threads too, until there is space or data or somebody calls `stop`. A process
    killed while it waits troubles nobody; after one killed inside a call the others
    get a `TimeoutError` within about a minute.

    `tf.train.Checkpoint` saves rows and positions, while nothing may write, and a
    checkpoint of another layout is refused.

    Args:
        data_spec: nest of specs of one step, every dimension known.
        num_environments: number of environments.
        max_length: how many steps are kept of each.
        device: "cpu" for the host, or a TensorFlow device, which begins with "/".
        allow_multiprocess: whether processes share the buffer and calls can block.
        name: name of the module.

    Raises:
        TypeError: if a count is not an integer.
        ValueError: if a count is less than 1, the spec has unknown dimensions, there
            is no such device, or processes should share variables.

    Example:
        >>> buffer = RingBuffer(tf.TensorSpec([]), num_environments=2, max_length=3)
        >>> for step in range(4):
        ...     stored = buffer.enqueue(np.array([step, 10.0 + step], np.float32))
        >>> buffer.dequeue(env_ids=[1], n=2)
        array([[11., 12.]], dtype=float32)
        >>> buffer.current_size, buffer.get_current_position()
        (array([3, 1]), array([4, 4]))
    """

    def __init__(
        self,
        data_spec: Any,
        num_environments: int,
        max_length: int = 1024,
        device: str = "cpu",
        allow_multiprocess: bool = False,
        name: str = "RingBuffer",
    ) -> None:
        layout, positions, storage = _ring_parts.parts(
            type(self).__name__,
            data_spec,
            num_environments,
            max_length,
            device,
            shared=allow_multiprocess,
        )
        self._furnish(layout, positions, storage, device, name)

    def _furnish(
        self,
        layout: _ring_parts.Layout,
        positions: Any,
        storage: Any,
        device: str,
        name: str,
    ) -> None:
        super().__init__(name=name)
        self._layout, self._device = layout, device
        everyone = np.arange(layout.num_environments)
        self._everyone = layout.integers("RingBuffer", "num_environments", everyone)
        self._lock = positions.lock if layout.on_host else threading.RLock()
        # Positions first: a checkpoint of another layout then changes nothing.
        self._positions, self._storage = positions, storage

    def __reduce__(self) -> tuple:
        parts = self._layout, self._positions, self._storage, self._device, self.name
        return _furnished, (type(self), *parts)

    @property
    def num_environments(self) -> int:
        """Number of environments."""
        return self._layout.num_environments

    @property
    def max_length(self) -> int:
        """How many steps are kept of each environment."""
        return self._layout.max_length

    @property
    def device(self) -> str:
        """Where the data is, as it was given: "cpu" or a TensorFlow device."""
        return self._device

    @property
    def storage(self) -> Any:
        """The rows: a `NumpyStorage` or a `VariableStorage`."""
        return self._storage

    @property
    def lock(self) -> Any:
        """What atomic methods hold, re-entrant: hold it to make several calls one."""
        return self._lock

    @property
    def current_size(self) -> Any:
        """Number of steps each environment holds, int64 `[num_environments]`."""
        return self._positions_and_sizes()[1]

    def enqueue(self, batch: Any, env_ids: Any = None, blocking: bool = False) -> bool:
        """Appends one step to each environment given.

        Args:
            batch: nest of arrays `[B, *spec.shape]`.
            env_ids: `[B]` distinct integers, whose step each row is; None for all
                environments in order.
            blocking: whether to wait until each of them has space, instead of
                overwriting its oldest step.

        Returns:
            True; False if `stop` ended the waiting and nothing was stored.

        Raises:
            TypeError: if a dtype does not fit.
            ValueError: if the nest, a shape or the ids do not fit, or `blocking` is
                asked of a buffer without `allow_multiprocess`; the buffer is
                unchanged.
        """
        if not blocking:
            self._append(batch, env_ids)
            return True
        self._check_can_block("enqueue")
        ids = self.check_convert_env_ids(env_ids)
        self._layout.check_batch("RingBuffer.enqueue", batch, ids)

        def attempt() -> bool | None:
            if not self.has_space(ids):
                return None
            self._append(batch, ids)
            return True

        return self._positions.wait_for(attempt) is not None

    def dequeue(self, env_ids: Any = None, n: int = 1, blocking: bool = False) -> Any:
        """Takes off the `n` oldest steps of each environment given.

        Args:
            env_ids: `[B]` distinct integers; None for all environments in order.
            n: how many steps of each, 1 to `max_length`.
            blocking: whether to wait until each of them has as many.

        Returns:
            Nest of arrays `[B, n, *spec.shape]`, the oldest first; None if `stop`
            ended the waiting and nothing was taken.

        Raises:
            TypeError: if `n` is not an integer.
            ValueError: if an environment holds fewer steps and `blocking` is False,
                `n` or the ids are out of range, or `blocking` is asked of a buffer
                without `allow_multiprocess`; the buffer is unchanged.
        """
        checks.check_whole_number("RingBuffer.dequeue", "n", n, low=1)
        checks.check_within("RingBuffer.dequeue", "n", n, 1, self.max_length)
        if not blocking:
            return self._take(env_ids, n)
        self._check_can_block("dequeue")
        ids = self.check_convert_env_ids(env_ids)
        return self._positions.wait_for(
            lambda: self._take(ids, n) if self.has_data(ids, n) else None
        )

    @locking.atomic
    def get(self, env_ids: Any, positions: Any, out: Any = None) -> Any:
        """Reads steps by position; they stay.

        Args:
            env_ids: integers of a shape that broadcasts with that of `positions`.
            positions: integers, from the earliest position of the environment to the
                one before the current.
            out: on the host, nest of arrays to read into.

        Returns:
            Nest of copies `[*shape, *spec.shape]`; `out` if given.

        Raises:
            TypeError: if ids or positions are not integers.
            ValueError: if an environment does not exist or a step is not there.
        """
        ids = self._layout.ids("RingBuffer.get", env_ids)
        steps = self._layout.integers("RingBuffer.get", "positions", positions)
        current, sizes = self._positions.get(ids)
        there = _indices.every((steps >= current - sizes) & (steps < current))
        text = "`RingBuffer.get`: `positions` expected steps that are stored"
        steps = _indices.ensured(there, steps, text, "ask `get_earliest_position`")
        rows, on_host = self._layout.rows(ids, steps), self._layout.on_host
        if on_host and out is None and not np.ndim(rows):  # by its number it is a view
            row = self._storage.get(np.reshape(rows, 1))
            return tf.nest.map_structure(lambda leaf: leaf[0], row)
        return self._storage.get(rows, out)

    @locking.atomic
    def clear(self, env_ids: Any = None) -> None:
        """Forgets all steps; positions begin at 0 again.

        Args:
            env_ids: `[B]` distinct integers; None for all environments.

        Raises:
            ValueError: if the ids do not fit; the buffer is unchanged.
        """
        ids = self.check_convert_env_ids(env_ids)
        positions, sizes = self._positions.get(ids)
        self._positions.set(ids, (positions * 0, sizes * 0))

    @locking.atomic
    def remove_up_to(self, n: Any, env_ids: Any = None) -> None:
        """Takes off the oldest `min(n, size)` steps of each environment, unread.

        Args:
            n: how many steps, at least 0.
            env_ids: `[B]` distinct integers; None for all environments.

        Raises:
            TypeError: if `n` is not an integer.
            ValueError: if `n` is negative or the ids do not fit; the buffer is
                unchanged.
        """
        count = self._layout.integers("RingBuffer.remove_up_to", "n", n)
        count = _indices.ensured(
            _indices.every(count >= 0),
            count,
            "`RingBuffer.remove_up_to`: `n` expected an int >= 0",
            "correct it",
        )
        ids = self.check_convert_env_ids(env_ids)
        positions, sizes = self._positions.get(ids)
        fewer = sizes - _indices.minimum(sizes, count)
        self._positions.set(ids, (positions, fewer))

    def has_space(self, env_ids: Any) -> Any:
        """Whether each environment given can take one more step and lose none.

        Args:
            env_ids: what `check_convert_env_ids` takes.

        Returns:
            A bool scalar of numpy or TensorFlow.
        """
        _, sizes = self._positions_and_sizes(env_ids)
        return _indices.every(sizes < self.max_length)

    def has_data(self, env_ids: Any, n: int = 1) -> Any:
        """Whether each environment given holds at least `n` steps.

        Args:
            env_ids: what `check_convert_env_ids` takes.
            n: number of steps.

        Returns:
            A bool scalar of numpy or TensorFlow.
        """
        _, sizes = self._positions_and_sizes(env_ids)
        return _indices.every(sizes >= n)

    def get_current_position(self) -> Any:
        """Returns the position each environment writes next, `[num_environments]`."""
        return self._positions_and_sizes()[0]

    @locking.atomic
    def get_earliest_position(self, env_ids: Any) -> Any:
        """Returns the position of the oldest step of environments.

        Args:
            env_ids: integers of any shape, duplicates welcome.

        Returns:
            int64 in the shape of `env_ids`; the current position where there is none.

        Raises:
            ValueError: if an environment does not exist.
        """
        ids = self._layout.ids("RingBuffer.get_earliest_position", env_ids)
        positions, sizes = self._positions.get(ids)
        return positions - sizes

    def circular(self, pos: Any) -> Any:
        """Returns `pos mod max_length`, where a position lies in its environment."""
        return self._layout.circular(pos)

    def check_convert_env_ids(self, env_ids: Any) -> Any:
        """Returns environment ids as int64 `[B]`, checked.

        Args:
            env_ids: `[B]` distinct integers; None for all environments in order.

        Returns:
            An array on the host, else a tensor.

        Raises:
            TypeError: if they are not integers.
            ValueError: if there are none, they are not `[B]`, one is out of range, or
                one comes twice.
        """
        if env_ids is None:
            return self._everyone
        return self._layout.distinct_ids("RingBuffer.check_convert_env_ids", env_ids)

    def stop(self) -> None:
        """Ends the waiting of all calls that block, in all threads and processes.

        They return False or None, and so do later ones until `revive`. Calls that do
        not block do not care.
        """
        if self._layout.on_host:
            self._positions.stop(True)

    def revive(self) -> None:
        """Lets calls block again after `stop`."""
        if self._layout.on_host:
            self._positions.stop(False)

    @locking.atomic
    def _append(self, batch: Any, env_ids: Any) -> None:
        ids, storage = self.check_convert_env_ids(env_ids), self._storage
        on_host = self._layout.on_host
        arrays = storage.layout.fitting(batch, ids.shape) if on_host else None
        if not arrays:
            self._layout.check_batch("RingBuffer.enqueue", batch, ids)
        positions, sizes = self._positions.get(ids)
        rows = self._layout.next_rows(ids, positions, everyone=env_ids is None)
        if arrays:
            storage.write(rows, arrays)
        else:
            storage.set(rows, batch)
        grown = _indices.minimum(sizes + 1, self.max_length)
        self._positions.set(ids, (positions + 1, grown))

    @locking.atomic
    def _take(self, env_ids: Any, n: int) -> Any:
        ids = self.check_convert_env_ids(env_ids)
        positions, sizes = self._positions.get(ids)
        sizes = _indices.ensured(
            _indices.every(sizes >= n),
            sizes,
            f"`RingBuffer.dequeue`: `n`={n} expected sizes of at least {n}",
            "enqueue more, or block",
        )
        steps = (positions - sizes)[:, None] + np.arange(n)
        taken = self._storage.get(self._layout.rows(ids[:, None], steps))
        self._positions.set(ids, (positions, sizes - _indices.minimum(sizes, n)))
        return taken

    @locking.atomic
    def _positions_and_sizes(self, env_ids: Any = None) -> tuple[Any, Any]:
        return self._positions.get(self.check_convert_env_ids(env_ids))

    def _check_can_block(self, method: str) -> None:
        if not (self._layout.on_host and self._positions.can_wait):
            raise ValueError(
                f"`RingBuffer.{method}`: `blocking` expected a buffer with "
                "allow_multiprocess=True, for threads and processes alike; got "
                "blocking=True; make the buffer so, or ask `has_space` and `has_data`"
            )


def _furnished(kind: type[RingBuffer], *parts: Any) -> RingBuffer:
    buffer = kind.__new__(kind)
    buffer._furnish(*parts)
    return buffer
