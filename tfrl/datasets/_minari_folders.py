"""Folders of Minari sets: of which name, and that none is left half written."""

import contextlib
import pathlib
import shutil
from collections.abc import Iterator

from tfrl._internal import arguments


def folder_of(where: str, argument: str, name: str) -> pathlib.Path:
    """Returns where a Minari set of a name lies.

    Args:
        where: function that asks, for the message.
        argument: of it, that has the name.
        name: of the set.

    Raises:
        ImportError: without the package `minari` (extra `tfrl[minari]`).
        ValueError: if Minari takes no such name.
    """
    sets = arguments.imported(where, "minari.dataset.minari_dataset", *["minari"] * 2)
    try:
        sets.parse_dataset_id(name)
    except (ValueError, TypeError) as error:  # the latter without a version
        raise ValueError(
            f"`{where}`: `{argument}` expected [NAMESPACE/]NAME-vN, a namespace of at "
            f"least two letters, such as cartpole/mixed-v0; got {name!r}"
        ) from error
    storage = arguments.imported(where, "minari.storage", *["minari"] * 2)
    return pathlib.Path(storage.get_dataset_path(name))


@contextlib.contextmanager
def undone_if_it_fails(folder: pathlib.Path) -> Iterator[None]:
    """Removes a new folder of a set, and of its namespaces, that an error leaves.

    Args:
        folder: of the set; what is there already, stays.
    """
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        yield
    except BaseException:
        for each in new:
            if each == folder:
                shutil.rmtree(each, ignore_errors=True)
                continue
            with contextlib.suppress(OSError):
                if {x.name for x in each.iterdir()} <= {"namespace_metadata.json"}:
                    shutil.rmtree(each)
        raise
