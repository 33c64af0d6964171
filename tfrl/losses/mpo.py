"""Losses of maximum a posteriori policy optimisation, MPO and V-MPO.

Both first improve the policy without a network, by weights of actions that a
temperature sets, then draw the network to these weights, within a trust region. An
agent adds up the policy's loss, that of the temperature, and `trust_region_loss` of
`tfrl.losses.multiplier` for each divergence it bounds; for normals those of
`tfrl.distributions.normal_divergence`, of means and of scales apart.
"""

import math
from typing import TypeAlias

import numpy as np
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
        log_temperature: `[]`, the variable being trained, or its value. Above 88, in
            float32, T overflows, and the loss with it; there is no lower limit.
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
    log_probs: TensorLike,
    advantages: TensorLike,
    log_temperature: TensorLike,
    weights: TensorLike | None = None,
) -> records.LossInfo:
    """Computes the loss that draws a policy to the better half of what it did.

        shares = softmax of advantages / exp(log_temperature) over the better half
        loss = -N * shares * log_probs

    of N elements, those of the other half having share 0: the mean of the loss is
    `-sum(shares * log_probs)`. Gradients flow to `log_probs` alone.

    With `weights` the better half is that of the elements whose weight is not 0, N is
    the sum of the weights, and exponentials are summed by their weights:

        e = exp(advantages / exp(log_temperature)) in the better half, 0 elsewhere
        loss = -sum(weights) * e / sum(weights * e) * log_probs

    Its mean by the same weights, `tfrl.ops.weighted_reduce_mean(loss, weights)`, is
    then `-sum(shares * log_probs)` with `shares = weights * e / sum(weights * e)`.

    Args:
        log_probs: `[...]`, of the actions taken, under the policy being trained;
            floating.
        advantages: `[...]`, how much better than expected they turned out.
        log_temperature: `[]`, of which `vmpo_temperature_loss` is the loss.
        weights: `[...]`, 0 or more, how much each element counts, such as the `weights`
            of `tfrl.agents.estimate_advantages`; None for 1 each. An element of weight
            0 is as one left out, whatever else is said of it: its loss is 0.

    Returns:
        `LossInfo(loss [...], extra)` with `extra.weights` `[...]`, the shares, which
        add up to 1; all 0 where all `weights` are.

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
        >>> vmpo_policy_loss([-1.0, -2.0, -3.0, -4.0], [9.0, 1.0, 0.0, 9.0], 0.0,
        ...                  weights=[0.0, 1.0, 1.0, 0.0]).extra.weights.numpy()
        array([0., 1., 0., 0.], dtype=float32)

    References:
        Song et al., 2020, V-MPO: On-Policy Maximum a Posteriori Policy Optimization for
        Discrete and Continuous Control, eq. 3 and 4.
    """
    where = "vmpo_policy_loss"
    log_probs = operands.leading(where, "log_probs", log_probs)
    advantages = operands.equal(where, "advantages", advantages, "log_probs", log_probs)
    temperature = _scalar(where, log_temperature, "log_probs", log_probs)
    weights = _weights(where, weights, "log_probs", log_probs)
    return _vmpo_policy_loss(log_probs, advantages, temperature, weights)


def vmpo_temperature_loss(
    log_temperature: TensorLike,
    advantages: TensorLike,
    epsilon: TensorLike,
    weights: TensorLike | None = None,
) -> tf.Tensor:
    """Computes the loss of the temperature that weighs the better half of a batch.

        loss = T * (epsilon + log(mean over the better half of exp(advantages / T)))
        T = exp(log_temperature)

    Gradients flow to `log_temperature` alone.

    Args:
        log_temperature: `[]`, the variable being trained, or its value. Above 88, in
            float32, T overflows, and the loss with it; there is no lower limit.
        advantages: `[...]`, of the whole batch, floating.
        epsilon: bound on the divergence, positive, commonly 0.01.
        weights: `[...]`, 0 or more, those of `vmpo_policy_loss`; None for 1 each. The
            mean is by them, over the better half of the elements whose weight is not 0.

    Returns:
        `[]`: it is one loss of all elements, and 0 where none counts.

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
    weights = _weights(where, weights, "advantages", advantages)
    return _vmpo_temperature_loss(temperature, advantages, epsilon, weights)


def _scalar(
    where: str, log_temperature: TensorLike, leader: str, values: tf.Tensor
) -> tf.Tensor:
    name = "log_temperature"
    tensor = operands.alike(where, name, log_temperature, leader, values)
    checks.check_rank(where, name, tensor, exact=0)
    return tensor


def _weights(
    where: str, weights: TensorLike | None, leader: str, values: tf.Tensor
) -> tf.Tensor:
    if weights is None:
        return tf.ones_like(values)
    return operands.equal(where, "weights", weights, leader, values)


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
    log_probs: tf.Tensor,
    advantages: tf.Tensor,
    log_temperature: tf.Tensor,
    weights: tf.Tensor,
) -> records.LossInfo:
    dtype, shape = log_probs.dtype, tf.shape(advantages)
    total = tf.reduce_sum(precision.widened(weights))
    log_temperature = tf.stop_gradient(log_temperature)
    weights, exponentials, _ = _better_half(advantages, log_temperature, weights)
    shares = tf.math.divide_no_nan(exponentials, tf.reduce_sum(weights * exponentials))
    factors = tf.stop_gradient(tf.reshape(total * shares, shape))
    terms = tf.math.multiply_no_nan(precision.widened(log_probs), factors)
    shares = tf.stop_gradient(tf.reshape(weights * shares, shape))
    return records.LossInfo(
        tf.cast(-terms, dtype), _extras.MPOLossExtra(tf.cast(shares, dtype))
    )


@compile.compiled
def _vmpo_temperature_loss(
    log_temperature: tf.Tensor,
    advantages: tf.Tensor,
    epsilon: tf.Tensor,
    weights: tf.Tensor,
) -> tf.Tensor:
    some = tf.reduce_any(weights != 0)
    weights, exponentials, greatest = _better_half(advantages, log_temperature, weights)
    sums = tf.stack([tf.reduce_sum(weights * exponentials), tf.reduce_sum(weights)])
    # One where there are none, for the sake of the gradient.
    logs = tf.math.log(tf.where(some, sums, tf.ones_like(sums)))
    loss = _dual(log_temperature, logs[0] - logs[1], greatest, epsilon)
    return tf.where(some, loss, tf.zeros_like(loss))


def _better_half(
    advantages: tf.Tensor, log_temperature: tf.Tensor, weights: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Weights and exponentials of the better half, flat, and the greatest advantage.

    The exponentials are exp((advantages - greatest) / T). Both are 0 in the other half,
    and for elements of weight 0, which are in neither.
    """
    flat, weights = (
        tf.reshape(tf.stop_gradient(precision.widened(x)), [-1])
        for x in (advantages, weights)
    )
    counts = weights != 0
    nothing = tf.constant(-math.inf, flat.dtype)
    least = tf.where(tf.reduce_any(counts), nothing, tf.zeros_like(nothing))
    flat = tf.where(counts, flat, least)
    scores, greatest = _scores(flat, log_temperature)
    # Elements that do not count come last, behind those that are infinitely bad.
    ordered = tf.where(counts, tf.maximum(flat, flat.dtype.min), nothing)
    n_better = (tf.reduce_sum(tf.cast(counts, tf.int32)) + 1) // 2
    better = counts & _is_among_first(ordered, n_better)
    exponentials = tf.where(better, tf.exp(scores), tf.zeros_like(scores))
    return tf.where(better, weights, tf.zeros_like(weights)), exponentials, greatest


def _is_among_first(flat: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    """Which elements are the `n` greatest; earlier ones among equals."""
    count = tf.size(flat)
    # In an order that XLA knows for any size, unlike that of `tf.math.top_k`.
    order = tf.argsort(flat, direction="DESCENDING", stable=True)
    ranks = tf.scatter_nd(order[:, tf.newaxis], tf.range(count), [count])
    return ranks < n


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
    # A temperature whose inverse has no number weighs as one that has the greatest: all
    # is for the best in either. An exponential that overflows is infinite times 0.
    most = -math.log(np.finfo(values.dtype.as_numpy_dtype).tiny)
    rate = tf.exp(tf.minimum(-tf.cast(log_temperature, values.dtype), most))
    scores = gaps * rate
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
