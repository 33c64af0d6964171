"""Losses of actors that learn from the values a critic gives their actions."""

from typing import TypeAlias

import tensorflow as tf

from tfrl._internal import checks, operands, precision
from tfrl.core import records
from tfrl.losses import _extras

TensorLike: TypeAlias = operands.TensorLike


def sac_actor_loss(
    log_probs: TensorLike, q_values: TensorLike, alpha: TensorLike
) -> records.LossInfo:
    """Computes the actor's loss in soft actor-critic.

        loss = alpha * log_probs - min_e q_values[e]

    The actions are drawn by reparameterization, so that gradients flow through both
    `log_probs` and `q_values` to the policy; differentiate with respect to its weights
    alone, not those of the critics. No gradient flows to `alpha`.

    Args:
        log_probs: `[...]`, log-probability of the actions drawn.
        q_values: `[..., E]`, value of those actions by each critic, floating.
        alpha: temperature, the weight of the entropy.

    Returns:
        `LossInfo(loss [...], extra)` with `extra.q_values` `[...]`: the value of the
        action by the most pessimistic critic.

    Raises:
        ValueError: if the shape of `log_probs` is not that of `q_values` without its
            last axis.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> sac_actor_loss([-2.0], [[4.0, 3.0]], alpha=0.5).loss.numpy()
        array([-4.], dtype=float32)

    References:
        Haarnoja et al., 2018, Soft Actor-Critic Algorithms and Applications, eq. 9,
        with the least of two critics of its section 6.
    """
    where = "sac_actor_loss"
    q_values = operands.leading(where, "q_values", q_values, axes=1)
    q_values = precision.least(q_values, axis=-1)
    log_probs = operands.equal(
        where, "log_probs", log_probs, "q_values[..., 0]", q_values
    )
    alpha = checks.as_tensor(where, "alpha", alpha, None, q_values.dtype)
    alpha = tf.stop_gradient(precision.number(alpha, q_values.dtype))
    extra = _extras.SACActorLossExtra(q_values)
    return records.LossInfo(alpha * log_probs - q_values, extra)


def deterministic_policy_gradient_loss(
    actions: TensorLike, action_gradients: TensorLike, clip: TensorLike | None = None
) -> records.LossInfo:
    """Computes a loss that moves actions along the gradient of their value.

        loss = -sum_d clip(action_gradients[d], -clip, clip) * actions[d]

    Without `clip`, its gradient with respect to the policy is that of -Q. Gradients
    flow to `actions` alone.

    Args:
        actions: `[..., D]`, what the policy does, floating.
        action_gradients: `[..., D]`, dQ/da, the gradient of the critic's value with
            respect to those actions.
        clip: greatest absolute value of a gradient; None for no limit.

    Returns:
        `LossInfo(loss [...], extra)` with `extra.clipped` `[..., D]`: float, 1 where
        the critic's gradient was cut.

    Raises:
        ValueError: if the shapes differ or `clip` is not positive.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> actions = tf.constant([[1.0, -1.0]])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(actions)
        ...     q_values = tf.reduce_sum(-tf.square(actions - 3.0), axis=-1)
        >>> slopes = tape.gradient(q_values, actions)  # 4 and 8
        >>> deterministic_policy_gradient_loss(actions, slopes, clip=5.0).loss.numpy()
        array([1.], dtype=float32)

    References:
        Silver et al., 2014, Deterministic Policy Gradient Algorithms, theorem 1;
        Lillicrap et al., 2016, Continuous Control with Deep Reinforcement Learning,
        eq. 6.
    """
    where = "deterministic_policy_gradient_loss"
    actions = operands.leading(where, "actions", actions, axes=1)
    slopes = operands.equal(
        where, "action_gradients", action_gradients, "actions", actions
    )
    slopes = tf.stop_gradient(slopes)
    clipped = tf.zeros_like(slopes)
    if clip is not None:
        checks.check_positive(where, "clip", clip)
        limit = precision.number(clip, slopes.dtype)
        clipped = tf.cast(tf.abs(slopes) > limit, slopes.dtype)
        slopes = tf.clip_by_value(slopes, -limit, limit)
    loss = -tf.reduce_sum(slopes * actions, axis=-1)
    return records.LossInfo(loss, _extras.DeterministicPolicyGradientLossExtra(clipped))
