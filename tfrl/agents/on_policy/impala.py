"""Actor-critic learning from trajectories of older policies: IMPALA."""

import dataclasses
from typing import Any

import tensorflow as tf

from tfrl.agents import advantages, agent, gradient_transforms
from tfrl.agents.on_policy import _on_policy, _settings
from tfrl.core import pytree, records


@dataclasses.dataclass(frozen=True)
class IMPALA(_settings.OneStep):
    """Hyper-parameters of the importance-weighted actor-learner.

    The policy that acted may be some updates behind the one that learns: V-trace
    corrects for this with

        rhos = policy(actions) / policy that acted(actions)

    and each trajectory gives one gradient step of

        loss = mean(-log_prob * A) + value_coefficient * mean((V - v)^2) / 2
               - entropy_coefficient * mean(entropy)
        A[t] = min(clip_pg_rho, rhos[t]) * (rewards[t] + gamma * v[t + 1] - V[t])

    where v are the targets of `tfrl.ops.vtrace`. Trajectories must have the `log_probs`
    of their actions as they were taken; trainers ensure this.

    Attributes:
        gamma: discount factor per step.
        lambda_: of V-trace: 1 trusts the rewards, less relies on the values.
        clip_rho: largest ratio that weighs a temporal difference; the smaller, the
            nearer the values are to those of the policy that acted.
        clip_pg_rho: largest ratio that weighs an advantage.
        learning_rate: of RMSProp: a number, or a schedule of `tfrl.schedules` or Keras.
        learning_rate_schedule: `"linear"` lets the number fall to 0 over the run.
        decay: of the mean of squared gradients, of RMSProp.
        eps: under the root of that mean. The authors' program uses 0.1, and a mean that
            starts at 1 and not at 0, for gradients that are summed over all rows; here
            they are averaged, and smaller by as much.
        optimizer: as in `PPO`; None for RMSProp of `decay` and `eps`.
        value_coefficient: weight of the value loss, which is halved.
        entropy_coefficient: weight of the entropy bonus: a number or a schedule.
        max_gradient_norm: clips gradients to this global norm; None for no clipping.
        normalize_observations: by running moments that are saved with the agent.
        hidden_units: of the actor and of the critic.
        activation: of both.
        squash: squash continuous actions by tanh instead of clipping them.
        log_std: initial log standard deviation of continuous actions.
        memory: "gru", "lstm", "own" or None, as in `PPO`. The state remembered before
            the first step is used as it was.
        memory_units: as in `PPO`.

    Example:
        >>> agent = IMPALA().create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2), seed=0)
        >>> agent.policy.act(np.zeros((2, 3), np.float32), seed=0).log_probs.shape
        (2,)

    References:
        Espeholt et al., 2018, IMPALA: Scalable Distributed Deep-RL with Importance
        Weighted Actor-Learner Architectures, section 4.
    """

    gamma: float = 0.99
    lambda_: float = 1.0
    clip_rho: float = 1.0
    clip_pg_rho: float = 1.0
    learning_rate: agent.Scheduled = 6e-4
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
            positive=("eps", "clip_rho", "clip_pg_rho"),
            nonnegative=("value_coefficient",),
            optional=("max_gradient_norm",),
            shares=("gamma", "lambda_"),
            below_one=("decay",),
        )

    def _learner(self) -> dict[str, Any]:
        given = {"decay": self.decay, "eps": self.eps}
        return {"optimizer": gradient_transforms.rmsprop, **given}

    def _agent(self, policy: Any) -> "IMPALAAgent":
        return IMPALAAgent(policy=policy, config=self)


class IMPALAAgent(_on_policy.OnPolicyAgent):
    """A policy trained by corrected trajectories. Make one with `IMPALA.create`.

    Attributes:
        policy: the `ActorCriticPolicy`, or `RecurrentPolicy`.
        config: the hyper-parameters.

    Example:
        >>> agent = IMPALA().create(
        ...     gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Discrete(2), seed=0)
        >>> flags = np.zeros((1, 2), bool)
        >>> agent, info = agent.update(tfrl.core.Trajectory(
        ...     np.zeros((1, 2, 1), np.float32), np.zeros((1, 2), np.int32),
        ...     np.ones((1, 2), np.float32), flags, flags,
        ...     np.zeros((1, 2, 1), np.float32), ~flags,
        ...     log_probs=np.full((1, 2), -0.7, np.float32)))
        >>> float(info["gradient_steps"])
        1.0
    """

    config: IMPALA = pytree.nonpytree_field()

    @property
    def needs_log_probs(self) -> bool:
        """Whether trajectories must have log-probabilities: yes."""
        return True

    def _advantages(
        self,
        trajectory: records.Trajectory,
        rewards: tf.Tensor,
        outputs: advantages.Outputs | None,
    ) -> advantages.Experience:
        config = self.config
        return advantages.estimate_corrected_advantages(
            self.policy,
            trajectory,
            rewards,
            gamma=config.gamma,
            lambda_=config.lambda_,
            clip_rho=config.clip_rho,
            clip_pg_rho=config.clip_pg_rho,
            outputs=outputs,
        )
