"""The current environment of a thread, and the specs of its observations and actions.

The environment and the spec of its transformed observations live in context variables:
every thread and every asyncio task starts without them. Every function that reads one
also takes it as an argument.
"""

import contextlib
import contextvars
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import context, records, spaces

_env: contextvars.ContextVar[Any] = contextvars.ContextVar("tfrl_env", default=None)
_spec: contextvars.ContextVar[Any] = contextvars.ContextVar(
    "tfrl_transformed_observation_spec", default=None
)


def set_global_env(env: Any) -> None:
    """Makes an environment the current one of this thread.

    Prefer `environment_context`, which restores the old one.

    Args:
        env: a Gymnasium environment or vector of environments, or any object with the
            methods `observation_spec`, `action_spec` and `reward_spec`; None for no
            current environment.

    Example:
        >>> set_global_env(gym.make("CartPole-v1"))
        >>> get_env().spec.id
        'CartPole-v1'
        >>> set_global_env(None)
    """
    _env.set(env)


def set_transformed_observation_spec(spec: Any) -> None:
    """Sets the specs of observations after the transformers.

    Args:
        spec: nest of specs; None to forget it.

    Example:
        >>> set_transformed_observation_spec({"x": tf.TensorSpec([3])})
        >>> get_observation_spec("x").shape.as_list()
        [3]
        >>> set_transformed_observation_spec(None)
    """
    _spec.set(spec)


@contextlib.contextmanager
def environment_context(env: Any, spec: Any = None) -> Iterator[None]:
    """Makes an environment the current one inside a `with` block.

    Args:
        env: as for `set_global_env`.
        spec: of its transformed observations, as for
            `set_transformed_observation_spec`.

    Yields:
        Nothing.

    Example:
        >>> with environment_context(gym.make("CartPole-v1")):
        ...     get_action_spec().maximum.item()
        1
    """
    env_token, spec_token = _env.set(env), _spec.set(spec)
    try:
        yield
    finally:
        _env.reset(env_token)
        _spec.reset(spec_token)


def get_env() -> Any:
    """Returns the current environment.

    Returns:
        What `set_global_env` was given.

    Raises:
        ValueError: if there is none.

    Example:
        >>> with environment_context("anything"):
        ...     get_env()
        'anything'
    """
    return _given("get_env", None)


def get_raw_observation_spec(field: str | None = None, env: Any = None) -> Any:
    """Returns the specs of the environment's observations.

    Args:
        field: path to a part of the nest, names joined by dots such as "a.b.c": keys of
            mappings, attributes of NamedTuples, positions in lists and tuples. None for
            all.
        env: the environment, None for the current one.

    Returns:
        Nest of specs of one environment's observation.

    Raises:
        TypeError: if `field` is no string.
        ValueError: if there is no environment or no such field.

    Example:
        >>> get_raw_observation_spec(env=gym.make("CartPole-v1")).shape.as_list()
        [4]
    """
    where = "get_raw_observation_spec"
    return _field(where, _asked(where, env, "observation"), field)


def get_observation_spec(field: str | None = None, *, spec: Any = None) -> Any:
    """Returns the specs of observations after the transformers.

    Args:
        field: path to a part of the nest, as for `get_raw_observation_spec`.
        spec: the nest of specs, None for the one that
            `set_transformed_observation_spec` was given.

    Returns:
        Nest of specs.

    Raises:
        TypeError: if `field` is no string.
        ValueError: if there is no spec or no such field.

    Example:
        >>> get_observation_spec("a.b", spec={"a": {"b": tf.TensorSpec([2])}}).shape[0]
        2
    """
    where = "get_observation_spec"
    spec = context.followed(_spec.get) if spec is None else spec
    if spec is None:
        raise ValueError(
            f"`{where}`: `spec` expected a nest of specs; got None and none was set by "
            "`set_transformed_observation_spec`"
        )
    return _field(where, spec, field)


def get_action_spec(env: Any = None) -> Any:
    """Returns the specs of the environment's actions.

    Args:
        env: the environment, None for the current one.

    Returns:
        Nest of specs of one environment's action.

    Raises:
        ValueError: if there is no environment.

    Example:
        >>> spec = get_action_spec(gym.make("CartPole-v1"))
        >>> spec.minimum.item(), spec.maximum.item()
        (0, 1)
    """
    return _asked("get_action_spec", env, "action")


def get_reward_spec(env: Any = None) -> Any:
    """Returns the spec of the environment's rewards.

    Args:
        env: the environment, None for the current one.

    Returns:
        The environment's own `reward_spec()`; a float32 scalar for a Gymnasium one.

    Raises:
        ValueError: if there is no environment.

    Example:
        >>> get_reward_spec(gym.make("CartPole-v1")).shape.rank
        0
    """
    return _asked("get_reward_spec", env, "reward")


def get_states_shape(env: Any = None) -> Any:
    """Returns the shape of the inner states that an environment shows.

    Args:
        env: the environment, None for the current one.

    Returns:
        The shape of the field "states" of the observations, a tuple; 0 if there is no
        such field, so that callers can test for it.

    Raises:
        ValueError: if there is no environment, or its states are a nest.

    Example:
        >>> get_states_shape(gym.make("CartPole-v1"))
        0
    """
    where = "get_states_shape"
    states = _shown(where, env, "states")
    if states is None:
        return 0
    if not hasattr(states, "shape"):
        raise ValueError(
            f'`{where}`: `env` expected one array for "states"; got {states!r}'
        )
    return tuple(states.shape.as_list())


def get_vocab_size(env: Any = None) -> int:
    """Returns the number of words in the sentences that an environment shows.

    Args:
        env: the environment, None for the current one.

    Returns:
        1 + the greatest number in the field "sentence" of the observations; 0 if there
        is no such field, so that callers can test for it.

    Raises:
        ValueError: if there is no environment, or its sentences have no bounds.

    Example:
        >>> get_vocab_size(gym.make("CartPole-v1"))
        0
    """
    where = "get_vocab_size"
    sentence = _shown(where, env, "sentence")
    if sentence is None:
        return 0
    most = getattr(sentence, "maximum", np.inf)
    if not np.all(np.isfinite(most)):
        raise ValueError(
            f'`{where}`: `env` expected a bounded spec of "sentence"; got {sentence!r}'
        )
    return int(np.max(most)) + 1


def get_initial_time_step(
    env: Any = None, first_env_id: int = 0, seed: int | None = None
) -> Any:
    """Returns the time step with which an environment begins.

    Args:
        env: the environment, None for the current one. If it has a method
            `current_time_step`, that is called; a Gymnasium one is reset.
        first_env_id: number of this vector's first environment among those of several
            vectors: it is added to the time step's `env_id`.
        seed: of the reset of a Gymnasium environment.

    Returns:
        The environment's own time step; for a Gymnasium vector of N a `TimeStep` of
        rows `[N, ...]`, for a single environment one without that axis, with
        StepType.FIRST, rewards 0 and discounts 1.

    Raises:
        TypeError: if `first_env_id` is no int.
        ValueError: if there is no environment, or `first_env_id` is negative, or not 0
            though the time step has no `env_id`.

    Example:
        >>> step = get_initial_time_step(tfrl.environments.make_vec("CartPole-v1", 2))
        >>> step.step_types.tolist(), step.observations.shape
        ([0, 0], (2, 4))
    """
    where = "get_initial_time_step"
    checks.check_whole_number(where, "first_env_id", first_env_id, low=0)
    env = _given(where, env)
    own: Any = env.current_time_step() if hasattr(env, "current_time_step") else None
    if hasattr(own, "env_id"):
        return own._replace(env_id=own.env_id + first_env_id)
    if first_env_id:
        raise ValueError(
            f"`{where}`: `first_env_id` expected 0, as time steps of `env` have no "
            f"`env_id`; got {first_env_id}"
        )
    if own is not None:
        return own
    if not hasattr(env, "reset"):
        raise _no_environment(where, "current_time_step", env)
    if seed is not None:
        seed = checks.check_whole_number(where, "seed", seed, low=0)
    observations, _ = env.reset(seed=seed)
    shape = getattr(env, "num_envs", None)
    rows = () if shape is None else (shape,)
    return records.TimeStep(
        step_types=np.full(rows, records.StepType.FIRST, np.int32),
        rewards=np.zeros(rows, np.float32),
        discounts=np.ones(rows, np.float32),
        observations=observations,
    )


def _given(where: str, env: Any) -> Any:
    env = context.followed(_env.get) if env is None else env
    if env is None:
        raise ValueError(
            f"`{where}`: `env` expected an environment; got None and none is current, "
            "which `set_global_env` sets"
        )
    return env


def _asked(where: str, env: Any, what: str) -> Any:
    """Specs of observations, actions or rewards, by `env`'s method or its spaces."""
    env = _given(where, env)
    method = getattr(env, f"{what}_spec", None)
    if callable(method):
        return method()
    single = "single_" if isinstance(env, gym.vector.VectorEnv) else ""
    if not hasattr(env, f"{single}action_space"):
        raise _no_environment(where, f"{what}_spec", env)
    if what == "reward":
        return tf.TensorSpec([], tf.float32)
    return spaces.spec_from_space(getattr(env, f"{single}{what}_space"))


def _no_environment(where: str, method: str, env: Any) -> ValueError:
    return ValueError(
        f"`{where}`: `env` expected a Gymnasium environment, or a method `{method}`; "
        f"got {checks.shown(env)}"
    )


def _shown(where: str, env: Any, name: str) -> Any:
    """The spec of a part of the observations, None if there is no such part."""
    spec = _asked(where, env, "observation")
    return spec.get(name) if isinstance(spec, Mapping) else None


def _field(where: str, spec: Any, field: str | None) -> Any:
    dotted = "names of parts joined by dots"
    checks.check_type(where, "field", field, str | None, dotted)
    for name in [] if field is None else field.split("."):
        if isinstance(spec, Mapping):
            spec = spec.get(name)
        elif name.isdecimal() and isinstance(spec, list | tuple):
            spec = spec[int(name)] if int(name) < len(spec) else None
        else:
            known = name in getattr(spec, "_fields", ())
            spec = getattr(spec, name) if known else None
        if spec is None:
            raise ValueError(
                f"`{where}`: `field` expected {dotted}; got {field!r}, of which "
                f"{name!r} is none"
            )
    return spec
