"""Soft actor-critic: of numbers, choices and both, with as many critics as wanted."""

import dataclasses
import math
from typing import Any, ClassVar, Self

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl._internal import checks, draws
from tfrl.agents import (
    _actor_critics,
    _minibatches,
    agent,
    gradient_transforms,
    train_state,
)
from tfrl.core import pytree, random, records
from tfrl.losses import temporal_difference
from tfrl.policies import actor as actors
from tfrl.policies import critics as critic_networks

_RATES = ("learning_rate", "critic_learning_rate", "temperature_learning_rate")
_MEASURED = (
    "critic_loss",
    "policy_loss",
    "q_value",
    "td_error",
    "entropy",
    "temperature",
)
_ACTOR_VALUES = ("min", "mean")


@dataclasses.dataclass(frozen=True)
class SAC:
    """Hyper-parameters of soft actor-critic.

    Each gradient step moves N critics, the actor pi and the temperature alpha by the
    minibatch's gradients of

        sum_i mean(weights * (Q_i(s, a) - y)^2) / 2
        y = r + discount * (min_j Q'_j(s', a') - alpha * log pi(a' | s'))
        mean(alpha * log pi(a | s) - min_i Q_i(s, a)),    a drawn from pi(. | s)
        log alpha * (H - target_entropy)

    in this order, where H is the entropy of pi over the batch, and then the critics'
    copy Q' <- tau * Q + (1 - tau) * Q'. For a Discrete action the expectation over pi
    replaces the draw, and critics value all choices at once. In Dict and Tuple actions,
    Box parts are drawn as Box actions are, and choices too, as one-hot vectors with the
    gradients of their relaxation; their entropy is exact. Box actions with bounds are
    squashed into them by tanh, and count scaled to [-1, 1].

    The experience determines the number of gradient steps per environment step, see
    `tfrl.training.Replayed`: the update-to-data ratio is `updates_per_step`. Randomized
    ensembles and dropout Q-functions are options:

        REDQ    n_critics=10, n_critics_in_target=2, actor_value="mean",
                policy_delay=20                               20 updates per step
        DroQ    dropout_rate=0.01, layer_norm=True, actor_value="mean",
                policy_delay=20                               20 updates per step

    Attributes:
        learning_rate: of the actor, by Adam: a number, or a schedule of
            `tfrl.schedules` or Keras.
        critic_learning_rate: of the critics, likewise.
        temperature_learning_rate: of log alpha, likewise.
        optimizer: as in `PPO`; None for Adam. The temperature learns by Adam.
        temperature: alpha, at the beginning if it is learned.
        learn_temperature: whether alpha is learned; else it is constant.
        target_entropy: entropy that alpha is to bring about, in nats; None for -1 for
            each number and 0.98 log n for each choice among n. Where observations have
            a part `"action_mask"`, n counts what it allows, and the target is the mean
            over the minibatch.
        tau: share that the critics' copy takes over each step.
        n_critics: N.
        n_critics_in_target: number of critics, drawn anew for each step, whose minimum
            is the target; None for all.
        actor_value: what the actor maximises, the critics' "min" or "mean".
        policy_delay: steps of the critics for each of actor and temperature.
        dropout_rate: of the critics' hidden units, in steps and targets.
        layer_norm: normalize the critics' hidden layers.
        max_gradient_norm: global norm to which the gradients of each network are
            clipped; None for no clipping.
        hidden_units: of the actor and each critic.
        activation: of the networks.
        noise_steps: for how many steps exploration is one function of the state (gSDE),
            see `tfrl.policies.StateNoiseActorPolicy`, at first with deviation 1 where
            features are of size 1; None draws anew in each step.
        normalize_observations: by running moments that are saved with the agent.

    Example:
        >>> agent = SAC(hidden_units=(8,)).create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Box(-2.0, 2.0, (1,)))
        >>> agent.policy.act(np.zeros((2, 3), np.float32), seed=0).actions.shape
        (2, 1)

    References:
        Haarnoja et al., 2018, Soft Actor-Critic Algorithms and Applications, algorithm
        1. Christodoulou, 2019, Soft Actor-Critic for Discrete Action Settings. Chen et
        al., 2021, Randomized Ensembled Double Q-Learning, algorithm 1. Hiraoka et al.,
        2022, Dropout Q-Functions for Doubly Efficient Reinforcement Learning. Jang et
        al., 2017, Categorical Reparameterization with Gumbel-Softmax, section 2.2.
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
    n_critics: int = 2
    n_critics_in_target: int | None = None
    actor_value: str = "min"
    policy_delay: int = 1
    dropout_rate: float = 0.0
    layer_norm: bool = False
    max_gradient_norm: float | None = None
    hidden_units: tuple[int, ...] = (256, 256)
    activation: str = "relu"
    noise_steps: int | None = None
    normalize_observations: bool = False
    optimizer: agent.Optimizer = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        where = type(self).__name__
        check(self)
        if self.n_critics_in_target is not None:
            name, value = "n_critics_in_target", self.n_critics_in_target
            checks.check_whole_number(where, name, value, low=1)
            if value > self.n_critics:
                raise ValueError(
                    f"`{where}`: `{name}` expected at most `n_critics`, "
                    f"{self.n_critics}; got {value}"
                )
        checks.check_one_of(where, "actor_value", self.actor_value, _ACTOR_VALUES)
        checks.check_within(where, "dropout_rate", self.dropout_rate, 0.0, 1.0)
        if self.dropout_rate == 1.0:
            raise ValueError(f"`{where}`: `dropout_rate` expected less than 1; got 1.0")

    def create(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        seed: int = 0,
        network: Any = None,
    ) -> "SACAgent":
        """Returns an agent for the spaces of one environment.

        Args:
            observation_space: of one environment, see `SpaceEncoder` for the kinds.
            action_space: of one environment, see `action_head` for the kinds.
            seed: of weights and draws.
            network: your own Keras model for the actor, or a function of both spaces
                that returns one: from observations to the parameters of the head, see
                `ActorPolicy.create`. A function may return a pair, of actor and critic,
                and is then called once for each critic: from (observations,
                `action_features`) to values `[B]`, or for a Discrete action from
                observations to the values of all choices, `[B, n]`.

        Returns:
            An untrained `SACAgent`.

        Raises:
            TypeError: if a space is of an unsupported kind, or `network` no model.
            ValueError: if the outputs of `network` do not fit.
        """
        policy, critics = _actor_critics.made(
            self,
            observation_space,
            action_space,
            seed=seed,
            network=network,
            dropout_rate=self.dropout_rate,
            layer_norm=self.layer_norm,
        )
        return made(SACAgent, self, policy, critics, seed)


class SACAgent(_minibatches.MinibatchAgent):
    """A policy trained by soft actor-critic. Make one with `SAC.create`.

    Attributes:
        policy: the `ActorPolicy`.
        critics: `TrainState` of the critics.
        target_params: parameters of the critics' copy.
        log_temperature: `TrainState` of log alpha.
        rng: int32 `[2]`, seed of all draws.
        config: the hyper-parameters.

    Example:
        >>> box = gym.spaces.Box(-1.0, 1.0, (1,))
        >>> agent = SAC(hidden_units=(8,)).create(box, box, seed=0)
        >>> zeros, ones = np.zeros([4, 1], np.float32), np.ones(4, np.float32)
        >>> batch = tfrl.core.Transition(zeros, zeros, ones, ones, zeros)
        >>> agent, info = agent.update(tfrl.replay.Sample(batch, None, ones, ones))
        >>> sorted(set(info) - {*_RATES})[:4]
        ['critic_loss', 'entropy', 'policy_loss', 'priorities']
    """

    policy: actors.ActorPolicy
    critics: train_state.TrainState
    target_params: Any
    log_temperature: train_state.TrainState
    rng: tf.Tensor
    config: Any = pytree.nonpytree_field()

    _scheduled: ClassVar[tuple[str, ...]] = _RATES
    _measured: ClassVar[tuple[str, ...]] = _MEASURED

    def _lent(self) -> Self:
        lent, known = super()._lent(), self.log_temperature
        if not self.config.learn_temperature:  # what was loaded may have been learned
            known = known.replace(params=_log(self.config.temperature))
        return lent.replace(log_temperature=known)

    def _begin(self, hyper: dict[str, tf.Tensor]) -> tuple:
        rates = [hyper[name] for name in _RATES]
        return (
            _minibatches.begun(self.policy.state, rates[0]),
            _minibatches.begun(self.critics, rates[1]),
            self.target_params,
            train_state.with_rate(self.log_temperature, rates[2]),
        )

    def _step(self, carry: Any, rows: records.Transition, weights: tf.Tensor) -> tuple:
        config, (actor, critics, target, log_temperature) = self.config, carry
        step, alpha = critics.state.step, tf.exp(log_temperature.params)
        seed = _minibatches.step_seed(self.rng, step)
        first, second = random.split_seed(seed, 2)
        critics, info = self._step_critics(
            critics, (actor.state, target, alpha), rows, weights, first
        )

        def stepped() -> tuple:
            others = critics.state, alpha
            new, info = self._step_actor(actor, others, rows.observations, second)
            loss = info["policy_loss"]
            if not config.learn_temperature:
                return new, log_temperature, loss
            # The slope of log_temperature * (entropy - wanted).
            slope = info["entropy"] - info["wanted"]
            return new, log_temperature.apply_gradients(grads=slope), loss

        if config.policy_delay == 1:
            actor, log_temperature, policy_loss = stepped()
        else:
            is_due = step % config.policy_delay == 0
            kept = actor, log_temperature, tf.zeros([])
            actor, log_temperature, policy_loss = tf.cond(is_due, stepped, lambda: kept)
        info["policy_loss"] = config.policy_delay * policy_loss
        target = self._followed(target, critics.state.params)
        errors = info.pop("rows")
        return (actor, critics, target, log_temperature), info, errors

    def _end(self, carry: Any, hyper: dict[str, tf.Tensor]) -> Self:
        del hyper
        actor, critics, target, log_temperature = carry
        return self.replace(
            policy=self.policy.replace(state=actor.state),
            critics=critics.state,
            target_params=target,
            log_temperature=log_temperature,
        )

    def _step_critics(
        self, critics: Any, others: tuple, rows: Any, weights: tf.Tensor, seed: Any
    ) -> tuple[Any, dict]:
        """Steps the critics; returns them, and an info with errors of the rows."""
        actor, target, alpha = others
        seeds = random.split_seed(seed, 3)
        later_draws = self._draws(critics.values, weights.shape[0], seeds[0])
        draws = self._draws(critics.values, weights.shape[0], seeds[1])
        chosen = self._chosen(seeds[2])
        more = self._penalty_draws(weights.shape[0], seed)

        def loss_fn(state: Any, params: Any, part: Any) -> tuple[tf.Tensor, dict]:
            rows, weights, (noise, later_masks), (_, masks), more = part
            seen = rows.next_observations
            later = self._drawn(self._shaped(actor, actor.params, seen), noise)
            values = self._values(state, target, seen, later.features, later_masks)
            targets = self._targets(rows, values, later, alpha, chosen)
            features = critic_networks.action_features(self.policy.head, rows.actions)
            found = self._values(state, params, rows.observations, features, masks)
            losses, info = self._losses(found, features, targets)
            loss = tf.reduce_mean(weights * losses)
            networks = state, params, masks, actor
            loss += self._penalty(networks, rows, found, more)
            info |= {"critic_loss": loss, "td_error": tf.reduce_mean(info["rows"])}
            entropy = tf.reduce_mean(later.entropies)
            return loss, {**info, "entropy": entropy, "temperature": alpha}

        given = rows, weights, later_draws, draws, more
        return critics.apply_loss_fn(loss_fn, given)

    def _penalty_draws(self, n_rows: int, seed: tf.Tensor) -> Any:  # noqa: ARG002
        """Draws for `_penalty`, a nest of `[B, ...]`."""
        return ()

    def _penalty(
        self,
        networks: tuple,  # noqa: ARG002
        rows: Any,  # noqa: ARG002
        values: tf.Tensor,  # noqa: ARG002
        draws: Any,  # noqa: ARG002
    ) -> Any:
        """What is added to the critics' loss.

        Args:
            networks: critics, their parameters, what their hidden layers are
                multiplied by, and the actor.
            rows: transitions `[B]`.
            values: of the actions of the rows, `[N, B]`.
            draws: of `_penalty_draws`.
        """
        return 0.0

    def _step_actor(
        self, actor: Any, others: tuple, observations: Any, seed: Any
    ) -> tuple[Any, dict[str, tf.Tensor]]:
        """Steps the actor; returns it, its loss, its entropy, and the one wanted."""
        critics, alpha = others
        n_rows = tf.nest.flatten(observations)[0].shape[0]
        draws = self._draws(critics, n_rows, seed)

        def loss_fn(state: Any, params: Any, part: Any) -> tuple[tf.Tensor, dict]:
            seen, (noise, masks) = part
            shaped = self._shaped(state, params, seen)
            drawn = self._drawn(shaped, noise)
            values = self._values(critics, critics.params, seen, drawn.features, masks)
            value = tf.reduce_mean(self._raised(values, drawn.features))
            entropy = tf.reduce_mean(drawn.entropies)
            loss = -(value + alpha * entropy)
            info = {"entropy": entropy, "wanted": self._wanted_entropy(shaped)}
            return loss, {**info, "policy_loss": loss}

        return actor.apply_loss_fn(loss_fn, (observations, draws))

    def _draws(self, critics: Any, n_rows: int, seed: tf.Tensor) -> tuple:
        """Noise of actions, and what critics' hidden layers are multiplied by."""
        first, second = random.split_seed(seed, 2)
        noise = _actor_critics.noise_of(self.policy.head, n_rows, first)
        return noise, critics.model_def.dropout_masks(n_rows, second)

    def _shaped(self, actor: Any, params: Any, observations: Any) -> tf.Tensor:
        """Parameters of the distribution of what the actor plays, `[B, n_outputs]`."""
        return self.policy.distributed(actor(observations, params=params), 1.0, None)

    def _drawn(self, shaped: tf.Tensor, noise: Any) -> Any:
        """What the actor plays; of one choice probabilities stand for features."""
        if _actor_critics.is_one_choice(self.policy.head):
            probs, _, entropies = _actor_critics.choice_of(shaped)
            return _actor_critics.Drawn(probs, entropies)
        return _actor_critics.drawn(self.policy.head, shaped, noise)

    def _values(
        self, critics: Any, params: Any, observations: Any, features: Any, masks: Any
    ) -> tf.Tensor:
        """What N critics say, `[N, B]`; of one choice to every option, `[N, B, n]`."""
        one_choice = _actor_critics.is_one_choice(self.policy.head)
        seen = observations if one_choice else (observations, features)
        return critics(seen, params=params, masks=masks)

    def _expected(self, values: tf.Tensor, features: tf.Tensor) -> tf.Tensor:
        """The values of actions, of what critics say."""
        if not _actor_critics.is_one_choice(self.policy.head):
            return values
        return tf.reduce_sum(values * features, axis=-1)

    def _followed(self, target: Any, params: Any) -> Any:
        """The critics' copy after a step."""
        return _minibatches.moved(target, params, self.config.tau)

    def _chosen(self, seed: tf.Tensor) -> tf.Tensor | None:
        """Of which critics the target is made, `[N]` bool; None for all."""
        n_critics, count = self.config.n_critics, self.config.n_critics_in_target
        if count in (None, n_critics):
            return None
        places = tf.argsort(draws.uniform([n_critics], seed, tf.float32))
        return tf.argsort(places) < count

    def _targets(
        self, rows: Any, values: tf.Tensor, later: Any, alpha: tf.Tensor, chosen: Any
    ) -> tf.Tensor:
        """What the critics are to say, `[B]`."""
        if chosen is not None:
            shape = [-1] + [1] * (values.shape.rank - 1)
            values = tf.where(tf.reshape(chosen, shape), values, np.inf)
        values = self._expected(tf.reduce_min(values, axis=0), later.features)
        return temporal_difference.td_target(
            rows.rewards, rows.discounts, values + alpha * later.entropies
        )

    def _losses(
        self, values: tf.Tensor, features: tf.Tensor, targets: tf.Tensor
    ) -> tuple[tf.Tensor, dict]:
        """Losses `[B]`, and an info with mean values and the absolute errors `[B]`."""
        values = self._expected(values, features)
        errors = targets - values
        losses = 0.5 * tf.reduce_sum(tf.square(errors), axis=0)
        sizes = tf.reduce_mean(tf.abs(errors), axis=0)
        return losses, {"q_value": tf.reduce_mean(values), "rows": sizes}

    def _raised(self, values: tf.Tensor, features: tf.Tensor) -> tf.Tensor:
        """What the actor is to raise, `[B]`."""
        reduce = tf.reduce_min if self.config.actor_value == "min" else tf.reduce_mean
        return self._expected(reduce(values, axis=0), features)

    def _wanted_entropy(self, shaped: tf.Tensor) -> tf.Tensor:
        """Which entropy the temperature is to bring about, `[]`."""
        wanted, head = self.config.target_entropy, self.policy.head
        if wanted is None and self.policy.is_masked:
            return _actor_critics.allowed_target_entropy(head, shaped)
        if wanted is None:
            wanted = _actor_critics.target_entropy(head)
        return tf.convert_to_tensor(wanted, tf.float32)


def made(
    kind: type[SACAgent],
    config: Any,
    policy: actors.ActorPolicy,
    critics: train_state.TrainState,
    seed: int,
) -> Any:
    """Returns an untrained agent of a kind.

    Args:
        kind: `SACAgent`, or a variant.
        config: its settings.
        policy: of `_actor_critics.made`.
        critics: likewise.
        seed: of its draws.
    """
    tx = gradient_transforms.adam(agent.first(config.temperature_learning_rate))
    initial = _log(config.temperature)
    return kind(
        policy=policy,
        critics=critics,
        target_params=tf.nest.map_structure(tf.identity, critics.params),
        log_temperature=train_state.TrainState.create(_itself, initial, tx),
        rng=random.checked_seed(f"{type(config).__name__}.create", seed),
        config=config,
    )


def check(config: Any) -> None:
    """Raises unless the settings that SAC and its variants share are in range.

    Args:
        config: the settings.
    """
    where = type(config).__name__
    _actor_critics.check(config, scheduled=_RATES)
    checks.check_positive(where, "temperature", config.temperature)
    checks.check_whole_number(where, "policy_delay", config.policy_delay, low=1)


def _log(temperature: Any) -> tf.Tensor:
    """Of a number, or of a tensor, as members of a population have it."""
    if tf.is_tensor(temperature):
        return tf.math.log(temperature)
    return tf.constant(math.log(temperature), tf.float32)


def _itself(params: tf.Tensor) -> tf.Tensor:
    return params
