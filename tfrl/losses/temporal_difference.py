"""One-step targets of values and the loss that draws values towards them.

A target is made by the rule of the algorithm and then given to `td_loss`:

- DQN: `q_learning_target`; double DQN: `double_q_target`.
- SARSA: `td_target` with `q_taken(next_q_values, next_actions)`; its expectation over
  the policy: `expected_sarsa_target`.
- TD3, and with an entropy bonus SAC and CQL: `clipped_double_q_target`.
- State values, and the critics of IQL: `td_target`.

`discounts` is gamma * (1 - terminated). Targets of n steps come by the same functions:
pass `rewards[t] + gamma * rewards[t+1] + ...` as `rewards`, gamma^n * (1 - terminated)
as `discounts`, and what was seen n steps later as the next values.

Critics that are trained side by side share targets: their axis is the last one. No
gradient flows through a target. Returns along whole trajectories are in `tfrl.ops`.
"""

from typing import TypeAlias

import tensorflow as tf

from tfrl._internal import checks, operands, precision
from tfrl.core import compile, records
from tfrl.losses import _extras, regression

TensorLike: TypeAlias = operands.TensorLike


def td_target(
    rewards: TensorLike, discounts: TensorLike, next_values: TensorLike
) -> tf.Tensor:
    """Computes the reward plus the discounted value of what follows.

        target = rewards + discounts * next_values

    Where the discount is 0, here and in the other targets, the next value may be
    infinite or NaN.

    Args:
        rewards: `[...]`, reward of the transition.
        discounts: `[...]`, gamma * (1 - terminated).
        next_values: `[...]` or `[..., E]` for critics with their own targets,
            floating; the result has its shape and dtype.

    Returns:
        Targets, shape of `next_values`, without gradient.

    Raises:
        ValueError: if a shape is not where that of `next_values` begins.
        TypeError: if a dtype is not that of `next_values`, or not floating.

    Example:
        >>> td_target([1.0, 1.0], [0.5, 0.0], [4.0, 4.0]).numpy()
        array([3., 1.], dtype=float32)
        >>> next_q_values, next_actions = tf.constant([[4.0, 6.0]]), tf.constant([1])
        >>> sarsa = td_target([1.0], [0.5], q_taken(next_q_values, next_actions))
        >>> sarsa.numpy()
        array([4.], dtype=float32)

    References:
        Sutton, 1988, Learning to Predict by the Methods of Temporal Differences.
    """
    where, leader = "td_target", "next_values"
    next_values = operands.leading(where, leader, next_values)
    return _target(where, rewards, discounts, leader, next_values)


def q_learning_target(
    rewards: TensorLike, discounts: TensorLike, next_q_values: TensorLike
) -> tf.Tensor:
    """Computes the targets of Q-learning: the best action follows.

        target = rewards + discounts * max_a next_q_values[a]

    Args:
        rewards: `[...]`, reward of the transition.
        discounts: `[...]`, gamma * (1 - terminated).
        next_q_values: `[..., A]`, value of every action in the next state, in DQN by
            the target network; floating.

    Returns:
        Targets `[...]`, without gradient.

    Raises:
        ValueError: if a shape is not where that of `next_q_values` begins.
        TypeError: if a dtype is not that of `next_q_values`, or not floating.

    Example:
        >>> q_learning_target([1.0], [0.5], [[4.0, 6.0]]).numpy()
        array([4.], dtype=float32)

    References:
        Mnih et al., 2015, Human-Level Control through Deep Reinforcement Learning,
        algorithm 1.
    """
    where, leader = "q_learning_target", "next_q_values"
    next_q_values = operands.leading(where, leader, next_q_values, axes=1)
    best = precision.greatest(next_q_values, axis=-1)
    return _target(where, rewards, discounts, f"{leader}[..., 0]", best)


def double_q_target(
    rewards: TensorLike,
    discounts: TensorLike,
    next_q_values: TensorLike,
    next_q_selector: TensorLike,
) -> tf.Tensor:
    """Computes the targets of double Q-learning: one chooses, another values.

        target = rewards + discounts * next_q_values[argmax_a next_q_selector[a]]

    Args:
        rewards: `[...]`, reward of the transition.
        discounts: `[...]`, gamma * (1 - terminated).
        next_q_values: `[..., A]`, value of every action in the next state, in double
            DQN by the target network; floating.
        next_q_selector: `[..., A]`, the values that choose, in double DQN by the
            network being trained.

    Returns:
        Targets `[...]`, without gradient.

    Raises:
        ValueError: if a shape is not where that of `next_q_values` begins, or those of
            the values and the selector differ.
        TypeError: if a dtype is not that of `next_q_values`, or not floating.

    Example:
        >>> double_q_target([1.0], [0.5], [[4.0, 6.0]], [[9.0, 8.0]]).numpy()
        array([3.], dtype=float32)

    References:
        Van Hasselt et al., 2016, Deep Reinforcement Learning with Double Q-learning,
        eq. 4.
    """
    where, leader = "double_q_target", "next_q_values"
    next_q_values = operands.leading(where, leader, next_q_values, axes=1)
    selector = operands.equal(
        where, "next_q_selector", next_q_selector, leader, next_q_values
    )
    chosen = _chosen(next_q_values, selector)
    return _target(where, rewards, discounts, f"{leader}[..., 0]", chosen)


def expected_sarsa_target(
    rewards: TensorLike,
    discounts: TensorLike,
    next_q_values: TensorLike,
    next_probs: TensorLike,
) -> tf.Tensor:
    """Computes the targets of expected SARSA: the policy's mean action follows.

        target = rewards + discounts * sum_a next_probs[a] * next_q_values[a]

    Args:
        rewards: `[...]`, reward of the transition.
        discounts: `[...]`, gamma * (1 - terminated).
        next_q_values: `[..., A]`, value of every action in the next state, floating;
            infinite or NaN where the probability is 0 does not matter.
        next_probs: `[..., A]`, probability of every action there.

    Returns:
        Targets `[...]`, without gradient.

    Raises:
        ValueError: if a shape is not where that of `next_q_values` begins, or those of
            the values and the probabilities differ.
        TypeError: if a dtype is not that of `next_q_values`, or not floating.

    Example:
        >>> expected_sarsa_target([1.0], [0.5], [[4.0, 8.0]], [[0.75, 0.25]]).numpy()
        array([3.5], dtype=float32)

    References:
        Van Seijen et al., 2009, A Theoretical and Empirical Analysis of Expected Sarsa.
    """
    where, leader = "expected_sarsa_target", "next_q_values"
    next_q_values = operands.leading(where, leader, next_q_values, axes=1)
    probs = operands.equal(where, "next_probs", next_probs, leader, next_q_values)
    mean = tf.reduce_sum(tf.math.multiply_no_nan(next_q_values, probs), axis=-1)
    return _target(where, rewards, discounts, f"{leader}[..., 0]", mean)


def clipped_double_q_target(
    rewards: TensorLike,
    discounts: TensorLike,
    next_q_values: TensorLike,
    next_log_probs: TensorLike | None = None,
    alpha: TensorLike | None = None,
) -> tf.Tensor:
    """Computes targets by the most pessimistic of several critics.

        target = rewards + discounts * (min_e next_q_values[e] - alpha * next_log_probs)

    TD3 leaves out the entropy bonus `-alpha * next_log_probs`, SAC has it.

    Args:
        rewards: `[...]`, reward of the transition.
        discounts: `[...]`, gamma * (1 - terminated).
        next_q_values: `[..., E]`, value of the policy's next action by each critic,
            floating.
        next_log_probs: `[...]`, log-probability of that action.
        alpha: temperature, weight of the bonus; given together with `next_log_probs`.

    Returns:
        Targets `[...]`, without gradient.

    Raises:
        ValueError: if a shape is not where that of `next_q_values` begins, or one of
            `next_log_probs` and `alpha` is missing.
        TypeError: if a dtype is not that of `next_q_values`, or not floating.

    Example:
        >>> clipped_double_q_target([1.0], [0.5], [[4.0, 6.0]]).numpy()
        array([3.], dtype=float32)
        >>> clipped_double_q_target([1.0], [0.5], [[4.0, 6.0]], [-2.0], 0.5).numpy()
        array([3.5], dtype=float32)

    References:
        Fujimoto et al., 2018, Addressing Function Approximation Error in Actor-Critic
        Methods, algorithm 1; Haarnoja et al., 2018, Soft Actor-Critic Algorithms and
        Applications, eq. 3.
    """
    where, leader = "clipped_double_q_target", "next_q_values"
    next_q_values = operands.leading(where, leader, next_q_values, axes=1)
    leader, values = f"{leader}[..., 0]", precision.least(next_q_values, axis=-1)
    if next_log_probs is not None and alpha is not None:
        log_probs = operands.equal(
            where, "next_log_probs", next_log_probs, leader, values
        )
        alpha = checks.as_tensor(where, "alpha", alpha, None, values.dtype)
        values -= precision.number(alpha, values.dtype) * log_probs
    elif next_log_probs is not None or alpha is not None:
        raise ValueError(
            f"`{where}`: `next_log_probs` and `alpha` expected together; got only "
            f"{'`alpha`' if alpha is not None else '`next_log_probs`'}"
        )
    return _target(where, rewards, discounts, leader, values)


def q_taken(q_values: TensorLike, actions: TensorLike) -> tf.Tensor:
    """Picks the value of the action taken.

        result = q_values[..., actions, :]

    Args:
        q_values: `[..., A]`, or `[..., A, *more]` with one axis of critics or the
            logits of a value distribution behind the actions; floating.
        actions: `[...]` integers in [0, A). In graphs, others raise on a CPU outside
            XLA and give arbitrary values elsewhere.

    Returns:
        `[...]` or `[..., *more]`; the gradient flows to the values picked.

    Raises:
        ValueError: if the shape of `actions` is not where that of `q_values` begins, or
            no axis is left for the actions; if one, not in a graph, is not in [0, A).
        TypeError: if `actions` are not integers or `q_values` not floating.

    Example:
        >>> q_taken([[1.0, 2.0], [3.0, 4.0]], [1, 0]).numpy()
        array([2., 3.], dtype=float32)
    """
    where = "q_taken"
    actions = operands.ranked(where, "actions", actions)
    if not actions.dtype.is_integer:
        raise TypeError(
            f"`{where}`: `actions` expected integers; got {actions.dtype.name}"
        )
    axis = actions.shape.rank
    q_values = operands.leading(where, "q_values", q_values, axes=axis + 1)
    operands.check_beginning(where, "actions", actions, "q_values", q_values)
    n_actions = q_values.shape[axis]
    if n_actions is not None and not tf.is_symbolic_tensor(actions):
        known = actions.numpy()
        if known.size and not 0 <= known.min() <= known.max() < n_actions:
            checks.check_within(where, "actions", known, 0, n_actions - 1)
    return tf.gather(q_values, tf.cast(actions, tf.int32), axis=axis, batch_dims=axis)


def td_loss(
    values: TensorLike, targets: TensorLike, huber_delta: float | None = None
) -> records.LossInfo:
    """Computes half the squared error of values, or its Huber form.

        errors = targets - values
        loss = errors^2 / 2                                where |errors| < huber_delta
        loss = huber_delta * (|errors| - huber_delta / 2)  elsewhere

    Gradients flow to `values` alone.

    Args:
        values: `[...]`, or `[..., E]` for critics that share targets: state values,
            values of state and action, or `q_taken(q_values, actions)`; floating.
        targets: `[...]`.
        huber_delta: error from which on the loss grows linearly; None is squared all
            the way.

    Returns:
        `LossInfo(loss, extra)`, the loss in the shape of `values`, with `extra.errors`:
        targets - values, and `extra.priorities`, in the shape of `targets`: the
        greatest absolute error of any critic, how much there is to learn from each
        element, for prioritized replay.

    Raises:
        ValueError: if the shape of `targets` is not where that of `values` begins, or
            `huber_delta` is not positive.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> td_loss([3.0, 1.0], [1.0, 1.5]).loss.numpy()
        array([2.   , 0.125], dtype=float32)
        >>> td_loss([3.0, 1.0], [1.0, 1.5], huber_delta=1.0).loss.numpy()
        array([1.5  , 0.125], dtype=float32)

    References:
        Mnih et al., 2015, Human-Level Control through Deep Reinforcement Learning;
        Fujimoto et al., 2020, An Equivalence between Loss Functions and Non-Uniform
        Sampling in Experience Replay (the priority of several critics).
    """
    values, targets = _pair("td_loss", values, targets)
    if huber_delta is not None:
        checks.check_positive("td_loss", "huber_delta", huber_delta)
        checks.check_finite("td_loss", "huber_delta", huber_delta)
    return _td_loss(values, targets, huber_delta)


def expectile_loss(
    values: TensorLike, targets: TensorLike, expectile: TensorLike
) -> records.LossInfo:
    """Computes the squared error of values, weighted by its sign.

        errors = targets - values
        loss = expectile * errors^2          where errors >= 0
        loss = (1 - expectile) * errors^2    elsewhere

    Its minimum goes from the mean of the targets at 0.5, where the loss is that of
    `td_loss`, to their maximum at 1. Gradients flow to `values` alone.

    Args:
        values: `[...]`, in IQL the value of the state; floating.
        targets: `[...]`, in IQL the least value by the target critics.
        expectile: which, in [0, 1].

    Returns:
        `LossInfo(loss, extra)`, the loss in the shape of `values`, with `extra.errors`:
        targets - values, and `extra.priorities`, in the shape of `targets`: the
        greatest absolute error of any critic, how much there is to learn from each
        element, for prioritized replay.

    Raises:
        ValueError: if the shape of `targets` is not where that of `values` begins, or
            `expectile` is outside [0, 1].
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> expectile_loss([0.0, 0.0], [2.0, -2.0], 0.75).loss.numpy()
        array([3., 1.], dtype=float32)

    References:
        Kostrikov et al., 2021, Offline Reinforcement Learning with Implicit Q-Learning,
        eq. 5.
    """
    checks.check_within("expectile_loss", "expectile", expectile, 0.0, 1.0)
    values, targets = _pair("expectile_loss", values, targets)
    return _expectile_loss(values, targets, expectile)


@compile.compiled
def _chosen(values: tf.Tensor, selector: tf.Tensor) -> tf.Tensor:
    return q_taken(values, tf.argmax(selector, -1, output_type=tf.int32))


def _target(
    where: str,
    rewards: TensorLike,
    discounts: TensorLike,
    leader: str,
    values: tf.Tensor,
) -> tf.Tensor:
    rewards = operands.aligned(where, "rewards", rewards, leader, values)
    discounts = operands.aligned(where, "discounts", discounts, leader, values)
    # No action may be left where the episode ended: a best value of -inf counts 0.
    return tf.stop_gradient(rewards + tf.math.multiply_no_nan(values, discounts))


@compile.compiled
def _td_loss(
    values: tf.Tensor, targets: tf.Tensor, huber_delta: tf.Tensor | None
) -> records.LossInfo:
    extra = _errors(values, targets)
    if huber_delta is None:
        return records.LossInfo(0.5 * extra.errors**2, extra)
    loss = regression.huber_function(extra.errors, huber_delta)
    return records.LossInfo(loss, extra)


@compile.compiled
def _expectile_loss(
    values: tf.Tensor, targets: tf.Tensor, expectile: tf.Tensor
) -> records.LossInfo:
    extra = _errors(values, targets)
    weight = precision.number(expectile, extra.errors.dtype)
    weights = tf.where(extra.errors < 0, 1 - weight, weight)
    return records.LossInfo(weights * extra.errors**2, extra)


def _pair(
    where: str, values: TensorLike, targets: TensorLike
) -> tuple[tf.Tensor, tf.Tensor]:
    values = operands.leading(where, "values", values)
    return values, operands.beginning(where, "targets", targets, "values", values)


def _errors(values: tf.Tensor, targets: tf.Tensor) -> _extras.TDLossExtra:
    critics = list(range(targets.shape.rank, values.shape.rank))
    for _ in critics:
        targets = targets[..., tf.newaxis]
    errors = tf.stop_gradient(targets) - values
    return _extras.TDLossExtra(errors, precision.greatest(tf.abs(errors), axis=critics))
