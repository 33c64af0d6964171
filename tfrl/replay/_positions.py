"""Where the environments of a ring buffer on the host stand.

Threads share the numbers under one lock. Processes share them in memory that has no
name, so that none is left behind whoever dies. Who waits looks again and again, holds
nothing and needs nobody: a process can be killed meanwhile.
"""

import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from multiprocessing import synchronize
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfrl.replay import _indices

# How long who waits sleeps at first, and at most, each time twice as long.
_SLEEP_SECONDS = 1e-4, 5e-3
# Nobody needs the lock for long: who holds it for a minute died with it.
_PATIENCE_SECONDS = 60.0
_REMEDY = "make the buffer with a device such as device='/CPU:0'"


class Shared(NamedTuple):
    """What the processes share: int64 words, and the lock over them."""

    words: Any
    lock: synchronize.RLock


def shared(num_environments: int) -> Shared:
    """Makes what `Positions` of several processes share; it travels to new ones."""
    # Locks of this context serve processes that are spawned and forked. The last words
    # say whether waiting was stopped, and who holds the lock.
    context = multiprocessing.get_context("spawn")
    return Shared(context.RawArray("q", 2 * num_environments + 2), context.RLock())


class ProcessLock:
    """A re-entrant lock of threads and processes that reports a dead holder."""

    def __init__(self, parts: Shared) -> None:
        self._lock, self._holder = parts.lock, np.frombuffer(parts.words, np.int64)[-1:]

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=_PATIENCE_SECONDS):
            raise TimeoutError(
                "`tfrl.replay`: a shared store expected its lock to be free within "
                f"{_PATIENCE_SECONDS:.0f} s; got it held by process "
                f"{self._holder[0]}, which may have been killed inside a call; "
                "make a new buffer"
            )
        self._holder[0] = os.getpid()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Positions(tf.train.experimental.PythonState):
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
        self, contents: str, num_environments: int, parts: Shared | None = None
    ) -> None:
        n, words = num_environments, np.zeros(2 * num_environments + 2, np.int64)
        self.lock: Any = threading.RLock()
        if parts is not None:
            words = np.frombuffer(parts.words, np.int64)
            self.lock = ProcessLock(parts)
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
        if kept["contents"] != self.contents:
            raise ValueError(
                "`RingBuffer`: the checkpoint expected a buffer of "
                f"{kept['contents']}; got one of {self.contents}; make the buffer "
                "like the one saved"
            )
        with self.lock:
            self._positions[:], self._sizes[:] = kept["positions"], kept["sizes"]

    def __reduce__(self) -> tuple:
        if self._parts is None:
            raise TypeError(
                "`RingBuffer`: `allow_multiprocess` expected True where the buffer "
                "goes to another process; got False; make the buffer so"
            )
        return Positions, (self.contents, len(self._positions), self._parts)
