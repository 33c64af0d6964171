"""Implicit Q-learning: offline, only from actions in the data."""

import dataclasses
from typing import Any, ClassVar, Self

import gymnasium as gym
import tensorflow as tf

from tfrl._internal import checks
from tfrl.agents import (
    _actor_critics,
    _minibatches,
    agent,
    train_state,
)
from tfrl.core import pytree, records
from tfrl.losses import offline, temporal_difference
from tfrl.policies import actor_critic, critics


@dataclasses.dataclass(frozen=True)
class IQL:
    """Hyper-parameters of implicit Q-learning.

    Each gradient step takes, over a minibatch of transitions, one of values V and
    policy pi by the gradient of

        mean(weights * |expectile - (A < 0)| * A^2)       A = min_i Q'_i(s, a) - V(s)
        mean(-weights * min(exp(beta * A), max_weight) * log pi(a | s))

    and then one of all critics i by that of

        sum_i mean(weights * (r + discount * V(s') - Q_i(s, a))^2)

    after which the copy Q' follows: Q' <- tau * Q + (1 - tau) * Q'. Only actions in the
    data are valued. Policy and values are one `ActorCriticPolicy`, with which another
    learner can continue; continuous actions are drawn from a normal distribution with a
    learned deviation, and clipped to the bounds.

    Attributes:
        learning_rate: of Adam: a number, or a schedule of `tfrl.schedules` or Keras.
        optimizer: as in `PPO`; None for Adam.
        expectile: of the values, 0.5 for their mean; nearer 1, nearer to the maximum.
        beta: inverse temperature: 0 clones all actions alike.
        max_weight: the greatest weight of an action.
        n_critics: how many there are.
        tau: share that the copy takes over.
        max_gradient_norm: clips gradients to this global norm; None for no clipping.
        hidden_units: of policy, values and critics.
        activation: of policy, values and critics.
        squash: squash continuous actions by tanh instead of clipping them.
        log_std: initial log standard deviation of continuous actions.
        normalize_observations: keep moments of all observed Boxes except images.

    Example:
        >>> agent = IQL(hidden_units=(8,)).create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Box(-2.0, 2.0, (1,)))
        >>> agent.policy.act(np.zeros((2, 3), np.float32), seed=0).actions.shape
        (2, 1)

    References:
        Kostrikov et al., 2022, Offline Reinforcement Learning with Implicit Q-Learning,
        eq. 5-7 and algorithm 1.
    """

    learns_from: ClassVar[str] = "recorded"
    usual_replay: ClassVar[dict[str, float]] = _actor_critics.USUAL_REPLAY
    initial_settings: ClassVar[tuple[str, ...]] = ("log_std",)

    learning_rate: agent.Scheduled = 3e-4
    expectile: float = 0.7
    beta: float = 3.0
    max_weight: float = 100.0
    n_critics: int = 2
    tau: float = 0.005
    max_gradient_norm: float | None = None
    hidden_units: tuple[int, ...] = (256, 256)
    activation: str = "relu"
    squash: bool = False
    log_std: float = 0.0
    normalize_observations: bool = False
    optimizer: agent.Optimizer = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        agent.check_settings(
            self,
            positive=("tau", "max_weight"),
            optional=("max_gradient_norm",),
            shares=("tau", "expectile"),
        )
        checks.check_within("IQL", "beta", self.beta, 0.0, float("inf"))
        checks.check_whole_number("IQL", "n_critics", self.n_critics, low=1)

    def create(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        seed: int = 0,
        network: Any = None,
    ) -> "IQLAgent":
        """Returns an agent for the spaces of one environment.

        Args:
            observation_space: of one environment, see `SpaceEncoder` for the kinds.
            action_space: of one environment, see `action_head` for the kinds.
            seed: of the weights.
            network: your own Keras model, or a function of both spaces that returns
                one: from observations to a pair of the head's parameters and values;
                see `ActorCriticPolicy.create`. The critics stay the agent's.

        Returns:
            An untrained `IQLAgent`.

        Raises:
            TypeError: if a space is of an unsupported kind, or `network` no model.
            ValueError: if `squash` does not fit the action space, or the outputs of
                `network` do not fit.
        """
        policy = agent.actor_critic_of(
            self, observation_space, action_space, network, seed
        )
        n_features = critics.n_action_features(policy.head)
        built = _actor_critics.built_critics(
            self, observation_space, n_features, seed=seed
        )
        values = agent.learner(self)(built)
        return IQLAgent(
            policy=policy,
            critics=values,
            target_critics=tf.nest.map_structure(tf.identity, values.params),
            config=self,
        )


class IQLAgent(_minibatches.MinibatchAgent):
    """A policy trained by implicit Q-learning. Make one with `IQL.create`.

    Attributes:
        policy: the `ActorCriticPolicy`, whose critic is V.
        critics: `TrainState` of the critics Q, which take observations and features of
            actions.
        target_critics: parameters of their copy.
        config: the hyper-parameters.

    Example:
        >>> agent = IQL(hidden_units=(8,)).create(
        ...     gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Discrete(2))
        >>> zeros, ones = np.zeros([4, 1], np.float32), np.ones(4, np.float32)
        >>> batch = tfrl.core.Transition(zeros, np.zeros(4, int), ones, ones, zeros)
        >>> agent, info = agent.update(tfrl.replay.Sample(batch, None, ones, ones))
        >>> sorted(info)[:4]
        ['advantage', 'critic_loss', 'learning_rate', 'policy_loss']
    """

    policy: actor_critic.ActorCriticPolicy
    critics: train_state.TrainState
    target_critics: Any
    config: IQL = pytree.nonpytree_field()

    _measured: ClassVar[tuple[str, ...]] = (
        "advantage",
        "critic_loss",
        "policy_loss",
        "q_value",
        "td_error",
        "value",
        "value_loss",
    )

    def _begin(self, hyper: dict[str, tf.Tensor]) -> tuple:
        states = [
            _minibatches.begun(state, hyper["learning_rate"])
            for state in (self.policy.state, self.critics)
        ]
        return (*states, self.target_critics)

    def _step(self, carry: Any, rows: records.Transition, weights: tf.Tensor) -> tuple:
        config, head = self.config, self.policy.head
        actors, learning, target = carry
        known = learning.state

        def loss_fn(state: Any, params: Any, part: Any) -> tuple[tf.Tensor, dict]:
            rows, weights = part
            parameters, values = state(rows.observations, params=params)
            taken = critics.action_features(head, rows.actions)
            q_values = known((rows.observations, taken), params=target)
            q_values = tf.reduce_min(q_values, axis=0)
            advantages = q_values - values
            apart = temporal_difference.expectile_loss(
                values, q_values, config.expectile
            )
            value_loss = tf.reduce_mean(weights * apart.loss)
            cloned = offline.advantage_weighted_loss(
                head.log_prob(parameters, rows.actions),
                tf.stop_gradient(advantages),
                config.beta,
                config.max_weight,
            )
            policy_loss = tf.reduce_mean(weights * cloned.loss)
            return value_loss + policy_loss, {
                "advantage": tf.reduce_mean(advantages),
                "policy_loss": policy_loss,
                "value": tf.reduce_mean(values),
                "value_loss": value_loss,
            }

        actors, info = actors.apply_loss_fn(loss_fn, (rows, weights))
        later = actors.state(rows.next_observations, method="critic")
        targets = temporal_difference.td_target(rows.rewards, rows.discounts, later)
        learning, fit, errors = _actor_critics.fitted(
            learning, head, rows, weights, targets
        )
        target = _minibatches.moved(target, learning.state.params, config.tau)
        return (actors, learning, target), {**info, **fit}, errors

    def _end(self, carry: Any, hyper: dict[str, tf.Tensor]) -> Self:
        del hyper
        actors, learning, target = carry
        return self.replace(
            policy=self.policy.replace(state=actors.state),
            critics=learning.state,
            target_critics=target,
        )
