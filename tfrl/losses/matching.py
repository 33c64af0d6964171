"""Losses between sets, whose elements have no order."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import arguments, checks, operands
from tfrl.core import records

_REDUCTIONS = ("mean", "sum", "none")
# XLA and the callback's own errors name the node: the name says what is the matter.
_NODE = "linear_sum_assignment_on_the_host_not_for_XLA"


class BipartiteMatchingLoss:
    """Pairs predictions with targets one to one at least cost, and sums what it costs.

        g*   = argmin over permutations g of  sum_n matching_costs[n, g(n)]
        loss = reduce_n costs[n, g*(n)]

    The order of predictions and targets makes no difference to the loss. Each sample
    of the batch is assigned on its own, in float64, by
    `scipy.optimize.linear_sum_assignment`. Gradients flow to the costs of the pairs
    chosen, none to the costs that only choose.

    The assignment runs on the host: the loss works eagerly and in `tf.function`, but
    XLA cannot compile it (nor can a TPU run it, nor a SavedModel keep it). Call it
    outside `jit_compile=True`, whose own error else names the node
    `linear_sum_assignment_on_the_host_not_for_XLA`.

    Args:
        reduction: over the N pairs: "mean", "sum" or "none".
        name: prefix of the names of its graph nodes.

    Raises:
        ValueError: if `reduction` is none of the three.

    Example:
        >>> loss_fn = BipartiteMatchingLoss(reduction="sum")
        >>> loss, matching = loss_fn(tf.constant([[[1.0, 2.0], [1.0, 9.0]]]))
        >>> loss.numpy().tolist(), matching.numpy().tolist()
        ([3.0], [[1, 0]])

    References:
        Carion et al., 2020, End-to-End Object Detection with Transformers, eq. 1;
        Crouse, 2016, On implementing 2D rectangular assignment algorithms.
    """

    def __init__(
        self, reduction: str = "mean", name: str = "BipartiteMatchingLoss"
    ) -> None:
        where = "BipartiteMatchingLoss"
        checks.check_one_of(where, "reduction", reduction, _REDUCTIONS)
        self.reduction = reduction
        self.name = name

    def __call__(
        self, matching_cost_mat: tf.Tensor, cost_mat: tf.Tensor | None = None
    ) -> records.LossInfo:
        """Finds the best pairs and what they cost.

        Args:
            matching_cost_mat: `[B, N, N]` floating, finite: cost by which prediction
                n (second axis) is paired with target m (third axis).
            cost_mat: `[B, N, N]` floating, the cost that a pair then has; by default
                the same as `matching_cost_mat`.

        Returns:
            `LossInfo(loss, matching)`, a pair: the loss in the dtype of the costs,
            `[B]` for "mean" and "sum", `[B, N]` for "none"; and `[B, N]` int64, the
            target of each prediction.

        Raises:
            ValueError: if the shapes are others, or a matching cost is NaN or infinite
                (in a graph `tf.errors.InvalidArgumentError` with the same words).
            TypeError: if a cost is not floating.
            ImportError: if SciPy is missing (extra `tfrl[matching]`).
        """
        where = self.__class__.__name__
        name = "matching_cost_mat"
        costs = matching_costs = operands.floating(where, name, matching_cost_mat)
        if cost_mat is not None:
            costs = operands.floating(where, "cost_mat", cost_mat)
        checks.check_rank(where, name, matching_costs, exact=3)
        if matching_costs.shape.rank is not None:
            _check_square(matching_costs.shape.as_list())
        checks.check_same_shape(where, matching_cost_mat=matching_costs, cost_mat=costs)
        scipy = arguments.imported(where, "scipy.optimize", "scipy", "matching")
        # A graph may not know even the rank.
        matching_costs = tf.ensure_shape(matching_costs, [None, None, None])
        costs = tf.ensure_shape(costs, [None, None, None])
        with tf.name_scope(self.name):
            matching = tf.numpy_function(
                lambda batch: _assignments(scipy.linear_sum_assignment, batch),
                [tf.cast(matching_costs, tf.float64)],
                tf.int64,
                stateful=False,
                name=_NODE,
            )
            # In a graph the callback's result has no shape of its own.
            matching = tf.ensure_shape(matching, matching_costs.shape[:2])
            chosen = tf.gather(costs, matching[..., tf.newaxis], axis=2, batch_dims=2)
            loss = tf.squeeze(chosen, axis=2)
            if self.reduction == "mean":
                loss = tf.reduce_mean(loss, axis=1)
            elif self.reduction == "sum":
                loss = tf.reduce_sum(loss, axis=1)
        return records.LossInfo(loss, matching)


def _assignments(solve: Any, batch: np.ndarray) -> np.ndarray:
    _check_square(batch.shape)
    finite = np.isfinite(batch).all(axis=(1, 2))
    if not finite.all():
        raise ValueError(
            "`BipartiteMatchingLoss`: `matching_cost_mat` expected finite costs; got "
            f"NaN or infinite ones in samples {np.flatnonzero(~finite)[:8].tolist()} "
            f"of {len(batch)}; give forbidden pairs a large finite cost"
        )
    matching = np.empty(batch.shape[:2], np.int64)
    for index, costs in enumerate(batch):
        # The rows of a square matrix come back in order.
        matching[index] = solve(costs)[1]
    return matching


def _check_square(dims: Sequence[int | None]) -> None:
    if None not in dims[1:] and dims[1] != dims[2]:
        raise ValueError(
            "`BipartiteMatchingLoss`: `matching_cost_mat` expected [B, N, N]; "
            f"got {list(dims)}"
        )
