"""Truncated quantile critics: soft actor-critic without the highest quantiles."""

import dataclasses
from typing import Any, ClassVar

import gymnasium as gym
import tensorflow as tf

from tfrl._internal import checks
from tfrl.agents import _actor_critics, agent
from tfrl.agents.off_policy import sac
from tfrl.core import pytree
from tfrl.losses import quantile, temporal_difference


@dataclasses.dataclass(frozen=True)
class TQC:
    """Hyper-parameters of truncated quantile critics.

    As in `SAC`, but each of N critics predicts M quantiles z of the returns that may
    follow. Each gradient step moves them, by the quantile Huber loss at the midpoints
    of M equal parts of probability, towards samples of the target

        y_k = r + discount * (z_(k) - alpha * log pi(a' | s')),    k = 1 ... (M - d) N

    where z_(1) <= z_(2) <= ... are the quantiles of all critics' copies at (s', a') in
    order: the highest d N of them are left out, against overestimation. The actor
    maximises the mean of all quantiles.

    Attributes:
        learning_rate: of the actor, by Adam: a number, or a schedule of
            `tfrl.schedules` or Keras.
        critic_learning_rate: of the critics, likewise.
        temperature_learning_rate: of log alpha, likewise.
        optimizer: as in `PPO`; None for Adam. The temperature learns by Adam.
        temperature: alpha, at the beginning if it is learned.
        learn_temperature: whether alpha is learned; else it is constant.
        target_entropy: as in `SAC`.
        tau: share that the critics' copy takes over each step.
        n_critics: N.
        n_quantiles: M.
        n_dropped: d, for each critic.
        policy_delay: steps of the critics for each of actor and temperature.
        max_gradient_norm: as in `SAC`.
        hidden_units: of the actor and each critic.
        activation: of the networks.
        noise_steps: as in `SAC`.
        normalize_observations: as in `SAC`.

    Example:
        >>> agent = TQC(hidden_units=(8,)).create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Box(-2.0, 2.0, (1,)))
        >>> agent.policy.act(np.zeros((2, 3), np.float32), seed=0).actions.shape
        (2, 1)

    References:
        Kuznetsov et al., 2020, Controlling Overestimation Bias with Truncated Mixture
        of Continuous Distributional Quantile Critics, algorithm 1.
    """

    learns_from: ClassVar[str] = "transitions"
    usual_replay: ClassVar[dict[str, float]] = _actor_critics.USUAL_REPLAY
    initial_settings: ClassVar[tuple[str, ...]] = ("temperature",)

    learning_rate: agent.Scheduled = 3e-4
    critic_learning_rate: agent.Scheduled = 3e-4
    temperature_learning_rate: agent.Scheduled = 3e-4
    temperature: float = 1.0
    learn_temperature: bool = True
    target_entropy: float | None = None
    tau: float = 0.005
    n_critics: int = 5
    n_quantiles: int = 25
    n_dropped: int = 2
    policy_delay: int = 1
    max_gradient_norm: float | None = None
    hidden_units: tuple[int, ...] = (256, 256)
    activation: str = "relu"
    noise_steps: int | None = None
    normalize_observations: bool = False
    optimizer: agent.Optimizer = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        sac.check(self)
        checks.check_whole_number("TQC", "n_quantiles", self.n_quantiles, low=1)
        checks.check_whole_number("TQC", "n_dropped", self.n_dropped, low=0)
        if self.n_dropped >= self.n_quantiles:
            raise ValueError(
                "`TQC`: `n_dropped` expected less than `n_quantiles`, "
                f"{self.n_quantiles}; got {self.n_dropped}"
            )

    def create(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        seed: int = 0,
        network: Any = None,
    ) -> "TQCAgent":
        """Returns an agent for the spaces of one environment.

        Args:
            observation_space: of one environment, see `SpaceEncoder` for the kinds.
            action_space: of one environment, see `action_head` for the kinds; not a
                Discrete one.
            seed: of weights and draws.
            network: as in `SAC.create`, except that a critic returns quantiles,
                `[B, M]`.

        Returns:
            An untrained `TQCAgent`.

        Raises:
            TypeError: if a space is of an unsupported kind, or `network` no model.
            ValueError: if the outputs of `network` do not fit.
        """
        if isinstance(action_space, gym.spaces.Discrete):
            expected = (
                "a Box, a MultiDiscrete, a MultiBinary, or a Dict or Tuple; Discrete "
                "is for QRDQN"
            )
            raise checks.wrong_type(
                "TQC.create", "action_space", action_space, expected
            )
        spaces = observation_space, action_space
        policy, critics = _actor_critics.made(
            self, *spaces, seed=seed, network=network, n_outputs=self.n_quantiles
        )
        return sac.made(TQCAgent, self, policy, critics, seed)


class TQCAgent(sac.SACAgent):
    """A policy trained with truncated quantile critics. Make one with `TQC.create`.

    Attributes:
        policy: the `ActorPolicy`.
        critics: `TrainState` of the critics.
        target_params: parameters of the critics' copy.
        log_temperature: `TrainState` of log alpha.
        rng: int32 `[2]`, seed of all draws.
        config: the hyper-parameters.

    Example:
        >>> box = gym.spaces.Box(-1.0, 1.0, (1,))
        >>> agent = TQC(hidden_units=(8,)).create(box, box, seed=0)
        >>> zeros, ones = np.zeros([4, 1], np.float32), np.ones(4, np.float32)
        >>> batch = tfrl.core.Transition(zeros, zeros, ones, ones, zeros)
        >>> agent, info = agent.update(tfrl.replay.Sample(batch, None, ones, ones))
        >>> info["priorities"].shape
        TensorShape([4])
    """

    config: TQC = pytree.nonpytree_field()

    def _chosen(self, seed: tf.Tensor) -> None:
        """None: the target is made of all critics."""

    def _targets(
        self, rows: Any, values: tf.Tensor, later: Any, alpha: tf.Tensor, chosen: Any
    ) -> tf.Tensor:
        """Samples of the target, `[B, (M - d) N]`."""
        del chosen
        n_critics, n_rows, n_quantiles = values.shape
        pooled = tf.reshape(tf.transpose(values, [1, 0, 2]), [n_rows, -1])
        count = n_critics * (n_quantiles - self.config.n_dropped)
        kept = tf.sort(pooled, axis=-1)[:, :count]
        soft = kept + alpha * later.entropies[:, tf.newaxis]
        return temporal_difference.td_target(rows.rewards, rows.discounts, soft)

    def _losses(
        self, values: tf.Tensor, features: tf.Tensor, targets: tf.Tensor
    ) -> tuple[tf.Tensor, dict]:
        """Losses `[B]`, and an info with mean values and absolute errors `[B]`."""
        del features
        each = quantile.quantile_td_loss(tf.transpose(values, [1, 0, 2]), targets).loss
        losses = tf.reduce_mean(each, axis=-1) / self.config.n_quantiles
        means = tf.reduce_mean(values, axis=2)
        sizes = tf.abs(tf.reduce_mean(targets, axis=-1) - means)
        rows = tf.reduce_mean(sizes, axis=0)
        return losses, {"q_value": tf.reduce_mean(means), "rows": rows}

    def _raised(self, values: tf.Tensor, features: tf.Tensor) -> tf.Tensor:
        """What the actor is to raise, `[B]`."""
        del features
        return tf.reduce_mean(values, axis=[0, 2])
