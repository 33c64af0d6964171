"""Tests of `tfrl.training.exporting._node_names`."""

import keras
import numpy as np
import tensorflow as tf

from tfrl.training.exporting import _node_names

ROWS = tf.TensorSpec([None, 5, 3], name="Rows")


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
    _node_names.renumber(found)
    return found


def test_numbers_of_a_process_are_gone():
    one, two = settled("dense", "dense_1"), settled("dense_7", "dense_23")
    assert one.node_def == two.node_def
    assert (one.ret, one.control_ret) == (two.ret, two.control_ret)
    assert [x.name for x in one.signature.input_arg] == ["rows", "captured"]
    names = [node.name for node in one.node_def]
    assert len(set(names)) == len(names)
    assert {"dense/mul", "dense_1/Relu", "dense_1/Relu_1", "dense_1/add"} <= set(names)


def test_another_order_is_another_graph():
    assert settled("dense", "out").node_def != settled("out", "dense").node_def


def test_names_stay_apart():
    def call(captured):
        return [tf.identity(captured, name) for name in ("x_1", "x", "captured", "x_9")]

    _, found = definition(call, tf.TensorSpec([], name="captured"))
    _node_names.renumber(found)
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
        _node_names.renumber(each)
    (again,) = run(found, library, [rows, *weights])
    np.testing.assert_allclose(again, function(rows, *weights), rtol=1e-5)
