"""What spawned processes of the tests do, and scripts whose end is watched.

`python -m tests.distribute.process_bodies NAME` runs the script of that name, which
prints the ids of its processes and then waits for what befalls it.
"""

import ctypes
import os
import pathlib
import signal
import sys
import threading
import time

from tfrl.distribute import processes


class Note(processes.Process):
    """Appends to a file what is called."""

    def __init__(self, coord, path, stop_after=10**9):
        super().__init__(coord)
        self.path, self.stop_after = path, stop_after

    def note(self, what):
        with open(self.path, "a") as file:
            file.write(f"{what}\n")

    def start_loop(self):
        self.note("start")

    def run_loop(self):
        self.note("run")
        self.stop_after -= 1
        if self.stop_after == 0:
            self._coord.request_stop()

    def stop_loop(self):
        self.note("stop")


class Bare(processes.Process):
    """Has a `run` of its own."""

    def run(self):
        time.sleep(1000)


class FailsAtTheEnd(processes.Process):
    def stop_loop(self):
        raise OSError("cannot close")


class HereOnly(Exception):
    """Cannot be pickled."""

    def __init__(self, message):
        super().__init__(message)
        self.handle = threading.Lock()


class NeedsTwo(Exception):
    """Can be pickled, but not made again."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def fail(kind="lookup"):
    if kind == "here only":
        raise HereOnly("held a lock")
    if kind == "needs two":
        raise NeedsTwo("one", "two")
    if kind == "long":
        raise ValueError("x" * 10**6)
    raise LookupError(f"nothing under {kind}")


def raise_lookup(kind):
    try:
        fail(kind)
    except LookupError as error:
        raise ArithmeticError("no sum") from error


def leave(code):
    os._exit(code)


def leave_by(number):
    os.kill(os.getpid(), number)
    time.sleep(1000)


def wait(coord, path):
    coord.wait_for_stop()
    pathlib.Path(path).write_text("stopped")


def stop(coord):
    with coord.stop_on_exception():
        raise KeyError("from a plain process")


def hang_holding_the_interpreter():
    ctypes.PyDLL(None).sleep(1000)


def announce(started, children):
    for child in children:
        child.start()
    while len(os.listdir(started)) < len(children):
        if any(child.exitcode for child in children):
            break
        time.sleep(0.02)
    print(*(child.pid for child in children), flush=True)


def begin(started, function, *args):
    pathlib.Path(started, str(os.getpid())).touch()
    function(*args)


def script(name, started):
    """Runs children of all kinds; what ends them is in `name` or comes from outside."""
    coord = processes.Coordinator()
    make = [
        [time.sleep, 0.01],
        [time.sleep, 1000],
        [hang_holding_the_interpreter],
    ]
    if name == "thread":
        del make[2]
    if name == "exception in a child":
        make[0] = [fail]
    children = [processes.Process(coord, begin, [started, *one]) for one in make]
    if name == "thread":
        thread = threading.Thread(target=announce, args=(started, children))
        thread.start()
        thread.join()
        time.sleep(1.5)
        print(all(child.is_alive() for child in children), flush=True)
    elif name == "block":
        # Ctrl-C comes as soon as something is announced.
        with coord.stop_on_exception():
            announce(started, children)
            time.sleep(1000)
        try:
            coord.join(stop_grace_period_secs=0.5)
        except KeyboardInterrupt:
            sys.exit("interrupted")
    else:
        announce(started, children)
    if name == "exception":
        raise RuntimeError("of the script")
    if name == "join":
        coord.join(stop_grace_period_secs=0.5)
    if name == "exception in a child":
        coord.join(stop_grace_period_secs=0.5)
    while name in ("loop", "thread"):
        time.sleep(0.1)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    script(*sys.argv[1:])
