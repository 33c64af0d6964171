"""Rows of a vector by who plays them: picked, acted upon, put together."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl._internal import checks, gym_checks
from tfrl.core import records
from tfrl.policies import policy as policies


class ActsByParts:
    """A mixin of policies made of several: `act` is `act_by` the parts' own."""

    def act(
        self: Any,
        observations: Any,
        state: Any = (),
        *,
        seed: Any = None,
        temperature: float = 1.0,
        mask: Any = None,
    ) -> policies.Acted:
        """Chooses actions; see `Policy.act`. Without a state an episode begins."""
        actors = [part.act for part in self.parts]
        acted: policies.Acted = self.act_by(
            actors, observations, state, seed, temperature, mask
        )
        return acted


def picked(nest: Any, rows: np.ndarray) -> Any:
    """Returns rows of a nest of arrays."""
    if type(nest) in (np.ndarray, dict):  # what environments show: `tf.nest` is slow
        return gym_checks.mapped(lambda x: np.asarray(x)[rows], nest)
    return tf.nest.map_structure(lambda x: np.asarray(x)[rows], nest)


def remembered(memory: Any, rows: np.ndarray) -> Any:
    """Returns rows of what a policy remembers, a nest of arrays of any kind."""
    if type(memory) is tuple and not memory:
        return memory
    return tf.nest.map_structure(lambda x: np.asarray(x)[rows], memory)


def put(whole: Any, rows: np.ndarray, part: Any, n_rows: int) -> Any:
    """Returns a nest `[n_rows, ...]` in which a part has its rows.

    Args:
        whole: nest that is written to; None makes one whose other rows are copies of
            the part's first: of actions, they are of the same space.
        rows: where, `[R]`.
        part: nest of `[R, ...]`.
        n_rows: of the whole.

    Raises:
        ValueError: if a part is not of its rows, or of another shape than the whole:
            NumPy would stretch some.
    """
    if type(part) is np.ndarray:
        inner = part.shape[1:] if whole is None else whole.shape[1:]
        if part.shape != (len(rows), *inner):
            raise ValueError(
                "`act`: each of several policies expected to return arrays of shape "
                f"{[len(rows), *inner]} for the {len(rows)} rows that it plays; got "
                f"{[*part.shape]}; return one for each observation that it is shown"
            )
        if whole is None:
            whole = np.repeat(part[:1], n_rows, axis=0)
        whole[rows] = part
        return whole
    if type(part) is tuple and not part:
        return part
    flat = tf.nest.flatten(part)
    wholes = [None] * len(flat) if whole is None else tf.nest.flatten(whole)
    filled = [
        put(to, rows, np.asarray(x), n_rows) for to, x in zip(wholes, flat, strict=True)
    ]
    return tf.nest.pack_sequence_as(part, filled)


def acted(
    actors: Iterable[tuple[Callable[..., policies.Acted], np.ndarray, Any, Any]],
    seed: Any,
    temperature: float,
    mask: Any,
) -> list[policies.Acted]:
    """Lets several policies act, each on its rows.

    Args:
        actors: of each its `act`, its rows, what these show and what it remembers.
        seed: of all, as of `Policy.act`.
        temperature: likewise.
        mask: likewise, of all rows.

    Returns:
        What they do.
    """
    chance = policies.generator("act", seed)
    return [
        _in_arrays(
            act(
                seen,
                state,
                seed=chance,
                temperature=temperature,
                mask=None if mask is None else picked(mask, rows),
            )
        )
        for act, rows, seen, state in actors
    ]


def _in_arrays(done: policies.Acted) -> policies.Acted:
    """Lets a list of actions, which functions may return, not be taken for a nest."""
    if not isinstance(done.actions, list):
        return done
    arrays = {x: np.asarray(getattr(done, x)) for x in ("actions", "raw_actions")}
    return done._replace(**arrays)


def columns(
    trajectory: records.Trajectory, rows: np.ndarray, name: str | None = None
) -> records.Trajectory:
    """Returns what some environments' rows went through.

    Args:
        trajectory: `[T, N]`.
        rows: of the N.
        name: of the part of observations, actions and states that counts; None for all.
    """
    if name is not None:
        found = {x: getattr(trajectory, x) for x in ("observations", "actions")}
        found["next_observations"] = trajectory.next_observations
        found["states"] = trajectory.states or {name: ()}
        trajectory = trajectory._replace(**{x: y[name] for x, y in found.items()})
    return tf.nest.map_structure(lambda x: np.asarray(x)[:, rows], trajectory)


def check_trajectory(where: str, given: Any, n_agents: int) -> None:
    """Raises unless something is a trajectory of whole copies of an environment.

    Args:
        where: the asking function, for the message.
        given: what should be one.
        n_agents: rows of a copy.
    """
    expected = "a Trajectory [T, N]"
    checks.check_type(where, "trajectory", given, records.Trajectory, expected)
    n_rows = given.rewards.shape[1]
    if n_rows % n_agents:
        raise ValueError(
            f"`{where}`: `trajectory` expected a multiple of {n_agents} rows, one for "
            f"each agent of each copy; got {n_rows}"
        )


def check_config(where: str, name: str, config: Any) -> None:
    """Raises a TypeError unless something makes an agent that learns from trajectories.

    Args:
        where: the asking class, for the message.
        name: of its argument.
        config: what should be hyper-parameters.
    """
    asked = getattr(config, "learns_from", None) or "trajectories"
    is_config = callable(getattr(config, "create", None)) and not isinstance(
        config, type
    )
    if not is_config or "trajectories" not in (
        (asked,) if asked is str(asked) else asked
    ):
        raise TypeError(
            f"`{where}`: `{name}` expected hyper-parameters of agents that learn from "
            f"trajectories, such as PPO(); got {config!r:.80}"
        )


def created(
    config: Any,
    spaces: Sequence[gym.Space],
    seed: int,
    n_envs: int | None,
    n_agents: int,
    n_steps: int | None,
    network: Any = None,
) -> Any:
    """Creates an agent for one of several, told of its rows and steps where it asks.

    Args:
        config: its hyper-parameters.
        spaces: of observations and actions.
        seed: of weights and draws.
        n_envs: rows of all; it learns from every `n_agents`-th.
        n_agents: players of the environment.
        n_steps: of a trajectory.
        network: for a `create` that takes it; None for the agent's own.

    Raises:
        ValueError: as of `config.create`, where minibatches do not fit with the number
            of rows that they are of.
    """
    asked = inspect.signature(config.create).parameters
    n_rows = None if n_envs is None else n_envs // n_agents
    numbers = {"n_envs": n_rows, "n_steps": n_steps}
    given: dict[str, Any] = {
        key: x for key, x in numbers.items() if key in asked and x is not None
    }
    if network is not None:
        given["network"] = network
    try:
        return config.create(*spaces, seed=seed, **given)
    except ValueError as error:
        if "n_envs" not in given or "`minibatch_size`" not in str(error):
            raise
        told = f"each of {n_agents} agents learns from {n_rows} of {n_envs} rows"
        raise ValueError(f"{error}; {told}") from error
