"""Names of compiled environments: ours, of JAX libraries, and of your own modules."""

import importlib
import operator
from collections.abc import Callable
from typing import Any

from tfrl._internal import checks
from tfrl.environments.compiled import (
    _jax_names,
    acrobot,
    arcade,
    bit_flipping,
    cartpole,
    catch,
    grid_world,
    mountain_car,
    pendulum,
    protocol,
)

# Names of environments: what makes one, and its time limit, None for its own.
REGISTERED: dict[str, tuple[Callable[..., protocol.CompiledEnv], int | None]] = {
    "Acrobot-v1": (acrobot.Acrobot, 500),
    "BitFlipping-v0": (bit_flipping.BitFlipping, None),
    "Bricks-v0": (arcade.Bricks, 1000),
    "CartPole-v1": (cartpole.CartPole, 500),
    "Catch-v0": (catch.Catch, 1000),
    "GridWorld-v0": (grid_world.GridWorld, 100),
    "Lanes-v0": (arcade.Lanes, 1000),
    "Meteors-v0": (arcade.Meteors, 1000),
    "MountainCar-v0": (mountain_car.MountainCar, 200),
    "MountainCarContinuous-v0": (mountain_car.MountainCarContinuous, 999),
    "Pendulum-v1": (pendulum.Pendulum, 200),
}


def made(where: str, env_id: Any, env_kwargs: dict) -> tuple[Any, int | None]:
    """Returns an environment, and the time limit that comes with its name.

    Args:
        where: the asking function, for messages.
        env_id: a name, or what makes an environment.
        env_kwargs: its keyword arguments.

    Raises:
        ImportError: if the library of the name is missing.
        ValueError: if the name is unknown.
    """
    if not isinstance(env_id, str):
        return env_id(**env_kwargs), None
    library, _, name = env_id.partition("/")
    if library in _jax_names.LIBRARIES:
        return _jax_names.LIBRARIES[library](name, **env_kwargs)
    if ":" in env_id:
        return _imported(where, env_id)(**env_kwargs), None
    if env_id not in REGISTERED:
        raise ValueError(
            f"`{where}`: `env_id` expected one of {[*REGISTERED]}, or your own as "
            f"'module:Name'; got {checks.shown(env_id)}; check the spelling"
        )
    make, limit = REGISTERED[env_id]
    return make(**env_kwargs), limit


def _imported(where: str, env_id: str) -> Any:
    """The class or function that "module:Name" names."""
    module, _, name = env_id.partition(":")
    fault = f"`{where}`: `env_id` expected 'module:Name' of a class or function"
    try:
        found = operator.attrgetter(name)(importlib.import_module(module))
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{fault}; got {checks.shown(env_id)}: {error}") from error
    if not callable(found):
        raise ValueError(f"{fault}; got {checks.shown(env_id)}, {checks.shown(found)}")
    return found
