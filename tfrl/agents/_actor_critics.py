"""Actors and their critics: how both are made, and actions through which one learns.

What agents draw that learn an actor by its critics' gradients is differentiable:

    Box                u = mean + deviation * noise, in critics' eyes tanh(u)
    one of n choices   one-hot of argmax(logits + Gumbel noise), whose gradient is that
                       of softmax(logits + Gumbel noise)

The noise is drawn apart, for the rows of the global batch, so that replicas that share
them draw what one draws alone.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl._internal import checks, draws
from tfrl.agents import agent, gradient_transforms, train_state
from tfrl.core import random, records
from tfrl.policies import actor, critics

_LOG_SQRT_2_PI = 0.5 * math.log(2.0 * math.pi)
_LOG_2 = math.log(2.0)
# What `tfrl.training.Replayed` leaves to agents, as their papers have it.
USUAL_REPLAY = {"batch_size": 256, "updates_per_step": 1.0}


class Drawn(NamedTuple):
    """Actions as critics see them, and how little is known of them beforehand.

    Attributes:
        features: `[B, n]`, see `tfrl.policies.action_features`.
        entropies: `[B]`, of which the mean is the entropy: minus the log-density of
            what was drawn of Boxes, scaled to [-1, 1] if they are squashed; of choices
            their entropy itself.
    """

    features: tf.Tensor
    entropies: tf.Tensor


def heads_of(head: Any) -> list[Any]:
    """Returns the heads of numbers and choices that a head is made of."""
    if not hasattr(head, "parts"):
        return [head]
    return [leaf for part in head.parts for leaf in heads_of(part)]


def is_one_choice(head: Any) -> bool:
    """Whether actions are one choice, of which critics can value every option."""
    return bool(head.n_options) and getattr(head, "scalar", False)


def noise_of(head: Any, n_rows: int, seed: tf.Tensor) -> list[tf.Tensor]:
    """Returns the noise of `n_rows` actions: of each part normal, or Gumbel's.

    Args:
        head: of the actions.
        n_rows: of the global batch.
        seed: int32 `[2]`.
    """
    parts = heads_of(head)
    seeds = random.split_seed(seed, len(parts)) if len(parts) > 1 else [seed]
    return [
        draws.gumbel([n_rows, part.n_options], each, tf.float32)
        if part.n_options
        else draws.normal([n_rows, part.n_log_stds], each, tf.float32)
        for part, each in zip(parts, seeds, strict=True)
    ]


def drawn(head: Any, parameters: tf.Tensor, noise: list[tf.Tensor]) -> Drawn:
    """Returns the actions that noise makes of parameters, with gradients.

    Args:
        head: of the actions.
        parameters: `[B, n_outputs]`, of the distribution.
        noise: of `noise_of`.
    """
    heads, pieces = heads_of(head), _pieces(head, parameters)
    parts = [
        _choices(part, first, each)
        if part.n_options
        else _numbers(part, first, log_std, each)
        for part, first, log_std, each in zip(
            heads, pieces, pieces[len(heads) :], noise, strict=False
        )
    ]
    if len(parts) == 1:
        return parts[0]
    features, entropies = zip(*parts, strict=True)
    return Drawn(tf.concat(features, axis=-1), tf.add_n(entropies))


def _pieces(head: Any, parameters: tf.Tensor) -> list[tf.Tensor]:
    """Logits or means of each part, and then log standard deviations of each."""
    heads = heads_of(head)
    sizes = [x.n_outputs - x.n_log_stds for x in heads] + [x.n_log_stds for x in heads]
    return tf.split(parameters, sizes, axis=-1)


def _numbers(head: Any, mean: tf.Tensor, log_std: tf.Tensor, noise: tf.Tensor) -> Drawn:
    raw = mean + tf.exp(log_std) * noise
    each = log_std + 0.5 * tf.square(noise) + _LOG_SQRT_2_PI
    if not head.squash:
        return Drawn(critics.action_features(head, raw), tf.reduce_sum(each, axis=-1))
    # The logarithm of tanh's slope.
    size = tf.abs(raw)
    each += 2.0 * (_LOG_2 - size - tf.math.log(1.0 + tf.exp(-2.0 * size)))
    return Drawn(tf.tanh(raw), tf.reduce_sum(each, axis=-1))


def _choices(head: Any, logits: tf.Tensor, noise: tf.Tensor) -> Drawn:
    parts = []
    pairs = (tf.split(x, head.n_choices, axis=-1) for x in (logits, logits + noise))
    for own, disturbed in zip(*pairs, strict=True):
        soft = tf.nn.softmax(disturbed)
        hard = tf.one_hot(tf.argmax(disturbed, -1), own.shape[-1])
        _, _, entropies = choice_of(own)
        parts.append(Drawn(hard + (soft - tf.stop_gradient(soft)), entropies))
    features, entropies = zip(*parts, strict=True)
    return Drawn(tf.concat(features, axis=-1), tf.add_n(entropies))


def choice_of(logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns probabilities and their logarithms `[..., n]`, and entropies `[...]`.

    The logarithm of no probability at all is 0 here.
    """
    log_probs = tf.nn.log_softmax(logits)
    probs = tf.exp(log_probs)
    log_probs = tf.where(probs > 0.0, log_probs, 0.0)
    return probs, log_probs, -tf.reduce_sum(probs * log_probs, axis=-1)


def target_entropy(head: Any) -> float:
    """Returns the usual one: -1 of each number, 0.98 log n of each choice of n."""
    return sum(
        0.98 * sum(map(math.log, part.n_choices))
        if part.n_options
        else -float(part.n_log_stds)
        for part in heads_of(head)
    )


def allowed_target_entropy(head: Any, parameters: tf.Tensor) -> tf.Tensor:
    """Returns the usual one of what masks allow, `[]`.

        0.98 * mean(sum over choices of log n) - n_numbers

    over rows, where n counts the options of a choice that a row allows.

    Args:
        head: of the actions.
        parameters: `[B, n_outputs]`, where forbidden options have -inf.
    """
    heads, total = heads_of(head), tf.zeros([])
    for part, logits in zip(heads, _pieces(head, parameters), strict=False):
        if not part.n_options:
            total -= float(part.n_log_stds)
            continue
        for each in tf.split(logits, part.n_choices, axis=-1):
            count = tf.reduce_sum(tf.cast(each > -np.inf, tf.float32), axis=-1)
            total += 0.98 * tf.reduce_mean(tf.math.log(count))
    return total


def made(
    config: Any,
    observation_space: gym.Space,
    action_space: gym.Space,
    *,
    seed: int,
    network: Any,
    n_outputs: int | None = None,
    adam: Mapping[str, float] | None = None,
    **of_critics: Any,
) -> tuple[actor.ActorPolicy, train_state.TrainState]:
    """Returns the policy and the critics that the settings of an algorithm describe.

    Critics of one choice value every option, `[N, B, n]`; others actions, `[N, B]`, or
    `[N, B, n_outputs]`.

    Args:
        config: settings with `n_critics`, `hidden_units`, `activation`,
            `normalize_observations`, the `learning_rate` of the actor and
            `critic_learning_rate`; perhaps with `noise_steps`.
        observation_space: of one environment.
        action_space: of one environment.
        seed: of the weights.
        network: of the user, see `tfrl.policies.critics.parted_network`.
        n_outputs: of each critic; None for one value.
        adam: options of `tfrl.agents.adam`.
        **of_critics: further arguments of `Critics`.
    """
    spaces = observation_space, action_space
    agent.check_spaces(config, *spaces)
    own, own_critics = critics.parted_network(network, *spaces, config.n_critics, seed)
    optimizer = functools.partial(gradient_transforms.adam, **(adam or {}))
    policy = actor.ActorPolicy.create(
        *spaces,
        learner=agent.learner(config, optimizer),
        network=own,
        hidden_units=config.hidden_units,
        activation=config.activation,
        seed=seed,
        normalize_observations=config.normalize_observations,
        noise_steps=getattr(config, "noise_steps", None),
    )
    n_features = critics.n_action_features(policy.head)
    if is_one_choice(policy.head):
        n_features, n_outputs = 0, n_features
    built = built_critics(
        config,
        observation_space,
        n_features,
        own_critics,
        seed=seed,
        n_outputs=n_outputs,
        **of_critics,
    )
    learn = agent.learner(config, optimizer, "critic_learning_rate")
    return policy, learn(built)


def built_critics(
    config: Any,
    observation_space: gym.Space,
    n_features: int,
    own: Any = None,
    *,
    seed: int,
    **of_critics: Any,
) -> Any:
    """Returns the critics that the settings of an algorithm describe, or the user's.

    Args:
        config: settings with `n_critics`, `hidden_units` and `activation`.
        observation_space: of one environment.
        n_features: of an action, see `tfrl.policies.action_features`.
        own: models of the user's; None for ours.
        seed: of the weights.
        **of_critics: further arguments of `Critics`.
    """
    if own is not None:
        n_outputs = of_critics.get("n_outputs")
        return critics.given_critics(own, observation_space, n_features, n_outputs)
    shape = {"hidden_units": config.hidden_units, "activation": config.activation}
    return critics.Critics.for_space(
        observation_space,
        n_features,
        n_critics=config.n_critics,
        seed=seed,
        **{**shape, **of_critics},
    )


def fitted(
    learning: Any, head: Any, rows: records.Transition, weights: Any, targets: Any
) -> tuple[Any, dict[str, tf.Tensor], tf.Tensor]:
    """Takes a step of all critics towards targets.

        sum_i mean(weights * (targets - Q_i(s, a))^2)

    Args:
        learning: `ReplicatedState` of the critics.
        head: of the actions.
        rows: transitions `[B]`, of the global batch, as `weights` and `targets` are.
        weights: `[B]`.
        targets: `[B]`.

    Returns:
        The critics, an info, and absolute errors `[B]` before the step, means over
        critics.
    """

    def loss_fn(state: Any, params: Any, part: Any) -> tuple[tf.Tensor, dict]:
        rows, weights, targets = part
        taken = critics.action_features(head, rows.actions)
        values = state((rows.observations, taken), params=params)
        squares = tf.square(targets - values)
        loss = tf.reduce_sum(tf.reduce_mean(weights * squares, axis=1))
        return loss, {"critic_loss": loss, "q_value": tf.reduce_mean(values)}

    taken = critics.action_features(head, rows.actions)
    errors = tf.abs(targets - learning.state((rows.observations, taken)))
    learning, info = learning.apply_loss_fn(loss_fn, (rows, weights, targets))
    info["td_error"] = tf.reduce_mean(errors)
    return learning, info, tf.reduce_mean(errors, axis=0)


def check(config: Any, *, scheduled: tuple[str, ...]) -> None:
    """Raises unless what `made` reads, and `tau`, are in range.

    Args:
        config: settings of an algorithm.
        scheduled: names of its learning rates.
    """
    agent.check_settings(
        config,
        scheduled=scheduled,
        positive=("tau",),
        optional=("max_gradient_norm",),
        shares=("tau",),
    )
    where = type(config).__name__
    checks.check_whole_number(where, "n_critics", config.n_critics, low=1)
