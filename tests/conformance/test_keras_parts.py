"""Losses, initializers and schedules keep what Keras promises of them."""

import json

import default_rows
import fit_examples
import keras
import numpy as np
import pytest
import tensorflow as tf
from conformance import keras_rows, test_keras_classes, test_keras_fresh

over_losses = pytest.mark.parametrize(
    "row", keras_rows.LOSSES, ids=[row.name for row in keras_rows.LOSSES]
)
SMALL_PARTS = keras_rows.INITIALIZERS | keras_rows.SCHEDULES
pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning"
)
X = np.random.default_rng(0).normal(size=[8, 3]).astype(np.float32)


def model_for(row, seed=0):
    """Ends in what a loss takes, between 0 and 1."""
    kernel = keras.initializers.GlorotUniform(seed)
    dense = keras.layers.Dense(row.pred[-1], "sigmoid", kernel_initializer=kernel)
    model = keras.Sequential([keras.Input([3]), dense])
    model.compile(keras.optimizers.SGD(0.1), loss=row.make(), jit_compile=False)
    return model


def round_trip(part):
    stored = json.loads(json.dumps(keras.saving.serialize_keras_object(part)))
    return keras.saving.deserialize_keras_object(stored)


@over_losses
def test_losses_come_back_from_configs(row):
    loss = row.make()
    again = round_trip(loss)
    text = test_keras_classes.as_text
    assert text(again.get_config()) == text(loss.get_config())
    true, pred = row.values(5)
    np.testing.assert_array_equal(again(true, pred), loss(true, pred))


@over_losses
def test_losses_in_every_mode_and_of_any_batch(row):
    loss = row.make()
    shapes = ([None, *row.true], [None, *row.pred])
    signature = [tf.TensorSpec(shape) for shape in shapes]
    graph = tf.function(lambda *given: loss(*given), input_signature=signature)
    compiled = tf.function(lambda *given: loss(*given), jit_compile=True)
    for batch in (1, 7):
        values = row.values(batch)
        right = loss(*values)
        assert right.shape == []
        np.testing.assert_allclose(graph(*values), right, rtol=1e-5)
    np.testing.assert_allclose(compiled(*values), right, rtol=1e-5)


@over_losses
def test_losses_of_half_precision(row):
    true, pred = row.values(5)
    loss = row.make()
    for dtype in ("float16", "bfloat16"):
        got = loss(tf.cast(true, dtype), tf.cast(pred, dtype))
        # Keras computes losses in float32.
        assert got.dtype == tf.float32
        np.testing.assert_allclose(got, loss(true, pred), rtol=0.1, atol=0.02)


@pytest.mark.parametrize(
    "row",
    default_rows.params({row.name: (row,) for row in keras_rows.LOSSES}, []),
)
def test_losses_on_two_replicas(row):
    true, _ = row.values(8)
    alone = model_for(row)
    with fit_examples.strategy_of_two().scope():
        model = model_for(row)
    histories = [
        each.fit(X, true, batch_size=4, shuffle=False, verbose=0).history["loss"]
        for each in (alone, model)
    ]
    np.testing.assert_allclose(*histories, rtol=1e-4)
    for one, two in zip(model.weights, alone.weights, strict=True):
        np.testing.assert_allclose(one.numpy(), two.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", SMALL_PARTS)
def test_small_parts_come_back_from_configs(name):
    part = SMALL_PARTS[name]()
    again = round_trip(part)
    text = test_keras_classes.as_text
    assert text(again.get_config()) == text(part.get_config())
    assert type(again) is type(part)


@pytest.mark.parametrize("name", keras_rows.SCHEDULES)
def test_schedules_in_every_mode(name):
    schedule = keras_rows.SCHEDULES[name]()
    graph = tf.function(schedule, input_signature=[tf.TensorSpec(None, tf.int64)])
    compiled = tf.function(schedule, jit_compile=True)
    steps = np.arange(25)
    right = [schedule(int(step)) for step in steps]
    for run in (schedule, graph, compiled):
        got = tf.broadcast_to(run(tf.constant(steps)), [25])
        np.testing.assert_allclose(got, right, rtol=1e-5)


@pytest.mark.parametrize("name", keras_rows.INITIALIZERS)
def test_initializers_in_layers(name, tmp_path):
    for policy in ("float32", "mixed_float16", "float64"):
        made = keras_rows.INITIALIZERS[name]()
        layer = keras.layers.Dense(5, bias_initializer=made, dtype=policy)
        layer.build([None, 3])
        np.testing.assert_allclose(
            layer.bias.numpy(), made([5], dtype="float64"), rtol=1e-6
        )
        assert layer.bias.dtype == ("float64" if policy == "float64" else "float32")


@pytest.mark.slow
def test_in_a_fresh_process(tmp_path):
    right = {}
    schedules = [make() for make in keras_rows.SCHEDULES.values()]
    for index, row in enumerate(keras_rows.LOSSES):
        if row.true not in ((), (1,)):
            continue
        model = model_for(row)
        schedule = schedules[index % len(schedules)]
        model.compile(keras.optimizers.SGD(schedule), loss=row.make())
        model.save(tmp_path / f"{row.name}.keras")
        ones = np.ones([5, 3], np.float32)
        right[f"{row.name}/0"] = model(ones)
        y = np.ones([5, 1], np.float32)
        right[f"{row.name}/loss"] = model.evaluate(ones, y, verbose=0)
    made = keras_rows.INITIALIZERS["losses.InitialBias"]()
    dense = keras.layers.Dense(1, bias_initializer=made)
    model = keras.Sequential([keras.Input([3]), dense])
    model.compile("sgd", "mse")
    model.save(tmp_path / "initializer.keras")
    test_keras_fresh.run_with_tfrl(tmp_path)
    with np.load(tmp_path / "with.npz") as found:
        assert set(right) < set(found)
        for key, value in right.items():
            np.testing.assert_allclose(found[key], value, rtol=1e-5, err_msg=key)
