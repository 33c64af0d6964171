"""Ports that no other process takes."""

import contextlib
import errno
import importlib
import os
import socket
import tempfile
from collections.abc import Iterator
from typing import Any

from tfrl._internal import arguments


@contextlib.contextmanager
def get_unused_port(start: int, end: int = 65536, n: int = 1) -> Iterator:
    """Holds ports in `[start, end)` that nobody listens on, for the time of a block.

    No other block of this kind gets them meanwhile, in whichever process of the
    machine: bind them inside the block. They are consecutive if the range has `n` free
    ports in a row, else the lowest free ones.

    Args:
        start: the first port that may be taken.
        end: the first one that may not.
        n: how many.

    Yields:
        The port if `n` is 1, else a list of `n`, ascending.

    Raises:
        TypeError: if an argument is not an int.
        ValueError: if the range is empty, is no range of ports or has fewer than `n`.
        OSError: if fewer than `n` ports are free in it.

    Example:
        >>> with get_unused_port(20000) as one, get_unused_port(20000, n=3) as three:
        ...     len({one, *three})
        4
    """
    where, check = "get_unused_port", arguments.check_whole_number
    locks = "processes keep each other off a port by file locks"
    arguments.check_posix(where, locks, "choose a port there")
    start = check(where, "start", start, 1, 65535)
    end = check(where, "end", end, start + 1, 65536)
    n = check(where, "n", n, 1, end - start)
    with contextlib.ExitStack() as held:
        folder = _lock_folder()
        # One at a time looks: two would take the ports that the other tries for taken.
        with _locked(folder, "search", wait=True):
            ports = _search(folder, range(start, end), n)
            for port in ports:
                held.enter_context(_locked(folder, str(port), wait=False))
        yield ports[0] if n == 1 else ports


def _search(folder: str, candidates: range, n: int) -> list[int]:
    found: list[int] = []
    for port in candidates:
        if _is_unused(folder, port):
            found.append(port)
            if len(found) >= n and found[-n] == port - n + 1:
                return found[-n:]
    if len(found) < n:
        raise OSError(
            f"`get_unused_port`: ports {candidates.start} to {candidates.stop - 1} "
            f"expected {n} unused; got {len(found)}; widen the range"
        )
    return found[:n]


def _is_unused(folder: str, port: int) -> bool:
    try:
        with _locked(folder, str(port), wait=False):
            _bind(socket.AF_INET, port)
            if socket.has_ipv6:
                _bind(socket.AF_INET6, port)
    except OSError as error:
        # A machine may know IPv6 and have no address of it.
        return error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return True


def _bind(family: socket.AddressFamily, port: int) -> None:
    with socket.socket(family) as listener:
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(("", port))


def _lock_folder() -> str:
    """Returns the folder that the users of this machine share."""
    folder = os.path.join(tempfile.gettempdir(), "tfrl-ports")
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)
        os.chmod(folder, 0o1777)
    return folder


@contextlib.contextmanager
def _locked(folder: str, name: str, wait: bool) -> Iterator[None]:
    """Locks a file, which stays: the lock of a process that dies ends with it."""
    fcntl: Any = importlib.import_module("fcntl")  # which not all systems have
    path = os.path.join(folder, f"{name}.lock")
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        file = os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        # A forked process may hold a copy of the file, so closing may not unlock it.
        fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)
