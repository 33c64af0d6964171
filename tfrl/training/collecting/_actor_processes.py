"""Actors in processes of this machine: started, told, replaced and ended."""

import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfrl._internal import acting, process_events
from tfrl.distribute import lone_process
from tfrl.host import shared_rows
from tfrl.training.collecting import _silent_actors

_LOG = logging.getLogger(__name__)
PATIENCE_SECONDS = 2.0
_WITHOUT = "this process runs without tensorflow"
_BETWEEN_CHECKS_SECONDS = 0.05
# An actor that ends so often in a row before it has played is not tried again.
_MOST_FRUITLESS = 3
# One of many processes beside a learner, whose devices are the learner's.
_ENVIRON = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
}

# Takes a piece, which is overwritten afterwards, the number of its actor, and whether
# that began anew before it.
Place = Callable[[acting.Piece, int, bool], None]


class Task(NamedTuple):
    """What all actors of a trainer do.

    Attributes:
        make_env: makes the vector environment of one actor.
        acting: what acts; see `acting.NetworkActing`.
        seed: of all; an actor's own follows from its number and how often it began.
        n_steps: of a piece, T.
        slots: pieces of an actor that wait for the learner at most.
    """

    make_env: Callable[[], Any]
    acting: Any
    seed: int
    n_steps: int
    slots: int

    def stream(self, number: int, start: int) -> np.random.SeedSequence:
        """Returns the seed of the start of an actor."""
        return np.random.SeedSequence(self.seed, spawn_key=(number, start))


class ActorProcess:
    """An actor in a process of its own, as its learner sees it.

    Args:
        number: of the actor.
        job: what it does; the file descriptor of its rows is closed here.
        without: modules that it cannot import.
        released: the event of which the job has the file descriptors, if it has.
        where: what a user called to have it, for messages.

    Attributes:
        process: where it runs.
        layout: of what it plays; None until it does.
        ring: where that is written; likewise.
    """

    def __init__(
        self,
        number: int,
        job: acting.Job,
        without: Sequence[str],
        released: process_events.ProcessEvent | None = None,
        where: str = "Actors",
    ) -> None:
        self._rows, self._released = job.rows, released
        self.number, self._where = number, where
        self.layout: Any = None
        self.ring: Any = None
        try:
            self.process = lone_process.LoneProcess(
                acting.play,
                job,
                fds=[job.weights, job.rows, *job.written, *job.released],
                without=without,
                name=f"actor {number}",
                environ=_ENVIRON,
            )
        except BaseException:
            os.close(job.rows)
            raise

    def begun(self, timeout: float | None = 0.0) -> bool:
        """Whether it plays, waiting so long for it.

        Raises:
            RuntimeError: if it ended instead.
        """
        if self.ring is None:
            told = self._received(timeout)
            if told is None:
                return False
            self.layout, slots = told
            self.ring = shared_rows.RowRing(
                self.layout.columns, slots, self._rows, self._released
            )
        return True

    def check(self) -> None:
        """Raises a RuntimeError if it has ended."""
        self._received(0.0)

    def close(self) -> None:
        """Asks it to end."""
        if self.ring is not None:
            self.ring.close()

    def stop(self, patience: float) -> None:
        """Ends it, by force if it takes longer than so many seconds."""
        self.process.stop(patience)
        if self._rows >= 0:
            os.close(self._rows)
            self._rows = -1

    def _received(self, timeout: float | None) -> Any:
        try:
            return self.process.receive(timeout)
        except RuntimeError as error:
            # Whose text is all that is known of what happened there.
            raise failure(self._where, self.number, error) from None


def stop_all(actors: Sequence[Any], patience: float = PATIENCE_SECONDS) -> None:
    """Ends actors; those that do not come to an end in time are killed."""
    for actor in actors:
        actor.close()
    deadline = time.monotonic() + patience
    for actor in actors:
        actor.stop(max(0.0, deadline - time.monotonic()) if actor.ring else 0.0)


def failure(where: str, number: int, error: Exception) -> acting.ActorFailed:
    """Returns what to raise about an actor that failed."""
    told = str(error).rstrip()
    text = f"`{where}`: actor {number} expected to play on; got:\n{told}"
    if _WITHOUT in text:
        text += (
            "\nactors run without TensorFlow: define `make_env` and `act` in the main "
            "script or in a file that does not import it"
        )
    return acting.ActorFailed(text)


class _Seat(NamedTuple):
    """The place of an actor, whoever takes it.

    Attributes:
        actor: who does now.
        start: how often there was another before.
        fruitless: how many of these ended in a row before they played.
        is_new: whether nothing of who sits there was taken yet.
    """

    actor: ActorProcess
    start: int
    fruitless: int
    is_new: bool


class Processes:
    """Actors in processes of this machine, of which those that are killed are replaced.

    What an actor has played to its end, and that alone, counts: of a killed one the
    whole pieces are still taken.

    Args:
        task: what they do.
        count: how many there are.
        numbers: that they act by at first.

    Attributes:
        n_replaced: how many were replaced.

    Raises:
        TypeError: if the task cannot be pickled.
    """

    def __init__(self, task: Task, count: int, numbers: list[np.ndarray]) -> None:
        self._task, self.n_replaced = task, 0
        self._weights = shared_rows.SharedArrays(numbers)
        self._written = process_events.ProcessEvent()
        self._next, self._checked = 0, time.monotonic()
        self._silent = _silent_actors.SilentActors(count)
        self._seats: list[_Seat] = []
        try:
            for number in range(count):
                self._seats.append(_Seat(self._start(number, 0), 0, 0, True))
        except BaseException:
            self.close()
            raise

    def publish(self, numbers: list[np.ndarray]) -> int:
        """Gives the actors what to act by from their next pieces on.

        Returns:
            The number of this version, 1 for the first.
        """
        return self._weights.write(numbers)

    def take(self, place: Place, go_on: Callable[[], None] = lambda: None) -> None:
        """Waits for a piece, and hands it on.

        Args:
            place: takes it.
            go_on: called now and then meanwhile; what it raises ends the wait.

        Raises:
            ConnectionError: if an actor ends again and again before it has played.
            RuntimeError: if an environment raises.
        """
        while True:
            # Also while others play enough for who learns slowly.
            if time.monotonic() - self._checked > _BETWEEN_CHECKS_SECONDS:
                for number in range(len(self._seats)):
                    self._look_after(number)
                self._checked = time.monotonic()
            if self._taken(place):
                return
            go_on()
            # Nothing of any of them waits.
            self._silent.tell(range(len(self._seats)))
            self._written.wait(_BETWEEN_CHECKS_SECONDS)

    def close(self) -> None:
        """Ends all actors."""
        stop_all([seat.actor for seat in self._seats])

    def _taken(self, place: Place) -> bool:
        count = len(self._seats)
        for number in range(self._next, self._next + count):
            seat = self._seats[number % count]
            ring = seat.actor.ring
            if ring is None:
                continue
            first, waiting = ring.waiting()
            if waiting:
                columns = [x[first, ...] for x in ring.arrays]
                piece = seat.actor.layout.unpacked(columns)
                place(piece, number % count, seat.is_new)
                ring.release(1)
                self._silent.heard(number % count)
                self._seats[number % count] = seat._replace(is_new=False, fruitless=0)
                self._next = (number + 1) % count
                return True
        return False

    def _look_after(self, number: int) -> None:
        """Sees that an actor begins, and replaces one that has ended."""
        seat = self._seats[number]
        try:
            if not seat.actor.begun():
                return
            seat.actor.check()
        except RuntimeError as error:
            if seat.actor.process.raised:
                raise
            if seat.actor.ring is not None and seat.actor.ring.waiting()[1]:
                return  # whole pieces first
            fruitless = seat.fruitless + seat.is_new
            if fruitless >= _MOST_FRUITLESS:
                raise ConnectionError(
                    f"{error}\nit ended {fruitless} times before it played anything"
                ) from None
            if not seat.start:
                _LOG.warning(
                    "`Trainer`: actor %d expected to play on; got its end by %s; "
                    "another begins in its place; later ends are not logged, but "
                    "counted in train/actors_replaced",
                    *(number, seat.actor.process.end),
                )
            seat.actor.stop(0.0)
            self._silent.heard(number)
            self.n_replaced += 1
            actor = self._start(number, seat.start + 1)
            self._seats[number] = _Seat(actor, seat.start + 1, fruitless, True)

    def _start(self, number: int, start: int) -> ActorProcess:
        task, released = self._task, process_events.ProcessEvent()
        job = acting.Job(
            task.make_env,
            task.acting,
            task.stream(number, start),
            self._weights.fd,
            shared_rows.new_memory(),
            task.n_steps,
            task.slots,
            self._written.fds,
            released.fds,
        )
        return ActorProcess(number, job, (), released, where="Trainer")
