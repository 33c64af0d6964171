"""A package's source as one archive, and its files again, whatever the archive says."""

import gzip
import io
import pathlib
import tarfile
import zlib
from collections.abc import Iterator

from tfrl.core import durable

SUFFIX = ".tar.gz"
_SUFFIXES = (".py", ".gin", ".json", ".so")
MOST_BYTES = 2**28
_MOST_FILES = 100_000


def packed(root: durable.Path, name: str) -> bytes:
    """Packs the source of a package, links to files and folders as what they lead to.

    Args:
        root: the folder that holds it.
        name: the package.

    Returns:
        A gzipped tar archive of `name/...`; the same files give the same bytes.

    Raises:
        OSError: if a file cannot be read.
        ValueError: if `unpacked` would refuse the archive.

    Example:
        >>> import tempfile
        >>> root = pathlib.Path(tempfile.mkdtemp())
        >>> (root / "mine").mkdir()
        >>> _ = (root / "mine" / "__init__.py").write_bytes(b"x = 1")
        >>> unpacked(packed(root, "mine"), "mine")
        {'mine/__init__.py': b'x = 1'}
    """
    root = pathlib.Path(root)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(_sources(root / name, ())):
            data = path.read_bytes()
            # Times and owners are left at their defaults: they are not source.
            member = tarfile.TarInfo(path.relative_to(root).as_posix())
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    data = gzip.compress(content.getvalue(), mtime=0)
    unpacked(data, name)
    return data


def _sources(
    folder: pathlib.Path, above: tuple[pathlib.Path, ...]
) -> Iterator[pathlib.Path]:
    real = folder.resolve()
    # A link may lead to a folder that it is in.
    if real in above:
        return
    for path in folder.iterdir():
        if path.is_dir():
            yield from _sources(path, (*above, real))
        elif path.suffix in _SUFFIXES and path.is_file():
            yield path


def unpacked(data: bytes, name: str) -> dict[str, bytes]:
    """Returns the files of an archive.

    Args:
        data: the archive.
        name: the package that it holds.

    Returns:
        Paths `name/...` and contents.

    Raises:
        ValueError: if it is no archive, is damaged or too large, or holds anything but
            ordinary files of that package, each once.

    Example:
        >>> unpacked(b"no archive", "mine")
        Traceback (most recent call last):
        ...
        ValueError: it is no gzipped archive (Not a gzipped file (b'no'))
    """
    # Unpacked first, for the headers of an archive may ask for any amount of memory.
    content = io.BytesIO(_unzipped(data))
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=content, mode="r:") as archive:
            for count, member in enumerate(archive, 1):
                if count > _MOST_FILES:
                    raise ValueError(f"it holds more than {_MOST_FILES} files")
                if member.isdir():
                    continue
                _check(member, name, files)
                file = archive.extractfile(member)
                files[member.name] = b"" if file is None else file.read()
    except ValueError:
        raise
    except Exception as error:
        # The headers of an archive can be wrong in any way.
        raise ValueError(f"it is damaged ({error})") from error
    if f"{name}/__init__.py" not in files:
        raise ValueError(f"it holds no package {name!r}")
    _check_folders(files)
    return files


def _unzipped(data: bytes) -> bytes:
    try:
        with gzip.open(io.BytesIO(data)) as file:
            content = file.read(MOST_BYTES + 1)
            whole = len(content) <= MOST_BYTES
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"it is no gzipped archive ({error})") from error
    if not whole:
        raise ValueError(f"it holds more than {MOST_BYTES} bytes")
    return content


def _check(member: tarfile.TarInfo, name: str, files: dict[str, bytes]) -> None:
    parts = member.name.split("/")
    if not member.isreg() or member.issparse():
        raise ValueError(f"{member.name!r} is no ordinary file")
    if parts[0] != name or len(parts) < 2:
        raise ValueError(f"{member.name!r} does not belong to the package {name!r}")
    if {"", ".", ".."} & set(parts) or not member.name.isprintable():
        raise ValueError(f"{member.name!r} is no plain path")
    if member.name in files:
        raise ValueError(f"{member.name!r} is there twice")


def _check_folders(files: dict[str, bytes]) -> None:
    folders = {str(folder) for name in files for folder in pathlib.Path(name).parents}
    both = sorted(folders & set(files))
    if both:
        raise ValueError(f"{both[0]!r} is a file and a folder")
