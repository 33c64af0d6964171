"""Losses of maximum a posteriori policy optimisation, MPO and V-MPO.

Both first improve the policy without a network, by weights of actions that a
temperature sets, then draw the network to these weights, within a trust region. An
agent adds up the policy's loss, that of the temperature, and `trust_region_loss` of
`tfrl.losses.multiplier` for each divergence it bounds; for normals those of
`tfrl.distributions.normal_divergence`, of means and of scales apart.
"""

import math
from typing import TypeAlias

import tensorflow as tf

from tfrl._internal import checks, operands, precision
from tfrl.core import compile, records
from tfrl.losses import _extras

TensorLike: TypeAlias = operands.TensorLike


def mpo_policy_loss(
    log_probs: TensorLike, q_values: TensorLike, log_temperature: TensorLike
) -> records.LossInfo:
    """Computes the loss that draws a policy to the better of its own actions.

        weights = softmax over j of q_values[j] / exp(log_temperature)
        loss = -sum over j of weights[j] * log_probs[j]

    Gradients flow to `log_probs` alone.

    Args:
        log_probs: `[..., S]`, of S actions for each state, drawn from the target
            policy, under the policy being trained; floating.
        q_values: `[..., S]`, values of these actions.
        log_temperature: `[]`, of which `mpo_temperature_loss` is the loss.

    Returns:
        `LossInfo(loss [...], extra)` with `extra.weights` `[..., S]`.

    Raises:
        ValueError: if the shapes differ, or the temperature is no scalar.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> info = mpo_policy_loss([[-1.0, -3.0]], [[0.0, np.log(3.0)]], 0.0)
        >>> info.loss.numpy().round(3), info.extra.weights.numpy().round(3)
        (array([2.5], dtype=float32), array([[0.25, 0.75]], dtype=float32))

    References:
        Abdolmaleki et al., 2018, Maximum a Posteriori Policy Optimisation.
    """
    where = "mpo_policy_loss"
    log_probs = operands.leading(where, "log_probs", log_probs, axes=1)
    q_values = operands.equal(where, "q_values", q_values, "log_probs", log_probs)
    temperature = _scalar(where, log_temperature, "log_probs", log_probs)
    return _policy_loss(log_probs, q_values, temperature)


def mpo_temperature_loss(
    log_temperature: TensorLike, q_values: TensorLike, epsilon: TensorLike
) -> tf.Tensor:
    """Computes the loss of the temperature, the dual of the bound on the weights.

        loss = T * (epsilon + log(1/S * sum over j of exp(q_values[j] / T)))
        T = exp(log_temperature)

    Its minimum is where the weights of `mpo_policy_loss` diverge from the target policy
    by `epsilon`. Gradients flow to `log_temperature` alone.

    Args:
        log_temperature: `[]`, the variable being trained, or its value.
        q_values: `[..., S]`, values of S actions for each state, drawn from the target
            policy; floating.
        epsilon: bound on the mean divergence, positive, commonly 0.1.

    Returns:
        `[...]`, a loss per state, to be averaged.

    Raises:
        ValueError: if the temperature is no scalar, or `epsilon` negative.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> mpo_temperature_loss(0.0, [[0.0, 0.0]], epsilon=0.1).numpy()
        array([0.1], dtype=float32)

    References:
        Abdolmaleki et al., 2018, Maximum a Posteriori Policy Optimisation.
    """
    where = "mpo_temperature_loss"
    q_values = operands.leading(where, "q_values", q_values, axes=1)
    temperature = _scalar(where, log_temperature, "q_values", q_values)
    checks.check_within(where, "epsilon", epsilon, 0.0, math.inf)
    return _temperature_loss(temperature, q_values, epsilon)


def vmpo_policy_loss(
    log_probs: TensorLike, advantages: TensorLike, log_temperature: TensorLike
) -> records.LossInfo:
    """Computes the loss that draws a policy to the better half of what it did.

        weights = softmax of advantages / exp(log_temperature) over the better half
        loss = -N * weights * log_probs

    of N elements, those of the other half having weight 0: the mean of the loss is
    `-sum(weights * log_probs)`. Gradients flow to `log_probs` alone.

    Args:
        log_probs: `[...]`, of the actions taken, under the policy being trained;
            floating.
        advantages: `[...]`, how much better than expected they turned out.
        log_temperature: `[]`, of which `vmpo_temperature_loss` is the loss.

    Returns:
        `LossInfo(loss [...], extra)` with `extra.weights` `[...]`, which add up to 1.

    Raises:
        ValueError: if the shapes differ, or the temperature is no scalar.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> info = vmpo_policy_loss(
        ...     [-1.0, -2.0, -3.0, -4.0], [np.log(3.0), -5.0, 0.0, -9.0], 0.0)
        >>> info.extra.weights.numpy().round(3)
        array([0.75, 0.  , 0.25, 0.  ], dtype=float32)
        >>> round(float(tf.reduce_mean(info.loss)), 3)
        1.5

    References:
        Song et al., 2020, V-MPO: On-Policy Maximum a Posteriori Policy Optimization for
        Discrete and Continuous Control, eq. 3 and 4.
    """
    where = "vmpo_policy_loss"
    log_probs = operands.leading(where, "log_probs", log_probs)
    advantages = operands.equal(where, "advantages", advantages, "log_probs", log_probs)
    temperature = _scalar(where, log_temperature, "log_probs", log_probs)
    return _vmpo_policy_loss(log_probs, advantages, temperature)


def vmpo_temperature_loss(
    log_temperature: TensorLike, advantages: TensorLike, epsilon: TensorLike
) -> tf.Tensor:
    """Computes the loss of the temperature that weighs the better half of a batch.

        loss = T * (epsilon + log(mean over the better half of exp(advantages / T)))
        T = exp(log_temperature)

    Gradients flow to `log_temperature` alone.

    Args:
        log_temperature: `[]`, the variable being trained, or its value.
        advantages: `[...]`, of the whole batch, floating.
        epsilon: bound on the divergence, positive, commonly 0.01.

    Returns:
        `[]`: it is one loss of all elements, and 0 where there are none.

    Raises:
        ValueError: if the temperature is no scalar, or `epsilon` negative.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> float(vmpo_temperature_loss(0.0, [2.0, 2.0, -9.0, -9.0], epsilon=0.5))
        2.5

    References:
        Song et al., 2020, V-MPO: On-Policy Maximum a Posteriori Policy Optimization for
        Discrete and Continuous Control, eq. 4.
    """
    where = "vmpo_temperature_loss"
    advantages = operands.leading(where, "advantages", advantages)
    temperature = _scalar(where, log_temperature, "advantages", advantages)
    checks.check_within(where, "epsilon", epsilon, 0.0, math.inf)
    return _vmpo_temperature_loss(temperature, advantages, epsilon)


def _scalar(
    where: str, log_temperature: TensorLike, leader: str, values: tf.Tensor
) -> tf.Tensor:
    name = "log_temperature"
    tensor = operands.alike(where, name, log_temperature, leader, values)
    checks.check_rank(where, name, tensor, exact=0)
    return tensor


@compile.compiled
def _policy_loss(
    log_probs: tf.Tensor, q_values: tf.Tensor, log_temperature: tf.Tensor
) -> records.LossInfo:
    dtype = log_probs.dtype
    scores, _ = _scores(q_values, tf.stop_gradient(log_temperature))
    weights = tf.stop_gradient(tf.nn.softmax(scores))
    terms = tf.math.multiply_no_nan(precision.widened(log_probs), weights)
    loss = tf.cast(-tf.reduce_sum(terms, axis=-1), dtype)
    return records.LossInfo(loss, _extras.MPOLossExtra(tf.cast(weights, dtype)))


@compile.compiled
def _temperature_loss(
    log_temperature: tf.Tensor, q_values: tf.Tensor, epsilon: tf.Tensor
) -> tf.Tensor:
    scores, greatest = _scores(q_values, log_temperature)
    count = tf.cast(tf.shape(scores)[-1], scores.dtype)
    mean = tf.reduce_logsumexp(scores, axis=-1) - tf.math.log(count)
    return _dual(log_temperature, mean, greatest, epsilon)


@compile.compiled
def _vmpo_policy_loss(
    log_probs: tf.Tensor, advantages: tf.Tensor, log_temperature: tf.Tensor
) -> records.LossInfo:
    dtype = log_probs.dtype
    flat = tf.reshape(advantages, [-1])
    scores, _ = _scores(flat, tf.stop_gradient(log_temperature))
    scores = tf.where(_is_better(flat), scores, -math.inf)
    weights = tf.stop_gradient(tf.reshape(tf.nn.softmax(scores), tf.shape(advantages)))
    count = tf.cast(tf.size(weights), weights.dtype)
    terms = tf.math.multiply_no_nan(precision.widened(log_probs), count * weights)
    return records.LossInfo(
        tf.cast(-terms, dtype), _extras.MPOLossExtra(tf.cast(weights, dtype))
    )


@compile.compiled
def _vmpo_temperature_loss(
    log_temperature: tf.Tensor, advantages: tf.Tensor, epsilon: tf.Tensor
) -> tf.Tensor:
    flat = tf.reshape(advantages, [-1])
    # One number where there are none, for the sake of the gradient.
    some = tf.size(flat) > 0
    flat = tf.pad(flat, [[0, tf.cast(~some, tf.int32)]])
    scores, greatest = _scores(flat, log_temperature)
    better = _is_better(flat)
    count = tf.reduce_sum(tf.cast(better, scores.dtype))
    scores = tf.where(better, scores, tf.constant(-math.inf, scores.dtype))
    mean = tf.reduce_logsumexp(scores) - tf.math.log(count)
    loss = _dual(log_temperature, mean, greatest, epsilon)
    return tf.where(some, loss, tf.zeros_like(loss))


def _is_better(flat: tf.Tensor) -> tf.Tensor:
    """Which elements are of the better half; earlier ones among equals."""
    count = tf.size(flat)
    # In an order that XLA knows for any size, unlike that of `tf.math.top_k`.
    order = tf.argsort(flat, direction="DESCENDING", stable=True)
    ranks = tf.scatter_nd(order[:, tf.newaxis], tf.range(count), [count])
    return ranks < (count + 1) // 2


def _scores(
    values: tf.Tensor, log_temperature: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """By how many temperatures values are below the greatest of a row, and that one."""
    values = tf.stop_gradient(precision.widened(values))
    greatest = tf.reduce_max(values, axis=-1, keepdims=True)
    # The difference first: it keeps its digits in a small temperature. XLA forms the
    # product anew wherever it is used, rounded or not: of differences the greatest is 0
    # both ways, and what a softmax takes off is what it has.
    # Finite, as the gradient of what does not count is 0 times them.
    gaps = tf.maximum(values - greatest, values.dtype.min)
    scores = gaps * tf.exp(-tf.cast(log_temperature, values.dtype))
    return scores, greatest[..., 0]


def _dual(
    log_temperature: tf.Tensor,
    log_mean: tf.Tensor,
    greatest: tf.Tensor,
    epsilon: tf.Tensor,
) -> tf.Tensor:
    bound = tf.stop_gradient(precision.number(epsilon, log_mean.dtype))
    temperature = tf.exp(tf.cast(log_temperature, log_mean.dtype))
    loss = temperature * (bound + log_mean) + greatest
    return tf.cast(loss, log_temperature.dtype)
