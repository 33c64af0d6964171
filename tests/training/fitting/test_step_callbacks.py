"""Callbacks of each step in a plain `keras.Model.fit`: schedules follow it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import environments, schedules, training

FALLING = schedules.LinearScheduler("percent", [(0.0, 1.0), (1.0, 0.0)])
ROWS = np.ones([8, 1], np.float32)


def plain_model(**options):
    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1e-3), "mse", **options)
    return model


def rates_in(model, *given, **options):
    """The rates of the steps of `fit`, and those in its logs."""
    rates = []

    def note(batch, logs):  # noqa: ARG001
        rates.append(float(model.optimizer.learning_rate))

    callbacks = [
        training.FollowSchedule(FALLING, "learning_rate", name="rate"),
        keras.callbacks.LambdaCallback(on_train_batch_end=note),
    ]
    logs = model.fit(*given, verbose=0, callbacks=callbacks, **options).history
    return rates, logs["rate"]


def of_unknown_length():
    rows = tf.data.Dataset.from_tensor_slices((ROWS, ROWS)).batch(2)
    return rows.filter(lambda *_: True)


def test_a_share_of_all_epochs():
    rates, logs = rates_in(plain_model(), ROWS, ROWS, batch_size=2, epochs=2)
    assert rates == pytest.approx(1 - np.arange(8) / 8)
    assert logs == pytest.approx([0.625, 0.125])


def test_epochs_before_the_initial_one_count_as_done():
    model = plain_model()
    for _ in range(2):  # and nothing of the `fit` before
        options = {"batch_size": 4, "epochs": 4, "initial_epoch": 3}
        rates, _ = rates_in(model, ROWS, ROWS, **options)
        assert rates == pytest.approx([1 / 4, 1 / 8])


def test_executions_of_several_steps():
    model = plain_model(steps_per_execution=3)
    rates, _ = rates_in(model, ROWS, ROWS, batch_size=2, epochs=2)
    assert rates == pytest.approx([1, 5 / 8, 1 / 2, 1 / 8])


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # says Keras
def test_an_unknown_length_is_known_after_an_epoch():
    model = plain_model()
    for _ in range(2):
        rates, _ = rates_in(model, of_unknown_length(), epochs=3, shuffle=False)
        later = [2 / 3, 7 / 12, 1 / 2, 5 / 12, 1 / 3, 1 / 4, 1 / 6, 1 / 12]
        assert rates == pytest.approx([1, 1, 1, 1, *later])


def test_a_policy_follows_what_it_is_collected_for():
    seen = []

    def policy(observations):
        seen.append(FALLING())
        return np.zeros(len(observations), np.int64)

    collect = training.Collect(
        environments.make_vec("CartPole-v1", 1, "sync"),
        lambda played: None,  # noqa: ARG005
        policy,
    )
    plain_model().fit(
        ROWS, ROWS, batch_size=4, epochs=2, verbose=0, callbacks=[collect]
    )
    assert seen == pytest.approx([0.75, 0.5, 0.25, 0.0])


@pytest.mark.parametrize("kind", ["env_steps", "global_counter"])
def test_what_a_plain_model_does_not_count_is_refused(kind):
    schedule = schedules.LinearScheduler(kind, [(0, 1.0), (10, 0.0)])
    follow = training.FollowSchedule(schedule, "learning_rate")
    with pytest.raises(ValueError, match=f"`schedule` expected .* got .* '{kind}'"):
        plain_model().fit(ROWS, ROWS, verbose=0, callbacks=[follow])
