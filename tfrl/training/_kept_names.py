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


def needed(environment: list[Any], make_envs: Any) -> list[Any]:
    """Returns what of `kept_name` is needed where an id may name the module itself.

    Of "my_module:Mine-v0" what the name stands for need not be kept, such as a lambda:
    importing the module registers it. What is of the main script no module registers.

    Args:
        environment: what `kept_name` returned.
        make_envs: the function that makes environments, as `kept` returned it.
    """
    env_id = make_envs.get("env_id") if isinstance(make_envs, dict) else None
    module = env_id.rpartition(":")[0] if isinstance(env_id, str) else ""
    lost = _kept_arguments.lost(environment, "").values()
    if not lost or not module or any("__main__" in what for what in lost):
        return environment
    rest = [x for x in environment if not _kept_arguments.lost(x, "")]
    return [module, *(x for x in rest if x != module)]


def make_known(environment: list[Any]) -> None:
    """Makes the name of an environment known to Gymnasium.

    Args:
        environment: what `needed` returned.

    Raises:
        ValueError: if something cannot be imported.
    """
    for part in environment:
        if isinstance(part, str):
            _kept_arguments.made({"=name": part})
            continue
        found = _kept_arguments.made(part)
        if is_registration(part):
            gym.registry.setdefault(part["id"], EnvSpec(**found))


def is_registration(part: Any) -> bool:
    """Whether it is what a name stands for."""
    return isinstance(part, dict) and "entry_point" in part
