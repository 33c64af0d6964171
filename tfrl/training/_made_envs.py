"""Functions that make environments, checked before they are called."""

import contextlib
import inspect
from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv


def check_maker(make_envs: Any) -> None:
    """Raises a TypeError unless it is a function that can be given `n_envs=`."""
    got = None
    if not callable(make_envs) or isinstance(make_envs, gym.Env | VectorEnv):
        got = repr(make_envs)
    elif isinstance(make_envs, type) and issubclass(make_envs, gym.Env):
        got = f"the environment class {make_envs.__name__}"
    else:
        with contextlib.suppress(ValueError):  # some know no signature
            signature = inspect.signature(make_envs)
            try:
                signature.bind_partial(n_envs=1)
            except TypeError:
                got = f"a function of {signature}"
    if got is not None:
        raise TypeError(
            "`Trainer`: `make_envs` expected a function that makes a vector "
            f"environment when called with `n_envs=`; got {got}; pass a function of "
            "`n_envs`, such as functools.partial(tfrl.environments.make_vec, "
            "'CartPole-v1')"
        )
