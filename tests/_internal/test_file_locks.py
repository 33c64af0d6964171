"""Tests of `tfrl._internal.file_locks`, and of systems without POSIX files."""

import errno
import os
import subprocess
import sys
import textwrap

import pytest

from tfrl._internal import durable, file_locks

# What Windows does not have, and some modules that use it.
BARE = """
import os, signal, sys
for name in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules[name] = None
for name in ("register_at_fork", "fork", "killpg", "O_DIRECT", "memfd_create", "pread",
             "pwrite", "posix_fallocate", "getuid", "setsid"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("pthread_sigmask", "SIGKILL", "SIGHUP", "SIGALRM", "SIGUSR1"):
    if hasattr(signal, name):
        delattr(signal, name)
"""

IMPORTS = """
import importlib, pathlib
import tfrl
root = pathlib.Path(tfrl.__file__).parent
for path in sorted(root.rglob("*.py")):
    if path.stem != "__main__":
        parts = path.relative_to(root.parent).with_suffix("").parts
        importlib.import_module(".".join(parts).removesuffix(".__init__"))
"""

CALLS = """
import pathlib
from tfrl import distribute
from tfrl._internal import durable
folder = pathlib.Path(sys.argv[1])

def refused(call, message):
    try:
        call()
    except OSError as error:
        if message not in str(error):
            raise
    else:
        raise SystemExit(f"{message}: not refused")

durable.replace_file(folder / "a", b"1")
durable.replace_file(folder / "a", b"2")
with durable.new_folder(folder / "new") as new:
    (new / "b").write_bytes(b"3")
durable.remove_folder(folder / "new")
left = [(path.name, path.read_bytes()) for path in folder.iterdir()]
if left != [("a", b"2")]:
    raise SystemExit(left)
refused(lambda: durable.shared_folder(folder).__enter__(), "a system with file locks")
refused(lambda: distribute.LoneProcess(print), "`LoneProcess`: expected a POSIX")
refused(lambda: distribute.Process(distribute.Coordinator()), "`Process`: expected")
port = distribute.get_unused_port(20000)
refused(port.__enter__, "`get_unused_port`: expected a POSIX")
"""


def run(code, *arguments):
    command = [sys.executable, "-c", BARE + code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, textwrap.shorten(done.stderr[-2000:], 2000)


def test_every_file_can_be_imported_without_posix():
    run(IMPORTS)


def test_what_does_not_work_without_posix_says_so(tmp_path):
    run(CALLS, str(tmp_path))


def test_locks(tmp_path):
    files = [os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT) for _ in range(2)]
    file_locks.lock_file(files[0], shared=True)
    file_locks.lock_file(files[1], shared=True, wait=False)
    with pytest.raises(BlockingIOError):
        file_locks.lock_file(files[1], wait=False)
    file_locks.unlock_file(files[0])
    file_locks.lock_file(files[1], wait=False)
    for file in files:
        os.close(file)


class Msvcrt:
    """The locks of Windows as far as they are used: one holder, no waiting."""

    LK_NBLCK, LK_UNLCK = 1, 2

    def __init__(self):
        self.held = {}

    def locking(self, file, action, count):
        place = os.fstat(file).st_ino, os.lseek(file, 0, os.SEEK_CUR), count
        if action == self.LK_UNLCK:
            del self.held[place]
        elif self.held.setdefault(place, file) != file:
            raise OSError(errno.EACCES, "Permission denied")


def test_locks_of_windows(tmp_path, monkeypatch):
    monkeypatch.setattr(file_locks, "_fcntl", None)
    monkeypatch.setattr(file_locks, "_msvcrt", Msvcrt())
    files = [os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT) for _ in range(2)]
    os.write(files[0], b"text")
    file_locks.lock_file(files[0])
    assert os.lseek(files[0], 0, os.SEEK_CUR) == 4
    with pytest.raises(BlockingIOError):
        file_locks.lock_file(files[1], wait=False)
    file_locks.unlock_file(files[0])
    file_locks.lock_file(files[1], shared=True)
    file_locks.unlock_file(files[1])
    for file in files:
        os.close(file)
    durable.replace_file(tmp_path / "a", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    with durable.shared_folder(tmp_path):
        (tmp_path / ".writing-b").write_bytes(b"left by a killed process")
        durable.replace_file(tmp_path / "b", b"1")
    assert not file_locks.has_posix_files()
