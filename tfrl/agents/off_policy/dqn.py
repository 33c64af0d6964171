"""Deep Q-learning: double, duelling, prioritised, of several steps."""

import dataclasses
from typing import Any, ClassVar, Self

import gymnasium as gym
import tensorflow as tf

from tfrl._internal import checks
from tfrl.agents import _minibatches, agent, replicated, train_state
from tfrl.core import pytree, records
from tfrl.losses import temporal_difference
from tfrl.policies import action_value
from tfrl.schedules import schedulers

_EXPLORATION = schedulers.LinearScheduler("percent", ((0.0, 1.0), (0.1, 0.05)))


@dataclasses.dataclass(frozen=True)
class DQN:
    """Hyper-parameters of deep Q-learning.

    Each gradient step minimises over a minibatch of transitions

        loss = mean(weights * huber(y - Q(s, a)))
        y = r + discount * Q'(s', argmax Q(s', .))          with `double`
        y = r + discount * max Q'(s', .)                    without

    where Q' is a copy of the network that follows it: every `target_period` gradient
    steps, Q' <- tau * Q + (1 - tau) * Q'. What gamma is, of how many steps a transition
    is made, and whether the replay is prioritised, the experience says; see
    `tfrl.training.Replayed`.

    Attributes:
        learning_rate: of Adam: a number, or a schedule of `tfrl.schedules` or Keras.
        epsilon: share of random actions, a number or a schedule; by default it falls
            from 1 to 0.05 over the first tenth of the run.
        double: choose the next action by the network itself.
        dueling: learn values of states and advantages of actions apart.
        target_period: gradient steps between two updates of the copy.
        tau: share that the copy takes over; 1 copies all.
        huber_delta: error from which on the loss grows linearly; None is squared all
            the way.
        max_gradient_norm: global norm to which gradients are clipped; None for free.
        hidden_units: of the network.
        activation: of the network.

    Example:
        >>> agent = DQN(hidden_units=(8,)).create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2), seed=0)
        >>> agent.policy.act(np.zeros((2, 3), np.float32), seed=0).actions.shape
        (2,)

    References:
        Mnih et al., 2015, Human-Level Control through Deep Reinforcement Learning,
        algorithm 1. van Hasselt et al., 2016, Deep Reinforcement Learning with Double
        Q-learning, eq. 4.
    """

    learns_from: ClassVar[str] = "transitions"

    learning_rate: agent.Scheduled = 1e-3
    epsilon: agent.Scheduled = _EXPLORATION
    double: bool = True
    dueling: bool = False
    target_period: int = 250
    tau: float = 1.0
    huber_delta: float | None = 1.0
    max_gradient_norm: float | None = 10.0
    hidden_units: tuple[int, ...] = (64, 64)
    activation: str = "relu"

    def __post_init__(self) -> None:
        agent.check_settings(
            self,
            positive=("tau",),
            optional=("max_gradient_norm", "huber_delta"),
            shares=("tau",),
        )
        if not callable(self.epsilon):
            checks.check_within("DQN", "epsilon", self.epsilon, 0.0, 1.0)
        checks.check_whole_number("DQN", "target_period", self.target_period, low=1)
        for name in ("double", "dueling"):
            checks.check_type("DQN", name, getattr(self, name), bool, "a bool")

    def create(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        seed: int = 0,
        network: Any = None,
    ) -> "DQNAgent":
        """Returns an agent for the spaces of one environment.

        Args:
            observation_space: of one environment, see `SpaceEncoder` for the kinds.
            action_space: of one environment, a Discrete one.
            seed: of the weights.
            network: a Keras model of your own, or a function of both spaces that
                returns one: from observations to the values of all choices, `[B, n]`.

        Returns:
            A `DQNAgent` that learned nothing yet.

        Raises:
            TypeError: if a space is of an unsupported kind, or `network` no model.
            ValueError: if the outputs of `network` do not fit.
        """
        policy = action_value.ActionValuePolicy.create(
            observation_space,
            action_space,
            learner=agent.learner(self),
            network=network,
            hidden_units=self.hidden_units,
            activation=self.activation,
            dueling=self.dueling,
            epsilon=agent.first(self.epsilon),
            seed=seed,
        )
        return DQNAgent(
            policy=policy,
            target_params=tf.nest.map_structure(tf.identity, policy.state.params),
            config=self,
        )


class DQNAgent(_minibatches.MinibatchAgent):
    """A policy trained by deep Q-learning. Make one with `DQN.create`.

    Attributes:
        policy: the `ActionValuePolicy`.
        target_params: parameters of the network's copy.
        config: the hyper-parameters.

    Example:
        >>> agent = DQN(hidden_units=(8,)).create(
        ...     gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Discrete(2), seed=0)
        >>> zeros, ones = np.zeros([4, 1], np.float32), np.ones(4, np.float32)
        >>> batch = tfrl.core.Transition(zeros, np.zeros(4, int), ones, ones, zeros)
        >>> agent, info = agent.update(tfrl.replay.Sample(batch, None, ones, ones))
        >>> sorted(info)
        ['epsilon', 'learning_rate', 'loss', 'priorities', 'q_value', 'td_error']
    """

    policy: action_value.ActionValuePolicy
    target_params: Any
    config: DQN = pytree.nonpytree_field()

    _scheduled: ClassVar[tuple[str, ...]] = ("learning_rate", "epsilon")
    _measured: ClassVar[tuple[str, ...]] = ("loss", "q_value", "td_error")

    def _begin(self, hyper: dict[str, tf.Tensor]) -> tuple:
        state = train_state.with_rate(self.policy.state, hyper["learning_rate"])
        return replicated.ReplicatedState.create(state), self.target_params

    def _step(self, carry: Any, rows: records.Transition, weights: tf.Tensor) -> tuple:
        config, (states, target) = self.config, carry

        def loss_fn(state: Any, params: Any, part: Any) -> tuple[tf.Tensor, dict]:
            rows, weights = part
            values, targets = _compared(config, state, params, target, rows)
            losses = temporal_difference.td_loss(values, targets, config.huber_delta)
            loss = tf.reduce_mean(weights * losses.loss)
            return loss, {
                "loss": loss,
                "q_value": tf.reduce_mean(values),
                "td_error": tf.reduce_mean(tf.abs(targets - values)),
            }

        before = states.state
        values, targets = _compared(config, before, before.params, target, rows)
        states, info = states.apply_loss_fn(loss_fn, (rows, weights))
        # The count of the state begins at 1 and is that of the next step.
        state = states.state
        is_due = (state.step - 1) % config.target_period == 0
        tau = tf.where(is_due, config.tau, 0.0)
        target = _minibatches.moved(target, state.params, tau)
        return (states, target), info, targets - values

    def _end(self, carry: Any, hyper: dict[str, tf.Tensor]) -> Self:
        states, target = carry
        policy = self.policy.replace(state=states.state, epsilon=hyper["epsilon"])
        return self.replace(policy=policy, target_params=target)


def _compared(
    config: DQN, state: Any, params: Any, target: Any, rows: records.Transition
) -> tuple[tf.Tensor, tf.Tensor]:
    """Values of the actions taken, and what they are to be."""
    values = temporal_difference.q_taken(
        state(rows.observations, params=params), rows.actions
    )
    later = state(rows.next_observations, params=target)
    if not config.double:
        return values, temporal_difference.q_learning_target(
            rows.rewards, rows.discounts, later
        )
    chooser = state(rows.next_observations, params=params)
    return values, temporal_difference.double_q_target(
        rows.rewards, rows.discounts, later, tf.stop_gradient(chooser)
    )
