"""Compiled functions: one trace for all sizes, ordinary in every other respect."""

import collections
import contextvars
import copy
import gc
import inspect
import operator
import os
import pickle
import subprocess
import sys
import weakref
from typing import NamedTuple

import cloudpickle
import numpy as np
import pytest
import refusals
import tensorflow as tf
from refusals import bad

from tfrl._internal import calls
from tfrl.core import _traces, compile, context, pytree


@compile.compiled(static=("twice",))
def scaled(x, factor=2.0, twice=False):
    """Scales."""
    return x * factor * (2 if twice else 1)


@compile.compiled(jit_compile=True)
def total(x, weight=1.0):
    return tf.reduce_sum(x) * weight


@compile.jit
def cubed(x):
    """Cubes."""
    return x**3


def power(x, n=2):
    return x**n


class Pair(NamedTuple):
    left: tf.Tensor
    right: tf.Tensor


class Node(pytree.PyTreeNode):
    data: tf.Tensor
    factor: float = pytree.nonpytree_field(default=1.0)


def fresh(**options):
    """A compiled function nobody has called, and the list of its runs in Python."""
    runs = []

    @compile.compiled(**options)
    def function(x, *rest, offset=0.0):
        runs.append(tf.executing_eagerly())
        return x + offset

    return function, runs


@pytest.mark.parametrize("jit_compile", [False, True], ids=["plain", "jit"])
def test_one_trace_for_all_sizes_and_numbers(jit_compile):
    function, runs = fresh(jit_compile=jit_compile)
    for size, offset in [(2, 1.0), (3, 2), (5, np.float32(3)), (1, tf.constant(4.0))]:
        got = function(tf.ones([size]), offset=offset)
        np.testing.assert_allclose(got, np.full([size], 1.0 + float(offset)))
    assert runs == [False]
    assert function.trace_count() == 1
    function(tf.ones([2, 2]))
    function(tf.ones([2], tf.float64))
    function(np.ones([4]))
    assert function.trace_count() == len(runs) == 3


def test_numbers_take_the_dtype_of_the_first_floating_tensor():
    assert scaled(tf.ones([2], tf.float64), 1).dtype == tf.float64
    assert scaled(tf.ones([2], tf.bfloat16), 0.5).dtype == tf.bfloat16
    assert scaled(3, 2).dtype == tf.float32
    exact = scaled(tf.ones([], tf.float64), 0.1)
    assert float(exact) == 0.1


def test_static_values_have_their_own_traces():
    function = compile.compiled(static=("axis",))(
        lambda x, axis: tf.reduce_sum(x, axis)
    )
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_allclose(function(x, 0), [4.0, 6.0])
    np.testing.assert_allclose(function(x, axis=1), [3.0, 7.0])
    np.testing.assert_allclose(function(x[:1], 1), [3.0])
    assert function.trace_count() == 2


def test_none_stays_none():
    function = compile.compiled(lambda x, mask=None: x if mask is None else x * mask)
    x = tf.constant([1.0, 2.0])
    np.testing.assert_allclose(function(x), [1.0, 2.0])
    np.testing.assert_allclose(function(x, tf.constant([0.0, 1.0])), [0.0, 2.0])
    np.testing.assert_allclose(function(x, mask=None), [1.0, 2.0])
    assert function.trace_count() == 2


@pytest.mark.parametrize(
    "nest",
    [
        {"b": tf.ones([2]), "a": 3.0},
        [tf.ones([2]), (np.ones([3], np.float32), None)],
        Pair(tf.ones([2]), tf.zeros([1])),
        Node(tf.ones([2]), factor=5.0),
    ],
    ids=["dict", "sequences", "namedtuple", "node"],
)
def test_nests_go_in_and_out(nest):
    function = compile.compiled(
        lambda nest: tf.nest.map_structure(lambda x: x if x is None else 2 * x, nest)
    )
    got = function(nest)
    tf.nest.assert_same_structure(got, nest)
    for leaf, before in zip(tf.nest.flatten(got), tf.nest.flatten(nest), strict=True):
        if before is not None:
            np.testing.assert_allclose(leaf, 2 * np.asarray(before))


def test_structures_do_not_share_traces():
    function = compile.compiled(
        lambda nest: nest[0] - nest[1] if isinstance(nest, tuple) else nest["a"]
    )
    assert float(function((tf.constant(3.0), tf.constant(1.0)))) == 2.0
    assert float(function({"b": tf.constant(3.0), "a": tf.constant(1.0)})) == 1.0
    scale = compile.compiled(lambda node: node.data * node.factor)
    assert float(scale(Node(tf.constant(2.0), factor=3.0))) == 6.0
    assert float(scale(Node(tf.constant(2.0), factor=4.0))) == 8.0


def test_is_inlined_into_a_graph():
    function, runs = fresh()

    @tf.function
    def outer(x):
        return function(x, offset=1.0)

    np.testing.assert_allclose(outer(tf.ones([2])), [2.0, 2.0])
    assert runs == [False]
    assert function.trace_count() == 0
    kinds = [
        op.type
        for op in outer.get_concrete_function(tf.ones([2])).graph.get_operations()
    ]
    assert "AddV2" in kinds
    assert not [kind for kind in kinds if "PartitionedCall" in kind]


@pytest.mark.parametrize("jit_compile", [False, True], ids=["in a graph", "in XLA"])
def test_jit_keeps_shapes_and_gradients_inside_a_graph(jit_compile):
    double = compile.compiled(lambda x: 2.0 * x * x, jit_compile=True)

    @tf.function(jit_compile=jit_compile)
    def outer(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = double(x)
        if y.shape != (3,):
            raise ValueError(f"lost the shape: {y.shape}")
        return tape.gradient(y, x)

    np.testing.assert_allclose(outer(tf.constant([1.0, 2.0, 3.0])), [4.0, 8.0, 12.0])


def test_gradients_flow_eagerly_and_into_variables():
    x, factor = tf.Variable([1.0, 2.0]), tf.Variable(3.0)
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(scaled(x, factor))
    to_x, to_factor = tape.gradient(y, [x, factor])
    np.testing.assert_allclose(to_x, [3.0, 3.0])
    np.testing.assert_allclose(to_factor, 3.0)


def test_runs_as_written_when_functions_run_eagerly():
    function, runs = fresh()
    tf.config.run_functions_eagerly(True)
    try:
        np.testing.assert_allclose(function(tf.ones([2])), [1.0, 1.0])
    finally:
        tf.config.run_functions_eagerly(False)
    assert runs == [True]


def test_looks_like_the_original():
    assert scaled.__name__ == "scaled"
    assert scaled.__doc__ == "Scales."
    assert str(inspect.signature(scaled)) == "(x, factor=2.0, twice=False)"
    assert inspect.isfunction(scaled)


def test_pickles_by_name():
    assert pickle.loads(pickle.dumps(scaled)) is scaled
    assert pickle.loads(pickle.dumps(cubed)) is cubed


MAIN = """
import copy, pickle, subprocess, sys
import cloudpickle
from tfrl.core import compile

FACTOR = 5.0

@compile.jit
def grown(x):
    return (FACTOR + len(grown.static_argnums)) * x

assert pickle.loads(pickle.dumps(grown)) is grown
assert copy.deepcopy(grown) is grown
sent = cloudpickle.dumps(grown)
assert cloudpickle.loads(sent)(2.0) == 10.0
code = "import pickle, sys; print(float(pickle.load(sys.stdin.buffer)(2.0)))"
subprocess.run([sys.executable, "-c", code], input=sent, check=True)
"""


@pytest.mark.slow
def test_a_function_of_the_main_script_is_sent_as_it_is(tmp_path):
    (tmp_path / "main.py").write_text(MAIN)
    path = os.pathsep.join(filter(None, sys.path))
    found = subprocess.run(
        [sys.executable, str(tmp_path / "main.py")],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout == "10.0\n"


def test_a_function_of_the_main_module_pickles_by_name(monkeypatch):
    def called(x):
        return 2 * x

    called.__module__, called.__qualname__ = "__main__", "called"
    jitted = compile.jit(called)
    monkeypatch.setattr(sys.modules["__main__"], "called", jitted, raising=False)
    assert pickle.loads(pickle.dumps(jitted)) is jitted
    assert copy.deepcopy(jitted) is jitted
    sent = cloudpickle.dumps(jitted)
    monkeypatch.delattr(sys.modules["__main__"], "called")
    again = cloudpickle.loads(sent)
    assert again is not jitted and int(again(3)) == 6


def test_the_trace_keeps_no_arguments():
    class Big(np.ndarray):
        pass

    function = compile.compiled(lambda x: x + 1.0)
    argument = np.ones([3], np.float32).view(Big)
    function(argument)
    alive = weakref.ref(argument)
    del argument
    gc.collect()
    assert alive() is None


def test_errors_of_the_call():
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        scaled()
    with pytest.raises(TypeError, match="unexpected keyword argument 'factr'"):
        scaled(1.0, factr=2.0)
    with pytest.raises(TypeError, match="name bool parameters in `static`"):
        total(tf.ones([2]), True)


def test_errors_of_the_decorator():
    with pytest.raises(
        ValueError, match=r"`compiled`: `static` expected to name `flag`"
    ):
        compile.compiled(lambda x, flag=True: x)
    with pytest.raises(ValueError, match=r"expected parameter names .*; got \('y',\)"):
        compile.compiled(static=("y",))(lambda x: x)
    with pytest.raises(ValueError, match="expected parameter names .*; got 'x'"):
        compile.compiled(static="x")(lambda x: x)


def test_jit_computes_and_counts():
    jitted = compile.jit(power, static_argnums=1)
    assert float(jitted(3.0)) == 9.0
    assert float(jitted(4.0)) == 16.0
    assert float(jitted(2.0, n=3)) == 8.0
    assert jitted.trace_count() == 2
    np.testing.assert_allclose(jitted(np.array([1.0, 2.0]), 3), [1.0, 8.0])


def test_jit_takes_nests_and_knows_sizes():
    jitted = compile.jit(lambda tree: tree["x"] / tree["x"].shape[0] + tree["n"])
    np.testing.assert_allclose(jitted({"x": tf.ones([4]), "n": 1.0}), [1.25] * 4)
    assert compile.jit(lambda n: n + 1)(1).dtype == tf.int32
    assert bool(compile.jit(lambda flag: ~flag)(False))


def test_jit_compiles_with_xla():
    inside = []

    def function(x):
        inside.append(tf.executing_eagerly())
        return x

    compile.jit(function)(1.0)
    assert inside == [False]
    with pytest.raises(tf.errors.InvalidArgumentError, match="(?i)xla"):
        compile.jit(lambda x: tf.strings.as_string(x))(1.0)


def test_jit_shows_the_signature():
    jitted = compile.jit(power, static_argnums=(-1,), donate_argnums=0)
    assert repr(jitted) == "JittedFunc(x, n=2)"
    assert str(inspect.signature(jitted)) == "(x, n=2)"
    assert jitted.__name__ == "power"
    assert cubed.__doc__ == "Cubes."
    assert (jitted.func, jitted.static_argnums, jitted.donate_argnums) == (
        power,
        (1,),
        (0,),
    )


def test_jit_pickles():
    again = pickle.loads(pickle.dumps(compile.jit(operator.mul)))
    assert float(again(2.0, 3.0)) == 6.0
    closure = 5.0
    jitted = compile.jit(lambda x, n: closure * x**n, static_argnums=1)
    float(jitted(2.0, 2))
    again = cloudpickle.loads(cloudpickle.dumps(jitted))
    assert float(again(2.0, 3)) == 40.0
    assert again.static_argnums == (1,)


def test_jit_without_gradients_says_the_same():
    offset = tf.Variable([1.0, 2.0])
    kept = tf.constant([3.0, 3.0])

    def function(node, pair, n):
        grown = node.replace(data=node.data**n + offset)
        return {"z": grown, "a": None}, Pair(pair.right, kept), (), n

    plain = compile.jit(function, static_argnums=2)
    direct = compile.jit(function, static_argnums=2, differentiable=False)
    for scale in (1.0, 2.0):
        node, pair = Node(tf.constant([scale, 2.0]), 4.0), Pair(scale, np.ones(3))
        wanted, got = plain(node, pair, 2), direct(node, pair, 2)
        tf.nest.assert_same_structure(wanted, got)
        assert got[0]["a"] is None and got[0]["z"].factor == 4.0
        tf.nest.map_structure(np.testing.assert_array_equal, wanted, got)
    np.testing.assert_allclose(got[0]["z"].data, [5.0, 6.0])
    offset.assign([0.0, 0.0])
    np.testing.assert_allclose(direct(node, pair, 2)[0]["z"].data, [4.0, 4.0])
    assert direct.trace_count() == 1
    again = cloudpickle.loads(cloudpickle.dumps(compile.jit(power, differentiable=0)))
    assert not again.differentiable


def test_gradients_go_through_jit_unless_renounced():
    x = tf.constant(3.0)
    for jitted in (compile.jit(power), compile.jit(power, differentiable=False)):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = jitted(x, 2.0)
        if jitted.differentiable:
            assert float(tape.gradient(y, x)) == 6.0
        else:
            with pytest.raises(LookupError, match="gradient"):
                tape.gradient(y, x)


@refusals.table(
    (
        compile.jit,
        bad(ValueError, "static_argnums", power, static_argnums=2),
        bad(TypeError, "donate_argnums", power, donate_argnums=("x",)),
    ),
)
def test_errors_of_jit(row):
    row()


def test_jit_compiles_by_xla_where_it_is_told_to():
    def kind(x):
        # XLA knows no strings.
        return tf.strings.length(tf.strings.as_string(x))

    assert int(compile.jit(kind, xla=False)(123)) == 3
    with pytest.raises(tf.errors.InvalidArgumentError, match="XLA|compil"):
        compile.jit(kind)(123)
    chosen = compile.jit(kind, xla=lambda x: x.dtype.is_floating)
    assert int(chosen(tf.constant(12))) == 2
    with pytest.raises(tf.errors.InvalidArgumentError, match="XLA|compil"):
        chosen(tf.constant(1.5))
    assert int(pickle.loads(pickle.dumps(compile.jit(tf.square, xla=False)))(3)) == 9
    assert not cloudpickle.loads(cloudpickle.dumps(compile.jit(kind, xla=False))).xla


def traced(function, *args, relaxed=False, jit_compile=False):
    """A trace of `function` for `args`."""
    bound = inspect.signature(function).bind(*args)
    leaves = tf.nest.flatten(list(bound.arguments.values()))
    flat = _traces.of_leaves(function, bound, dict(bound.arguments), leaves)
    return _traces.trace(flat, leaves, relaxed, jit_compile)


def test_handed_over_builds_every_kind_of_nest():
    def function(x):
        return {
            "z": [x, (x + 1, None)],
            "a": Pair(x + 2, {}),
            "m": collections.OrderedDict(b=x + 3, a=x + 4),
        }

    concrete = traced(function, tf.constant(0.0))
    wanted = concrete(tf.constant(5.0))
    got = calls.handed_over(concrete)(tf.constant(5.0))
    tf.nest.assert_same_structure(wanted, got)
    assert list(got) == ["z", "a", "m"] and list(got["m"]) == ["b", "a"]
    assert got["z"][1][1] is None and float(got["m"]["b"]) == 8.0
    numbers = [float(x) for x in tf.nest.flatten(got) if x is not None]
    assert numbers == [float(x) for x in tf.nest.flatten(wanted) if x is not None]


def test_what_one_op_needs_of_tensorflow_is_there():
    """Broken here, `_internal/calls.py` is: it relies on more than TensorFlow promised.

    An op takes a concrete function, and a tape learns of the op by `record_gradient`,
    which hands its gradient function the attributes and the inputs nobody asks for.
    """
    function = tf.function(lambda x, y: x * y).get_concrete_function(
        *[tf.TensorSpec([], tf.float32)] * 2
    )
    seen = []

    @tf.RegisterGradient("TfrlTestOfCalls")
    def gradient(op, upstream):
        seen.append((op.attrs, op.skip_input_indices, len(op.inputs)))
        return upstream * op.inputs[1], None

    x, y = tf.constant(2.0), tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        (out,) = tf.raw_ops.StatefulPartitionedCall(
            args=[x, y], Tout=[tf.float32], f=function
        )
        tf.__internal__.record_gradient("TfrlTestOfCalls", (x, y), ("k", 1), [out])
    assert float(out) == 6.0 and float(tape.gradient(out, x)) == 3.0
    assert seen == [(("k", 1), (1,), 2)]


def test_a_wheel_without_xla_for_the_cpu_runs_the_plain_graph(monkeypatch):
    """As TensorFlow's wheel for TPUs does on the host of one."""
    make = tf.function

    def refuse():
        raise tf.errors.NotFoundError(None, None, "no transfer manager for Host")

    def without_xla(function, jit_compile=None, **options):
        return refuse if jit_compile else make(function, **options)

    monkeypatch.setattr(tf, "function", without_xla)
    _traces.host_has_xla.cache_clear()
    try:
        squares = compile.jit(tf.square)(3.0), squared_by_xla(3.0)
    finally:
        _traces.host_has_xla.cache_clear()
    assert list(map(float, squares)) == [9.0, 9.0]


@compile.compiled(jit_compile=True)
def squared_by_xla(x):
    return tf.square(x)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_gradients_of_compiled_calls(jit_compile):
    @compile.compiled(jit_compile=jit_compile)
    def function(x, index, unused=0.0):
        return {"cubes": x**3, "index": index + 1, "picked": tf.gather(x, index)}

    x, index = tf.constant([2.0, 3.0]), tf.constant([1])
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(x)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            found = function(x, index)
            loss = tf.reduce_sum(found["cubes"]) + tf.gather(found["cubes"], 0)
        slope = tape.gradient(loss, x)
    np.testing.assert_allclose(slope, [2 * 3 * 4.0, 3 * 9.0])
    np.testing.assert_allclose(tape.gradient(found["picked"], x), [0.0, 1.0])
    np.testing.assert_allclose(outer.gradient(slope, x), [2 * 6 * 2.0, 6 * 3.0])
    with tf.autodiff.ForwardAccumulator(x, tf.constant([1.0, 0.0])) as forward:
        cubes = function(x, index)["cubes"]
    np.testing.assert_allclose(forward.jvp(cubes), [12.0, 0.0])
    assert function.trace_count() == 1


def test_gradients_of_a_compiled_draw_are_those_of_that_draw():
    @compile.compiled
    def noisy(x):
        noise = tf.random.normal([])
        return x * noise, noise

    x = tf.constant(1.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        product, noise = noisy(x)
    assert float(tape.gradient(product, x)) == float(noise)


def test_gradients_are_those_of_the_context_of_the_call():
    factor = contextvars.ContextVar("factor", default=2.0)

    @compile.compiled
    def scaled(x):
        return x * context.followed(factor.get), 1.0 / x

    x = tf.constant([0.0, 1.0])
    token = factor.set(5.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        product, _ = scaled(x)
    factor.reset(token)
    # Not NaN either, as the slope of the other result is, times nothing.
    np.testing.assert_array_equal(tape.gradient(product, x), [5.0, 5.0])
