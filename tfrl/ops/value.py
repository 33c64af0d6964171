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

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from tfrl._internal import arguments, checks, operands, precision
from tfrl.core import compile, records
from tfrl.ops import _recurrence

TensorLike: TypeAlias = operands.TensorLike

# As many numbers as XLA takes in less time than a call.
_SMALL = 2**16


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
    weights = _weights(where, "td_lambda", td_lambda, tensors[0], time_major)
    return _advantages(*tensors, weights, time_major=time_major)


def td_lambda_return(
    rewards: TensorLike,
    discounts: TensorLike,
    next_values: TensorLike,
    lambda_: TensorLike = 1.0,
    *,
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
    The advantage is `td_lambda_return(...) - values`.

    Gradients flow into all tensors; wrap the result in `tf.stop_gradient` to use it as
    a target. `tape.jacobian` inside XLA needs `experimental_use_pfor=False`.

    Args:
        rewards: `[T, B]` or `[T]`, the reward of each transition.
        discounts: `[T, B]` or `[T]`, gamma * (1 - terminated) of each transition.
        next_values: `[T, B, ...]` or `[T, ...]`, floating, value of each successor;
            the result has its dtype.
        lambda_: scalar, or one per transition in the shape of `rewards`.
        time_major: whether time is the first axis; otherwise batch is, time second.

    Returns:
        The shape of `next_values`.

    Raises:
        ValueError: if a shape is not where that of `next_values` begins.
        TypeError: if `next_values` is not floating or a dtype differs from it.

    Example:
        >>> # The second of three transitions was cut off by a time limit.
        >>> td_lambda_return(rewards=[1.0, 1.0, 1.0], discounts=[0.5, 0.5, 0.5],
        ...                  next_values=[9.0, 2.0, 4.0],
        ...                  lambda_=[1.0, 0.0, 1.0]).numpy()
        array([2., 2., 3.], dtype=float32)

    References:
        Sutton, Barto (2018), "Reinforcement Learning: An Introduction", section 12.1,
        in the recursive form of equation 12.18.
    """
    where = "td_lambda_return"
    values = _leading(where, "next_values", next_values, time_major)
    named = {"rewards": rewards, "discounts": discounts}
    others = _following(where, "next_values", values, time_major, **named)
    lambdas = _weights(where, "lambda_", lambda_, values, time_major)
    return _td_lambda_return(values, *others, lambdas, time_major=time_major)


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
        time_major: whether time is the first axis; otherwise batch is, time second.

    Returns:
        `VTraceReturns`, three tensors in the shape of `values`.

    Raises:
        ValueError: if `next_values` has not the shape of `values`, another shape is not
            where that begins, or a clip is not a scalar.
        TypeError: if `values` is not floating or a dtype differs from it.

    Example:
        >>> returns = vtrace(values=[1.0, 2.0], next_values=[2.0, 4.0],
        ...                  rewards=[1.0, 1.0], discounts=[0.5, 0.5],
        ...                  rhos=[2.0, 0.5])
        >>> returns.targets.numpy(), returns.q_estimates.numpy()
        (array([2.25, 2.5 ], dtype=float32), array([2.25, 3.  ], dtype=float32))

    References:
        Espeholt et al. (2018), "IMPALA: Scalable Distributed Deep-RL with Importance
        Weighted Actor-Learner Architectures", equation 1 and section 4.2.
    """
    where = "vtrace"
    values = _leading(where, "values", values, time_major)
    named = {"rewards": rewards, "discounts": discounts, "rhos": rhos}
    others = _following(where, "values", values, time_major, **named)
    next_values = operands.alike(where, "next_values", next_values, "values", values)
    checks.check_same_shape(where, values=values, next_values=next_values)
    lambdas = _weights(where, "lambda_", lambda_, values, time_major)
    clips = []
    for name, clip in (("clip_rho", clip_rho), ("clip_pg_rho", clip_pg_rho)):
        clips.append(operands.alike(where, name, clip, "values", values))
        checks.check_rank(where, name, clips[-1], exact=0)
    return _vtrace(values, next_values, *others, lambdas, *clips, time_major=time_major)


def _over_time(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a compiled op of a function of aligned sequences with time first.

    The op takes the tensors in the order of the function's parameters, the leading one
    first, and `time_major`. Axes that a sequence lacks at the end become axes of one
    element; scalars stay; float16 and bfloat16 are computed in float32. Results get
    the leading tensor's dtype and order of axes, and depend on no earlier step.
    """

    @compile.compiled(static=("time_major",), jit_compile=True)
    def op(tensors: Sequence[tf.Tensor], time_major: bool) -> Any:
        dtype, rank = tensors[0].dtype, tensors[0].shape.rank
        arranged = []
        for tensor in tensors:
            if tensor.shape.rank > 0:
                tensor = tensor if time_major else _swapped(tensor)
                for _ in range(rank - tensor.shape.rank):
                    tensor = tensor[..., tf.newaxis]
            arranged.append(precision.widened(tensor))

        def restored(result: tf.Tensor) -> tf.Tensor:
            return tf.cast(result if time_major else _swapped(result), dtype)

        return tf.nest.map_structure(restored, function(*arranged))

    return _for_any_length(op)


def _for_any_length(op: Callable[..., Any]) -> Callable[..., Any]:
    """An op of sequences whose eager calls put rows of zeros before the first step.

    XLA compiles each shape anew, longer than 1,000 calls take. So lengths that differ
    little share a shape, as long as rows cost next to nothing. What comes before the
    first step must not change the results.
    """

    @compile.compiled(static=("time_major",))
    def padded(
        tensors: Sequence[tf.Tensor], missing: tf.Tensor, time_major: bool
    ) -> Any:
        def longer(tensor: tf.Tensor) -> tf.Tensor:
            axes = range(tensor.shape.rank)
            before = [[missing if axis == time else 0, 0] for axis in axes]
            return tf.pad(tensor, before) if before else tensor

        time = 0 if time_major else 1
        results = op([*map(longer, tensors)], time_major)
        behind = (slice(None),) * time + (slice(missing, None),)
        return tf.nest.map_structure(lambda result: result[behind], results)

    def call(*tensors: tf.Tensor, time_major: bool) -> Any:
        if tf.executing_eagerly():
            missing = _missing_rows(tensors[0].shape, 0 if time_major else 1)
            if missing:
                return padded(tensors, tf.constant(missing), time_major)
        return op(tensors, time_major)

    return call


def _missing_rows(shape: Sequence[int], axis: int) -> int:
    """How many rows there are to the next length that is compiled.

    Lengths are even numbers of transitions, and one more for the step form.
    """
    steps = shape[axis] - 1
    unit = max(16, 1 << max(0, steps.bit_length() - 3))
    return 0 if math.prod(shape) > _SMALL else -steps % unit


def _swapped(tensor: tf.Tensor) -> tf.Tensor:
    return tf.transpose(tensor, [1, 0, *range(2, tensor.shape.rank)])


@_over_time
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


@_over_time
def _one_step_discounted_return(
    values: tf.Tensor, rewards: tf.Tensor, discounts: tf.Tensor, step_types: tf.Tensor
) -> tf.Tensor:
    ends = tf.math.multiply_no_nan(values, discounts)
    returns = rewards[1:] + ends[1:]
    return tf.stop_gradient(tf.where(_is_last(step_types[:-1]), ends[:-1], returns))


@_over_time
def _advantages(
    values: tf.Tensor,
    rewards: tf.Tensor,
    discounts: tf.Tensor,
    step_types: tf.Tensor,
    td_lambda: tf.Tensor,
) -> tf.Tensor:
    def coefficients(at: _recurrence.At) -> tuple[tf.Tensor, tf.Tensor]:
        last, decays = _is_last(at(step_types)), at(discounts, 1)
        ahead = tf.math.multiply_no_nan(at(values, 1), decays)
        deltas = at(rewards, 1) + ahead - at(values)
        weights = at(td_lambda, 1) if td_lambda.shape.rank else td_lambda
        decays = tf.where(last, tf.zeros_like(decays), decays * weights)
        return decays, tf.where(last, tf.zeros_like(deltas), deltas)

    steps, nothing = _recurrence.length(values) - 1, tf.zeros_like(values[-1])
    advantages = _recurrence.linear_recurrence(coefficients, steps, nothing)
    return tf.stop_gradient(advantages)


@_over_time
def _td_lambda_return(
    next_values: tf.Tensor, rewards: tf.Tensor, discounts: tf.Tensor, lambda_: tf.Tensor
) -> tf.Tensor:
    def coefficients(at: _recurrence.At) -> tuple[tf.Tensor, tf.Tensor]:
        decays = at(discounts) * (at(lambda_) if lambda_.shape.rank else lambda_)
        one_step = tf.math.multiply_no_nan(at(next_values), at(discounts) - decays)
        return decays, at(rewards) + one_step

    steps = _recurrence.length(next_values)
    return _recurrence.linear_recurrence(coefficients, steps, next_values[-1])


@_over_time
def _vtrace(
    values: tf.Tensor,
    next_values: tf.Tensor,
    rewards: tf.Tensor,
    discounts: tf.Tensor,
    rhos: tf.Tensor,
    lambda_: tf.Tensor,
    clip_rho: tf.Tensor,
    clip_pg_rho: tf.Tensor,
) -> VTraceReturns:
    ahead = tf.math.multiply_no_nan(next_values, discounts)
    deltas = tf.minimum(clip_rho, rhos) * (rewards + ahead - values)
    traces = discounts * lambda_ * tf.minimum(tf.ones_like(rhos), rhos)
    nothing = tf.zeros_like(values[:1])
    errors = _recurrence.given_recurrence(traces, deltas, nothing[0])
    next_errors = tf.concat([errors[1:], nothing], axis=0)
    following = next_values + tf.math.multiply_no_nan(next_errors, lambda_)
    q_estimates = rewards + tf.math.multiply_no_nan(following, discounts)
    advantages = tf.minimum(clip_pg_rho, rhos) * (q_estimates - values)
    returns = VTraceReturns(values + errors, advantages, q_estimates)
    return VTraceReturns(*map(tf.stop_gradient, returns))


def _is_last(step_types: tf.Tensor) -> tf.Tensor:
    return step_types == tf.cast(int(records.StepType.LAST), step_types.dtype)


def _leading(
    where: str, name: str, value: TensorLike, time_major: bool, shortest: int = 1
) -> tf.Tensor:
    """The sequence that sets shape and dtype for the others, checked."""
    axis = 0 if time_major else 1
    tensor = operands.leading(where, name, value, axes=axis + 1)
    steps = tensor.shape[axis]
    if steps is not None and steps < shortest:
        raise ValueError(
            f"`{where}`: `{name}` expected at least {shortest} steps along axis "
            f"{axis}; got shape {tensor.shape.as_list()}"
        )
    return tensor


def _following(
    where: str, leader: str, values: tf.Tensor, time_major: bool, **named: TensorLike
) -> list[tf.Tensor]:
    """The other sequences as tensors that fit the leading one, checked."""
    axes = 1 if time_major else 2
    return [
        operands.beginning(where, name, value, leader, values, axes)
        for name, value in named.items()
    ]


def _weights(
    where: str, name: str, value: TensorLike, values: tf.Tensor, time_major: bool
) -> tf.Tensor:
    """A scalar, or a sequence that fits the leading one, checked."""
    if type(value) in (int, float):
        arguments.check_number(where, name, value, 0, 1)
    tensor = operands.alike(where, name, value, "values", values)
    if tensor.shape.rank != 0:
        axes = 1 if time_major else 2
        operands.check_beginning(where, name, tensor, "values", values, axes)
    return tensor


def _steps(
    where: str,
    rewards: TensorLike,
    values: TensorLike,
    step_types: TensorLike,
    discounts: TensorLike,
    time_major: bool,
) -> list[tf.Tensor]:
    """Values, rewards, discounts and step types of the step form, checked."""
    values = _leading(where, "values", values, time_major, shortest=2)
    named = {"rewards": rewards, "discounts": discounts}
    others = _following(where, "values", values, time_major, **named)
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
