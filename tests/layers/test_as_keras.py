"""`AsKeras` around small layers: what it hands over, keeps and refuses."""

import foreign_layers
import keras
import numpy as np
import pytest
import refusals
import tensorflow as tf
from refusals import bad

from tfrl import core, layers
from tfrl.layers import _foreign


def batch(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def values(layer):
    return [weight.numpy() for weight in layer.weights]


def test_helpers_map_nests():
    sig = layers.tensor_shapes_to_shape_dtypes(
        {"a": (2, None), "b": [tf.TensorShape([]), [3]]}, np.int64
    )
    assert sig == {
        "a": core.ShapeDtype((2, None), np.int64),
        "b": [core.ShapeDtype((), np.int64), core.ShapeDtype((3,), np.int64)],
    }
    assert layers.tensor_shapes_to_shape_dtypes((2, 3), "float16") == core.ShapeDtype(
        (2, 3), "float16"
    )
    nest = ({"mark": ()}, [1.5, None], np.arange(2))
    for function, dtype in (
        (layers.to_tensors, "float32"),
        (layers.to_arrays, "float64"),
    ):
        got = function(nest)
        assert got[0] == {"mark": ()} and got[1][1] is None
        assert tf.is_tensor(got[1][0]) and got[1][0].dtype.name == dtype
        np.testing.assert_array_equal(got[2], [0, 1])
    read = layers.read_values((tf.Variable(1), {"k": keras.Variable(2.0)}, None))
    assert tf.is_tensor(read[0]) and tf.is_tensor(read[1]["k"]) and read[2] is None
    assert (int(read[0]), float(read[1]["k"])) == (1, 2.0)


def test_helpers_refuse_what_they_cannot_map():
    with pytest.raises(TypeError, match="`read_values`: `variables` expected variab"):
        layers.read_values([tf.zeros([])])
    with pytest.raises(TypeError, match="`shape` expected a tuple"):
        layers.tensor_shapes_to_shape_dtypes("x", np.float32)
    with pytest.raises(ValueError, match="known rank"):
        layers.tensor_shapes_to_shape_dtypes(tf.TensorShape(None), np.float32)


def test_by_hand():
    layer = layers.AsKeras(
        foreign_layers.Affine(2), rng=5, rng_updater=foreign_layers.add_seven
    )
    layer.build((None, 2))
    layer.weights_0.assign([[1.0, 2.0], [3.0, 4.0]])
    layer.weights_1.assign([10.0, 20.0])
    np.testing.assert_allclose(layer(np.ones([1, 2], "f")), [[14.0, 26.0]])
    assert [w.name for w in layer.weights] == ["weights_0", "weights_1", "rng"]
    assert [w.trainable for w in layer.weights] == [True, True, False]
    assert int(layer.rng) == 12


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "graph"])
def test_state_and_keys_advance_with_each_call(compiled):
    chain = foreign_layers.network()
    layer = layers.AsKeras(chain, initializer_rng=3, rng=4)
    x = tf.constant(batch(6, 3))
    weights, state = chain.init(core.ShapeDtype((6, 3)), core.new_seed(3))
    call = tf.function(layer.__call__) if compiled else layer
    layer.build(x.shape)
    key = core.new_seed(4)
    for training in (True, False, True):
        expected, state = chain.pure_fn(x, weights, state, key, training=training)
        np.testing.assert_allclose(call(x, training=training), expected, atol=1e-6)
        key = _foreign.next_key(key)
        np.testing.assert_array_equal(layer.rng, tf.bitcast(key, tf.int64))
    held = [float(tf.reduce_sum(v)) for v in values(layer)[4:-1]]
    wanted = [
        float(tf.reduce_sum(tf.cast(v, tf.float32))) for v in tf.nest.flatten(state)
    ]
    np.testing.assert_allclose(held, wanted, rtol=1e-5)


@pytest.mark.parametrize(
    "key",
    [7, -7, np.int64(7), np.array([1, 2], np.int32), np.array([1, 2], np.uint32)],
    ids=["int", "negative", "int64", "int32 pair", "uint32 pair"],
)
def test_keys_of_64_bits_follow_each_other(key):
    layer = layers.AsKeras(foreign_layers.Dropout(), rng=key)
    seen = []
    for _ in range(4):
        seen.append(layer(np.ones([64], "f"), training=True).numpy().tobytes())
    assert len(set(seen)) == 4
    assert layer.rng.shape == np.shape(key)
    again = layers.AsKeras(foreign_layers.Dropout(), rng=key)
    assert again(np.ones([64], "f"), training=True).numpy().tobytes() == seen[0]


def test_layers_that_come_with_weights_keep_them():
    made = foreign_layers.Affine(2)
    made.weights = (np.full([3, 2], 2.0, np.float32), np.ones([2], np.float32))
    made.state = ()
    made.init = lambda *_: pytest.fail("init was called")
    layer = layers.AsKeras(made)
    np.testing.assert_allclose(layer(np.ones([1, 3], "f")), [[7.0, 7.0]])
    layer.weights_1.assign([0.0, 0.0])
    np.testing.assert_array_equal(made.weights[1], [1.0, 1.0])


def test_weights_without_a_leaf_are_no_weights():
    made = foreign_layers.Chain(foreign_layers.Affine(2), repeat_first=True)
    made.weights = ((), {"again": ()})
    made.state = ((), {"again": ()})
    layer = layers.AsKeras(made)
    layer(np.ones([1, 2], "f"))
    assert len(layer.trainable_weights) == 2


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "graph"])
def test_nests_in_and_out(compiled):
    layer = layers.AsKeras(foreign_layers.Mix())
    x = {"a": tf.constant(batch(5, 4)), "b": (tf.constant([0, 1, 2, 3, 4]),)}
    layer(x)
    call = tf.function(layer.__call__) if compiled else layer
    first, second = call(x)
    table, kernel = layer.trainable_weights[1], layer.trainable_weights[0]
    np.testing.assert_allclose(first, x["a"] + table.numpy()[:5], atol=1e-6)
    np.testing.assert_allclose(second["a"], x["a"] @ kernel.numpy(), atol=1e-6)


def test_gradients_reach_weights_and_inputs():
    layer = layers.AsKeras(foreign_layers.Affine(2))
    x = tf.Variable(batch(3, 4))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(x) ** 2) / 2
    outputs = layer(x).numpy()
    kernel, bias, into = tape.gradient(
        loss, [*(w.value for w in layer.trainable_weights), x]
    )
    np.testing.assert_allclose(kernel, x.numpy().T @ outputs, rtol=1e-5)
    np.testing.assert_allclose(bias, outputs.sum(0), rtol=1e-5)
    np.testing.assert_allclose(
        into, outputs @ layer.weights_0.numpy().T, rtol=1e-5, atol=1e-6
    )


def test_unknown_batches_and_symbolic_outputs():
    layer = layers.AsKeras(foreign_layers.Mix())
    spec = {
        "a": keras.Input([4], name="a"),
        "b": (keras.Input([], dtype="int32", name="b"),),
    }
    first, second = layer(spec)
    assert (first.shape, second["a"].shape) == ((None, 4), (None, 2))
    outputs = layer.compute_output_spec(spec)
    assert (outputs[0].shape, outputs[1]["a"].shape) == ((None, 4), (None, 2))
    model = keras.Model(spec, [first, second["a"]])
    for size in (1, 3):
        got = model({"a": batch(size, 4), "b": (np.zeros([size], np.int32),)})
        assert got[0].shape == (size, 4)


def test_factories_give_a_layer_for_training_and_one_for_inference():
    def make(training):
        return foreign_layers.Affine(2, tf.nn.relu if training else tf.identity)

    layer = layers.AsKeras(make)
    x = batch(8, 3)
    outputs = layer(x).numpy()
    assert outputs.min() < 0
    np.testing.assert_allclose(layer(x, training=True), np.maximum(outputs, 0))
    assert len(layers.AsKeras(lambda: foreign_layers.Affine(2)).weights) == 0
    assert layers.AsKeras(foreign_layers.Means)(x).shape == (8, 3)


class FixedBatch(foreign_layers.Affine):
    def pure_fn(self, x, weights, state, rng):
        outputs, state = super().pure_fn(x, weights, state, rng)
        return tf.concat(tf.unstack(outputs[:, None]), axis=0), state


def test_batch_size_for_layers_that_must_know_it():
    layer = layers.AsKeras(FixedBatch(2), batch_size=4)
    inputs = keras.Input([3])
    outputs = layer(inputs)
    assert outputs.shape == (4, 2)
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mse")
    model.fit(batch(8, 3), batch(8, 2), batch_size=4, verbose=0)
    message = "`AsKeras`: `inputs` expected a batch of 4, `batch_size`"
    with pytest.raises(ValueError, match=f"{message}; got shape \\(5, 3\\)"):
        layer(batch(5, 3))
    with pytest.raises(ValueError, match=message):
        layers.AsKeras(FixedBatch(2), batch_size=4).build((5, 3))
    unknown = tf.function(layer, input_signature=[tf.TensorSpec([None, 3])])
    assert unknown(batch(4, 3)).shape == (4, 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="expects_batch_size_4"):
        unknown(batch(5, 3))
    with pytest.raises(RuntimeError, match="pass `batch_size` to a layer that must"):
        layers.AsKeras(FixedBatch(2))(inputs)


class NoFunction:
    def init(self, signature, rng):
        return (), ()


class Answers:
    """Returns what it is told to."""

    def __init__(self, start=((), ()), result=None):
        self.start, self.result = start, result

    def init(self, signature, rng):
        return self.start

    def pure_fn(self, x, weights, state, rng):
        return (x, state) if self.result is None else self.result(x)


class Oops(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def test_layers_without_the_protocol():
    with pytest.raises(TypeError, match="got NoFunction without `pure_fn`"):
        layers.AsKeras(NoFunction())
    with pytest.raises(TypeError, match="got int without `init` and `pure_fn`"):
        layers.AsKeras(3)
    with pytest.raises(TypeError, match="got float without"):
        layers.AsKeras(lambda: 0.5)
    with pytest.raises(TypeError, match="it is a Keras layer already"):
        layers.AsKeras(keras.layers.Dense(2))
    with pytest.raises(TypeError, match="pass `tfrl.layers.ModuleLayer"):
        layers.AsKeras(tf.Module())


def test_torch_modules_are_declined_with_the_reason():
    Linear = type("Linear", (), {"__module__": "torch.nn.modules.linear"})
    with pytest.raises(TypeError, match="torch computes outside TensorFlow.*state_di"):
        layers.AsKeras(Linear())


@pytest.mark.parametrize(
    ("layer", "error", "match"),
    [
        (Answers(start=1), TypeError, r"to return \(weights, state\); got int"),
        (Answers(result=lambda x: x), TypeError, r"to return \(outputs, new_state\)"),
        (Answers(start=("a", ())), TypeError, "`layer` expected arrays of numbers"),
        (
            Answers(result=lambda x: (x, 1)),
            ValueError,
            r"a new state of structure",
        ),
        (
            Answers(start=((), np.zeros([2])), result=lambda x: (x, np.zeros([3]))),
            ValueError,
            r"a new state of shape \(2,\); got \(3,\)",
        ),
        (
            Answers(result=lambda x: (_ for _ in ()).throw(Oops("fire", "water"))),
            RuntimeError,
            "`layer.pure_fn` of Answers raised Oops: fire and water",
        ),
    ],
    ids=["init", "pure_fn", "strings", "structure", "shape", "foreign error"],
)
def test_layers_that_break_the_protocol(layer, error, match):
    with pytest.raises(error, match=match):
        layers.AsKeras(layer)(np.ones([1, 2], "f"))


def test_layers_for_inference_with_other_weights():
    def make(training):
        return foreign_layers.Affine(2 + training)

    with pytest.raises(ValueError, match="weights and state for inference as for"):
        layers.AsKeras(make)(np.ones([1, 2], "f"))


@refusals.table(
    (
        layers.AsKeras,
        bad(ValueError, "batch_size", foreign_layers.Affine(2), batch_size=0),
        bad(TypeError, "batch_size", foreign_layers.Affine(2), batch_size=2.0),
        bad(TypeError, "rng", foreign_layers.Affine(2), rng=0.5),
        bad(
            TypeError,
            "initializer_rng",
            foreign_layers.Affine(2),
            initializer_rng=np.zeros([2], "f"),
        ),
        bad(ValueError, "dtype", foreign_layers.Affine(2), dtype="string"),
        bad(TypeError, "layer", lambda x, weights: x @ weights),
        bad(TypeError, "layer", lambda x, training: x),
        bad(TypeError, "layer", None),
    ),
    (
        layers.AsKeras(foreign_layers.Affine(2)),
        bad(TypeError, "inputs", tf.constant(["a"])),
    ),
    (
        layers.AsKeras(foreign_layers.Affine(2), rng=np.zeros([4], np.uint32)),
        bad(ValueError, "rng", np.ones([1, 2], "f")),
    ),
)
def test_bad_arguments(row):
    row()


@pytest.mark.parametrize("how", ["eager", "graph", "symbolic"])
def test_another_width_is_a_value_error_that_names_the_layer(how):
    layer = layers.AsKeras(foreign_layers.Affine(2))
    layer(np.ones([2, 3], "f"))
    inputs = keras.Input([4]) if how == "symbolic" else np.ones([2, 4], "f")
    call = tf.function(layer) if how == "graph" else layer
    with pytest.raises(ValueError, match=r"(?s)AsKeras.*4\) where it was built for"):
        call(inputs)
    assert layer(np.ones([5, 3], "f")).shape == (5, 2)


def test_output_shape_of_integers_and_before_building():
    class Table:
        def init(self, signature, rng):
            return np.ones([10, 3], np.float32), ()

        def pure_fn(self, x, weights, state, rng):
            return tf.gather(weights, x), state

    layer = layers.AsKeras(Table(), dtype="int32")
    assert layer.compute_output_shape((None, 5)) == (None, 5, 3)
    layer = layers.AsKeras(Table())
    layer(np.zeros([2, 5], np.int64))
    assert layer.compute_output_shape((None, 5)) == (None, 5, 3)


FORMS = {
    "int64": tf.constant(7, tf.int64),
    "uint64": tf.constant(7, tf.uint64),
    "int32 pair": tf.constant([7, 0]),
    "uint32 pair": tf.constant([7, 0], tf.uint32),
    "int64 vector": tf.constant([7], tf.int64),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_next_key_has_the_form_of_the_last(form):
    key = FORMS[form]
    following = _foreign.next_key(key)
    assert (following.shape, following.dtype) == (key.shape, key.dtype)
    bits = tf.reshape(tf.bitcast(following, tf.uint32), [2])
    np.testing.assert_array_equal(bits, philox(7)[:2])
    compiled = tf.function(_foreign.next_key, jit_compile=True)(key)
    np.testing.assert_array_equal(compiled, following)


def philox(key):
    """The first block of Philox 4x32 of ten rounds."""
    low, high, block = key % 2**32, key >> 32, [0, 0, 0, 0]
    for _ in range(10):
        one, two = 0xD2511F53 * block[0], 0xCD9E8D57 * block[2]
        block = [
            (two >> 32) ^ block[1] ^ low,
            two % 2**32,
            (one >> 32) ^ block[3] ^ high,
            one % 2**32,
        ]
        low, high = (low + 0x9E3779B9) % 2**32, (high + 0xBB67AE85) % 2**32
    return block
