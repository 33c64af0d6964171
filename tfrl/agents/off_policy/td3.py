"""Twin delayed deep deterministic policy gradients, for continuous actions."""

import dataclasses
import functools
from typing import Any, ClassVar, Self

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl._internal import checks, draws
from tfrl.agents import _actor_critics, _minibatches, agent, train_state
from tfrl.core import pytree, random, records
from tfrl.policies import critics, deterministic


@dataclasses.dataclass(frozen=True)
class TD3:
    """Hyper-parameters of twin delayed deep deterministic policy gradients.

    Each gradient step minimises for all critics i, over a minibatch of transitions,

        sum_i mean(weights * (y - Q_i(s, a))^2)
        y = r + discount * min_i Q'_i(s', clip(pi'(s') + noise, low, high))
        noise = clip(target_noise * N(0, 1), -target_noise_clip, target_noise_clip)

    and every `policy_delay` steps -mean(Q_1(s, pi(s))) for the policy, after which the
    copies pi' and Q' follow: pi' <- tau * pi + (1 - tau) * pi'. Numbers of a Box with
    both bounds count in half ranges (half the distance between them). Others count as
    they are: one with a single bound is not clipped to it in the targets either, as no
    gradient would lead back from where it is clipped; only the environment gets it
    clipped.

    It acts by `pi(s) + exploration_noise * N(0, 1)`, clipped to the bounds; before its
    first update, with noise so wide that the actions are all over the Box.

    Attributes:
        learning_rate: of Adam, for policy and critics: a number, or a schedule of
            `tfrl.schedules` or Keras.
        optimizer: as in `PPO`; None for Adam.
        exploration_noise: standard deviation, in half ranges; a number or a schedule.
        initial_noise: standard deviation before the first update, also in half ranges,
            where it is the greater one; a number.
        target_noise: standard deviation of what smooths the targets, in half ranges.
        target_noise_clip: its greatest size.
        policy_delay: gradient steps of critics for one of the policy.
        n_critics: how many there are.
        tau: share that the copies take over.
        max_gradient_norm: clips gradients to this global norm; None for no clipping.
        hidden_units: of policy and critics.
        activation: of policy and critics.
        normalize_observations: by running moments that are saved with the agent.

    Example:
        >>> agent = TD3(hidden_units=(8,)).create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Box(-2.0, 2.0, (1,)))
        >>> agent.policy.act(np.zeros((2, 3), np.float32), seed=0).actions.shape
        (2, 1)

    References:
        Fujimoto et al., 2018, Addressing Function Approximation Error in Actor-Critic
        Methods, algorithm 1.
    """

    learns_from: ClassVar[str] = "transitions"
    usual_replay: ClassVar[dict[str, float]] = _actor_critics.USUAL_REPLAY
    initial_settings: ClassVar[tuple[str, ...]] = ("initial_noise",)

    learning_rate: agent.Scheduled = 3e-4
    exploration_noise: agent.Scheduled = 0.1
    initial_noise: float = 1.0
    target_noise: float = 0.2
    target_noise_clip: float = 0.5
    policy_delay: int = 2
    n_critics: int = 2
    tau: float = 0.005
    max_gradient_norm: float | None = None
    hidden_units: tuple[int, ...] = (256, 256)
    activation: str = "relu"
    normalize_observations: bool = False
    optimizer: agent.Optimizer = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        where = type(self).__name__
        agent.check_settings(
            self,
            positive=("tau",),
            nonnegative=("initial_noise", "target_noise", "target_noise_clip"),
            optional=("max_gradient_norm",),
            shares=("tau",),
        )
        agent.check_in_range(where, "exploration_noise", self.exploration_noise)
        for name in ("policy_delay", "n_critics"):
            checks.check_whole_number(where, name, getattr(self, name), low=1)

    def create(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        seed: int = 0,
        network: Any = None,
    ) -> "TD3Agent":
        """Returns an agent for the spaces of one environment.

        Args:
            observation_space: of one environment, see `SpaceEncoder` for the kinds.
            action_space: of one environment, a Box of floats.
            seed: of weights and draws.
            network: your own Keras model, from observations to actions `[B, D]`; or a
                function of both spaces that returns one, or a pair of it and a critic,
                see `tfrl.policies.Critics`, called once for each critic.

        Returns:
            An untrained `TD3Agent`.

        Raises:
            TypeError: if a space is of an unsupported kind, or `network` no model.
            ValueError: if the outputs of `network` do not fit.
        """
        agent.check_spaces(self, observation_space, action_space)
        if not (
            isinstance(action_space, gym.spaces.Box)
            and np.issubdtype(action_space.dtype, np.floating)
        ):
            where, expected = f"{type(self).__name__}.create", "a Box of floats"
            raise checks.wrong_type(where, "action_space", action_space, expected)
        actor, own = critics.parted_network(
            network, observation_space, action_space, self.n_critics, seed
        )
        policy = deterministic.DeterministicPolicy.create(
            observation_space,
            action_space,
            learner=agent.learner(self),
            network=actor,
            hidden_units=self.hidden_units,
            activation=self.activation,
            normalize_observations=self.normalize_observations,
            seed=seed,
        )
        n_features = critics.n_action_features(policy.head)
        built = _actor_critics.built_critics(
            self, observation_space, n_features, own, seed=seed
        )
        values = agent.learner(self)(built)
        noise = max(agent.first(self.exploration_noise), self.initial_noise)
        return self._agent_of(
            policy=policy.replace(noise=noise * half_ranges(policy.head)),
            critics=values,
            target_policy=tf.nest.map_structure(tf.identity, policy.state.params),
            target_critics=tf.nest.map_structure(tf.identity, values.params),
            rng=random.checked_seed(f"{type(self).__name__}.create", seed),
            config=self,
        )

    def _agent_of(self, **fields: Any) -> "TD3Agent":
        return TD3Agent(**fields)


class TD3Agent(_minibatches.MinibatchAgent):
    """A policy trained by TD3. Make one with `TD3.create`.

    Attributes:
        policy: the `DeterministicPolicy`.
        critics: `TrainState` of the critics, which takes observations and features of
            actions.
        target_policy: parameters of the policy's copy.
        target_critics: parameters of the critics' copy.
        rng: int32 `[2]`, seed of its draws.
        config: the hyper-parameters.

    Example:
        >>> agent = TD3(hidden_units=(8,)).create(
        ...     gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Box(-1.0, 1.0, (1,)))
        >>> zeros, ones = np.zeros([4, 1], np.float32), np.ones(4, np.float32)
        >>> batch = tfrl.core.Transition(zeros, zeros, ones, ones, zeros)
        >>> agent, info = agent.update(tfrl.replay.Sample(batch, None, ones, ones))
        >>> sorted(info)[:4]
        ['critic_loss', 'exploration_noise', 'learning_rate', 'policy_loss']
    """

    policy: deterministic.DeterministicPolicy
    critics: train_state.TrainState
    target_policy: Any
    target_critics: Any
    rng: tf.Tensor
    config: TD3 = pytree.nonpytree_field()

    _scheduled: ClassVar[tuple[str, ...]] = ("learning_rate", "exploration_noise")
    _measured: ClassVar[tuple[str, ...]] = (
        "critic_loss",
        "policy_loss",
        "q_value",
        "td_error",
    )

    def _begin(self, hyper: dict[str, tf.Tensor]) -> tuple:
        states = [
            _minibatches.begun(state, hyper["learning_rate"])
            for state in (self.policy.state, self.critics)
        ]
        return (*states, self.target_policy, self.target_critics)

    def _step(self, carry: Any, rows: records.Transition, weights: tf.Tensor) -> tuple:
        actors, values, target_policy, target_critics = carry
        head, config = self.policy.head, self.config
        actor, before = actors.state, values.state
        noise = config.target_noise * draws.normal(
            [weights.shape[0], critics.n_action_features(head)],
            _minibatches.step_seed(self.rng, before.step),
            tf.float32,
        )
        limit = config.target_noise_clip
        noise = tf.clip_by_value(noise, -limit, limit) * half_ranges(head)
        raw = actor(rows.next_observations, params=target_policy)
        later = critics.action_features(head, raw + noise)
        later = before((rows.next_observations, later), params=target_critics)
        targets = rows.rewards + rows.discounts * tf.reduce_min(later, axis=0)
        values, info, errors = _actor_critics.fitted(
            values, head, rows, weights, targets
        )

        # The count of the state begins at 1 and is that of the next step.
        is_due = tf.equal((values.state.step - 1) % config.policy_delay, 0)
        learned = functools.partial(self._learned_policy, actors, values.state, rows)
        if config.policy_delay == 1:
            actors, policy_loss = learned()
        else:
            actors, policy_loss = tf.cond(
                is_due, learned, lambda: (actors, tf.zeros([]))
            )
        tau = tf.where(is_due, config.tau, 0.0)
        target_policy = _minibatches.moved(target_policy, actors.state.params, tau)
        target_critics = _minibatches.moved(target_critics, values.state.params, tau)
        info["policy_loss"] = config.policy_delay * policy_loss
        return (actors, values, target_policy, target_critics), info, errors

    def _learned_policy(
        self, actors: Any, values: Any, rows: records.Transition
    ) -> tuple[Any, tf.Tensor]:
        """Takes a step of the policy uphill the first critic."""
        head = self.policy.head

        def loss_fn(state: Any, params: Any, rows: Any) -> tuple[tf.Tensor, tf.Tensor]:
            raw = state(rows.observations, params=params)
            chosen = critics.action_features(head, raw)
            loss = -tf.reduce_mean(values((rows.observations, chosen))[0])
            return loss, loss

        return actors.apply_loss_fn(loss_fn, rows)

    def _end(self, carry: Any, hyper: dict[str, tf.Tensor]) -> Self:
        actors, values, target_policy, target_critics = carry
        noise = hyper["exploration_noise"] * half_ranges(self.policy.head)
        return self.replace(
            policy=self.policy.replace(state=actors.state, noise=noise),
            critics=values.state,
            target_policy=target_policy,
            target_critics=target_critics,
        )


def half_ranges(head: Any) -> tf.Tensor:
    """Returns half the distance between a Box's bounds, `[D]`; 1 where there are none.

    Args:
        head: a `NormalHead`.
    """
    low, high = np.asarray(head.low), np.asarray(head.high)
    is_bounded = np.isfinite(low) & np.isfinite(high) & (low < high)
    with np.errstate(invalid="ignore"):
        return tf.constant(np.where(is_bounded, (high - low) / 2, 1.0), tf.float32)
