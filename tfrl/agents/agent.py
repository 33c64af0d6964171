"""What trainers ask of agents."""

from typing import Any, Protocol, Self

import gymnasium as gym

from tfrl.policies import policy as policies


class Agent(Protocol):
    """An immutable learner: `update` returns a new one.

    Agents are `PyTreeNode`s, so that they go in and out of `tf.function` and are saved
    as the nest of tensors they are.

    Attributes:
        policy: what acts.

    Example:
        >>> sorted(name for name in vars(Agent) if not name.startswith("_"))
        ['policy', 'update']
    """

    @property
    def policy(self) -> policies.Policy:
        """What acts."""

    def update(self, experience: Any) -> tuple[Self, dict]:
        """Learns from experience; returns the new agent and an info.

        Experience is what the trainer was told to gather: a `tfrl.core.Trajectory`
        `[T, N]`; a `tfrl.replay.Sample` of K minibatches `[K, B, ...]`; or K batches
        `[K, B, ...]` of a dataset. All gradient steps are best taken in one compiled
        call, see `compiled_update`.

        The info is a dictionary of scalars to report, by names of its own. Beside them
        it may hold `priorities`, `[K, B]`, for a replay that is prioritised.

        In the scope of a strategy its replicas share the gradient steps. The
        experience is the global one then, alike on every worker.
        """


class AgentConfig(Protocol):
    """Hyper-parameters that know how to make their agent.

    Example:
        >>> agent = tfrl.agents.PPO().create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2), seed=0)
        >>> type(agent).__name__
        'PPOAgent'
    """

    def create(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        seed: int = 0,
        network: Any = None,
    ) -> Agent:
        """Returns an agent for the spaces of one environment.

        A trainer also gives `n_envs` and `n_steps` of its trajectories to a `create`
        that has arguments of these names.

        Args:
            observation_space: of one environment.
            action_space: of one environment.
            seed: of weights and draws.
            network: a Keras model, or a function of both spaces that returns one, in
                the place of the agent's own.
        """
