"""Losses of policies and of the values that guide them."""

import math

import tensorflow as tf

from tfrl._internal import checks, operands, precision
from tfrl.core import compile, records
from tfrl.losses import _extras


def policy_gradient_loss(
    log_probs: tf.Tensor, advantages: tf.Tensor
) -> records.LossInfo:
    """Computes the REINFORCE loss.

        loss = -log_probs * stop_gradient(advantages)

    Args:
        log_probs: `[...]`, log-probability of the actions taken.
        advantages: `[...]`, how much better than expected they turned out.

    Returns:
        `LossInfo(loss [...], extra)` with, all `[...]`, `extra.ratios`: 1,
        `extra.clipped`: 0, and `extra.approx_kl`: 0, as of `ppo_clip_loss`.

    Raises:
        ValueError: if the shapes differ.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> info = policy_gradient_loss(tf.constant([-0.5]), tf.constant([2.0]))
        >>> info.loss.numpy().tolist()
        [1.0]

    References:
        Williams, 1992, Simple Statistical Gradient-Following Algorithms for
        Connectionist Reinforcement Learning, eq. 11.
    """
    where = "policy_gradient_loss"
    log_probs = operands.floating(where, "log_probs", log_probs)
    advantages = operands.equal(where, "advantages", advantages, "log_probs", log_probs)
    zeros = tf.zeros_like(log_probs)
    extra = _extras.PolicyLossExtra(ratios=zeros + 1, clipped=zeros, approx_kl=zeros)
    return records.LossInfo(-log_probs * tf.stop_gradient(advantages), extra)


def ppo_clip_loss(
    log_probs: tf.Tensor,
    old_log_probs: tf.Tensor,
    advantages: tf.Tensor,
    clip: tf.Tensor | float,
) -> records.LossInfo:
    """Computes PPO's clipped surrogate loss.

        ratio = exp(log_probs - old_log_probs)
        loss = -min(ratio * A, clip(ratio, 1 - clip, 1 + clip) * A)

    Gradients flow to `log_probs` alone.

    Args:
        log_probs: `[...]`, of the actions taken under the policy being trained.
        old_log_probs: `[...]`, under the policy that took them.
        advantages: `[...]`, A.
        clip: how far the ratio may leave 1 before its gradient stops.

    Returns:
        `LossInfo(loss [...], extra)` with, all `[...]`, `extra.ratios`: new over old
        probability; `extra.clipped`: float, 1 where clipping cut the gradient;
        `extra.approx_kl`: `ratio - 1 - log ratio`, an estimate of KL(old || new) that
        is never negative.

    Raises:
        ValueError: if the shapes differ or `clip` is negative.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> info = ppo_clip_loss(
        ...     tf.math.log([1.5, 1.5]), tf.zeros(2), tf.constant([1.0, -1.0]), 0.2)
        >>> info.loss.numpy().round(3).tolist()
        [-1.2000000476837158, 1.5]

    References:
        Schulman et al., 2017, Proximal Policy Optimization Algorithms, eq. 7.
    """
    where = "ppo_clip_loss"
    log_probs = operands.floating(where, "log_probs", log_probs)
    named = {"old_log_probs": old_log_probs, "advantages": advantages}
    old_log_probs, advantages = (
        operands.equal(where, name, value, "log_probs", log_probs)
        for name, value in named.items()
    )
    checks.check_within(where, "clip", clip, 0.0, math.inf)
    return _ppo_clip_loss(log_probs, old_log_probs, advantages, clip)


@compile.compiled
def _ppo_clip_loss(
    log_probs: tf.Tensor,
    old_log_probs: tf.Tensor,
    advantages: tf.Tensor,
    clip: tf.Tensor,
) -> records.LossInfo:
    clip = precision.number(clip, log_probs.dtype)
    constants = map(tf.stop_gradient, (old_log_probs, advantages, clip))
    old_log_probs, advantages, clip = constants
    log_ratios = log_probs - old_log_probs
    ratios = tf.exp(log_ratios)
    # Clipped before the exponential: what is cut cannot overflow into the gradient.
    highest = tf.math.log1p(clip)
    lowest = tf.math.log(tf.maximum(1 - clip, 0))
    gains = advantages >= 0
    cut = tf.where(gains, log_ratios > highest, log_ratios < lowest)
    bounded = tf.where(cut, tf.where(gains, highest, lowest), log_ratios)
    extra = _extras.PolicyLossExtra(
        ratios=ratios,
        clipped=tf.cast(cut & (advantages != 0), log_probs.dtype),
        approx_kl=ratios - 1 - log_ratios,
    )
    return records.LossInfo(tf.exp(bounded) * -advantages, extra)


def value_loss(
    values: tf.Tensor,
    returns: tf.Tensor,
    old_values: tf.Tensor | None = None,
    clip: tf.Tensor | float | None = None,
) -> records.LossInfo:
    """Computes half the squared error of values, optionally clipped as in PPO.

        loss = (values - returns)^2 / 2
        near = old_values + clip(values - old_values, -clip, clip)
        clipped loss = max(loss, (near - returns)^2 / 2)

    Gradients flow to `values` alone.

    Args:
        values: `[...]`, being trained.
        returns: `[...]`, their targets.
        old_values: `[...]`, the values before the update; needed with `clip`.
        clip: how far values may leave `old_values` before their gradient stops.

    Returns:
        `LossInfo(loss [...], extra)` with `extra.errors` `[...]`: returns - values.

    Raises:
        ValueError: if the shapes differ, `clip` is negative, or one of `old_values` and
            `clip` is missing.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> value_loss(tf.constant([3.0]), tf.constant([1.0])).loss.numpy().tolist()
        [2.0]

    References:
        Schulman et al., 2016, High-Dimensional Continuous Control Using Generalized
        Advantage Estimation; the clipping is that of the PPO authors' program.
    """
    where = "value_loss"
    values = operands.floating(where, "values", values)
    returns = operands.equal(where, "returns", returns, "values", values)
    if (old_values is None) != (clip is None):
        raise ValueError(
            "`value_loss`: `old_values` and `clip` expected together; got only "
            f"{'`clip`' if old_values is None else '`old_values`'}"
        )
    if old_values is not None:
        old_values = operands.equal(where, "old_values", old_values, "values", values)
        checks.check_within(where, "clip", clip, 0.0, math.inf)
    return _value_loss(values, returns, old_values, clip)


@compile.compiled
def _value_loss(
    values: tf.Tensor,
    returns: tf.Tensor,
    old_values: tf.Tensor | None,
    clip: tf.Tensor | None,
) -> records.LossInfo:
    returns = tf.stop_gradient(returns)
    errors = returns - values
    loss = 0.5 * errors**2
    if old_values is not None:
        old_values = tf.stop_gradient(old_values)
        clip = precision.number(clip, values.dtype)
        near = old_values + tf.clip_by_value(values - old_values, -clip, clip)
        loss = tf.maximum(loss, 0.5 * (returns - near) ** 2)
    return records.LossInfo(loss, _extras.ValueLossExtra(errors))
