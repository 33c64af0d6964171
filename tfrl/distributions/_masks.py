"""Logits of which a mask takes some out; `MaskedCategorical` and heads use them.

Imports no TensorFlow Probability.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks


def masked_logits(logits: tf.Tensor, allowed: tf.Tensor) -> tf.Tensor:
    """Returns logits that are -inf, without gradient, where `as_mask`'s are False.

    Those of a row that allows nothing are all 0.

    Raises:
        ValueError: if the shapes do not fit.
    """
    _check_fit(allowed, logits)
    some = tf.reduce_any(allowed, axis=-1, keepdims=True)
    nothing = tf.constant(-np.inf, logits.dtype)
    instead = tf.where(some, nothing, tf.zeros_like(nothing))
    return tf.where(allowed, logits, instead)


def as_mask(mask: Any, logits: tf.Tensor | None = None) -> tf.Tensor:
    """Returns a mask `[..., n]` as bools; False too where `logits` are -inf already.

    Raises:
        ValueError: if a known row allows nothing.
        TypeError: if it is neither bool nor of integers.
    """
    tensor = checks.as_tensor("MaskedCategorical", "mask", mask)
    if not (tensor.dtype.is_bool or tensor.dtype.is_integer):
        raise TypeError(
            "`MaskedCategorical`: `mask` expected bool or integers; "
            f"got {tensor.dtype.name}"
        )
    checks.check_rank("MaskedCategorical", "mask", tensor, at_least=1)
    known = tf.get_static_value(tensor)
    if known is not None:
        empty = ~np.any(known, axis=-1)
        if np.any(empty):
            raise ValueError(
                "`MaskedCategorical`: `mask` expected an allowed option in each row; "
                f"got none in {np.sum(empty)} of {np.size(empty)}"
            )
    allowed = tf.cast(tensor, tf.bool)
    return allowed if logits is None else as_mask(allowed & (logits != -np.inf))


def _check_fit(mask: tf.Tensor, logits: tf.Tensor) -> None:
    try:
        together = tf.broadcast_static_shape(mask.shape, logits.shape)
    except ValueError:
        together = None
    if together is None or not together[-1:].is_compatible_with(logits.shape[-1:]):
        raise ValueError(
            "`MaskedCategorical`: `mask` expected a shape that broadcasts with that of "
            f"`logits` {logits.shape}; got {mask.shape}"
        )
