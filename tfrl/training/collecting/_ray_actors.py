"""Actors on the machines of a Ray cluster.

Ray starts them, tells that one is gone and starts it again where there is room, and
brings through its object store weights to them and pieces back. An actor has a few
calls waiting for it, so that it is never idle, and no more, so that it waits for the
learner.
"""

import collections
import contextlib
import importlib
import importlib.util
import logging
import os
import re
import socket
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from tfrl._internal import acting, end_signals
from tfrl.training.collecting import _actor_processes, _silent_actors

_LOG = logging.getLogger(__name__)
_ENVIRON = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
}
_WAIT_SECONDS = 0.5
# After a lost call nobody is asked again sooner.
_PAUSE_SECONDS = 0.2
_CONNECT_SECONDS = 5.0
# Of a cluster, or of its server for Ray's client; an IPv6 address is in brackets.
_HOST_AND_PORT = re.compile(
    r"(?:ray://)?(?:\[(?P<v6>.+)\]|(?P<host>[^:/]+)):(?P<port>\d+)"
)


def check_installed() -> None:
    """Raises an ImportError unless Ray can be imported."""
    if importlib.util.find_spec("ray") is None:
        raise ImportError(
            "`ActorPool`: `engine` expected 'processes', as Ray is not installed; got "
            "'ray'; run: pip install ray"
        )


def _check_answers(address: str | None) -> None:
    """Raises unless somebody listens where a cluster is to be.

    Ray itself would try for minutes, and then end the process. Addresses without host
    and port, such as "auto", it resolves by itself.

    Args:
        address: as of `RayActors`.

    Raises:
        ConnectionError: if nobody does.
    """
    told = os.environ.get("RAY_ADDRESS") if address in (None, "auto") else None
    found = _HOST_AND_PORT.fullmatch(told or address or "")
    if found is None:
        return
    try:
        host = found["v6"] or found["host"], int(found["port"])
        socket.create_connection(host, _CONNECT_SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        source = " of RAY_ADDRESS" if told else ""
        raise ConnectionError(_without(f"{found[0]!r}{source}", error)) from error


def _without(got: str, error: Exception) -> str:
    """Says that there is no cluster at an address."""
    return (
        "`ActorPool`: `address` expected a Ray cluster that answers; got "
        f"{got} ({str(error).partition('. ')[0]}); start one with `ray start --head`, "
        "or leave it out"
    )


class _Playing:
    """An actor as Ray runs it.

    Args:
        number: of the actor.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        # Tells this start from others of the same number.
        self._start = time.time_ns()
        self._player: Any = None
        self._version = -1
        self._count = 0

    def play(
        self, weights: tuple[int, list[np.ndarray]], tasks: list[Any]
    ) -> tuple[int, int, acting.Piece]:
        """Plays a piece; returns when this actor began, its number, and the piece.

        What is to be done is looked up once, in a list of one reference to it.
        """
        if self._player is None:  # here, so that what it raises is told
            task = importlib.import_module("ray").get(tasks[0])
            stream = task.stream(self._number, self._start)
            self._player = acting.Player(
                task.make_env, task.acting, stream, task.n_steps
            )
        version, numbers = weights
        if version != self._version:
            for mine, newer in zip(self._player.arrays(), numbers, strict=True):
                mine[...] = newer
            self._player.renew(version)
            self._version = version
        self._count += 1
        return self._start, self._count, self._player.played()


class RayActors:
    """Actors of a Ray cluster, of which those that are lost are started again.

    A piece comes whole or not at all. Where nodes are lost the others go on, and those
    that join later get actors for which there was no room.

    Args:
        task: what they do.
        count: how many there are, of one processor each.
        numbers: that they act by at first.
        address: of the cluster; None for one that is known to the environment, else
            for a new one on this machine.

    Attributes:
        n_replaced: how many times an actor began anew.

    Raises:
        ConnectionError: if there is no cluster at the address.
        ValueError: if "auto" finds none.
    """

    def __init__(
        self,
        task: _actor_processes.Task,
        count: int,
        numbers: list[np.ndarray],
        address: str | None,
    ) -> None:
        self._ray: Any = importlib.import_module("ray")
        self._is_ours = not self._ray.is_initialized()
        if self._is_ours:
            options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
            _check_answers(address)
            if address is None and not os.environ.get("RAY_ADDRESS"):
                # A new one has room for all, however few processors there are.
                address, options["num_cpus"] = "local", max(count, os.cpu_count() or 1)
            with warnings.catch_warnings(), end_signals.kept_sigterm():
                warnings.simplefilter("ignore", FutureWarning)
                try:
                    self._ray.init(address=address, **options)
                except ConnectionError as error:
                    # What "auto" does not find will not be there later either.
                    kind = ValueError if address == "auto" else ConnectionError
                    raise kind(_without(repr(address), error)) from error
        self._version, self._weights = 0, self._ray.put((0, numbers))
        # Where this process finds modules, for actors that see the same files.
        environ = {**_ENVIRON, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        remote = self._ray.remote(
            num_cpus=1, max_restarts=-1, runtime_env={"env_vars": environ}
        )(_Playing)
        self._tasks = [self._ray.put(task)]
        self._actors = [remote.remote(number) for number in range(count)]
        self._known: list[tuple[int, int]] = [(0, 0)] * count
        self._next, self.n_replaced = 0, 0
        self._lost: set[int] = set()
        self._silent = _silent_actors.SilentActors(count)
        self._calls: list[collections.deque[Any]] = []
        for actor in self._actors:
            waiting = [self._asked(actor) for _ in range(task.slots)]
            self._calls.append(collections.deque(waiting))

    def publish(self, numbers: list[np.ndarray]) -> int:
        """Gives the actors what to act by from the calls on that are made now."""
        self._version += 1
        self._weights = self._ray.put((self._version, numbers))
        return self._version

    def take(
        self,
        place: _actor_processes.Place,
        go_on: Callable[[], None] = lambda: None,
    ) -> None:
        """Waits for a piece, and hands it on.

        Args:
            place: takes it.
            go_on: called now and then meanwhile; what it raises ends the wait.

        Raises:
            RuntimeError: if an environment raises.
        """
        while True:
            count = len(self._calls)
            order = [(self._next + i) % count for i in range(count)]
            heads = {self._calls[number][0]: number for number in order}
            ready, _ = self._ray.wait([*heads], timeout=_WAIT_SECONDS)
            if not ready:
                self._silent.tell(range(count))
            for call in ready:
                number = heads[call]
                self._calls[number].popleft()
                self._next = (number + 1) % count
                found = self._received(call, number)
                self._calls[number].append(self._asked(self._actors[number]))
                if found is not None:
                    place(*found)
                    return
            go_on()

    def close(self) -> None:
        """Ends all actors."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            for actor in self._actors:
                self._ray.kill(actor)
        if self._is_ours:
            self._ray.shutdown()

    def _asked(self, actor: Any) -> Any:
        """A call of an actor that was made now."""
        return actor.play.remote(self._weights, self._tasks)

    def _received(
        self, call: Any, number: int
    ) -> tuple[acting.Piece, int, bool] | None:
        """Returns what `place` takes; None if the call was lost."""
        errors = self._ray.exceptions
        try:
            start, count, piece = self._ray.get(call)
        except errors.RayTaskError as error:
            raise _actor_processes.failure("Trainer", number, error) from None
        except errors.RayError as error:  # the actor, its node or the piece is lost
            if number not in self._lost:
                self._lost.add(number)
                _LOG.warning(
                    "`Trainer`: actor %d expected to play on; got: %.200s; Ray starts "
                    "it again; later losses are not logged, but counted in "
                    "train/actors_replaced",
                    *(number, str(error).partition("\n")[0] or type(error).__name__),
                )
            time.sleep(_PAUSE_SECONDS)
            return None
        self._silent.heard(number)
        before = self._known[number]
        self._known[number] = start, count
        self.n_replaced += before[0] not in (0, start)
        return piece, number, (start, count - 1) != before
