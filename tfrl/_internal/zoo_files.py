"""Where the configurations of the zoo are, without what it takes to read them."""

import importlib.metadata
import os
import pathlib

_ROOT = pathlib.Path(__file__).parents[2]


def places() -> list[pathlib.Path]:
    """Returns folders that may have them: of the clone, or of this very installation.

    Example:
        >>> all(place.name == "configs" for place in places())
        True
    """
    # `pip install --target` moves them beside the package, and its list keeps the old
    # places.
    found = [_ROOT / "configs", _ROOT / "share" / "tfrl" / "configs"]
    for each in importlib.metadata.distributions(name="tfrl", path=[str(_ROOT)]):
        for file in each.files or ():
            if file.match("share/tfrl/configs/*.gin"):
                place = os.path.normpath(str(each.locate_file(file)))
                found.append(pathlib.Path(place).parent)
    return list(dict.fromkeys(found))


def folder() -> pathlib.Path | None:
    """Returns the first of them with gin files; None if there is none."""
    return next((place for place in places() if any(place.glob("*.gin"))), None)


def found(config: str) -> str:
    """Returns the path of a configuration, which may be one of the zoo.

    Args:
        config: a file, or a name of the zoo, as `ppo_cartpole`, `ppo_cartpole.gin` or
            `configs/ppo_cartpole.gin`, where there is no such file.

    Returns:
        It, or that of the zoo.

    Example:
        >>> found("absent.gin")
        'absent.gin'
    """
    path = pathlib.PurePath(config)
    if os.path.isfile(config) or str(path.parent) not in (".", "configs"):
        return config
    place = folder()
    known = None if place is None else place / f"{path.name.removesuffix('.gin')}.gin"
    return config if known is None or not known.is_file() else str(known)


def included(name: str, by: str | os.PathLike[str]) -> pathlib.Path:
    """Returns the path of a file that another includes.

    Args:
        name: as the `include` has it.
        by: path of the file that has it.

    Returns:
        That beside the other; else that in the working directory; else that of the
        zoo; what was asked for, if it is nowhere.

    Example:
        >>> str(included("absent.gin", "some/run.gin"))
        'absent.gin'
    """
    beside = pathlib.Path(by).parent / name
    return beside if beside.exists() else pathlib.Path(found(name))
