"""Losses of policies and of the values that guide them."""

import math
from typing import Any

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
        Connectionist Reinforcement Learning.
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

    Gradients flow to `log_probs` alone. A ratio that overflows against a negative
    advantage is an infinite loss, which a weight of 0 does not take away: give rows
    that do not count an advantage of 0, whose loss and gradient are 0 at any ratio.

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


def entropy_loss(logits: tf.Tensor) -> tf.Tensor:
    """Computes minus the entropy of a policy over discrete actions.

        loss = sum over a of pi[a] * log(pi[a]),    pi = softmax(logits)

    Args:
        logits: `[..., A]`, floating; -inf for actions that are not allowed.

    Returns:
        `[...]`, 0 without gradient where no action is allowed. Of other policies take
        minus `entropy()` of the head or distribution.

    Raises:
        ValueError: if `logits` has no axis.
        TypeError: if it is not floating.

    Example:
        >>> entropy_loss([[0.0, 0.0], [0.0, -np.inf]]).numpy()
        array([-0.6931472,  0.       ], dtype=float32)

    References:
        Williams, Peng, 1991, Function Optimization Using Connectionist Reinforcement
        Learning Algorithms; Mnih et al., 2016, Asynchronous Methods for Deep
        Reinforcement Learning, section 4.
    """
    logits = operands.leading("entropy_loss", "logits", logits, axes=1)
    return _entropy_loss(logits)


def q_policy_gradient_loss(logits: tf.Tensor, q_values: tf.Tensor) -> tf.Tensor:
    """Computes the policy gradient loss of all actions by their values.

        loss = -sum over a of pi[a] * q_values[a],    pi = softmax(logits)

    Its gradient is that of `-sum over a of pi[a] * A[a]` with the advantages

        A[a] = q_values[a] - sum over b of pi[b] * q_values[b]

    held: a baseline changes nothing where all actions count. No gradient flows to
    `q_values`.

    Args:
        logits: `[..., A]`, floating; -inf for actions that are not allowed, which are
            left out of all sums, whatever their values.
        q_values: `[..., A]`; infinite or NaN counts nothing where pi is 0.

    Returns:
        `[...]`, minus the value of the policy.

    Raises:
        ValueError: if the shapes differ, or there is no axis.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> q_policy_gradient_loss([[0.0, 0.0]], [[1.0, 3.0]]).numpy()
        array([-2.], dtype=float32)

    References:
        Srinivasan et al., 2018, Actor-Critic Policy Optimization in Partially
        Observable Multiagent Environments (QPG).
    """
    return _of_all_actions("q_policy_gradient_loss", logits, q_values, "value")


def regret_matching_loss(logits: tf.Tensor, q_values: tf.Tensor) -> tf.Tensor:
    """Computes the policy gradient loss of the actions that are better than the policy.

        loss = -sum over a of pi[a] * max(A[a], 0)

    with pi and A of `q_policy_gradient_loss`, A held.

    Args:
        logits: `[..., A]`, floating; -inf for actions that are not allowed, which are
            left out of all sums, whatever their values.
        q_values: `[..., A]`, as of `q_policy_gradient_loss`.

    Returns:
        `[...]`.

    Raises:
        ValueError: if the shapes differ, or there is no axis.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> regret_matching_loss([[0.0, 0.0]], [[1.0, 3.0]]).numpy()
        array([-0.5], dtype=float32)

    References:
        Srinivasan et al., 2018, Actor-Critic Policy Optimization in Partially
        Observable Multiagent Environments (RMPG).
    """
    return _of_all_actions("regret_matching_loss", logits, q_values, "matching")


def regret_policy_gradient_loss(logits: tf.Tensor, q_values: tf.Tensor) -> tf.Tensor:
    """Computes the regret of a policy for each action that is better.

        loss = sum over a of max(A[a], 0)

    with A of `q_policy_gradient_loss`; the gradient flows through pi in it.

    Args:
        logits: `[..., A]`, floating; -inf for actions that are not allowed, which are
            left out of all sums, whatever their values. Others count, however
            improbable they are.
        q_values: `[..., A]`, as of `q_policy_gradient_loss`.

    Returns:
        `[...]`.

    Raises:
        ValueError: if the shapes differ, or there is no axis.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> regret_policy_gradient_loss([[0.0, 0.0]], [[1.0, 3.0]]).numpy()
        array([1.], dtype=float32)

    References:
        Srinivasan et al., 2018, Actor-Critic Policy Optimization in Partially
        Observable Multiagent Environments (RPG).
    """
    return _of_all_actions("regret_policy_gradient_loss", logits, q_values, "regret")


def _of_all_actions(where: str, logits: Any, q_values: Any, kind: str) -> tf.Tensor:
    logits = operands.leading(where, "logits", logits, axes=1)
    q_values = operands.equal(where, "q_values", q_values, "logits", logits)
    return _all_actions_loss(logits, q_values, kind=kind)


@compile.compiled
def _entropy_loss(logits: tf.Tensor) -> tf.Tensor:
    # What is never taken counts nothing, neither in the sum nor in the gradient; nor
    # does a row of which nothing is.
    scores = precision.widened(logits)
    any_allowed = tf.reduce_any(scores != -math.inf, axis=-1, keepdims=True)
    scores = tf.where(any_allowed, scores, tf.zeros_like(scores))
    log_probs = tf.nn.log_softmax(scores)
    some = any_allowed & (log_probs != -math.inf)
    finite = tf.where(some, log_probs, tf.zeros_like(log_probs))
    probs = tf.where(some, tf.exp(finite), tf.zeros_like(log_probs))
    return tf.cast(tf.reduce_sum(probs * finite, axis=-1), logits.dtype)


@compile.compiled(static=("kind",))
def _all_actions_loss(logits: tf.Tensor, q_values: tf.Tensor, kind: str) -> tf.Tensor:
    dtype = logits.dtype
    probs = tf.nn.softmax(precision.widened(logits))
    q_values = tf.stop_gradient(precision.widened(q_values))
    # Of what is never taken a value need not be known; what may be taken has a regret.
    known = (logits != -math.inf) & tf.math.is_finite(q_values)
    counts = (probs != 0) | known
    q_values = tf.where(counts, q_values, tf.zeros_like(q_values))
    mean = tf.reduce_sum(probs * q_values, axis=-1, keepdims=True)
    regrets = tf.where(counts, q_values - mean, tf.zeros_like(q_values))
    if kind == "value":
        terms = -probs * q_values
    elif kind == "matching":
        terms = -probs * tf.stop_gradient(tf.nn.relu(regrets))
    else:
        terms = tf.nn.relu(regrets)
    return tf.cast(tf.reduce_sum(terms, axis=-1), dtype)
