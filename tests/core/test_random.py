"""Tests of tfrl.core.random."""

import random as pyrandom

import keras
import numpy as np
import pytest
import refusals
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from refusals import bad

from tfrl import exploration, ops
from tfrl.core import random, specs


@pytest.fixture
def determinism(monkeypatch):
    """How often deterministic ops were asked for: they cannot be switched off again."""
    calls = []
    module = tf.config.experimental
    monkeypatch.setattr(module, "enable_op_determinism", lambda: calls.append(0))
    return calls


def draws():
    """One number of each global generator."""
    ours = float(tf.random.uniform([])), float(keras.random.uniform([]))
    return (pyrandom.random(), np.random.rand(), *ours)  # noqa: NPY002


@pytest.mark.parametrize("seed", [None, 2**32 + 5])
def test_set_random_seed_repeats_all_generators(seed, determinism):
    used = random.set_random_seed(seed)
    assert len(determinism) == (seed is not None)
    assert used == 5 if seed is not None else 0 <= used < 2**32
    first = draws()
    assert random.set_random_seed(used) == used
    assert draws() == first


@given(st.integers(-(2**63), 2**63 - 1))
def test_new_seed_of_an_int_is_its_two_halves(seed):
    low, high = random.new_seed(seed).numpy().tolist()
    assert (low & 0xFFFFFFFF) | (high << 32) == seed
    assert random.new_seed(np.int64(seed)).numpy().tolist() == [low, high]


@pytest.mark.parametrize("jit_compile", [None, False, True])
def test_new_seed_of_a_scalar_tensor_is_that_of_the_int(jit_compile):
    function = random.new_seed
    if jit_compile is not None:
        function = tf.function(function, jit_compile=jit_compile)
    value = 2**40 - 5
    expected = random.new_seed(value).numpy()
    np.testing.assert_array_equal(function(tf.constant(value, tf.int64)), expected)
    small = function(tf.constant(-7))
    np.testing.assert_array_equal(small, random.new_seed(-7).numpy())


@pytest.mark.parametrize(
    "pair", [[1, 2], (1, 2), np.array([1, 2]), tf.constant([1, 2], tf.int64)]
)
def test_new_seed_of_a_pair(pair):
    seed = random.new_seed(pair)
    assert seed.dtype == tf.int32 and seed.shape == [2]
    np.testing.assert_array_equal(seed, [1, 2])


def test_new_seed_of_generator_seeds():
    made = tf.random.Generator.from_seed(1).make_seeds(1)[:, 0]
    assert made.dtype == tf.int64
    assert random.new_seed(made).dtype == tf.int32


def test_new_seed_of_none_is_fresh():
    draw = tf.function(random.new_seed)
    seeds = [random.new_seed(), random.new_seed(), draw(), draw()]
    assert len({tuple(seed.numpy()) for seed in seeds}) == 4
    assert all(seed.dtype == tf.int32 and seed.shape == [2] for seed in seeds)


@refusals.table(
    (
        random.new_seed,
        bad(TypeError, "seed", 1.5),
        bad(TypeError, "seed", True),
        bad(TypeError, "seed", tf.constant([1.0, 2.0])),
        bad(ValueError, "seed", tf.constant([1, 2, 3])),
        bad(ValueError, "seed", 2**64),
    ),
    (random.split_seed, bad(ValueError, "n", 0, 0), bad(TypeError, "n", 0, 1.5)),
    (
        random.set_random_seed,
        *(bad(TypeError, "seed", seed) for seed in (1.5, "1", True)),
    ),
)
def test_refusals(row):
    row()


@pytest.mark.parametrize("seed", ["a", 1.5, tf.zeros(2)], ids=str)
def test_errors_name_who_was_given_the_seed(seed):
    spec = specs.BoundedTensorSpec([2], tf.float32, 0.0, 1.0)
    for call in (
        *(ops.argmax, ops.shuffle),
        *(lambda x, seed: exploration.OUProcess(x, seed=seed), spec.sample),
    ):
        with pytest.raises(TypeError, match="`seed` expected") as raised:
            call(tf.ones([2]) if call != spec.sample else (), seed=seed)
        assert "new_seed" not in str(raised.value)


@pytest.mark.parametrize("xla", [False, True], ids=["graph", "XLA"])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_split_seed_is_the_same_eagerly_in_graphs_and_under_xla(n, xla):
    split = tf.function(lambda seed: random.split_seed(seed, n), jit_compile=xla)
    for seed in ([3, 4], [-1, -(2**31)], [2**31 - 1, 0]):
        expected = tf.random.split(tf.constant(seed), n, alg="philox").numpy()
        for found in (random.split_seed(seed, n), split(tf.constant(seed))):
            np.testing.assert_array_equal(np.stack(found), expected)
        assert len({tuple(row) for row in expected}) == n
        assert expected.dtype == np.int32


def test_split_seed_streams_differ_from_each_other_and_from_the_parent():
    parent = random.new_seed(11)
    seeds = [parent, *random.split_seed(parent, 3)]
    draws = np.stack([tf.random.stateless_normal([4096], seed) for seed in seeds])
    # Independent streams correlate by about 1 / sqrt(4096) = 0.016.
    off_diagonal = np.corrcoef(draws) - np.eye(4)
    assert np.abs(off_diagonal).max() < 0.08


def test_split_seed_depends_on_the_seed():
    first, second = random.split_seed(1, 2), random.split_seed(2, 2)
    assert not np.array_equal(np.stack(first), np.stack(second))
