"""Replays as data, and the bookkeeping around steps."""

import fit_examples as examples
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import replay
from tfrl.training.fitting import _fit_data


def test_batches_are_drawn_when_they_are_asked_for():
    store = examples.filled_store(examples.q_model())
    source, drawn = replay.UniformReplay(store, seed=0), []
    read = source.sample

    class Loud(replay.UniformReplay):
        def sample(self, batch_size, out=None):
            drawn.append(batch_size)
            return read(batch_size)

    data = iter(_fit_data.drawn("FitModel.fit", Loud(store, seed=0), 5, "steps", 3))
    assert drawn == []
    for count in range(1, 4):
        sample = next(data)
        assert len(drawn) == count
    assert sample.data.rewards.shape == [5]


def test_callbacks_as_a_list():
    one, two = keras.callbacks.Callback(), keras.callbacks.Callback()
    assert _fit_data.listed(None) == []
    assert _fit_data.listed(one) == [one]
    assert _fit_data.listed((one, two)) == [one, two]
    assert _fit_data.listed(keras.callbacks.CallbackList([one, two])) == [one, two]


def test_ledger_hands_over_the_last_steps_in_their_order():
    told = []

    class Replay:
        def update_priorities(self, indices, priorities):
            told.append((indices.tolist(), priorities.tolist()))

    model = examples.fit_model(steps_per_execution=3)
    ledger = _fit_data.PriorityLedger(model, Replay(), 2)
    write = tf.function(ledger.write, jit_compile=True)
    for step in range(3):
        write(tf.constant([step, 10 + step]), tf.fill([2], float(step)))
    ledger.on_train_batch_end(2)
    write(tf.constant([3, 13]), tf.fill([2], 3.0))
    ledger.on_train_batch_end(5)
    assert told == [
        ([0, 10, 1, 11, 2, 12], [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]),
        ([3, 13], [3.0, 3.0]),
    ]


def test_a_replay_to_validate_by():
    store = examples.filled_store(examples.q_model())
    source, model = replay.UniformReplay(store, seed=0), examples.q_model()
    sizes = []

    class Loud(replay.UniformReplay):
        def sample(self, batch_size, out=None):
            sizes.append(batch_size)
            return source.sample(batch_size)

    options = {"validation_data": Loud(store), "validation_batch_size": 7}
    history = model.fit(
        source, steps_per_epoch=2, validation_steps=1, verbose=0, **options
    )
    assert np.isfinite(history.history["val_loss"]).all()
    assert set(sizes) == {7}
    with pytest.raises(ValueError, match="`validation_steps` expected a number"):
        model.fit(source, steps_per_epoch=1, validation_data=source)
