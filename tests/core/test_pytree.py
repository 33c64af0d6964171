"""Tests of tfrl.core.pytree."""

import copy
import dataclasses
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from tfrl.core import pytree


class Inner(pytree.PyTreeNode):
    scale: Any


class Node(pytree.PyTreeNode):
    weights: Any
    config: dict = pytree.nonpytree_field(default_factory=dict)
    inner: Inner | None = None
    name: str = pytree.nonpytree_field(default="node")


class Child(Node):
    extra: Any = 0.0


class Pair(NamedTuple):
    first: Any
    other: Any


def made(**changes: Any) -> Node:
    node = Node(
        weights={"b": tf.constant([1.0, 2.0]), "a": tf.constant(3.0)},
        config={"gamma": 0.5, "sizes": (4, 4)},
        inner=Inner(tf.constant(2.0)),
    )
    return node.replace(**changes)


def scaled(node: Node) -> Node:
    factor = node.config["gamma"] * node.inner.scale
    return node.replace(
        weights=tf.nest.map_structure(lambda w: w * factor, node.weights)
    )


def test_flatten_follows_declaration_and_skips_static_fields():
    flat = tf.nest.flatten(made())
    assert [np.ravel(leaf).tolist() for leaf in flat] == [[3.0], [1.0, 2.0], [2.0]]
    rebuilt = tf.nest.pack_sequence_as(made(), [1, 2, 3])
    assert rebuilt.weights == {"a": 1, "b": 2} and rebuilt.inner.scale == 3
    assert rebuilt.config == {"gamma": 0.5, "sizes": (4, 4)}
    assert type(rebuilt) is Node


def test_map_structure_over_two_nodes_and_children():
    child = Child(weights=1.0, inner=Inner(2.0), extra=3.0)
    total = tf.nest.map_structure(lambda x, y: x + y, child, child)
    assert (total.weights, total.inner.scale, total.extra) == (2.0, 4.0, 6.0)
    assert isinstance(total, Child)


def test_structures_of_other_classes_differ():
    tf.nest.assert_same_structure(made(), made())
    with pytest.raises((TypeError, ValueError)):
        tf.nest.assert_same_structure(Inner(1), Node(1))
    with pytest.raises((TypeError, ValueError)):
        tf.nest.assert_same_structure(made(), made(inner=None))


def test_functions_take_and_return_nodes_and_trace_per_static_value():
    traces = []

    @tf.function
    def step(node):
        traces.append(node.config["gamma"])
        return scaled(node), node.inner

    node = made()
    for _ in range(3):
        node, inner = step(node)
        node = node.replace(config={"gamma": 0.5, "sizes": (4, 4)})
    assert traces == [0.5]
    np.testing.assert_array_equal(node.weights["b"], [1.0, 2.0])
    assert isinstance(inner, Inner) and node.name == "node"
    out, _ = step(node.replace(config={"gamma": 2.0}))
    assert traces == [0.5, 2.0]
    np.testing.assert_array_equal(out.weights["b"], [4.0, 8.0])


@pytest.mark.parametrize(
    ("same", "first", "second"),
    [
        (True, np.array([1, 2]), np.array([1, 2])),
        (False, np.array([1, 2]), np.array([1, 3])),
        (False, np.array([1]), np.array([1.0])),
        (True, {"a": [1]}, {"a": [1]}),
        (False, {"a": [1]}, {"a": [2]}),
        (False, {"a": 1}, {"a": 1.0}),
        (False, {"a": 1}, {"b": 1}),
        (True, {"a": [np.array([1, 2])]}, {"a": [np.array([1, 2])]}),
        (False, {"a": [np.array([1, 2])]}, {"a": [np.array([1, 3])]}),
        (False, (np.array([1, 2]),), (np.array([1, 3]),)),
        (False, 1, 1.0),
        (False, True, 1),
        (True, len, len),
    ],
)
def test_static_values_decide_on_traces(same, first, second):
    traces = []

    @tf.function
    def read(node):
        traces.append(1)
        return node.weights

    read(Node(tf.ones(2), config=first))
    read(Node(tf.ones(2), config=second))
    assert len(traces) == (1 if same else 2)


def test_leaves_of_all_kinds_enter_functions():
    traces = []

    @tf.function
    def step(node):
        traces.append(1)
        variable, array, ragged, number, none, text, pair = node.weights
        assert isinstance(array, tf.Tensor) and (none, text) == (None, "x")
        variable.assign_add(1.0)
        total = array + number * variable + tf.reduce_sum(ragged) + pair.first
        return node.replace(weights=[total, ragged, pair._replace(first=total)])

    variable, ragged = tf.Variable(1.0), tf.ragged.constant([[1.0], [2.0, 3.0]])
    numbers = [np.float32(2.0), np.full([], 3.0, "f")]
    for number, array in [(2.0, numbers[0]), (2.0, numbers[1]), (4.0, numbers[0])]:
        pair = Pair(tf.constant(5.0), {"b": 1, "a": 2})
        given = [variable, array, ragged, number, None, "x", pair]
        before = variable.numpy()
        total, same, pair = step(Node(given)).weights
        assert total == array + number * (before + 1.0) + 6.0 + 5.0
        assert same.to_list() == ragged.to_list()
        assert isinstance(pair, Pair) and list(pair.other) == ["b", "a"]
        np.testing.assert_array_equal(pair.first, total)
    assert len(traces) == 2, "numbers that are no tensors are static"


def test_keys_in_another_order_are_no_other_trace():
    traces = []

    @tf.function
    def difference(node):
        traces.append(list(node.weights))
        return node.weights["a"] - node.weights["b"]

    one, two = tf.constant(1.0), tf.constant(2.0)
    assert difference(Node({"b": one, "a": two})) == 1.0
    assert difference(Node({"a": two, "b": one})) == 1.0
    assert traces == [["b", "a"]]


def test_a_signature_of_unknown_sizes_takes_nodes_of_all_sizes():
    def total(node):
        return tf.reduce_sum(node.weights)

    spec = Node(tf.TensorSpec([None]), inner=Inner(tf.TensorSpec([])))
    function = tf.function(total, input_signature=[spec])
    concrete = tf.function(total).get_concrete_function(spec)
    for n in (2, 5):
        node = Node(np.ones(n, "f"), inner=Inner(tf.constant(0.0)))
        assert function(node) == concrete(node) == n
    relaxed = tf.function(total, reduce_retracing=True)
    nodes = [Node(tf.ones(n), name=str(n % 2)) for n in (1, 2, 3)]
    assert [float(relaxed(node)) for node in nodes] == [1.0, 2.0, 3.0]


def test_while_loop_and_cond():
    @tf.function
    def run(node, limit):
        _, node = tf.while_loop(
            lambda i, node: i < limit,
            lambda i, node: (i + 1, scaled(node)),
            (tf.constant(0), node),
        )
        return tf.cond(limit > 2, lambda: node, lambda: scaled(node))

    node = made(config={"gamma": 1.0})
    np.testing.assert_array_equal(run(node, tf.constant(3)).weights["a"], 24.0)
    np.testing.assert_array_equal(run(node, tf.constant(1)).weights["a"], 12.0)
    assert run(node, tf.constant(1)).config == {"gamma": 1.0}


def test_datasets():
    rows = tf.data.Dataset.from_tensor_slices(Inner(tf.range(4))).map(
        lambda node: node.replace(scale=node.scale + 1)
    )
    assert [int(node.scale) for node in rows] == [1, 2, 3, 4]


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_gradient_with_respect_to_the_tensors_of_a_node(graph):
    def gradient(node):
        with tf.GradientTape() as tape:
            tape.watch(node.weights)
            loss = tf.reduce_sum(node.weights["b"] ** 2) * node.weights["a"]
        grads = tape.gradient(loss, node.weights)
        return node.replace(weights=grads)

    found = (tf.function(gradient) if graph else gradient)(made())
    np.testing.assert_array_equal(found.weights["b"], [6.0, 12.0])
    np.testing.assert_array_equal(found.weights["a"], 5.0)


def test_nodes_enter_strategy_run():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    node = made()

    @tf.function
    def run(node):
        def replica(node):
            context = tf.distribute.get_replica_context()
            share = tf.cast(context.replica_id_in_sync_group, tf.float32) + 1.0
            moved = scaled(node)
            mean = context.all_reduce("MEAN", moved.weights["b"] * share)
            return tf.nest.flatten(moved.replace(weights=mean))

        return strategy.run(replica, args=(node,))

    weights, scale = run(node)
    assert strategy.num_replicas_in_sync == 2
    for value in strategy.experimental_local_results(weights):
        np.testing.assert_array_equal(value, [1.5, 3.0])
    for value in strategy.experimental_local_results(scale):
        np.testing.assert_array_equal(value, 2.0)


@pytest.mark.parametrize(
    "clone",
    [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy, copy.copy],
    ids=["pickle", "deepcopy", "copy"],
)
def test_copies(clone):
    node = Node(np.ones(2), {"gamma": 0.9}, Inner(np.zeros(1)), "copied")
    found = clone(node)
    tf.nest.assert_same_structure(found, node)
    np.testing.assert_array_equal(found.weights, [1.0, 1.0])
    assert (found.config, found.name) == ({"gamma": 0.9}, "copied")


def test_nodes_are_immutable_and_replace_makes_a_copy():
    node = made()
    with pytest.raises(dataclasses.FrozenInstanceError):
        node.name = "other"
    other = node.replace(name="other", inner=None)
    assert (node.name, other.name) == ("node", "other")
    assert node.inner is not None and other.inner is None
    assert other.weights is node.weights


def test_replace_rejects_unknown_fields():
    match = r"`Node.replace`: `changes` expected one of .*; got '(nam|wait)'"
    with pytest.raises(ValueError, match=match):
        made().replace(wait=1, name="x", nam=2)


def test_nonpytree_field_takes_what_dataclass_fields_take():
    class Marked(pytree.PyTreeNode):
        size: int = pytree.nonpytree_field(
            default=3, metadata={"unit": "m"}, repr=False
        )

    (field,) = dataclasses.fields(Marked)
    assert field.metadata["unit"] == "m" and Marked().size == 3
    assert "size" not in repr(Marked())
    assert tf.nest.flatten(Marked()) == []
    with pytest.raises(TypeError, match="required|missing"):
        Inner()
