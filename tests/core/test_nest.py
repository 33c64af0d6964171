"""Tests of tfrl.core.nest."""

import collections
import types

import golden_io
import keras
import numpy as np
import pytest
import refusals
import tensorflow as tf
import tensorflow_probability as tfp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from refusals import bad

from tfrl.core import nest, pytree

NT = collections.namedtuple("NT", "b a")
tfd = tfp.distributions


class Node(pytree.PyTreeNode):
    x: object
    label: str = pytree.nonpytree_field(default="")


def assert_same(found, expected):
    """Compares nests of numbers leaf by leaf in the order of the keys."""
    if isinstance(expected, dict):
        assert sorted(found) == sorted(expected)
        for key in expected:
            assert_same(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert type(found).__name__ == type(expected).__name__
        for one, two in zip(found, expected, strict=True):
            assert_same(one, two)
    elif expected is None:
        assert found is None
    else:
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_merge_dicts_warns_of_coinciding_keys():
    first = {"a": 1, "b": 1}
    with pytest.warns(UserWarning, match=r"`merge_dicts`: .* got \['b'\] twice"):
        assert nest.merge_dicts(first, {"b": 2, "c": 3}) == {"a": 1, "b": 2, "c": 3}
    assert first == {"a": 1, "b": 1}


def test_detach_stops_gradients_and_keeps_everything_else():
    x = tf.Variable([1.0, 2.0])
    array = np.ones(2)
    with tf.GradientTape() as tape:
        inputs = {"a": [x * 2.0, x], "n": None, "s": "text", "f": 1.5, "np": array}
        found = nest.detach(inputs)
        total = tf.reduce_sum(found["a"][0] * found["a"][1] * x)
    np.testing.assert_array_equal(tape.gradient(total, x), [2.0, 8.0])
    assert found["n"] is None and found["s"] == "text" and found["f"] == 1.5
    assert found["np"] is array


def test_detach_keras_variables_nodes_and_graphs():
    variable = keras.Variable([2.0])

    @tf.function
    def gradient():
        with tf.GradientTape() as tape:
            node = nest.detach(Node(variable * 1.0, "kept"))
            loss = tf.reduce_sum(variable * node.x * nest.detach(variable))
        assert node.label == "kept"
        return tape.gradient(loss, variable.value)

    np.testing.assert_array_equal(gradient(), [4.0])


@pytest.mark.parametrize(
    "make",
    [
        lambda loc: tfd.Normal(loc, 1.0),
        lambda loc: tfd.Independent(tfd.Normal(loc, tf.ones(2)), 1),
        lambda loc: tfd.TransformedDistribution(
            tfd.Normal(loc, 1.0), tfp.bijectors.Shift([0.5, 0.5])
        ),
        lambda loc: tfd.MixtureSameFamily(
            tfd.Categorical(logits=[0.1, 0.2]), tfd.Normal(loc, 1.0)
        ),
    ],
    ids=["normal", "independent", "transformed", "mixture"],
)
def test_detach_distributions(make):
    loc = tf.Variable([1.0, 2.0])
    with tf.GradientTape(persistent=True) as tape:
        attached = make(loc * 1.0)
        detached = nest.detach({"d": attached})["d"]
        value = tf.constant([0.5, 0.5])
        free, held = attached.log_prob(value), detached.log_prob(value)
    assert type(detached) is type(attached)
    np.testing.assert_allclose(held, free, rtol=1e-6)
    assert tape.gradient(free, loc) is not None
    assert tape.gradient(held, loc) is None


def test_detach_rejects_hidden_distributions():
    class Hidden:
        def log_prob(self, value):
            return value

    with pytest.raises(TypeError, match="`nests` expected distributions"):
        nest.detach([Hidden()])


def paths(obj):
    return [path for path, _ in nest.get_all_parameters(obj)]


def test_get_all_parameters_golden():
    (case,) = golden_io.load("alf/common", symbol="get_all_parameters")
    dense = keras.layers.Dense(2)
    dense.build([None, 3])
    scale, shift = tf.Variable(1.0), tf.Variable(2.0)
    holder = types.SimpleNamespace(
        _alias=[dense],
        _dict={4: scale, "a": shift},
        again=(dense, {"scale": scale}),
        tensor=tf.ones(3),
    )
    renamed = [path.replace("kernel", "weight") for path in paths(holder)]
    assert sorted(renamed) == case["out"]["paths"]
    found = dict(nest.get_all_parameters(holder))
    assert found["_dict.4"] is scale and found["_alias.0.kernel"] is dense.kernel


def test_get_all_parameters_of_a_module_with_cycles():
    module = tf.Module()
    module.child = tf.Module()
    module.child.parent = module
    module.child.weights = [tf.Variable(1.0), {"deep": keras.Variable(2.0)}]
    module.self_list = [module]
    module.function = tf.function(lambda: module.child.weights[0])
    module.kind = keras.layers.Dense
    assert paths(module) == ["child.weights.0", "child.weights.1.deep"]


def test_get_all_parameters_is_breadth_first():
    shared = tf.Variable(1.0)
    holder = types.SimpleNamespace(deep={"er": {"est": shared}}, near=[shared])
    assert paths(holder) == ["near.0"]


def test_get_all_parameters_of_keras_objects():
    class Block(keras.layers.Layer):
        def __init__(self):
            super().__init__(name="block")
            self._hidden = keras.layers.Dense(2, name="hidden")
            self._norm = keras.layers.BatchNormalization(name="norm")
            self.raw = tf.Variable(1.0)

        def build(self, shape):
            self._hidden.build(shape)
            self._norm.build([None, 2])

    block = Block()
    block.build([None, 3])
    model = keras.Sequential([keras.Input([3]), block])
    found = nest.get_all_parameters({"model": model, "block": block})
    variables = [variable for _, variable in found]
    assert len(variables) == 7 and len({id(v) for v in variables}) == 7
    assert {id(v) for v in variables} >= {id(v) for v in block.variables}
    assert any(variable is block.raw for variable in variables)
    assert all(path.startswith(("model.", "block.")) for path, _ in found)


def test_get_all_parameters_of_an_optimizer_leaves_the_model_out():
    weight = keras.Variable([1.0])
    optimizer = keras.optimizers.Adam()
    optimizer.build([weight])
    found = nest.get_all_parameters(optimizer)
    assert all(variable is not weight for _, variable in found)
    assert len(found) == len(optimizer.variables)


def test_get_all_parameters_of_a_node_a_variable_and_nothing():
    variable = tf.Variable(1.0)
    assert nest.get_all_parameters(Node({"w": variable})) == [("x.w", variable)]
    assert nest.get_all_parameters(variable) == [("", variable)]
    for empty in (None, 3, "text", np.ones(2), tf.ones(2), {}, print, keras):
        assert nest.get_all_parameters(empty) == []


@pytest.mark.parametrize("index", [0, -1, 2])
def test_batch_to_single_of_tensors(index):
    batch = {"x": tf.reshape(tf.range(6), [3, 2]), "n": None}
    found = nest.batch_to_single(batch, index)
    np.testing.assert_array_equal(found["x"], batch["x"].numpy()[index])
    assert found["n"] is None
    pick = tf.function(nest.batch_to_single)
    np.testing.assert_array_equal(pick(batch, tf.constant(index))["x"], found["x"])


@refusals.table(
    (
        nest.batch_to_single,
        bad(ValueError, "index", np.zeros(3), 3),
        bad(ValueError, "index", tf.zeros(3), -4),
        bad(TypeError, "pytree", tf.zeros([]), 0),
        bad(TypeError, "pytree", [1.0], 0),
    ),
    (
        nest.stack_trees,
        bad(TypeError, "trees", {"a": 1}),
        bad(ValueError, "trees", []),
    ),
    (nest.tree_ravel, bad(ValueError, "pytree", {"a": [], "n": None})),
)
def test_refusals(row):
    row()


trees = st.recursive(
    npst.arrays(
        np.float32, npst.array_shapes(max_dims=2, max_side=3), elements=st.just(1)
    )
    | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
        | st.builds(NT, inner, inner)
        | st.builds(Node, inner)
    ),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=30)
@given(trees)
def test_single_to_batch_and_back(tree):
    batch = nest.single_to_batch(tree)
    tf.nest.assert_same_structure(batch, tree)
    for one, two in zip(
        tf.nest.flatten(nest.batch_to_single(batch)), tf.nest.flatten(tree), strict=True
    ):
        assert (one is None) == (two is None)
        if one is not None:
            assert one.dtype == two.dtype
            np.testing.assert_array_equal(one, two)


def test_single_to_batch_keeps_the_kind_of_array():
    found = nest.single_to_batch({"t": tf.ones([2]), "n": np.ones(2, np.int8), "f": 3})
    assert tf.is_tensor(found["t"]) and found["t"].shape == [1, 2]
    assert found["n"].dtype == np.int8 and found["n"].shape == (1, 2)
    assert found["f"].shape == (1,)


def test_stack_trees_in_graph_and_vectorized():
    def total(w, b, x):
        return tf.reduce_sum(w * x) + b

    params = [{"w": tf.ones(2) * i, "b": tf.constant(float(i))} for i in range(3)]

    @tf.function
    def ensemble(*params):
        (stacked,) = nest.stack_trees(params)
        return tf.vectorized_map(
            lambda p: total(p["w"], p["b"], tf.constant([1.0, 2.0])), stacked
        )

    np.testing.assert_array_equal(ensemble(*params), [0.0, 4.0, 8.0])
    assert nest.stack_trees() == ()
    assert nest.stack_trees([None, None]) == (None,)


def test_tree_ravel_promotes_dtypes():
    mixed = [np.array([1], np.int32), tf.constant([0.5], tf.float64), None, True]
    found = nest.tree_ravel(mixed)
    assert found.dtype == tf.float64
    np.testing.assert_array_equal(found, [1.0, 0.5, 1.0])
    halves = [tf.ones(1, tf.bfloat16), tf.ones([1, 2], tf.bfloat16)]
    assert nest.tree_ravel(halves).dtype == tf.bfloat16
    assert nest.tree_ravel(np.zeros([2, 0])).shape == [0]


def test_tree_ravel_has_gradients_and_runs_in_graphs():
    weights = {"b": tf.Variable([1.0]), "a": tf.Variable([[2.0, 3.0]])}

    @tf.function
    def gradient():
        with tf.GradientTape() as tape:
            norm = tf.reduce_sum(nest.tree_ravel(weights) ** 2)
        return tape.gradient(norm, weights)

    np.testing.assert_array_equal(gradient()["a"], [[4.0, 6.0]])


def doubled(x):
    return 2 * x


def added(x, y):
    return x + y


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("unvectorize_single", doubled),
        ("unvectorize_none", added),
        ("unvectorize_multi_outaxes", lambda x, y: (x + y, {"d": x * y})),
    ],
)
def test_unvectorize_golden(name, function):
    (case,) = [c for c in golden_io.load("coax/array") if c["id"] == name]
    single = nest.unvectorize(function, **case["kwargs"])
    expected, arrays = case["outputs"]["result"], case["inputs"].values()
    assert_same(single(*arrays), expected)
    assert_same(single(*map(tf.constant, arrays)), expected)


@refusals.table(
    (
        lambda f, *args, **axes: nest.unvectorize(f, **axes)(*args),
        bad(ValueError, "in_axes", lambda x, y: x + y, 1.0, 2.0, in_axes=(0,)),
        bad(TypeError, "out_axes", doubled, 1.0, out_axes=(0,)),
        bad(ValueError, "out_axes", lambda x: (x, x), 1.0, out_axes=(0,)),
        bad(ValueError, "out_axes", doubled, np.ones(3), out_axes=1),
        bad(ValueError, "out_axes", doubled, np.ones(3), out_axes=2),
        bad(ValueError, "out_axes", tf.reduce_sum, tf.ones(3)),
    )
)
def test_unvectorize_rejects(row):
    row()


def test_unvectorize_nests_axes_and_graphs():
    def network(inputs, scale):
        """Sums features."""
        return NT(tf.reduce_sum(inputs["x"], axis=0), inputs["x"] * scale)

    single = nest.unvectorize(network, in_axes=(1, None), out_axes=(0, 1))
    assert single.__doc__ == "Sums features."
    for call in (single, tf.function(single)):
        found = call({"x": tf.constant([1.0, 2.0])}, tf.constant(3.0))
        assert isinstance(found, NT)
        np.testing.assert_array_equal(found.b, 3.0)
        np.testing.assert_array_equal(found.a, [3.0, 6.0])
    layer = keras.layers.Dense(4)
    assert nest.unvectorize(layer)(tf.ones(3)).shape == [4]
