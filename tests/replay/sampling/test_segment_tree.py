"""Trees that reduce ranges and draw by weight: worked cases, arguments, refusals."""

import copy
import math
import pickle

import confidence
import numpy as np
import pytest
import tensorflow as tf

from tfrl.replay.sampling import segment_tree


def sum_tree(values, seed=0):
    tree = segment_tree.SumTree(len(values), random_seed=seed)
    tree.set_values(..., values)
    return tree


def raises(error, message):
    return pytest.raises(error, match=message)


@pytest.mark.parametrize("capacity", [1, 2, 3, 4, 7, 8, 9, 1024, 1025, 2049])
def test_height_and_widths(capacity):
    tree = segment_tree.SumTree(capacity)
    assert tree.height == math.ceil(math.log2(capacity)) + 1
    widths = [min(2**level, capacity) for level in range(tree.height)]
    assert [len(level) for level in tree] == widths
    tree.set_values(-1, 3.0)
    assert tree.root_value == 3.0
    assert tree.inverse_cdf(0.5) == capacity - 1


INDICES = {
    "int": (2, 7.0, [0, 1, 7, 3, 4]),
    "negative": (-1, 7.0, [0, 1, 2, 3, 7]),
    "true": (True, 7.0, [0, 7, 2, 3, 4]),
    "rank_0": (np.array(2), [7.0], [0, 1, 7, 3, 4]),
    "list": ([0, -2], [7.0, 8.0], [7, 1, 2, 8, 4]),
    "no_list": ([], [], [0, 1, 2, 3, 4]),
    "broadcast": ([0, 1], 7.0, [7, 7, 2, 3, 4]),
    "int32": (np.array([4], np.int32), np.array([7.0], np.float32), [0, 1, 2, 3, 7]),
    "twice": ([3, 0, 3, 3], [9.0, 5.0, 8.0, 7.0], [5, 1, 2, 7, 4]),
    "twice_by_sign": ([3, -2], [9.0, 8.0], [0, 1, 2, 8, 4]),
    "ellipsis": (..., 7, [7, 7, 7, 7, 7]),
    "none": (None, [5, 6, 7, 8, 9], [5, 6, 7, 8, 9]),
    "minus_zero": ([0, 4], [7.0, -0.0], [7, 1, 2, 3, 0]),
    "tensors": (tf.constant([1]), tf.constant([7.0]), [0, 7, 2, 3, 4]),
    "bfloat16": (1, tf.constant([7.0], tf.bfloat16), [0, 7, 2, 3, 4]),
}


@pytest.mark.parametrize("case", INDICES)
def test_every_form_of_index_sets(case):
    idx, values, expected = INDICES[case]
    tree = sum_tree([0.0, 1.0, 2.0, 3.0, 4.0])
    assert tree.set_values(idx, values) is None
    np.testing.assert_array_equal(tree.values, expected)
    assert tree.root_value == sum(expected)
    assert tree.values.dtype == np.float64


NOT_SET = {
    "beyond": (5, 1.0, ValueError, r"`idx` expected integers in \[-5, 5\); got 5"),
    "before": ([0, -6], 1.0, ValueError, r"`idx` expected .* got -6"),
    "floats": ([0.5], 1.0, TypeError, "`idx` expected integers; got float64"),
    "mask": ([True] * 5, 1.0, TypeError, "`idx` expected integers; got bool"),
    "text": ("0", 1.0, TypeError, "`idx` expected an int .* got '0'"),
    "slice": (slice(2), 1.0, TypeError, "`idx` expected an int .* got slice"),
    "numpy_integer": (np.uint8(2), 1.0, TypeError, "`idx` expected an int .*uint8"),
    "rank_2": ([[0, 1]], 1.0, TypeError, "`idx` expected an int .*array"),
    "shape": ([0, 1], [1.0] * 3, ValueError, r"`values` expected .* \[2\]; got \[3\]"),
    "all": (..., [1.0] * 6, ValueError, r"`values` expected .* \[5\]; got \[6\]"),
    "rank": (0, [[1.0, 2.0]], ValueError, r"`values` expected .* \[1\]; got \[1, 2\]"),
    "words": (0, "7", TypeError, "`values` expected real numbers; got <U1"),
    "complex": (0, 1j, TypeError, "`values` expected real numbers; got complex128"),
    "nothing": (0, None, TypeError, "`values` expected real numbers; got object"),
    "nan": ([0, 1], [1.0, np.nan], ValueError, "finite numbers >= 0; got nan"),
    "infinite": (0, np.inf, ValueError, "finite numbers >= 0; got inf"),
    "negative": ([0, 1], [1.0, -0.5], ValueError, "finite numbers >= 0; got -0.5"),
}


@pytest.mark.parametrize("case", NOT_SET)
def test_what_cannot_be_set_changes_nothing(case):
    idx, values, error, message = NOT_SET[case]
    tree = sum_tree([0.0, 1.0, 2.0, 3.0, 4.0])
    before = [level.copy() for level in tree]
    with raises(error, message):
        tree.set_values(idx, values)
    for level, old in zip(tree, before, strict=True):
        np.testing.assert_array_equal(level, old)


RANGES = {
    "all": ((), [10.0]),
    "from": ((2,), [9.0]),
    "negative": ((-2, -1), [3.0]),
    "arrays": (np.array([[0, 1, -1], [2, 3, 5]]), [1.0, 3.0, 4.0]),
    "one_start": ((1, np.array([2, 3, 5])), [1.0, 3.0, 10.0]),
    "empty": (np.array([[0, 2, 5, -5, -1], [0, 2, 5, 0, 4]]), [0.0] * 5),
    "none": (np.zeros([2, 0], np.int64), []),
    "tensor": ((tf.constant([1]), tf.constant([3])), [3.0]),
}


@pytest.mark.parametrize("case", RANGES)
def test_every_form_of_range_is_reduced(case):
    args, expected = RANGES[case]
    tree = sum_tree([0.0, 1.0, 2.0, 3.0, 4.0])
    got = tree.partial_reduce(*args)
    np.testing.assert_array_equal(got, expected, strict=True)


NOT_REDUCED = {
    "start": ((6,), ValueError, r"`start` expected integers in \[-5, 6\); got 6"),
    "stop": ((0, np.array([5, -6])), ValueError, r"`stop` expected .* got -6"),
    "reversed": (np.array([[0, 3], [1, 2]]), ValueError, "`stop` .*`start` 3; got 2"),
    "float": ((0.5, 1), TypeError, "`start` expected an int .* got 0.5"),
    "list": (([0], [1]), TypeError, "`start` expected an int .* got .0."),
    "shapes": ((np.zeros(3, int), np.ones(2, int)), ValueError, r"\[3\]; got \[2\]"),
}


@pytest.mark.parametrize("case", NOT_REDUCED)
def test_what_is_no_range_is_refused(case):
    args, error, message = NOT_REDUCED[case]
    with raises(error, message):
        sum_tree([0.0, 1.0, 2.0, 3.0, 4.0]).partial_reduce(*args)


def test_lookups_are_read_only_views_of_the_last_update():
    tree = sum_tree([1.0, 2.0, 3.0])
    values, sums = tree.values, tree[1]
    for view in (values, sums, tree[-1, :2]):
        with raises(ValueError, "read-only"):
            view[0] = 9.0
    tree.set_values(0, 5.0)
    assert values[0] == 5.0
    np.testing.assert_array_equal(tree[1], [7.0, 3.0])
    np.testing.assert_array_equal(tree[1, [1, 0, 0]], [3.0, 7.0, 7.0])
    np.testing.assert_array_equal(tree[(np.int32(-3),)], [10.0])


@pytest.mark.parametrize("key", [3, -4, "x", 0.0, None, (0, 0, 0), slice(2), (1, 2)])
def test_other_lookups_are_index_errors(key):
    with pytest.raises(IndexError):
        sum_tree([1.0, 2.0, 3.0])[key]


@pytest.mark.parametrize(
    ("capacity", "error"),
    [(0, ValueError), (-1, ValueError), (2.0, TypeError), (True, TypeError)],
)
def test_a_capacity_is_a_positive_int(capacity, error):
    for make in (segment_tree.SumTree, segment_tree.MinTree, segment_tree.MaxTree):
        with raises(error, f"`{make.__name__}`: `capacity` expected .* got {capacity}"):
            make(capacity)


@pytest.mark.parametrize(
    "reducer", [max, lambda a, b: a if a > b else b, lambda a, b: float(max(a, b))]
)
def test_a_reducer_of_two_floats_will_do(reducer):
    tree = segment_tree.SegmentTree(6, reducer, -math.inf)
    tree.set_values([1, 2, 5], [-3.0, 7.0, 5.0])
    assert tree.root_value == 7.0
    np.testing.assert_array_equal(
        tree.partial_reduce(*np.array([[0, 3, 3], [2, 6, 3]])), [-3.0, 5.0, -math.inf]
    )


def test_the_unit_element_is_checked():
    message = r"`SegmentTree`: `init_value` expected .* got reducer\(1.0, 1.0\) = 2.0"
    with raises(ValueError, message):
        segment_tree.SegmentTree(4, np.add, 1.0)


def test_indices_follow_the_cumulative_sum():
    tree = sum_tree([0.0, 1.0, 0.0, 3.0, 0.0])
    # The second index begins at 1/4, and at 1 nothing is left behind it.
    np.testing.assert_array_equal(
        tree.inverse_cdf([0.0, 0.2499, 0.25, 0.5, 1.0]), [1, 1, 3, 3, 3]
    )
    np.testing.assert_array_equal(tree.inverse_cdf(np.zeros(0)), np.zeros(0, np.int64))
    np.testing.assert_array_equal(tree.inverse_cdf(np.float32([0.3])), [3])
    for u, expected in ((0, 1), (1, 3), (1.0, 3), (np.float64(0.1), 1)):
        found = tree.inverse_cdf(u)
        assert found == expected
        assert np.ndim(found) == 0


def test_rounding_does_not_lead_to_a_zero():
    # 1 - 2^-53 - 0.3 rounds to 0.7, all that lies below the pair of 0.7 and 0.
    tree = segment_tree.SumTree(2048)
    tree.set_values([1, 2], [0.3, 0.7])
    np.testing.assert_array_equal(tree.inverse_cdf([0.0, 0.31, 1.0]), [1, 2, 2])


NOT_FOUND = {
    "above": ([0.5, 1.01], ValueError, r"numbers in \[0, 1\]; got 0.5 to 1.01"),
    "below": (-0.01, ValueError, r"numbers in \[0, 1\]; got -0.01"),
    "nan": ([0.5, np.nan], ValueError, r"numbers in \[0, 1\]; got nan"),
    "rank": ([[0.5]], TypeError, r"floats of shape \[n\]; got float64 .*\[1, 1\]"),
    "ints": (np.array([0]), TypeError, "floats .* got int64"),
    "text": ("a", TypeError, "floats .* got <U1"),
}


@pytest.mark.parametrize("case", NOT_FOUND)
def test_what_is_no_fraction_is_refused(case):
    u, error, message = NOT_FOUND[case]
    with raises(error, message):
        sum_tree([1.0, 2.0]).inverse_cdf(u)


@pytest.mark.parametrize("values", [[0.0, 0.0], [1e308, 1e308]])
def test_without_a_sum_nothing_is_drawn(values):
    tree = sum_tree(values, seed=3)
    with np.errstate(over="ignore"):
        for draw in (tree.inverse_cdf, lambda u: tree.sample(2)):
            with raises(ValueError, "expected values with a positive, finite sum"):
                draw(0.5)
    tree.set_values(..., 1.0)
    np.testing.assert_array_equal(tree.sample(9), sum_tree([1.0, 1.0], 3).sample(9))


def test_samples_follow_the_seed():
    values = np.arange(50.0)
    tree = sum_tree(values, seed=13)
    uniform = np.random.RandomState(13)
    for n in (20, np.int64(5)):
        np.testing.assert_array_equal(
            tree.sample(n), tree.inverse_cdf(uniform.rand(n)), strict=True
        )
    for n, error in ((0, ValueError), (-1, ValueError), (2.0, TypeError)):
        with raises(error, f"`sample`: `n` expected .* got {n}"):
            tree.sample(n)
    assert tree.random_seed == 13
    tree.random_seed = 13
    np.testing.assert_array_equal(tree.sample(9), sum_tree(values, 13).sample(9))


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copies_are_trees_of_their_own(copied):
    tree = sum_tree(np.arange(3000.0), seed=5)
    other = copied(tree)
    np.testing.assert_array_equal(other.sample(20), tree.sample(20))
    other.set_values(7, 1000.0)
    assert other.root_value == tree.root_value + 993.0
    assert other.inverse_cdf(0.0) == 1


def test_frequencies_are_the_weights():
    # Most of 5,000 are 0; the others lie many decades apart or alike.
    rng = np.random.default_rng(0)
    weights = np.zeros(5_000)
    weights[rng.choice(5_000, 300, replace=False)] = rng.uniform(1.0, 2.0, 300)
    weights[[0, 17, 4_999]] = [1e-9, 50.0, 100.0]
    tree = sum_tree(weights, seed=1)
    counts = np.bincount(tree.sample(200_000), minlength=5_000)
    assert counts[0] <= 1
    weights[0], counts[0] = 0.0, 0
    confidence.assert_frequencies(counts, weights / weights.sum())
