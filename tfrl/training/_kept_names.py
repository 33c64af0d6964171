"""Names of environments that a run keeps with what makes them known to Gymnasium."""

import dataclasses
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from tfrl._internal import registered_envs
from tfrl.configuring import gin_calls
from tfrl.training import _kept_arguments


def registration_of(envs: VectorEnv) -> EnvSpec | None:
    """What the name of an environment stands for; None if it has none."""
    return registered_envs.registration(getattr(getattr(envs, "spec", None), "id", ""))


def kept_name(envs: VectorEnv) -> list[Any]:
    """What makes the name of an environment known to Gymnasium.

    These are modules, by name or as what `kept` returns of something in them, and then
    what the name stands for, if those should not register it.
    """
    spec = registration_of(envs)
    found = [*gin_calls.imported_modules()]
    for entry in (spec.entry_point, spec.vector_entry_point) if spec else ():
        if isinstance(entry, str):
            found.append(entry.partition(":")[0])
        elif entry is not None:
            found.append(_kept_arguments.kept(entry))
    own = [x for x in found if not str(x).startswith("gymnasium.")]
    own = [x for index, x in enumerate(own) if x not in own[:index]]
    if spec is None or str(spec.entry_point).startswith("gymnasium."):
        return own
    names = [x.name for x in dataclasses.fields(spec) if x.init]
    known = {name: _kept_arguments.kept(getattr(spec, name)) for name in names}
    return own if _kept_arguments.lost(known, "") else [*own, known]


def make_known(environment: list[Any]) -> None:
    """Makes the name of an environment known to Gymnasium.

    Args:
        environment: what `kept_name` returned.

    Raises:
        ValueError: if something cannot be imported.
    """
    for needed in environment:
        if isinstance(needed, str):
            _kept_arguments.made({"=name": needed})
            continue
        found = _kept_arguments.made(needed)
        if is_registration(needed):
            gym.registry.setdefault(needed["id"], EnvSpec(**found))


def is_registration(needed: Any) -> bool:
    """Whether it is what a name stands for."""
    return isinstance(needed, dict) and "entry_point" in needed
