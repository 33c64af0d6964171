"""Where a run's configuration lies: found, read, parsed, copied and written.

A program that defines flags of these names with absl has them looked at: `conf` and
`gin_file` (files), `root_dir` (folder of the run), `conf_param` and `gin_param`
(further bindings).
"""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags

from tfrl._internal import durable
from tfrl.configuring import configs

_WRITTEN = "configured.gin"


def abs_path(path: durable.Path) -> str:
    """Returns an absolute path, with `~` expanded.

    Args:
        path: any path.

    Returns:
        The path, without `..`.

    Example:
        >>> abs_path("/a/b/../c")
        '/a/c'
    """
    return os.path.abspath(os.path.expanduser(path))


def get_conf_file(root_dir: durable.Path | None = None) -> str | None:
    """Finds the configuration of a run.

    It is the file of the flag `conf`; else of the flag `gin_file`; else, in the folder
    of the run, `configured.gin`, `config.gin` or the only gin file.

    Args:
        root_dir: folder of the run; the flag `root_dir` if None.

    Returns:
        Its absolute path; None if there is none.

    Raises:
        ValueError: if several could be meant.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> get_conf_file(folder) is None
        True
        >>> _ = configs.write(folder)
        >>> os.path.basename(get_conf_file(folder))
        'config.gin'
    """
    for flag in ("conf", "gin_file"):
        if value := _flag(flag):
            return _only(f"flag {flag}", _as_list(value))
    root_dir = _flag("root_dir") if root_dir is None else root_dir
    if root_dir is None:
        return None
    found = _gin_files(root_dir)
    for name in (_WRITTEN, "config.gin"):
        if (path := os.path.join(abs_path(root_dir), name)) in found:
            return path
    return _only("`root_dir`", found) if found else None


def get_gin_file() -> str | list[str]:
    """Finds the gin files of a run.

    Returns:
        The paths in the flag `gin_file`; without them, those of all gin files in the
        folder of the flag `root_dir`; "" where no flag `gin_file` is defined.

    Raises:
        ValueError: if there are none.

    Example:
        >>> get_gin_file()
        ''
    """
    if not (flags.FLAGS.is_parsed() and "gin_file" in flags.FLAGS):
        return ""
    if value := _flag("gin_file"):
        return _as_list(value)
    root_dir = _flag("root_dir")
    found = [] if root_dir is None else _gin_files(root_dir)
    if not found:
        raise ValueError(
            f"`get_gin_file`: flag gin_file expected a file; got none, and none in "
            f"root_dir {root_dir!r}; pass --gin_file"
        )
    return found


def parse_conf_file(conf_file: durable.Path) -> None:
    """Parses a gin file, and the bindings of the flags `gin_param` and `conf_param`.

    See `parse`, also for what a gin file can do. No environment is made: gin makes one
    where the configuration refers to it; random generators are seeded by what is built.

    Args:
        conf_file: path of the file.

    Raises:
        ValueError: as `parse`; if it is a file of Python, which is not executed.

    Example:
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "run.gin")
        >>> _ = path.write_text("fast = 0.5")
        >>> parse_conf_file(path)
        >>> print(configs.inoperative_config_str().strip())
        fast = 0.5
        >>> configs.clear()
    """
    if pathlib.Path(conf_file).suffix == ".py":
        raise ValueError(
            f"`parse_conf_file`: `conf_file` expected a gin file; got {conf_file}; "
            "write its settings as gin bindings"
        )
    bindings = [*_as_list(_flag("gin_param")), *_as_list(_flag("conf_param"))]
    configs.parse([abs_path(conf_file)], bindings)


def read_conf_file(root_dir: durable.Path) -> str | None:
    """Returns the text of the file that `get_conf_file` finds.

    Args:
        root_dir: folder of the run.

    Returns:
        The text; None if there is no file.

    Raises:
        ValueError: if several could be meant, or the file cannot be read.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> _ = pathlib.Path(folder, "run.gin").write_text("fast = 0.5")
        >>> read_conf_file(folder)
        'fast = 0.5'
    """
    path = get_conf_file(root_dir)
    if path is None:
        return None
    try:
        return pathlib.Path(path).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"`read_conf_file`: `root_dir` expected a gin file that can be read; got "
            f"{path} ({getattr(error, 'strerror', 'no UTF-8 text')})"
        ) from error


def copy_gin_configs(
    root_dir: durable.Path, gin_files: Sequence[durable.Path] | None
) -> None:
    """Copies gin files into a folder, under their own names.

    Args:
        root_dir: the folder; created if missing.
        gin_files: paths; None for none.

    Raises:
        ValueError: if a file cannot be read or two have one name; nothing is written.
        OSError: if the disk refuses.

    Example:
        >>> import tempfile
        >>> source, target = tempfile.mkdtemp(), tempfile.mkdtemp()
        >>> _ = pathlib.Path(source, "run.gin").write_text("fast = 0.5")
        >>> copy_gin_configs(target, [f"{source}/run.gin"])
        >>> os.listdir(target)
        ['run.gin']
    """
    where = "copy_gin_configs"
    if isinstance(gin_files, str):
        raise TypeError(f"`{where}`: `gin_files` expected a list; got {gin_files!r}")
    contents: dict[str, bytes] = {}
    for file in () if gin_files is None else gin_files:
        path = pathlib.Path(abs_path(file))
        if path.name in contents:
            raise ValueError(
                f"`{where}`: `gin_files` expected different names; got {path.name} "
                "twice"
            )
        try:
            contents[path.name] = path.read_bytes()
        except OSError as error:
            raise ValueError(
                f"`{where}`: `gin_files` expected files; got {path} ({error.strerror})"
            ) from error
    folder = pathlib.Path(abs_path(root_dir))
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        durable.replace_file(folder / name, data)


def write_config(root_dir: durable.Path) -> None:
    """Writes everything configured, used or not, to `configured.gin`.

    Bindings from flags are in it, as everything that was parsed.

    Args:
        root_dir: the folder; created if missing.

    Raises:
        OSError: if the disk refuses.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> configs.parse(bindings=["fast = 0.5"])
        >>> write_config(folder)
        >>> read_conf_file(folder).splitlines()[-1]
        'fast = 0.5'
        >>> configs.clear()
    """
    folder = pathlib.Path(abs_path(root_dir))
    folder.mkdir(parents=True, exist_ok=True)
    durable.replace_file(folder / _WRITTEN, configs.configured().encode())


def write_gin_configs(root_dir: durable.Path, gin_file: durable.Path) -> None:
    """Writes the configuration that was used, with all defaults.

    Args:
        root_dir: the folder; created if missing.
        gin_file: path whose last part is the name of the file.

    Raises:
        OSError: if the disk refuses.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> write_gin_configs(folder, "configs/run.gin")
        >>> os.listdir(folder)
        ['run.gin']
    """
    configs.write(abs_path(root_dir), os.path.basename(gin_file))


def _flag(name: str) -> Any:
    """Returns the value of a flag; None if the program has none of the name."""
    if not (flags.FLAGS.is_parsed() and name in flags.FLAGS):
        return None
    return flags.FLAGS[name].value


def _as_list(value: Any) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)


def _gin_files(folder: durable.Path) -> list[str]:
    return sorted(str(path) for path in pathlib.Path(abs_path(folder)).glob("*.gin"))


def _only(what: str, paths: list[str]) -> str:
    if len(paths) > 1:
        raise ValueError(
            f"`get_conf_file`: {what} expected one gin file; got {paths}; name the one"
        )
    return abs_path(paths[0])
