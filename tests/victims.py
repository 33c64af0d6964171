"""Processes that are killed while they work, for tests of what must survive that.

A script calls `serve` with what its children can do. A test starts it with `start`:
TensorFlow is then imported once, and each victim is a fork of the script.
"""

import contextlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator


class Victims:
    """Orders to a script that serves, and the answers of its children."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def fork(self, action: str, folder: str | os.PathLike[str]) -> int:
        """Starts one child, the one before being dead; returns its number."""
        self._process.stdin.write(f"{action} {folder}\n")
        self._process.stdin.flush()
        return int(self.answer()[1])

    def answer(self) -> list[str]:
        """Returns the words of the next line: of the child, or `gone` at its end."""
        return self._process.stdout.readline().split()


@contextlib.contextmanager
def start(script: pathlib.Path) -> Iterator[Victims]:
    """Runs a script that calls `serve`."""
    process = subprocess.Popen(
        [sys.executable, script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=pathlib.Path(__file__).parents[1],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": ".:tests"},
        text=True,
    )
    yield Victims(process)
    process.stdin.close()
    process.wait(20)
    process.stdout.close()


def serve(actions: dict[str, Callable[[str], None]]) -> None:
    """Forks a child for each line `<action> <folder>` on the standard input."""
    for line in iter(sys.stdin.readline, ""):
        action, folder = line.split()
        child = os.fork()
        if child == 0:
            try:
                os.write(1, f"pid {os.getpid()}\n".encode())
                actions[action](folder)
            finally:
                os._exit(1)
        os.waitpid(child, 0)
        os.write(1, b"gone\n")
