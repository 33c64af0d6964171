"""Parameters that several models have in common."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf


def sync_shared_params(
    *params: Mapping[str, Any], weights: Sequence[float] | None = None
) -> tuple[dict[str, Any], ...]:
    """Averages the parameters that several models have in common.

        shared = sum(weights[i] * params[i]) / sum(weights[i])

    over the dictionaries i that hold the name; a name that one alone holds stays.

    Args:
        *params: dictionaries, nested or not, from names to tensors; a name that
            occurs in two at the same place is shared.
        weights: one positive number for each of `params`; equal by default.

    Returns:
        As many dictionaries as `params`, with the averages in the shared places.

    Raises:
        ValueError: if `weights` are not positive or not as many as `params`, or the
            shapes or dtypes of a shared parameter differ.

    Example:
        >>> actor, critic = sync_shared_params(
        ...     {"body": tf.constant(1.0), "pi": tf.constant(7.0)},
        ...     {"body": tf.constant(5.0)}, weights=[3.0, 1.0])
        >>> float(actor["body"]), float(actor["pi"]), float(critic["body"])
        (2.0, 7.0, 2.0)
    """
    if weights is None:
        weights = [1.0] * len(params)
    if len(weights) != len(params) or not all(weight > 0.0 for weight in weights):
        raise ValueError(
            f"`sync_shared_params`: `weights` expected {len(params)} positive numbers, "
            f"one for each of `params`; got {weights!r}; leave it out for equal ones"
        )
    return tuple(_synced(list(params), list(weights)))


def _synced(trees: list[Any], weights: list[float]) -> list[Any]:
    if len(trees) == 1:
        return trees
    if all(isinstance(tree, Mapping) for tree in trees):
        synced: list[dict[str, Any]] = [{} for _ in trees]
        for name in dict.fromkeys(name for tree in trees for name in tree):
            holders = [i for i, tree in enumerate(trees) if name in tree]
            branches = [trees[i][name] for i in holders]
            branches = _synced(branches, [weights[i] for i in holders])
            for i, branch in zip(holders, branches, strict=True):
                synced[i][name] = branch
        return synced
    kinds = [(getattr(x, "shape", None), getattr(x, "dtype", None)) for x in trees]
    if kinds.count(kinds[0]) != len(kinds) or None in kinds[0]:
        raise ValueError(
            "`sync_shared_params`: `params` expected tensors of one shape and dtype "
            f"under one name; got {kinds}; rename what is not shared"
        )
    shares = [x * (w / sum(weights)) for x, w in zip(trees, weights, strict=True)]
    return [tf.add_n(shares)] * len(trees)
