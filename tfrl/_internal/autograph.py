"""Keeps autograph from rewriting tfrl's own functions where a `tf.function` calls them.

Autograph translates the source of whatever a `tf.function` calls, except for libraries
that TensorFlow lists: its own, NumPy, Keras, TensorFlow Probability. tfrl branches by
`tf.cond`, as they do, so a translation changes nothing and costs most of the time of a
trace: 4.7 of 4.8 seconds for a policy. The list is private to TensorFlow: a version
that has moved it fails where it is imported below. All tfrl needs of it is here.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.core import config


def spare(package: str) -> None:
    """Adds a package to those whose functions autograph calls as they are.

    Args:
        package: its name; with it go all of its modules.
    """
    config.CONVERSION_RULES = (
        config.DoNotConvert(package),
        *config.CONVERSION_RULES,
    )


def as_the_caller(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a caller's function that autograph treats as it treats the caller.

    A function that is handed to tfrl inside of a `tf.function` is called by code that
    autograph spares; through this it is still translated there, so that its `if` and
    `while` may look at tensors. Everywhere else it is called as it is.

    Args:
        function: what the caller wrote.

    Returns:
        A function of the same arguments and results.

    Example:
        >>> @tf.function
        ... def doubled_or_zero(x):
        ...     def branch(x):
        ...         if x > 0:
        ...             return x * 2
        ...         return tf.zeros_like(x)
        ...
        ...     return as_the_caller(branch)(x)
        >>> float(doubled_or_zero(tf.constant(3.0)))
        6.0
    """
    if tf.executing_eagerly():
        return function  # what wraps it would take 130 microseconds
    return tf.__internal__.autograph.tf_convert(
        function, tf.__internal__.autograph.control_status_ctx()
    )
