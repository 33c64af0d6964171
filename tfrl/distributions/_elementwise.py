"""Elementwise arithmetic in a form that XLA compiles well."""

import functools

import tensorflow as tf


def rows(values: tf.Tensor, *parameters: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Returns parameters as rows `[1, n]`, and values of theirs as `[m, n]`.

    On a CPU XLA makes vectors of the code along one axis only, and the last one of an
    action is short.

    Args:
        values: for each element of the parameters, or many, on axes in front of theirs.
        *parameters: of shapes that broadcast.

    Returns:
        The values' shape, broadcast with the parameters': what to reshape a result to.
        Then the values and the parameters.
    """
    shape = functools.reduce(tf.broadcast_dynamic_shape, map(tf.shape, parameters))
    full = tf.broadcast_dynamic_shape(tf.shape(values), shape)
    length = tf.reduce_prod(shape)
    count = tf.math.floordiv(tf.reduce_prod(full), tf.maximum(length, 1))
    each = (tf.reshape(tf.broadcast_to(p, shape), [1, length]) for p in parameters)
    return full, tf.reshape(tf.broadcast_to(values, full), [count, length]), *each
