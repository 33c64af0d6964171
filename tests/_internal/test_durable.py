"""Tests of `tfrl._internal.durable`."""

import concurrent.futures
import errno
import os
import pathlib
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from tfrl._internal import durable


class PowerCut(OSError):
    """What the failing disk of these tests raises."""


def fail_call(monkeypatch, name, number):
    """Makes call `number` of `os.<name>` fail; returns the list of calls made."""
    calls, original = [], getattr(os, name)

    def call(*args, **kwargs):
        calls.append(args)
        if len(calls) - 1 == number:
            raise PowerCut(f"{name} {number}")
        return original(*args, **kwargs)

    monkeypatch.setattr(os, name, call)
    return calls


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_replace_file_replaces_the_whole_content(tmp_path):
    path = tmp_path / "a"
    for content in (b"long content", b"short"):
        durable.replace_file(path, content)
        assert path.read_bytes() == content
    assert names(tmp_path) == ["a"]


def test_check_output_file(tmp_path):
    for path in (tmp_path / "new.png", "plain.PNG", str(tmp_path / "a.b.svg")):
        assert durable.check_output_file("plot", "path", path, [".png", ".svg"]) is None
    with pytest.raises(
        ValueError, match=r"`plot`: `path` expected to end in .png; got"
    ):
        durable.check_output_file("plot", "path", tmp_path / "a.gif", [".png"])
    (tmp_path / "folder.png").mkdir()
    for path in (tmp_path / "absent" / "a.png", tmp_path / "folder.png"):
        with pytest.raises(ValueError, match="`path` expected a file in a folder that"):
            durable.check_output_file("plot", "path", path, [".png"])


def test_what_the_disk_refuses_is_explained():
    with pytest.raises(
        PermissionError, match=r"13\] `save`: `folder` expected .* got No; .*: 'run'"
    ):
        with durable.explain_refusals("save", "folder", pathlib.Path("run")):
            raise OSError(errno.EACCES, "No")


@pytest.mark.parametrize(
    "error", [OSError("`write`: no"), OSError(28, "`save`: no"), KeyError("a")]
)
def test_what_is_explained_stays(error):
    with pytest.raises(type(error)) as found:
        with durable.explain_refusals("save", "folder", "run"):
            raise error
    assert found.value is error


@pytest.mark.parametrize(("call", "number"), [("fsync", 0), ("rename", 0)])
def test_replace_file_keeps_the_old_content_on_failure(
    tmp_path, monkeypatch, call, number
):
    path = tmp_path / "a"
    durable.replace_file(path, b"old")
    fail_call(monkeypatch, call, number)
    with pytest.raises(PowerCut):
        durable.replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_writers_of_one_file_wait_for_each_other(tmp_path):
    path, contents, wrong = tmp_path / "a", [bytes([i]) * 10**6 for i in range(4)], []

    def write(content):
        for _ in range(20):
            durable.replace_file(path, content)
            if path.read_bytes() not in contents:
                wrong.append(content[:1])

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        list(threads.map(write, contents))
    assert not wrong and names(tmp_path) == ["a"]


def test_files_that_are_being_written_are_no_litter(tmp_path, monkeypatch):
    rename = os.rename

    def tidy_up_first(*args):
        with durable.shared_folder(tmp_path):
            rename(*args)

    monkeypatch.setattr(os, "rename", tidy_up_first)
    durable.replace_file(tmp_path / "a", b"new")
    assert names(tmp_path) == [".lock", "a"]


def test_new_folder_appears_only_when_complete(tmp_path):
    with durable.new_folder(tmp_path / "a") as temporary:
        (temporary / "x").write_bytes(b"1")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a" / "x").read_bytes() == b"1"
    assert names(tmp_path) == ["a"]


def test_new_folder_vanishes_when_the_block_raises(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        with durable.new_folder(tmp_path / "a") as temporary:
            (temporary / "x").write_bytes(b"1")
            raise KeyboardInterrupt
    assert names(tmp_path) == []


def test_new_folder_leaves_what_has_the_name(tmp_path):
    with durable.new_folder(tmp_path / "a") as temporary:
        (temporary / "x").write_bytes(b"old")
    with pytest.raises(OSError):
        with durable.new_folder(tmp_path / "a") as temporary:
            (temporary / "x").write_bytes(b"new")
    assert (tmp_path / "a" / "x").read_bytes() == b"old"


def test_remove_folder_renames_first(tmp_path, monkeypatch):
    with durable.new_folder(tmp_path / "a") as temporary:
        (temporary / "x").write_bytes(b"1")

    def stop(path):
        raise PowerCut

    monkeypatch.setattr(durable.shutil, "rmtree", stop)
    with pytest.raises(PowerCut):
        durable.remove_folder(tmp_path / "a")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("reading", [False, True])
def test_shared_folder_removes_litter(tmp_path, reading):
    (tmp_path / ".writing-a").mkdir()
    (tmp_path / ".removing-b").mkdir()
    (tmp_path / ".writing-file").write_bytes(b"part")
    (tmp_path / ".mine").mkdir()
    with durable.shared_folder(tmp_path, reading=reading):
        assert names(tmp_path) == [".lock", ".mine"]


def test_readers_share_and_wait_for_the_writer(tmp_path):
    order = []
    (tmp_path / ".lock").touch()

    def read():
        with durable.shared_folder(tmp_path, reading=True):
            order.append("read")

    with durable.shared_folder(tmp_path):
        (tmp_path / ".writing-live").mkdir()
        reader = threading.Thread(target=read)
        reader.start()
        time.sleep(0.2)
        assert (tmp_path / ".writing-live").is_dir()
        order.append("written")
    reader.join(10)
    assert order == ["written", "read"]
    with durable.shared_folder(tmp_path, reading=True):
        with durable.shared_folder(tmp_path, reading=True):
            pass


def test_shared_folder_reads_where_it_cannot_write(tmp_path, monkeypatch):
    def refuse(*args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with durable.shared_folder(tmp_path, reading=True):
        pass
    with pytest.raises(PermissionError):
        with durable.shared_folder(tmp_path):
            pass


def test_shared_folder_reports_other_troubles_of_readers(tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match="Too many"):
        with durable.shared_folder(tmp_path, reading=True):
            pass


def test_nothing_stays_open(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for i in range(20):
        durable.replace_file(tmp_path / "a", b"1")
        with durable.shared_folder(tmp_path):
            with durable.new_folder(tmp_path / str(i)):
                pass
            durable.remove_folder(tmp_path / str(i))
    assert len(os.listdir("/proc/self/fd")) == before


def test_only_files_are_read(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    assert durable.read_file(tmp_path / "file") == b"content"
    assert durable.read_file(tmp_path / "link") == b"content"
    for name in ("pipe", "."):
        with pytest.raises(OSError, match="no regular file"):
            durable.read_file(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        durable.read_file(tmp_path / "nothing")


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
from tfrl.distribute import lone_process
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
refused(lambda: lone_process.LoneProcess(print), "`LoneProcess`: expected a POSIX")
refused(lambda: distribute.Process(distribute.Coordinator()), "`Process`: expected")
port = distribute.get_unused_port(20000)
refused(port.__enter__, "`get_unused_port`: expected a POSIX")
"""


@pytest.mark.slow
def test_every_file_can_be_imported_without_posix(tmp_path):
    """And what does not work there says so."""
    command = [sys.executable, "-c", BARE + CALLS + IMPORTS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, textwrap.shorten(done.stderr[-2000:], 2000)


def test_locks(tmp_path):
    files = [os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT) for _ in range(2)]
    durable.lock_file(files[0], shared=True)
    durable.lock_file(files[1], shared=True, wait=False)
    with pytest.raises(BlockingIOError):
        durable.lock_file(files[1], wait=False)
    durable.unlock_file(files[0])
    durable.lock_file(files[1], wait=False)
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
    monkeypatch.setattr(durable, "_fcntl", None)
    monkeypatch.setattr(durable, "_msvcrt", Msvcrt())
    files = [os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT) for _ in range(2)]
    os.write(files[0], b"text")
    durable.lock_file(files[0])
    assert os.lseek(files[0], 0, os.SEEK_CUR) == 4
    with pytest.raises(BlockingIOError):
        durable.lock_file(files[1], wait=False)
    durable.unlock_file(files[0])
    durable.lock_file(files[1], shared=True)
    durable.unlock_file(files[1])
    for file in files:
        os.close(file)
    durable.replace_file(tmp_path / "a", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    with durable.shared_folder(tmp_path):
        (tmp_path / ".writing-b").write_bytes(b"left by a killed process")
        durable.replace_file(tmp_path / "b", b"1")
    assert not durable.has_posix_files()
