"""R2D2: deep Q-learning of a network with a memory, from sequences of a replay."""

import dataclasses
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.agents import agent
from tfrl.agents.off_policy import dqn
from tfrl.core import pytree, records
from tfrl.losses import temporal_difference
from tfrl.ops import multistep, value_transforms
from tfrl.policies import recurrent


@dataclasses.dataclass(frozen=True)
class R2D2(dqn.QLearning):
    """Hyper-parameters of recurrent deep Q-learning from a replay.

    A minibatch is of sequences, each of one episode: `burn_in` steps, which bring the
    memory of today's network up to date from the one that was kept in the replay,
    without gradient, and L steps to learn from. With Q[t] the values that the network
    gives after it has seen step t of these, and Q' those of its copy, whose memory is
    warmed up alike, a gradient step minimises

        loss = mean(weights * sum_t valid[t] * huber(y[t] - Q[t](a[t])) / L)
        y[t] = h(sum_{k < m} gamma^k r[t + k] + gamma^m h^-1(Q'[t + m](b[t + m])))
        b[t] = argmax Q[t] with `double`, argmax Q'[t] without

    where m is `n_step_returns`, or what is left until the episode was cut off by a time
    limit or the sequence ends, which is after its last step: Q'[L] is of the last
    observation. Behind a true end there is nothing. The map h makes returns small:

        h(x) = sign(x) * (sqrt(|x| + 1) - 1) + rescaling * x

    The copy follows as in `DQN`, and masks of actions count as there. Priorities of
    sequences are, over their valid steps to learn from,

        eta * max_t |y[t] - Q[t](a[t])| + (1 - eta) * mean_t |y[t] - Q[t](a[t])|

    Take `tfrl.training.Replayed(sequence_length=L, burn_in=..., sampler="prioritized")`
    for the experience; without any, a trainer draws uniformly, with L of 40 and a
    `burn_in` of 20.

    Attributes:
        learning_rate: of Adam: a number, or a schedule of `tfrl.schedules` or Keras.
        optimizer: as in `PPO`; None for Adam of `adam_epsilon`.
        epsilon: share of random actions, a number or a schedule; by default it falls
            from 1 to 0.05 over the first tenth of the run, whose progress a trainer
            reports, and your own loop by `tfrl.schedules.progress_context`.
        target_period: gradient steps between two updates of the copy.
        tau: share that the copy takes over; 1 copies all.
        max_gradient_norm: clips gradients to this global norm; None for no clipping.
        hidden_units: of the layers behind the memory.
        activation: of these layers.
        adam_epsilon: the least that Adam divides by.
        normalize_observations: by running moments that are saved with the agent.
        memory: "lstm" or "gru"; "own" for the memory of your own `network`, see
            `tfrl.policies.RecurrentPolicy.create`.
        memory_units: of it, or how many numbers your own remembers.
        gamma: discount factor per step.
        n_step_returns: maximum number of rewards of a target, m.
        double: as in `DQN`.
        dueling: as in `DQN`, behind one memory.
        huber_delta: error from which on the loss grows linearly; None for squared
            errors throughout.
        rescaling: weight of the linear part of h; None learns returns as they are.
        eta: share of the greatest error in priorities.

    Example:
        >>> agent = R2D2(memory_units=8).create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2), seed=0)
        >>> acted = agent.policy.act(
        ...     np.zeros((2, 3), np.float32), agent.policy.initial_state(2), seed=0)
        >>> acted.actions.shape, acted.state.shape
        ((2,), (2, 16))

    References:
        Kapturowski et al., 2019, Recurrent Experience Replay in Distributed
        Reinforcement Learning, section 2.3 and 3. Pohlen et al., 2018, Observe and Look
        Further: Achieving Consistent Performance on Atari, section 3.1, of h.
    """

    learns_from: ClassVar[str] = "sequences"
    usual_replay: ClassVar[dict[str, Any]] = {"batch_size": 32, "updates_per_step": 0.1}

    target_period: int = 100
    hidden_units: tuple[int, ...] = (64,)
    memory: str = "lstm"
    memory_units: int = 64
    gamma: float = 0.99
    n_step_returns: int = 5
    double: bool = True
    dueling: bool = True
    huber_delta: float | None = 1.0
    rescaling: float | None = 1e-3
    eta: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        where = type(self).__name__
        for name in ("gamma", "eta"):
            checks.check_within(where, name, getattr(self, name), 0.0, 1.0)
        if self.rescaling is not None:
            checks.check_within(where, "rescaling", self.rescaling, 0.0, np.inf)

    def create(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        seed: int = 0,
        network: Any = None,
        burn_in: int = 0,
    ) -> "R2D2Agent":
        """Returns an agent for the spaces of one environment.

        Args:
            observation_space: of one environment, see `SpaceEncoder` for the kinds.
            action_space: of one environment, a Discrete one.
            seed: of the weights.
            network: your own Keras model, or a function of both spaces that returns
                one, beside `memory` "own": from observations and memory to the values
                of all choices, `[B, n]`, and the new memory; see
                `tfrl.policies.RecurrentPolicy.create`.
            burn_in: how many steps of each sequence only warm up the memory; a trainer
                gives that of `Replayed`, a loop of your own that of `Sequences`.

        Returns:
            An untrained `R2D2Agent`.

        Raises:
            TypeError: if a space is of an unsupported kind, or `network` no model.
            ValueError: if the outputs of `network` do not fit, it lacks or is too much
                beside `memory`, or `burn_in` is negative.
        """
        agent.check_spaces(self, observation_space, action_space)
        where, expected = f"{type(self).__name__}.create", "a Discrete space"
        kind = gym.spaces.Discrete
        checks.check_type(where, "action_space", action_space, kind, expected)
        policy = recurrent.RecurrentPolicy.create(
            observation_space,
            action_space,
            learner=agent.learner(self, eps=self.adam_epsilon),
            hidden_units=self.hidden_units,
            activation=self.activation,
            normalize_observations=self.normalize_observations,
            seed=seed,
            network=network,
            epsilon=agent.first(self.epsilon),
            dueling=self.dueling,
            **agent.memory_options(self, network),
        )
        return R2D2Agent(
            policy=policy,
            target_params=tf.nest.map_structure(tf.identity, policy.state.params),
            config=self,
            burn_in=checks.check_whole_number(where, "burn_in", burn_in, low=0),
        )


class R2D2Agent(dqn.DQNAgent):
    """A policy of action values with a memory, and what trains it, of `R2D2.create`.

    Attributes:
        policy: the `RecurrentValuePolicy`.
        target_params: parameters of the network's copy.
        config: the hyper-parameters.
        rng: `()`: nothing is drawn in learning.
        burn_in: how many steps of each sequence only warm up the memory.

    Example:
        >>> agent = R2D2(memory_units=2).create(
        ...     gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Discrete(2), burn_in=1)
        >>> zeros, flags = np.zeros([4, 3], np.float32), np.zeros([4, 3], bool)
        >>> seen, states = zeros[..., None], np.zeros([4, 3, 4], np.float32)
        >>> steps = tfrl.core.Trajectory(seen, np.zeros([4, 3], int), zeros, flags,
        ...     flags, seen, ~flags, states=states)
        >>> ones = np.ones(4, np.float32)
        >>> agent, info = agent.update(tfrl.replay.Sample(steps, None, ones, ones))
        >>> info["priorities"].shape
        TensorShape([4])
    """

    config: R2D2 = pytree.nonpytree_field()
    burn_in: int = pytree.nonpytree_field(default=0)

    _record = records.Trajectory

    def _given(self, where: str, sample: Any) -> tuple[Any, Any]:
        data, weights = super()._given(where, sample)
        shape = tuple(data.rewards.shape)
        if shape[-1] <= self.burn_in:
            raise ValueError(
                f"`{where}`: `sample` expected sequences of more than `burn_in` = "
                f"{self.burn_in} steps; got {shape[-1]}"
            )
        asked, states = (*shape, self.policy.units), data.states
        if tf.nest.is_nested(states) or np.shape(states) != asked:
            got = tf.nest.map_structure(lambda x: [*np.shape(x)], states)
            raise ValueError(
                f"`{where}`: `sample` expected `states` of shape {[*asked]}, what the "
                f"policy remembered before each step; got {got}; keep it in the replay"
            )
        begun = data.valid[..., self.burn_in]
        if not (tf.is_tensor(begun) or begun.all()):
            raise ValueError(
                f"`{where}`: `sample` expected sequences whose step {self.burn_in}, "
                f"the first behind `burn_in` = {self.burn_in}, is valid; got padding "
                "there; give `create` the `burn_in` of `Sequences`"
            )
        # The others follow.
        first = tf.cast(states[..., 0, :], tf.float32)
        return data._replace(states=first, log_probs=()), weights

    def _compared(
        self, state: Any, params: Any, target: Any, rows: Any, chance: Any
    ) -> dqn.Compared:
        del chance
        config, start = self.config, self.burn_in
        # Sequences are of one episode: what follows a step is what the next one shows.
        seen = tf.nest.map_structure(
            lambda now, then: tf.concat([now[:, : start + 1], then[:, start:]], 1),
            *(rows.observations, rows.next_observations),
        )
        valid, actions, rewards, terminated, truncated = (
            x[:, start:]
            for x in (
                *(rows.valid, rows.actions, rows.rewards),
                *(rows.terminated, rows.truncated),
            )
        )
        given = state, seen, self._begins(rows.valid), rows.states
        values, later = (self._values(x, *given) for x in (params, target))
        chooser = values if config.double else later
        best = tf.argmax(chooser[:, 1:], -1, output_type=tf.int32)
        transform = None
        if config.rescaling is not None:
            transform = value_transforms.SqrtLinearTransform(config.rescaling)
        targets = multistep.n_step_return(
            rewards,
            config.gamma * (1.0 - tf.cast(terminated, tf.float32)),
            temporal_difference.q_taken(later[:, 1:], best),
            config.n_step_returns,
            1.0 - tf.cast(truncated, tf.float32),
            transform=transform,
            time_major=False,
        )
        taken = temporal_difference.q_taken(values[:, :-1], actions)
        # Where the mask of a last observation forbids the action before it, too.
        taken, targets = (tf.where(valid, x, 0.0) for x in (taken, targets))
        told = temporal_difference.td_loss(taken, targets, config.huber_delta)
        count = tf.maximum(tf.reduce_sum(tf.cast(valid, tf.float32), 1), 1.0)
        errors = tf.abs(targets - taken)
        greatest = tf.reduce_max(errors, 1)
        mean = tf.reduce_sum(errors, 1) / count
        return dqn.Compared(
            losses=tf.reduce_mean(told.loss, 1),
            values=tf.reduce_sum(taken, 1) / count,
            errors=config.eta * greatest + (1.0 - config.eta) * mean,
        )

    def _begins(self, valid: tf.Tensor) -> tf.Tensor:
        """Where nothing is remembered, `[B, T + 1]`: behind padding at the front."""
        none = tf.zeros_like(valid[:, :1])
        return tf.concat([none, valid[:, 1:] & ~valid[:, :-1], none], 1)

    def _values(
        self, params: Any, state: Any, seen: Any, begins: tf.Tensor, memory: tf.Tensor
    ) -> tf.Tensor:
        """Values of all choices at the steps to learn from and behind, `[B, L + 1, n]`.

        Args:
            params: of the network or its copy.
            state: the `TrainState`.
            seen: nest of `[B, T + 1, *shape]`.
            begins: `[B, T + 1]`.
            memory: `[B, units]`, before the first step.
        """
        parts = seen, begins
        if start := self.burn_in:
            first = tf.nest.map_structure(lambda x: x[:, :start], parts)
            given = first[0], memory, first[1]
            memories = state(given, params=params, method="sequences")[-1]
            memory = tf.stop_gradient(memories[:, -1])
            parts = tf.nest.map_structure(lambda x: x[:, start:], parts)
        given = parts[0], memory, parts[1]
        values: tf.Tensor = state(given, params=params, method="sequences")[0]
        return values
