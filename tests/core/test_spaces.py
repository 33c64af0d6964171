"""Tests of tfrl.core.spaces."""

import numpy as np
import pytest
import refusals
import tensorflow as tf
from gymnasium import spaces
from refusals import bad

from tfrl.core import spaces as core_spaces
from tfrl.core import specs

bounded = specs.BoundedTensorSpec
BOX = spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, np.inf], np.float32))

PAIRS = [
    (BOX, bounded([2], tf.float32, [-1.0, 0.0], [1.0, np.inf])),
    (spaces.Box(0, 255, (2, 2, 3), np.uint8), bounded([2, 2, 3], tf.uint8, 0, 255)),
    (spaces.Box(-1.0, 1.0, (), np.float64), bounded([], tf.float64, -1.0, 1.0)),
    (spaces.Box(0, 1, (2,), np.int8), bounded([2], tf.int8, 0, 1)),
    (spaces.Discrete(4), bounded([], tf.int64, 0, 3)),
    (spaces.Discrete(4, start=-1), bounded([], tf.int64, -1, 2)),
    (spaces.MultiDiscrete([2, 5]), bounded([2], tf.int64, 0, [1, 4])),
    (
        spaces.MultiDiscrete([[2], [5]], dtype=np.int32, start=[[1], [0]]),
        bounded([2, 1], tf.int32, [[1], [0]], [[2], [4]]),
    ),
]


@pytest.mark.parametrize(("space", "spec"), PAIRS, ids=lambda part: repr(part)[:40])
def test_space_to_spec_and_back(space, spec):
    found = core_spaces.spec_from_space(space)
    assert found == spec
    assert core_spaces.space_from_spec(spec) == space


def test_multi_binary():
    spec = core_spaces.spec_from_space(spaces.MultiBinary([2, 3]))
    assert spec == bounded([2, 3], tf.int8, 0, 1)


def test_nested_spaces():
    space = spaces.Dict(
        {"z": spaces.Discrete(2), "a": spaces.Tuple([BOX, spaces.Discrete(3)])}
    )
    spec = core_spaces.spec_from_space(space)
    assert type(spec) is dict and type(spec["a"]) is tuple
    assert spec["a"][1] == bounded([], tf.int64, 0, 2)
    assert core_spaces.space_from_spec(spec) == space
    tf.nest.assert_same_structure(spec, space.sample())


@pytest.mark.parametrize(("space", "spec"), PAIRS, ids=lambda part: repr(part)[:40])
def test_samples_fit(space, spec):
    space.seed(0)
    assert spec.is_compatible_with(tf.constant(space.sample()))
    if np.all(np.isfinite(spec.maximum)):
        assert space.contains(np.asarray(spec.sample(seed=0)))


def test_specs_without_bounds():
    box = core_spaces.space_from_spec(tf.TensorSpec([2], tf.float64))
    assert box == spaces.Box(-np.inf, np.inf, (2,), np.float64)
    box = core_spaces.space_from_spec([tf.TensorSpec([2], tf.uint8)])[0]
    assert box == spaces.Box(0, 255, (2,), np.uint8)
    box = core_spaces.space_from_spec(tf.TensorSpec([2], tf.bool))
    assert core_spaces.spec_from_space(box) == bounded([2], tf.bool, False, True)
    assert core_spaces.space_from_spec(bounded([2], tf.bool, False, True)) == box
    assert box.dtype == bool and box.contains(np.array([True, False]))


def test_huge_integer_ranges_are_boxes():
    low, high = -(2**63), 2**63 - 1
    box = core_spaces.space_from_spec(bounded([2], tf.int64, low, high))
    assert isinstance(box, spaces.Box) and box.low[0] == low and box.high[1] == high


@refusals.table(
    (
        core_spaces.spec_from_space,
        bad(TypeError, "space", spaces.Text(3)),
        bad(TypeError, "space", spaces.Sequence(BOX)),
        bad(TypeError, "space", spaces.Dict({"a": spaces.Text(3)})),
    ),
    (
        core_spaces.space_from_spec,
        bad(TypeError, "spec", {"a": tf.TensorSpec([], tf.string)}),
        bad(TypeError, "spec", 3),
        bad(ValueError, "spec", tf.TensorSpec([None])),
    ),
)
def test_refusals(row):
    row()
