"""Positions of extremes, random orders."""

import golden_io
import numpy as np
import pytest
import refusals
import tensorflow as tf
from refusals import bad

from tfrl import ops

FUNCTIONS = {"argmax": (ops.argmax, np.argmax), "argmin": (ops.argmin, np.argmin)}


@pytest.mark.parametrize("axis", [0, 1, -1, None], ids=lambda axis: f"axis {axis}")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_unique_extremes(name, axis):
    function, oracle = FUNCTIONS[name]
    array = np.random.default_rng(0).normal(size=(3, 4, 5))
    for each in (array, (1000 * array).astype(np.int32)):
        got = function(each, axis=axis)
        assert got.dtype == tf.int32
        np.testing.assert_array_equal(got, oracle(each, axis=axis))


def test_ties_are_drawn_evenly_and_apart():
    array = tf.tile(tf.constant([[7, 1, 7, 7]]), [6000, 1])
    counts = np.bincount(ops.argmax(array, seed=1), minlength=4)
    assert counts[1] == 0
    # Three outcomes with 1/3 each: standard deviation 37.
    np.testing.assert_allclose(counts[[0, 2, 3]], 2000, atol=5 * 37)


def test_seeds():
    array = tf.zeros([50, 8])
    first, second = ops.argmax(array, seed=1), ops.argmax(array, seed=1)
    np.testing.assert_array_equal(first, second)
    assert (first != ops.argmax(array, seed=2)).numpy().any()
    assert (ops.argmin(array) != ops.argmin(array)).numpy().any()
    draw = tf.function(lambda: ops.argmax(array))
    assert (draw() != draw()).numpy().any()


@pytest.mark.slow
@pytest.mark.parametrize(
    "jit_compile",
    [
        pytest.param(False, id="graph", marks=pytest.mark.slow),
        pytest.param(True, id="jit"),
    ],
)
def test_graph_equals_eager(jit_compile):
    array = tf.constant(np.random.default_rng(1).integers(0, 3, (20, 6)))
    values = {"x": tf.range(20), "rest": (array, None)}

    @tf.function(jit_compile=jit_compile)
    def drawn(array, values, seed):
        return (
            ops.argmax(array, seed=seed),
            ops.argmin(array, axis=0, seed=seed),
            ops.first_argmin(array),
            ops.shuffle(values, seed=seed)["x"],
        )

    seed = tf.constant([3, 4])
    expected = (
        ops.argmax(array, seed=seed),
        ops.argmin(array, axis=0, seed=seed),
        np.argmin(array, axis=1),
        ops.shuffle(values, seed=seed)["x"],
    )
    for got, wanted in zip(drawn(array, values, seed), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "uint16", "int8", "int64", "bfloat16", "float16"]
)
def test_dtypes(dtype):
    array = tf.cast([0, 1, 0], dtype)
    assert ops.argmax(array) == 1
    assert ops.argmin(array).numpy() in (0, 2)
    assert ops.first_argmin(array) == 0


def test_no_integer_overflows():
    lowest = np.iinfo(np.int32).min
    assert ops.argmin([5, lowest, 0]) == 1
    assert ops.first_argmin([5, lowest, 0]) == 1
    assert ops.argmax([lowest, lowest + 1]) == 1


def test_nan_is_found():
    array = [[1.0, np.nan, 3.0], [3.0, 2.0, 1.0]]
    assert ops.argmax(array).numpy().tolist() == [1, 0]
    assert ops.argmin(array).numpy().tolist() == [1, 2]
    assert ops.first_argmin(array).numpy().tolist() == [1, 2]


def test_first_argmin():
    rng = np.random.default_rng(2)
    array = rng.integers(0, 3, (4, 50, 7)).astype(np.float32)
    got = ops.first_argmin(array)
    assert got.dtype == tf.int64
    np.testing.assert_array_equal(got, array.argmin(axis=-1))
    assert ops.first_argmin([[np.inf, np.inf]]).numpy().tolist() == [0]


def test_shuffle_keeps_rows_together():
    values = {"a": np.arange(7), "b": (np.arange(14.0).reshape(7, 2), None), "c": ()}
    got = ops.shuffle(values, seed=5)
    order = got["a"].numpy()
    assert sorted(order) == list(range(7))
    np.testing.assert_array_equal(got["b"][0], values["b"][0][order])
    assert got["b"][1] is None
    assert got["c"] == ()
    assert ops.shuffle(None) is None
    assert ops.shuffle(tf.zeros([0, 2])).shape == (0, 2)


def test_shuffle_reaches_every_order():
    orders = {tuple(ops.shuffle(tf.range(3), seed=s).numpy()) for s in range(60)}
    assert len(orders) == 6
    twice = [ops.shuffle(tf.range(100)).numpy().tolist() for _ in range(2)]
    assert twice[0] != twice[1]


def test_shuffle_has_gradients():
    x = tf.constant([1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.square(ops.shuffle(x))
    slopes = tf.convert_to_tensor(tape.gradient(y, x))  # of slices, as from tf.gather
    np.testing.assert_allclose(slopes, [2.0, 4.0, 6.0])


@refusals.table(
    (
        ops.argmax,
        bad(ValueError, "axis", [1.0], axis=1),
        bad(ValueError, "arr", tf.zeros([2, 0])),
    ),
    (
        ops.argmin,
        bad(ValueError, "arr", 1.0),
        bad(ValueError, "arr", [], axis=None),
    ),
    (
        ops.first_argmin,
        bad(ValueError, "x", 3),
        bad(ValueError, "x", tf.zeros([2, 0])),
    ),
    (
        ops.shuffle,
        bad(ValueError, "values", [tf.zeros([2]), tf.zeros([3])]),
        bad(ValueError, "values", 1.0),
    ),
)
def test_refusals(row):
    row()


EXTREMES = [
    case
    for name in ("argmax", "argmin")
    for case in golden_io.load("coax/array", symbol=name)
]
# Negated in a dtype that cannot hold the result, or NaN taken as equal to everything.
WRONGLY_RECORDED = {"argmin_uint8_ax0", "argmin_i32min_ax0"} | {
    f"{name}_nan_ax-1" for name in ("argmax", "argmin")
}


@pytest.mark.parametrize("case", EXTREMES, ids=golden_io.ids(EXTREMES))
def test_random_extremes(case):
    name = case["symbol"].rpartition(".")[2]
    inputs, outputs = case["inputs"], case["outputs"]
    array = np.asarray(inputs["arr"] if "arr" in inputs else inputs["args"][0])
    axis = case["kwargs"].get("axis", -1)
    got = getattr(ops, name)(array, axis=axis, seed=3)
    assert got.dtype == tf.int32
    # Whole arrays, bools and lists were refused where numpy knows what is meant.
    pick = {"argmax": np.max, "argmin": np.min}[name]
    number = array.astype(int) if array.dtype == bool else array
    extreme = number == pick(number, axis=axis, keepdims=True)
    if np.isnan(array).any():
        extreme = np.isnan(array)
    if axis is None:
        extreme, axis = extreme.ravel(), 0
    rows = np.moveaxis(extreme, axis, -1)
    supports = [list(np.flatnonzero(row)) for row in rows.reshape(-1, rows.shape[-1])]
    if "support" in outputs:
        if case["id"] not in WRONGLY_RECORDED:
            assert supports == outputs["support"]
        assert got.shape == outputs["shape"]
    many = np.broadcast_to(array, (400, *array.shape))
    if case["kwargs"].get("axis", -1) is None:
        many, axis = many.reshape(400, -1), -1
    elif axis >= 0:
        axis += 1
    draws = getattr(ops, name)(many, axis=axis, seed=4).numpy().reshape(400, -1)
    assert [sorted(set(column)) for column in draws.T] == supports
