"""`FitModel` on several replicas does what it does on one."""

import fit_examples as examples
import numpy as np
import pytest
import tensorflow as tf

from tfrl import replay


@pytest.mark.slow
def test_replicas_take_the_mean_of_the_global_batch():
    alone = examples.fit_model()
    options = {"epochs": 2, "verbose": 0}
    # Batches of 6 and 3: of the last one, replicas get 2 and 1.
    options["validation_data"] = examples.data(9, 6, 1)
    wanted = alone.fit(examples.data(9, 6), **options)
    with examples.strategy_of_two().scope():
        model = examples.fit_model()
    got = model.fit(examples.data(9, 6), **options)
    for mine, yours in zip(model.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(mine, yours, rtol=1e-5, atol=1e-6)
    assert set(got.history) == set(wanted.history)
    for name, values in wanted.history.items():
        np.testing.assert_allclose(got.history[name], values, rtol=1e-5)


@pytest.mark.slow
def test_replicas_share_a_target():
    with examples.strategy_of_two().scope():
        model = examples.q_model()
    alone = examples.q_model()
    store = examples.filled_store(alone)
    for each in (alone, model):
        each.fit(examples.sample_data(store), epochs=2, verbose=0)
    for mine, yours in zip(model.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(mine, yours, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="`x` expected to be no PrioritizedReplay on"):
        model.fit(replay.PrioritizedReplay(store), steps_per_epoch=2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_saved_weights_go_from_two_replicas_to_one(tmp_path):
    alone = examples.q_model()
    store = examples.filled_store(alone)
    with examples.strategy_of_two().scope():
        model = examples.q_model()
        model.fit(examples.sample_data(store), epochs=3, verbose=0)
        source = replay.UniformReplay(store)
        history = model.fit(source, steps_per_epoch=2, verbose=0).history
        assert np.isfinite(history["loss"]).all()
        model.save_weights(tmp_path / "model.weights.h5")
    alone.load_weights(tmp_path / "model.weights.h5")
    examples.assert_same(alone.get_weights(), model.get_weights())
    assert int(alone.target_updater.variables[0]) == 5


def test_what_keras_cannot_split_among_replicas():
    with examples.strategy_of_two().scope():
        model = examples.fit_model()
    flags = tf.data.Dataset.from_tensors({"x": tf.ones([4, 3]), "y": tf.ones([4]) > 0})
    with pytest.raises(ValueError, match="`x` expected no bool beside a strategy"):
        model.fit(flags)
    odd = tf.data.Dataset.from_tensors({"x": tf.ones([3, 3]), "y": tf.ones([3])})
    with pytest.raises(ValueError, match="`x` expected batches of a multiple of 2"):
        model.fit(odd)


def test_several_workers_are_refused():
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope(), pytest.raises(ValueError, match="`FitModel`: .*`tfrl.train"):
        examples.fit_model()
    model = examples.fit_model()
    with strategy.scope(), pytest.raises(ValueError, match="`FitModel`: .*MultiWorker"):
        model.fit(examples.data(8, 4))
