"""Losses of learned multipliers, which hold a mean at a limit.

A multiplier alpha = exp(log_alpha) weighs a term of another loss. It grows while the
mean of that term is beyond its limit, and falls otherwise.
"""

from typing import TypeAlias

import tensorflow as tf

from tfrl._internal import checks, operands, precision
from tfrl.core import records
from tfrl.losses import _extras

TensorLike: TypeAlias = operands.TensorLike


def temperature_loss(
    log_alpha: TensorLike, log_probs: TensorLike, target_entropy: TensorLike
) -> records.LossInfo:
    """Computes the loss of the temperature in soft actor-critic.

        loss = -exp(log_alpha) * (log_probs + target_entropy)

    The temperature grows where the policy's entropy, the mean of `-log_probs`, is below
    its target. Gradients flow to `log_alpha` alone.

    Args:
        log_alpha: `[]`, the variable being trained, or its value.
        log_probs: `[...]`, log-probability of actions the policy drew, floating.
        target_entropy: commonly minus the number of action dimensions.

    Returns:
        `LossInfo(loss [...], extra)` with `extra.alpha`, in the shape of `log_alpha`:
        the multiplier, and `extra.violations` `[...]`: how far beyond its limit each
        element is.

    Raises:
        ValueError: if `log_alpha` is not a scalar.
        TypeError: if its dtype is not that of `log_probs`, or not floating.

    Example:
        >>> temperature_loss(0.0, [1.5, -2.0], target_entropy=-1.0).loss.numpy()
        array([-0.5,  3. ], dtype=float32)

    References:
        Haarnoja et al., 2018, Soft Actor-Critic Algorithms and Applications, eq. 18.
    """
    where = "temperature_loss"
    log_probs = operands.leading(where, "log_probs", log_probs)
    dtype = log_probs.dtype
    target = checks.as_tensor(where, "target_entropy", target_entropy, None, dtype)
    limit = -precision.number(target, dtype)
    return _multiplier_loss(where, log_alpha, "log_probs", log_probs, limit)


def conservative_alpha_loss(
    log_alpha: TensorLike, penalties: TensorLike, threshold: TensorLike
) -> records.LossInfo:
    """Computes the loss of the weight of the conservative penalty.

        loss = -exp(log_alpha) * (penalties - threshold)

    The weight grows where the penalty is above `threshold`. Gradients flow to
    `log_alpha` alone; the critics minimise `exp(log_alpha) * (penalties - threshold)`
    with respect to their own weights.

    Args:
        log_alpha: `[]`, the variable being trained, or its value.
        penalties: `[...]`, loss of `tfrl.losses.conservative_q_loss` or its sampled
            form, floating.
        threshold: the penalty to hold, tau in the paper.

    Returns:
        `LossInfo(loss [...], extra)` with `extra.alpha`, in the shape of `log_alpha`:
        the multiplier, and `extra.violations` `[...]`: how far beyond its limit each
        element is.

    Raises:
        ValueError: if `log_alpha` is not a scalar.
        TypeError: if its dtype is not that of `penalties`, or not floating.

    Example:
        >>> conservative_alpha_loss(0.0, [7.0, 1.0], threshold=5.0).loss.numpy()
        array([-2.,  4.], dtype=float32)

    References:
        Kumar et al., 2020, Conservative Q-Learning for Offline Reinforcement Learning,
        appendix F.
    """
    where = "conservative_alpha_loss"
    penalties = operands.leading(where, "penalties", penalties)
    dtype = penalties.dtype
    threshold = checks.as_tensor(where, "threshold", threshold, None, dtype)
    limit = precision.number(threshold, dtype)
    return _multiplier_loss(where, log_alpha, "penalties", penalties, limit)


def trust_region_loss(
    log_alpha: TensorLike, divergences: TensorLike, threshold: TensorLike
) -> records.LossInfo:
    """Computes the penalty on leaving a trust region, and the loss of its weight.

        loss = -alpha * stop_gradient(divergences - threshold)
               + stop_gradient(alpha) * divergences,       alpha = exp(log_alpha)

    The weight grows where the policy diverges by more than `threshold`; the policy is
    held back by the weight. So gradients flow to both.

    Args:
        log_alpha: `[]`, the variable being trained, or its value; `[D]` where each
            dimension of an action has a weight of its own.
        divergences: `[...]`, or `[..., D]` for the latter: of the policy being trained
            from that before, floating.
        threshold: the divergence to hold.

    Returns:
        `LossInfo(loss [...], extra)` in the shape of `divergences`, with `extra.alpha`,
        in the shape of `log_alpha`: the weight, and `extra.violations`, in the shape of
        the loss: how far beyond the threshold each element is.

    Raises:
        ValueError: if `log_alpha` has not the shape `[]` or `[D]`.
        TypeError: if its dtype is not that of `divergences`, or not floating.

    Example:
        >>> info = trust_region_loss(0.0, [0.5, 0.125], threshold=0.25)
        >>> info.loss.numpy(), info.extra.violations.numpy()
        (array([0.25, 0.25], dtype=float32), array([ 0.25 , -0.125], dtype=float32))

    References:
        Abdolmaleki et al., 2018, Maximum a Posteriori Policy Optimisation, as in Song
        et al., 2020, V-MPO: On-Policy Maximum a Posteriori Policy Optimization for
        Discrete and Continuous Control, eq. 5.
    """
    where = "trust_region_loss"
    divergences = operands.leading(where, "divergences", divergences)
    dtype = divergences.dtype
    threshold = checks.as_tensor(where, "threshold", threshold, None, dtype)
    limit = tf.stop_gradient(precision.number(threshold, dtype))
    log_alpha = operands.alike(
        where, "log_alpha", log_alpha, "divergences", divergences
    )
    if not log_alpha.shape.is_compatible_with([]):
        checks.check_rank(where, "divergences", divergences, at_least=1)
        one = tf.TensorSpec(divergences.shape[-1:], dtype)
        named = {"one of `divergences`": one, "log_alpha": log_alpha}
        checks.check_same_shape(where, **named)
    alpha = tf.exp(log_alpha)
    violations = tf.stop_gradient(divergences - limit)
    loss = tf.stop_gradient(alpha) * divergences - alpha * violations
    return records.LossInfo(loss, _extras.MultiplierLossExtra(alpha, violations))


def _multiplier_loss(
    where: str, log_alpha: TensorLike, leader: str, values: tf.Tensor, limit: tf.Tensor
) -> records.LossInfo:
    log_alpha = operands.alike(where, "log_alpha", log_alpha, leader, values)
    checks.check_rank(where, "log_alpha", log_alpha, exact=0)
    alpha = tf.exp(log_alpha)
    violations = tf.stop_gradient(values - limit)
    extra = _extras.MultiplierLossExtra(alpha, violations)
    return records.LossInfo(-alpha * violations, extra)
