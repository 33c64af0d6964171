"""What the trainer asks of an agent."""

from typing import Any, Protocol, Self

import gymnasium as gym
import tensorflow as tf

from tfrl.agents import actor_critic
from tfrl.core import records


class Agent(Protocol):
    """An immutable learner: `update` returns a new one.

    Agents are `PyTreeNode`s, so that they go in and out of `tf.function` and are saved
    as the nest of tensors they are.

    Attributes:
        policy: what acts; the trainer mirrors it on the host.

    Example:
        >>> sorted(name for name in vars(Agent) if not name.startswith("_"))
        ['policy', 'sample_actions', 'update']
    """

    @property
    def policy(self) -> actor_critic.ActorCriticPolicy:
        """What acts."""

    def update(self, trajectory: records.Trajectory) -> tuple[Self, dict]:
        """Learns from a trajectory `[T, N]`; returns the new agent and an info.

        The info holds scalars to report, the same ones each time, and perhaps
        `parameters`, `[N, n]`: what the new policy says to the last row of
        observations, for trainers to hold their copies against.

        In the scope of a strategy its replicas share the gradient steps. The
        trajectory is the global one then, alike on every worker.
        """

    def sample_actions(
        self,
        observations: Any,
        *,
        seed: int | tf.Tensor | None = None,
        temperature: float = 1.0,
    ) -> tf.Tensor:
        """Draws actions `[B, ...]` for the environment; greedy at temperature 0."""


class AgentConfig(Protocol):
    """Hyper-parameters that know how to make their agent.

    Example:
        >>> agent = tfrl.agents.PPO().create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2),
        ...     n_envs=2, n_steps=32, n_updates=10, seed=0)
        >>> type(agent).__name__
        'PPOAgent'
    """

    def create(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        n_envs: int,
        n_steps: int,
        n_updates: int,
        seed: int,
    ) -> Agent:
        """Returns an agent for the spaces of one environment."""
