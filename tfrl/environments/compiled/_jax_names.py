"""Environments of gymnax and Brax by name, such as "gymnax/Breakout-MinAtar"."""

from collections.abc import Callable
from typing import Any

from tfrl._internal import arguments, checks
from tfrl.environments.compiled import jax_env

_WHERE = "make_compiled"


def _of_gymnax(name: str, **env_kwargs: Any) -> jax_env.JaxEnv:
    gymnax = arguments.imported(_WHERE, "gymnax", "gymnax", "gymnax")
    checks.check_one_of(_WHERE, "env_id", name, gymnax.registered_envs)
    return jax_env.from_jax_env(*gymnax.make(name, **env_kwargs))


def _of_brax(name: str, **env_kwargs: Any) -> jax_env.JaxEnv:
    brax = arguments.imported(_WHERE, "brax.envs", "brax", "brax")
    checks.check_one_of(_WHERE, "env_id", name, brax._envs)
    return jax_env.from_jax_env(brax.get_environment(name, **env_kwargs))


# What makes an environment of a library, and the time limit, None where it has its own.
LIBRARIES: dict[str, tuple[Callable[..., jax_env.JaxEnv], int | None]] = {
    "brax": (_of_brax, 1000),
    "gymnax": (_of_gymnax, None),
}
