"""The choice among action values that is greedy but for a share."""

from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.distributions import _masks, action_heads


def epsilon_greedy_logits(values: Any, epsilon: Any, mask: Any = None) -> tf.Tensor:
    """Returns the logits of the choice that explores with probability epsilon.

        logits_i = log((1 - epsilon) [i = argmax values] + epsilon / n_allowed)

    for allowed options i, the first of equals being the argmax; -inf for the others. A
    policy of action values is a `CategoricalHead` over them: its mode is the greedy
    action. The distribution is `tfd.Categorical(logits=...)` of them, with an epsilon
    of 0 the greedy one. A row of a mask that allows nothing counts, where its numbers
    are not known when it is traced, as one that allows all, of equal values.

    Args:
        values: floating `[..., n]`, of all options.
        epsilon: in [0, 1], `[]` or `[...]`.
        mask: `[..., n]` or `[n]` of bool or integers, the options that are allowed;
            None for all.

    Returns:
        `[..., n]`, of the dtype of `values`.

    Raises:
        TypeError: if `values` are not floating, or `mask` neither bool nor of integers.
        ValueError: if a number `epsilon` is out of [0, 1], or if `mask` does not fit or
            a known row of it allows nothing.

    Example:
        >>> tf.exp(epsilon_greedy_logits([1.0, 3.0], 0.5)).numpy().tolist()
        [0.25, 0.75]
        >>> only = [True, False, True]
        >>> tf.exp(epsilon_greedy_logits([1.0, 3.0, 2.0], 0.5, only)).numpy().tolist()
        [0.25, 0.0, 0.75]
    """
    where = "epsilon_greedy_logits"
    values = checks.as_tensor(where, "values", values)
    checks.check_floating(where, "values", values)
    checks.check_rank(where, "values", values, at_least=1)
    checks.check_within(where, "epsilon", epsilon, 0.0, 1.0)
    allowed = tf.ones_like(values)
    if mask is not None:
        n = values.shape[-1]
        if n is None:
            values = _masks.masked_logits(values, _masks.as_mask(mask))
        else:
            head = action_heads.CategoricalHead((n,), (0,), True, "int32")
            values = head.masked(values, mask)
        allowed = tf.cast(values > -np.inf, values.dtype)
    explored = tf.cast(epsilon, values.dtype)[..., None]
    share = explored * allowed / tf.reduce_sum(allowed, axis=-1, keepdims=True)
    n = tf.shape(values)[-1]
    greedy = tf.one_hot(tf.argmax(values, axis=-1), n, dtype=values.dtype)
    return tf.math.log(share + (1 - explored) * greedy)
