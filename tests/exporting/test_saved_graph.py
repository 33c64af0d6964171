"""Tests of `tfrl.exporting._saved_graph`: equal weights, equal bytes."""

import subprocess
import sys

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf
from export_examples import NAMED, trained

from tfrl.exporting import _saved_graph, _written, endpoints, export

S = gym.spaces
ROWS = tf.TensorSpec([None, 5, 3], name="Rows")


def bytes_of(path):
    if path.is_file():
        return path.read_bytes()
    files = sorted(each for each in path.rglob("*") if each.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


ELSEWHERE = """
import sys
import keras, numpy as np
for _ in range(3):
    keras.layers.Flatten(), keras.layers.Dense(1)(np.ones([1, 1]))
sys.path.insert(0, sys.argv[1])
import export_examples
from tfrl.exporting import export
export_examples.export_all(sys.argv[2])
"""


def test_agents_made_again_here_and_in_another_process(tmp_path):
    import export_examples

    for name in ("one", "two"):
        export_examples.export_all(tmp_path / name)
    folder = export_examples.__file__.rpartition("/")[0]
    command = [sys.executable, "-c", ELSEWHERE, folder, str(tmp_path / "three")]
    subprocess.run(command, check=True)
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["discrete", "discrete.tflite", "squashed", "squashed.tflite"]
    for name in names:
        first = bytes_of(tmp_path / "one" / name)
        for other in ("two", "three"):
            second = bytes_of(tmp_path / other / name)
            if isinstance(first, dict):
                assert [k for k in first if first[k] != second.get(k)] == [], other
            assert first == second, (name, other)


def network():
    inputs = keras.Input([5, 3])
    features = keras.layers.LSTM(4, unroll=True, name="memory")(inputs)
    return keras.Model(inputs, keras.layers.Dense(2, name="out")(features))


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("name", ["model", "model.keras", "model.tflite"])
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
        return {"y": straight(y[1]) * one, "count": two.assign_add(1.0)}

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
    found = _saved_graph.variables_of(call.get_concrete_function())
    assert [float(variable) for variable in found] == [float(i) for i in order]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_archives_keep_their_content(tmp_path):
    model = network()
    model.compile("adam", "mse")
    model.fit(np.ones([4, 5, 3]), np.ones([4, 2]), verbose=0)
    model.save(tmp_path / "model.keras")
    _written.settle_archive(tmp_path / "model.keras")
    assert [path.name for path in tmp_path.iterdir()] == ["model.keras"]
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.iterations.numpy() == 1
    for one, two in zip(loaded.weights, model.weights, strict=True):
        np.testing.assert_array_equal(one, two)


def test_the_first_generation_of_loaders_reads_it(tmp_path):
    """As servers do, in C++: by the graph and its signatures."""
    agent = trained(NAMED, S.Discrete(3))
    export.export_policy(agent, tmp_path / "p", NAMED, S.Discrete(3))
    rows = {"bits": np.ones([2, 2], "i1"), "kind": [0, 2], "x": np.ones([2, 2], "f")}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        load = tf.compat.v1.saved_model.load
        model = load(session, ["serve"], str(tmp_path / "p"))
        signature = model.signature_def["serving_default"]
        given = {signature.inputs[name].name: rows[name] for name in rows}
        found = session.run(signature.outputs["actions"].name, given)
    rows = {name: np.asarray(value) for name, value in rows.items()}
    np.testing.assert_array_equal(
        found, agent.policy.act(rows, temperature=0.0).actions
    )


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

    _, found = definition(call, ROWS)
    _saved_graph.rename_nodes(found)
    return found


def test_numbers_of_a_process_are_gone():
    one, two = settled("dense", "dense_1"), settled("dense_7", "dense_23")
    assert one.node_def == two.node_def
    assert (one.ret, one.control_ret) == (two.ret, two.control_ret)
    assert [x.name for x in one.signature.input_arg] == ["rows", "captured"]
    names = [node.name for node in one.node_def]
    assert len(set(names)) == len(names)
    assert {"dense/mul", "dense/Relu", "dense/Relu_1", "dense/add"} <= set(names)


def test_another_order_is_another_graph():
    assert settled("dense", "out").node_def != settled("out", "dense").node_def


def test_names_stay_apart():
    def call(captured):
        return [tf.identity(captured, name) for name in ("x_1", "x", "captured", "x_9")]

    _, found = definition(call, tf.TensorSpec([], name="captured"))
    _saved_graph.rename_nodes(found)
    names = [node.name for node in found.node_def]
    assert names[:4] == ["x", "x_1", "captured_1", "x_2"]
    assert [x.name for x in found.signature.output_arg][:2] == ["output_0", "output_1"]


def run(function, definitions, arguments):
    """Calls a function that was made anew of its definition."""
    graph = tf.compat.v1.GraphDef()
    graph.library.function.extend(definitions)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.import_graph_def(graph, name="")
        inputs = [tf.constant(x) for x in arguments]
        types = [x.type for x in function.signature.output_arg]
        name = function.signature.name
        call = tf.raw_ops.PartitionedCall(args=inputs, Tout=types, f=_named(name))
        return session.run(call)


def _named(name):
    from tensorflow.core.framework import attr_value_pb2

    return attr_value_pb2.NameAttrList(name=name)


def test_loops_and_conditions_compute_what_they_did():
    layer = keras.layers.SimpleRNN(4)
    rows = np.random.default_rng(0).normal(size=[2, 5, 3]).astype(np.float32)
    layer(rows)
    weights = [tf.constant(x) for x in layer.get_weights()]

    def call(rows, *weights):
        pairs = zip(layer.trainable_variables, weights, strict=True)
        with keras.StatelessScope(state_mapping=pairs):
            found = layer(rows)
        return tf.cond(tf.reduce_sum(found) > 1e6, lambda: found, lambda: 2.0 * found)

    specs = [tf.TensorSpec(x.shape, x.dtype) for x in weights]
    function, found = definition(call, ROWS, *specs)
    library = [found, *function.graph.as_graph_def().library.function]
    for each in library:
        _saved_graph.rename_nodes(each)
    (again,) = run(found, library, [rows, *weights])
    np.testing.assert_allclose(again, function(rows, *weights), rtol=1e-5)


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
    _saved_graph.settle(tmp_path / "m")
    data = (tmp_path / "m" / "saved_model.pb").read_bytes()
    assert b"_XlaMustCompile" not in data, "the mark of XLA outlives its removal"
    model = tf.saved_model.load(str(tmp_path / "m"))
    found = model.signatures["serving_default"](x=tf.constant([3.0]))["y"]
    assert found.numpy().tolist() == [6.0], "an edited graph computes something else"
