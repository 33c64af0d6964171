"""What actors send becomes rows of a replay buffer, in a thread of the learner."""

import functools
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tfrl._internal import acting, gym_checks
from tfrl.core import records
from tfrl.distribute import lone_process
from tfrl.host import shared_rows
from tfrl.replay import data_buffer, episodes, ring_buffer
from tfrl.training import experience

Deliver = Callable[[records.Trajectory, np.ndarray], None]

# Few large pieces cost less than many small ones; half a queue is soon enough.
_PAUSES = 5e-4, 1e-2
_BETWEEN_CHECKS = 0.05
_PATIENCE = 2.0
_WITHOUT = "this process runs without tensorflow"


class Source(NamedTuple):
    """One actor, as the learner sees it.

    Attributes:
        process: where it runs.
        ring: what it writes.
        env_ids: `[N]`, the numbers of its environments among all.
    """

    process: lone_process.LoneProcess
    ring: shared_rows.RowRing
    env_ids: np.ndarray


class Intake:
    """A thread that takes rows from actors and hands them on.

    Args:
        sources: the actors.
        deliver: called with a `Trajectory` `[T, N, ...]` of one actor, which is
            overwritten afterwards, and with the numbers of its environments.

    Attributes:
        env_steps: `[n_actors]` steps of experience so far.
        versions: `[n_actors]` versions of the weights in the last rows.
        episode_returns: of the last 100 finished episodes.
        episode_lengths: their lengths in steps.
        changed: notified when rows came or all is over; hold it to read the numbers.
    """

    def __init__(self, sources: list[Source], deliver: Deliver) -> None:
        self._sources, self._deliver = sources, deliver
        self.env_steps = np.zeros(len(sources), np.int64)
        self.versions = np.zeros(len(sources), np.int64)
        self.episode_returns: deque[float] = deque(maxlen=100)
        self.episode_lengths: deque[int] = deque(maxlen=100)
        self.changed = threading.Condition()
        self._fill = 0.0  # of the fullest queue, when it was last emptied
        self._failure: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="tfrl-actors", daemon=True
        )
        self._thread.start()

    def check(self) -> None:
        """Raises what went wrong, in an actor or with its rows, if anything did."""
        if self._failure is not None:
            raise RuntimeError(str(self._failure)) from self._failure

    def stop(self) -> None:
        """Ends the actors and takes what they still sent."""
        self._stopping.set()
        if threading.current_thread() is not self._thread:  # as a finalizer may be
            self._thread.join()
        stop_all(self._sources)
        try:
            while self._failure is None and self._take_all():
                pass
        except Exception as error:  # as in the thread: for `check`
            self._failure = error

    def _run(self) -> None:
        try:
            checked, pause = time.monotonic(), _PAUSES[0]
            while not self._stopping.wait(pause):
                self._take_all()
                pause *= 0.5 if self._fill > 0.5 else 1.25
                pause = min(max(pause, _PAUSES[0]), _PAUSES[1])
                if time.monotonic() - checked > _BETWEEN_CHECKS:
                    self._check_processes()
                    checked = time.monotonic()
        except BaseException as error:
            self._failure = error
            stop_all(self._sources, patience=0.0)
        with self.changed:
            self.changed.notify_all()

    def _check_processes(self) -> None:
        for number, source in enumerate(self._sources):
            try:
                source.process.receive(timeout=0.0)
            except RuntimeError as error:
                # What it wrote before is as good as ever.
                while self._take(number):
                    pass
                raise RuntimeError(failure_text(number, error)) from error

    def _take_all(self) -> int:
        self._fill = 0.0
        return sum(self._take(number) for number in range(len(self._sources)))

    def _take(self, number: int) -> int:
        source = self._sources[number]
        first, count = source.ring.waiting()
        if not count:
            return 0
        self._fill = max(self._fill, count / source.ring.slots)
        rows = acting.Columns(*[x[first : first + count] for x in source.ring.arrays])
        where = f"Actors`: actor {number}: `make_env"
        gym_checks.check_numbers(where, "next_observations", [rows.next_observations])
        gym_checks.check_numbers(where, "observations", [rows.observations])
        gym_checks.check_numbers(where, "rewards", [rows.rewards])
        fields = records.Trajectory._fields
        trajectory = records.Trajectory(*[getattr(rows, name) for name in fields])
        self._deliver(trajectory, source.env_ids)
        ended = (rows.terminated | rows.truncated) & rows.valid
        with self.changed:
            self.env_steps[number] += int(rows.valid.sum())
            self.versions[number] = rows.versions[-1]
            self.episode_returns.extend(rows.returns[ended].tolist())
            self.episode_lengths.extend(rows.lengths[ended].tolist())
            self.changed.notify_all()
        source.ring.release(count)
        return count


def failure_text(number: int, error: Exception) -> str:
    """Returns what to tell about an actor that failed."""
    text = f"`Actors`: actor {number} expected to play on; got:\n{error}"
    if _WITHOUT in text:
        text += (
            "\nactors run without TensorFlow: define `make_env` and `act` in the main "
            "script or in a file that does not import it"
        )
    return text


def stop_all(sources: list[Source], patience: float = _PATIENCE) -> None:
    """Ends actors; those that do not come to an end in time are killed."""
    for source in sources:
        source.ring.close()
    deadline = time.monotonic() + patience
    for source in sources:
        source.process.stop(max(0.0, deadline - time.monotonic()))


def deliver_to(store: Any, n_envs: int, gamma: float) -> Deliver:
    """Returns what puts rows of actors into a store; see `Actors`."""
    is_batch = isinstance(store, data_buffer.DataBuffer)
    if not is_batch and not isinstance(
        store, episodes.EpisodeStore | ring_buffer.RingBuffer
    ):
        return lambda trajectory, env_ids: store(
            records.Trajectory(*map(np.array, trajectory)), env_ids
        )
    if not is_batch and store.num_environments != n_envs:
        raise ValueError(
            f"`Actors`: `store` expected {n_envs} environments, those of all actors; "
            f"got {store.num_environments}; make it with num_environments={n_envs}"
        )
    if isinstance(store, episodes.EpisodeStore):
        store.cut()
        return functools.partial(experience.add_trajectory, store)
    packed = _packing(store.storage.data_spec, gamma)

    def add_batch(trajectory: records.Trajectory, _: np.ndarray) -> None:
        valid = trajectory.valid
        if valid.all():
            flat = [x.reshape(-1, *x.shape[2:]) for x in trajectory]
        else:
            flat = [x[valid] for x in trajectory]
        store.add_batch(packed(flat))

    def enqueue(trajectory: records.Trajectory, env_ids: np.ndarray) -> None:
        for t, valid in enumerate(trajectory.valid):
            rows = slice(None) if valid.all() else valid
            if valid.any():
                store.enqueue(packed([x[t][rows] for x in trajectory]), env_ids[rows])

    return add_batch if is_batch else enqueue


def _packing(spec: Any, gamma: float) -> Callable[[list[np.ndarray]], Any]:
    """Returns what picks the columns that a spec names and packs them as it does."""
    names = tuple(spec) if isinstance(spec, dict) else getattr(spec, "_fields", ())
    known = (*records.Trajectory._fields, "discounts")
    if not names or not {*names} <= {*known}:
        raise ValueError(
            f"`Actors`: `store` expected rows with names among {list(known)}, such "
            f"as a tfrl.core.Transition; got {spec}; pass a function that adds to "
            "the buffer"
        )
    kind: Any = dict if isinstance(spec, dict) else type(spec)

    def packed(columns: list[np.ndarray]) -> Any:
        found = records.Trajectory(*columns)._asdict()
        if "discounts" in names:
            found["discounts"] = (gamma * ~found["terminated"]).astype(np.float32)
        return kind(**{name: found[name] for name in names})

    return packed
