"""Every public Keras layer and model keeps what Keras promises of layers."""

import importlib
import json

import default_rows
import fit_examples
import keras
import numpy as np
import pytest
import tensorflow as tf
from conformance import keras_rows

import tfrl

NAMES = [row.name or row.covers for row in keras_rows.LAYERS]
over_rows = pytest.mark.parametrize("row", keras_rows.LAYERS, ids=NAMES)
pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning"
)


def public_keras_classes():
    """Yields the name and the kind of every exported class that Keras rebuilds."""
    for room in tfrl._ROOMS:
        door = importlib.import_module(f"tfrl.{room}")
        for name in getattr(door, "__all__", ()):
            value = getattr(door, name)
            for kind, base in keras_rows.KINDS.items():
                if isinstance(value, type) and issubclass(value, base):
                    yield f"{room}.{name}", kind


def as_text(config):
    return json.dumps(config, sort_keys=True, default=list)


def same(got, wanted, **tolerance):
    for one, two in zip(tf.nest.flatten(got), tf.nest.flatten(wanted), strict=True):
        np.testing.assert_allclose(
            tf.cast(one, tf.float32), tf.cast(two, tf.float32), **tolerance
        )


def trained(row, model):
    """Moves weights and statistics away from where they began."""
    data = row.given(8)
    with tf.GradientTape() as tape:
        outputs = tf.nest.flatten(model(data, training=True))
        loss = tf.add_n([tf.reduce_sum(tf.cast(x, tf.float32) ** 2) for x in outputs])
    weights = model.trainable_weights
    if weights:
        gradients = tape.gradient(loss, weights)
        keras.optimizers.SGD(1e-2).apply(gradients, weights)
    return model


def frozen(model):
    """Calls a model and puts its state back: some layers learn at every call."""
    kept = [variable.numpy() for variable in model.variables]

    def call(data):
        outputs = model(data, training=False)
        for variable, value in zip(model.variables, kept, strict=True):
            variable.assign(value)
        return outputs

    return call


def test_every_public_class_has_a_row_or_a_reason():
    found = dict(public_keras_classes())
    rows = {
        "layer": {row.covers for row in keras_rows.LAYERS},
        "initializer": set(keras_rows.INITIALIZERS),
        "schedule": set(keras_rows.SCHEDULES),
    }
    for kind in keras_rows.KINDS:
        public = {name for name, its_kind in found.items() if its_kind == kind}
        covered = rows.get(kind, set())
        assert covered & set(keras_rows.WITHOUT_ROW) == set()
        missing = public - covered - set(keras_rows.WITHOUT_ROW)
        assert sorted(missing) == [], "add rows, or reasons to `WITHOUT_ROW`"
        assert sorted(covered - public) == []
    assert set(keras_rows.WITHOUT_ROW) <= set(found)


@over_rows
def test_config_round_trip(row):
    for policy in ("float32", "mixed_bfloat16"):
        layer = row.make(dtype=policy)
        again = type(layer).from_config(layer.get_config())
        assert as_text(again.get_config()) == as_text(layer.get_config())
        # What Keras itself stores, with the name under which it finds the class.
        stored = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
        other = keras.saving.deserialize_keras_object(stored)
        assert as_text(other.get_config()) == as_text(layer.get_config())
        assert other.dtype_policy.name == layer.dtype_policy.name


@over_rows
def test_keras_file(row, tmp_path):
    model = trained(row, row.model())
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for one, two in zip(loaded.variables, model.variables, strict=True):
        np.testing.assert_array_equal(one, two)
    same(frozen(loaded)(row.given(5)), frozen(model)(row.given(5)), rtol=1e-6)


@over_rows
def test_checkpoint(row, tmp_path):
    model, other = trained(row, row.model()), row.model()
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "state"))
    tf.train.Checkpoint(model=other).read(path)
    for one, two in zip(other.variables, model.variables, strict=True):
        np.testing.assert_array_equal(one, two)


@over_rows
@pytest.mark.parametrize(
    "policy", ["mixed_float16", pytest.param("mixed_bfloat16", marks=pytest.mark.slow)]
)
def test_mixed_precision(row, policy):
    wide, mixed = trained(row, row.model()), row.model(policy)
    mixed.set_weights(wide.get_weights())
    compute = policy.removeprefix("mixed_")
    for variable in mixed.trainable_weights:
        assert variable.dtype == "float32"
    outputs = frozen(mixed)(row.given(5))
    for output in tf.nest.flatten(outputs):
        assert output.dtype == ("float32" if row.own_dtype else compute)
    rough = row.half * (8 if compute == "bfloat16" else 1)
    same(outputs, frozen(wide)(row.given(5)), rtol=rough, atol=rough)
    trained(row, mixed)
    for variable in mixed.variables:
        value = tf.convert_to_tensor(variable)
        if value.dtype.is_floating:
            assert np.isfinite(value).all(), variable.path


@over_rows
def test_unknown_batch_and_output_spec(row):
    model = row.model()
    spec = row.make(dtype="float32").compute_output_spec(*row.inputs())
    traces = []

    def call(data):
        traces.append(row)
        outputs = model(data, training=False)
        for output in tf.nest.flatten(outputs):
            assert output.shape[0] is None
        return outputs

    def unknown(x):
        return tf.TensorSpec([None, *x.shape[1:]], x.dtype)

    run = tf.function(
        call, input_signature=[tf.nest.map_structure(unknown, row.given(2))]
    )
    call_once = frozen(model)
    for batch in (1, 7):
        right = call_once(row.given(batch))
        same(run(row.given(batch)), right, rtol=1e-5, atol=1e-6)
        call_once(row.given(batch))
        for said, is_so in zip(
            tf.nest.flatten(spec), tf.nest.flatten(right), strict=True
        ):
            assert tuple(said.shape) == (None, *is_so.shape[1:])
            assert said.dtype == is_so.dtype.name
    assert len(traces) == 1


@pytest.mark.parametrize(
    "row",
    default_rows.params(
        dict(zip(NAMES, zip(keras_rows.LAYERS), strict=True)),
        ["layers.AsKeras", "losses.AsymmetricSimSiamLoss", "policies.ActorCritic"],
    ),
)
def test_xla(row):
    model = row.model()
    call = frozen(model)
    right = call(row.given(5))
    compiled = tf.function(lambda data: model(data, training=False), jit_compile=True)
    same(compiled(row.given(5)), right, rtol=1e-5, atol=1e-6)


def squared(true, pred):
    """A loss for each row of outputs of any shape."""
    return tf.reduce_mean(tf.reshape((pred - true) ** 2, [tf.shape(pred)[0], -1]), -1)


def fit_once(row, model):
    """One epoch of two batches, of outputs towards zeros."""
    data = row.given(8)
    if isinstance(model, tfrl.training.FitModel):
        model.compile(keras.optimizers.SGD(0.1))
        model.fit(data, batch_size=4, shuffle=False, verbose=0)
        return model
    if not model.trainable_weights:
        end = keras.layers.Dense(1, "tanh", kernel_initializer="ones")
        model = keras.Sequential([model, end])
    zeros = tf.nest.map_structure(np.zeros_like, model(data))
    loss = tf.nest.map_structure(lambda _: squared, zeros)
    model.compile(keras.optimizers.SGD(0.1), loss=loss, jit_compile=False)
    model.fit(data, zeros, batch_size=4, shuffle=False, verbose=0)
    return model


# Those that learn from what they see are distributed in the tests of their rooms.
@pytest.mark.parametrize(
    "row",
    default_rows.params(dict(zip(NAMES, zip(keras_rows.LAYERS), strict=True)), []),
)
def test_two_replicas(row):
    alone = fit_once(row, row.model())
    strategy = fit_examples.strategy_of_two()
    with strategy.scope():
        model = fit_once(row, row.model())
    for one, two in zip(model.variables, alone.variables, strict=True):
        first, second = strategy.experimental_local_results(one.value)
        if one.trainable or not row.own_batch:
            np.testing.assert_array_equal(first, second)
        if not row.own_batch:
            np.testing.assert_allclose(first, two.numpy(), rtol=1e-4, atol=1e-5)
