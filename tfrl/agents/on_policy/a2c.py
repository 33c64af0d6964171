"""Advantage actor-critic, in which all environments step together: A2C."""

import dataclasses
from typing import Any

from tfrl.agents import agent, gradient_transforms
from tfrl.agents.on_policy import _on_policy, _settings
from tfrl.core import pytree


@dataclasses.dataclass(frozen=True)
class A2C(_settings.OneStep):
    """Hyper-parameters of the advantage actor-critic.

    Each trajectory, of a few steps, gives one gradient step of

        loss = mean(-log_prob * A) + value_coefficient * mean((V - G)^2) / 2
               - entropy_coefficient * mean(entropy)

    where G is the return up to the end of the trajectory, bootstrapped from the value
    there, and A = G - V.

    Attributes:
        gamma: discount factor per step.
        lambda_: 1 trusts the rewards of the trajectory, less relies on the values.
        learning_rate: of RMSProp: a number, or a schedule of `tfrl.schedules` or Keras.
        learning_rate_schedule: `"linear"` lets the number fall to 0 over the run.
        decay: of the mean of squared gradients, of RMSProp.
        eps: under the root of that mean.
        optimizer: as in `PPO`; None for RMSProp of `decay` and `eps`.
        value_coefficient: weight of the value loss, which is halved: 1.0 here equals
            Stable-Baselines3's default of 0.5.
        entropy_coefficient: weight of the entropy bonus: a number or a schedule. The
            default is that of OpenAI's Baselines, for policies that stay random for
            longer; Stable-Baselines3 has 0.
        max_gradient_norm: clips gradients to this global norm; None for no clipping.
        normalize_observations: by running moments that are saved with the agent.
        hidden_units: of the actor and of the critic.
        activation: of both.
        squash: squash continuous actions by tanh instead of clipping them.
        log_std: initial log standard deviation of continuous actions.
        memory: "gru", "lstm", "own" or None, as in `PPO`.
        memory_units: as in `PPO`.

    Example:
        >>> agent = A2C().create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2), seed=0)
        >>> agent.policy.act(np.zeros((2, 3), np.float32), seed=0).actions.shape
        (2,)

    References:
        Mnih et al., 2016, Asynchronous Methods for Deep Reinforcement Learning,
        algorithm S3, its workers synchronous.
    """

    gamma: float = 0.99
    lambda_: float = 1.0
    learning_rate: agent.Scheduled = 7e-4
    learning_rate_schedule: str = "constant"
    decay: float = 0.99
    eps: float = 1e-5
    value_coefficient: float = 0.5
    entropy_coefficient: agent.Scheduled = 0.01
    max_gradient_norm: float | None = 0.5
    normalize_observations: bool = False
    hidden_units: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    squash: bool = False
    log_std: float = 0.0
    memory: str | None = None
    memory_units: int = 64
    optimizer: agent.Optimizer = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        agent.check_settings(
            self,
            positive=("eps",),
            nonnegative=("value_coefficient",),
            optional=("max_gradient_norm",),
            shares=("gamma", "lambda_"),
            below_one=("decay",),
        )

    def _learner(self) -> dict[str, Any]:
        given = {"decay": self.decay, "eps": self.eps, "initial_scale": 1.0}
        return {"optimizer": gradient_transforms.rmsprop, **given}

    def _agent(self, policy: Any) -> "A2CAgent":
        return A2CAgent(policy=policy, config=self)


class A2CAgent(_on_policy.OnPolicyAgent):
    """A policy trained by the advantage actor-critic. Make one with `A2C.create`.

    Attributes:
        policy: the `ActorCriticPolicy`, or `RecurrentPolicy`.
        config: the hyper-parameters.

    Example:
        >>> agent = A2C().create(
        ...     gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Discrete(2), seed=0)
        >>> flags = np.zeros((1, 2), bool)
        >>> agent, info = agent.update(tfrl.core.Trajectory(
        ...     np.zeros((1, 2, 1), np.float32), np.zeros((1, 2), np.int32),
        ...     np.ones((1, 2), np.float32), flags, flags,
        ...     np.zeros((1, 2, 1), np.float32), ~flags))
        >>> float(info["gradient_steps"])
        1.0
    """

    config: A2C = pytree.nonpytree_field()
