"""Conservative Q-learning, offline: on SAC for numbers, on DQN for choices."""

import dataclasses
import math
from typing import Any, ClassVar

import gymnasium as gym
import tensorflow as tf

from tfrl._internal import checks
from tfrl._internal import draws as random_draws
from tfrl.agents import _actor_critics
from tfrl.agents.off_policy import dqn, sac
from tfrl.core import pytree, random, records
from tfrl.losses import offline


@dataclasses.dataclass(frozen=True)
class CQL(sac.SAC):
    """Hyper-parameters of conservative Q-learning for Box actions with bounds.

    It is `SAC`, with its attributes, except that the critics' loss has an added term
    for each critic,

        conservative_weight * mean(log mean_b exp(Q(s, b) - log mu(b)) - Q(s, a))

    over actions b of which `n_samples` each are drawn from a uniform distribution, from
    pi(. | s) and from pi(. | s'), with log-densities log mu: values of actions that the
    data do not hold are pulled down.

    Attributes:
        learning_rate: of the actor. It and the entropy in the targets are as in `SAC`,
            so that only the penalty differs; the authors' program has 1e-4, and no
            entropy in the targets by default.
        conservative_weight: of the penalty; the paper's alpha.
        n_samples: actions from each of the three distributions.

    Example:
        >>> agent = CQL(hidden_units=(8,)).create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Box(-2.0, 2.0, (1,)))
        >>> agent.policy.act(np.zeros((2, 3), np.float32), seed=0).actions.shape
        (2, 1)

    References:
        Kumar et al., 2020, Conservative Q-Learning for Offline Reinforcement Learning,
        eq. 4, algorithm 1 and appendix F.
    """

    learns_from: ClassVar[str] = "recorded"

    conservative_weight: float = 5.0
    n_samples: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        weight = self.conservative_weight
        checks.check_within("CQL", "conservative_weight", weight, 0.0, math.inf)
        checks.check_whole_number("CQL", "n_samples", self.n_samples, low=1)

    def create(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        seed: int = 0,
        network: Any = None,
    ) -> "CQLAgent":
        """Returns an agent for the spaces of one environment.

        Args:
            observation_space: of one environment, see `SpaceEncoder` for the kinds.
            action_space: of one environment, a Box of floats with bounds.
            seed: of weights and draws.
            network: as in `SAC.create`.

        Returns:
            An untrained `CQLAgent`.

        Raises:
            TypeError: if a space is of an unsupported kind, or `network` no model.
            ValueError: if the outputs of `network` do not fit.
        """
        kind = gym.spaces.Box
        expected = "a Box of floats with bounds; `DiscreteCQL` takes choices"
        checks.check_type("CQL.create", "action_space", action_space, kind, expected)
        policy, critics = _actor_critics.made(
            self,
            observation_space,
            action_space,
            seed=seed,
            network=network,
            dropout_rate=self.dropout_rate,
            layer_norm=self.layer_norm,
        )
        if not getattr(policy.head, "squash", False):
            raise checks.wrong_type(
                "CQL.create", "action_space", action_space, expected
            )
        return sac.made(CQLAgent, self, policy, critics, seed)


class CQLAgent(sac.SACAgent):
    """A policy trained by conservative Q-learning. Make one with `CQL.create`.

    Attributes: those of `SACAgent`.

    Example:
        >>> box = gym.spaces.Box(-1.0, 1.0, (1,))
        >>> agent = CQL(hidden_units=(8,)).create(box, box, seed=0)
        >>> zeros, ones = np.zeros([4, 1], np.float32), np.ones(4, np.float32)
        >>> batch = tfrl.core.Transition(zeros, zeros, ones, ones, zeros)
        >>> agent, info = agent.update(tfrl.replay.Sample(batch, None, ones, ones))
        >>> bool(info["critic_loss"] > 0)
        True
    """

    config: CQL = pytree.nonpytree_field()

    def _penalty_draws(self, n_rows: int, seed: tf.Tensor) -> Any:
        shape = [n_rows, self.config.n_samples, self.policy.head.n_log_stds]
        uniform, now, later = random.split_seed(random.split_seed(seed, 2)[1], 3)
        return (
            2.0 * random_draws.uniform(shape, uniform, tf.float32) - 1.0,
            random_draws.normal(shape, now, tf.float32),
            random_draws.normal(shape, later, tf.float32),
        )

    def _penalty(
        self, networks: tuple, rows: records.Transition, values: tf.Tensor, draws: Any
    ) -> tf.Tensor:
        critics, params, masks, actor = networks
        uniform, *noise = draws
        n_rows, count, width = uniform.shape
        features = [uniform]
        log_probs = [tf.fill([n_rows, count], -width * math.log(2.0))]
        for seen, each in zip(
            (rows.observations, rows.next_observations), noise, strict=True
        ):
            shaped = self.policy.distributed(actor(seen), 1.0, None)
            many = tf.repeat(shaped, count, axis=0)
            flat = tf.reshape(each, [n_rows * count, width])
            drawn = _actor_critics.drawn(self.policy.head, many, [flat])
            features.append(tf.reshape(drawn.features, [n_rows, count, width]))
            log_probs.append(tf.reshape(-drawn.entropies, [n_rows, count]))
        every = tf.reshape(tf.concat(features, axis=1), [n_rows * 3 * count, width])
        # What dropout leaves of a critic is the same for all actions of a row.
        observations, masks = tf.nest.map_structure(
            lambda x: tf.repeat(x, 3 * count, axis=0), (rows.observations, masks)
        )
        sampled = self._values(critics, params, observations, every, masks)
        sampled = tf.transpose(tf.reshape(sampled, [-1, n_rows, 3 * count]), [1, 2, 0])
        penalty = offline.sampled_conservative_q_loss(
            sampled, tf.concat(log_probs, axis=1), tf.transpose(values)
        )
        each = tf.reduce_sum(penalty.loss, axis=1)
        return self.config.conservative_weight * tf.reduce_mean(each)


@dataclasses.dataclass(frozen=True)
class DiscreteCQL(dqn.DQN):
    """Hyper-parameters of conservative Q-learning for Discrete actions.

    It is `DQN`, with its attributes, except that the loss of each transition has the
    added term

        conservative_weight * (log sum_b exp(Q(s, b)) - Q(s, a))

    which pulls down the values of choices that the data do not hold.

    Attributes:
        conservative_weight: of the penalty; the paper's alpha.

    Example:
        >>> agent = DiscreteCQL(hidden_units=(8,)).create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2))
        >>> agent.policy.act(np.zeros((2, 3), np.float32), seed=0).actions.shape
        (2,)

    References:
        Kumar et al., 2020, Conservative Q-Learning for Offline Reinforcement Learning,
        eq. 4 and appendix F.
    """

    learns_from: ClassVar[str] = "recorded"

    conservative_weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        where, weight = "DiscreteCQL", self.conservative_weight
        checks.check_within(where, "conservative_weight", weight, 0.0, math.inf)

    def _compared(
        self,
        state: Any,
        params: Any,
        target: Any,
        rows: records.Transition,
        chance: Any,
    ) -> dqn.Compared:
        found = super()._compared(state, params, target, rows, chance)
        values = state(rows.observations, params=params)
        penalty = offline.conservative_q_loss(values, rows.actions).loss
        return found._replace(losses=found.losses + self.conservative_weight * penalty)
