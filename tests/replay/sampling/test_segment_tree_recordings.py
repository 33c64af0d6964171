"""Segment trees repeat recorded scripts, save what contradicts the documentation.

A recorded `partial_reduce` takes indices modulo the capacity, so that an empty range
or a bound beyond the end reduces something else, and fails on some batches of ranges
that end at the last leaf; `inverse_cdf(1.0)` may point behind the last value. What is
right there the model of slices says.
"""

import collections

import golden_io
import numpy as np
import pytest

from tfrl.replay.sampling import segment_tree

CASES = golden_io.load("coax/segment_tree")
SCRIPTS = [case for case in CASES if "script" in case["outputs"]]
CALLS = {case["id"]: case for case in CASES if case not in SCRIPTS}
REDUCERS = {"add": (np.add, 0.0), "multiply": (np.multiply, 1.0)}
REFUSED = (ValueError, TypeError, IndexError)


def name_of(case):
    return case["symbol"].rsplit(".", 1)[-1]


def ranges_of(tree, start=0, stop=None):
    stop = len(tree.values) if stop is None else stop
    return np.broadcast_arrays(np.atleast_1d(start), np.atleast_1d(stop))


def deviates(tree, step):
    """Whether a recorded step contradicts the documentation."""
    if "quirk" in step:
        return True
    return step["op"] == "partial_reduce" and is_empty_or_beyond(tree, step)


def is_empty_or_beyond(tree, step):
    """Whether some recorded range is empty or ends outside the values."""
    try:
        start, stop = ranges_of(tree, *step["args"], **step["kwargs"])
    except ValueError:
        return False
    if start.dtype.kind != "i" or stop.dtype.kind != "i":
        return False
    size = len(tree.values)
    start, stop = (np.where(end < 0, end + size, end) for end in (start, stop))
    beyond = (start < 0) | (start >= size) | (stop < 0) | (stop > size)
    return bool((beyond | (start == stop)).any())


def run(tree, op, args, kwargs):
    if op.startswith("get:"):
        return getattr(tree, op.removeprefix("get:"))
    if op == "item":
        return tree[args[0]]
    return getattr(tree, op)(*args, **kwargs)


def make(case):
    name, capacity = name_of(case), case["kwargs"]["capacity"]
    if name == "SegmentTree":
        return segment_tree.SegmentTree(capacity, *REDUCERS[case["kwargs"]["reducer"]])
    return getattr(segment_tree, name)(capacity)


def repeat(case):
    """Repeats a script; returns how many steps of which kind were not as recorded."""
    tree = make(case)
    counts = collections.Counter()
    for step in case["outputs"]["script"]:
        expected = step["result"]
        if deviates(tree, step):
            counts[step["op"]] += 1
        elif isinstance(expected, golden_io.Raised):
            with pytest.raises(REFUSED):
                run(tree, step["op"], step["args"], step["kwargs"])
        else:
            got = run(tree, step["op"], step["args"], step["kwargs"])
            if expected is None:
                assert got is None
            else:
                assert np.shape(got) == np.shape(expected)
                np.testing.assert_allclose(got, expected, **case["tol"])
    return counts


def test_recordings_are_there():
    assert [len(CASES), len(SCRIPTS), len(CALLS)] == [37, 34, 3]
    assert sum(len(case["outputs"]["script"]) for case in SCRIPTS) == 3410


@pytest.mark.parametrize("case", SCRIPTS, ids=golden_io.ids(SCRIPTS))
def test_repeats_the_script(case):
    counts = repeat(case)
    # All but these 15 or so of about 100 steps are as recorded.
    most = {"partial_reduce": 12, "inverse_cdf": 3}
    assert counts <= collections.Counter(most)


def test_repeats_the_samples():
    case = CALLS["SumTree_sample"]
    settings, outputs = case["kwargs"], case["outputs"]
    tree = segment_tree.SumTree(settings["capacity"], settings["random_seed"])
    tree.set_values(..., settings["values"])
    np.testing.assert_array_equal(tree.sample(20), outputs["first20"])
    np.testing.assert_array_equal(tree.sample(5), outputs["next5"])
    tree.random_seed = settings["random_seed"]
    np.testing.assert_array_equal(tree.sample(20), outputs["after_reseed20"])
    probs = settings["values"] / np.sum(settings["values"])
    np.testing.assert_allclose(probs, outputs["probs"], rtol=1e-12)


def test_shows_as_recorded():
    case = CALLS["SumTree_repr"]
    tree = segment_tree.SumTree(case["kwargs"]["capacity"])
    tree.set_values(..., case["kwargs"]["values"])
    assert repr(tree) == case["outputs"]["repr"]


def test_refuses_the_capacity():
    case = CALLS["SumTree_bad_capacity_-1"]
    assert isinstance(case["outputs"]["result"], golden_io.Raised)
    with pytest.raises(ValueError, match="`capacity` expected an int .*; got -1"):
        segment_tree.SumTree(**case["kwargs"])
