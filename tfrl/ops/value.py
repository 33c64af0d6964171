"""What a trajectory was worth: returns, advantages and their off-policy corrections.

- *Step form* (`discounted_return`, `one_step_discounted_return`,
  `generalized_advantage_estimation`): `T` time steps as an environment shows them,
  with `step_types`. The reward and the discount at step t + 1 belong to the
  transition from t to t + 1, so `T` steps give `T - 1` results, and `rewards[0]` is
  never used. A step of type LAST ends an episode; what follows it is another one.
- *Transition form* (`td_lambda_return`, `vtrace`): `T` transitions, each with its own
  reward, discount and successor value, and `T` results.

In both, `discounts` is gamma * (1 - terminated): 0 at true ends only, where nothing
follows and a next value does not count, even if it is NaN. Values may have trailing
axes that the rewards lack (quantiles, critics), each on its own. Called eagerly, each
function is one compiled call; inside a graph it becomes an XLA cluster. float16 and
bfloat16 are summed in float32 and come back as they were.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from tfrl._internal import checks, operands
from tfrl.core import records
from tfrl.ops import _recurrence, _sequences, value_transforms

TensorLike: TypeAlias = operands.TensorLike


def discounted_return(
    rewards: TensorLike,
    values: TensorLike,
    step_types: TensorLike,
    discounts: TensorLike,
    time_major: bool = True,
) -> tf.Tensor:
    """Discounted sum of the rewards that follow each of the first `T - 1` steps.

        G[T-1] = values[T-1]
        G[t]   = values[t]                                   where step t is LAST
        G[t]   = rewards[t+1] + discounts[t+1] * G[t+1]      elsewhere

    The sum starts from the last value even if the last step is LAST: a true end is
    told by its discount of 0. No gradient flows through the result.

    Args:
        rewards: `[T, B]` or `[T]`, the reward that led to each step.
        values: `[T, B, ...]` or `[T, ...]`, floating; the result has its dtype.
        step_types: `[T, B]` or `[T]`, `StepType`s in any integer or floating dtype.
        discounts: `[T, B]` or `[T]`, the discount of the transition to each step.
        time_major: whether time is the first axis; otherwise batch is, time second.

    Returns:
        `[T-1, B, ...]`, or `[B, T-1, ...]` if not `time_major`.

    Raises:
        ValueError: if `T < 2` or a shape is not where that of `values` begins.
        TypeError: if `values` is not floating or a dtype differs from it.

    Example:
        >>> discounted_return(rewards=[0.0, 1.0, 1.0], values=[0.0, 0.0, 8.0],
        ...                   step_types=[0, 1, 1], discounts=[1.0, 0.5, 0.5]).numpy()
        array([3.5, 5. ], dtype=float32)
    """
    where = "discounted_return"
    tensors = _steps(where, rewards, values, step_types, discounts, time_major)
    return _discounted_return(*tensors, time_major=time_major)


def one_step_discounted_return(
    rewards: TensorLike,
    values: TensorLike,
    step_types: TensorLike,
    discounts: TensorLike,
) -> tf.Tensor:
    """Reward plus discounted value of the successor, for the first `T - 1` steps.

        G[t] = discounts[t] * values[t]                      where step t is LAST
        G[t] = rewards[t+1] + discounts[t+1] * values[t+1]   elsewhere

    Unlike in `discounted_return`, the value of a LAST step is discounted by the
    step's own discount. No gradient flows through the result.

    Args:
        rewards: `[T, B]` or `[T]`, the reward that led to each step.
        values: `[T, B, ...]` or `[T, ...]`, floating; the result has its dtype.
        step_types: `[T, B]` or `[T]`, `StepType`s in any integer or floating dtype.
        discounts: `[T, B]` or `[T]`, the discount of the transition to each step.

    Returns:
        `[T-1, B, ...]`. Time is always the first axis.

    Raises:
        ValueError: if `T < 2` or a shape is not where that of `values` begins.
        TypeError: if `values` is not floating or a dtype differs from it.

    Example:
        >>> one_step_discounted_return(
        ...     rewards=[0.0, 1.0, 1.0], values=[0.0, 4.0, 8.0],
        ...     step_types=[0, 2, 0], discounts=[1.0, 0.5, 0.5]).numpy()
        array([3., 2.], dtype=float32)
    """
    where = "one_step_discounted_return"
    tensors = _steps(where, rewards, values, step_types, discounts, time_major=True)
    return _one_step_discounted_return(*tensors, time_major=True)


def generalized_advantage_estimation(
    rewards: TensorLike,
    values: TensorLike,
    step_types: TensorLike,
    discounts: TensorLike,
    td_lambda: TensorLike = 1.0,
    time_major: bool = True,
) -> tf.Tensor:
    """Generalized advantage estimates of the first `T - 1` steps.

        delta[t] = rewards[t+1] + discounts[t+1] * values[t+1] - values[t]
        A[T-1]   = 0
        A[t]     = 0                                         where step t is LAST
        A[t]     = delta[t] + discounts[t+1] * td_lambda[t+1] * A[t+1] elsewhere

    Nothing crosses a LAST step: the sum starts anew before it. No gradient flows
    through the result. `A + values[:-1]` is the TD(lambda) return.

    Args:
        rewards: `[T, B]` or `[T]`, the reward that led to each step.
        values: `[T, B, ...]` or `[T, ...]`, floating; the result has its dtype.
        step_types: `[T, B]` or `[T]`, `StepType`s in any integer or floating dtype.
        discounts: `[T, B]` or `[T]`, the discount of the transition to each step.
        td_lambda: in [0, 1]: 0 is the one-step error, of low variance; 1 the whole
            discounted sum, without bias from `values`. Scalar, or one per step in the
            shape of `rewards`, that of the transition to each step.
        time_major: whether time is the first axis; otherwise batch is, time second.

    Returns:
        `[T-1, B, ...]`, or `[B, T-1, ...]` if not `time_major`.

    Raises:
        ValueError: if `T < 2` or a shape is not where that of `values` begins.
        TypeError: if `values` is not floating or a dtype differs from it.

    Example:
        >>> generalized_advantage_estimation(
        ...     rewards=[0.0, 1.0, 1.0], values=[2.0, 2.0, 4.0], step_types=[0, 1, 1],
        ...     discounts=[1.0, 0.5, 0.5], td_lambda=0.5).numpy()
        array([0.25, 1.  ], dtype=float32)

    References:
        Schulman, Moritz, Levine, Jordan, Abbeel (2016), "High-Dimensional Continuous
        Control Using Generalized Advantage Estimation", equation 16.
    """
    where = "generalized_advantage_estimation"
    tensors = _steps(where, rewards, values, step_types, discounts, time_major)
    weights = _sequences.weights(
        where, "td_lambda", td_lambda, "values", tensors[0], time_major
    )
    return _advantages(*tensors, weights, time_major=time_major)


def td_lambda_return(
    rewards: TensorLike,
    discounts: TensorLike,
    next_values: TensorLike,
    lambda_: TensorLike = 1.0,
    *,
    transform: value_transforms.InvertibleTransform | None = None,
    time_major: bool = True,
) -> tf.Tensor:
    """TD(lambda) returns of `T` transitions.

        G[T] = next_values[T-1]
        G[t] = rewards[t] + discounts[t]
               * ((1 - lambda_[t]) * next_values[t] + lambda_[t] * G[t+1])

    A transition with `lambda_[t] = 0` looks no further than its own successor. That is
    how episodes that follow one another in one sequence are kept apart: where an
    episode was cut off by a time limit, `next_values[t]` is the value of its last
    observation while row t + 1 already belongs to the next episode, so pass
    `lambda_ = 0.95 * (1 - truncated)`. True ends need nothing: their discount is 0.
    The advantage is `td_lambda_return(...) - values`. With a `transform` values are
    learned in its image: `next_values` are taken out of it, the result is in it again.

    Gradients flow into all tensors; wrap the result in `tf.stop_gradient` to use it as
    a target. `tape.jacobian` inside XLA needs `experimental_use_pfor=False`.

    Args:
        rewards: `[T, B]` or `[T]`, the reward of each transition.
        discounts: `[T, B]` or `[T]`, gamma * (1 - terminated) of each transition.
        next_values: `[T, B, ...]` or `[T, ...]`, floating, value of each successor;
            the result has its dtype.
        lambda_: scalar, or one per transition in the shape of `rewards`.
        transform: in whose image values are learned; None for plain values.
        time_major: whether time is the first axis; otherwise batch is, time second.

    Returns:
        The shape of `next_values`.

    Raises:
        ValueError: if a shape is not where that of `next_values` begins.
        TypeError: if `next_values` is not floating, a dtype differs from it, or
            `transform` is no InvertibleTransform.

    Example:
        >>> # The second of three transitions was cut off by a time limit.
        >>> td_lambda_return(rewards=[1.0, 1.0, 1.0], discounts=[0.5, 0.5, 0.5],
        ...                  next_values=[9.0, 2.0, 4.0],
        ...                  lambda_=[1.0, 0.0, 1.0]).numpy()
        array([2., 2., 3.], dtype=float32)

    References:
        Sutton, Barto (2018), "Reinforcement Learning: An Introduction", section 12.1,
        in the recursive form of equation 12.18; the transform is that of Pohlen et al.
        (2018), "Observe and Look Further: Achieving Consistent Performance on Atari".
    """
    where = "td_lambda_return"
    values = _sequences.leading(where, "next_values", next_values, time_major)
    named = {"rewards": rewards, "discounts": discounts}
    others = _sequences.following(where, "next_values", values, time_major, **named)
    lambdas = _sequences.weights(
        where, "lambda_", lambda_, "next_values", values, time_major
    )
    value_transforms.check_transform(where, transform)

    def returns(values: tf.Tensor) -> tf.Tensor:
        return _td_lambda_return(values, *others, lambdas, time_major=time_major)

    return _sequences.by_transform(transform, returns, values)


class VTraceReturns(NamedTuple):
    """What `vtrace` computes; nothing in it carries a gradient.

    Attributes:
        targets: what the value of each state should become, `v_s` of the paper.
        advantages: what multiplies the gradient of each action's log probability.
        q_estimates: estimated value of each action taken.

    Example:
        >>> VTraceReturns(targets=[1.0], advantages=[0.5], q_estimates=[2.0]).targets
        [1.0]
    """

    targets: tf.Tensor
    advantages: tf.Tensor
    q_estimates: tf.Tensor


def vtrace(
    values: TensorLike,
    next_values: TensorLike,
    rewards: TensorLike,
    discounts: TensorLike,
    rhos: TensorLike,
    lambda_: TensorLike = 1.0,
    clip_rho: TensorLike = 1.0,
    clip_pg_rho: TensorLike = 1.0,
    *,
    clip_share: TensorLike = 1.0,
    time_major: bool = True,
) -> VTraceReturns:
    """V-trace: returns of the current policy from what another policy experienced.

        delta[t]  = min(clip_rho, rhos[t])
                    * (rewards[t] + discounts[t] * next_values[t] - values[t])
        e[T]      = 0
        e[t]      = delta[t] + discounts[t] * lambda_[t] * min(1, rhos[t]) * e[t+1]
        targets   = values + e
        q[t]      = rewards[t] + discounts[t] * (next_values[t] + lambda_[t] * e[t+1])
        advantage = min(clip_pg_rho, rhos[t]) * (q[t] - values[t])

    A smaller `clip_rho` learns values closer to those of the policy that acted.
    `targets - values` is the temporal difference; its
    gradient in `values` is -1, as in semi-gradient learning. With all ratios 1 the
    targets are `td_lambda_return`, and `lambda_[t] = 0` cuts the trace at a time limit
    as it does there. No gradient flows through the results.

    Leaky V-trace clips a part of each ratio only: each `min(c, rhos[t])` becomes

        clip_share * min(c, rhos[t]) + (1 - clip_share) * rhos[t]

    Args:
        values: `[T, B, ...]` or `[T, ...]`, floating, value of each state; the results
            have its dtype.
        next_values: value of each successor, in the shape of `values`.
        rewards: `[T, B]` or `[T]`, the reward of each transition.
        discounts: `[T, B]` or `[T]`, gamma * (1 - terminated) of each transition.
        rhos: `[T, B]` or `[T]`, probability of each action under the current policy
            over that under the policy that acted.
        lambda_: scalar, or one per transition in the shape of `rewards`.
        clip_rho: scalar, largest ratio that weighs a temporal difference.
        clip_pg_rho: scalar, largest ratio that weighs an advantage.
        clip_share: scalar in [0, 1]: 1 is V-trace, 0 importance sampling.
        time_major: whether time is the first axis; otherwise batch is, time second.

    Returns:
        `VTraceReturns`, three tensors in the shape of `values`.

    Raises:
        ValueError: if `next_values` has not the shape of `values`, another shape is not
            where that begins, or a clip or its share is not a scalar in its range.
        TypeError: if `values` is not floating or a dtype differs from it.

    Example:
        >>> returns = vtrace(values=[1.0, 2.0], next_values=[2.0, 4.0],
        ...                  rewards=[1.0, 1.0], discounts=[0.5, 0.5],
        ...                  rhos=[2.0, 0.5])
        >>> returns.targets.numpy(), returns.q_estimates.numpy()
        (array([2.25, 2.5 ], dtype=float32), array([2.25, 3.  ], dtype=float32))

    References:
        Espeholt et al. (2018), "IMPALA: Scalable Distributed Deep-RL with Importance
        Weighted Actor-Learner Architectures", equation 1 and section 4.2; the share is
        alpha of Zahavy et al. (2020), "A Self-Tuning Actor-Critic Algorithm".
    """
    where = "vtrace"
    values = _sequences.leading(where, "values", values, time_major)
    named = {"rewards": rewards, "discounts": discounts, "rhos": rhos}
    others = _sequences.following(where, "values", values, time_major, **named)
    next_values = operands.alike(where, "next_values", next_values, "values", values)
    checks.check_same_shape(where, values=values, next_values=next_values)
    lambdas = _sequences.weights(
        where, "lambda_", lambda_, "values", values, time_major
    )
    clips = []
    checks.check_within(where, "clip_share", clip_share, 0.0, 1.0)
    for name, clip in (
        ("clip_rho", clip_rho),
        ("clip_pg_rho", clip_pg_rho),
        ("clip_share", clip_share),
    ):
        clips.append(operands.alike(where, name, clip, "values", values))
        checks.check_rank(where, name, clips[-1], exact=0)
    return _vtrace(values, next_values, *others, lambdas, *clips, time_major=time_major)


@_sequences.over_time
def _discounted_return(
    values: tf.Tensor, rewards: tf.Tensor, discounts: tf.Tensor, step_types: tf.Tensor
) -> tf.Tensor:
    def coefficients(at: _recurrence.At) -> tuple[tf.Tensor, tf.Tensor]:
        last, decays = _is_last(at(step_types)), at(discounts, 1)
        decays = tf.where(last, tf.zeros_like(decays), decays)
        return decays, tf.where(last, at(values), at(rewards, 1))

    steps = _recurrence.length(values) - 1
    returns = _recurrence.linear_recurrence(coefficients, steps, values[-1])
    return tf.stop_gradient(returns)


@_sequences.over_time
def _one_step_discounted_return(
    values: tf.Tensor, rewards: tf.Tensor, discounts: tf.Tensor, step_types: tf.Tensor
) -> tf.Tensor:
    ends = tf.math.multiply_no_nan(values, discounts)
    returns = rewards[1:] + ends[1:]
    return tf.stop_gradient(tf.where(_is_last(step_types[:-1]), ends[:-1], returns))


@_sequences.over_time
def _advantages(
    values: tf.Tensor,
    rewards: tf.Tensor,
    discounts: tf.Tensor,
    step_types: tf.Tensor,
    td_lambda: tf.Tensor,
) -> tf.Tensor:
    def coefficients(at: _recurrence.At) -> tuple[tf.Tensor, tf.Tensor]:
        last, decays = _is_last(at(step_types)), at(discounts, 1)
        ahead = _recurrence.added(at(rewards, 1), decays, at(values, 1))
        deltas = ahead - at(values)
        weights = at(td_lambda, 1) if td_lambda.shape.rank else td_lambda
        decays = tf.where(last, tf.zeros_like(decays), decays * weights)
        return decays, tf.where(last, tf.zeros_like(deltas), deltas)

    steps, nothing = _recurrence.length(values) - 1, tf.zeros_like(values[-1])
    advantages = _recurrence.linear_recurrence(coefficients, steps, nothing)
    return tf.stop_gradient(advantages)


@_sequences.over_time
def _td_lambda_return(
    next_values: tf.Tensor, rewards: tf.Tensor, discounts: tf.Tensor, lambda_: tf.Tensor
) -> tf.Tensor:
    def coefficients(at: _recurrence.At) -> tuple[tf.Tensor, tf.Tensor]:
        decays = at(discounts) * (at(lambda_) if lambda_.shape.rank else lambda_)
        ends = at(discounts) - decays
        return decays, _recurrence.added(at(rewards), ends, at(next_values))

    steps = _recurrence.length(next_values)
    return _recurrence.linear_recurrence(coefficients, steps, next_values[-1])


@_sequences.over_time
def _vtrace(
    values: tf.Tensor,
    next_values: tf.Tensor,
    rewards: tf.Tensor,
    discounts: tf.Tensor,
    rhos: tf.Tensor,
    lambda_: tf.Tensor,
    clip_rho: tf.Tensor,
    clip_pg_rho: tf.Tensor,
    clip_share: tf.Tensor,
) -> VTraceReturns:
    free = tf.math.multiply_no_nan(rhos, 1 - clip_share)

    def clipped(limit: tf.Tensor) -> tf.Tensor:
        return clip_share * tf.minimum(limit, rhos) + free

    ahead = _recurrence.added(rewards, discounts, next_values)
    deltas = clipped(clip_rho) * (ahead - values)
    traces = discounts * lambda_ * clipped(tf.ones_like(rhos))
    nothing = tf.zeros_like(values[:1])
    errors = _recurrence.given_recurrence(traces, deltas, nothing[0])
    next_errors = tf.concat([errors[1:], nothing], axis=0)
    following = _recurrence.added(next_values, lambda_, next_errors)
    q_estimates = _recurrence.added(rewards, discounts, following)
    advantages = clipped(clip_pg_rho) * (q_estimates - values)
    returns = VTraceReturns(values + errors, advantages, q_estimates)
    return VTraceReturns(*map(tf.stop_gradient, returns))


def _is_last(step_types: tf.Tensor) -> tf.Tensor:
    return step_types == tf.cast(int(records.StepType.LAST), step_types.dtype)


def _steps(
    where: str,
    rewards: TensorLike,
    values: TensorLike,
    step_types: TensorLike,
    discounts: TensorLike,
    time_major: bool,
) -> list[tf.Tensor]:
    """Values, rewards, discounts and step types of the step form, checked."""
    values = _sequences.leading(where, "values", values, time_major, shortest=2)
    named = {"rewards": rewards, "discounts": discounts}
    others = _sequences.following(where, "values", values, time_major, **named)
    kinds = checks.as_tensor(where, "step_types", step_types)
    if kinds.dtype.is_floating and not tf.is_tensor(step_types):
        if np.any(np.mod(step_types, 1)):
            raise ValueError(
                f"`{where}`: `step_types` expected whole numbers; got "
                f"{checks.shown(step_types)}"
            )
    operands.check_beginning(
        where, "step_types", kinds, "values", values, 1 if time_major else 2
    )
    return [values, *others, kinds]
