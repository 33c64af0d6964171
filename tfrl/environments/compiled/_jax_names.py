"""Environments of libraries of JAX by name, such as "gymnax/Breakout-MinAtar"."""

from collections.abc import Callable
from typing import Any

from tfrl._internal import arguments, checks
from tfrl.environments.compiled import jax_env

_WHERE = "make_compiled"


def _of_gymnax(name: str, **env_kwargs: Any) -> tuple[jax_env.JaxEnv, None]:
    gymnax = arguments.imported(_WHERE, "gymnax", "gymnax", "gymnax")
    checks.check_one_of(_WHERE, "env_id", name, gymnax.registered_envs)
    return jax_env.from_jax_env(*gymnax.make(name, **env_kwargs)), None


def _of_brax(name: str, **env_kwargs: Any) -> tuple[jax_env.JaxEnv, int]:
    brax = arguments.imported(_WHERE, "brax.envs", "brax", "brax")
    checks.check_one_of(_WHERE, "env_id", name, brax._envs)
    return jax_env.from_jax_env(brax.get_environment(name, **env_kwargs)), 1000


def _of_playground(name: str, **overrides: Any) -> tuple[jax_env.JaxEnv, int]:
    of = "playground"
    registry = arguments.imported(_WHERE, "mujoco_playground", of, of).registry
    checks.check_one_of(_WHERE, "env_id", name, registry.ALL_ENVS)
    config = registry.get_default_config(name)
    try:
        # What is computed by Warp, as is usual there, cannot be part of a program.
        config.lock().update_from_flattened_dict({"impl": "jax", **overrides})
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"`{_WHERE}`: `env_kwargs` expected settings of {name!r}, which has "
            f"{', '.join(config)}; got {overrides}"
        ) from error
    env = registry.load(name, config=config.unlock())
    return jax_env.from_jax_env(env), int(config.episode_length)


# What makes an environment of a library and tells its time limit, None for its own.
LIBRARIES: dict[str, Callable[..., tuple[jax_env.JaxEnv, int | None]]] = {
    "brax": _of_brax,
    "gymnax": _of_gymnax,
    "playground": _of_playground,
}
