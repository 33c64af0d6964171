"""A pass over a store: each step once, in order or shuffled, as arrays and tensors."""

import numpy as np
import pytest
import refusals
import replay_episodes
import tensorflow as tf
from refusals import bad

from tfrl import replay
from tfrl.replay.sampling.transitions import Sequences, Transitions

KINDS = [Transitions(2, 0.9), Transitions(frame_stack=2), Sequences(2, 1)]
KINDS += [Sequences(4, pad_end=True)]


@pytest.mark.parametrize("kind", KINDS, ids=repr)
@pytest.mark.parametrize("rounds", [9, 60])
def test_every_step_comes_once(kind, rounds):
    both = replay_episodes.Stream(3, 16).run(1, rounds, ends=0.2)
    expected = sorted(both.model.listed(kind))
    once = replay.SinglePass(both.store, kind)
    assert once.size == len(expected)
    batches = list(once.batches(5))
    assert [len(batch.indices) for batch in batches[:-1]] == [5] * (len(batches) - 1)
    found = np.concatenate([batch.indices for batch in batches])
    np.testing.assert_array_equal(found, expected)
    whole = sum(len(batch.indices) for batch in once.batches(5, drop_remainder=True))
    assert whole == len(expected) // 5 * 5
    drawn = replay.UniformReplay(both.store, kind, seed=0)
    for batch in batches:
        np.testing.assert_allclose(batch.probabilities, 1 / len(expected), rtol=1e-6)
        np.testing.assert_array_equal(batch.weights, np.ones(len(batch.indices)))
        # What it reads is what other samplers read of the same steps.
        rows = batch.indices % both.store.capacity
        same = drawn._reader.read(rows, np.random.default_rng(0), None)
        pairs = zip(tf.nest.flatten(batch.data), same, strict=True)
        for one, other in pairs:
            np.testing.assert_array_equal(one, other)


def test_a_seed_shuffles_every_pass_alike():
    both = replay_episodes.Stream(2, 30).run(0, 20)
    plain = np.concatenate(
        [x.indices for x in replay.SinglePass(both.store).batches(7)]
    )
    once = replay.SinglePass(both.store, seed=3)
    passes = [np.concatenate([x.indices for x in once.batches(7)]) for _ in range(2)]
    np.testing.assert_array_equal(*passes)
    assert (passes[0] != plain).any()
    np.testing.assert_array_equal(np.sort(passes[0]), plain)


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize(
    "kind", [Transitions(), Sequences(2, time_major=True)], ids=["flat", "time-major"]
)
def test_as_a_dataset(kind, drop):
    both = replay_episodes.Stream(2, 30).run(0, 20, ends=0.1)
    once = replay.SinglePass(both.store, kind)
    dataset = once.dataset(4, drop_remainder=drop)
    for _ in range(2):
        pairs = zip(dataset, once.batches(4, drop_remainder=drop), strict=True)
        for tensors, arrays in pairs:
            tf.nest.map_structure(np.testing.assert_array_equal, tensors, arrays)
    shapes = [spec.shape for spec in tf.nest.flatten(dataset.element_spec)]
    assert all(shape.is_fully_defined() for shape in shapes) == drop


def test_a_store_without_steps_has_no_batches():
    both = replay_episodes.Stream(2, 8)
    assert list(replay.SinglePass(both.store).batches(4)) == []


def test_what_is_overwritten_meanwhile_is_told():
    both = replay_episodes.Stream(1, 6).run(0, 5, ends=0.0)
    batches = replay.SinglePass(both.store).batches(2)
    next(batches)
    both.run(1, 6, ends=0.0)
    with pytest.raises(ValueError, match="`SinglePass.batches`: `store` expected"):
        list(batches)


STORE = replay_episodes.Stream(1, 6).store


@refusals.table(
    (
        replay.SinglePass,
        bad(TypeError, "store", None),
        bad(TypeError, "kind", STORE, 3),
        bad(ValueError, "seed", STORE, None, -1),
        bad(TypeError, "seed", STORE, None, "a"),
    ),
    (
        replay.SinglePass(STORE).batches,
        bad(ValueError, "batch_size", 0),
        bad(TypeError, "batch_size", 1.5),
    ),
)
def test_errors(row):
    row()
