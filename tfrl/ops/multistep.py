"""Returns over several steps, of value-based agents and of other policies' experience.

They are of `T` transitions, each with its own reward, discount and successor value, as
`td_lambda_return` and `vtrace` of `tfrl.ops.value`; what that says about discounts,
trailing axes, dtypes and compilation holds here too. Whatever `lambda_[t] = 0` says, it
keeps row t + 1 apart from row t: pass `lambda_ * (1 - truncated)` where time limits cut
episodes off. True ends need nothing, their discount is 0.

With a `transform` values are learned in its image: they are taken out of it, and what
results is brought back into it,

    result = transform(returns of inverse_transform(values)).
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tfrl._internal import checks, operands, precision
from tfrl.ops import _recurrence, _sequences, value, value_transforms

TensorLike: TypeAlias = operands.TensorLike

# So many steps XLA compiles sooner one by one. The graph of more doubles them, so that
# it grows by the logarithm of their number.
_FEW = 10


def n_step_return(
    rewards: TensorLike,
    discounts: TensorLike,
    next_values: TensorLike,
    n_steps: int,
    lambda_: TensorLike = 1.0,
    *,
    transform: value_transforms.InvertibleTransform | None = None,
    time_major: bool = True,
) -> tf.Tensor:
    """Returns of `n_steps` rewards and the value of what follows them.

        G[t] = rewards[t] + discounts[t] * rewards[t+1] + ...
               + discounts[t] * ... * discounts[t+n-1] * next_values[t+n-1]

    and, where `lambda_` is not 1, of the mixture of all shorter ones:

        G[t] = R(t, n)
        R(t, n) = rewards[t] + discounts[t]
                  * ((1 - lambda_[t]) * next_values[t] + lambda_[t] * R(t+1, n-1))
        R(t+1, 0) = next_values[t]

    At the end of the sequence the sums are shorter: they end with the last value. With
    `n_steps` of `T` and more this is `td_lambda_return`.

    Gradients flow into all tensors; wrap the result in `tf.stop_gradient` to use it as
    a target.

    Args:
        rewards: `[T, B]` or `[T]`, the reward of each transition.
        discounts: `[T, B]` or `[T]`, gamma * (1 - terminated) of each transition.
        next_values: `[T, B, ...]` or `[T, ...]`, floating, value of each successor;
            the result has its dtype.
        n_steps: how many rewards, at least 1. It is compiled in.
        lambda_: scalar, or one per transition in the shape of `rewards`.
        transform: in whose image values are learned; None for plain values.
        time_major: whether time is the first axis; otherwise batch is, time second.

    Returns:
        The shape of `next_values`.

    Raises:
        ValueError: if a shape is not where that of `next_values` begins, or `n_steps`
            is less than 1.
        TypeError: if `next_values` is not floating, a dtype differs from it, or
            `n_steps` is no whole number.

    Example:
        >>> n_step_return(rewards=[1.0, 1.0, 1.0], discounts=[0.5, 0.5, 0.5],
        ...               next_values=[9.0, 8.0, 4.0], n_steps=2).numpy()
        array([3.5, 2.5, 3. ], dtype=float32)

    References:
        Sutton, Barto (2018), "Reinforcement Learning: An Introduction", section 7.1;
        with a transform Pohlen et al. (2018), "Observe and Look Further: Achieving
        Consistent Performance on Atari", section 3.1, in the form for n steps of
        Kapturowski et al. (2019), "Recurrent Experience Replay in Distributed
        Reinforcement Learning", section 2.3.
    """
    where, leader = "n_step_return", "next_values"
    values = _sequences.leading(where, leader, next_values, time_major)
    count = checks.check_whole_number(where, "n_steps", n_steps, low=1)
    steps = values.shape[0 if time_major else 1]
    whole = steps is not None and count >= steps
    value_transforms.check_transform(where, transform)
    named = {"rewards": rewards, "discounts": discounts}
    others = _sequences.following(where, leader, values, time_major, **named)
    lambdas = _sequences.weights(where, "lambda_", lambda_, leader, values, time_major)

    def returns(values: tf.Tensor) -> tf.Tensor:
        if whole:
            return _td_lambda_return(values, *others, lambdas, time_major=time_major)
        return _n_step_return(
            values, *others, lambdas, time_major=time_major, count=count
        )

    return _sequences.by_transform(transform, returns, values)


def off_policy_return(
    q_values: TensorLike,
    next_values: TensorLike,
    rewards: TensorLike,
    discounts: TensorLike,
    traces: TensorLike,
    lambda_: TensorLike = 1.0,
    *,
    transform: value_transforms.InvertibleTransform | None = None,
    time_major: bool = True,
) -> tf.Tensor:
    """Returns of a policy from what another experienced, by any kind of trace.

        delta[t] = rewards[t] + discounts[t] * next_values[t] - q_values[t]
        e[T]     = 0
        e[t]     = delta[t] + discounts[t] * lambda_[t] * traces[t+1] * e[t+1]
        G        = q_values + e

    With pi the policy that is learned and mu the one that acted, `traces` are, for the
    action taken at each step, by algorithm:

    - 1: Q(lambda) of Harutyunyan et al. (2016), near-on-policy data only;
    - pi / mu: importance sampling, without bias and of high variance;
    - pi: tree backup of Precup et al. (2000), which needs no mu and is often short;
    - min(1, pi / mu): `retrace`.

    No gradient flows through the result.

    Args:
        q_values: `[T, B, ...]` or `[T, ...]`, floating, value of each action taken; the
            result has its dtype.
        next_values: mean value of the policy's actions in each successor state, in the
            shape of `q_values`.
        rewards: `[T, B]` or `[T]`, the reward of each transition.
        discounts: `[T, B]` or `[T]`, gamma * (1 - terminated) of each transition.
        traces: `[T, B]` or `[T]`, how much of what follows each action counts; the
            first is never used.
        lambda_: scalar, or one per transition in the shape of `rewards`.
        transform: in whose image values are learned; None for plain values.
        time_major: whether time is the first axis; otherwise batch is, time second.

    Returns:
        The shape of `q_values`: what they should become.

    Raises:
        ValueError: if `next_values` has not the shape of `q_values`, or another shape
            is not where that begins.
        TypeError: if `q_values` is not floating or a dtype differs from it.

    Example:
        >>> off_policy_return(q_values=[9.0, 1.0], next_values=[2.0, 4.0],
        ...                   rewards=[1.0, 1.0], discounts=[0.5, 0.5],
        ...                   traces=[9.0, 0.5]).numpy()
        array([2.5, 3. ], dtype=float32)

    References:
        Munos, Stepleton, Harutyunyan, Bellemare (2016), "Safe and Efficient Off-Policy
        Reinforcement Learning".
    """
    where, others = "off_policy_return", (next_values, rewards, discounts)
    given = _transitions(
        where, "q_values", q_values, *others, "traces", traces, lambda_, time_major
    )
    return _off_policy_return(where, given, transform, time_major)


def retrace(
    q_values: TensorLike,
    next_values: TensorLike,
    rewards: TensorLike,
    discounts: TensorLike,
    rhos: TensorLike,
    lambda_: TensorLike = 1.0,
    *,
    transform: value_transforms.InvertibleTransform | None = None,
    time_major: bool = True,
) -> tf.Tensor:
    """Retrace(lambda): returns of a policy from what any other experienced.

        delta[t] = rewards[t] + discounts[t] * next_values[t] - q_values[t]
        e[T]     = 0
        e[t]     = delta[t] + discounts[t] * lambda_[t] * min(1, rhos[t+1]) * e[t+1]
        G        = q_values + e

    Of discrete actions all comes of their values and both policies' probabilities:

        q_values = tfrl.losses.q_taken(all_q_values, actions)
        next_values = tf.reduce_sum(next_probs * all_next_q_values, axis=-1)
        rhos = tfrl.losses.q_taken(probs, actions) / probs_of_actor

    of continuous ones `rhos = tf.exp(log_probs - log_probs_of_actor)`, and
    `next_values` are means over drawn actions. No gradient flows through the result.

    Args:
        q_values: `[T, B, ...]` or `[T, ...]`, floating, value of each action taken; the
            result has its dtype.
        next_values: mean value of the policy's actions in each successor state, in the
            shape of `q_values`.
        rewards: `[T, B]` or `[T]`, the reward of each transition.
        discounts: `[T, B]` or `[T]`, gamma * (1 - terminated) of each transition.
        rhos: `[T, B]` or `[T]`, probability of each action under the policy that is
            learned over that under the policy that acted; the first is never used.
        lambda_: scalar, or one per transition in the shape of `rewards`.
        transform: in whose image values are learned; None for plain values.
        time_major: whether time is the first axis; otherwise batch is, time second.

    Returns:
        The shape of `q_values`: what they should become.

    Raises:
        ValueError: if `next_values` has not the shape of `q_values`, or another shape
            is not where that begins.
        TypeError: if `q_values` is not floating or a dtype differs from it.

    Example:
        >>> retrace(q_values=[9.0, 1.0], next_values=[2.0, 4.0], rewards=[1.0, 1.0],
        ...         discounts=[0.5, 0.5], rhos=[1.0, 5.0]).numpy()
        array([3., 3.], dtype=float32)

    References:
        Munos, Stepleton, Harutyunyan, Bellemare (2016), "Safe and Efficient Off-Policy
        Reinforcement Learning".
    """
    where, others = "retrace", (next_values, rewards, discounts)
    *given, rhos, lambdas = _transitions(
        where, "q_values", q_values, *others, "rhos", rhos, lambda_, time_major
    )
    given += [tf.minimum(rhos, tf.ones_like(rhos)), lambdas]
    return _off_policy_return(where, given, transform, time_major)


def q_lambda_return(
    rewards: TensorLike,
    discounts: TensorLike,
    next_q_values: TensorLike,
    lambda_: TensorLike = 1.0,
    *,
    transform: value_transforms.InvertibleTransform | None = None,
    time_major: bool = True,
) -> tf.Tensor:
    """Peng's Q(lambda): TD(lambda) returns in which the best action follows.

        G[T] = max_a next_q_values[T-1, a]
        G[t] = rewards[t] + discounts[t]
               * ((1 - lambda_[t]) * max_a next_q_values[t, a] + lambda_[t] * G[t+1])

    Watkins' Q(lambda), which ends at the first action that is not the best, is that of
    `lambda_[t] = 0` where the action of row t + 1 is not.

    Gradients flow into all tensors; wrap the result in `tf.stop_gradient` to use it as
    a target.

    Args:
        rewards: `[T, B]` or `[T]`, the reward of each transition.
        discounts: `[T, B]` or `[T]`, gamma * (1 - terminated) of each transition.
        next_q_values: `[T, B, A]` or `[T, A]`, floating, value of every action in each
            successor state; the result has its dtype.
        lambda_: scalar, or one per transition in the shape of `rewards`.
        transform: increasing, in whose image values are learned; None for plain values.
        time_major: whether time is the first axis; otherwise batch is, time second.

    Returns:
        `[T, B]` or `[T]`, as `time_major` says.

    Raises:
        ValueError: if a shape is not where that of `next_q_values` begins.
        TypeError: if `next_q_values` is not floating or a dtype differs from it.

    Example:
        >>> q_lambda_return(rewards=[1.0, 1.0], discounts=[0.5, 0.5],
        ...                 next_q_values=[[3.0, 2.0], [1.0, 4.0]], lambda_=0.5).numpy()
        array([2.5, 3. ], dtype=float32)

    References:
        Peng, Williams (1994), "Incremental Multi-Step Q-Learning".
    """
    where, leader = "q_lambda_return", "next_q_values"
    q_values = operands.leading(where, leader, next_q_values, axes=3 - time_major)
    value_transforms.check_transform(where, transform)
    best, leader = precision.greatest(q_values, axis=-1), f"{leader}[..., 0]"
    best = _sequences.leading(where, leader, best, time_major)
    named = {"rewards": rewards, "discounts": discounts}
    others = _sequences.following(where, leader, best, time_major, **named)
    lambdas = _sequences.weights(where, "lambda_", lambda_, leader, best, time_major)

    def returns(values: tf.Tensor) -> tf.Tensor:
        return _td_lambda_return(values, *others, lambdas, time_major=time_major)

    return _sequences.by_transform(transform, returns, best)


def importance_corrected_td_errors(
    values: TensorLike,
    next_values: TensorLike,
    rewards: TensorLike,
    discounts: TensorLike,
    rhos: TensorLike,
    lambda_: TensorLike = 1.0,
    *,
    time_major: bool = True,
) -> tf.Tensor:
    """Temporal differences over many steps, each decision weighed by its probability.

        delta[t] = rewards[t] + discounts[t] * next_values[t] - values[t]
        e[T]     = 0
        e[t]     = delta[t] + discounts[t] * lambda_[t] * rhos[t+1] * e[t+1]
        errors   = rhos * e

    Ratios are not clipped: the errors have no bias, and may vary a lot; `vtrace` clips.
    With all ratios 1, `values + errors` is `td_lambda_return`. The gradient of each
    error in its own value is -1, as in semi-gradient learning; no other flows.

    Args:
        values: `[T, B, ...]` or `[T, ...]`, floating, value of each state; the result
            has its dtype.
        next_values: value of each successor, in the shape of `values`.
        rewards: `[T, B]` or `[T]`, the reward of each transition.
        discounts: `[T, B]` or `[T]`, gamma * (1 - terminated) of each transition.
        rhos: `[T, B]` or `[T]`, probability of each action under the current policy
            over that under the policy that acted.
        lambda_: scalar, or one per transition in the shape of `rewards`.
        time_major: whether time is the first axis; otherwise batch is, time second.

    Returns:
        The shape of `values`.

    Raises:
        ValueError: if `next_values` has not the shape of `values`, or another shape is
            not where that begins.
        TypeError: if `values` is not floating or a dtype differs from it.

    Example:
        >>> importance_corrected_td_errors(
        ...     values=[1.0, 2.0], next_values=[2.0, 4.0], rewards=[1.0, 1.0],
        ...     discounts=[0.5, 0.5], rhos=[2.0, 0.5]).numpy()
        array([2.5, 0.5], dtype=float32)

    References:
        Precup, Sutton, Singh (2000), "Eligibility Traces for Off-Policy Policy
        Evaluation", section 4; Jiang, Li (2016), "Doubly Robust Off-policy Value
        Evaluation for Reinforcement Learning".
    """
    where, others = "importance_corrected_td_errors", (next_values, rewards, discounts)
    given = _transitions(
        where, "values", values, *others, "rhos", rhos, lambda_, time_major
    )
    return _td_errors(*given, time_major=time_major)


def _transitions(
    where: str,
    leader: str,
    values: TensorLike,
    next_values: TensorLike,
    rewards: TensorLike,
    discounts: TensorLike,
    name: str,
    weights: TensorLike,
    lambda_: TensorLike,
    time_major: bool,
) -> list[tf.Tensor]:
    """All arguments of a corrected return, checked; `name` is that of the weights."""
    values = _sequences.leading(where, leader, values, time_major)
    next_values = operands.equal(where, "next_values", next_values, leader, values)
    named = {"rewards": rewards, "discounts": discounts, name: weights}
    others = _sequences.following(where, leader, values, time_major, **named)
    lambdas = _sequences.weights(where, "lambda_", lambda_, leader, values, time_major)
    return [values, next_values, *others, lambdas]


def _td_lambda_return(
    values: tf.Tensor, *others: tf.Tensor, time_major: bool
) -> tf.Tensor:
    rewards, discounts, lambdas = (tf.cast(x, values.dtype) for x in others)
    return value.td_lambda_return(
        rewards, discounts, values, lambdas, time_major=time_major
    )


def _off_policy_return(
    where: str, given: Sequence[tf.Tensor], transform: Any, time_major: bool
) -> tf.Tensor:
    value_transforms.check_transform(where, transform)

    def returns(values: tf.Tensor, next_values: tf.Tensor) -> tf.Tensor:
        return _corrected(values, next_values, *given[2:], time_major=time_major)

    return tf.stop_gradient(_sequences.by_transform(transform, returns, *given[:2]))


@_sequences.over_time
def _n_step_return(
    next_values: tf.Tensor,
    rewards: tf.Tensor,
    discounts: tf.Tensor,
    lambda_: tf.Tensor,
    count: int,
) -> tf.Tensor:
    ends = tf.math.multiply_no_nan(next_values, 1 - lambda_)
    end, returns = next_values[-1], _added(rewards, discounts, next_values)
    inputs, decays = _added(rewards, discounts, ends), discounts * lambda_
    # At first of one step, k = 1: R(t, m + k) = inputs[t] + decays[t] * R(t + k, m).
    if count <= _FEW:
        for _ in range(count - 1):
            returns = _added(inputs, decays, _sequences.shifted(returns, end))
        return returns
    left, k = count - 1, 1
    while left:
        if left % 2:
            returns = _added(inputs, decays, _sequences.shifted(returns, end, k))
        later = _sequences.shifted(inputs, end, k)
        inputs, decays = _added(inputs, decays, later), _doubled(decays, k)
        left, k = left // 2, 2 * k
    return returns


def _added(values: tf.Tensor, weights: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    return values + tf.math.multiply_no_nan(others, weights)


def _doubled(decays: tf.Tensor, steps: int) -> tf.Tensor:
    """Decays over twice as many steps; 0 where one is, and not where they vanish."""
    later = _sequences.shifted(decays, tf.zeros_like(decays[0]), steps)
    product = decays * later
    # By a 0 what is infinite would not count.
    vanished = (product == 0) & (decays != 0) & (later != 0)
    least = np.finfo(decays.dtype.as_numpy_dtype).tiny
    return tf.where(vanished, tf.constant(least, decays.dtype), product)


@_sequences.over_time
def _corrected(*tensors: tf.Tensor) -> tf.Tensor:
    return tensors[0] + _errors(*tensors)


@_sequences.over_time
def _td_errors(*tensors: tf.Tensor) -> tf.Tensor:
    @tf.custom_gradient
    def errors(values: tf.Tensor) -> Any:
        weighed = tensors[4] * _errors(values, *tensors[1:])
        return weighed, tf.negative

    return errors(tensors[0])


def _errors(
    values: tf.Tensor,
    next_values: tf.Tensor,
    rewards: tf.Tensor,
    discounts: tf.Tensor,
    weights: tf.Tensor,
    lambda_: tf.Tensor,
) -> tf.Tensor:
    """`e[t] = delta[t] + discounts[t] * lambda_[t] * weights[t+1] * e[t+1]`."""
    following = tf.math.multiply_no_nan(next_values, discounts)
    deltas = rewards + following - values
    nothing = tf.zeros_like(values[0])
    # Behind an end no weight counts, even if it is infinite.
    weights = _sequences.shifted(weights, tf.zeros_like(weights[0]))
    traces = tf.math.multiply_no_nan(weights, discounts * lambda_)
    return _recurrence.given_recurrence(traces, deltas, nothing)
