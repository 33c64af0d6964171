"""Tests of `tfrl.replay.sampling.dataset`."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import replay as room
from tfrl.core import records

OBSERVATIONS = tf.TensorSpec([3])
ACTIONS = tf.TensorSpec([], tf.int32)
WEIGHTS = np.array([1.0, -2.0, 0.5], np.float32)


def fill(store, steps, seed=0):
    """Episodes of 7 steps; rewards are `observations @ WEIGHTS`, actions count."""
    rng = np.random.default_rng(seed)
    observations = rng.normal(size=[2, 3]).astype(np.float32)
    for step in range(steps):
        following = rng.normal(size=[2, 3]).astype(np.float32)
        store.add(
            observations,
            [2 * step, 2 * step + 1],
            observations @ WEIGHTS,
            np.zeros(2, bool),
            np.full(2, step % 7 == 6),
            following,
        )
        observations = following
        if step % 7 == 6:
            observations = rng.normal(size=[2, 3]).astype(np.float32)


def make_replay(steps=49, kind=None, cls=room.UniformReplay):
    store = room.EpisodeStore(OBSERVATIONS, ACTIONS, 400, 2)
    fill(store, steps)
    return cls(store, kind, seed=0)


def pair(sample):
    return sample.data.observations, sample.data.rewards, sample.weights


@pytest.mark.parametrize(
    ("kind", "shape"),
    [(room.Transitions(n_step=2), [8]), (room.Sequences(3), [8, 3])],
    ids=["transitions", "sequences"],
)
@pytest.mark.parametrize("cls", [room.UniformReplay, room.PrioritizedReplay])
def test_batches_are_the_samples_in_their_order(cls, kind, shape):
    replay, same = (make_replay(kind=kind, cls=cls) for _ in range(2))
    dataset = room.as_dataset(replay, 8, steps=4)
    assert dataset.element_spec.data.rewards == tf.TensorSpec(shape, tf.float32)
    assert dataset.element_spec == same.sample_spec(8)
    batches = list(dataset)
    assert len(batches) == 4 == int(dataset.cardinality())
    assert isinstance(batches[0].data, records.Transition | records.Trajectory)
    for batch in batches:
        tf.nest.map_structure(np.testing.assert_array_equal, batch, same.sample(8))


def test_a_model_learns_what_is_in_the_store():
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1, use_bias=False)])
    model.compile(keras.optimizers.Adam(0.1), "mse")
    dataset = room.as_dataset(make_replay(), 32, transform=pair)
    model.fit(dataset, steps_per_epoch=100, shuffle=False, verbose=0)
    np.testing.assert_allclose(model.layers[0].kernel[:, 0], WEIGHTS, atol=0.05)


def test_what_is_added_meanwhile_comes_in():
    replay = make_replay(steps=5)
    batches = iter(room.as_dataset(replay, 64, prefetch=1))
    assert next(batches).data.actions.numpy().max() < 10
    replay.store.cut()
    fill(replay.store, 60)
    for _ in range(3):
        next(batches)
    assert next(batches).data.actions.numpy().max() > 60


def test_replicas_share_a_batch():
    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    dataset = room.as_dataset(make_replay(), 8, steps=2)
    for batch in strategy.experimental_distribute_dataset(dataset):
        parts = strategy.experimental_local_results(batch.data.observations)
        assert [part.shape for part in parts] == [[4, 3], [4, 3]]


def test_nothing_is_tuned_unless_ones_own_options_say_so():
    dataset = room.as_dataset(make_replay(), 4).map(lambda sample: sample.weights)
    assert dataset.options().autotune.enabled is False
    options = tf.data.Options()
    options.autotune.enabled = True
    assert dataset.with_options(options).options().autotune.enabled is True


@pytest.mark.parametrize("cls", [room.UniformReplay, room.PrioritizedReplay])
def test_steps_may_come_after_the_dataset(cls):
    replay, same = make_replay(0, cls=cls), make_replay(9, cls=cls)
    dataset = room.as_dataset(replay, 4)
    with pytest.raises(tf.errors.InvalidArgumentError, match="add steps first"):
        next(iter(dataset))
    fill(replay.store, 9)
    batch = next(iter(dataset))
    tf.nest.map_structure(np.testing.assert_array_equal, batch, same.sample(4))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"replay": "store"}, TypeError, "`replay` expected UniformReplay .*; got str"),
        ({"batch_size": 0}, ValueError, "`batch_size` expected an int .*; got 0"),
        ({"steps": 0}, ValueError, "`steps` expected an int .*; got 0"),
        ({"prefetch": -1}, ValueError, "`prefetch` expected numbers .*; got -1"),
    ],
    ids=["replay", "batch_size", "steps", "prefetch"],
)
def test_bad_arguments_are_refused(arguments, error, message):
    arguments = {"replay": make_replay(), **arguments}
    with pytest.raises(error, match=f"`as_dataset`: {message}"):
        room.as_dataset(**{"batch_size": 4, **arguments})
