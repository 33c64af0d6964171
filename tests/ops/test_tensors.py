"""Tensors made, reshaped, repeated and extended."""

import keras
import numpy as np
import pytest
import refusals
import tensorflow as tf
from refusals import bad

from tfrl import ops

DTYPES = ["float16", "bfloat16", "float64", "int64", "uint8", "bool", "string"]


def in_graph(function, *specs):
    """The function in a graph that knows no sizes but those of `specs`."""
    return tf.function(function, input_signature=specs, autograph=False)


@pytest.mark.parametrize(
    ("batch_dims", "shape", "flat_shape"),
    [
        (0, [2, 3], [1, 2, 3]),
        (1, [2, 3], [2, 3]),
        (2, [2, 3], [6]),
        (2, [2, 3, 0], [6, 0]),
        (3, [2, 0, 3, 4], [0, 4]),
    ],
)
@pytest.mark.parametrize("sizes", [True, False], ids=["known", "unknown"])
def test_squash_round_trip(batch_dims, shape, flat_shape, sizes):
    def there_and_back(tensor):
        squash = ops.BatchSquash(batch_dims)
        flat = squash.flatten(tensor)
        return flat, squash.unflatten(flat)

    x = tf.reshape(tf.range(np.prod(shape)), shape)
    spec = tf.TensorSpec(shape if sizes else [None] * len(shape), x.dtype)
    graph = in_graph(there_and_back, spec)
    static = graph.get_concrete_function().structured_outputs
    if sizes:
        assert [t.shape for t in static] == [flat_shape, shape]
    for flat, back in (there_and_back(x), graph(x)):
        assert flat.shape == flat_shape
        np.testing.assert_array_equal(back, x)


def test_squash_lets_trailing_axes_change_and_checks_the_batch():
    squash = ops.BatchSquash(2)
    flat = squash.flatten(tf.ones([5, 2, 3]))
    assert squash.unflatten(tf.reduce_sum(flat, axis=1)).shape == [5, 2]
    assert squash.unflatten(tf.ones([10, 4, 1])).shape == [5, 2, 4, 1]
    assert ops.BatchSquash(1).unflatten(tf.ones([3])).shape == [3]
    with pytest.raises(ValueError, match="expected a first axis of 10"):
        squash.unflatten(tf.ones([5, 3]))
    with pytest.raises(ValueError, match="`tensor` expected rank of at least 2"):
        squash.flatten(tf.ones([5]))
    with pytest.raises(TypeError, match="`batch_dims` expected an int"):
        ops.BatchSquash(1.0)


def test_squash_under_xla():
    @tf.function(jit_compile=True)
    def doubled(x):
        squash = ops.BatchSquash(2)
        return squash.unflatten(2.0 * squash.flatten(x))

    np.testing.assert_array_equal(doubled(tf.ones([2, 3, 4])), np.full([2, 3, 4], 2.0))


def test_hand_worked_extensions():
    x = tf.constant([[1, 2], [3, 4]])
    expected = {
        "tensor_extend": ([[1, 2], [3, 4], [5, 6]], ([5, 6],)),
        "tensor_prepend": ([[5, 6], [1, 2], [3, 4]], ([5, 6],)),
        "tensor_extend_zero": ([[1, 2, 0], [3, 4, 0]], (-1,)),
        "tensor_prepend_zero": ([[0, 0], [1, 2], [3, 4]], ()),
        "tensor_extend_new_dim": ([[[1, 2], [1, 2]], [[3, 4], [3, 4]]], (1, 2)),
    }
    spec = tf.TensorSpec([None, None], x.dtype)
    for name, (wanted, rest) in expected.items():
        function = getattr(ops, name)
        np.testing.assert_array_equal(function(x, *rest), wanted, err_msg=name)
        graph = in_graph(lambda x, f=function, rest=rest: f(x, *rest), spec)
        np.testing.assert_array_equal(graph(x), wanted, err_msg=name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_extensions_keep_the_dtype(dtype):
    x = tf.constant(["a", "b"]) if dtype == "string" else tf.cast([1, 1], dtype)
    zero = tf.zeros([1], dtype)
    np.testing.assert_array_equal(ops.tensor_extend(x, x[0]), tf.concat([x, x[:1]], 0))
    np.testing.assert_array_equal(ops.tensor_extend_zero(x), tf.concat([x, zero], 0))
    np.testing.assert_array_equal(ops.tensor_prepend_zero(x), tf.concat([zero, x], 0))
    repeated = ops.tensor_extend_new_dim(x, 0, 2)
    np.testing.assert_array_equal(repeated, tf.stack([x, x]))
    assert ops.tensor_extend_zero(x).dtype == repeated.dtype == dtype


def test_extensions_of_nothing_and_by_tensors():
    assert ops.tensor_extend(tf.zeros([0, 2]), [1.0, 2.0]).shape == [1, 2]
    assert ops.tensor_extend_zero(tf.zeros([2, 0]), dim=1).shape == [2, 1]
    assert ops.tensor_extend_new_dim(tf.zeros([2]), 1, 0).shape == [2, 0]
    graph = in_graph(
        lambda n: ops.tensor_extend_new_dim([1.0, 2.0], 0, n),
        tf.TensorSpec([], tf.int32),
    )
    np.testing.assert_array_equal(graph(2), [[1.0, 2.0], [1.0, 2.0]])


X = tf.zeros([3, 2])


@refusals.table(
    *(
        (
            function,
            bad(ValueError, "y", X, tf.zeros([3])),
            bad(TypeError, "y", X, tf.zeros([2], tf.float64)),
            bad(ValueError, "x", 1.0, 1.0),
        )
        for function in (ops.tensor_extend, ops.tensor_prepend)
    ),
    (
        ops.tensor_extend_zero,
        bad(ValueError, "dim", X, 2),
        bad(TypeError, "dim", X, 1.0),
    ),
    (
        ops.tensor_extend_new_dim,
        bad(ValueError, "dim", X, -1, 2),
        bad(ValueError, "n", X, 0, -1),
    ),
    (ops.tensor_prepend_zero, bad(ValueError, "x", 1.0)),
    (
        ops.to_tensor,
        *(
            bad(TypeError, "data", each)
            for each in (None, object(), {"a": 1}, [1, None])
        ),
        bad(ValueError, "data", [[1, 2], [3]]),
    ),
    (
        ops.expand_dims_as,
        bad(ValueError, "x", tf.zeros([3, 4]), tf.zeros([2, 3, 4])),
        bad(ValueError, "x", tf.zeros([2, 3]), tf.zeros([2, 3, 4]), False),
        bad(ValueError, "x", tf.zeros([1]), tf.zeros([2, 3, 4])),
        bad(ValueError, "x", tf.zeros([2] * 4), tf.zeros([2, 3, 4])),
    ),
    (ops.idx, bad(ValueError, "axis", X[0], axis=1), bad(ValueError, "arr", X[0, 0])),
)
def test_refusals(row):
    row()


@pytest.mark.parametrize("end", [True, False], ids=["end", "front"])
def test_expanded_dims_broadcast(end):
    y = np.zeros([2, 3, 4])
    x = tf.range(6.0) if end else tf.range(12.0)
    x = tf.reshape(x, [2, 3] if end else [3, 4])
    got = ops.expand_dims_as(x, y, end)
    assert got.shape == ([2, 3, 1] if end else [1, 3, 4])
    np.testing.assert_array_equal(tf.reshape(got, x.shape), x)
    graph = in_graph(
        lambda x, y: ops.expand_dims_as(x, y, end),
        tf.TensorSpec([None, None], tf.float32),
        tf.TensorSpec([None, None, None], tf.float64),
    )
    np.testing.assert_array_equal(graph(x, y), got)
    assert ops.expand_dims_as(tf.zeros([]), y, end).shape == [1, 1, 1]
    assert ops.expand_dims_as(y, y, end).shape == y.shape


def test_an_unknown_rank_is_refused():
    def unknown(x):
        return ops.expand_dims_as(x, tf.zeros([2, 3]))

    with pytest.raises(ValueError, match="`x` expected a known rank; got"):
        in_graph(unknown, tf.TensorSpec(None)).get_concrete_function()


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (3, "int64"),
        (2.5, "float32"),
        (True, "bool"),
        (1j, "complex64"),
        ("text", "string"),
        ([1, 2.5], "float32"),
        ([], "float32"),
        (((1, 2), [3, 4]), "int64"),
        (np.float64(1.0), "float64"),
        ([np.float64(1.0), 2.0], "float64"),
        ([np.zeros(2, np.float16), np.ones(2, np.float16)], "float16"),
        (np.array([1, 2], np.int16), "int16"),
        ([tf.constant(1.0, tf.float64), tf.constant(2.0, tf.float64)], "float64"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_to_tensor_dtypes(data, dtype):
    tensor = ops.to_tensor(data)
    assert isinstance(tensor, tf.Tensor)
    assert tensor.dtype == dtype
    expected = np.asarray(data, None if dtype == "string" else dtype)
    np.testing.assert_array_equal(
        tensor, expected.astype("S") if dtype == "string" else expected
    )


def test_to_tensor_casts_all_but_tensors():
    assert ops.to_tensor([1.5, 2.5], tf.int32).numpy().tolist() == [1, 2]
    assert ops.to_tensor(np.zeros(2), "bfloat16").dtype == tf.bfloat16
    assert ops.to_tensor([tf.constant(1.0)], np.float64).dtype == tf.float64
    x = tf.constant([1, 2])
    assert ops.to_tensor(x, tf.float32) is x
    assert ops.to_tensor(tf.Variable(1.0), tf.float64).dtype == tf.float32
    assert ops.to_tensor(keras.Variable(1.0)).dtype == tf.float32


def test_to_tensor_stops_the_gradient_of_lists_only():
    x = tf.constant(3.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        kept, stopped = ops.to_tensor(x) * 2, ops.to_tensor([x, x])
    assert float(tape.gradient(kept, x)) == 2.0
    assert tape.gradient(stopped, x) is None


def test_indices_of_unknown_sizes():
    graph = in_graph(lambda x: ops.idx(x, -2), tf.TensorSpec([None, None]))
    np.testing.assert_array_equal(graph(tf.zeros([3, 2])), [0, 1, 2])
    assert ops.idx(tf.Variable(tf.zeros([2]))).dtype == tf.int32
