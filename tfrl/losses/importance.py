"""How much likelier the current policy makes actions that another one took."""

import contextlib
import math
from typing import Any, NamedTuple

import tensorflow as tf

from tfrl._internal import checks, precision
from tfrl.core import arrays
from tfrl.distributions import sampling

_WHERE = "action_importance_ratio"
_MODES = ("double_sided", "capping")


class ImportanceRatio(NamedTuple):
    """Probability ratios of the actions taken.

    Attributes:
        importance_ratio: `[...]`, current over rollout probability.
        importance_ratio_clipped: `[...]`, the same after clipping.

    Example:
        >>> ImportanceRatio(1.5, 1.2).importance_ratio_clipped
        1.2
    """

    importance_ratio: tf.Tensor
    importance_ratio_clipped: tf.Tensor


def action_importance_ratio(
    action_distribution: Any,
    rollout_action_distribution: Any,
    action: Any,
    clipping_mode: str,
    scope: contextlib.AbstractContextManager[Any] | None,
    importance_ratio_clipping: tf.Tensor | float,
    log_prob_clipping: tf.Tensor | float,
    check_numerics: bool,
    debug_summaries: bool,
    rollout_log_prob: Any = None,
) -> ImportanceRatio:
    """Computes importance ratios, plain and clipped, as PPO and V-trace need them.

        log_prob = sum over the nest of log pi(action)
        c        = log_prob_clipping,  eps = importance_ratio_clipping
        ratio    = exp(clip(log_prob, -c, c) - stop_gradient(rollout_log_prob))
        clipped  = clip(ratio, 1 - eps, 1 + eps)     "double_sided"
        clipped  = min(ratio, 1 + eps)               "capping"

    Gradients flow to `action_distribution` alone (and to `action`, through it). Unlike
    the ratio, its clipped form has no overflow, nor has its gradient.

    Args:
        action_distribution: nest of distributions of the policy being trained, with a
            `log_prob` of `[...]` each (TFP's, batch shape `[...]`).
        rollout_action_distribution: the same of the policy that acted; unused, and
            None then, where `rollout_log_prob` is given.
        action: nest of the actions taken, structured as the distributions.
        clipping_mode: "double_sided" (PPO) or "capping" (V-trace, whose largest weight
            is `1 + importance_ratio_clipping`).
        scope: context manager in which summaries are written, `tf.name_scope("PPO")`
            for example; unused, and possibly None, without `debug_summaries`.
        importance_ratio_clipping: eps, 0 or greater.
        log_prob_clipping: c; 0 switches this off. Only the current log-probability is
            clipped, never that of the rollout.
        check_numerics: whether to refuse NaN and infinity in the log-probabilities and
            the ratio. XLA drops the check.
        debug_summaries: whether to write `importance_ratio_mean` and
            `importance_ratio_clip_fraction` by `tf.summary`, where a default writer
            and step are set. XLA cannot compile that.
        rollout_log_prob: nest of `[...]`, log-probability of the actions when taken.

    Returns:
        `ImportanceRatio(importance_ratio [...], importance_ratio_clipped [...])` in
        the dtype of the log-probabilities.

    Raises:
        ValueError: if `clipping_mode` is unknown, a clipping range negative, both
            rollout arguments are None, structures or shapes differ, or, with
            `check_numerics`, a number is not finite.

    Example:
        >>> import tensorflow_probability as tfp
        >>> now = tfp.distributions.Categorical(probs=[[0.5, 0.5], [0.9, 0.1]])
        >>> then = tfp.distributions.Categorical(probs=[[0.5, 0.5], [0.3, 0.7]])
        >>> ratio, clipped = action_importance_ratio(
        ...     now, then, action=tf.constant([0, 0]), clipping_mode="double_sided",
        ...     scope=None, importance_ratio_clipping=0.2, log_prob_clipping=0.0,
        ...     check_numerics=True, debug_summaries=False)
        >>> ratio.numpy().round(4).tolist(), clipped.numpy().round(4).tolist()
        ([1.0, 3.0], [1.0, 1.2000000476837158])

    References:
        Schulman et al., 2017, Proximal Policy Optimization Algorithms, eq. 7;
        Espeholt et al., 2018, IMPALA, section 4.1.
    """
    checks.check_one_of(_WHERE, "clipping_mode", clipping_mode, _MODES)
    for name, bound in (
        ("importance_ratio_clipping", importance_ratio_clipping),
        ("log_prob_clipping", log_prob_clipping),
    ):
        checks.check_within(_WHERE, name, bound, 0.0, math.inf)
    if rollout_log_prob is None and rollout_action_distribution is None:
        raise ValueError(
            f"`{_WHERE}`: `rollout_log_prob` expected where "
            "`rollout_action_distribution` is None; got None"
        )
    log_prob = _log_prob("action_distribution", action_distribution, action)
    if rollout_log_prob is None:
        rollout = _log_prob(
            "rollout_action_distribution", rollout_action_distribution, action
        )
    else:
        leaves = tf.nest.flatten(rollout_log_prob)
        rollout = _sum("rollout_log_prob", leaves, log_prob.dtype)
    rollout = tf.stop_gradient(rollout)
    checks.check_same_shape(_WHERE, log_prob=log_prob, rollout_log_prob=rollout)
    dtype = log_prob.dtype
    bound = precision.number(log_prob_clipping, dtype)
    bound = tf.where(bound > 0, bound, dtype.as_numpy_dtype(math.inf))
    log_ratio = tf.clip_by_value(log_prob, -bound, bound) - rollout
    ratio = tf.exp(log_ratio)
    clipped = _clipped(log_ratio, clipping_mode, importance_ratio_clipping)
    if check_numerics:
        arrays.check_numerics([log_prob, rollout, ratio])
    if debug_summaries and tf.summary.experimental.get_step() is not None:
        with contextlib.nullcontext() if scope is None else scope:
            cut = tf.cast(clipped != ratio, tf.float32)
            tf.summary.scalar("importance_ratio_mean", tf.reduce_mean(ratio))
            tf.summary.scalar("importance_ratio_clip_fraction", tf.reduce_mean(cut))
    return ImportanceRatio(ratio, clipped)


def _log_prob(name: str, distribution: Any, action: Any) -> tf.Tensor:
    try:
        return sampling.compute_log_probability(distribution, action)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"`{_WHERE}`: `action` expected the structure of `{name}`, and these "
            f"log-probabilities of one shape; got others: {error}"
        ) from error


def _sum(name: str, log_probs: list[Any], dtype: tf.DType) -> tf.Tensor:
    """Adds up what must have one shape."""
    tensors = [checks.as_tensor(_WHERE, name, each, dtype) for each in log_probs]
    if not tensors:
        raise ValueError(
            f"`{_WHERE}`: `action` and `{name}` expected at least one "
            "tensor; got an empty nest; leave `rollout_log_prob` out to compute it"
        )
    named = {f"log_prob of leaf {index}": x for index, x in enumerate(tensors)}
    checks.check_same_shape(_WHERE, **named)
    return tf.add_n(tensors)


def _clipped(log_ratio: tf.Tensor, mode: str, clipping: tf.Tensor | float) -> tf.Tensor:
    clipping = precision.number(clipping, log_ratio.dtype)
    # Beyond the bound the value is cut anyway: stop before exp gives infinity, whose
    # gradient of 0 would become NaN.
    ratio = tf.exp(tf.minimum(log_ratio, tf.math.log1p(clipping) + 1))
    if mode == "capping":
        return tf.minimum(ratio, 1 + clipping)
    return tf.clip_by_value(ratio, 1 - clipping, 1 + clipping)
