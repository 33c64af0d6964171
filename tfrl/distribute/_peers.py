"""Waits until all workers of a cluster are there, before TensorFlow waits for them.

TensorFlow waits in C++, where no signal ends it: Python's handlers do not run, and its
own takes SIGTERM for itself. So the workers meet here first, each at the address of
worker 0, which TensorFlow has not taken yet. They keep their connections until all are
there; worker 0 then says so, and all go on. Where TensorFlow itself is met instead, of
a worker who did not come by here, there is nothing left to wait for.
"""

import contextlib
import re
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

_GREETING = re.compile(rb"tfrl: worker (\d+) of (\d+)\n")
_HTTP_2 = b"PRI "  # how TensorFlow's own workers begin
_ALL_ARE_HERE = b"tfrl: go\n"
_TICK = 0.2  # seconds
_MOST = 64  # bytes of a greeting


class Wait:
    """How long is waited; who is waited for is told once, if it takes a while.

    Args:
        tell: takes the line.
        seconds: after so many, an error ends it. TensorFlow waits an hour, too.
        quiet: for so many seconds, nothing is told.
    """

    def __init__(
        self, tell: Callable[[str], None], seconds: float = 3600.0, quiet: float = 2.0
    ) -> None:
        self._tell, self._seconds, self._start = tell, seconds, time.monotonic()
        self._quiet = quiet

    def check(self, missing: str) -> None:
        """Tells who is missing, in its time.

        Raises:
            ConnectionError: if they were waited for long enough.
        """
        waited = time.monotonic() - self._start
        if waited > self._seconds:
            raise ConnectionError(
                f"`strategy`: the workers of `TF_CONFIG` expected within "
                f"{self._seconds:.0f} s; got nothing of {missing}; start them, or "
                "check that their addresses can be reached from here"
            )
        if waited > self._quiet:
            self._quiet = float("inf")
            self._tell(f"waiting for {missing}")


def meet(workers: Sequence[str], rank: int, wait: Wait) -> None:
    """Returns when all workers are there.

    Args:
        workers: their addresses, by rank.
        rank: which of them this process is.
        wait: how long.

    Raises:
        ConnectionError: if that takes too long.
        ValueError: if some worker knows of another number of them; if the port of
            worker 0, which this is, is taken.
    """
    if rank > 0:
        _await_first(workers, rank, wait)
    elif len(workers) > 1:
        _await_others(workers, wait)


def _await_others(workers: Sequence[str], wait: Wait) -> None:
    here: dict[socket.socket, int] = {}
    with contextlib.ExitStack() as opened, selectors.DefaultSelector() as selector:
        listener = opened.enter_context(_listener(workers[0]))
        selector.register(listener, selectors.EVENT_READ)
        is_tensorflow_met = False
        while not is_tensorflow_met:
            missing = [x for x in range(1, len(workers)) if x not in here.values()]
            if not missing:
                break
            wait.check(", ".join(f"worker {x} at {workers[x]}" for x in missing))
            for key, _ in selector.select(_TICK):
                connection: Any = key.fileobj
                if connection is listener:
                    connection = opened.enter_context(listener.accept()[0])
                    connection.setblocking(False)
                    selector.register(connection, selectors.EVENT_READ)
                    continue
                received = _received(connection) or b""
                is_tensorflow_met = is_tensorflow_met or received.startswith(_HTTP_2)
                greeting = _GREETING.fullmatch(received)
                if greeting:
                    here[connection] = _checked_rank(greeting, len(workers))
                else:  # it is gone, or no worker
                    here.pop(connection, None)
                    selector.unregister(connection)
                    connection.close()
        listener.close()  # they look for TensorFlow there now
        for connection in here:
            with contextlib.suppress(OSError):
                connection.sendall(_ALL_ARE_HERE)


def _await_first(workers: Sequence[str], rank: int, wait: Wait) -> None:
    first = f"worker 0 at {workers[0]}"
    greeting = b"tfrl: worker %d of %d\n" % (rank, len(workers))
    while True:
        with _connected(workers[0], greeting) as connection:
            received = b"" if connection is None else None
            while received is None:
                received = _received(connection)
                if received is None:
                    wait.check(f"the workers that {first} waits for")
        if received:  # that all are here, or what TensorFlow says
            return
        wait.check(first)
        time.sleep(_TICK)


def _connected(address: str, greeting: bytes) -> contextlib.AbstractContextManager[Any]:
    """A connection to whoever listens at an address, or None."""
    host, _, port = address.rpartition(":")
    try:
        connection = socket.create_connection((host.strip("[]"), int(port)), 2.0)
        connection.sendall(greeting)
    except OSError:
        return contextlib.nullcontext()
    connection.settimeout(_TICK)
    return connection


def _listener(address: str) -> socket.socket:
    """Listens where TensorFlow will: at a port of all addresses of this host."""
    port = int(address.rpartition(":")[2])
    is_dual = socket.has_dualstack_ipv6()
    try:
        return socket.create_server(
            ("", port),
            family=socket.AF_INET6 if is_dual else socket.AF_INET,
            dualstack_ipv6=is_dual,
        )
    except OSError as error:
        raise ValueError(
            f"`strategy`: the first worker of `TF_CONFIG` expected a port that is "
            f"free on this host; got {address!r} ({error.strerror}); end what listens "
            "there, or name another port on all workers"
        ) from error


def _received(connection: socket.socket) -> bytes | None:
    """What came; nothing from one that is gone, None if that is still to come."""
    try:
        return connection.recv(_MOST)
    except (TimeoutError, BlockingIOError):
        return None
    except OSError:
        return b""


def _checked_rank(greeting: re.Match[bytes], count: int) -> int:
    rank, others = map(int, greeting.groups())
    if others != count or not 0 < rank < count:
        raise ValueError(
            f"`strategy`: `TF_CONFIG` expected alike on all workers; got {count} of "
            f"them here, and worker {rank} of {others} elsewhere; set the same cluster "
            "on all hosts, and an index of its own on each"
        )
    return rank
