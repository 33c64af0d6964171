"""Storages of all kinds against plain arrays, in random sequences of calls."""

import contextlib
import pickle
import tempfile
from typing import NamedTuple

import hypothesis.extra.numpy as arrays
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tfrl.core import shapes
from tfrl.replay.memory.numpy_storage import NumpyStorage

KINDS = ("memory", "files", "shared")
CAPACITY = 7


class Row(NamedTuple):
    image: object
    rest: object


SPEC = Row(
    shapes.ShapeDtype((3, 2), np.uint8),
    {
        "reward": shapes.ShapeDtype((), np.float32),
        "half": shapes.ShapeDtype((2,), ml_dtypes.bfloat16),
        "none": shapes.ShapeDtype((0,), np.float64),
        "name": shapes.ShapeDtype((), "S3"),
        "done": shapes.ShapeDtype((1,), np.bool_),
    },
)
LEAVES = tf.nest.flatten(SPEC)


def make(kind, folder, spec=SPEC, capacity=CAPACITY):
    path = folder if kind == "files" else None
    return NumpyStorage(spec, capacity, path=path, shared=kind == "shared")


def values(seed, outer):
    """Draws rows of SPEC by a seed: quicker than element by element."""
    rng = np.random.default_rng(seed)
    leaves = [
        rng.integers(0, 2 if leaf.dtype == bool else 100, (*outer, *leaf.shape)).astype(
            leaf.dtype
        )
        for leaf in LEAVES
    ]
    return tf.nest.pack_sequence_as(SPEC, leaves)


def equal(nest, plain):
    tf.nest.assert_same_structure(nest, SPEC)
    for leaf, expected in zip(tf.nest.flatten(nest), plain, strict=True):
        np.testing.assert_array_equal(leaf, expected)
        assert leaf.dtype == expected.dtype


INDICES = st.one_of(
    st.integers(-CAPACITY, CAPACITY - 1),
    st.slices(CAPACITY),
    arrays.arrays(bool, CAPACITY),
    arrays.arrays(
        np.int64,
        arrays.array_shapes(max_dims=2, max_side=5, min_side=0),
        elements=st.integers(-CAPACITY, CAPACITY - 1),
    ),
    st.lists(st.integers(-CAPACITY, CAPACITY - 1), min_size=1, max_size=9),
)
BAD_INDICES = st.one_of(
    st.sampled_from([CAPACITY, -CAPACITY - 1, 0.5, None, "a", (0,), [0, 99], [-99]]),
    arrays.arrays(bool, CAPACITY + 1),
)


class Model(RuleBasedStateMachine):
    kind = ""

    @initialize()
    def start(self):
        self.exits = contextlib.ExitStack()
        self.folder = self.exits.enter_context(tempfile.TemporaryDirectory())
        self.storage = make(self.kind, f"{self.folder}/rows")
        self.plain = [np.zeros((CAPACITY, *x.shape), x.dtype) for x in LEAVES]
        self.saved = None

    def teardown(self):
        if hasattr(self, "exits"):
            equal(self.storage.get(slice(None)), self.plain)
            self.storage.close()
            self.exits.close()

    @rule(idx=INDICES, seed=st.integers(0, 99), one=st.booleans())
    def set(self, idx, seed, one):
        rows = values(seed, () if one else self.plain[0][idx].shape[:-2])
        self.storage.set(idx, rows)
        for array, leaf in zip(self.plain, tf.nest.flatten(rows), strict=True):
            array[idx] = leaf

    @rule(idx=INDICES)
    def get(self, idx):
        equal(self.storage.get(idx), [array[idx] for array in self.plain])

    @rule(idx=INDICES)
    def get_into(self, idx):
        expected = [array[idx] for array in self.plain]
        leaves = [
            np.empty(x.shape, leaf.dtype)
            for x, leaf in zip(expected, LEAVES, strict=True)
        ]
        out = tf.nest.pack_sequence_as(SPEC, leaves)
        assert self.storage.get(idx, out) is out
        for leaf, rows in zip(leaves, expected, strict=True):
            np.testing.assert_array_equal(leaf, rows)

    @rule(idx=BAD_INDICES, bad=st.booleans())
    def refuse(self, idx, bad):
        with pytest.raises(IndexError):
            self.storage.set(idx, values(1, ()))
        rows = values(1, ())
        rows.rest["done"] = np.array([0.5]) if bad else np.ones(2, bool)
        with pytest.raises((TypeError, ValueError), match="leaf 1 of"):
            self.storage.set(slice(None), rows)
        equal(self.storage.get(slice(None)), self.plain)

    @rule()
    def save(self):
        checkpoint = tf.train.Checkpoint(s=self.storage)
        path = checkpoint.write(f"{self.folder}/checkpoint")
        self.saved = path, [array.copy() for array in self.plain]

    @precondition(lambda self: self.saved is not None)
    @rule()
    def restore(self):
        path, rows = self.saved
        tf.train.Checkpoint(s=self.storage).read(path).assert_consumed()
        self.plain = [array.copy() for array in rows]

    @rule()
    def open_again(self):
        if self.kind == "files":
            self.storage.close()
            self.storage = make(self.kind, f"{self.folder}/rows")
        elif self.kind == "shared":
            equal(again(self.storage).get(slice(None)), self.plain)


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "examples"),
    # Files are also closed and opened again.
    [("files", 8), slow("files", 30), slow("memory", 30), slow("shared", 30)],
)
def test_model(kind, examples):
    machine = type(f"Model_{kind}", (Model,), {"kind": kind})
    rules = {"stateful_step_count": 30, "database": None}
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, **rules)
    )


LARGE = {"x": shapes.ShapeDtype((1000,)), "n": shapes.ShapeDtype((), np.int64)}


def again(storage):
    return pickle.loads(pickle.dumps(storage))


@pytest.mark.parametrize("rows", [0, 5, 12])
@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("source", KINDS)
def test_round_trip(source, target, rows, tmp_path):
    with (
        make(source, tmp_path / "a", LARGE, 12) as storage,
        make(target, tmp_path / "b", LARGE, 12) as other,
    ):
        numbers = np.arange(1, rows + 1)
        images = np.repeat(numbers[:, None], 1000, axis=1)
        if rows:
            storage.set(numbers - 1, {"x": images, "n": numbers})
        other.set(slice(None), {"x": np.ones(1000), "n": np.array(99)})
        path = tf.train.Checkpoint(s=storage).save(tmp_path / "c")
        tf.train.Checkpoint(s=other).restore(path).assert_consumed()
        assert other.get(slice(None))["n"].tolist() == [*numbers, *[0] * (12 - rows)]
        for one in [other] if target == "memory" else [other, again(other)]:
            got = one.get(slice(None))["x"]
            np.testing.assert_array_equal(got[:rows], images)
            assert not got[rows:].any()
        kept_empty = target == "memory" and source != "shared" and not rows
        fresh = make("memory", None, LARGE, 12)
        tf.train.Checkpoint(s=fresh).restore(path).assert_consumed()
        if kept_empty:
            assert not fresh.exists
