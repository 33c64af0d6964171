"""The files of a checkpoint: written, read, and matched with the parts of objects."""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import durable, named_arrays, sealed_folder
from tfrl.replay.disk import saving
from tfrl.saving import _checkpointed, _layer_paths, typed_json

ARRAYS, METADATA, REPLAY = "arrays", "metadata.json", "replay"
# What `write` returns looks like, see `sealed_folder.fits`.
_PATH_LIKE = [(str, [str, str, bool, (int, None)])]
LIKE = {
    "step": int,
    "arrays": {str: ([str, [int]], [str, [(int, None)]], [str, None], None)},
    "replays": [str],
    "generators": {str: str},
    "kinds": {str: str},
    "paths": {str: _PATH_LIKE},
}


def match(
    where: str,
    folder: pathlib.Path,
    parts: _checkpointed.Parts,
    body: Mapping[str, Any],
    is_wanted: Callable[[str, str | None], bool] = lambda *_: True,
) -> tuple[dict[str, str], tuple[str, ...], tuple[str, ...]]:
    """Finds what is to be loaded among what is on the disk.

    Args:
        where: name of the function that asks.
        folder: of the checkpoint.
        parts: what is to be loaded.
        body: its structure.
        is_wanted: of a name and its `special_kind`.

    Returns:
        Of the wanted names: those in both, with those on the disk; those not on the
        disk; those only there.

    Raises:
        DamageError: if the structure contradicts itself.
        ValueError: if names of format 1 do not tell which layer was meant.
    """
    kinds = {**body["kinds"], **parts.kinds}
    saved = [*body["arrays"], *body["replays"], *body["generators"]]
    here, there = (
        dict.fromkeys(name for name in each if is_wanted(name, kinds.get(name)))
        for each in (parts.paths, saved)
    )
    if "paths" in body:
        if {*saved} - body["paths"].keys():
            raise sealed_folder.DamageError("it lacks paths")
        paths = {n: _layer_paths.from_json(body["paths"][n]) for n in there}
        mine = {n: parts.paths[n] for n in here}
        chosen = _layer_paths.matched(mine, paths, parts.counted)
    else:
        old, lost = _layer_paths.of_parts(parts)
        doubtful = sorted({lost[name] for name in here if name in lost})
        if doubtful:
            raise ValueError(
                f"`{where}`: `global_step` expected a checkpoint that tells the layers "
                f"named {doubtful} apart; got {folder}, of a version of tfrl that did "
                "not keep the numbers in such names; if they are these layers in this "
                "order, load it into layers made without `name`, and save again"
            )
        chosen = _layer_paths.matched_of_old({n: old[n] for n in here}, there)
    missing = tuple(name for name in here if name not in chosen)
    found = set(chosen.values())
    return chosen, missing, tuple(name for name in there if name not in found)


def differences(
    parts: _checkpointed.Parts, body: Mapping[str, Any], chosen: Mapping[str, str]
) -> str:
    """Tells in words what has another kind, dtype or shape on the disk.

    Args:
        parts: what is to be loaded.
        body: the structure of the checkpoint.
        chosen: names here, and on the disk.

    Returns:
        The first few differences, or an empty text.

    Raises:
        DamageError: if the state of a generator cannot be read.

    Example:
        >>> parts = _checkpointed.Parts("load", {"x": np.zeros(3)})
        >>> body = {"arrays": {"x": ["int64", [3]]}, "replays": [], "generators": {}}
        >>> differences(parts, body, {"x": "x"})
        'x is int64 [3] on disk but float64 [3] here'
    """
    here: dict[str, Any] = {
        **named_arrays.describe_arrays(parts.arrays),
        **dict.fromkeys(parts.replays, ["a buffer", ""]),
    }
    there = {**body["arrays"], **dict.fromkeys(body["replays"], ["a buffer", ""])}
    for name, generator in parts.generators.items():
        here[name] = ["generator", generator.bit_generator.state["bit_generator"]]
    for name, text in body["generators"].items():
        there[name] = ["generator", generator_state(text)["bit_generator"]]
    return named_arrays.array_differences(
        {name: there[saved] for name, saved in chosen.items()},
        {name: here[name] for name in chosen},
    )


def write(
    parts: _checkpointed.Parts,
    folder: pathlib.Path,
    before: pathlib.Path | None,
    metadata: str,
) -> tuple[dict[str, Any], Sequence[str]]:
    """Fills the folder of a checkpoint, but for its manifest.

    Args:
        parts: what is saved.
        folder: empty.
        before: the checkpoint before, of which unchanged bytes of buffers are shared.
        metadata: as `typed_json` wrote it.

    Returns:
        The body of the manifest, and the files in folders that it has to seal too.
    """
    named_arrays.write_arrays(str(folder / ARRAYS), parts.arrays)
    (folder / METADATA).write_bytes(metadata.encode("ascii"))
    if parts.replays:
        base = None if before is None else before / REPLAY
        saving.save(folder / REPLAY, without_slashes(parts.replays), base)
    body = {
        "arrays": named_arrays.describe_arrays(parts.arrays),
        "replays": list(parts.replays),
        "generators": {
            name: typed_json.to_json(generator.bit_generator.state)
            for name, generator in parts.generators.items()
        },
        "kinds": parts.kinds,
        "paths": {n: _layer_paths.to_json(x) for n, x in parts.paths.items()},
    }
    # Whose digest stands for those of the buffers' files.
    return body, [f"{REPLAY}/manifest.json"] if parts.replays else []


def read_metadata(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the metadata of a checkpoint; `{}` of one that was saved without.

    Args:
        folder: of the checkpoint, of which every file is as it was written.

    Returns:
        The metadata.

    Example:
        >>> read_metadata(pathlib.Path("no/such"))
        {}
    """
    path = folder / METADATA
    found: dict[str, Any] = (
        typed_json.from_json(durable.read_file(path)) if path.is_file() else {}
    )
    return found


def generator_state(text: str, like: np.random.Generator | None = None) -> Any:
    """Reads the state of a generator.

    Args:
        text: the state as JSON.
        like: a generator that such a state has to fit; None for any.

    Raises:
        DamageError: if it is no such state.

    Example:
        >>> rng = np.random.default_rng(3)
        >>> state = generator_state(typed_json.to_json(rng.bit_generator.state), rng)
        >>> state["bit_generator"]
        'PCG64'
    """
    try:
        state = typed_json.from_json(text)
        if like is not None:
            type(like.bit_generator)().state = state
        state["bit_generator"].encode()
    except Exception as error:
        # What NumPy makes of a wrong state can be any error.
        raise sealed_folder.DamageError("a generator cannot be read") from error
    return state


def without_slashes(replays: Mapping[str, tf.Module]) -> dict[str, tf.Module]:
    """Returns buffers by names that folders can have."""
    return {k.replace("~", "~0").replace("/", "~1"): x for k, x in replays.items()}
