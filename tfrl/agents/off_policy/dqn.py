"""Deep Q-learning: double, duelling, prioritised, of several steps.

This file also holds what other algorithms of action values share: settings that make
such an agent, and the agent, whose settings define the loss.
"""

import dataclasses
from typing import Any, ClassVar, NamedTuple, Self

import gymnasium as gym
import tensorflow as tf

from tfrl._internal import checks
from tfrl.agents import _minibatches, agent
from tfrl.core import pytree, random, records
from tfrl.losses import temporal_difference
from tfrl.policies import action_value
from tfrl.schedules import schedulers

_EXPLORATION = schedulers.LinearScheduler("percent", ((0.0, 1.0), (0.1, 0.05)))


class Compared(NamedTuple):
    """What actions are worth beside what they are to be worth.

    Attributes:
        losses: `[B]`, which learn by their gradient.
        values: `[B]`, of the actions taken.
        errors: `[B]`, whose size is how much there is to learn.
    """

    losses: tf.Tensor
    values: tf.Tensor
    errors: tf.Tensor


@dataclasses.dataclass(frozen=True)
class QLearning:
    """Base class of the hyper-parameters of agents with action values.

    Each gradient step minimises `mean(weights * losses)` over a minibatch of
    transitions. The losses, which a subclass defines, compare a network with a copy
    that follows it.

    Attributes:
        learning_rate: of Adam: a number, or a schedule of `tfrl.schedules` or Keras.
        optimizer: as in `PPO`; None for Adam of `adam_epsilon`.
        epsilon: share of random actions, a number or a schedule; by default it falls
            from 1 to 0.05 over the first tenth of the run, whose progress a trainer
            reports, and your own loop by `tfrl.schedules.progress_context`.
        target_period: gradient steps between two updates of the copy.
        tau: share that the copy takes over; 1 copies all.
        max_gradient_norm: clips gradients to this global norm; None for no clipping.
        hidden_units: of the network.
        activation: of the network.
        adam_epsilon: the least that Adam divides by.
        normalize_observations: by running moments that are saved with the agent.

    Example:
        >>> issubclass(DQN, QLearning), QLearning().target_period
        (True, 250)
    """

    learns_from: ClassVar[str] = "transitions"
    # Whether a step draws anything, by a seed of the agent.
    _is_random: ClassVar[bool] = False

    learning_rate: agent.Scheduled = 1e-3
    epsilon: agent.Scheduled = _EXPLORATION
    target_period: int = 250
    tau: float = 1.0
    max_gradient_norm: float | None = 10.0
    hidden_units: tuple[int, ...] = (64, 64)
    activation: str = "relu"
    adam_epsilon: float = 1e-8
    normalize_observations: bool = False
    optimizer: agent.Optimizer = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        where = type(self).__name__
        optional = ("max_gradient_norm", "huber_delta")
        agent.check_settings(
            self,
            positive=("tau", "adam_epsilon"),
            optional=[name for name in optional if hasattr(self, name)],
            shares=("tau",),
        )
        agent.check_in_range(where, "epsilon", self.epsilon, 1.0)
        checks.check_whole_number(where, "target_period", self.target_period, low=1)
        for field in dataclasses.fields(self):
            if field.name.startswith("n_"):
                value = getattr(self, field.name)
                checks.check_whole_number(where, field.name, value, low=1)

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
            seed: of the weights, and of what is drawn in learning.
            network: your own Keras model, or a function of both spaces that returns
                one: from observations to the values of all choices, `[B, n]`; where
                these are distributions, to `[B, n * n_atoms]`, choice after choice.

        Returns:
            An untrained `DQNAgent`.

        Raises:
            TypeError: if a space is of an unsupported kind, or `network` no model.
            ValueError: if the outputs of `network` do not fit.
        """
        agent.check_spaces(self, observation_space, action_space)
        where, expected = f"{type(self).__name__}.create", "a Discrete space"
        kind = gym.spaces.Discrete
        checks.check_type(where, "action_space", action_space, kind, expected)
        options = {"hidden_units": self.hidden_units, "dueling": False}
        policy = action_value.ActionValuePolicy.create(
            observation_space,
            action_space,
            learner=agent.learner(self, eps=self.adam_epsilon),
            network=network,
            activation=self.activation,
            epsilon=agent.first(self.epsilon),
            normalize_observations=self.normalize_observations,
            seed=seed,
            **{**options, **self._network_options(seed)},
        )
        return DQNAgent(
            policy=policy,
            target_params=tf.nest.map_structure(tf.identity, policy.state.params),
            config=self,
            rng=random.new_seed(seed) if self._is_random else (),
        )

    def _network_options(self, seed: int) -> dict[str, Any]:  # noqa: ARG002
        """Returns arguments of `ActionValuePolicy.create`."""
        return {}

    def _drawn(self, seed: Any, n_rows: int) -> Any:  # noqa: ARG002
        """Returns a nest of `[B, ...]`, draws for the rows of a step."""
        return ()

    def _compared(
        self,
        state: Any,
        params: Any,
        target: Any,
        rows: records.Transition,
        chance: Any,
    ) -> Compared:
        """Compares what is learned with its targets.

        Args:
            state: the `TrainState`.
            params: of the network that learns.
            target: of its copy.
            rows: transitions `[B]`.
            chance: the seed of the step, alike for all rows, and what was `_drawn`.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class DQN(QLearning):
    """Hyper-parameters of deep Q-learning.

    Each gradient step minimises over a minibatch of transitions

        loss = mean(weights * huber(y - Q(s, a)))
        y = r + discount * Q'(s', argmax Q(s', .))          with `double`
        y = r + discount * max Q'(s', .)                    without

    where Q' is a copy of the network that follows it: every `target_period` gradient
    steps, Q' <- tau * Q + (1 - tau) * Q'. If observations have a part `"action_mask"`,
    the greatest value is over the actions that s' allows; where it allows none, as may
    be at the end of an episode cut off by a time limit, over all. The experience
    determines gamma, the number of steps of a transition and whether the replay is
    prioritised; see `tfrl.training.Replayed`.

    Attributes:
        learning_rate: of Adam: a number, or a schedule of `tfrl.schedules` or Keras.
        optimizer: as in `PPO`; None for Adam of `adam_epsilon`.
        epsilon: share of random actions, a number or a schedule; by default it falls
            from 1 to 0.05 over the first tenth of the run, whose progress a trainer
            reports, and your own loop by `tfrl.schedules.progress_context`.
        target_period: gradient steps between two updates of the copy.
        tau: share that the copy takes over; 1 copies all.
        max_gradient_norm: clips gradients to this global norm; None for no clipping.
        hidden_units: of the network.
        activation: of the network.
        adam_epsilon: the least that Adam divides by.
        normalize_observations: by running moments that are saved with the agent.
        double: choose the next action by the network itself. Mnih et al. choose by the
            copy, which overestimates values more.
        dueling: learn values of states and advantages of actions apart.
        huber_delta: error from which on the loss grows linearly; None for squared
            errors throughout.

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

    double: bool = True
    dueling: bool = False
    huber_delta: float | None = 1.0

    def _network_options(self, seed: int) -> dict[str, Any]:  # noqa: ARG002
        return {"dueling": self.dueling}

    def _compared(
        self,
        state: Any,
        params: Any,
        target: Any,
        rows: records.Transition,
        chance: Any,
    ) -> Compared:
        del chance
        values = state(rows.observations, params=params)
        values = temporal_difference.q_taken(values, rows.actions)
        later = state(rows.next_observations, params=target)
        told = rows.rewards, rows.discounts, later
        if self.double:
            chooser = tf.stop_gradient(state(rows.next_observations, params=params))
            targets = temporal_difference.double_q_target(*told, chooser)
        else:
            targets = temporal_difference.q_learning_target(*told)
        losses = temporal_difference.td_loss(values, targets, self.huber_delta)
        return Compared(losses.loss, values, targets - values)


class DQNAgent(_minibatches.MinibatchAgent):
    """A policy of action values and what trains it. Made by `DQN.create` and others.

    Attributes:
        policy: the `ActionValuePolicy`, or `RecurrentValuePolicy`.
        target_params: parameters of the network's copy.
        config: the hyper-parameters.
        rng: int32 `[2]`, seed of what is drawn in learning; `()` where nothing is.

    Example:
        >>> agent = DQN(hidden_units=(8,)).create(
        ...     gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Discrete(2), seed=0)
        >>> zeros, ones = np.zeros([4, 1], np.float32), np.ones(4, np.float32)
        >>> batch = tfrl.core.Transition(zeros, np.zeros(4, int), ones, ones, zeros)
        >>> agent, info = agent.update(tfrl.replay.Sample(batch, None, ones, ones))
        >>> sorted(info)
        ['epsilon', 'learning_rate', 'loss', 'priorities', 'q_value', 'td_error']
    """

    policy: Any
    target_params: Any
    config: QLearning = pytree.nonpytree_field()
    rng: Any = ()

    _scheduled: ClassVar[tuple[str, ...]] = ("learning_rate", "epsilon")
    _measured: ClassVar[tuple[str, ...]] = ("loss", "q_value", "td_error")

    def _begin(self, hyper: dict[str, tf.Tensor]) -> tuple:
        states = _minibatches.begun(self.policy.state, hyper["learning_rate"])
        return states, self.target_params

    def _step(self, carry: Any, rows: Any, weights: tf.Tensor) -> tuple:
        config, (states, target) = self.config, carry
        seed: Any = ()
        if config._is_random:
            seed = _minibatches.step_seed(self.rng, states.state.step)
        draws = config._drawn(seed, weights.shape[0])

        def loss_fn(state: Any, params: Any, part: Any) -> tuple[tf.Tensor, dict]:
            rows, draws, weights = part
            found = self._compared(state, params, target, rows, (seed, draws))
            loss = tf.reduce_mean(weights * found.losses)
            return loss, {
                "loss": loss,
                "q_value": tf.reduce_mean(found.values),
                "td_error": tf.reduce_mean(tf.abs(found.errors)),
                "rows": found.errors,
            }

        states, info = states.apply_loss_fn(loss_fn, (rows, draws, weights))
        # The count of the state begins at 1 and is that of the next step.
        state = states.state
        is_due = (state.step - 1) % config.target_period == 0
        target = tf.cond(
            is_due,
            lambda: _minibatches.moved(target, state.params, config.tau),
            lambda: target,
        )
        info = dict(info)
        return (states, target), info, info.pop("rows")

    def _compared(self, *given: Any) -> Compared:
        """Compares what is learned with its targets; see `QLearning`."""
        return self.config._compared(*given)

    def _end(self, carry: Any, hyper: dict[str, tf.Tensor]) -> Self:
        states, target = carry
        policy = self.policy.replace(state=states.state, epsilon=hyper["epsilon"])
        return self.replace(policy=policy, target_params=target)
