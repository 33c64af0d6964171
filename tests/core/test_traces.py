"""Tests of `tfrl.core._traces`."""

import collections
import inspect

import numpy as np
import pytest
import tensorflow as tf

from tfrl._internal import calls
from tfrl.core import _traces, pytree

Pair = collections.namedtuple("Pair", ["left", "right"])


class Node(pytree.PyTreeNode):
    data: tf.Tensor
    factor: float = pytree.nonpytree_field(default=1.0)


def traced(function, *args, relaxed=False, jit_compile=False):
    """A trace of `function` for `args`."""
    bound = inspect.signature(function).bind(*args)
    leaves = tf.nest.flatten(list(bound.arguments.values()))
    return _traces.trace(
        function, bound, dict(bound.arguments), leaves, relaxed, jit_compile
    )


def test_a_trace_takes_flat_tensors_and_returns_the_nest():
    concrete = traced(
        lambda x, y: {"sum": x["a"] + y.left, "none": y.right},
        {"a": tf.constant(1.0)},
        Pair(tf.constant(2.0), None),
    )
    result = concrete(tf.constant(3.0), tf.constant(4.0))
    assert float(result["sum"]) == 7.0 and result["none"] is None


def test_a_relaxed_trace_knows_ranks_alone():
    shapes = []

    def function(x):
        shapes.append(x.shape)
        return tf.reduce_sum(x)

    concrete = traced(function, tf.ones([2, 3]), relaxed=True)
    assert shapes[0].as_list() == [None, None]
    assert float(concrete(tf.ones([4, 5]))) == 20.0


@pytest.mark.parametrize("jit_compile", [False, True], ids=["plain", "xla"])
def test_handed_over_says_the_same(jit_compile):
    kept = tf.Variable(10.0)

    def function(x, node):
        return [x * kept, None, node.replace(data=node.data + 1)], ()

    args = tf.constant(2.0), Node(tf.constant([1.0, 2.0]), factor=3.0)
    concrete = traced(function, *args, jit_compile=jit_compile)
    flat = tf.nest.flatten(list(args))
    got, empty = calls.handed_over(concrete)(*flat)
    assert float(got[0]) == 20.0 and got[1] is None and empty == ()
    assert got[2].factor == 3.0
    np.testing.assert_array_equal(got[2].data, [2.0, 3.0])


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


def test_structures_differ_where_traces_must():
    one = tf.constant(1.0)
    same = [{"b": one, "a": 2}, {"a": np.zeros(3), "b": one}]
    assert _traces.structure(same[0]) == _traces.structure(same[1])
    different = [
        one,
        [one],
        (one,),
        {"a": one},
        {"b": one},
        Pair(one, one),
        Node(one),
        Node(one, factor=2.0),
        "text",
    ]
    keys = {_traces.structure(value) for value in different}
    assert len(keys) == len(different)


def test_numbers_among_leaves():
    leaves = _traces.leaves("f", {"x": [None, 1, tf.ones([2], tf.float64)], "y": 2.5})
    assert leaves[0] is None
    assert [leaf.dtype for leaf in leaves[1:]] == [tf.float64] * 3
    with pytest.raises(TypeError, match="`f`: expected tensors or numbers; got True"):
        _traces.leaves("f", {"x": True})


def test_as_tensor():
    tensor = tf.ones([])
    assert _traces.as_tensor(tensor) is tensor
    assert _traces.as_tensor(None) is None
    assert _traces.as_tensor(np.ones(2)).dtype == tf.float64


def test_a_wheel_without_xla_for_the_cpu_runs_the_plain_graph(monkeypatch):
    """As TensorFlow's wheel for TPUs does on the host of one."""
    make = tf.function

    def refuse():
        raise tf.errors.NotFoundError(None, None, "no transfer manager for Host")

    def without_xla(function, jit_compile=None, **options):
        return refuse if jit_compile else make(function, **options)

    monkeypatch.setattr(tf, "function", without_xla)
    _traces._host_has_xla.cache_clear()
    try:
        concrete = traced(tf.square, tf.constant(3.0), jit_compile=True)
    finally:
        _traces._host_has_xla.cache_clear()
    assert float(concrete(tf.constant(3.0))) == 9.0


def test_xla_compiles_where_it_is_there():
    assert _traces._host_has_xla()
    concrete = traced(tf.square, tf.constant(3.0), jit_compile=True)
    assert concrete.function_def.attr["_XlaMustCompile"].b
