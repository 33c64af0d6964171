"""Which processes run."""

import os
import pathlib
import time


def alive(pid):
    """Whether a process runs; the dead that nobody buried do not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(*pids, seconds=5.0):
    """Whether processes end soon."""
    end = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.01)
    return not any(map(alive, pids))


def children(pid):
    """Those that a process started and that run."""
    text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def marked(mark):
    """Those whose environment has a variable of this name, this one left out."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        pid = int(folder.name)
        if f"{mark}=1".encode() in variables and pid != os.getpid() and alive(pid):
            found.append(pid)
    return found
