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


def test_steps_of_executions():
    counter = _fit_data.StepCounter()
    for _ in range(2):
        counter.begin_epoch()
        # Executions of 3 steps in epochs of 7: Keras tells 2, 5 and 8.
        passed = [counter.passed(batch, {"steps": 7}) for batch in (2, 5, 8)]
        assert passed == [3, 3, 1]
    counter.begin_epoch()
    assert [counter.passed(batch, {"steps": None}) for batch in (0, 1)] == [1, 1]


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
    ledger.set_params({"steps": 4})
    write = tf.function(ledger.write, jit_compile=True)
    ledger.on_epoch_begin(0)
    for step in range(3):
        write(tf.constant([step, 10 + step]), tf.fill([2], float(step)))
    ledger.on_train_batch_end(2)
    write(tf.constant([3, 13]), tf.fill([2], 3.0))
    ledger.on_train_batch_end(5)
    assert told == [
        ([0, 10, 1, 11, 2, 12], [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]),
        ([3, 13], [3.0, 3.0]),
    ]


def test_understood_validation():
    store = examples.filled_store(examples.q_model())
    source, model = replay.UniformReplay(store, seed=0), examples.q_model()
    options = {
        "steps_per_epoch": 2,
        "validation_data": source,
        "validation_batch_size": 7,
        "validation_steps": 1,
    }
    data, size, rest = _fit_data.understood(model, source, None, options)
    assert (size, rest["shuffle"], "validation_batch_size" in rest) == (
        None,
        False,
        False,
    )
    assert data.element_spec.indices.shape == [32]
    assert rest["validation_data"].element_spec.indices.shape == [7]
    history = model.fit(source, verbose=0, **options)
    assert np.isfinite(history.history["val_loss"]).all()
    with pytest.raises(ValueError, match="`validation_steps` expected a number"):
        model.fit(source, steps_per_epoch=1, validation_data=source)
