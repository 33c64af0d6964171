"""The process that trains one seed of several, and what it has said so far."""

import csv
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tfrl._internal import durable, parents

_TAIL_BYTES = 1 << 16
# How a process ends that refuses what it is given, and one whose run breaks off.
BAD_INPUT = 2
# What a process writes first of all where a run begins, or goes on.
_OF_A_RUN = "run.json", "metrics.csv"
_THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


class SeedProcess:
    """The process that trains one seed.

    Args:
        seed: of the run.
        folder: of all runs.
        known: what was recorded of the seed before.

    Attributes:
        name: of its folder.
        status: "waiting", "running" (also where `holder` tells of another process),
            "done", "failed" or "interrupted".
        cpu_seconds: that its processes have used, those before too.
        exit: status of the process that ended last; None before one did.
        was_started: whether a process was started, by this one.
        was_refused: whether that of now refused what it was given, so that nothing of
            a run was written, and none went on.
    """

    def __init__(
        self, seed: int, folder: pathlib.Path, known: Mapping[str, Any]
    ) -> None:
        self.name = f"seed_{seed}"
        self.seed, self.run = seed, folder / self.name
        self.log = folder / f"{self.name}.log"
        status = known.get("status")
        # Without a checkpoint there is nothing that others could go on with, or open.
        is_known = status == "failed" or (status == "done" and self.is_saved)
        self.status = str(status) if is_known else "waiting"
        self.cpu_seconds = float(known.get("cpu_seconds", 0.0))
        self.exit: int | None = known.get("exit")
        self.was_started = self.was_refused = False
        self._began = self._written()
        self._process: subprocess.Popen[bytes] | None = None
        self._read = 0

    def start(self, again: Sequence[str], anew: Sequence[str], cores: int) -> None:
        """Starts the process: with other arguments where something was saved."""
        self.was_started, self._began = True, self._written()
        command = [sys.executable, "-m", "tfrl.rl_trainer"]
        command += [*again, "--resume"] if self.is_saved else anew
        command += [f"--config=train_rl.seed = {self.seed}"]
        command += [f"--output_dir={self.run}"]
        threads = {name: str(cores) for name in _THREADS if name not in os.environ}
        self._read = self.log.stat().st_size if self.log.exists() else 0
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **threads, **parents.variables()},
                # Ctrl-C reaches it once, from here.
                start_new_session=True,
            )
        self.status = "running"

    def holder(self) -> str | None:
        """Returns which other process is at work on the run; None if there is none."""
        try:
            with open(self.run / "run.lock", "rb+") as lock:
                try:
                    durable.lock_file(lock.fileno(), wait=False)
                except BlockingIOError:
                    return lock.read(4096).decode("utf-8", "replace").strip()
        except FileNotFoundError:
            pass
        return None

    def signal(self, number: int) -> None:
        """Asks the process to end."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    def has_ended(self, is_asked: bool) -> bool:
        """Whether the process is over; then what became of it is known."""
        process = self._process
        if process is None:
            return False
        if hasattr(os, "wait4"):
            number, status, used = os.wait4(process.pid, os.WNOHANG)
            if number == 0:
                return False
            process.returncode = os.waitstatus_to_exitcode(status)
            self.cpu_seconds += used.ru_utime + used.ru_stime
        elif process.poll() is None:
            return False
        self.exit, self._process = process.returncode, None
        self.was_refused = self.exit == BAD_INPUT and not self.has_begun
        ended = "interrupted" if is_asked or self.exit == 130 else "failed"
        self.status = "done" if self.exit == 0 else ended
        return True

    @property
    def is_saved(self) -> bool:
        """Whether there is a checkpoint to go on with."""
        return any((self.run / "checkpoints").glob("step-*"))

    @property
    def has_begun(self) -> bool:
        """Whether the process started last began a run, or went on with one."""
        return self.was_started and self._written() != self._began

    @property
    def has_run(self) -> bool:
        """Whether there is anything of a run, of this process or an earlier one."""
        return any(self._written()) or (self.run / "checkpoints").exists()

    def _written(self) -> tuple[int, ...]:
        """When what is written first of a run was written last; 0 for never."""
        files = [self.run / name for name in _OF_A_RUN]
        return tuple(x.stat().st_mtime_ns if x.exists() else 0 for x in files)

    def said(self) -> list[str]:
        """The whole lines that the process wrote since this was asked last."""
        with open(self.log, "rb") as log:
            log.seek(self._read)
            text = log.read()
        text = text[: text.rfind(b"\n") + 1]
        self._read += len(text)
        return text.decode("utf-8", "replace").splitlines()

    def reason(self) -> str:
        """The last line of the log, an error if there is one."""
        lines = self.log.read_text("utf-8", "replace").splitlines()
        errors = [line for line in lines if "error: " in line.lower()]
        return ["nothing said", *filter(str.strip, lines), *errors][-1].strip()

    def last_row(self) -> dict[str, float]:
        """What the last row of `metrics.csv` says; nothing before there is one."""
        try:
            with open(self.run / "metrics.csv", "rb") as rows:
                names = rows.readline().decode()
                rows.seek(
                    max(rows.tell(), os.fstat(rows.fileno()).st_size - _TAIL_BYTES)
                )
                text = rows.read().decode()
        except (OSError, UnicodeDecodeError):
            return {}
        whole = text[: text.rfind("\n") + 1].splitlines()
        if not whole:
            return {}
        header, row = csv.reader([names.rstrip("\n"), whole[-1]])
        return {k: float(x) for k, x in zip(header, row, strict=False) if x}
