"""Translated Keras optimizers step as Keras itself does."""

import default_rows
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import agents
from tfrl.agents import gradient_transforms, keras_optimizers

optimizers = keras.optimizers
DECAY = optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
STAIRS = optimizers.schedules.PiecewiseConstantDecay([1, 3], [0.1, 0.05, 0.01])
COSINE = optimizers.schedules.CosineDecay(0.0, 4, warmup_target=0.1, warmup_steps=2)

TABLE = {
    "sgd": lambda: optimizers.SGD(0.1),
    "sgd_schedule": lambda: optimizers.SGD(DECAY),
    "sgd_decay": lambda: optimizers.SGD(0.1, weight_decay=0.1),
    "momentum": lambda: optimizers.SGD(0.1, momentum=0.9),
    "momentum_schedule": lambda: optimizers.SGD(DECAY, momentum=0.9),
    "momentum_decay": lambda: optimizers.SGD(0.1, momentum=0.9, weight_decay=0.1),
    "nesterov": lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "nesterov_schedule": lambda: optimizers.SGD(STAIRS, momentum=0.9, nesterov=True),
    "adam": lambda: optimizers.Adam(0.1),
    "adam_large_epsilon": lambda: optimizers.Adam(0.1, epsilon=0.1, beta_1=0.5),
    "adam_schedule": lambda: optimizers.Adam(COSINE),
    "adam_decay": lambda: optimizers.Adam(0.1, weight_decay=0.1),
    "adamw": lambda: optimizers.AdamW(0.1),
    "adamw_schedule": lambda: optimizers.AdamW(DECAY, weight_decay=0.1),
    "rmsprop": lambda: optimizers.RMSprop(0.1),
    "rmsprop_momentum": lambda: optimizers.RMSprop(DECAY, rho=0.8, momentum=0.5),
    "rmsprop_centered": lambda: optimizers.RMSprop(0.1, centered=True, epsilon=1e-3),
    "rmsprop_all": lambda: optimizers.RMSprop(
        0.1, centered=True, momentum=0.5, weight_decay=0.1, epsilon=1e-2
    ),
    "clipnorm": lambda: optimizers.Adam(0.1, clipnorm=0.5),
    "global_clipnorm": lambda: optimizers.SGD(0.1, global_clipnorm=0.5),
    "clipvalue": lambda: optimizers.SGD(0.1, clipvalue=0.5, momentum=0.5),
}


DEFAULT = {
    *("sgd_decay", "momentum_schedule", "nesterov_schedule", "adam_large_epsilon"),
    *("adam_schedule", "adamw_schedule", "rmsprop_all"),
    *("clipnorm", "global_clipnorm", "clipvalue"),
}


# Each kind of optimizer with what it has most of, each schedule and each clipping.
@pytest.mark.parametrize(
    "case", default_rows.params({name: (name,) for name in TABLE}, DEFAULT)
)
def test_five_steps_equal_keras(case):
    rng = np.random.default_rng(0)
    start = {"a": rng.normal(size=(3, 2)), "b": rng.normal(size=2)}
    start = {key: value.astype(np.float32) for key, value in start.items()}
    steps = [
        {key: rng.normal(size=v.shape).astype(np.float32) for key, v in start.items()}
        for _ in range(5)
    ]
    steps[1]["b"] = steps[1]["b"] * np.float32(1e-6)  # where epsilon matters
    optimizer = TABLE[case]()
    transform = keras_optimizers.from_keras(TABLE[case]())
    variables = [keras.Variable(value) for value in start.values()]
    optimizer.build(variables)
    params = tf.nest.map_structure(tf.constant, start)
    state = transform.init(params)
    update = tf.function(transform.update)
    for grads in steps:
        optimizer.apply([tf.constant(grad) for grad in grads.values()], variables)
        updates, state = update(
            tf.nest.map_structure(tf.constant, grads), state, params
        )
        params = tf.nest.map_structure(tf.add, params, updates)
        for variable, value in zip(variables, params.values(), strict=True):
            np.testing.assert_allclose(value, variable, rtol=1e-6, atol=1e-6)


def test_a_number_stays_changeable():
    transform = keras_optimizers.from_keras(optimizers.Adam(0.5))
    assert transform == keras_optimizers.from_keras(optimizers.Adam(0.5))
    state = gradient_transforms.with_learning_rate(transform.init([tf.ones(1)]), 0.25)
    updates, _ = transform.update([tf.ones(1)], state)
    np.testing.assert_allclose(updates[0], [-0.25], rtol=1e-5)


class Mine(optimizers.Adam):
    """Could do anything in `update_step`."""


class Ramp(optimizers.schedules.LearningRateSchedule):
    """Not registered with Keras."""

    def __call__(self, step):
        return 0.1

    def get_config(self):
        return {}


def used():
    optimizer = optimizers.SGD(0.1)
    optimizer.apply([tf.ones(1)], [keras.Variable(np.ones(1, np.float32))])
    return optimizer


def rate():
    return 0.1


def excluding(weight_decay=0.1, **which):
    optimizer = optimizers.AdamW(0.1, weight_decay=weight_decay)
    optimizer.exclude_from_weight_decay(**which)
    return optimizer


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (
            lambda: excluding(var_names=["bias"]),
            "`exclude_from_weight_decay` expected not .* `tfrl.agents.partitioned`",
        ),
        (
            lambda: excluding(var_list=[keras.Variable(np.ones(1, np.float32))]),
            "`exclude_from_weight_decay` expected not",
        ),
        (lambda: optimizers.Adam(amsgrad=True), "`amsgrad` expected .*; leave it out"),
        (
            lambda: optimizers.Adam(use_ema=True),
            "`use_ema` expected .*; leave it out; `tfrl.agents.target_update`",
        ),
        (
            lambda: optimizers.SGD(loss_scale_factor=2.0),
            "`loss_scale_factor` expected .*; .* scale the loss",
        ),
        (lambda: optimizers.SGD(gradient_accumulation_steps=2), "`gradient_accumul"),
        (
            lambda: optimizers.SGD(DECAY, momentum=0.9, weight_decay=0.1),
            "`weight_decay` expected None beside both momentum and a schedule",
        ),
        (lambda: optimizers.SGD(rate), "`learning_rate` expected"),
        (lambda: optimizers.SGD(Ramp()), "`learning_rate` expected"),
        (optimizers.Nadam, "`optimizer` expected one of .*got 'Nadam'"),
        (Mine, "`optimizer` expected one of .*got 'Mine'; take an optimizer of"),
        (
            lambda: optimizers.LossScaleOptimizer(optimizers.SGD()),
            "`optimizer` expected .*got 'LossScaleOptimizer'; pass the optimizer ins",
        ),
        (used, "`optimizer.iterations` expected .*; make a new one"),
    ],
)
def test_what_cannot_be_translated_is_named(make, option):
    with pytest.raises(ValueError, match=f"`from_keras`: {option}|{option}"):
        keras_optimizers.from_keras(make())


@pytest.mark.parametrize(
    ("optimizer", "name"),
    [
        (optimizers.Adagrad(0.1), "adagrad"),
        (optimizers.Lamb(0.1), "lamb"),
        (optimizers.Lion(0.1), "lion"),
        (optimizers.Nadam(0.1), "nadam"),
        (optimizers.Adam(0.1, gradient_accumulation_steps=4), "accumulated"),
    ],
)
def test_what_does_the_same_is_named(optimizer, name):
    with pytest.raises(ValueError, match=f"take `tfrl.agents.{name}` instead"):
        keras_optimizers.from_keras(optimizer)
    assert callable(getattr(agents, name))


def test_optimizers_made_for_replicas():
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        made = optimizers.AdamW(1e-3)
    like = keras_optimizers.from_keras(optimizers.AdamW(1e-3))
    assert keras_optimizers.from_keras(made) == like


def test_other_objects():
    with pytest.raises(TypeError, match="`from_keras`: `optimizer` expected a Keras"):
        keras_optimizers.from_keras("adam")


def test_nothing_is_excluded_where_nothing_decays():
    plain = optimizers.Adam(0.1)
    plain.exclude_from_weight_decay(var_names=["bias"])
    for optimizer in (plain, excluding()):
        assert keras_optimizers.from_keras(optimizer).parts
