"""Value distributions as quantiles, and the loss that draws them to samples of targets.

A network gives the values below which fractions tau of a distribution lie. QR-DQN has
them at fixed midpoints, IQN at fractions drawn for each batch, FQF at fractions that
another network proposes: all make targets by `quantile_q_target` and give them to
`quantile_td_loss` beside the quantiles of the action taken, `q_taken(quantiles,
actions)`. Distributions over fixed atoms are in `tfrl.losses.categorical`.
"""

from typing import TypeAlias

import tensorflow as tf

from tfrl._internal import checks, operands, precision
from tfrl.core import compile, records
from tfrl.losses import _extras, regression, temporal_difference

TensorLike: TypeAlias = operands.TensorLike


def quantile_q_target(
    rewards: TensorLike,
    discounts: TensorLike,
    next_quantiles: TensorLike,
    next_q_selector: TensorLike | None = None,
) -> tf.Tensor:
    """Computes samples of the target of quantile Q-learning: the best action follows.

        target[j] = rewards + discounts * next_quantiles[a, j]
        a = argmax_a next_q_selector[a]

    Args:
        rewards: `[...]`, reward of the transition.
        discounts: `[...]`, gamma * (1 - terminated) of the transition.
        next_quantiles: `[..., A, M]`, quantiles of the value of every action in the
            next state, by the target network; floating.
        next_q_selector: `[..., A]`, the values that choose the action: those of the
            network being trained for double Q-learning, or means that weigh quantiles
            at uneven fractions. None takes the plain means of `next_quantiles`.

    Returns:
        `[..., M]`, without gradient. Where the discount is 0 nothing of the next state
        counts.

    Raises:
        ValueError: if shapes do not fit.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> next_quantiles = [[[0.0, 2.0], [4.0, 6.0]]]
        >>> quantile_q_target([1.0], [0.5], next_quantiles).numpy()
        array([[3., 4.]], dtype=float32)
        >>> quantile_q_target([1.0], [0.5], next_quantiles, [[1.0, 0.0]]).numpy()
        array([[1., 2.]], dtype=float32)

    References:
        Dabney, Rowland, Bellemare, Munos (2018), "Distributional Reinforcement Learning
        with Quantile Regression", algorithm 1.
    """
    where, leader = "quantile_q_target", "next_quantiles"
    quantiles = operands.leading(where, leader, next_quantiles, axes=2)
    leader, element = f"{leader}[..., 0, 0]", quantiles[..., 0, 0]
    rewards = operands.beginning(where, "rewards", rewards, leader, element)
    discounts = operands.beginning(where, "discounts", discounts, leader, element)
    selector = None
    if next_q_selector is not None:
        leader, element = "next_quantiles[..., 0]", quantiles[..., 0]
        selector = operands.equal(
            where, "next_q_selector", next_q_selector, leader, element
        )
    return _q_target(rewards, discounts, quantiles, selector)


def quantile_expected_sarsa_target(
    rewards: TensorLike,
    discounts: TensorLike,
    next_quantiles: TensorLike,
    next_probs: TensorLike,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes samples of the target of quantile expected SARSA, and their weights.

        target[a, j] = rewards + discounts * next_quantiles[a, j]
        weight[a, j] = next_probs[a] / M

    Together they are the mixture of the actions' distributions that the policy meets,
    and go into `quantile_td_loss(quantiles, targets, target_weights=weights)`.

    Args:
        rewards: `[...]`, reward of the transition.
        discounts: `[...]`, gamma * (1 - terminated) of the transition.
        next_quantiles: `[..., A, M]`, quantiles of the value of every action in the
            next state, floating; infinite or NaN where the probability is 0 does not
            matter.
        next_probs: `[..., A]`, probability of every action there.

    Returns:
        Targets and weights, each `[..., A * M]`, without gradient.

    Raises:
        ValueError: if shapes do not fit.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> targets, weights = quantile_expected_sarsa_target(
        ...     [1.0], [0.5], [[[0.0, 2.0], [4.0, 6.0]]], [[0.75, 0.25]])
        >>> targets.numpy(), weights.numpy()
        (array([[1., 2., 3., 4.]], dtype=float32), array([[0.375, 0.375, 0.125, 0.125]],
          dtype=float32))

    References:
        Dabney, Rowland, Bellemare, Munos (2018), "Distributional Reinforcement Learning
        with Quantile Regression", section 4; Van Seijen et al. (2009), "A Theoretical
        and Empirical Analysis of Expected Sarsa".
    """
    where, leader = "quantile_expected_sarsa_target", "next_quantiles"
    quantiles = operands.leading(where, leader, next_quantiles, axes=2)
    row, column = f"{leader}[..., 0, 0]", f"{leader}[..., 0]"
    element = quantiles[..., 0, 0]
    rewards = operands.beginning(where, "rewards", rewards, row, element)
    discounts = operands.beginning(where, "discounts", discounts, row, element)
    probs = operands.equal(where, "next_probs", next_probs, column, quantiles[..., 0])
    return _expected_sarsa_target(rewards, discounts, quantiles, probs)


def quantile_td_loss(
    quantiles: TensorLike,
    targets: TensorLike,
    fractions: TensorLike | None = None,
    huber_delta: TensorLike = 1.0,
    target_weights: TensorLike | None = None,
) -> records.LossInfo:
    """Computes the quantile Huber loss of a predicted distribution.

        loss = sum over k, mean over j of |tau[k] - (1 if d < 0 else 0)| * h(d)
        d = targets[j] - quantiles[k]
        h(d) = d^2 / (2 * huber_delta)     where |d| < huber_delta
        h(d) = |d| - huber_delta / 2       elsewhere

    that is N times `multi_quantile_huber_loss` of the same delta, where every element
    has samples of its own: there `[...]` are one sample each, here samples that critics
    share. Gradients flow to `quantiles` alone.

    Args:
        quantiles: `[..., N]`, of the action taken; `[..., E, N]` for critics that share
            targets; floating.
        targets: `[..., M]`, samples of the target.
        fractions: `[N]` or the shape of `quantiles`, tau in [0, 1]; None takes the
            midpoints (k + 0.5) / N.
        huber_delta: scalar >= 0, where the parabola ends; 0 is the pinball loss.
        target_weights: `[..., M]`, weights of the samples instead of 1 / M.

    Returns:
        `LossInfo(loss, extra)`, the loss `[...]` or `[..., E]`, with
        `extra.priorities` `[...]`: the loss, of several critics the greatest, how much
        there is to learn from each element, for prioritized replay.

    Raises:
        ValueError: if shapes do not fit, `huber_delta` is negative or no scalar, or a
            fraction is known to be outside [0, 1].
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> quantile_td_loss([[0.0, 4.0]], [[2.0, 2.0]]).loss.numpy()
        array([0.75], dtype=float32)
        >>> quantile_td_loss([[0.0, 4.0]], [[2.0, 2.0]], [0.5, 0.5]).loss.numpy()
        array([1.5], dtype=float32)

    References:
        Dabney, Rowland, Bellemare, Munos (2018), "Distributional Reinforcement Learning
        with Quantile Regression", equation 10, divided by `huber_delta`; Dabney,
        Ostrovski, Silver, Munos (2018), "Implicit Quantile Networks for Distributional
        Reinforcement Learning", equation 3; several critics as in Kuznetsov et al.
        (2020), "Controlling Overestimation Bias with Truncated Mixture of Continuous
        Distributional Quantile Critics".
    """
    where = "quantile_td_loss"
    quantiles = operands.leading(where, "quantiles", quantiles, axes=1)
    targets = operands.alike(where, "targets", targets, "quantiles", quantiles)
    checks.check_rank(where, "targets", targets, at_least=1)
    operands.check_beginning(
        where, "targets", targets[..., 0], "quantiles[..., 0]", quantiles[..., 0]
    )
    if fractions is not None:
        checks.check_within(where, "fractions", fractions, 0.0, 1.0)
        fractions = operands.along_last(
            where, "fractions", fractions, "quantiles", quantiles
        )
    checks.check_within(where, "huber_delta", huber_delta, 0.0, float("inf"))
    checks.check_rank(where, "huber_delta", huber_delta, exact=0)
    if target_weights is not None:
        target_weights = operands.equal(
            where, "target_weights", target_weights, "targets", targets
        )
    return _td_loss(quantiles, targets, fractions, huber_delta, target_weights)


def fraction_proposal_loss(
    fractions: TensorLike, at_fractions: TensorLike, at_midpoints: TensorLike
) -> tf.Tensor:
    """Computes the loss that moves proposed fractions to where they tell most.

        loss = sum over i of fractions[i] * s[i]
        s[i] = 2 * at_fractions[i] - at_midpoints[i] - at_midpoints[i + 1]

    `s[i]`, through which no gradient flows, is the derivative by `fractions[i]` of the
    1-Wasserstein distance of the quantile function from its approximation by steps: a
    step from each fraction to the next, as high as the quantile between them.

    Args:
        fractions: `[..., N - 1]`, the proposed fractions that are neither 0 nor 1,
            increasing; floating.
        at_fractions: the shape of `fractions`, quantiles at the fractions.
        at_midpoints: `[..., N]`, quantiles halfway between one fraction, or 0, and the
            next, or 1.

    Returns:
        `[...]`; its gradient, unlike its value, means something.

    Raises:
        ValueError: if shapes do not fit.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> fractions = tf.constant([[0.5]])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(fractions)
        ...     loss = fraction_proposal_loss(fractions, [[3.0]], [[0.0, 4.0]])
        >>> tape.gradient(loss, fractions).numpy()
        array([[2.]], dtype=float32)

    References:
        Yang et al. (2019), "Fully Parameterized Quantile Function for Distributional
        Reinforcement Learning", proposition 1.
    """
    where = "fraction_proposal_loss"
    fractions = operands.leading(where, "fractions", fractions, axes=1)
    at_fractions = operands.equal(
        where, "at_fractions", at_fractions, "fractions", fractions
    )
    middle = operands.alike(where, "at_midpoints", at_midpoints, "fractions", fractions)
    size = fractions.shape[-1]
    expected = fractions.shape[:-1].concatenate(None if size is None else size + 1)
    if not middle.shape.is_compatible_with(expected):
        raise ValueError(
            f"`{where}`: `at_midpoints` expected shape {expected.as_list()}, one more "
            f"than `fractions` along the last axis; got {middle.shape.as_list()}"
        )
    slopes = 2 * at_fractions - middle[..., :-1] - middle[..., 1:]
    terms = precision.widened(fractions * tf.stop_gradient(slopes))
    return tf.cast(tf.reduce_sum(terms, axis=-1), fractions.dtype)


@compile.compiled
def _q_target(
    rewards: tf.Tensor,
    discounts: tf.Tensor,
    quantiles: tf.Tensor,
    selector: tf.Tensor | None,
) -> tf.Tensor:
    if selector is None:
        selector = tf.reduce_mean(precision.widened(quantiles), axis=-1)
    greedy = tf.argmax(selector, axis=-1, output_type=tf.int32)
    taken = temporal_difference.q_taken(quantiles, greedy)
    return temporal_difference.td_target(rewards, discounts, taken)


@compile.compiled
def _expected_sarsa_target(
    rewards: tf.Tensor, discounts: tf.Tensor, quantiles: tf.Tensor, probs: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    targets = temporal_difference.td_target(rewards, discounts, quantiles)
    count = tf.cast(tf.shape(quantiles)[-1], quantiles.dtype)
    weights = tf.broadcast_to((probs / count)[..., tf.newaxis], tf.shape(quantiles))
    mixed = tf.concat([tf.shape(quantiles)[:-2], [-1]], axis=0)
    return tf.reshape(targets, mixed), tf.stop_gradient(tf.reshape(weights, mixed))


@compile.compiled
def _td_loss(
    quantiles: tf.Tensor,
    targets: tf.Tensor,
    fractions: tf.Tensor | None,
    huber_delta: tf.Tensor,
    weights: tf.Tensor | None,
) -> records.LossInfo:
    critics = list(range(targets.shape.rank - 1, quantiles.shape.rank - 1))
    shape = tf.concat([tf.shape(quantiles)[:-1], tf.shape(targets)[-1:]], axis=0)

    def shared(samples: tf.Tensor) -> tf.Tensor:
        for _ in critics:
            samples = samples[..., tf.newaxis, :]
        return tf.broadcast_to(tf.stop_gradient(samples), shape)

    loss = regression.multi_quantile_huber_loss(
        quantiles,
        shared(targets),
        huber_delta,
        fractions=fractions,
        target_weights=None if weights is None else shared(weights),
    )
    loss *= tf.cast(tf.shape(quantiles)[-1], loss.dtype)
    priorities = tf.stop_gradient(precision.greatest(loss, axis=critics))
    return records.LossInfo(loss, _extras.QuantileLossExtra(priorities))
