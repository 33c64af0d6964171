"""The folder `ckpt-<N>` of one checkpoint, and the folder of all of them.

    <ckpt_dir>/ckpt-<N>/arrays.index, arrays.data-00000-of-00001   as TensorFlow writes
                        replay/                                    of `tfrl.replay.save`
                        structure.json

`structure.json` names every part, every array with dtype and shape, and holds the
SHA-256 of the files beside it and its own.
"""

import pathlib
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from tfrl.replay import saving
from tfrl.training import (
    _checkpointed,
    _named_arrays,
    _sealed_folder,
    _typed_json,
)

_FORMAT = 1
_STRUCTURE = "structure.json"
_ARRAYS = "arrays"
_REPLAY = "replay"
_FOLDER = re.compile(r"ckpt-(0|[1-9][0-9]*)")


def steps(folder: pathlib.Path) -> list[int]:
    """Lists the steps of the checkpoints in a folder, ascending.

    Args:
        folder: of all checkpoints.

    Returns:
        The steps.

    Example:
        >>> steps(pathlib.Path("no/such"))
        []
    """
    if not folder.is_dir():
        return []
    matches = (_FOLDER.fullmatch(entry.name) for entry in folder.iterdir())
    return sorted(int(match[1]) for match in matches if match)


def best(folder: pathlib.Path) -> int | None:
    """Finds the checkpoint with the highest score, of equals the newest.

    Args:
        folder: of all checkpoints.

    Returns:
        Its step; None if none has a score that can be read.

    Example:
        >>> best(pathlib.Path("no/such")) is None
        True
    """
    scores = []
    for step in steps(folder):
        try:
            body = _sealed_folder.unseal(folder / f"ckpt-{step}", _STRUCTURE)
        except _sealed_folder.DamageError:
            continue
        if body.get("score") is not None:
            scores.append((body["score"], step))
    return max(scores)[1] if scores else None


def write(
    folder: pathlib.Path, step: int, score: float | None, parts: _checkpointed.Parts
) -> None:
    """Fills the folder of a checkpoint.

    Args:
        folder: which is empty.
        step: of training.
        score: how good it is, or None.
        parts: what is saved.

    Example:
        >>> import tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp()) / "ckpt-3"
        >>> folder.mkdir()
        >>> write(folder, 3, None, _checkpointed.Parts("save", {"w": tf.ones([2])}))
        >>> read("load", folder)["arrays"]
        {'w': ['float32', [2]]}
    """
    _named_arrays.write_arrays(str(folder / _ARRAYS), parts.arrays)
    if parts.replays:
        saving.save(folder / _REPLAY, parts.replays)
    body = {
        "format": _FORMAT,
        "step": step,
        "score": score,
        "arrays": _named_arrays.describe_arrays(parts.arrays),
        "replays": list(parts.replays),
        "generators": {
            name: _typed_json.to_json(generator.bit_generator.state)
            for name, generator in parts.generators.items()
        },
        "kinds": parts.kinds,
    }
    _sealed_folder.seal(folder, _STRUCTURE, body)


def read(where: str, folder: pathlib.Path) -> dict[str, Any]:
    """Reads the structure of a checkpoint, after comparing every digest.

    The folder of buffers has digests of its own, which `read_replays` compares.

    Args:
        where: name of the function that asks.
        folder: of the checkpoint.

    Returns:
        What `write` put into `structure.json`.

    Raises:
        ValueError: if it is damaged or of another format.
    """
    try:
        return _checked(where, folder)
    except _sealed_folder.DamageError as damage:
        raise ValueError(
            f"`{where}`: expected an undamaged checkpoint; got {folder}, damaged "
            f"({damage}); take another one"
        ) from damage


def read_newest(where: str, folder: pathlib.Path) -> dict[str, Any]:
    """Reads the newest checkpoint that is not damaged, as `read`.

    Args:
        where: name of the function that asks.
        folder: of all checkpoints, of which there is at least one.

    Returns:
        What `write` put into `structure.json`.

    Raises:
        ValueError: if all are damaged.
    """
    for step in reversed(steps(folder)):
        path = folder / f"ckpt-{step}"
        try:
            return _checked(where, path)
        except _sealed_folder.DamageError as damage:
            warnings.warn(
                f"`{where}`: {path} is damaged ({damage}); trying an older one",
                stacklevel=3,
            )
    raise ValueError(
        f"`{where}`: expected an undamaged checkpoint; got only damaged ones in "
        f"{folder}; begin anew"
    )


def names(body: Mapping[str, Any]) -> list[str]:
    """Returns the names of all parts of a checkpoint.

    Args:
        body: what `read` returned.

    Returns:
        The names.

    Example:
        >>> names({"arrays": {"w": None}, "replays": [], "generators": {}})
        ['w']
    """
    return [*body["arrays"], *body["replays"], *body["generators"]]


def compare(
    where: str,
    folder: pathlib.Path,
    parts: _checkpointed.Parts,
    body: Mapping[str, Any],
    chosen: Iterable[str],
) -> None:
    """Raises if something has another kind, dtype or shape on the disk.

    Args:
        where: name of the function that asks.
        folder: of the checkpoint.
        parts: what is to be loaded.
        body: what `read` returned.
        chosen: names that are in both.

    Raises:
        ValueError: which names them.
    """
    here: dict[str, Any] = _named_arrays.describe_arrays(parts.arrays)
    here.update(dict.fromkeys(parts.replays, ["a buffer", ""]))
    there: dict[str, Any] = dict(body["arrays"])
    there.update(dict.fromkeys(body["replays"], ["a buffer", ""]))
    for name, generator in parts.generators.items():
        here[name] = ["generator", generator.bit_generator.state["bit_generator"]]
    for name, text in body["generators"].items():
        there[name] = ["generator", _typed_json.from_json(text)["bit_generator"]]
    different = _named_arrays.array_differences(
        {name: there[name] for name in there if name in chosen},
        {name: here[name] for name in here if name in chosen},
    )
    if different:
        raise ValueError(
            f"`{where}`: `global_step` expected objects of the shapes in {folder}; got "
            f"others: {different}; build the objects as they were saved"
        )


def read_arrays(folder: pathlib.Path, leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Reads some arrays, as `_named_arrays.read_arrays`.

    Args:
        folder: of the checkpoint.
        leaves: arrays of the same names, dtypes and shapes.

    Returns:
        The values by name.
    """
    return _named_arrays.read_arrays(str(folder / _ARRAYS), leaves)


def read_replays(folder: pathlib.Path, replays: Mapping[str, tf.Module]) -> None:
    """Loads buffers, or raises and changes none of them.

    Args:
        folder: of the checkpoint.
        replays: by name; none is possible.
    """
    if replays:
        saving.load(folder / _REPLAY, replays)


def is_part(name: str, prefix: str) -> bool:
    """Tells whether a name begins with the words of a prefix.

    Args:
        name: words joined by dots.
        prefix: likewise; "" for all.

    Returns:
        Whether it does.

    Example:
        >>> is_part("net.fc.kernel", "net.fc"), is_part("net.fc2.kernel", "net.fc")
        (True, False)
    """
    return not prefix or f"{name}.".startswith(f"{prefix.removesuffix('.')}.")


def _checked(where: str, folder: pathlib.Path) -> dict[str, Any]:
    body = _sealed_folder.unseal(folder, _STRUCTURE)
    if body["format"] != _FORMAT:
        raise ValueError(
            f"`{where}`: expected checkpoints of format {_FORMAT}; got format "
            f"{body['format']} in {folder}; use the tfrl that wrote it"
        )
    match = _FOLDER.fullmatch(folder.name)
    if match and match[1] != str(body["step"]):
        raise _sealed_folder.DamageError(f"it holds step {body['step']}")
    _sealed_folder.compare_files(folder, body)
    return body
