"""Programs that XLA compiled, kept on disk for later processes.

TensorFlow itself writes a file for each, under another name first, and reads it where
the same graph is to be compiled again, which it compares whole. A file that it cannot
read it takes for an error of the program: so all are checked before it is loaded.
"""

import atexit
import contextlib
import hashlib
import importlib.util
import json
import os
import pathlib
import platform
import re
import shutil
import sys
import time

from tfrl._internal import cores

_PLACE = "TFRL_XLA_CACHE"
_SEALS = "sha256.json"
_FINISHED = ".pb"
_FLAG = "tf_xla_persistent_cache_directory"
_MOST_BYTES = 256 << 20
# A full disk would fail TensorFlow's own writing, and with it what is compiled.
_LEAST_FREE_BYTES = 1 << 30
_UNFINISHED_SECONDS = 3600.0
# Where programs are kept, once `keep` has found a place.
_folders: list[pathlib.Path] = []


def keep() -> None:
    """Has TensorFlow keep what XLA compiles for the CPU; before it is loaded.

    In `tfrl/xla` of the user's cache folder (`XDG_CACHE_HOME`, `~/.cache`), or where
    the environment variable `TFRL_XLA_CACHE` says; nowhere if that is empty, if
    `TF_XLA_FLAGS` names a folder already, or if nothing can be written there; that is
    said in a line where somebody named the place. Machines and versions of TensorFlow
    have folders of their own. Of all, the files unused for longest are removed beyond
    256 MB.
    """
    flags, root = os.environ.get("TF_XLA_FLAGS", ""), _root()
    if root is None or _FLAG in flags or '"' in str(root):
        return
    try:
        folder = root / _machine()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _shrink(root)
        seal(folder, with_new=False)
        if shutil.disk_usage(folder).free < _LEAST_FREE_BYTES:
            return
    except OSError as error:
        # Kept programs save time, no more: without a folder there are none.
        if _PLACE in os.environ and sys.stderr is not None:
            print(
                f"tfrl: warning: `{_PLACE}` expected a folder that can be written to; "
                f"got {os.environ[_PLACE]!r} ({error.strerror}); all is compiled anew",
                file=sys.stderr,
            )
        return
    _folders[:] = [folder]
    atexit.register(seal_new)
    mine = f'--{_FLAG}="{folder}"'
    kinds = "--tf_xla_persistent_cache_device_types=CPU"
    os.environ["TF_XLA_FLAGS"] = f"{flags} {mine} {kinds}".strip()


def are_kept() -> bool:
    """Whether TensorFlow keeps programs, here or where its own flags say."""
    return _FLAG in os.environ.get("TF_XLA_FLAGS", "")


def seal(folder: pathlib.Path, *, with_new: bool) -> None:
    """Writes the digests of the programs in a folder, and removes all others.

    Args:
        folder: where they are.
        with_new: whether programs without a digest get one, as those that this process
            has made, and those with one are not read again; else they are of one that
            was killed, and nobody knows what became of them since.
    """
    try:
        before = dict(json.loads((folder / _SEALS).read_bytes()))
    except (OSError, ValueError, TypeError):
        before = {}
    after = {}
    for path in folder.glob(f"*{_FINISHED}"):
        digest = before.get(path.name) if with_new else None
        try:
            digest = digest or hashlib.sha256(_read(path)).hexdigest()
        except FileNotFoundError:  # another process has removed it
            continue
        if before.get(path.name, digest if with_new else None) == digest:
            after[path.name] = digest
        else:
            path.unlink(missing_ok=True)
    if after != before:
        fresh = folder / f"{_SEALS}.{os.getpid()}"
        fresh.write_text(json.dumps(after))
        fresh.replace(folder / _SEALS)


def seal_new() -> None:
    """Seals what has been kept so far, so that it outlives a kill of this process.

    Example:
        >>> seal_new()  # nothing, where nothing is kept
    """
    for folder in _folders:
        # Without digests all is compiled anew, no more.
        with contextlib.suppress(OSError):
            seal(folder, with_new=True)


def _read(path: pathlib.Path) -> bytes:
    """The content; that it was looked at is no use, and leaves no mark."""
    quietly = getattr(os, "O_NOATIME", 0)
    with open(path, "rb", opener=lambda p, flags: os.open(p, flags | quietly)) as file:
        return file.read()


def _shrink(root: pathlib.Path) -> None:
    """Removes what nobody finished, and beyond a size what was not used for longest."""
    known = {}
    for path in root.glob("*/*"):
        with contextlib.suppress(FileNotFoundError):  # another process may remove it
            known[path] = path.stat()
    size, now = 0, time.time()
    by_use = sorted(known, key=lambda x: max(known[x].st_atime, known[x].st_mtime))
    for path in reversed(by_use):
        size += known[path].st_size
        is_stale = now - known[path].st_mtime > _UNFINISHED_SECONDS
        unfinished = path.suffix != _FINISHED and path.name != _SEALS
        if size > _MOST_BYTES or (unfinished and is_stale):
            path.unlink(missing_ok=True)


def _machine() -> str:
    """The name of a folder for this processor, its settings and this TensorFlow."""
    cpu = pathlib.Path("/proc/cpuinfo")
    text = cpu.read_text().split("\n\n")[0] if cpu.exists() else platform.processor()
    # Neither the clock's rate nor the number of a core tells programs apart.
    told = "flags|Features|model|stepping|cpu family|CPU "
    lines = [line for line in text.splitlines() if re.match(told, line)]
    spec = importlib.util.find_spec("tensorflow")
    place = pathlib.Path(spec.origin if spec and spec.origin else "").parent
    wheels = sorted(x.name for x in place.parent.glob("tensorflow*.dist-info"))
    names = ("TF_NUM_INTRAOP_THREADS", "TF_ENABLE_ONEDNN_OPTS", "XLA_FLAGS")
    settings = [cores.n_cores(), *map(os.environ.get, (*names, "TF_XLA_FLAGS"))]
    what = [platform.machine(), lines, wheels or str(place), settings]
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


def _root() -> pathlib.Path | None:
    place = os.environ.get(_PLACE)
    if place is not None:
        return pathlib.Path(place).expanduser().absolute() if place else None
    caches = pathlib.Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        caches = caches if caches.is_absolute() else pathlib.Path.home() / ".cache"
    except RuntimeError:
        return None
    return caches / "tfrl" / "xla"
