"""The parts of an action: which value belongs to which distribution, and their sum."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfrl.core import checks


def paired(where: str, distributions: Any, actions: Any) -> list[tuple[Any, Any]]:
    """Pairs each distribution of a nest with its action.

    Args:
        where: name of the function that asks.
        distributions: nest of distributions.
        actions: nest structured like it; where a distribution's draws are nests,
            such a nest in its place.

    Returns:
        Pairs in the order of `tf.nest`.

    Raises:
        ValueError: if the structures differ.
    """
    # The dtype of a distribution has the structure of its draws.
    draws = tf.nest.map_structure(lambda d: getattr(d, "dtype", None), distributions)
    try:
        tf.nest.assert_same_structure(draws, actions)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{where}`: `actions` expected the structure of `distributions`; got "
            f"another: {error}; give one action per distribution"
        ) from error
    leaves = iter(tf.nest.flatten(actions))
    return [
        (d, tf.nest.map_structure(lambda _: next(leaves), getattr(d, "dtype", None)))
        for d in tf.nest.flatten(distributions)
    ]


def total(where: str, name: str, values: Sequence[tf.Tensor]) -> tf.Tensor:
    """Adds up what must have one shape.

    Args:
        where: name of the function that asks.
        name: what the values are, for messages.
        values: one or more tensors.

    Returns:
        Their sum.

    Raises:
        ValueError: if there is none or known shapes differ.
    """
    if not values:
        raise ValueError(
            f"`{where}`: expected a nest with a distribution at least; got none; "
            "check where it comes from"
        )
    named = {f"{name} of leaf {index}": value for index, value in enumerate(values)}
    checks.check_same_shape(where, **named)
    return tf.add_n(values)
