"""The nodes of a binary tree in one array, many of them updated or visited a call."""

from collections.abc import Callable
from typing import Any

import numpy as np

Reducer = Callable[[Any, Any], Any]

_INFINITY = np.float64(np.inf).view(np.uint64)

# Levels no wider than this are not walked: it is cheaper to compute all of them anew,
# once somebody looks.
_TOP_WIDTH = 1024
# A level is computed wholly, too, when this many times the updated leaves cover it.
_DENSE = 4


def highest_weight(where: str, name: str, values: np.ndarray) -> np.float64:
    """Returns the highest of some weights, 0 if there are none.

    Raises `ValueError` unless they are finite and at least 0.
    """
    # Read as whole numbers, those of a sign and NaN are above inf, too.
    highest = values.view(np.uint64).max(initial=0)
    if highest < _INFINITY:
        return highest.view(np.float64)
    wrong = values[~((values >= 0) & (values < np.inf))]
    if wrong.size:
        raise ValueError(
            f"`{where}`: `{name}` expected finite numbers >= 0; got {wrong[0]}; clip "
            "them"
        )
    return values.max()


class Heap:
    """A complete binary tree: a node is the reduction of its children, in their order.

    The children of node i are 2 i and 2 i + 1; 1 is the root, 0 is not used. Leaves
    are numbered from 0; those nobody sets keep the unit element of the reducer.

    Leaves are set at once, what is above them once somebody looks: several updates
    that nobody looks between cost one walk.
    """

    def __init__(self, capacity: int, reducer: Reducer, unit: float) -> None:
        self.n_leaves = 1 << (capacity - 1).bit_length()
        self._first_leaf = np.array(self.n_leaves)  # added faster than a number
        self._nodes = np.full(2 * self.n_leaves, unit)
        self._reducer, self._unit = reducer, unit
        self._top = min(self.n_leaves, _TOP_WIDTH)
        # Leaves set since, None if they are too many to be walked from, and how many.
        self._waiting: list[np.ndarray] | None = []
        self._n_waiting = 0
        self._top_is_stale = False
        self._sums: np.ndarray | None = None
        self._steps_up = np.arange(1, self.height)[:, np.newaxis]

    @property
    def height(self) -> int:
        """How many levels there are."""
        return self.n_leaves.bit_length()

    def level(self, width: int) -> np.ndarray:
        """Returns a view of the level of so many nodes."""
        if width < self.n_leaves:
            self._update(whole=width < self._top)
        return self._nodes[width : 2 * width]

    def set_leaves(self, leaves: np.ndarray, values: np.ndarray) -> None:
        """Sets leaves, both `[n]`; of one that is named twice the last value counts."""
        nodes = leaves + self._first_leaf
        self._nodes[nodes] = values
        self._top_is_stale, self._sums = True, None
        if self._waiting is not None:
            self._waiting.append(nodes)
            self._n_waiting += nodes.size
            if _DENSE * self._n_waiting >= self.n_leaves:
                self._waiting = None

    def reduce(self, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """Returns reductions of the leaves from `start` to before `stop`."""
        self._update(whole=True)
        heap, unit = self._nodes, self._unit
        low, high = start + self.n_leaves, stop + self.n_leaves
        left = right = np.full(low.shape, unit)
        while (open_ := low < high).any():
            # What lies between is whole pairs, once an odd end has been taken off.
            odd = open_ & (low & 1 == 1)
            left = self._reducer(left, np.where(odd, heap.take(low, mode="clip"), unit))
            low = (low + odd) >> 1
            odd = open_ & (high & 1 == 1)
            high = high - odd
            last = np.where(odd, heap.take(high, mode="clip"), unit)
            right = self._reducer(last, right)
            high = high >> 1
        return self._reducer(left, right)

    def running_sums(self) -> np.ndarray:
        """Returns what `find` needs; the last one is the sum of all leaves."""
        if self._sums is None:
            self._update(whole=False)
            self._sums = np.zeros(self._top + 1)
            top = self._nodes[self._top : 2 * self._top]
            np.add.accumulate(top, out=self._sums[1:])
        return self._sums

    def find(self, fractions: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """Returns the leaves where the running sum passes fractions of the sum of all.

        Leaves are weights that are added up, and their sum is positive. Those that
        are 0 are never found. The fractions are in [0, 1].
        """
        total = sums[-1]
        # In order, neighbours are visited together.
        order = fractions.argsort()
        rest = fractions[order] * total
        if rest.size and rest[-1] >= total:
            # Some sum is above the rest even then: its node is positive.
            rest = np.minimum(rest, np.nextafter(total, 0.0))
        nodes = sums[1:].searchsorted(rest, side="right")
        rest -= sums[nodes]
        nodes += self._top
        found = self._descend(nodes, rest)
        weights = self._nodes[found]
        if np.count_nonzero(weights) < weights.size:
            lost = weights == 0.0
            found[lost] = self._descend(nodes[lost], rest[lost], careful=True)
        leaves = np.empty_like(found)
        leaves[order] = found
        leaves -= self.n_leaves
        return leaves

    def _descend(
        self, nodes: np.ndarray, rest: np.ndarray, careful: bool = False
    ) -> np.ndarray:
        """Returns the leaves below positive nodes where their sums pass the rest.

        Rounding may leave a rest as great as a node. Then the last leaf is found, and
        it may be 0; who is `careful` goes right only where something is.
        """
        heap, last = self._nodes, self.n_leaves.bit_length() - self._top.bit_length()
        for depth in range(1, last + 1):
            nodes = nodes + nodes
            left = heap[nodes]
            right = rest >= left
            if careful:
                right &= heap[nodes + 1] > 0.0
            nodes += right
            if depth < last:
                left *= right
                rest = rest - left
        return nodes

    def _update(self, whole: bool) -> None:
        """Computes what is stale, above the widest level of the top too if `whole`."""
        if self._waiting is None or self._waiting:
            waiting, self._waiting = self._waiting, []
            count, self._n_waiting = self._n_waiting, 0
            # Levels at least so wide are walked, those below them computed wholly.
            least = max(self._top, _DENSE * count + 1)
            walked = 0
            if waiting is not None:
                walked = max((self.n_leaves // least).bit_length() - 1, 0)
                self._walk(np.concatenate(waiting), walked)
            width = self.n_leaves >> walked
            while width > self._top:
                width >>= 1
                self._update_level(width)
        if whole and self._top_is_stale:
            width = self._top
            while width > 1:
                width >>= 1
                self._update_level(width)
            self._top_is_stale = False

    def _walk(self, nodes: np.ndarray, levels: int) -> None:
        """Computes what is above some leaves, so many levels of it."""
        # In order, neighbours are visited together.
        nodes.sort()
        # Two children read as one complex number are gathered at once.
        heap, pairs = self._nodes, self._nodes.view(np.complex128)
        for parents in nodes >> self._steps_up[:levels]:
            children = pairs[parents]
            heap[parents] = self._reducer(children.real, children.imag)

    def _update_level(self, width: int) -> None:
        children = self._nodes[2 * width : 4 * width]
        reduced = self._reducer(children[::2], children[1::2])
        self._nodes[width : 2 * width] = reduced
