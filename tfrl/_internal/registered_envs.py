"""Environments that are registered here, made known to Gymnasium elsewhere."""

import dataclasses
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator


def registration(env_id: str) -> EnvSpec | None:
    """Returns what makes an id of Gymnasium known in another process, None if unknown.

    Args:
        env_id: such as "CartPole-v1".

    Example:
        >>> registration("CartPole-v1").id, registration("Mine-v0")
        ('CartPole-v1', None)
    """
    spec = gym.registry.get(env_id)
    if spec is None:
        return None
    names = "entry_point", "vector_entry_point"
    given = {name: getattr(spec, name) for name in names}
    # The main script of another process is another.
    found = {
        name: load_env_creator(entry)
        for name, entry in given.items()
        if isinstance(entry, str) and entry.startswith("__main__:")
    }
    return dataclasses.replace(spec, **found)


def made_after(
    imports: Sequence[str], known: EnvSpec | None, make_env: Callable[[], Any]
) -> Any:
    """Returns what a function makes, once modules are imported.

    Args:
        imports: names of modules, such as register environments.
        known: an environment to register if these did not; None for none.
        make_env: of the environments.

    Example:
        >>> made_after(["math"], None, lambda: 3)
        3
    """
    for name in imports:
        importlib.import_module(name)
    if known is not None:
        gym.registry.setdefault(known.id, known)
    return make_env()
