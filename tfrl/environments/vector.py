"""Vectors of Gymnasium environments."""

import importlib
import numbers
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv

_VECTORIZATIONS = ("auto", "sync", "async", "vector_entry_point")


def make_vec(
    env_id: str,
    n_envs: int = 8,
    vectorization: str = "auto",
    max_episode_steps: int | None = None,
    env_kwargs: dict | None = None,
) -> VectorEnv:
    """Makes `n_envs` copies of an environment that step together.

    `"sync"` steps them one after the other in this process, `"async"` in one process
    each (worth it from about 1 ms per step), `"vector_entry_point"` uses the
    environment's own vector version, several times faster where there is one. `"auto"`
    takes the last where it exists, else `"sync"`. Sync and async vectors do not reset
    by themselves (`AutoresetMode.DISABLED`), so that the true last observation of an
    episode is always what `step` returned.

    The processes of `"async"` are spawned: they import the main script anew, which
    must therefore do its work under `if __name__ == "__main__":`.

    Args:
        env_id: a registered Gymnasium id such as `"CartPole-v1"`; before a colon stands
            the module that registers it, as in `"ale_py:ALE/Pong-v5"`.
        n_envs: number of copies, at least 1.
        vectorization: one of `"auto"`, `"sync"`, `"async"`, `"vector_entry_point"`.
        max_episode_steps: time limit instead of the registered one.
        env_kwargs: keyword arguments of the environment.

    Returns:
        The vector environment, not yet reset.

    Raises:
        TypeError: if a count is no int, `env_id` no text or `env_kwargs` no dict.
        ValueError: if an argument is off, or the environment is unknown or cannot be
            made here.

    Example:
        >>> envs = make_vec("CartPole-v1", n_envs=2, vectorization="sync")
        >>> envs.reset(seed=0)[0].shape
        (2, 4)
        >>> envs.close()
    """
    _check_count("n_envs", n_envs)
    if vectorization not in _VECTORIZATIONS:
        raise ValueError(
            f"`make_vec`: `vectorization` expected one of {list(_VECTORIZATIONS)}; got "
            f"{vectorization!r}; check the spelling"
        )
    if not isinstance(env_id, str):
        raise TypeError(
            f"`make_vec`: `env_id` expected the id of an environment; got {env_id!r}; "
            "pass its text"
        )
    if not isinstance(env_kwargs, dict | None):
        raise TypeError(
            f"`make_vec`: `env_kwargs` expected a dict; got {env_kwargs!r}; pass one"
        )
    kwargs = {} if env_kwargs is None else dict(env_kwargs)
    if max_episode_steps is not None:
        _check_count("max_episode_steps", max_episode_steps)
        kwargs["max_episode_steps"] = max_episode_steps
    spec = _spec(env_id)
    if vectorization == "auto":
        own = spec.vector_entry_point is not None
        vectorization = "vector_entry_point" if own else "sync"
    vector_kwargs: dict = {}
    if vectorization in ("sync", "async"):
        vector_kwargs["autoreset_mode"] = AutoresetMode.DISABLED
    if vectorization == "async":
        # Forking a process in which TensorFlow runs its threads can deadlock.
        vector_kwargs["context"] = "spawn"
    try:
        return gym.make_vec(
            env_id,
            num_envs=n_envs,
            vectorization_mode=vectorization,
            vector_kwargs=vector_kwargs,
            **kwargs,
        )
    except (gym.error.Error, ImportError, TypeError) as error:
        raise ValueError(
            f"`make_vec`: `env_id` {env_id!r} expected to be makeable with "
            f"vectorization={vectorization!r} and env_kwargs={kwargs}; got: {error}; "
            "install what it needs or mend the arguments"
        ) from error


def autoreset_mode(envs: VectorEnv) -> AutoresetMode:
    """Returns how a vector environment starts the next episode.

    Args:
        envs: a vector environment.

    Returns:
        `NEXT_STEP` (the step after an end only resets), `SAME_STEP` (the reset
        observation comes at once, the last one in `info["final_obs"]`) or `DISABLED`
        (the caller resets). `NEXT_STEP` where the environment does not say.

    Raises:
        ValueError: if the environment names an unknown mode.

    Example:
        >>> autoreset_mode(make_vec("Pendulum-v1", 1)).name
        'DISABLED'
    """
    # The attribute first: Gymnasium before 1.2 shares metadata between vectors.
    mode = getattr(envs.unwrapped, "autoreset_mode", None)
    if mode is None:
        mode = envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
    try:
        return AutoresetMode(mode)
    except ValueError as error:
        raise ValueError(
            "`autoreset_mode`: `envs` expected a mode among "
            f"{[known.value for known in AutoresetMode]} in its metadata; got "
            f"{mode!r}; mend the environment"
        ) from error


def check_vector(where: str, name: str, envs: Any, n_envs: int | None = None) -> None:
    """Raises unless there are several environments in one.

    Args:
        where: name of the function that asks.
        name: name of its argument.
        envs: what should be a vector environment.
        n_envs: how many there should be; None for any number.

    Raises:
        TypeError: if it is none.
        ValueError: if there are more or fewer.

    Example:
        >>> check_vector("play", "envs", gym.make("CartPole-v1"))
        Traceback (most recent call last):
        ...
        TypeError: `play`: `envs` expected a vector environment; got ...; make one by \
`tfrl.environments.make_vec` or `gymnasium.vector.SyncVectorEnv`
    """
    if not hasattr(envs, "single_observation_space") or not hasattr(envs, "num_envs"):
        raise TypeError(
            f"`{where}`: `{name}` expected a vector environment; got {envs!r}; make "
            "one by `tfrl.environments.make_vec` or `gymnasium.vector.SyncVectorEnv`"
        )
    if n_envs is not None and envs.num_envs != n_envs:
        raise ValueError(
            f"`{where}`: `{name}` expected {n_envs} environments, as `n_envs` says; "
            f"got {envs.num_envs}; make as many"
        )


def _spec(env_id: str) -> EnvSpec:
    module, _, name = env_id.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        return gym.spec(name)
    except (gym.error.Error, ImportError) as error:
        raise ValueError(
            "`make_vec`: `env_id` expected a registered Gymnasium environment; got "
            f"{env_id!r}: {error}; check the spelling, or import the package that "
            "registers it"
        ) from error


def _check_count(name: str, value: Any) -> None:
    # Not by `tfrl.core.checks`: actors make environments without TensorFlow.
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(
            f"`make_vec`: `{name}` expected an int > 0; got {value!r}; correct it"
        )
    if int(value) <= 0:
        raise ValueError(
            f"`make_vec`: `{name}` expected numbers > 0; got {value!r}; correct it"
        )
