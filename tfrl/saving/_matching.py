"""What is to be loaded, compared with what a checkpoint holds."""

import contextlib
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tfrl._internal import named_arrays, sealed_folder
from tfrl.saving import _checkpointed, _keras_names, _layer_paths, typed_json


def match(
    where: str,
    folder: pathlib.Path,
    parts: _checkpointed.Parts,
    body: Mapping[str, Any],
    is_wanted: Callable[[str, str | None], bool],
    strict: bool,
) -> tuple[dict[str, str], tuple[str, ...], tuple[str, ...]]:
    """Compares what is to be loaded with what is on the disk.

    Args:
        where: name of the function that asks.
        folder: of the checkpoint.
        parts: what is to be loaded.
        body: its structure.
        is_wanted: of a name and its `special_kind`.
        strict: whether both must have the same names.

    Returns:
        Of the wanted names: those in both, with those on the disk; those not on the
        disk; those only there.

    Raises:
        DamageError: if the structure contradicts itself.
        ValueError: if names differ and should not, or if something has another kind,
            dtype or shape on the disk; it names them.
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
        chosen = _layer_paths.matched({n: parts.paths[n] for n in here}, paths)
    else:
        old, lost = _keras_names.of_parts(parts)
        doubtful = sorted({lost[name] for name in here if name in lost})
        if doubtful:
            raise ValueError(
                f"`{where}`: `global_step` expected a checkpoint that tells the layers "
                f"named {doubtful} apart; got {folder}, of a version of tfrl that did "
                "not keep the numbers in such names; if they are these layers in this "
                "order, load it into layers made without `name`, and save again"
            )
        chosen = _keras_names.matched({n: old[n] for n in here}, there)
    missing = tuple(name for name in here if name not in chosen)
    found = set(chosen.values())
    unexpected = tuple(name for name in there if name not in found)
    if strict and (missing or unexpected):
        layers = _layer_paths.named(parts.paths[n] for n in missing)
        more = _layer_paths.listed(unexpected)
        raise ValueError(
            f"`{where}`: `strict` expected the names of {folder}; got missing there: "
            f"{_layer_paths.listed(missing)}{layers}; unexpected there: {more}"
            "; build the objects as they were saved, or pass strict=False"
        )
    _compare(where, folder, parts, body, chosen)
    return chosen, missing, unexpected


def _compare(
    where: str,
    folder: pathlib.Path,
    parts: _checkpointed.Parts,
    body: Mapping[str, Any],
    chosen: Mapping[str, str],
) -> None:
    """Raises if something has another kind, dtype or shape on the disk."""
    here: dict[str, Any] = named_arrays.describe_arrays(parts.arrays)
    here.update(dict.fromkeys(parts.replays, ["a buffer", ""]))
    there: dict[str, Any] = dict(body["arrays"])
    there.update(dict.fromkeys(body["replays"], ["a buffer", ""]))
    for name, generator in parts.generators.items():
        here[name] = ["generator", generator.bit_generator.state["bit_generator"]]
    for name, text in body["generators"].items():
        there[name] = ["generator", _generator_state(text)["bit_generator"]]
    different = named_arrays.array_differences(
        {name: there[saved] for name, saved in chosen.items()},
        {name: here[name] for name in chosen},
    )
    if different:
        raise ValueError(
            f"`{where}`: `global_step` expected objects of the shapes in {folder}; got "
            f"others: {different}; build the objects as they were saved"
        )


def _generator_state(text: str) -> dict[str, Any]:
    with contextlib.suppress(KeyError, TypeError, ValueError):
        state: dict[str, Any] = typed_json.from_json(text)
        if isinstance(state["bit_generator"], str):
            return state
    raise sealed_folder.DamageError("a generator cannot be read")


def generator_states(
    body: Mapping[str, Any], generators: Mapping[str, np.random.Generator]
) -> dict[str, Any]:
    """Returns the states of generators, each of which fits its own.

    Args:
        body: structure of a checkpoint.
        generators: by name there, of the kinds there.

    Returns:
        The states by name.

    Raises:
        DamageError: if one does not fit.

    Example:
        >>> generator_states({"generators": {}}, {})
        {}
    """
    states = {name: _generator_state(body["generators"][name]) for name in generators}
    for name, state in states.items():
        try:
            type(generators[name].bit_generator)().state = state
        except Exception as error:
            # What NumPy makes of a wrong state can be any error.
            raise sealed_folder.DamageError(f"{name} has no such state") from error
    return states
