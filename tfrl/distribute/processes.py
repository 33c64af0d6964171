"""Processes that start together and end together, whatever becomes of one of them."""

import atexit
import contextlib
import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import connection, context, process, resource_tracker
from types import MappingProxyType, TracebackType
from typing import Any

from tfrl._internal import arguments

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]

_LOOK_AGAIN_SECONDS = 0.05
# For processes to end once this one is interrupted or exits without `join`.
_LAST_GRACE_SECONDS = 5.0
_MOST_BYTES, _MOST_CHARACTERS = 2**16, 2**13  # of a report, of its traceback
_spawn = multiprocessing.get_context("spawn")
_at_work: set["Coordinator"] = set()


class Coordinator:
    """Stops a set of processes together.

    Every process that has a copy, as the argument of a `multiprocessing` process that
    is spawned, sees the same stop flag and may set it. The first exception that one of
    them reports is raised by `join` in the process that made the coordinator, with
    the other's traceback as a note. A registered process that dies, killed or with an
    exit code other than 0, before a stop was requested counts as an exception too.
    Nothing here waits for a lock, so none is lost with a process that is killed.

    Registered processes end with the one that registered them: when it exits without
    `join`, also because of Ctrl-C, they are stopped, and killed after 5 seconds.

    Example:
        >>> coord = Coordinator()
        >>> with coord.stop_on_exception():
        ...     while not coord.should_stop():
        ...         raise OverflowError("too much")
        >>> coord.join()
        Traceback (most recent call last):
        ...
        OverflowError: too much
    """

    def __init__(self) -> None:
        self._stop = _spawn.RawValue("b")
        self._report = _Report()
        self._start_alone()

    def _start_alone(self) -> None:
        self._processes: list[process.BaseProcess] = []
        self._joined = False
        self._pid = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        return {"_stop": self._stop, "_report": self._report}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start_alone()

    @property
    def joined(self) -> bool:
        """Whether `join` has returned or raised in this process."""
        return self._joined

    def register_process(self, process: process.BaseProcess) -> None:
        """Adds a process to those that `join` waits for.

        Args:
            process: one of `multiprocessing`, started or not; a `Process` has
                registered itself.
        """
        if process not in self._processes:
            self._processes.append(process)
        _at_work.add(self)

    def should_stop(self) -> bool:
        """Whether a stop was requested, or a registered process has died."""
        self._notice_the_dead()
        return bool(self._stop.value)

    def request_stop(self, ex: BaseException | ExcInfo | None = None) -> None:
        """Requests that all processes stop.

        Args:
            ex: the reason, an exception or what `sys.exc_info()` gives; `join` raises
                that of the first request. After `join` it is raised here.

        Raises:
            TypeError: if `ex` is something else.
        """
        exception = _exception_of(ex)
        if exception is not None:
            if self._joined:
                raise exception
            if not self._stop.value:
                self._report.offer(exception)
        self._stop.value = 1

    def clear_stop(self) -> None:
        """Forgets the request, the exception, that `join` was called and who ended."""
        self._forget_the_ended()
        self._joined = False
        self._report.clear()
        self._stop.value = 0

    @contextlib.contextmanager
    def stop_on_exception(self) -> Iterator[None]:
        """Lets a block end by an exception that is passed to `request_stop` instead."""
        try:
            yield
        except BaseException:
            self.request_stop(sys.exc_info())  # type: ignore[arg-type]

    def wait_for_stop(self, timeout: float | None = None) -> bool:
        """Waits until a stop is requested.

        Args:
            timeout: seconds to wait at most; None for as long as it takes.

        Returns:
            Whether it was.
        """
        end = float("inf") if timeout is None else time.monotonic() + timeout
        while not self.should_stop():
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(_LOOK_AGAIN_SECONDS, left))
        return True

    def raise_requested_exception(self) -> None:
        """Raises the exception that a process reported, if there is one."""
        exception = self._report.read()
        if exception is not None:
            raise exception

    def join(
        self,
        processes: Sequence[process.BaseProcess] | None = None,
        stop_grace_period_secs: float = 120,
        ignore_live_processes: bool = False,
    ) -> None:
        """Waits until all processes have ended, or raises what one of them reported.

        If it is interrupted it stops them first.

        Args:
            processes: started ones to wait for besides those registered.
            stop_grace_period_secs: seconds from the request to stop in which they
                have to end.
            ignore_live_processes: whether those that have not are left alone instead
                of killed.

        Raises:
            ValueError: if `stop_grace_period_secs` is negative.
            RuntimeError: if a process had to be killed, or died; a reported exception
                is raised instead.
        """
        where, name = "Coordinator.join", "stop_grace_period_secs"
        arguments.check_number(where, name, stop_grace_period_secs, low=0)
        for one in () if processes is None else processes:
            self.register_process(one)
        try:
            while not self.should_stop() and (live := self._live()):
                connection.wait([one.sentinel for one in live], _LOOK_AGAIN_SECONDS)
            self._notice_the_dead()
            self._wait_for_end(stop_grace_period_secs)
        except BaseException:
            self._end(min(stop_grace_period_secs, _LAST_GRACE_SECONDS))
            raise
        self._joined = True
        late = self._live()
        if not ignore_live_processes:
            self._end(0.0)
        self._forget_the_ended()
        self.raise_requested_exception()
        if late and not ignore_live_processes:
            raise RuntimeError(
                "`Coordinator.join`: processes expected to end within "
                f"{stop_grace_period_secs} s of the request to stop; got "
                f"{[one.name for one in late]} still running, which were killed; have "
                "them ask `should_stop` more often or give them longer"
            )

    def _live(self) -> list[process.BaseProcess]:
        """Returns the processes that run; of another process, none."""
        if self._pid != os.getpid():
            return []
        running = (one for one in self._processes if _exit_code(one) is None)
        return [one for one in running if one.pid is not None]

    def _notice_the_dead(self) -> None:
        if self._pid != os.getpid() or self._stop.value:
            return
        for one in self._processes:
            code = _exit_code(one)
            if code:
                how = f"exited with code {code}"
                if code < 0:
                    how = f"was killed by {signal.Signals(-code).name}"
                death = RuntimeError(
                    "`Coordinator`: processes expected to run until a stop is "
                    f"requested; got {one.name} (process {one.pid}), which {how}; look "
                    "at what it printed"
                )
                self._report.offer(death)
                self._stop.value = 1

    def _forget_the_ended(self) -> None:
        self._processes = [one for one in self._processes if _exit_code(one) is None]
        if not self._processes:
            _at_work.discard(self)

    def _wait_for_end(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        for one in self._live():
            one.join(max(0.0, end - time.monotonic()))

    def _end(self, grace_seconds: float) -> None:
        """Stops the processes and kills those that are left after the grace."""
        live = self._live()
        if live:
            self._stop.value = 1
        try:
            self._wait_for_end(grace_seconds)
        finally:
            for one in self._live():
                one.kill()
            for one in live:
                one.join()


class Process(context.SpawnProcess):
    """A process that calls a function again and again until it is told to stop.

    It runs `start_loop`, then `run_loop` until the coordinator says stop, then
    `stop_loop`; subclasses override them. An exception stops all processes of the
    coordinator, skips `stop_loop`, and is raised by the coordinator's `join`.

    The process is spawned: what it needs is pickled, functions by name, and the main
    script is imported once more, so guard what it does by
    `if __name__ == "__main__"`. It ends within a second of the process that started
    it, even if that is killed, and even if its own loop hangs. It ignores Ctrl-C
    (SIGINT): it is the starting process that decides. Windows refuses it by an OSError.

    Args:
        coord: the coordinator, in which it registers itself.
        target: function that `run_loop` calls; None for subclasses with their own.
        args: positional arguments of `target`.
        kwargs: keyword arguments of `target`.

    Raises:
        TypeError: if `coord` is no coordinator or `target` cannot be called.

    Example:
        >>> coord = Coordinator()
        >>> process = Process(coord, target=time.sleep, args=[0.01])
        >>> process.start()
        >>> coord.request_stop()
        >>> coord.join()
        >>> process.exitcode
        0
    """

    def __init__(
        self,
        coord: Coordinator,
        target: Callable[..., Any] | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        arguments.check_posix("Process")
        check = arguments.check_type
        check("Process", "coord", coord, Coordinator, "a Coordinator")
        check("Process", "target", target, (Callable, type(None)), "a function")
        self._coord = coord
        self._function, self._arguments = target, (tuple(args), dict(kwargs))
        self._starter, self._started_by_main_thread = 0, False
        coord.register_process(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrives in the new process and ties it to the one that started it."""
        vars(self).update(state)
        # A handler, unlike SIG_IGN, is not handed on to what this process starts.
        signal.signal(signal.SIGINT, _ignore)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        threading.Thread(
            target=_end_with, args=(self._starter,), name="tfrl-parent", daemon=True
        ).start()
        # The thread needs the interpreter, which code in C may hold for ever. Linux
        # does without, but counts from the end of the thread that starts a process.
        if sys.platform == "linux" and self._started_by_main_thread:
            set_parent_death_signal = 1
            ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)

    def start(self) -> None:
        """Starts the process."""
        self._starter = os.getpid()
        main = threading.main_thread()
        self._started_by_main_thread = threading.current_thread() is main
        resource_tracker.ensure_running()  # it would unblock the signal
        # No Ctrl-C while the process is half started, neither here nor there.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def run(self) -> None:
        """Runs the three parts of the loop in the new process."""
        try:
            self.start_loop()
            while not self._coord.should_stop():
                self.run_loop()
            self.stop_loop()
        except Exception as error:
            self._coord._report.offer(error)
            self._coord.request_stop()
            raise

    def start_loop(self) -> None:
        """Is called when the process starts."""

    def run_loop(self) -> None:
        """Is called again and again: calls `body` with the arguments given."""
        self.body(*self._arguments)

    def stop_loop(self) -> None:
        """Is called when the process stops, unless by an exception."""

    def body(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Calls the target once; without one, waits for the request to stop.

        Args:
            args: its positional arguments.
            kwargs: its keyword arguments.
        """
        if self._function is None:
            self._coord.wait_for_stop()
        else:
            self._function(*args, **kwargs)


class _Report:
    """Shared memory for one exception; the copies in spawned processes share it.

    Nobody waits for a lock, so none is lost with a process that is killed.
    """

    def __init__(self) -> None:
        self._size = _spawn.RawValue("q")
        self._bytes = _spawn.RawArray("c", _MOST_BYTES)
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


def _packed(exception: BaseException) -> bytes:
    text = "".join(traceback.format_exception(exception))
    who = f"{multiprocessing.current_process().name} (process {os.getpid()})"
    note = f"Raised in {who}:\n{text[-_MOST_CHARACTERS:]}"
    # Whatever is in an exception, a report of it has to arrive.
    with contextlib.suppress(Exception):
        data = pickle.dumps((pickle.dumps(exception), note))
        if len(data) <= _MOST_BYTES:
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
        f"exception of which only the text could be sent:\n{note}"
    )


def _exit_code(one: process.BaseProcess) -> int | None:
    try:
        return one.exitcode
    except ValueError:  # closed, as only those can be that have ended
        return 0


def _ignore(*_: object) -> None:
    pass


def _end_with(starter: int) -> None:
    while os.getppid() == starter:
        time.sleep(0.2)
    os._exit(1)


@atexit.register
def _end_all() -> None:
    # Before the hook of `multiprocessing`, registered earlier, which waits for ever.
    at_work = [coordinator for coordinator in _at_work if coordinator._live()]
    for coordinator in at_work:
        coordinator.request_stop()
    for coordinator in at_work:
        coordinator._end(_LAST_GRACE_SECONDS)


def _exception_of(ex: Any) -> BaseException | None:
    if ex is None or isinstance(ex, BaseException):
        return ex
    if isinstance(ex, tuple) and len(ex) == 3 and isinstance(ex[1], BaseException):
        return ex[1].with_traceback(ex[2])
    raise TypeError(
        "`Coordinator.request_stop`: `ex` expected an exception, or sys.exc_info() "
        f"inside `except`; got {ex!r}"
    )
