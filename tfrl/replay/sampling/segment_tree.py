"""Segment trees: reductions of ranges and weighted sampling in logarithmic time."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tfrl._internal import arguments, checks
from tfrl.replay import _indices

_Reducer: TypeAlias = Callable[[Any, Any], Any]

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


class _Heap:
    """A complete binary tree: a node is the reduction of its children, in their order.

    The children of node i are 2 i and 2 i + 1; 1 is the root, 0 is not used. Leaves
    are numbered from 0; those nobody sets keep the unit element of the reducer.

    Leaves are set at once, what is above them once somebody looks: several updates
    that nobody looks between cost one walk.
    """

    def __init__(self, capacity: int, reducer: _Reducer, unit: float) -> None:
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
        self._steps_up = np.arange(1, self.n_leaves.bit_length())[:, np.newaxis]

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


class SegmentTree:
    """Reduces ranges of `capacity` changing values, many ranges or values per call.

    Values are the leaves of a binary tree; each node is the reduction of its two
    children, in their order, so `reducer` need not be commutative:

        level 0                    r(abcd)
        level 1             r(ab)          r(cd)
        level 2, `values`  a     b        c     d

    A node is always computed from its children, never adjusted by a difference, so
    rounding errors do not accumulate over any number of updates. Everything is float64.
    An update of n values takes O(n log(capacity)) steps, as do n ranges.

    `tree[level]` is a level from the left, `min(2**level, capacity)` nodes, and
    `tree[level, index]` some of it by any index NumPy knows; -1 is the level of the
    values. These and `values` are read-only views of the tree: an update changes them
    at once or at the next lookup; copy what must stay.

    Args:
        capacity: how many values there are, at least 1. All are `init_value` at first.
        reducer: associative function of two floats; one that takes arrays, elementwise,
            like `np.add`, is called once per level, any other once per node.
        init_value: unit element of `reducer`: 0 for a sum, 1 for a product, -inf for
            a maximum, inf for a minimum.

    Raises:
        TypeError: if `capacity` is not an integer.
        ValueError: if `capacity` is less than 1, or `reducer(init_value, init_value)`
            is not `init_value`.

    Example:
        >>> tree = SegmentTree(5, np.multiply, 1.0)
        >>> tree.set_values([0, 1, 4], [2.0, 3.0, 7.0])
        >>> tree.root_value, tree.partial_reduce(np.array([0, 2]), np.array([2, 5]))
        (42.0, array([6., 7.]))
        >>> tree
        SegmentTree(
          level=0 : array([42.])
          level=1 : array([6., 7.])
          level=2 : array([6., 1., 7., 1.])
          level=3 : array([2., 3., 1., 1., 7.]))
        >>> tree[-1, 1:3]
        array([3., 1.])
    """

    def __init__(self, capacity: int, reducer: _Reducer, init_value: float) -> None:
        where = type(self).__name__
        checks.check_whole_number(where, "capacity", capacity, low=1)
        self._capacity = int(capacity)
        arguments.check_number(where, "init_value", init_value, -np.inf, np.inf)
        checks.check_type(where, "reducer", reducer, Callable, "a function")
        unit = float(init_value)
        reducer = _elementwise(where, reducer, unit)
        self.heap = _Heap(self._capacity, reducer, unit)  # for callers that checked all

    @property
    def capacity(self) -> int:
        """How many values there are."""
        return self._capacity

    @property
    def height(self) -> int:
        """How many levels there are: `ceil(log2(capacity)) + 1`."""
        return self.heap.n_leaves.bit_length()

    @property
    def root_value(self) -> float:
        """The reduction of all values."""
        return float(self.heap.level(1)[0])

    @property
    def values(self) -> np.ndarray:
        """All values, `[capacity]`, a read-only view."""
        return self[-1]

    def set_values(self, idx: Any, values: Any) -> None:
        """Sets some values; with invalid arguments all stay as they were.

        Args:
            idx: which ones: an int, a list of ints or integers `[n]`, negative ones
                from the end; for those named twice the last counts. `...` and None mean
                all.
            values: the new ones, of the shape of `idx` or broadcast to it.

        Raises:
            TypeError: if `idx` is something else, or `values` are not real numbers.
            ValueError: if an index is out of range or the shapes do not fit.
        """
        if idx is None or idx is Ellipsis:
            index = np.arange(self._capacity)
        else:
            index = np.asarray(idx) if isinstance(idx, list) else idx
            index = self._index("set_values", "idx", index, self._capacity)
        new = _floats(values, index.shape)
        self._check_new(new)
        self.heap.set_leaves(index.reshape(-1), new.reshape(-1))

    def partial_reduce(self, start: Any = 0, stop: Any = None) -> np.ndarray:
        """Returns `reduce(reducer, values[start:stop], init_value)` for many ranges.

        Args:
            start: first index of the range: an int or an array of integers `[n]`,
                negative ones from the end.
            stop: index after the last one, likewise; `capacity` if left out.

        Returns:
            A reduction for each range, `[n]`, or `[1]`. That of an empty range is
            `init_value`.

        Raises:
            TypeError: if a bound is neither an int nor integers `[n]`.
            ValueError: if a bound is out of range, or `start` comes after `stop`.
        """
        where, end = "partial_reduce", self._capacity
        low = self._index(where, "start", start, end + 1)
        high = self._index(where, "stop", end if stop is None else stop, end + 1)
        try:
            low, high = np.broadcast_arrays(low, high)
        except ValueError:
            raise ValueError(
                f"`{where}`: `stop` expected the shape of `start` {list(low.shape)}; "
                f"got {list(high.shape)}; give both the same shape"
            ) from None
        if (low > high).any():
            reversed_one = int((low > high).argmax())
            raise ValueError(
                f"`{where}`: `stop` expected at least `start` "
                f"{low.flat[reversed_one]}; got {high.flat[reversed_one]}; swap them"
            )
        return self.heap.reduce(low, high)

    def __getitem__(self, key: Any) -> Any:
        level, *index = key if isinstance(key, tuple) else (key,)
        if not isinstance(level, int | np.integer) or len(index) > 1:
            raise IndexError(
                "`SegmentTree`: a lookup expected tree[level] or tree[level, index]; "
                f"got {key!r}; give the level as an int"
            )
        if not -self.height <= level < self.height:
            raise IndexError(
                f"`SegmentTree`: the level expected an int in [{-self.height}, "
                f"{self.height}); got {level}; see `height`"
            )
        width = 1 << int(level) % self.height
        nodes = self.heap.level(width)[: self._capacity]
        nodes.flags.writeable = False
        return nodes[index[0]] if index else nodes

    def __repr__(self) -> str:
        levels = (f"\n  level={i} : {self[i]!r}" for i in range(self.height))
        return f"{type(self).__name__}({''.join(levels)})"

    def _check_new(self, values: np.ndarray) -> None:
        """Raises unless the tree may hold the values."""

    def _index(self, where: str, name: str, index: Any, end: int) -> np.ndarray:
        """Returns indices in [0, end), of rank 1."""
        if type(index) is not np.ndarray or index.ndim != 1 or index.dtype != np.int64:
            # Python takes True for 1, NumPy for a mask.
            given = np.array(int(index)) if isinstance(index, int) else index
            if not isinstance(given, np.ndarray | tf.Tensor) or len(given.shape) > 1:
                raise TypeError(
                    f"`{where}`: `{name}` expected an int or an array of integers of "
                    f"shape [n]; got {given!r:.80}; convert it"
                )
            index = np.atleast_1d(_indices.int64_array(where, name, given))
        # Read without a sign, negative ones are large.
        if not np.count_nonzero(index.view(np.uint64) >= end):
            return index
        wrapped = np.where(index < 0, index + self._capacity, index)
        outside = (wrapped < 0) | (wrapped >= end)
        if outside.any():
            raise ValueError(
                f"`{where}`: `{name}` expected integers in [{-self._capacity}, "
                f"{end}); got {index[outside][0]}; the capacity is {self._capacity}"
            )
        return wrapped


class SumTree(SegmentTree):
    """Sums ranges of weights, and draws indices by weight.

    An index i is drawn with probability `values[i] / sum(values)`; one whose value is 0
    is never drawn, whatever the rounding.

    Args:
        capacity: how many values there are, at least 1. All are 0 at first.
        random_seed: int that `sample` starts from; None takes one from the system.

    Raises:
        TypeError: if `capacity` is not an integer.
        ValueError: if `capacity` is less than 1, or `random_seed` not in [0, 2**32).

    Example:
        >>> tree = SumTree(4, random_seed=0)
        >>> tree.set_values(..., [0.0, 1.0, 0.0, 3.0])
        >>> tree.root_value, tree.inverse_cdf([0.0, 0.2, 0.3, 1.0])
        (4.0, array([1, 1, 3, 3]))
        >>> tree.sample(5)
        array([3, 3, 3, 3, 3])

    References:
        T. Schaul, J. Quan, I. Antonoglou, D. Silver, 2016, Prioritized Experience
        Replay, appendix B.2.1.
    """

    def __init__(self, capacity: int, random_seed: int | None = None) -> None:
        super().__init__(capacity, np.add, 0.0)
        self.random_seed = random_seed

    @property
    def random_seed(self) -> int | None:
        """What `sample` started from; setting it starts again."""
        return self._random_seed

    @random_seed.setter
    def random_seed(self, seed: int | None) -> None:
        if seed is not None:
            checks.check_whole_number("SumTree", "random_seed", seed, 0, 2**32 - 1)
        self._random = np.random.RandomState(seed)
        self._random_seed = seed

    def inverse_cdf(self, u: Any) -> Any:
        """Returns the least i for which `sum(values[:i + 1]) > u * sum(values)`.

        At `u = 1` this is the last index whose value is positive.

        Args:
            u: number, or floats `[n]`, in [0, 1].

        Returns:
            The index as an int64, or `[n]` of them.

        Raises:
            TypeError: if `u` is neither a Python number nor floats `[n]`.
            ValueError: if a number is outside [0, 1] or NaN, if all values are 0, or
                their sum overflows.
        """
        single = isinstance(u, int | float)
        fractions = np.asarray([float(u)] if single else u)
        if fractions.ndim != 1 or fractions.dtype.kind != "f":
            raise TypeError(
                "`inverse_cdf`: `u` expected a Python number or floats of shape [n]; "
                f"got {fractions.dtype} of shape {list(fractions.shape)}; convert it"
            )
        # The least one is NaN where one is.
        if fractions.size and not 0.0 <= fractions.min() <= fractions.max() <= 1.0:
            raise ValueError(
                "`inverse_cdf`: `u` expected numbers in [0, 1]; "
                f"got {fractions.min()} to {fractions.max()}"
            )
        fractions = fractions.astype(np.float64, copy=False)
        found = self.heap.find(fractions, self._sums("inverse_cdf"))
        return found[0] if single else found

    def sample(self, n: int) -> np.ndarray:
        """Returns `n` indices drawn by weight, independently, `[n]` int64.

        They are `inverse_cdf(np.random.RandomState(random_seed).rand(n))`; the next
        ones continue from there.

        Args:
            n: how many, at least 1.

        Returns:
            The indices.

        Raises:
            TypeError: if `n` is not an integer.
            ValueError: if `n` is less than 1, all values are 0, or their sum overflows.
        """
        checks.check_whole_number("sample", "n", n, low=1)
        sums = self._sums("sample")
        return self.heap.find(self._random.rand(n), sums)

    def _check_new(self, values: np.ndarray) -> None:
        highest_weight("set_values", "values", values)

    def _sums(self, where: str) -> np.ndarray:
        """Returns the running sums of a tree from which something can be drawn."""
        sums = self.heap.running_sums()
        if not 0 < sums[-1] < np.inf:
            raise ValueError(
                f"`{where}`: expected values with a positive, finite sum; got a sum of "
                f"{sums[-1]}; set some values first"
            )
        return sums


class MinTree(SegmentTree):
    """Finds the minimum of ranges of values.

    Args:
        capacity: how many values there are, at least 1. All are inf at first.

    Raises:
        TypeError: if `capacity` is not an integer.
        ValueError: if `capacity` is less than 1.

    Example:
        >>> tree = MinTree(3)
        >>> tree.set_values([0, 1], [5.0, 4.0])
        >>> tree.root_value, tree.partial_reduce(2)
        (4.0, array([inf]))
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, np.minimum, np.inf)


class MaxTree(SegmentTree):
    """Finds the maximum of ranges of values.

    Args:
        capacity: how many values there are, at least 1. All are -inf at first.

    Raises:
        TypeError: if `capacity` is not an integer.
        ValueError: if `capacity` is less than 1.

    Example:
        >>> tree = MaxTree(3)
        >>> tree.set_values([0, 1], [5.0, 4.0])
        >>> tree.root_value, tree.partial_reduce(1, 3)
        (5.0, array([4.]))
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, np.maximum, -np.inf)


def _elementwise(where: str, reducer: _Reducer, unit: float) -> _Reducer:
    """Returns the reducer for arrays, given one for arrays or for floats."""
    pair = np.full(2, unit)
    try:
        takes_arrays = np.shape(reducer(pair, pair)) == pair.shape
    except (TypeError, ValueError):
        takes_arrays = False
    if not takes_arrays:
        reducer = np.vectorize(reducer, otypes=[np.float64])
    reduced = reducer(pair, pair)
    if not np.array_equal(reduced, pair):
        raise ValueError(
            f"`{where}`: `init_value` expected the unit element of `reducer`; got "
            f"reducer({unit}, {unit}) = {reduced[0]}; give 0 for a sum, 1 for a product"
        )
    return reducer


def _floats(values: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Returns new values as float64 of a shape."""
    array = np.asarray(values)
    if array.dtype != np.float64:
        if not np.can_cast(array.dtype, np.float64, "same_kind"):
            raise TypeError(
                f"`set_values`: `values` expected real numbers; got {array.dtype}; "
                "convert them to float64"
            )
        array = array.astype(np.float64)
    if array.shape == shape:
        return array
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(
            f"`set_values`: `values` expected the shape of `idx` {list(shape)}; "
            f"got {list(array.shape)}; give one value for each index"
        ) from None
