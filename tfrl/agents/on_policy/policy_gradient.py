"""The policy gradient with a learned baseline: REINFORCE."""

import dataclasses
from typing import Any, ClassVar

import gymnasium as gym
import tensorflow as tf

from tfrl.agents import advantages, agent
from tfrl.agents.on_policy import _on_policy
from tfrl.core import pytree
from tfrl.losses import policy as policy_losses


@dataclasses.dataclass(frozen=True)
class PolicyGradient:
    """Hyper-parameters of the policy gradient with a learned baseline.

    Each trajectory gives one gradient step of

        loss = mean(-log_prob * A) + value_coefficient * mean((V - G)^2) / 2
               - entropy_coefficient * mean(entropy)

    where G is the lambda-return and A = G - V, normalized over the trajectory.

    Attributes:
        gamma: discount factor per step.
        lambda_: 1 is REINFORCE with a baseline, less leans on the values.
        learning_rate: of Adam: a number, or a schedule of `tfrl.schedules` or Keras.
        value_coefficient: weight of the value loss.
        entropy_coefficient: weight of the entropy bonus.
        max_gradient_norm: global norm to which gradients are clipped; None for free.
        hidden_units: of the actor and of the critic.
        activation: of both.

    Example:
        >>> agent = PolicyGradient().create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2), seed=0)
        >>> agent.policy.act(np.zeros((2, 3), np.float32), seed=0).actions.shape
        (2,)

    References:
        Williams, 1992, Simple Statistical Gradient-Following Algorithms for
        Connectionist Reinforcement Learning, section 5 (baselines).
    """

    learns_from: ClassVar[str] = "trajectories"
    # In the terms of PPO: one gradient step on all rows, clipped by nothing.
    n_epochs: ClassVar[int] = 1
    minibatch_size: ClassVar[None] = None
    value_clip: ClassVar[None] = None
    target_kl: ClassVar[None] = None
    normalize_advantages: ClassVar[bool] = True
    normalize_observations: ClassVar[bool] = False
    normalize_rewards: ClassVar[bool] = False

    gamma: float = 0.99
    lambda_: float = 1.0
    learning_rate: agent.Scheduled = 3e-3
    value_coefficient: float = 0.5
    entropy_coefficient: float = 0.0
    max_gradient_norm: float | None = 0.5
    hidden_units: tuple[int, ...] = (64, 64)
    activation: str = "tanh"

    def __post_init__(self) -> None:
        agent.check_settings(
            self, optional=("max_gradient_norm",), shares=("gamma", "lambda_")
        )

    def create(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        n_envs: int | None = None,
        n_steps: int | None = None,
        seed: int = 0,
        network: Any = None,
    ) -> "PolicyGradientAgent":
        """Returns an agent for the spaces of one environment.

        Args:
            observation_space: of one environment.
            action_space: of one environment.
            n_envs: environments per trajectory, N.
            n_steps: steps per environment and trajectory, T; with it and `n_envs`,
                replicas that cannot share the rows are found before the first update.
            seed: of the weights.
            network: a Keras model of your own, or a function of both spaces that
                returns one: from observations to a pair of the head's parameters and
                values; see `ActorCriticPolicy.create`.

        Returns:
            A `PolicyGradientAgent` that learned nothing yet.

        Raises:
            TypeError: if a space is of an unsupported kind, or `network` no model.
            ValueError: if the outputs of `network` do not fit, or the replicas cannot
                share the rows evenly.
        """
        _on_policy.check_counts(self, n_envs, n_steps)
        policy = agent.actor_critic_of(
            self, observation_space, action_space, network, seed
        )
        return PolicyGradientAgent(policy=policy, config=self)


class PolicyGradientAgent(_on_policy.OnPolicyAgent):
    """A policy trained by its gradient. Make one with `PolicyGradient.create`.

    Attributes:
        policy: the `ActorCriticPolicy`.
        config: the hyper-parameters.

    Example:
        >>> agent = PolicyGradient().create(
        ...     gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Discrete(2), seed=0)
        >>> flags = np.zeros((1, 2), bool)
        >>> agent, info = agent.update(tfrl.core.Trajectory(
        ...     np.zeros((1, 2, 1), np.float32), np.zeros((1, 2), np.int32),
        ...     np.ones((1, 2), np.float32), flags, flags,
        ...     np.zeros((1, 2, 1), np.float32), ~flags))
        >>> sorted(info)[:3]
        ['entropy', 'explained_variance', 'gradient_steps']
    """

    config: PolicyGradient = pytree.nonpytree_field()

    def _policy_losses(
        self, log_probs: tf.Tensor, rows: advantages.Experience, hyper: dict
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        del hyper
        return policy_losses.policy_gradient_loss(log_probs, rows.advantages).loss, {}
