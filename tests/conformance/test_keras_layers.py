"""Every public Keras layer behaves as Keras tests its own: shapes, dtypes, building.

The checks are those that Keras makes of each layer of its own, under every kind of
dtype policy: what is said of symbolic inputs is what a call gives.
"""

import inspect

import default_rows
import keras
import numpy as np
import pytest
import tensorflow as tf
from conformance import keras_rows

ROWS = keras_rows.LAYERS + keras_rows.IMAGE_LAYERS
over_rows = pytest.mark.parametrize(
    "row", ROWS, ids=[row.name or row.covers for row in ROWS]
)
over_policies = pytest.mark.parametrize(
    "policy",
    [
        # What is not computed in float32, and not even kept in it.
        *("mixed_bfloat16", "bfloat16"),
        *(
            pytest.param(policy, marks=pytest.mark.slow)
            for policy in ("float32", "float64", "mixed_float16")
        ),
    ],
)
over_some = pytest.mark.parametrize(
    "row",
    default_rows.params(
        {row.name or row.covers: (row,) for row in ROWS},
        ["layers.AsKeras", "policies.ActorCritic"],
    ),
)
pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning"
)


def shapes_of(nest):
    return tf.nest.map_structure(lambda leaf: tuple(leaf.shape), nest)


def symbolic(row, batch=None, wider=0):
    """Keras tensors of what the row's layer takes; one axis wider if asked."""

    def make(spec):
        shape, dtype = spec
        last = [size + wider for size in shape[-1:]]
        return keras.KerasTensor((batch, *shape[:-1], *last), dtype)

    return [keras_rows.map_specs(make, spec) for spec in row.specs]


def facts(nest):
    """Shape without the batch, and dtype, of each leaf."""
    return [
        (tuple(leaf.shape[1:]), keras.backend.standardize_dtype(leaf.dtype))
        for leaf in tf.nest.flatten(nest)
    ]


@over_rows
@over_policies
def test_symbolic_equals_eager_and_is_finite_untrained(row, policy):
    layer = row.make(dtype=policy)
    outputs = layer(*row.arguments(3))
    said = facts(outputs)
    for leaf in tf.nest.flatten(outputs):
        assert leaf.shape[0] == 3
        assert np.isfinite(tf.cast(leaf, tf.float64)).all()
    for batch in (None, 3):
        for each in (layer, row.make(dtype=policy)):
            spec = each(*symbolic(row, batch))
            assert facts(spec) == said
            assert {leaf.shape[0] for leaf in tf.nest.flatten(spec)} == {batch}
        assert facts(layer.compute_output_spec(*symbolic(row, batch))) == said
    # Moments are float64 under every policy.
    kinds = {layer.variable_dtype} | ({"float32"} if row.own_dtype else set())
    if row.covers in ("layers.RunningNormalization", "training.FitModel"):
        kinds |= {"float64", "bfloat16"}
    found = {weight.dtype for weight in layer.weights if "float" in weight.dtype}
    assert found <= kinds


@over_rows
def test_built_by_shapes_or_by_calls(row):
    called, built, told = (row.make(dtype="float32") for _ in range(3))
    called(*row.arguments(2))
    if len(row.specs) == 1:
        built.build(shapes_of(symbolic(row, 2)[0]))
    else:
        built.build(*shapes_of(symbolic(row, 2)))
    told(*symbolic(row))
    for other in (built, told):
        assert other.built
        for kind in ("trainable_weights", "non_trainable_variables"):
            mine, yours = ([v.shape for v in getattr(x, kind)] for x in (called, other))
            assert mine == yours


@over_rows
def test_output_shape(row):
    if row.covers == "training.FitModel":
        pytest.skip("its shape is known by calls alone, as of every subclassed model")
    layer = row.make(dtype="float32")
    spec = layer(*symbolic(row, 2))
    if len(row.specs) == 1:
        got = layer.compute_output_shape(shapes_of(symbolic(row, 2)[0]))
    else:
        got = layer.compute_output_shape(*shapes_of(symbolic(row, 2)))
    assert got == shapes_of(spec)


@over_rows
def test_every_step_of_a_sequence(row):
    ((spec, *rest),) = [row.specs]
    if (
        rest
        or not isinstance(spec, tuple)
        or isinstance(row.make(dtype="float32"), keras.Model)
    ):
        pytest.skip("TimeDistributed takes layers of one tensor")
    shape, dtype = spec
    layer = keras.layers.TimeDistributed(row.make(dtype="float32"))
    steps = np.stack([row.given(2) for _ in range(3)], axis=1)
    symbol = layer(keras.Input((3, *shape), dtype=dtype))
    assert symbol.shape == (None, *layer(steps).shape[1:])


@over_rows
def test_another_width_is_refused(row):
    """By a ValueError, at building and at calling."""
    layer = row.make(dtype="float32")
    layer(*row.arguments(2))

    def wider(leaf):
        return np.concatenate([leaf, leaf[..., :1]], -1) if leaf.ndim > 1 else leaf

    data = tf.nest.map_structure(wider, row.arguments(2))
    with pytest.raises(ValueError):  # noqa: PT011
        layer(*data)
    with pytest.raises(ValueError):  # noqa: PT011
        tf.function(layer)(*data)
    with pytest.raises(ValueError):  # noqa: PT011
        layer(*symbolic(row, wider=1))


@pytest.mark.slow
@over_some
def test_a_training_step_by_the_default_compiler(row):
    """The layer is in a model that is not built before."""
    if row.covers == "training.FitModel":
        pytest.skip("trains itself, see `test_keras_classes`")

    class Whole(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = row.make(dtype="float32")
            self.scale = self.add_weight(shape=[], initializer="ones")

        def call(self, data, training=False):
            given = data if isinstance(data, list | tuple) else [data]
            takes = "training" in inspect.signature(self.inner.call).parameters
            options = {"training": training} if takes else {}
            outputs = tf.nest.flatten(self.inner(*given, **options))
            sums = [tf.reduce_sum(x, range(1, x.shape.rank)) for x in outputs]
            return self.scale * tf.add_n(sums)

    model = Whole()
    model.compile("sgd", lambda true, pred: pred)
    model.fit(row.given(4), np.zeros(4), batch_size=2, verbose=0)
    for variable in model.variables:
        value = tf.convert_to_tensor(variable)
        assert not value.dtype.is_floating or np.isfinite(value).all()


@over_rows
def test_what_is_made_of_a_config_has_the_same_attributes(row):
    layer = row.make(dtype="float32")
    again = type(layer).from_config(layer.get_config())
    assert set(dir(again)) == set(dir(layer))
