"""Python processes that do not import the main script."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import connection
from typing import Any

import cloudpickle

from tfrl._internal import arguments

# What a process whose parent is gone becomes: its files are closed by that, so that
# those who watch over what others leave behind, such as the resource tracker of
# `multiprocessing`, do their work before the last are killed.
_LAST_WILL = (
    "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "os.killpg(0, signal.SIGTERM); time.sleep(0.5); os.killpg(0, signal.SIGKILL)"
)
_GRACE_SECONDS = 1.0

# One process that computes on one thread each; set before NumPy is imported.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class LoneProcess:
    """Runs a function in a Python process of its own, without the main script.

    `multiprocessing` has a spawned process import the main script, and with it
    everything that is imported there; this one starts in the time and memory of what
    the function itself needs. Functions of the main script or of a notebook are sent as
    they are; others are imported by name.

    The process has a process group of its own: Ctrl-C in a terminal does not reach
    it, and what it starts ends with it. It ends within a second of the process that
    made it, however that ends, unless something in it keeps the interpreter's lock.
    It needs a POSIX system: others refuse it by an OSError.

    Args:
        function: called as `function(send, *args)`; what `send` is given, `receive`
            returns.
        *args: pickled.
        fds: file descriptors that are open there under the same numbers.
        without: modules that cannot be imported there.
        name: of the process, for messages.
        environ: variables of its environment beside those of this process.

    Attributes:
        raised: whether `receive` told of an error in the function, rather than of the
            end of the process.

    Raises:
        TypeError: if function or arguments cannot be pickled.

    Example:
        >>> def add(send, x, y):
        ...     send(x + y)
        >>> with LoneProcess(add, 1, 2) as process:
        ...     process.receive()
        3
    """

    def __init__(
        self,
        function: Callable[..., None],
        *args: Any,
        fds: Sequence[int] = (),
        without: Sequence[str] = (),
        name: str = "process",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        arguments.check_posix("LoneProcess")
        try:
            job = cloudpickle.dumps((function, args))
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise TypeError(
                f"`LoneProcess`: `function` and `args` of {name} expected to be "
                f"picklable; got: {error}"
            ) from error
        self.name = name
        self._here, there = multiprocessing.Pipe()
        self._failure: str | None = None
        self.raised = False
        numbers = there.fileno(), os.getpid()
        # The path as it is here, before anything of ours can be found.
        code = (
            f"import sys; sys.path[:] = {[str(folder) for folder in sys.path]!r}; "
            "from tfrl.distribute import lone_process; "
            f"lone_process._run{(*numbers, tuple(without))!r}"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            pass_fds=[there.fileno(), *fds],
            env={**dict.fromkeys(_THREADS, "1"), **os.environ, **(environ or {})},
            process_group=0,
        )
        there.close()
        with suppress(OSError):  # it is dead already: `receive` tells why
            self._here.send_bytes(job)

    def __enter__(self) -> "LoneProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The number of the process, and of its process group."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    @property
    def end(self) -> str | None:
        """How it ended: "exit status 3" or "signal SIGKILL"; None while it runs."""
        code = self._process.poll()
        if code is None or code >= 0:
            return code if code is None else f"exit status {code}"
        return f"signal {signal.Signals(-code).name}"

    def receive(self, timeout: float | None = None) -> Any:
        """Returns what the process sent next.

        Args:
            timeout: seconds to wait for it; None waits as long as the process runs.

        Returns:
            What was sent; None if nothing came in time.

        Raises:
            RuntimeError: if the process ended instead, with its traceback.
        """
        while self._failure is None:
            running, step = self.running, 0.05 if timeout is None else timeout
            try:
                if self._here.poll(step if running else 0.0):
                    kind, value = self._here.recv()
                    if kind == "sent":
                        return value
                    self._failure, self.raised = value, True
                elif not running:
                    self._failure = self._end()
                elif timeout is not None:
                    return None
            except (EOFError, OSError):
                self.stop(0.5)
                self._failure = self._end()
        raise RuntimeError(self._failure)

    def stop(self, patience: float = 0.0) -> None:
        """Ends the process and all that it started.

        Args:
            patience: seconds in which it may end by itself.
        """
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        self._process.kill()
        self._process.wait()
        # Also if it ended by itself: processes that it started may be left.
        end = time.monotonic() + _GRACE_SECONDS
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGTERM)
            while time.monotonic() < end:
                os.killpg(self.pid, 0)
                time.sleep(5e-3)
            os.killpg(self.pid, signal.SIGKILL)

    def _end(self) -> str:
        return (
            f"`LoneProcess`: {self.name} expected to run until it is stopped; got its "
            f"end by {self.end}; see what it printed, or whether memory was short"
        )


def _run(fd: int, parent: int, without: Sequence[str]) -> None:
    """What the process runs first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe: connection.Connection = connection.Connection(fd)
    sys.modules.update(dict.fromkeys(without))  # type: ignore[arg-type]
    try:
        job = pipe.recv_bytes()
    except (EOFError, OSError):
        sys.exit(1)
    threading.Thread(target=_watch, args=(pipe, parent), daemon=True).start()
    try:
        function, args = pickle.loads(job)
        function(lambda value: pipe.send(("sent", value)), *args)
    except BaseException as error:
        missed = str(getattr(error, "name", "")).split(".")[0]
        if isinstance(error, ImportError) and missed in without:
            error.add_note(f"`LoneProcess`: this process runs without {missed}")
        with suppress(OSError):
            pipe.send(("failed", traceback.format_exc()))
        sys.exit(1)


def _watch(pipe: connection.Connection, parent: int) -> None:
    """Kills the process group once the process that made it is gone."""
    # Nothing more is sent: what can be read is the end. Copies of the other end in
    # forked processes hide that.
    with suppress(OSError):
        while not pipe.poll(0.3) and os.getppid() == parent:
            pass
    os.execv(sys.executable, [sys.executable, "-S", "-c", _LAST_WILL])
