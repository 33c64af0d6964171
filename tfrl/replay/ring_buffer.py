"""Ring buffers: the last steps of each of many environments.

Positions count everything ever written and only grow. The storage holds the steps and
their places: numpy arrays on the host, variables on a TensorFlow device. The arithmetic
here serves both.

Threads share the positions on the host under one lock. Processes share them in unnamed
memory, so that none is left behind whichever process dies. A waiting process polls and
holds nothing, so it can be killed meanwhile.
"""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.replay import _indices, locking
from tfrl.replay.memory import _homes, numpy_storage, variable_storage

# How long who waits sleeps at first, and at most, each time twice as long.
_SLEEP_SECONDS = 1e-4, 5e-3
_REMEDY = "make the buffer with a device such as device='/CPU:0'"


class RingBuffer(tf.Module):
    """The last `max_length` steps of each of `num_environments` environments.

        row of a step = env_id * max_length + position mod max_length
        earliest position = current position - size

    `enqueue` appends one step to each environment given and overwrites its oldest
    where there is no space; `dequeue` takes the oldest off; `get` reads any. Taking
    steps off shrinks sizes; positions only grow, except in `clear`.

    - `device="cpu"`: numpy arrays on the host. Arrays and eager tensors go in, numpy
      arrays come out, always copies. Calls inside `tf.function` are refused.
    - `device="/GPU:0"`, `"/CPU:0"` and so on: variables on that device. Tensors come
      out, eagerly, inside `tf.function` and under XLA. What is known while tracing is
      checked then. Too few steps, and ids and positions out of range, are found by
      assertions in the graph, which XLA drops: sizes then stay at least 0 and reads
      return old rows. Duplicate ids are not found. Graphs that run at the same time are
      not kept apart.

    Methods are atomic among threads. With `allow_multiprocess` rows and positions are
    in shared memory: pass the buffer to a `multiprocessing.Process(args=...)`, spawned
    or forked, and it is the same there. Then `enqueue` and `dequeue` can also block, in
    threads too, until there is space or data or `stop` is called. A process killed
    while it waits does no harm; after one killed inside a call the others get a
    `TimeoutError` within about a minute.

    `tf.train.Checkpoint` saves rows and positions; nothing may write meanwhile, and a
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
        ValueError: if a count is less than 1, the spec has unknown dimensions, there is
            no such device, or processes are to share variables.

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
        where = type(self).__name__
        count = checks.check_whole_number(
            where, "num_environments", num_environments, low=1
        )
        length = checks.check_whole_number(where, "max_length", max_length, low=1)
        rows, on_host = count * length, device == "cpu"
        if not on_host and (allow_multiprocess or not str(device).startswith("/")):
            raise ValueError(
                f"`{where}`: `device` expected 'cpu', or without allow_multiprocess a "
                f"TensorFlow device, which begins with '/'; got {device!r}; pass for "
                "example '/GPU:0'"
            )
        parts: tuple[Any, Any]
        if on_host:
            storage = numpy_storage.NumpyStorage(
                data_spec, rows, shared=allow_multiprocess
            )
            contents = f"{count} environments, {storage.layout.contents}"
            shared = locking.shared(count) if allow_multiprocess else None
            parts = _Positions(contents, count, shared), storage
        else:
            number, made = tf.TensorSpec([], tf.int64), variable_storage.VariableStorage
            parts = made((number,) * 2, count, device), made(data_spec, rows, device)
        self._furnish((count, length), parts, device, name)

    def _furnish(
        self, counts: tuple[int, int], parts: tuple[Any, Any], device: str, name: str
    ) -> None:
        super().__init__(name=name)
        (self._count, self._length), self._device = counts, device
        self._on_host = device == "cpu"
        everyone = np.arange(self._count)
        self._everyone = self._integers("RingBuffer", "num_environments", everyone)
        self._lock = parts[0].lock if self._on_host else threading.RLock()
        # Positions first: a checkpoint of another layout then changes nothing.
        self._positions, self._storage = parts

    def __reduce__(self) -> tuple:
        counts, parts = (self._count, self._length), (self._positions, self._storage)
        return _homes.opened, (type(self), counts, parts, self._device, self.name)

    @property
    def num_environments(self) -> int:
        """Number of environments."""
        return self._count

    @property
    def max_length(self) -> int:
        """How many steps are kept of each environment."""
        return self._length

    @property
    def device(self) -> str:
        """Where the data is, as given: "cpu" or a TensorFlow device."""
        return self._device

    @property
    def storage(self) -> Any:
        """The rows: a `NumpyStorage` or a `VariableStorage`."""
        return self._storage

    @property
    def lock(self) -> Any:
        """The re-entrant lock of atomic methods: hold it to make several calls one."""
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
            return self._append(batch, env_ids)
        self._check_can_block("enqueue")
        ids = self.check_convert_env_ids(env_ids)
        self._check_batch(batch, ids)
        stored = self._positions.wait_for(
            ids,
            lambda sizes: (sizes < self._length).all(),
            lambda: self._append(batch, ids),
        )
        return stored is not None

    def dequeue(self, env_ids: Any = None, n: int = 1, blocking: bool = False) -> Any:
        """Takes off the `n` oldest steps of each environment given.

        Args:
            env_ids: `[B]` distinct integers; None for all environments in order.
            n: how many steps of each, 1 to `max_length`.
            blocking: whether to wait until each of them has that many.

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
            ids, lambda sizes: (sizes >= n).all(), lambda: self._take(ids, n)
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
        ids = self._ids("RingBuffer.get", env_ids)
        steps = self._integers("RingBuffer.get", "positions", positions)
        current, sizes = self._positions.get(ids)
        there = _indices.every((steps >= current - sizes) & (steps < current))
        text = "`RingBuffer.get`: `positions` expected steps that are stored"
        steps = _indices.ensured(there, steps, text, "ask `get_earliest_position`")
        return self._read(self._rows(ids, steps), out)

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
        count = self._integers("RingBuffer.remove_up_to", "n", n)
        count = _indices.ensured(
            _indices.every(count >= 0),
            count,
            "`RingBuffer.remove_up_to`: `n` expected an int >= 0",
            "pass how many steps to take off",
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
        checks.check_whole_number("RingBuffer.has_data", "n", n, low=0)
        _, sizes = self._positions_and_sizes(env_ids)
        return _indices.every(sizes >= n)

    def get_current_position(self) -> Any:
        """Returns the position each environment writes next, `[num_environments]`."""
        return self._positions_and_sizes()[0]

    @locking.atomic
    def get_earliest_position(self, env_ids: Any) -> Any:
        """Returns the position of the oldest step of environments.

        Args:
            env_ids: integers of any shape, with or without duplicates.

        Returns:
            int64 in the shape of `env_ids`; the current position where there is no
            step.

        Raises:
            ValueError: if an environment does not exist.
        """
        ids = self._ids("RingBuffer.get_earliest_position", env_ids)
        positions, sizes = self._positions.get(ids)
        return positions - sizes

    def circular(self, pos: Any) -> Any:
        """Returns `pos mod max_length`, where a position lies in its environment."""
        return pos % self._length

    def check_convert_env_ids(self, env_ids: Any) -> Any:
        """Returns environment ids as int64 `[B]`, checked.

        Args:
            env_ids: `[B]` distinct integers; None for all environments in order.

        Returns:
            An array on the host, else a tensor.

        Raises:
            TypeError: if they are not integers.
            ValueError: if there are none, they are not `[B]`, one is out of range, or
                one occurs twice.
        """
        if env_ids is None:
            return self._everyone
        where = "RingBuffer.check_convert_env_ids"
        return self._ids(where, env_ids, distinct=True)

    def stop(self) -> None:
        """Ends the waiting of all calls that block, in all threads and processes.

        They return False or None, and so do later ones until `revive`. Calls that do
        not block are not affected.
        """
        if self._on_host:
            self._positions.stop(True)

    def revive(self) -> None:
        """Lets calls block again after `stop`."""
        if self._on_host:
            self._positions.stop(False)

    @locking.atomic
    def _append(self, batch: Any, env_ids: Any) -> bool:
        ids, storage = self.check_convert_env_ids(env_ids), self._storage
        arrays = storage.layout.fitting(batch, ids.shape) if self._on_host else None
        if not arrays:
            self._check_batch(batch, ids)
        positions, sizes = self._positions.get(ids)
        rows = None
        if self._on_host and env_ids is None:
            first = int(positions[0])
            if not np.count_nonzero(positions != first):  # all stand alike
                rows = slice(first % self._length, None, self._length)
        rows = self._rows(ids, positions) if rows is None else rows
        if arrays:
            storage.write(rows, arrays)
        else:
            storage.set(rows, batch)
        grown = _indices.minimum(sizes + 1, self._length)
        self._positions.set(ids, (positions + 1, grown))
        return True

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
        taken = self._read(self._rows(ids[:, None], steps))
        self._positions.set(ids, (positions, sizes - _indices.minimum(sizes, n)))
        return taken

    @locking.atomic
    def _positions_and_sizes(self, env_ids: Any = None) -> tuple[Any, Any]:
        return self._positions.get(self.check_convert_env_ids(env_ids))

    def _integers(self, where: str, name: str, value: Any) -> Any:
        """Returns integers of any shape as an int64 array or tensor."""
        convert = _indices.int64_array if self._on_host else _indices.int64_tensor
        return convert(where, name, value)

    def _ids(self, where: str, env_ids: Any, distinct: bool = False) -> Any:
        ids = self._integers(where, "env_ids", env_ids)
        return _indices.checked_ids(where, ids, self._count, distinct)

    def _rows(self, ids: Any, positions: Any) -> Any:
        """Returns the rows of positions of environments."""
        return ids * self._length + positions % self._length

    def _read(self, rows: Any, out: Any = None) -> Any:
        """Returns copies of rows that exist."""
        storage = self._storage
        return (storage.read if self._on_host else storage.get)(rows, out)

    def _batch_size(self, where: str, batch: Any) -> int | None:
        """Returns how many rows all leaves of a batch have, None if tracing hides it.

        Raises unless all leaves have one axis before those of the spec, of one size. A
        storage is less strict: it takes one row for all too.
        """
        specs = tf.nest.flatten(self._storage.data_spec)
        shapes = [getattr(leaf, "shape", ()) for leaf in tf.nest.flatten(batch)]
        fits = len(shapes) == len(specs)
        sizes: set[Any] = set()
        for shape, spec in zip(shapes, specs, strict=fits):
            if getattr(shape, "rank", 0) is not None:
                fits = fits and len(shape) == len(spec.shape) + 1
                sizes.update(shape[:1])
        sizes.discard(None)
        if not fits or len(sizes) > 1:
            raise ValueError(
                f"`{where}`: `batch` expected the nest of the spec, its arrays "
                f"[B, *shape] of one B; got shapes {[str(shape) for shape in shapes]}; "
                "add the axis, or cut them"
            )
        return sizes.pop() if sizes else None

    def _check_batch(self, batch: Any, ids: Any) -> None:
        """Raises unless a batch has a row for each of `ids`, as far as is known."""
        where, count = "RingBuffer.enqueue", ids.shape[0]
        size = self._batch_size(where, batch)
        if None not in (size, count) and size != count:
            raise ValueError(
                f"`{where}`: `batch` expected one row for each of {count} "
                f"environments; got {size}; give as many, or `env_ids`"
            )

    def _check_can_block(self, method: str) -> None:
        if not (self._on_host and self._positions.can_wait):
            raise ValueError(
                f"`RingBuffer.{method}`: `blocking` expected a buffer with "
                "allow_multiprocess=True, for threads and processes alike; got "
                "blocking=True; make the buffer so, or ask `has_space` and `has_data`"
            )


class _Positions(tf.train.experimental.PythonState):
    """Next position and size of every environment, int64, on the host.

    `get` and `set` are those of a storage of `(positions, sizes)`; whoever calls them
    holds `lock`. A checkpoint keeps the numbers; `contents` says what they belong to,
    and has to be the same where they are restored.

    Attributes:
        contents: what the numbers belong to.
        lock: to be held while they are read or written.
        can_wait: whether calls can wait here, and processes share the numbers.
    """

    def __init__(
        self, contents: str, num_environments: int, parts: locking.Shared | None = None
    ) -> None:
        n, words = num_environments, np.zeros(2 * num_environments + 2, np.int64)
        self.lock: Any = threading.RLock()
        if parts is not None:
            words = np.frombuffer(parts.words, np.int64)
            self.lock = locking.ProcessLock(parts)
        self.contents, self._parts, self.can_wait = contents, parts, parts is not None
        self._positions, self._sizes = words[:n], words[n : 2 * n]
        self._stopped = words[2 * n :]

    def get(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns copies of positions and sizes of some environments."""
        _indices.check_eager("RingBuffer", _REMEDY)
        return self._positions[ids], self._sizes[ids]

    def first(self) -> tuple[int, int]:
        """Returns position and size of the first environment."""
        _indices.check_eager("RingBuffer", _REMEDY)
        return self._positions.item(0), self._sizes.item(0)

    def set(self, ids: Any, value: tuple[Any, Any]) -> None:
        """Replaces positions and sizes of some environments."""
        self._positions[ids], self._sizes[ids] = value

    def wait_for(
        self, ids: np.ndarray, fits: Callable[[Any], Any], act: Callable[[], Any]
    ) -> Any:
        """Returns the result of `act`, made under the lock, None when stopped.

        It is made as soon as the sizes of some environments fit. Until then they are
        looked at without the lock: who is killed meanwhile holds nothing.
        """
        seconds, longest = _SLEEP_SECONDS
        while not self._stopped[0]:
            if fits(self._sizes[ids]):
                with self.lock:
                    if fits(self._sizes[ids]):
                        return act()
            time.sleep(seconds)
            seconds = min(2 * seconds, longest)
        return None

    def stop(self, stopped: bool) -> None:
        """Ends all waiting, now and in the future, or makes it possible again."""
        with self.lock:
            self._stopped[0] = stopped

    def serialize(self) -> str:
        """Returns what a checkpoint keeps."""
        with self.lock:
            positions, sizes = self._positions.tolist(), self._sizes.tolist()
        kept = {"contents": self.contents, "positions": positions, "sizes": sizes}
        return json.dumps(kept)

    def deserialize(self, string_value: Any) -> None:
        """Takes back what a checkpoint kept, of a buffer of the same contents."""
        kept = json.loads(string_value)
        _indices.check_contents("RingBuffer", kept["contents"], self.contents)
        with self.lock:
            self._positions[:], self._sizes[:] = kept["positions"], kept["sizes"]

    def __reduce__(self) -> tuple:
        if self._parts is None:
            raise TypeError(
                "`RingBuffer`: `allow_multiprocess` expected True where the buffer "
                "goes to another process; got False; make the buffer so"
            )
        return _Positions, (self.contents, len(self._positions), self._parts)
