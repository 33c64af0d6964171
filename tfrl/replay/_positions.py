"""Where the environments of a ring buffer on the host stand.

Threads share the numbers under one lock. Processes share them in memory that has no
name, so that none is left behind whoever dies. A process that is killed while it
waits holds nothing: whoever rings the bell never waits for an answer, which
`multiprocessing.Condition` does.
"""

import json
import multiprocessing
import os
import threading
from collections.abc import Callable
from multiprocessing import synchronize
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

# Each ringing is for those who wait at that moment, so the next ones wait for another
# bell: otherwise whoever is quick takes the wakening of whoever still sleeps. Bells
# come round again; should somebody oversleep a whole round, he looks again after this.
_BELLS = 8
_LOOK_AGAIN_SECONDS = 0.1
# Nobody needs the lock for long: who holds it for a minute died with it.
_PATIENCE_SECONDS = 60.0
_EXTRA_WORDS = 4  # stopped, ringings so far, who waits for the next, lock holder


class Shared(NamedTuple):
    """What the processes share: int64 words, the lock over them, and the bells."""

    words: Any
    lock: synchronize.RLock
    bells: list[synchronize.Semaphore]


def shared(num_environments: int) -> Shared:
    """Makes what `Positions` of several processes share; it travels to new ones."""
    # Semaphores of this context serve processes that are spawned and forked.
    context = multiprocessing.get_context("spawn")
    words = context.RawArray("q", 2 * num_environments + _EXTRA_WORDS)
    bells = [context.Semaphore(0) for _ in range(_BELLS)]
    return Shared(words, context.RLock(), bells)


class ProcessLock:
    """A re-entrant lock of threads and processes that reports a dead holder."""

    def __init__(self, lock: synchronize.RLock, holder: np.ndarray) -> None:
        self._lock = lock
        self._holder = holder

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
    """

    def __init__(
        self, contents: str, num_environments: int, parts: Shared | None = None
    ) -> None:
        words = 2 * num_environments + _EXTRA_WORDS
        if parts is None:
            memory = np.zeros(words, np.int64)
        else:
            memory = np.frombuffer(parts.words, np.int64)
        n = num_environments
        self.contents, self._parts = contents, parts
        self._positions, self._sizes = memory[:n], memory[n : 2 * n]
        extra = memory[2 * n :]
        self._stopped, self._ringings, self._waiting = extra, extra[1:], extra[2:]
        self.lock: Any = threading.RLock()
        if parts is not None:
            self.lock = ProcessLock(parts.lock, extra[3:])

    @property
    def can_wait(self) -> bool:
        """Whether calls can wait here, and processes share the numbers."""
        return self._parts is not None

    def get(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns copies of positions and sizes of some environments."""
        if not tf.executing_eagerly():
            raise _traced()
        return self._positions[ids], self._sizes[ids]

    def first(self) -> tuple[int, int]:
        """Returns position and size of the first environment."""
        if not tf.executing_eagerly():
            raise _traced()
        return self._positions.item(0), self._sizes.item(0)

    def set(self, ids: Any, value: tuple[np.ndarray, np.ndarray]) -> None:
        """Replaces positions and sizes of some environments; wakes who waits."""
        self._positions[ids], self._sizes[ids] = value
        if self._parts is not None:
            self._ring()

    def wait_for(self, attempt: Callable[[], Any]) -> Any:
        """Returns the first result of `attempt` that is not None, None when stopped.

        Between attempts, which are made under the lock, it sleeps until something
        changes.
        """
        bells = self._shared_parts().bells
        counted_at = -1
        while True:
            with self.lock:
                if self._stopped[0]:
                    return None
                result = attempt()
                if result is not None:
                    return result
                ringings = int(self._ringings[0])
                if counted_at != ringings:
                    self._waiting[0] += 1
                counted_at = ringings
            bells[ringings % _BELLS].acquire(timeout=_LOOK_AGAIN_SECONDS)

    def stop(self, stopped: bool) -> None:
        """Ends all waiting, now and in the future, or makes it possible again."""
        with self.lock:
            self._stopped[0] = stopped
            self._ring()

    def _ring(self) -> None:
        waiting = int(self._waiting[0])
        if waiting:
            bell = self._shared_parts().bells[self._ringings[0] % _BELLS]
            self._waiting[0] = 0
            self._ringings[0] += 1
            for _ in range(waiting):
                bell.release()

    def _shared_parts(self) -> Shared:
        if self._parts is None:
            raise TypeError(
                "`RingBuffer`: `allow_multiprocess` expected True where the buffer "
                "goes to another process; got False; make the buffer so"
            )
        return self._parts

    def serialize(self) -> str:
        """Returns what a checkpoint keeps."""
        with self.lock:
            return json.dumps(
                {
                    "contents": self.contents,
                    "positions": self._positions.tolist(),
                    "sizes": self._sizes.tolist(),
                }
            )

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
            self._ring()

    def __reduce__(self) -> tuple:
        parts = self._shared_parts()
        return Positions, (self.contents, len(self._positions), parts)


def _traced() -> ValueError:
    return ValueError(
        "`RingBuffer`: a buffer on the host expected to be used outside of "
        "tf.function, where each call would run once, while tracing; got a "
        "call inside; make the buffer with a device such as device='/CPU:0'"
    )
