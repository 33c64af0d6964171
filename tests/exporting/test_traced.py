"""Tests of `tfrl.exporting._traced`."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl import ops
from tfrl.core import pytree
from tfrl.exporting import _traced

VECTOR = tf.TensorSpec([None])
Pair = collections.namedtuple("Pair", ["second", "first"])


class Node(pytree.PyTreeNode):
    x: tf.Tensor


def trace(function, **inputs):
    return _traced.trace("export", "mine", function, inputs)[0]


def saved(folder, resources=(), **functions):
    _traced.save("export", functions, list(resources), folder)
    return tf.saved_model.load(str(folder))


NEST = {"b": (1, [2, 3]), "a": Pair(second=4, first={"y": 5, "x": 6}), "c": ()}


def test_names_come_in_the_order_of_nest():
    found = list(_traced.named_leaves(NEST, "in"))
    assert [leaf for _, leaf in found] == tf.nest.flatten(NEST)
    assert [name for name, _ in found] == [
        *("in_a_second", "in_a_first_x", "in_a_first_y"),
        *("in_b_0", "in_b_1_0", "in_b_1_1"),
    ]
    assert list(_traced.named_leaves({"a": {"b": 1}}, "")) == [("a_b", 1)]
    assert list(_traced.named_leaves(1, "x")) == [("x", 1)]


def test_packed_is_the_way_back():
    given = dict(_traced.named_leaves(NEST, "x"))
    packed = _traced.packed({"x": NEST, "y": 0}, {**given, "y": 7})
    assert packed == {"x": NEST, "y": 7}
    assert type(packed["x"]["a"]) is Pair


OUTPUTS = {
    "lone": (1, [("output_0", 1)]),
    "tuple": ((1, [2, 3]), [("output_0", 1), ("output_1_0", 2), ("output_1_1", 3)]),
    "dict": ({"b": (1,), "a": 2}, [("a", 2), ("b_0", 1)]),
    "named tuple": (Pair(1, 2), [("second", 1), ("first", 2)]),
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_output_names(kind):
    outputs, wanted = OUTPUTS[kind]
    assert _traced.output_leaves(outputs) == wanted


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


def test_variables_are_outputs_too():
    layer = keras.layers.Dense(1)
    layer.build([None, 1])
    traced = trace(lambda: {"v": tf.Variable, "k": layer.bias} and {"k": layer.bias})
    assert traced()["k"].shape == [1]


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
    start = "`export`: endpoint 'mine' expected to return dense tensors of numbers; got"
    with pytest.raises(TypeError, match=f"{start} .*{message}"):
        trace(function, x=VECTOR)


def test_output_names_that_coincide():
    with pytest.raises(ValueError, match="distinct names when joined; got 'a_b' twice"):
        trace(lambda x: {"a_b": x, "a": {"b": x}}, x=VECTOR)


INPUTS = {
    "no spec": ({"x": np.ones(2)}, TypeError, "a tf.TensorSpec of numbers .* for 'x'"),
    "text": (
        {"x": tf.TensorSpec([], tf.string)},
        TypeError,
        "tf.TensorSpec of numbers",
    ),
    "twice": ({"x_0": VECTOR, "x": [VECTOR]}, ValueError, "identifiers .* got 'x_0'"),
    "no identifier": ({"x": {"two words": VECTOR}}, ValueError, "got 'x_two words'"),
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
    message = "`export`: endpoint 'mine' expected a function whose .* are built"
    with pytest.raises(ValueError, match=message):
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

    message = "`export`: endpoint 'mine' expected TensorFlow ops alone; got .*PyFunc"
    with pytest.raises(ValueError, match=message):
        trace(tf.function(function) if nested else function, x=VECTOR)


def test_what_has_a_state_is_saved(tmp_path):
    """A generator, a Keras seed, layers in a list, and a table, none an attribute."""
    generator = tf.random.Generator.from_seed(3)
    dropout = keras.layers.Dropout(0.5, seed=1)
    layers = [keras.layers.Dense(2) for _ in range(2)]
    for layer in layers:
        layer.build([None, 2])
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, -1.0)
    table.insert(tf.constant([1], tf.int64), tf.constant([5.0]))
    functions = {
        "normal": trace(lambda: {"y": generator.normal([3])}),
        "drop": trace(lambda x: {"y": dropout(x, training=True)}, x=VECTOR),
        "layers": trace(
            lambda x: {"y": layers[1](layers[0](x))}, x=tf.TensorSpec([None, 2])
        ),
        "look_up": trace(
            lambda x: {"y": table.lookup(x)}, x=tf.TensorSpec([None], tf.int64)
        ),
    }
    with pytest.raises(ValueError, match="`export`: `resources` expected all that"):
        _traced.save("export", functions, [], tmp_path / "without")
    model = saved(tmp_path / "with", [table], **functions)
    call = model.signatures
    np.testing.assert_array_equal(call["normal"]()["y"], generator.normal([3]))
    np.testing.assert_array_equal(call["normal"]()["y"], generator.normal([3]))
    x = tf.ones([100])
    np.testing.assert_array_equal(call["drop"](x=x)["y"], dropout(x, training=True))
    x = tf.ones([5, 2])
    np.testing.assert_allclose(
        call["layers"](x=x)["y"], layers[1](layers[0](x)), rtol=1e-6
    )
    found = call["look_up"](x=tf.constant([1, 2], tf.int64))["y"]
    assert found.numpy().tolist() == [5.0, -1.0]


def test_updates_stay_updates(tmp_path):
    count = tf.Variable(1.0)
    traced = trace(lambda x: {"count": count.assign_add(x)}, x=tf.TensorSpec([]))
    model = saved(tmp_path / "model", add=traced)
    add = model.signatures["add"]
    for wanted in (3.0, 5.0):
        assert float(add(x=tf.constant(2.0))["count"]) == wanted
    assert float(count) == 1.0


def xla_marks(folder):
    return (folder / "saved_model.pb").read_bytes().count(b"_XlaMustCompile")


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


def test_keras_finds_what_it_calls(tmp_path):
    """An attribute that takes one nest, beside the signatures."""
    inputs = {"x": {"a": VECTOR, "b": [VECTOR, VECTOR]}}

    def call(x):
        return {"sum": (x["a"] + x["b"][0], x["b"][1])}

    traced = trace(call, **inputs)
    serve = _traced.nested(traced, inputs, {"sum": (0, 0)})
    _traced.save("export", {"call": traced}, [], tmp_path / "m", serve)
    model = tf.saved_model.load(str(tmp_path / "m"))
    one, two, three = (tf.constant([x]) for x in (1.0, 2.0, 3.0))
    nest = {"a": one, "b": [two, three]}
    for given in (nest, {"x": nest}):
        first, second = model.serve(given)["sum"]
        assert (float(first[0]), float(second[0])) == (3.0, 3.0)


def test_a_part_with_the_name_of_the_whole(tmp_path):
    inputs = {"x": {"x": VECTOR}}
    serve = _traced.nested(trace(lambda x: x["x"] * 2.0, **inputs), inputs, 0)
    assert serve({"x": {"x": tf.constant([2.0])}}).numpy().tolist() == [4.0]


def test_ops_that_only_xla_knows_stay(tmp_path):
    def shard(x):
        return tf.raw_ops.XlaConcatND(inputs=[x, x], num_concats=[2])

    saved(tmp_path / "m", shard=trace(shard, x=VECTOR))
    assert b"XlaConcatND" in (tmp_path / "m" / "saved_model.pb").read_bytes()
