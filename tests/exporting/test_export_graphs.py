"""Tests of `tfrl.exporting.export`: endpoints as graphs, graphs of equal bytes."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl import ops
from tfrl.core import pytree
from tfrl.exporting import _graphs, endpoints, export

VECTOR = tf.TensorSpec([None])
Pair = collections.namedtuple("Pair", ["second", "first"])


class Node(pytree.PyTreeNode):
    x: tf.Tensor


def trace(function, **inputs):
    return _graphs.trace("export", "mine", function, inputs)[0]


def saved(folder, resources=(), **functions):
    _graphs.save("export", functions, list(resources), folder)
    return tf.saved_model.load(str(folder))


NEST = {"b": (1, [2, 3]), "a": Pair(second=4, first={"y": 5, "x": 6}), "c": ()}


def test_names_come_in_the_order_of_nest_and_lead_back():
    found = list(_graphs.named_leaves(NEST, "in"))
    assert [leaf for _, leaf in found] == tf.nest.flatten(NEST)
    assert [name for name, _ in found] == [
        *("in_a_second", "in_a_first_x", "in_a_first_y"),
        *("in_b_0", "in_b_1_0", "in_b_1_1"),
    ]
    packed = _graphs.packed({"in": NEST, "y": 0}, {**dict(found), "y": 7})
    assert packed == {"in": NEST, "y": 7}
    assert type(packed["in"]["a"]) is Pair


OUTPUTS = {
    "lone": (1, [("output_0", 1)]),
    "tuple": ((1, [2, 3]), [("output_0", 1), ("output_1_0", 2), ("output_1_1", 3)]),
    "dict": ({"b": (1,), "a": {"c": 2}}, [("a_c", 2), ("b_0", 1)]),
    "named tuple": (Pair(1, 2), [("second", 1), ("first", 2)]),
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_output_names(kind):
    outputs, wanted = OUTPUTS[kind]
    assert _graphs.output_leaves(outputs) == wanted


def test_nests_go_in_and_out():
    def step(observations, state):
        assert type(state) is Pair
        total = observations["eye"] + state.first
        return {"total": total, "state": Pair(total, state.second)}

    traced = trace(
        step, observations={"eye": VECTOR, "ear": VECTOR}, state=Pair(VECTOR, VECTOR)
    )
    one, two, three = (tf.constant([x]) for x in (1.0, 2.0, 3.0))
    found = traced(
        observations_eye=one, observations_ear=one, state_second=two, state_first=three
    )
    assert {k: float(x[0]) for k, x in found.items()} == {
        "total": 4.0,
        "state_second": 4.0,
        "state_first": 2.0,
    }


DISTRIBUTION = tfp.distributions.Normal(0.0, 1.0)
NO_TENSORS = {
    "distribution": (lambda x: DISTRIBUTION, "Normal as 'output_0'"),
    "none": (lambda x: None, "NoneType as 'output_0'"),
    "number": (lambda x: {"y": 1.0}, "float as 'y'"),
    "array": (lambda x: (x, np.ones(1)), "ndarray as 'output_1'"),
    "text": (lambda x: tf.as_string(x), "as 'output_0'"),
    "sparse": (lambda x: tf.sparse.from_dense(x), "SparseTensor as 'output_0'"),
    "node": (lambda x: {"state": Node(x)}, "Node as 'state'"),
}


@pytest.mark.parametrize("kind", NO_TENSORS)
def test_other_outputs_are_errors(kind):
    function, message = NO_TENSORS[kind]
    with pytest.raises(
        TypeError, match=f"`export`: endpoint 'mine' .*; got .*{message}"
    ):
        trace(function, x=VECTOR)


def test_variables_are_outputs_and_names_must_not_coincide():
    layer = keras.layers.Dense(1)
    layer.build([None, 1])
    assert trace(lambda: {"k": layer.bias})()["k"].shape == [1]
    with pytest.raises(ValueError, match="endpoint 'mine' .*; got 'a_b' twice"):
        trace(lambda x: {"a_b": x, "a": {"b": x}}, x=VECTOR)


INPUTS = {
    "no spec": ({"x": np.ones(2)}, TypeError, "a tf.TensorSpec of numbers .* for 'x'"),
    "text": ({"x": tf.TensorSpec([], tf.string)}, TypeError, "TensorSpec of numbers"),
    "twice": ({"x_0": VECTOR, "x": [VECTOR]}, ValueError, "identifiers .* got 'x_0'"),
    "no identifier": ({"x": {"two words": VECTOR}}, ValueError, "got 'x_two words'"),
    "case": ({"x_a": VECTOR, "x": {"A": VECTOR}}, ValueError, "got 'x_A'"),
    "other letters": ({"größe": VECTOR}, ValueError, "got 'größe'"),
    "underscore": ({"_x": VECTOR}, ValueError, "got '_x'"),
    "keyword": ({"class": VECTOR}, ValueError, "got 'class'"),
    "self": ({"self": VECTOR}, ValueError, "got 'self'"),
}


@pytest.mark.parametrize("kind", INPUTS)
def test_other_inputs_are_errors(kind):
    inputs, error, message = INPUTS[kind]
    with pytest.raises(error, match=f"`export`: `inputs` expected .*{message}"):
        trace(lambda **x: x, **inputs)


class Lazy(tf.Module):
    weight = None

    def __call__(self, x):
        if self.weight is None:
            self.weight = tf.Variable(2.0)
        return self.weight * x


@pytest.mark.parametrize(
    "make", [Lazy, lambda: keras.layers.Dense(2)], ids=["module", "layer"]
)
def test_what_is_not_built_is_an_error(make):
    content, spec = make(), tf.TensorSpec([None, 3])
    with pytest.raises(ValueError, match="`export`: endpoint 'mine' .* are built"):
        trace(lambda x: content(x), x=spec)
    content = make()
    content(tf.ones([1, 3]))
    assert trace(lambda x: content(x), x=spec) is not None


@pytest.mark.parametrize(
    "call", [tf.numpy_function, tf.py_function], ids=["numpy", "py"]
)
@pytest.mark.parametrize("nested", [True, False], ids=["nested", "plain"])
def test_python_within_is_an_error(call, nested):
    def function(x):
        return call(lambda y: y, [x], tf.float32)

    with pytest.raises(ValueError, match="`export`: endpoint 'mine' .*; got .*PyFunc"):
        trace(tf.function(function) if nested else function, x=VECTOR)


def test_what_has_a_state_is_saved(tmp_path):
    """A generator, a Keras seed, a count and a table, none an attribute."""
    generator, count = tf.random.Generator.from_seed(3), tf.Variable(1.0)
    dropout = keras.layers.Dropout(0.5, seed=1)
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, -1.0)
    table.insert(tf.constant([1], tf.int64), tf.constant([5.0]))
    functions = {
        "normal": trace(lambda: {"y": generator.normal([3])}),
        "drop": trace(lambda x: {"y": dropout(x, training=True)}, x=VECTOR),
        "add": trace(lambda x: {"y": count.assign_add(x)}, x=tf.TensorSpec([])),
        "look_up": trace(
            lambda x: {"y": table.lookup(x)}, x=tf.TensorSpec([None], tf.int64)
        ),
    }
    with pytest.raises(ValueError, match="`export`: `resources` expected all that"):
        _graphs.save("export", functions, [], tmp_path / "without")
    model = saved(tmp_path / "with", [table], **functions)
    call = model.signatures
    for total in (3.0, 5.0):
        np.testing.assert_array_equal(call["normal"]()["y"], generator.normal([3]))
        assert float(call["add"](x=tf.constant(2.0))["y"]) == total
    assert float(count) == 1.0
    x = tf.ones([100])
    np.testing.assert_array_equal(call["drop"](x=x)["y"], dropout(x, training=True))
    found = call["look_up"](x=tf.constant([1, 2], tf.int64))["y"]
    assert found.numpy().tolist() == [5.0, -1.0]


def xla_marks(folder):
    return (folder / "saved_model.pb").read_bytes().count(b"_XlaMustCompile")


@pytest.mark.slow
def test_functions_compiled_by_xla_become_plain(tmp_path):
    """The recursion of an op of ours that eager calls compile, and one of a user."""

    @tf.function(jit_compile=True)
    def doubled(x):
        return tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, 2 * x), (0, x))[1]

    def returns(rewards, discounts, values):
        return {"returns": doubled(ops.td_lambda_return(rewards, discounts, values))}

    rng = np.random.default_rng(0)
    spec = tf.TensorSpec([None, None])
    traced = trace(returns, rewards=spec, discounts=spec, values=spec)
    tf.saved_model.save(tf.Module(), str(tmp_path / "as_is"), {"returns": traced})
    assert xla_marks(tmp_path / "as_is") > 0
    model = saved(tmp_path / "model", returns=traced)
    assert xla_marks(tmp_path / "model") == 0
    for shape in ([4, 1], [4, 7], [3, 256]):
        given = {
            name: tf.constant(rng.normal(size=shape).astype(np.float32))
            for name in ("rewards", "discounts", "values")
        }
        found = model.signatures["returns"](**given)["returns"]
        np.testing.assert_allclose(found, returns(**given)["returns"], rtol=1e-5)


def test_ops_that_only_xla_knows_stay(tmp_path):
    def shard(x):
        return tf.raw_ops.XlaConcatND(inputs=[x, x], num_concats=[2])

    saved(tmp_path / "m", shard=trace(shard, x=VECTOR))
    assert b"XlaConcatND" in (tmp_path / "m" / "saved_model.pb").read_bytes()


def test_keras_finds_what_it_calls(tmp_path):
    """An attribute that takes one nest, beside the signatures."""
    inputs = {"x": {"a": VECTOR, "b": [VECTOR, VECTOR]}}

    def call(x):
        return {"sum": (x["a"] + x["b"][0], x["b"][1])}

    traced = trace(call, **inputs)
    serve = _graphs.nested(traced, inputs, {"sum": (0, 0)})
    _graphs.save("export", {"call": traced}, [], tmp_path / "m", serve)
    model = tf.saved_model.load(str(tmp_path / "m"))
    one, two, three = (tf.constant([x]) for x in (1.0, 2.0, 3.0))
    nest = {"a": one, "b": [two, three]}
    for given in (nest, {"x": nest}):
        first, second = model.serve(given)["sum"]
        assert (float(first[0]), float(second[0])) == (3.0, 3.0)
    # A part with the name of the whole.
    inputs = {"x": {"x": VECTOR}}
    serve = _graphs.nested(trace(lambda x: x["x"] * 2.0, **inputs), inputs, 0)
    assert serve({"x": {"x": tf.constant([2.0])}}).numpy().tolist() == [4.0]


def bytes_of(path):
    if path.is_file():
        return path.read_bytes()
    files = sorted(each for each in path.rglob("*") if each.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def network():
    inputs = keras.Input([5, 3])
    features = keras.layers.LSTM(4, unroll=True, name="memory")(inputs)
    return keras.Model(inputs, keras.layers.Dense(2, name="out")(features))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize(
    "name",
    ["model", "model.keras", pytest.param("model.tflite", marks=pytest.mark.slow)],
)
def test_a_model_and_its_copy_from_a_file(tmp_path, name):
    model = network()
    model.save(tmp_path / "model.keras")
    copy = keras.models.load_model(tmp_path / "model.keras")
    keras.layers.Dense(3)
    for folder, each in (("one", model), ("two", model), ("three", copy)):
        export.export_model(each, tmp_path / folder / name)
    first = bytes_of(tmp_path / "one" / name)
    assert first == bytes_of(tmp_path / "two" / name)
    assert first == bytes_of(tmp_path / "three" / name)
    export.verify(tmp_path / "one" / name)
    model.layers[-1].bias.assign_add([1.0, 0.0])
    export.export_model(model, tmp_path / "four" / name)
    assert first != bytes_of(tmp_path / "four" / name)


@tf.custom_gradient
def straight(x):
    return tf.round(x), lambda slope: 3.0 * slope


@tf.function
def halved(x):
    return 0.5 * x


def counting():
    """Variables of equal value, nested functions, a gradient of one's own."""
    one, two = tf.Variable(1.0), tf.Variable(1.0, trainable=False)

    def call(x):
        y = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, halved(y)), (0, x))
        y = tf.cond(y[1][0] > 1e6, lambda: y[1], lambda: halved(2.0 * y[1]))
        return {"y": straight(y) * one, "count": two.assign_add(1.0)}

    spec = {"x": tf.TensorSpec([None])}
    return {
        "call": endpoints.Endpoint(call, spec),
        "b": endpoints.Endpoint(lambda x: {"y": halved(x) - two + one}, spec),
    }


def test_functions_gradients_and_variables(tmp_path):
    for name in ("one", "two"):
        export.export_model(counting(), tmp_path / name)
        tf.function(lambda: tf.zeros([]))()
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "two")
    model = tf.saved_model.load(str(tmp_path / "one"))
    x = tf.constant([8.0, 24.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        found = model.signatures["call"](x=x)
    assert found["y"].numpy().tolist() == [1.0, 3.0]
    assert tape.gradient(found["y"], x).numpy().tolist() == [0.375, 0.375]
    assert [float(model.signatures["call"](x=x)["count"]) for _ in "ab"] == [3.0, 4.0]


def test_variables_come_in_the_order_of_their_use():
    kept = [tf.Variable(float(i)) for i in range(20)]
    order = np.random.default_rng(0).permutation(20)
    call = tf.function(lambda: tf.add_n([kept[i] * 2.0 for i in order]))
    found = _graphs.variables_of(call.get_concrete_function())
    assert [float(variable) for variable in found] == [float(i) for i in order]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_keras_files_keep_optimizers(tmp_path):
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    model.fit(np.ones([4, 3]), np.ones([4, 2]), verbose=0)
    export.export_model(model, tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.iterations.numpy() == 1
    for one, two in zip(loaded.weights, model.weights, strict=True):
        np.testing.assert_array_equal(one, two)


def definition(function, *specs):
    found = tf.function(function, autograph=False).get_concrete_function(*specs)
    return found, found.function_def


def settled(*names):
    """A graph of two scopes and a captured variable, by names that are given."""
    weight = tf.Variable(2.0, name=names[0])

    def call(rows):
        with tf.name_scope(names[0]):
            found = rows * weight
        with tf.name_scope(names[1]):
            return {"y": tf.nn.relu(found) + tf.nn.relu(rows)}

    _, found = definition(call, tf.TensorSpec([None, 3], name="Rows"))
    _graphs.rename_nodes(found)
    return found


def test_numbers_of_a_process_are_gone():
    one, two = settled("dense", "dense_1"), settled("dense_7", "dense_23")
    assert one.node_def == two.node_def
    assert (one.ret, one.control_ret) == (two.ret, two.control_ret)
    assert [x.name for x in one.signature.input_arg] == ["rows", "captured"]
    names = [node.name for node in one.node_def]
    assert len(set(names)) == len(names)
    assert {"dense/mul", "dense/Relu", "dense/Relu_1", "dense/add"} <= set(names)
    assert settled("out", "dense").node_def != one.node_def


def test_what_a_gradient_reads_of_the_graph_around_it_is_found_again(tmp_path):
    def call(x):
        steep = tf.identity(3.0 * x, "steep_7")

        @tf.custom_gradient
        def scaled(z):
            return 2.0 * z, lambda upstream: upstream * steep

        return {"y": scaled(x)}

    loaded = saved(tmp_path / "m", mine=trace(call, x=VECTOR))
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = loaded.signatures["mine"](x=x)["y"]
    np.testing.assert_array_equal(y, [2.0, 4.0])
    np.testing.assert_array_equal(tape.gradient(y, x), [3.0, 6.0])


def test_names_stay_apart():
    def call(captured):
        return [tf.identity(captured, name) for name in ("x_1", "x", "captured", "x_9")]

    _, found = definition(call, tf.TensorSpec([], name="captured"))
    _graphs.rename_nodes(found)
    names = [node.name for node in found.node_def]
    assert names[:4] == ["x", "x_1", "captured_1", "x_2"]
    assert [x.name for x in found.signature.output_arg][:2] == ["output_0", "output_1"]


def test_what_is_edited_is_still_there_to_be_edited(tmp_path):
    """What the edits rely on, which TensorFlow promises nobody."""
    doubled = tf.function(lambda x: 2.0 * x, jit_compile=True)
    call = tf.function(lambda x: {"y": doubled(x)}, autograph=False)
    traced = call.get_concrete_function(tf.TensorSpec([None], name="x"))
    tf.saved_model.save(tf.Module(), str(tmp_path / "m"), traced)
    data = (tmp_path / "m" / "saved_model.pb").read_bytes()
    for text, meaning in (
        (b"_XlaMustCompile", "functions to be compiled by XLA are marked otherwise"),
        (b"config_proto", "the devices of the process are written elsewhere, or not"),
        (b"_user_specified_name", "names of arguments are kept otherwise"),
        (b"__inference_", "functions are named otherwise"),
    ):
        assert text in data, f"saved_model.pb has no {text!r} any more: {meaning}"
    files = {path.name for path in (tmp_path / "m").iterdir()}
    assert "fingerprint.pb" in files, "the fingerprint is in another file, or gone"
    _graphs.settle(tmp_path / "m")
    data = (tmp_path / "m" / "saved_model.pb").read_bytes()
    assert b"_XlaMustCompile" not in data, "the mark of XLA outlives its removal"
    model = tf.saved_model.load(str(tmp_path / "m"))
    found = model.signatures["serving_default"](x=tf.constant([3.0]))["y"]
    assert found.numpy().tolist() == [6.0], "an edited graph computes something else"
