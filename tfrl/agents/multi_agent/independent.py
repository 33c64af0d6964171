"""Independent learners: each agent of an environment has its own algorithm."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.agents.multi_agent import _rows
from tfrl.agents.on_policy import ppo
from tfrl.core import pytree, records
from tfrl.policies import policy as policies


@dataclasses.dataclass(frozen=True)
class Independent:
    """Hyper-parameters of an agent for each player of an environment.

    All learn side by side, each from its own rows as if it were alone. Environments are
    those of `tfrl.environments.ParallelEnvVector` with `own_spaces=True`; agents may
    have different algorithms, observations and actions.

    Attributes:
        agents: hyper-parameters of agents that learn from trajectories, such as
            `PPO()`, by the name of the player; None for `PPO()` for each. Trajectories
            have `n_envs / K` rows for each of the K players, which is what
            `minibatch_size` divides.

    Example:
        >>> config = Independent({"player_0": tfrl.agents.PPO(minibatch_size=4),
        ...                       "player_1": tfrl.agents.A2C()})
        >>> envs = tfrl.environments.ParallelEnvVector(
        ...     tfrl.environments.MatrixGame, n_envs=4, own_spaces=True)
        >>> agent = config.create(
        ...     envs.single_observation_space, envs.single_action_space, seed=0)
        >>> agent.policy.act(envs.reset(seed=0)[0], seed=0).log_probs.shape
        (4,)

    References:
        Tan, 1993, Multi-Agent Reinforcement Learning: Independent versus Cooperative
        Agents. De Witt et al., 2020, Is Independent Learning All You Need in the
        StarCraft Multi-Agent Challenge?
    """

    learns_from: ClassVar[str] = "trajectories"

    agents: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        where, expected = "Independent", "hyper-parameters by the name of a player"
        checks.check_type(where, "agents", self.agents, Mapping | None, expected)
        for name, config in (self.agents or {}).items():
            _rows.check_config(where, f"agents[{name!r}]", config)

    def create(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        seed: int = 0,
        n_envs: int | None = None,
        n_steps: int | None = None,
        n_agents: int | None = None,
    ) -> "IndependentAgent":
        """Returns the agents as one, for the spaces of a row.

        Args:
            observation_space: a Dict with a part for each player, in the order of rows.
            action_space: likewise.
            seed: of weights and draws.
            n_envs: rows of a trajectory, N.
            n_steps: steps of a trajectory, T.
            n_agents: of the environment; None if unknown. `Trainer` passes 1 where a
                vector names no `agents`.

        Returns:
            An untrained `IndependentAgent`.

        Raises:
            TypeError: if a space is of a kind that an agent does not support.
            ValueError: if spaces and `agents` do not name the same players, the
                environment has another number of agents, or hyper-parameters do not
                fit.
        """
        where = "Independent.create"
        configs = dict(self.agents or {})
        if self.agents is None and isinstance(action_space, gym.spaces.Dict):
            configs = dict.fromkeys(action_space.spaces, ppo.PPO())
        for name, space in (
            ("action_space", action_space),
            ("observation_space", observation_space),
        ):
            if not isinstance(space, gym.spaces.Dict):
                raise ValueError(
                    f"`{where}`: `{name}` expected a Dict with a part for each player; "
                    f"got {space}; make a `ParallelEnvVector` with `own_spaces=True`"
                )
            players = [*space.spaces]
            if {*players} != {*configs}:
                raise ValueError(
                    f"`{where}`: `{name}` expected to be of the players of `agents`, "
                    f"{[*configs]}; got {players}: unknown are "
                    f"{sorted({*configs} - {*players})}, without an agent "
                    f"{sorted({*players} - {*configs})}"
                )
        players = [*observation_space.spaces]
        count = len(players)
        if n_agents not in (None, count):
            raise ValueError(
                f"`{where}`: `n_agents` expected {count}, a row for each player of the "
                f"spaces; got an environment of {n_agents}; make a `ParallelEnvVector` "
                "with `own_spaces=True`, or a vector whose `agents` names them; other "
                "agents play Dicts of one player"
            )
        agents = {
            player: _rows.created(
                configs[player],
                (observation_space[player], action_space[player]),
                seed * count + i,
                n_envs,
                count,
                n_steps,
            )
            for i, player in enumerate(players)
        }
        return IndependentAgent(agents, tuple(players))


class IndependentPolicy(_rows.ActsByParts, pytree.PyTreeNode):
    """Policies of several players, each of which plays its rows.

    Row n is that of player `n % K`; see `Independent`.

    Attributes:
        policies: by player.
        players: their names, in the order of rows.

    Example:
        >>> class Always:
        ...     def initial_state(self, batch_size):
        ...         return ()
        ...     def act(self, observations, state=(), **_):
        ...         ones = np.ones(len(observations), np.int64)
        ...         return tfrl.policies.Acted(ones, ones, None, state)
        >>> policy = IndependentPolicy({"a": Always(), "b": Always()}, ("a", "b"))
        >>> seen = np.zeros((4, 2), np.float32)
        >>> policy.act({"a": seen, "b": seen}).actions["b"][1::2].tolist()
        [1, 1]
    """

    policies: Any
    players: tuple[str, ...] = pytree.nonpytree_field()

    @property
    def parts(self) -> tuple[Any, ...]:
        """Policies in the order of rows."""
        return tuple(self.policies[name] for name in self.players)

    def seen_by_parts(self, observations: Any) -> list[Any]:
        """Returns what each policy is shown."""
        n_rows = len(tf.nest.flatten(observations)[0])
        return [
            _rows.picked(observations[name], self._rows(k, n_rows))
            for k, name in enumerate(self.players)
        ]

    def initial_state(self, batch_size: int) -> Any:
        """Returns what each policy remembers at the beginning, for all rows."""
        return {
            name: part.initial_state(batch_size)
            for name, part in zip(self.players, self.parts, strict=True)
        }

    def act_by(
        self,
        actors: Any,
        observations: Any,
        state: Any,
        seed: Any,
        temperature: float,
        mask: Any,
    ) -> policies.Acted:
        """Chooses actions by functions that replace the `act` of each part."""
        n_rows = len(tf.nest.flatten(observations)[0])
        state = state or dict.fromkeys(self.players, ())
        rows = [self._rows(k, n_rows) for k in range(len(self.players))]
        memory = [
            _rows.remembered(state[name], mine)
            for name, mine in zip(self.players, rows, strict=True)
        ]
        given = zip(actors, rows, self.seen_by_parts(observations), memory, strict=True)
        # A batch may be of less rows than there are players.
        filled = [each for each in given if len(each[1])]
        done = _rows.acted(filled, seed, temperature, mask)
        log_probs = None
        actions, raw, after = {}, {}, dict(state)
        for name, mine, each in zip(self.players, rows, done, strict=False):
            actions[name] = _rows.put(None, mine, each.actions, n_rows)
            raw[name] = _rows.put(None, mine, each.raw_actions, n_rows)
            after[name] = _rows.put(None, mine, each.state, n_rows)
            if each.log_probs is not None:
                log_probs = _rows.put(log_probs, mine, each.log_probs, n_rows)
        return policies.Acted(actions, raw, log_probs, after)

    def _rows(self, player: int, n_rows: int) -> np.ndarray:
        return np.arange(player, n_rows, len(self.players))


class IndependentAgent(pytree.PyTreeNode):
    """Agents of several players. Make one with `Independent.create`.

    Attributes:
        agents: by player.
        players: their names, in the order of rows.

    Example:
        >>> box = gym.spaces.Box(-1.0, 1.0, (3,))
        >>> agent = Independent({"a": tfrl.agents.A2C()}).create(
        ...     gym.spaces.Dict({"a": box}), gym.spaces.Dict({"a": box}))
        >>> agent.agents["a"].policy is agent.policy.policies["a"]
        True
    """

    agents: Any
    players: tuple[str, ...] = pytree.nonpytree_field()

    @property
    def policy(self) -> IndependentPolicy:
        """What acts in all rows."""
        found = {name: agent.policy for name, agent in self.agents.items()}
        return IndependentPolicy(found, self.players)

    @property
    def needs_log_probs(self) -> bool:
        """Whether trajectories must have log-probabilities."""
        agents = self.agents.values()
        return any(getattr(agent, "needs_log_probs", False) for agent in agents)

    def update(self, trajectory: records.Trajectory) -> tuple[Self, dict]:
        """Lets each agent learn from its rows.

        Args:
            trajectory: `[T, N]`, N a multiple of the number of players.

        Returns:
            The new agent, and the info of each, under `player/name`.

        Raises:
            TypeError: if `trajectory` is not one.
            ValueError: if rows are missing, or an agent raises it.
        """
        count = len(self.players)
        _rows.check_trajectory("Independent.update", trajectory, count)
        agents: dict[str, Any] = {}
        infos: dict[str, Any] = {}
        for k, name in enumerate(self.players):
            rows = np.arange(k, trajectory.rewards.shape[1], count)
            own = _rows.columns(trajectory, rows, name)
            agents[name], info = self.agents[name].update(own)
            infos |= {f"{name}/{key}": value for key, value in info.items()}
        return self.replace(agents=agents), infos
