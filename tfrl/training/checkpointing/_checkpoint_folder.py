"""The folder `ckpt-<N>` of one checkpoint, and the folder of all of them.

    <ckpt_dir>/ckpt-<N>/arrays.index, arrays.data-00000-of-00001   as TensorFlow writes
                        replay/                                    of `tfrl.replay.save`
                        structure.json

`structure.json` names every part, its path through layers, every array with dtype and
shape, and holds the SHA-256 of the files beside it, of the manifest of `replay` and its
own. The bytes of `replay` that did not change since the checkpoint before are shared
with it.
"""

import pathlib
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfrl.core import checks
from tfrl.replay.disk import saving
from tfrl.training.checkpointing import (
    _checkpointed,
    _layer_paths,
    _matching,
    _named_arrays,
    _sealed_folder,
)
from tfrl.training.serializing import _typed_json

_FORMAT = 2
# Without paths, by the names of `_keras_names`.
_OLD_FORMAT = 1
_STRUCTURE = "structure.json"
_ARRAYS = "arrays"
_REPLAY = "replay"
# It has the digests of the others.
_REPLAY_FILE = "replay/manifest.json"
_LIKE = {
    "step": int,
    "score": (float, None),
    "arrays": {str: ([str, [int]], [str, [(int, None)]], [str, None], None)},
    "replays": [str],
    "generators": {str: str},
    "kinds": {str: str},
}
_PATH_LIKE = [(str, [str, str, bool, (int, None)])]
_LIKES = {_OLD_FORMAT: _LIKE, _FORMAT: {**_LIKE, "paths": {str: _PATH_LIKE}}}
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
            body = _sealed_folder.unseal(folder / f"ckpt-{step}", _STRUCTURE, _LIKES)
        except _sealed_folder.DamageError:
            continue
        if body.get("score") is not None:
            scores.append((body["score"], step))
    return max(scores)[1] if scores else None


def meant(where: str, folder: pathlib.Path, global_step: int | str) -> list[int]:
    """Returns the steps of which the first undamaged one is meant.

    Args:
        where: name of the function that asks.
        folder: of all checkpoints.
        global_step: a step, "latest" or "best".

    Returns:
        The steps, which exist.

    Example:
        >>> meant("load", pathlib.Path("no/such"), "best")
        []
    """
    found = steps(folder)
    if isinstance(global_step, str):
        checks.check_one_of(where, "global_step", global_step, ("latest", "best"))
        if global_step == "latest":
            return found[::-1]
        chosen = best(folder)
        return [] if chosen is None else [chosen]
    step = checks.check_whole_number(where, "global_step", global_step, low=0)
    return [step] if step in found else []


def write(
    folder: pathlib.Path,
    step: int,
    score: float | None,
    parts: _checkpointed.Parts,
    before: pathlib.Path | None = None,
) -> None:
    """Fills the folder of a checkpoint.

    Args:
        folder: which is empty.
        step: of training.
        score: how good it is, or None.
        parts: what is saved.
        before: folder of another checkpoint, or None.

    Example:
        >>> import tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp()) / "ckpt-3"
        >>> folder.mkdir()
        >>> write(folder, 3, None, _checkpointed.Parts("save", {"w": tf.ones([2])}))
        >>> _sealed_folder.unseal(folder, "structure.json")["arrays"]
        {'w': ['float32', [2]]}
    """
    _named_arrays.write_arrays(str(folder / _ARRAYS), parts.arrays)
    inner = write_replays(folder, parts.replays, before)
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
        "paths": {n: _layer_paths.to_json(path) for n, path in parts.paths.items()},
    }
    _sealed_folder.seal(folder, _STRUCTURE, body, inner)


def write_replays(
    folder: pathlib.Path,
    replays: Mapping[str, tf.Module],
    before: pathlib.Path | None = None,
) -> list[str]:
    """Saves buffers to a folder in a folder.

    Args:
        folder: with none yet.
        replays: by name; none is possible.
        before: folder to which others were written this way, or the same earlier.

    Returns:
        The files whose digests `_sealed_folder` has to know.
    """
    if not replays:
        return []
    base = None if before is None else before / _REPLAY
    saving.save(folder / _REPLAY, _without_slashes(replays), base)
    return [_REPLAY_FILE]


def use(
    where: str,
    folders: Sequence[pathlib.Path],
    function: Callable[[pathlib.Path, dict[str, Any]], None],
) -> dict[str, Any]:
    """Passes the first checkpoint that is not damaged to a function.

    Of it, all digests were compared but those of buffers: for these, `function` calls
    `read_replays`.

    Args:
        where: name of the function that asks.
        folders: of checkpoints, at least one.
        function: of a folder and what `write` put into its `structure.json`.

    Returns:
        That of the checkpoint.

    Raises:
        ValueError: if all are damaged, or one is of another format.
    """
    for folder in folders:
        try:
            body = _checked(where, folder)
            function(folder, body)
        except _sealed_folder.DamageError as damage:
            if len(folders) == 1:
                raise ValueError(
                    f"`{where}`: expected an undamaged checkpoint; got {folder}, "
                    f"damaged ({damage}); take another one"
                ) from damage
            warnings.warn(
                f"`{where}`: {folder} is damaged ({damage}); trying an older one",
                stacklevel=3,
            )
        else:
            return body
    raise ValueError(
        f"`{where}`: expected an undamaged checkpoint; got only damaged ones in "
        f"{folders[0].parent}; begin anew"
    )


def read_arrays(folder: pathlib.Path, leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Reads some arrays, as `_named_arrays.read_arrays`.

    Args:
        folder: of the checkpoint.
        leaves: arrays of the same names, dtypes and shapes.

    Returns:
        The values by name.

    Raises:
        DamageError: if the files do not hold them.
    """
    try:
        return _named_arrays.read_arrays(str(folder / _ARRAYS), leaves)
    except OSError as error:
        raise _sealed_folder.DamageError(str(error)) from error


def read_replays(folder: pathlib.Path, replays: Mapping[str, tf.Module]) -> None:
    """Loads buffers, or raises and changes none of them.

    Args:
        folder: of the checkpoint.
        replays: by name; none is possible.

    Raises:
        DamageError: if a file is missing or not as it was written.
        ValueError: if they were saved otherwise.
    """
    if not replays:
        return
    try:
        saving.load(folder / _REPLAY, _without_slashes(replays))
    except (FileNotFoundError, saving.DamageError) as error:
        raise _sealed_folder.DamageError(str(error)) from error


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


def _without_slashes(replays: Mapping[str, tf.Module]) -> dict[str, tf.Module]:
    return {
        name.replace("~", "~0").replace("/", "~1"): each
        for name, each in replays.items()
    }


def _checked(where: str, folder: pathlib.Path) -> dict[str, Any]:
    body = _sealed_folder.unseal(folder, _STRUCTURE, _LIKES)
    if body["format"] not in (_OLD_FORMAT, _FORMAT):
        raise ValueError(
            f"`{where}`: expected checkpoints of format {_FORMAT}; got format "
            f"{body['format']} in {folder}; use the tfrl that wrote it"
        )
    match = _FOLDER.fullmatch(folder.name)
    if match and match[1] != str(body["step"]):
        raise _sealed_folder.DamageError(f"it holds step {body['step']}")
    if body["format"] == _FORMAT and {*_matching.names(body)} - body["paths"].keys():
        raise _sealed_folder.DamageError("it lacks paths")
    _sealed_folder.compare_files(folder, body)
    return body
