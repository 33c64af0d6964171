"""Segment trees against plain lists and exact fractions, and after long use."""

import bisect
import functools
import itertools
import math
from fractions import Fraction

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from tfrl.replay.sampling import segment_tree

# Small trees walk their levels, too, when the top is narrow.
TOPS = (1, 4, 1024)
MODULUS = 7


def compose(first, second):
    """Composes x -> a x + b modulo 7, written as 7 a + b, in this order."""
    a, b = first // MODULUS, first % MODULUS
    c, d = second // MODULUS, second % MODULUS
    return a * c % MODULUS * MODULUS + (b * c + d) % MODULUS


REDUCERS = {
    "composition": (compose, 7.0, strategies.integers(0, 48)),
    "composition_of_floats": (
        lambda a, b: float(compose(int(a), int(b))),
        7.0,
        strategies.integers(0, 48),
    ),
    "sum": (np.add, 0.0, strategies.integers(-9, 9)),
    "maximum": (np.maximum, -np.inf, strategies.integers(-9, 9)),
}


@strategies.composite
def updates(draw, values, least=0):
    """A capacity, a width of the top and some updates, each a few values."""
    capacity = draw(strategies.integers(1, 40))
    index = strategies.integers(-capacity, capacity - 1)
    one = strategies.lists(strategies.tuples(index, values), min_size=1, max_size=12)
    number = {"min_size": least, "max_size": 8}
    return (
        capacity,
        draw(strategies.sampled_from(TOPS)),
        draw(strategies.lists(one, **number)),
    )


def narrow(top):
    patch = pytest.MonkeyPatch()
    patch.setattr(segment_tree, "_TOP_WIDTH", top)
    # One value a level is enough to walk.
    patch.setattr(segment_tree, "_DENSE", 1)
    return patch


def build(top, make):
    patch = narrow(top)
    try:
        return make()
    finally:
        patch.undo()


@pytest.mark.slow
@pytest.mark.parametrize("name", REDUCERS)
def test_model_of_slices(name):
    reducer, unit, values = REDUCERS[name]
    steps = 0

    @hypothesis.settings(max_examples=40)
    @hypothesis.given(updates(values, least=1))
    def check(drawn):
        nonlocal steps
        capacity, top, batches = drawn
        tree = build(top, lambda: segment_tree.SegmentTree(capacity, reducer, unit))
        model = [unit] * capacity
        bounds = itertools.combinations_with_replacement(range(capacity + 1), 2)
        start, stop = np.array(list(bounds)).T
        for batch in batches:
            idx, new = zip(*batch, strict=True)
            tree.set_values(list(idx), new)
            for one, value in batch:
                model[one] = float(value)
            steps += 1 + len(start)
            assert tree.values.tolist() == model
            assert tree.root_value == functools.reduce(reducer, model, unit)
            # Every range there is, reduced from the left.
            expected = {
                (i, i + k): value
                for i in range(capacity + 1)
                for k, value in enumerate(
                    itertools.accumulate(model[i:], reducer, initial=unit)
                )
            }
            got = tree.partial_reduce(start, stop)
            pairs = zip(start.tolist(), stop.tolist(), strict=True)
            assert got.tolist() == [expected[pair] for pair in pairs]

    check()
    assert steps >= 1_000


WEIGHTS = strategies.integers(0, 5) | strategies.integers(0, 2**20)
FRACTIONS = strategies.lists(strategies.integers(0, 2**20), min_size=1, max_size=9)


@pytest.mark.slow
@hypothesis.settings(max_examples=150)
@hypothesis.given(updates(WEIGHTS, least=1), FRACTIONS)
def test_model_of_the_inverse_distribution(drawn, numerators):
    capacity, top, batches = drawn
    tree = build(top, lambda: segment_tree.SumTree(capacity))
    model = [0] * capacity
    for batch in batches:
        tree.set_values(*map(list, zip(*batch, strict=True)))
        for one, value in batch:
            model[one] = value
    total = sum(model)
    assert tree.root_value == total
    if not total:
        with pytest.raises(ValueError, match="positive, finite sum"):
            tree.inverse_cdf(0.5)
        return
    # Whole weights and fractions of few bits: the exact answer is the only one.
    sums = list(itertools.accumulate(model))
    last = max(i for i, value in enumerate(model) if value)
    us = [Fraction(numerator, 2**20) for numerator in numerators]
    expected = [min(bisect.bisect_right(sums, u * total), last) for u in us]
    assert tree.inverse_cdf([float(u) for u in us]).tolist() == expected


ANY_WEIGHT = strategies.just(0.0) | strategies.floats(0.0, 1e300)


@hypothesis.settings(max_examples=200)
@hypothesis.given(
    strategies.lists(ANY_WEIGHT | strategies.floats(0.0, 1.0), min_size=1, max_size=33),
    strategies.sampled_from(TOPS),
)
def test_a_zero_is_never_found(weights, top):
    hypothesis.assume(any(weights))
    tree = build(top, lambda: segment_tree.SumTree(len(weights)))
    tree.set_values(..., weights)
    # Where rounding decides: at the ends, and on and around the running sums.
    edges = np.cumsum(weights) / np.sum(weights)
    u = [edges, np.nextafter(edges, 0.0), np.nextafter(edges, 2.0), [0.0, 5e-324]]
    u = np.clip(np.concatenate([*u, [1.0, np.nextafter(1.0, 0.0)]]), 0.0, 1.0)
    found = tree.inverse_cdf(u)
    assert np.all(tree.values[found] > 0.0)
    # Rounding moves an answer by a little of the sum, or some of the least numbers.
    exact = [Fraction(0), *itertools.accumulate(map(Fraction, weights))]
    slack = exact[-1] / 2**46 + 64 * Fraction(5e-324)
    for one, i in zip(u.tolist(), found.tolist(), strict=True):
        assert exact[i] - slack <= Fraction(one) * exact[-1] <= exact[i + 1] + slack


def test_sums_do_not_drift():
    # Over 12 decades a sum that is adjusted by differences loses the small ones.
    rng = np.random.default_rng(0)
    tree = segment_tree.SumTree(3_000)
    for n in (1, 7, 256, 2_000):
        done = 0
        while done < 80_000 // 4:
            weights = 10.0 ** rng.uniform(-6.0, 6.0, 40 * n)
            for batch in weights.reshape(-1, n):
                tree.set_values(rng.integers(0, 3_000, n), batch)
            done += weights.size
        np.testing.assert_allclose(
            tree.root_value, math.fsum(tree.values), rtol=1e-12, atol=0.0
        )
    tree.set_values(..., 0.0)
    assert tree.root_value == 0.0
    tree.set_values(2_999, 1e-9)
    assert tree.root_value == 1e-9
    assert tree.inverse_cdf(1.0) == 2_999


def digits(left, right):
    """Writes numbers of two digits behind each other and keeps the outer two."""
    both = np.where(left < 0, right, np.where(right < 0, left, left // 10 * 10))
    return np.where((left < 0) | (right < 0), both, both + right % 10)


# All top, or below it: no level walked, one of two, both; looked at now and then.
@pytest.mark.parametrize(
    ("capacity", "n", "updates"),
    [(64, 16, 1), (5000, 1500, 1), (5000, 700, 2), (5000, 3, 9)],
)
def test_large_trees(capacity, n, updates):
    rng = np.random.default_rng(n)
    tree = segment_tree.SegmentTree(capacity, digits, -1.0)
    sums, leaves = segment_tree.SumTree(capacity), np.full(2**tree.height // 2, -1.0)
    for _ in range(8):
        for _ in range(updates):
            index = rng.integers(0, capacity, n)
            values = rng.integers(0, 100, n).astype(np.float64)
            tree.set_values(index, values)
            sums.set_values(index, values)
            leaves[index] = values
        level = leaves
        for k in range(1, tree.height):
            level = digits(level[::2], level[1::2])
            np.testing.assert_array_equal(tree[-1 - k], level)
        weights = np.maximum(leaves[:capacity], 0.0)
        # Fractions of few bits: nothing is rounded.
        u = np.sort(rng.integers(0, 2**20, 200) / 2**20)
        found = np.cumsum(weights).searchsorted(u * weights.sum(), "right")
        np.testing.assert_array_equal(sums.inverse_cdf(u), found)
