"""The nodes of a tree in one array, against levels computed from the leaves."""

import functools

import numpy as np
import pytest

from tfrl.replay.sampling import _heap


def digits(left, right):
    """Writes numbers of two digits behind each other and keeps the outer two."""
    both = np.where(left < 0, right, np.where(right < 0, left, left // 10 * 10))
    return np.where((left < 0) | (right < 0), both, both + right % 10)


def levels_of(leaves, reducer):
    levels = [leaves]
    while len(levels[-1]) > 1:
        levels.append(reducer(levels[-1][::2], levels[-1][1::2]))
    return levels


# All top, or below it: no level walked, one of two, both.
SIZES = ((64, 16), (5000, 1500), (5000, 700), (5000, 3))


@pytest.mark.parametrize(("capacity", "n"), SIZES)
def test_every_level_follows_every_update(capacity, n):
    rng = np.random.default_rng(0)
    heap = _heap.Heap(capacity, digits, -1.0)
    leaves = np.full(heap.n_leaves, -1.0)
    for _ in range(20):
        index = rng.integers(0, capacity, n)
        values = rng.integers(0, 100, n).astype(np.float64)
        heap.set_leaves(index, values)
        for one, value in zip(index, values, strict=True):
            leaves[one] = value
        for expected in levels_of(leaves, digits):
            np.testing.assert_array_equal(heap.level(len(expected)), expected)


def test_nothing_changes_when_nothing_is_set():
    heap = _heap.Heap(3000, np.add, 0.0)
    heap.set_leaves(np.zeros(0, np.int64), np.zeros(0))
    assert heap.level(1) == 0.0


@pytest.mark.parametrize("capacity", [1, 2, 7, 2100])
def test_ranges_keep_the_order(capacity):
    rng = np.random.default_rng(capacity)
    heap = _heap.Heap(capacity, digits, -1.0)
    values = rng.integers(0, 100, capacity).astype(np.float64)
    heap.set_leaves(np.arange(capacity), values)
    start, stop = np.sort(rng.integers(0, capacity + 1, (2, 40)), axis=0)
    expected = [
        functools.reduce(digits, values[i:j], -1.0)
        for i, j in zip(start, stop, strict=True)
    ]
    np.testing.assert_array_equal(heap.reduce(start, stop), expected)


@pytest.mark.parametrize("capacity", [1, 3, 1024, 4096])
def test_finds_where_the_running_sum_passes(capacity):
    rng = np.random.default_rng(capacity)
    heap = _heap.Heap(capacity, np.add, 0.0)
    # Whole numbers and fractions of few bits: nothing is rounded.
    weights = rng.integers(0, 3, capacity).astype(np.float64)
    weights[rng.integers(capacity)] = 5.0
    heap.set_leaves(np.arange(capacity), weights)
    fractions = np.sort(np.append(rng.integers(0, 2**20, 500) / 2**20, 0.0))
    sums = heap.running_sums()
    assert sums[-1] == weights.sum()
    np.testing.assert_array_equal(
        heap.find(fractions, sums),
        np.cumsum(weights).searchsorted(fractions * weights.sum(), "right"),
    )
    last = np.flatnonzero(weights)[-1]
    np.testing.assert_array_equal(heap.find(np.ones(2), sums), [last, last])


@pytest.mark.parametrize("updates", [1, 5, 40])
def test_updates_that_nobody_looks_between(updates):
    rng = np.random.default_rng(updates)
    heap = _heap.Heap(5000, np.add, 0.0)
    leaves = np.zeros(heap.n_leaves)
    for _ in range(3):
        for _ in range(updates):
            index, values = rng.integers(0, 5000, 100), rng.random(100)
            heap.set_leaves(index, values)
            for one, value in zip(index, values, strict=True):
                leaves[one] = value
        sums = heap.running_sums()
        assert heap.running_sums() is sums
        for expected in levels_of(leaves, np.add):
            np.testing.assert_array_equal(heap.level(len(expected)), expected)
        np.testing.assert_allclose(sums[-1], leaves.sum(), rtol=1e-12)
