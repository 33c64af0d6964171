"""The parts of an action: which value belongs to which distribution, and their sum."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfrl._internal import checks


def check_distribution(where: str, name: str, value: Any) -> None:
    """Raises a TypeError unless a value is a distribution: it can score values."""
    if not callable(getattr(value, "log_prob", None)):
        raise TypeError(
            f"`{where}`: `{name}` expected distributions; got "
            f"{type(value).__name__}, which has no `log_prob`"
        )


def check_distributions(where: str, name: str, nest: Any) -> None:
    """Raises a TypeError unless all leaves of a nest are distributions.

    Args:
        where: name of the function that asks.
        name: name of the argument.
        nest: its value.

    Raises:
        TypeError: if a leaf cannot score values.
    """
    for leaf in tf.nest.flatten(nest):
        check_distribution(where, name, leaf)


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
        TypeError: if a leaf of `distributions` is none.
        ValueError: if the structures differ.
    """
    check_distributions(where, "distributions", distributions)
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


def total(
    where: str,
    name: str,
    values: Sequence[tf.Tensor],
    argument: str = "distributions",
) -> tf.Tensor:
    """Adds up what must have one shape.

    Args:
        where: name of the function that asks.
        name: what the values are, for messages.
        values: one or more tensors.
        argument: name of the nest that they come from.

    Returns:
        Their sum.

    Raises:
        ValueError: if there is none or known shapes differ.
    """
    if not values:
        raise ValueError(
            f"`{where}`: `{argument}` expected a nest with a distribution at "
            "least; got none; check where it comes from"
        )
    named = {f"{name} of leaf {index}": value for index, value in enumerate(values)}
    checks.check_same_shape(where, **named)
    return tf.add_n(values)
