"""Names of Gymnasium that another process is to know as well."""

import dataclasses
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator


def registrations(env_id: str) -> list[EnvSpec]:
    """Returns what makes an id of Gymnasium known in another process.

    Args:
        env_id: such as "CartPole-v1".

    Example:
        >>> [spec.id for spec in registrations("CartPole-v1")], registrations("Mine-v0")
        (['CartPole-v1'], [])
    """
    spec = gym.registry.get(env_id)
    if spec is None:
        return []
    names = "entry_point", "vector_entry_point"
    given = {name: getattr(spec, name) for name in names}
    # The main script of another process is another.
    found = {
        name: load_env_creator(entry)
        for name, entry in given.items()
        if isinstance(entry, str) and entry.startswith("__main__:")
    }
    return [dataclasses.replace(spec, **found)]


def made_after(
    imports: Sequence[str], known: Sequence[EnvSpec], make_env: Callable[[], Any]
) -> Any:
    """Returns what a function makes, once modules are imported.

    Args:
        imports: names of modules, such as register environments.
        known: environments to register that these did not.
        make_env: of the environments.

    Example:
        >>> made_after(["math"], [], lambda: 3)
        3
    """
    for name in imports:
        importlib.import_module(name)
    for spec in known:
        gym.registry.setdefault(spec.id, spec)
    return make_env()
