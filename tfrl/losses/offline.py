"""Losses that keep what is learned from data near to what the data holds.

Behaviour cloning and its weighting by advantages (IQL, AWAC) only ever look at actions
of the data; conservative Q-learning pulls down the values of all others. The values
that IQL weighs with come by `tfrl.losses.expectile_loss`, the multiplier of the
conservative penalty can be learned by `tfrl.losses.conservative_alpha_loss`.
"""

import math
from typing import TypeAlias

import tensorflow as tf

from tfrl._internal import checks, operands, precision
from tfrl.core import compile, records
from tfrl.losses import _extras, temporal_difference

TensorLike: TypeAlias = operands.TensorLike


def behavior_cloning_loss(log_probs: TensorLike) -> records.LossInfo:
    """Computes the negative log-likelihood of the actions of the data.

        loss = -log_probs

    For a deterministic policy take the squared distance between its actions and those
    of the data instead, `tfrl.losses.MeanSquaredLoss`.

    Args:
        log_probs: `[...]`, log-probability of the actions of the data, floating.

    Returns:
        `LossInfo(loss [...], extra)` with, both `[...]`, `extra.weights`: how much each
        action counts, and `extra.clipped`: float, 1 where the weight was cut.

    Raises:
        TypeError: if `log_probs` is not floating.

    Example:
        >>> behavior_cloning_loss([-0.5, -2.0]).loss.numpy()
        array([0.5, 2. ], dtype=float32)

    References:
        Pomerleau, 1991, Efficient Training of Artificial Neural Networks for Autonomous
        Navigation.
    """
    log_probs = operands.leading("behavior_cloning_loss", "log_probs", log_probs)
    ones = tf.ones_like(log_probs)
    extra = _extras.CloningLossExtra(weights=ones, clipped=tf.zeros_like(ones))
    return records.LossInfo(-log_probs, extra)


def advantage_weighted_loss(
    log_probs: TensorLike,
    advantages: TensorLike,
    beta: TensorLike,
    max_weight: TensorLike = 100.0,
) -> records.LossInfo:
    """Computes behaviour cloning that prefers actions better than expected.

        weights = min(exp(beta * advantages), max_weight)
        loss = -weights * log_probs

    `beta` 0 clones every action alike; the greater it is, the more the best count.
    Gradients flow to `log_probs` alone.

    Args:
        log_probs: `[...]`, log-probability of the actions of the data, floating.
        advantages: `[...]`, their value minus that of the state.
        beta: inverse temperature; AWAC's lambda is its inverse.
        max_weight: the greatest weight.

    Returns:
        `LossInfo(loss [...], extra)` with, both `[...]`, `extra.weights`: how much each
        action counts, and `extra.clipped`: float, 1 where the weight was cut.

    Raises:
        ValueError: if the shapes differ, `beta` is negative or `max_weight` not
            positive.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> info = advantage_weighted_loss([-1.0, -1.0], [0.0, 9.0], beta=3.0)
        >>> info.loss.numpy(), info.extra.clipped.numpy()
        (array([  1., 100.], dtype=float32), array([0., 1.], dtype=float32))

    References:
        Kostrikov et al., 2021, Offline Reinforcement Learning with Implicit Q-Learning,
        eq. 7; Nair et al., 2020, AWAC: Accelerating Online Reinforcement Learning with
        Offline Datasets.
    """
    where = "advantage_weighted_loss"
    log_probs = operands.leading(where, "log_probs", log_probs)
    advantages = operands.equal(where, "advantages", advantages, "log_probs", log_probs)
    checks.check_within(where, "beta", beta, 0.0, math.inf)
    checks.check_positive(where, "max_weight", max_weight)
    beta = precision.number(beta, log_probs.dtype)
    max_weight = precision.number(max_weight, log_probs.dtype)
    free = tf.exp(beta * advantages)
    weights = tf.stop_gradient(tf.minimum(free, max_weight))
    clipped = tf.cast(free > max_weight, log_probs.dtype)
    extra = _extras.CloningLossExtra(weights, clipped)
    return records.LossInfo(-weights * log_probs, extra)


def conservative_q_loss(q_values: TensorLike, actions: TensorLike) -> records.LossInfo:
    """Computes the conservative penalty, CQL(H), over all of finitely many actions.

        loss = log sum_a exp(q_values[a]) - q_values[actions]

    It is added, times a weight, to the TD loss of the same values. It is never
    negative, and its gradient pulls down what the softmax of the values prefers.

    Args:
        q_values: `[..., A]`, or `[..., A, E]` for several critics, floating.
        actions: `[...]` integers in [0, A), the actions of the data, as `q_taken` has
            them.

    Returns:
        `LossInfo(loss, extra)`, the loss `[...]` or `[..., E]`; in its shape are
        `extra.soft_maxima`: what is pushed down, the log of summed exp(Q), and
        `extra.data_values`: what is pushed up, Q of the data's actions.

    Raises:
        ValueError: if the shape of `actions` is not where that of `q_values` begins, or
            one, not in a graph, is not in [0, A).
        TypeError: if `actions` are not integers or `q_values` not floating.

    Example:
        >>> conservative_q_loss(np.log([[1.0, 3.0]]), [1]).loss.numpy()  # log(4 / 3)
        array([0.28768207])

    References:
        Kumar et al., 2020, Conservative Q-Learning for Offline Reinforcement Learning,
        eq. 4.
    """
    where = "conservative_q_loss"
    actions = checks.as_tensor(where, "actions", actions)
    q_values = checks.as_tensor(where, "q_values", q_values)
    taken = temporal_difference.q_taken(q_values, actions)
    return _penalty(q_values, taken, axis=actions.shape.rank, offset=0.0)


def sampled_conservative_q_loss(
    sampled_q_values: TensorLike, sampled_log_probs: TensorLike, q_values: TensorLike
) -> records.LossInfo:
    """Estimates the conservative penalty, CQL(H), from a sample of the actions.

        loss = log mean_s exp(sampled_q_values[s] - sampled_log_probs[s]) - q_values

    The mean estimates the integral of exp(Q) over all actions. The sample may join
    several distributions, each action with the density of its own: uniform ones, those
    of the policy here, those of the policy in the next state. Gradients flow to both
    values, not to `sampled_log_probs`.

    Args:
        sampled_q_values: `[..., S]`, or `[..., S, E]` for several critics, floating.
        sampled_log_probs: `[..., S]`, log-density with which each action was sampled.
        q_values: `[...]` or `[..., E]`, of the actions of the data.

    Returns:
        `LossInfo(loss, extra)`, the loss in the shape of `q_values`, with `extra` as of
        `conservative_q_loss`.

    Raises:
        ValueError: if the shapes do not fit.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> sampled, uniform = np.log([[1.0, 3.0]]), np.log([[0.5, 0.5]])
        >>> sampled_conservative_q_loss(sampled, uniform, [0.0]).loss.numpy()
        array([1.38629436])

    References:
        Kumar et al., 2020, Conservative Q-Learning for Offline Reinforcement Learning,
        eq. 4 and appendix F.
    """
    where, leader = "sampled_conservative_q_loss", "sampled_q_values"
    sampled = operands.leading(where, leader, sampled_q_values, axes=1)
    weights = operands.beginning(
        where, "sampled_log_probs", sampled_log_probs, leader, sampled, at_least=1
    )
    axis = weights.shape.rank - 1
    for _ in range(sampled.shape.rank - axis - 1):
        weights = weights[..., tf.newaxis]
    taken = operands.alike(where, "q_values", q_values, leader, sampled)
    expected = sampled.shape[:axis].concatenate(sampled.shape[axis + 1 :])
    if not taken.shape.is_compatible_with(expected):
        raise ValueError(
            f"`{where}`: `q_values` expected the shape of `{leader}` without the axis "
            f"of the sample, {expected.as_list()}; got {taken.shape.as_list()}"
        )
    count = tf.cast(tf.shape(sampled)[axis], tf.float64)
    offset = tf.cast(tf.math.log(count), sampled.dtype)
    return _penalty(sampled - tf.stop_gradient(weights), taken, axis, offset)


@compile.compiled(static=("axis",))
def _penalty(
    exponents: tf.Tensor, data_values: tf.Tensor, axis: int, offset: tf.Tensor | float
) -> records.LossInfo:
    # The difference first: two large values leave a small penalty its digits.
    gaps = exponents - tf.expand_dims(data_values, axis)
    loss = tf.reduce_logsumexp(gaps, axis) - offset
    extra = _extras.ConservativeLossExtra(data_values + loss, data_values)
    return records.LossInfo(loss, extra)
