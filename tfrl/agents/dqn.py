"""Deep Q-learning: double, duelling, prioritised, of several steps."""

import dataclasses
from typing import Any, ClassVar, Self

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.agents import agent, replicated, train_state
from tfrl.core import pytree, records
from tfrl.losses import temporal_difference
from tfrl.policies import action_value
from tfrl.replay.sampling import transitions
from tfrl.schedules import progress as progresses
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


class DQNAgent(pytree.PyTreeNode):
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

    def update(
        self,
        sample: transitions.Sample,
        *,
        progress: progresses.Progress | None = None,
    ) -> tuple[Self, dict]:
        """Takes a gradient step on each of K minibatches, in one compiled call.

        With convolutions every step is a call of its own, between which Python takes
        notice of signals.

        Args:
            sample: of `tfrl.core.Transition`s, `[K, B, ...]` or `[B, ...]`; actions
                are the raw ones, from 0 on. Keep K and B, since others are compiled
                anew.
            progress: what hyper-parameters that are schedules follow; that in context
                if None.

        Returns:
            The new agent, and an info: float32 scalars, means over the steps, and
            `priorities`, the absolute errors `[K, B]` (or `[B]`) before each step.

        Raises:
            TypeError: if `sample` is something else.
            ValueError: if its parts differ in K or B, or the replicas cannot share B
                rows evenly.
        """
        data, weights = _checked(sample)
        replicated.check_rows("DQN.update", "batch_size", weights.shape[-1])
        names = ("learning_rate", "epsilon")
        hyper = agent.settings_at(self.config, progress, names)
        rank = len(weights.shape)
        if rank == 1:
            data, weights = tf.nest.map_structure(lambda x: x[None], (data, weights))
        policy = self.policy.replace(epsilon=hyper["epsilon"])
        learned = self.replace(policy=policy.lent())
        n_steps, n_rows = weights.shape
        work = replicated.Work(learned.policy.state, n_steps, n_rows)
        size = n_steps if work.is_brief or not tf.executing_eagerly() else 1
        pieces = []
        for start in range(0, n_steps, size):
            part = tf.nest.map_structure(
                lambda x, start=start: x[start : start + size], (data, weights)
            )
            learned, *found = replicated.run_update(
                _compiled_update, learned, *part, hyper
            )
            pieces.append(found)
        infos, priorities = zip(*pieces, strict=True)
        info = {name: sum(x[name] for x in infos) / len(infos) for name in infos[0]}
        errors = priorities[0] if len(priorities) == 1 else tf.concat(priorities, 0)
        info = {**info, **hyper, "priorities": errors if rank == 2 else errors[0]}
        return learned.replace(policy=learned.policy.returned(self.policy)), info


def _checked(sample: Any) -> tuple[records.Transition, Any]:
    """Returns transitions and weights of what an agent is given."""
    data = getattr(sample, "data", None)
    if not isinstance(sample, transitions.Sample) or not isinstance(
        data, records.Transition
    ):
        raise TypeError(
            "`DQN.update`: `sample` expected a Sample of Transitions, such as a replay "
            f"draws; got {type(sample).__name__}"
            + ("" if data is None else f" of {type(data).__name__}")
        )
    given = {"actions": data.actions, "rewards": data.rewards}
    given |= {"discounts": data.discounts, "weights": sample.weights}
    columns = {
        name: x if tf.is_tensor(x) else np.asarray(x) for name, x in given.items()
    }
    shapes = {name: tuple(x.shape) for name, x in columns.items()}
    if len({*shapes.values()}) > 1 or len(shapes["weights"]) not in (1, 2):
        raise ValueError(
            "`DQN.update`: `sample` expected actions, rewards, discounts and weights "
            f"of one shape, [B] or [K, B]; got {shapes}"
        )
    weights = columns.pop("weights")
    return data._replace(**columns), weights


def _update(
    agent: DQNAgent,
    data: records.Transition,
    weights: tf.Tensor,
    hyper: dict[str, tf.Tensor],
) -> tuple[DQNAgent, dict, tf.Tensor]:
    """Takes K gradient steps; returns the agent, means of the info, and errors."""
    config = agent.config
    data, weights = tf.nest.map_structure(tf.convert_to_tensor, (data, weights))
    normalize = agent.policy.normalize
    data = data._replace(
        observations=normalize(data.observations),
        next_observations=normalize(data.next_observations),
    )
    state = train_state.with_rate(agent.policy.state, hyper["learning_rate"])

    def body(k: tf.Tensor, states: Any, target: Any, sums: Any, errors: Any) -> tuple:
        rows = tf.nest.map_structure(lambda x: x[k], (data, weights))

        def loss_fn(state: Any, params: Any, part: Any) -> tuple[tf.Tensor, dict]:
            return _loss(config, state, params, target, *part)

        before = states.state
        found = _compared(config, before, before.params, target, rows[0])
        errors = errors.write(k, found[1] - found[0])
        states, info = states.apply_loss_fn(loss_fn, rows)
        # The count of the state begins at 1 and is that of the next step.
        state = states.state
        is_due = (state.step - 1) % config.target_period == 0
        tau = tf.where(is_due, config.tau, 0.0)
        target = tf.nest.map_structure(
            lambda new, old: old + tau * (new - old), state.params, target
        )
        return k + 1, states, target, tf.nest.map_structure(tf.add, sums, info), errors

    n_steps, n_rows = weights.shape
    sums = dict.fromkeys(("loss", "q_value", "td_error"), tf.zeros([]))
    errors = tf.TensorArray(tf.float32, n_steps, element_shape=[n_rows])
    states = replicated.ReplicatedState.create(state)
    _, states, target, sums, errors = tf.while_loop(
        lambda k, *_: k < n_steps,
        body,
        (tf.constant(0), states, agent.target_params, sums, errors),
    )
    policy = agent.policy.replace(state=states.state)
    info = {name: total / n_steps for name, total in sums.items()}
    agent = agent.replace(policy=policy, target_params=target)
    return agent, info, tf.abs(errors.stack())


_compiled_update = replicated.compiled_update(_update)


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


def _loss(
    config: DQN,
    state: Any,
    params: Any,
    target: Any,
    rows: records.Transition,
    weights: tf.Tensor,
) -> tuple[tf.Tensor, dict]:
    values, targets = _compared(config, state, params, target, rows)
    losses = temporal_difference.td_loss(values, targets, config.huber_delta).loss
    loss = tf.reduce_mean(weights * losses)
    return loss, {
        "loss": loss,
        "q_value": tf.reduce_mean(values),
        "td_error": tf.reduce_mean(tf.abs(targets - values)),
    }
