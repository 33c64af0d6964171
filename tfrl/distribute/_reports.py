"""Sends the first exception of several processes to the one that coordinates them."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import traceback
from typing import Any

_MAX_BYTES = 2**16
_MAX_TRACEBACK_CHARACTERS = 2**13
_spawn = multiprocessing.get_context("spawn")


class Report:
    """Shared memory for one exception; the copies in spawned processes share it.

    Nobody waits for a lock, so none is lost with a process that is killed.
    """

    def __init__(self) -> None:
        self._size = _spawn.RawValue("q")
        self._bytes = _spawn.RawArray("c", _MAX_BYTES)
        # One byte in a pipe: whoever reads it may write.
        self._token, self._token_writer = _spawn.Pipe(duplex=False)
        os.set_blocking(self._token.fileno(), False)
        os.write(self._token_writer.fileno(), b"1")
        self._exception: BaseException | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_exception": None}

    def offer(self, exception: BaseException) -> None:
        """Reports an exception, unless another one was reported before."""
        if self._take_token():
            self._exception = exception
            data = _packed(exception)
            self._bytes[: len(data)] = data
            self._size.value = len(data)

    def read(self) -> BaseException | None:
        """Returns the exception reported, if any; that of another process as a copy."""
        if self._exception is None and self._size.value:
            self._exception = _unpacked(self._bytes[: self._size.value])
        return self._exception

    def clear(self) -> None:
        """Forgets the exception."""
        self._take_token()
        self._exception, self._size.value = None, 0
        os.write(self._token_writer.fileno(), b"1")

    def _take_token(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            return bool(os.read(self._token.fileno(), 1))
        return False


def death(name: str, pid: int | None, code: int) -> RuntimeError:
    """Returns what to report of a process that could not do it itself."""
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else ""
    return RuntimeError(
        "`Coordinator`: processes expected to run until a stop is requested; got "
        f"{name} (process {pid}), which {how or f'exited with code {code}'}; look at "
        "what it printed"
    )


def _packed(exception: BaseException) -> bytes:
    text = "".join(traceback.format_exception(exception))
    who = f"{multiprocessing.current_process().name} (process {os.getpid()})"
    note = f"Raised in {who}:\n{text[-_MAX_TRACEBACK_CHARACTERS:]}"
    # Whatever is in an exception, a report of it has to arrive.
    with contextlib.suppress(Exception):
        data = pickle.dumps((pickle.dumps(exception), note))
        if len(data) <= _MAX_BYTES:
            return data
    return pickle.dumps((b"", note))


def _unpacked(data: bytes) -> BaseException:
    pickled, note = pickle.loads(data)
    with contextlib.suppress(Exception):
        exception = pickle.loads(pickled)
        exception.add_note(note)
        return exception
    return RuntimeError(
        "`Coordinator`: processes expected to run until a stop is requested; got an "
        f"exception of which only the text could be sent; read it:\n{note}"
    )
