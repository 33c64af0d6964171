"""TD3 with behaviour cloning: offline, with one more term in the policy's loss."""

import dataclasses
from typing import Any, ClassVar

import tensorflow as tf

from tfrl._internal import checks
from tfrl.agents.off_policy import td3
from tfrl.core import pytree, records
from tfrl.policies import critics


@dataclasses.dataclass(frozen=True)
class TD3BC(td3.TD3):
    """Hyper-parameters of TD3 with behaviour cloning.

    It is `TD3`, with its attributes, except that the policy takes steps on

        mean((pi(s) - a)^2) - lambda * mean(Q_1(s, pi(s)))
        lambda = alpha / mean(|Q_1(s, pi(s))|)

    with actions in half ranges (half the distance between their bounds). Observations
    are normalized, by moments of those that were learned from.

    Attributes:
        alpha: how much values count beside the actions of the data.

    Example:
        >>> agent = TD3BC(hidden_units=(8,)).create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Box(-2.0, 2.0, (1,)))
        >>> agent.policy.act(np.zeros((2, 3), np.float32), seed=0).actions.shape
        (2, 1)

    References:
        Fujimoto and Gu, 2021, A Minimalist Approach to Offline Reinforcement Learning,
        eq. 3-5.
    """

    learns_from: ClassVar[str] = "recorded"

    normalize_observations: bool = True
    alpha: float = 2.5

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.check_within("TD3BC", "alpha", self.alpha, 0.0, float("inf"))

    def _agent_of(self, **fields: Any) -> "TD3BCAgent":
        return TD3BCAgent(**fields)


class TD3BCAgent(td3.TD3Agent):
    """A policy trained by TD3 with behaviour cloning. Make one with `TD3BC.create`.

    Attributes: those of `TD3Agent`.

    Example:
        >>> agent = TD3BC(hidden_units=(8,)).create(
        ...     gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Box(-1.0, 1.0, (1,)))
        >>> zeros, ones = np.zeros([4, 1], np.float32), np.ones(4, np.float32)
        >>> batch = tfrl.core.Transition(zeros, zeros, ones, ones, zeros)
        >>> agent, info = agent.update(tfrl.replay.Sample(batch, None, ones, ones))
        >>> bool(info["critic_loss"] > 0)
        True
    """

    config: TD3BC = pytree.nonpytree_field()

    def _learned_policy(
        self, actors: Any, values: Any, rows: records.Transition
    ) -> tuple[Any, tf.Tensor]:
        head, scale = self.policy.head, td3.half_ranges(self.policy.head)

        def valued(raw: tf.Tensor, rows: records.Transition) -> tf.Tensor:
            return values((rows.observations, critics.action_features(head, raw)))[0]

        # Of the global batch, so that replicas take the same.
        before = valued(actors.state(rows.observations), rows)
        weight = self.config.alpha / tf.reduce_mean(tf.abs(before))

        def loss_fn(state: Any, params: Any, rows: Any) -> tuple[tf.Tensor, tf.Tensor]:
            raw = state(rows.observations, params=params)
            apart = tf.reduce_mean(tf.square((raw - rows.actions) / scale))
            loss = apart - weight * tf.reduce_mean(valued(raw, rows))
            return loss, loss

        return actors.apply_loss_fn(loss_fn, rows)
