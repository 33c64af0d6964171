"""A trajectory for every epoch, in minibatches."""

import fit_examples as examples
import numpy as np
import pytest
import tensorflow as tf
import toy_envs

from tfrl import training


def prepare(model, trajectory):
    return {"seen": trajectory.observations, "paid": trajectory.rewards}


def loss_fn(model, sample):
    return model.network(sample.data["seen"])[:, 0] * sample.data["paid"]


def rollouts(mode=toy_envs.MODES[0], prepare=prepare, n_steps=4, size=6, **options):
    return training.Rollouts(
        examples.walks(mode), examples.drawn, prepare, n_steps, size, **options
    )


def model():
    made = training.FitModel(
        examples.network(), loss_fn, reduction="mean_with_sample_weight"
    )
    made.compile("sgd")
    return made


def test_each_epoch_passes_over_its_own_trajectory():
    trajectories, batches = [], []

    def prepare(model, trajectory):
        trajectories.append(trajectory)
        return trajectory.observations

    source, made = rollouts(prepare=prepare), model()

    def keep(sample):
        batches.append(sample.numpy())
        return np.float32(0)

    def loss_fn(model, sample):
        zero = tf.py_function(keep, [sample.data], tf.float32)
        return model.network(sample.data)[:, 0] + zero

    made = training.FitModel(examples.network(), loss_fn)
    made.compile("sgd", run_eagerly=True)
    # Two passes over 4 * 3 rows in batches of 6.
    history = made.fit(source, steps_per_epoch=4, epochs=3, verbose=0)
    assert len(trajectories) == 3
    assert history.history["env_steps"] == [12.0, 24.0, 36.0]
    for epoch, trajectory in enumerate(trajectories):
        rows = np.sort(trajectory.observations.reshape(-1, 3), axis=0)
        of_epoch = batches[4 * epoch : 4 * epoch + 4]
        first, second = np.concatenate(of_epoch[:2]), np.concatenate(of_epoch[2:])
        np.testing.assert_array_equal(np.sort(first, axis=0), rows)
        np.testing.assert_array_equal(np.sort(second, axis=0), rows)
        assert (first != second).any()


def test_rows_that_only_reset_have_no_weight():
    source = rollouts(toy_envs.MODES[2], n_steps=20, size=60)
    sample = next(iter(source.minibatches(model())))
    invalid = np.sum(sample.weights.numpy() == 0)
    assert invalid > 0
    assert source._player.collector.env_steps == 60 - invalid
    np.testing.assert_array_equal(np.sort(sample.indices), np.arange(60))


def test_it_may_be_among_the_callbacks():
    source, made = rollouts(), model()
    history = made.fit(
        source, steps_per_epoch=2, epochs=2, callbacks=[source], verbose=0
    )
    assert history.history["env_steps"] == [12.0, 24.0]
    again = made.fit(source, steps_per_epoch=2, verbose=0)
    assert again.history["env_steps"] == [36.0]


def test_reproducible():
    def run():
        made = model()
        made.fit(rollouts(seed=3), steps_per_epoch=4, epochs=2, verbose=0)
        return made.get_weights()

    examples.assert_same(run(), run())


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"prepare": 3}, TypeError, "`prepare` expected a function"),
        ({"n_steps": 0}, ValueError, "`n_steps` expected"),
        ({"size": 0}, ValueError, "`minibatch_size` expected"),
        ({"size": 7}, ValueError, "`minibatch_size` expected to divide .* = 12; got 7"),
    ],
    ids=["prepare", "steps", "no rows", "rows"],
)
def test_bad_arguments(options, error, match):
    with pytest.raises(error, match=f"`Rollouts`: {match}"):
        rollouts(**options)


def test_prepared_rows_keep_their_axes():
    def flat(model, trajectory):
        return trajectory.rewards.reshape(-1)

    with pytest.raises(
        ValueError, match=r"`prepare` expected .* \[4, 3\] .*got \[12\]"
    ):
        rollouts(prepare=flat).minibatches(model())
