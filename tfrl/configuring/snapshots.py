"""The source code of a run: its revision, its difference, and a copy that runs again.

A snapshot is an archive for each package, `tfrl.tar.gz` among them, in the folder of
the run. It holds programs: restoring runs nothing and writes nothing outside of its
folder, but importing what was restored does what its author wrote.
"""

import contextlib
import gzip
import io
import os
import pathlib
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping

from tfrl._internal import durable

_PACKAGE = __name__.split(".")[0]
_FOLDER = "snapshot"
_SUFFIX = ".tar.gz"
_SOURCES = (".py", ".gin", ".json", ".so")
_MOST_BYTES = 2**28
# Further packages. The second name is the one that existing launch scripts export.
_VARIABLES = ("TFRL_SNAPSHOT_REPO_ROOTS", "ALF_SNAPSHOT_REPO_ROOTS")
_CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")
_CONTROL_GROUPS = ("/proc/self/cgroup", "/proc/1/cgroup")
_CONTAINER_WORDS = ("docker", "containerd", "kubepods", "libpod")
_GIT_SECONDS = 60


def package_root() -> str:
    """Returns the folder that holds the package `tfrl`.

    Returns:
        Its absolute path: what has to be on `PYTHONPATH`.

    Example:
        >>> is_repo_root(package_root(), "tfrl")
        True
    """
    return str(pathlib.Path(__file__).resolve().parents[2])


def is_repo_root(dir: durable.Path, module_name: str) -> bool:
    """Whether a folder holds a package.

    Args:
        dir: the folder.
        module_name: the name of the package.

    Returns:
        True if `dir/module_name/__init__.py` is a file.

    Example:
        >>> is_repo_root("no/such/folder", "tfrl")
        False
    """
    return pathlib.Path(dir, module_name, "__init__.py").is_file()


def snapshot_repo_roots() -> dict[str, str]:
    """Returns the further packages that belong into a snapshot.

    They stand in the environment variable `TFRL_SNAPSHOT_REPO_ROOTS` (or
    `ALF_SNAPSHOT_REPO_ROOTS`):

        export TFRL_SNAPSHOT_REPO_ROOTS="mine=/code/mine:other=/code/other"

    The folder named is the one that holds the package's folder.

    Returns:
        Names of packages and the folders that hold them, without tfrl itself; none if
        the variable is not set.

    Raises:
        ValueError: if the variable says something else, or one package twice.

    Example:
        >>> snapshot_repo_roots()
        {}
    """
    variable = next((name for name in _VARIABLES if os.environ.get(name)), None)
    roots: dict[str, str] = {}
    for pair in os.environ[variable].split(":") if variable else ():
        name, equals, root = pair.partition("=")
        if not (name.isidentifier() and equals and root) or name in roots:
            raise ValueError(
                f"`snapshot_repo_roots`: `{variable}` expected pairs "
                f"'<package>=<folder>' joined by ':', each package once; got {pair!r}"
            )
        roots[name] = root
    roots.pop(_PACKAGE, None)
    return roots


def generate_snapshot(
    alf_root: durable.Path | None,
    conf_file: durable.Path | None,
    dest_path: durable.Path,
) -> None:
    """Archives the source of tfrl and of `snapshot_repo_roots()` in a folder.

    Of each package `*.py`, `*.gin`, `*.json` and `*.so` are kept in
    `<package>.tar.gz`. The same files give the same archive, bit for bit.

    Args:
        alf_root: the folder that holds the package tfrl; None for `package_root()`.
        conf_file: a configuration to be copied beside the archives; None for none.
        dest_path: where to, the folder of the run; made if it does not exist.

    Raises:
        OSError: if a file cannot be read or written.
        ValueError: if a folder does not hold its package, `dest_path` is inside of a
            package, or a package is larger than `unzip_snapshot` takes.

    Example:
        >>> folder = tempfile.mkdtemp()
        >>> generate_snapshot(package_root(), None, folder)
        >>> os.listdir(folder)
        ['tfrl.tar.gz']
    """
    where = "generate_snapshot"
    own = package_root() if alf_root is None else alf_root
    roots: dict[str, durable.Path] = {_PACKAGE: own, **snapshot_repo_roots()}
    target = pathlib.Path(dest_path).resolve()
    for name, root in roots.items():
        if not is_repo_root(root, name):
            raise ValueError(
                f"`{where}`: `{name}` expected in a folder that holds "
                f"'{name}/__init__.py'; got {str(root)!r}"
            )
        if target.is_relative_to(pathlib.Path(root, name).resolve()):
            raise ValueError(
                f"`{where}`: `dest_path` expected outside of the package {name!r}; got "
                f"{str(dest_path)!r}"
            )
    if conf_file is not None and not pathlib.Path(conf_file).is_file():
        raise ValueError(
            f"`{where}`: `conf_file` expected a file or None; got {str(conf_file)!r}"
        )
    files = {f"{name}{_SUFFIX}": _packed(root, name) for name, root in roots.items()}
    if conf_file is not None:
        files[pathlib.Path(conf_file).name] = pathlib.Path(conf_file).read_bytes()
    target.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        durable.replace_file(target / name, data)


def _packed(root: durable.Path, package: str) -> bytes:
    """An archive of the source; links are kept as the files that they lead to."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(_sources(pathlib.Path(root, package), ())):
            data = path.read_bytes()
            # Times and owners are left at their defaults: they are not source.
            member = tarfile.TarInfo(path.relative_to(root).as_posix())
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    if content.tell() > _MOST_BYTES:
        raise ValueError(
            f"`generate_snapshot`: `{package}` expected at most {_MOST_BYTES} bytes of "
            f"source; got {content.tell()} in {str(root)!r}; move data elsewhere"
        )
    return gzip.compress(content.getvalue(), mtime=0)


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
        elif path.suffix in _SOURCES and path.is_file():
            yield path


def unzip_snapshot(root_dir: durable.Path) -> None:
    """Restores a snapshot: the packages appear in `root_dir/snapshot`.

    Every `<package>.tar.gz` in `root_dir` is restored. Nothing changes if all is there
    already, as in the archives. Archives with links, devices, paths that lead
    elsewhere, or more than 256 MiB are refused.

    Args:
        root_dir: the folder of the run, where `generate_snapshot` put the archives.

    Raises:
        OSError: if a file cannot be read or written.
        ValueError: if there is no archive of tfrl, or one is damaged or refused;
            nothing has been restored then.

    Example:
        >>> folder = tempfile.mkdtemp()
        >>> generate_snapshot(None, None, folder)
        >>> unzip_snapshot(folder)
        >>> is_repo_root(pathlib.Path(folder, "snapshot"), "tfrl")
        True
    """
    _restore("unzip_snapshot", pathlib.Path(root_dir))


def get_snapshot_env_vars(root_dir: durable.Path) -> dict[str, str]:
    """Returns environment variables by which a process imports the snapshot.

    The snapshot is restored if it is not. Give them to `subprocess.run(..., env=...)`.

    Args:
        root_dir: the folder of the run, where `generate_snapshot` put the archives.

    Returns:
        All variables of this process, `PYTHONPATH` beginning with the snapshot.

    Raises:
        OSError: as `unzip_snapshot`.
        ValueError: as `unzip_snapshot`; or if the working folder, which `python -m`
            looks into first, holds one of the packages itself.

    Example:
        >>> folder = tempfile.mkdtemp()
        >>> generate_snapshot(None, None, folder)
        >>> with contextlib.chdir(folder):
        ...     variables = get_snapshot_env_vars(folder)
        >>> variables["PYTHONPATH"].split(":")[0] == os.path.join(folder, "snapshot")
        True
    """
    where = "get_snapshot_env_vars"
    folder, names = _restore(where, pathlib.Path(root_dir))
    here = [name for name in names if is_repo_root(".", name)]
    if here:
        raise ValueError(
            f"`{where}`: the working folder expected without the packages of the "
            f"snapshot, as Python looks there first; got {os.getcwd()!r} with {here}; "
            "change to another folder"
        )
    before = os.environ.get("PYTHONPATH")
    path = str(folder) if not before else f"{folder}{os.pathsep}{before}"
    return {**os.environ, "PYTHONPATH": path}


def _restore(where: str, root: pathlib.Path) -> tuple[pathlib.Path, list[str]]:
    """Returns the folder of the packages, and their names."""
    paths = {
        path.name.removesuffix(_SUFFIX): path
        for path in sorted(root.glob(f"*{_SUFFIX}"))
        if path.is_file() and path.name.removesuffix(_SUFFIX).isidentifier()
    }
    if _PACKAGE not in paths:
        raise ValueError(
            f"`{where}`: `root_dir` expected a folder with '{_PACKAGE}{_SUFFIX}'; got "
            f"{str(root)!r}; give the folder of a run that `generate_snapshot` wrote to"
        )
    files: dict[str, bytes] = {}
    for name, path in paths.items():
        try:
            files |= _unpacked(path, name)
        except (ValueError, OSError, EOFError, tarfile.TarError, zlib.error) as error:
            raise ValueError(
                f"`{where}`: `root_dir` expected archives by `generate_snapshot`; got "
                f"{str(path)!r}, in which this is wrong: {error}; take another copy"
            ) from error
    folder = root.absolute() / _FOLDER
    if not _holds(folder, files):
        _put(folder, files)
    return folder, [*paths]


def _unpacked(path: pathlib.Path, package: str) -> dict[str, bytes]:
    # All of it first, for the headers of an archive may ask for any amount of memory.
    with gzip.open(path) as packed:
        content = packed.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"it holds more than {_MOST_BYTES} bytes")
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        for member in archive:
            first, *parts = member.name.split("/")
            if first != package or {"", ".", ".."} & set(parts):
                raise ValueError(f"{member.name!r} is no path in {package!r}")
            is_plain = member.isreg() and not member.issparse()
            file = archive.extractfile(member) if is_plain else None
            if file is not None:
                files[member.name] = file.read()
            elif not member.isdir():
                raise ValueError(f"{member.name!r} is no ordinary file")
    if f"{package}/__init__.py" not in files:
        raise ValueError(f"it holds no package {package!r}")
    return files


def _holds(folder: pathlib.Path, files: Mapping[str, bytes]) -> bool:
    """Whether a folder has these files and no other source."""
    found = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_symlink() or (path.is_file() and path.suffix != ".pyc")
    }
    return found == set(files) and all(
        (folder / name).read_bytes() == data for name, data in files.items()
    )


def _put(folder: pathlib.Path, files: Mapping[str, bytes]) -> None:
    """Puts a folder of these files in the place of what may be there."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".snapshot-") as room:
        new, old = pathlib.Path(room, "new"), pathlib.Path(room, "old")
        for name, data in files.items():
            path = new / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        with contextlib.suppress(FileNotFoundError):
            os.rename(folder, old)
        try:
            os.rename(new, folder)
        except OSError:
            # Another process may just have put the same there.
            if not _holds(folder, files):
                raise


def get_revision(module_root: durable.Path) -> str:
    """Returns the revision of the git repository that a folder belongs to.

    Args:
        module_root: the folder.

    Returns:
        The full hash of its commit.

    Raises:
        ValueError: if the folder belongs to no repository, or one without a commit, or
            git is missing.

    Example:
        >>> get_revision("/")
        Traceback (most recent call last):
        ...
        ValueError: `get_revision`: `module_root` expected a folder of a git repository;
        got '/': fatal: not a git repository ...
    """
    return _git("get_revision", module_root, "rev-parse", "--verify", "HEAD").strip()


def get_diff(module_root: durable.Path) -> str:
    """Returns what differs from the last commit in the repository of a folder.

    Only files that are in the commit and were modified count: what is new, or was not
    added to git, is left out, and so are changes of files' modes.

    Args:
        module_root: the folder.

    Returns:
        The text of `git diff`; empty if nothing was modified.

    Raises:
        ValueError: as `get_revision`.

    Example:
        >>> get_diff("/")
        Traceback (most recent call last):
        ...
        ValueError: `get_diff`: `module_root` expected a folder of a git repository; got
        '/': fatal: not a git repository ...
    """
    options = ["--no-color", "--no-ext-diff", "--no-textconv", "--diff-filter=M"]
    # Outside of a repository `git diff` compares paths instead of complaining.
    _git("get_diff", module_root, "rev-parse", "--verify", "HEAD")
    return _git("get_diff", module_root, "diff", *options, "HEAD", "--")


def _git(where: str, root: durable.Path, *arguments: str) -> str:
    # In a git hook these would lead to another repository.
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    # A monitor of file changes is a program that the repository names.
    settings = ["-c", "core.fileMode=false", "-c", "core.fsmonitor=false"]
    try:
        return subprocess.run(
            ["git", *settings, "-C", os.fspath(root), *arguments],
            env={**inherited, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=True,
            text=True,
            errors="replace",
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        # What git itself says, or that there is no git, or that it took too long.
        reason = (getattr(error, "stderr", None) or str(error)).strip()
        raise ValueError(
            f"`{where}`: `module_root` expected a folder of a git repository; got "
            f"{str(root)!r}: {reason}"
        ) from error


def is_inside_docker_container() -> bool:
    """Whether this process runs inside a container of Docker or its kin.

    Returns:
        True if the marker file of Docker or Podman exists, or a control group is named
        after a container.

    Example:
        >>> is_inside_docker_container() in (True, False)
        True
    """
    if any(os.path.exists(path) for path in _CONTAINER_FILES):
        return True
    for path in _CONTROL_GROUPS:
        with contextlib.suppress(OSError):
            text = pathlib.Path(path).read_text(errors="replace")
            if any(word in text for word in _CONTAINER_WORDS):
                return True
    return False
