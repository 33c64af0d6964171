"""The policy gradient with a learned baseline: REINFORCE."""

import dataclasses
from typing import Any, ClassVar

from tfrl.agents import agent
from tfrl.agents.on_policy import _on_policy, _settings
from tfrl.core import pytree


@dataclasses.dataclass(frozen=True)
class PolicyGradient(_settings.OneStep):
    """Hyper-parameters of the policy gradient with a learned baseline.

    Each trajectory gives one gradient step of

        loss = mean(-log_prob * A) + value_coefficient * mean((V - G)^2) / 2
               - entropy_coefficient * mean(entropy)

    where G is the lambda-return and A = G - V, normalized over the trajectory.

    Attributes:
        gamma: discount factor per step.
        lambda_: 1 is REINFORCE with a baseline, less relies on the values.
        learning_rate: of Adam: a number, or a schedule of `tfrl.schedules` or Keras.
        optimizer: as in `PPO`; None for Adam.
        value_coefficient: weight of the value loss, which is halved.
        entropy_coefficient: weight of the entropy bonus: a number or a schedule.
        max_gradient_norm: clips gradients to this global norm; None for no clipping.
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

    normalize_advantages: ClassVar[bool] = True
    normalize_observations: ClassVar[bool] = False

    gamma: float = 0.99
    lambda_: float = 1.0
    learning_rate: agent.Scheduled = 3e-3
    value_coefficient: float = 0.5
    entropy_coefficient: agent.Scheduled = 0.0
    max_gradient_norm: float | None = 0.5
    hidden_units: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    optimizer: agent.Optimizer = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        agent.check_settings(
            self,
            nonnegative=("value_coefficient",),
            optional=("max_gradient_norm",),
            shares=("gamma", "lambda_"),
        )

    def _agent(self, policy: Any) -> "PolicyGradientAgent":
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
