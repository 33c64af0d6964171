"""Elementary functions, soft bounds, indices and transforms against recordings."""

import golden_io
import numpy as np
import pytest
import tensorflow as tf

from tfrl import ops

CASES = golden_io.load("alf/math_ops", {"t": tf.constant})
ARRAYS = np.load(golden_io.ROOT / "alf/math_ops.npz")
NAMES = {"argmin": "first_argmin"} | dict.fromkeys(
    ["Softsign.apply", "Softsign_.apply", "softsign_"], "softsign"
)
CALLS = [case for case in CASES if case["kind"] == "call"]
RAISES = [case for case in CASES if case["kind"] == "raises"]
OBJECTS = [case for case in CASES if case["kind"] == "object"]
EXTREMES = [
    case
    for name in ("argmax", "argmin")
    for case in golden_io.load("coax/array", symbol=name)
]
# Negated in a dtype that cannot hold the result, or NaN taken as equal to everything.
WRONGLY_RECORDED = {"argmin_uint8_ax0", "argmin_i32min_ax0"} | {
    f"{name}_nan_ax-1" for name in ("argmax", "argmin")
}
ARRAY_CALLS = [
    case
    for name in ("clipped_logit", "double_relu")
    for case in golden_io.load("coax/array", symbol=name)
]


def function_of(case):
    name = case["symbol"].partition(".")[2]
    return getattr(ops, NAMES.get(name, name))


def check(got, expected, tol):
    tf.nest.assert_same_structure(got, expected)
    for one, other in zip(tf.nest.flatten(got), tf.nest.flatten(expected), strict=True):
        if other is None:
            assert one is None
            continue
        assert np.shape(one) == np.shape(other)
        np.testing.assert_allclose(one, other, **tol)


def test_recordings_are_there():
    assert (len(CALLS), len(RAISES), len(OBJECTS)) == (72, 5, 11)
    assert len(CASES) == 89  # and the one of `shuffle`
    assert (len(EXTREMES), len(ARRAY_CALLS)) == (40, 4)


@pytest.mark.parametrize("case", CALLS, ids=golden_io.ids(CALLS))
def test_equals_the_recording(case):
    function, args, kwargs = function_of(case), case["args"], case["kwargs"]

    def call(args):
        return function(*args, **kwargs)

    if case["id"].endswith("/001"):  # one of each in a graph, as that takes longer
        call = tf.function(call, autograph=False)
    grad, expected = case.get("grad"), case["out"]
    if isinstance(expected, dict) and "input_after" in expected:
        expected = expected["out"]
    if not grad:
        got = call(args)
        if case["id"] == "math_ops/argmin/005":
            # Recorded without the row that has a NaN.
            assert got.numpy().tolist() == [0, 0]
            got = got[1:]
        return check(got, expected, case["tol"])
    leaves = [leaf for leaf in tf.nest.flatten(args) if tf.is_tensor(leaf)]
    leaves = leaves[: len(grad["wrt"])]  # without tensors of bounds
    with tf.GradientTape() as tape:
        tape.watch(leaves)
        got = call(args)
    check(got, expected, case["tol"])
    (cotangent,) = [tf.constant(ARRAYS[key]) for key in grad["ct"]]
    gradients = tape.gradient(got, leaves, output_gradients=cotangent)
    for gradient, key in zip(gradients, grad["grads"], strict=True):
        np.testing.assert_allclose(gradient, ARRAYS[key], **case["tol"])


@pytest.mark.parametrize("case", RAISES, ids=golden_io.ids(RAISES))
def test_refuses_what_was_refused(case):
    name = case["symbol"].partition(".")[2]
    with pytest.raises(ValueError, match=f"`{name}`: "):
        getattr(ops, name)(*case["args"], **case["kwargs"])


@pytest.mark.parametrize("case", OBJECTS, ids=golden_io.ids(OBJECTS))
def test_transforms_equal_the_recording(case):
    kind = getattr(ops, case["symbol"].partition(".")[2])
    transform = kind(*case["ctor"]["args"], **case["ctor"]["kwargs"])
    for step in case["steps"]:
        method = getattr(transform, step["name"])
        if "raises" in step:
            with pytest.raises(NotImplementedError, match="does not define"):
                method(*step["args"], **step["kwargs"])
        else:
            got = method(*step["args"], **step["kwargs"])
            check(got, step["out"], case["tol"])


def test_shuffle_as_recorded():
    (case,) = [case for case in CASES if case["kind"] == "property"]
    values = case["in"]["values"]
    got = ops.shuffle(values, seed=1)
    order = got["a"].numpy()
    assert sorted(order) == list(range(20))
    assert list(order) != list(range(20))
    np.testing.assert_array_equal(got["b"], values["b"].numpy()[order])


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


@pytest.mark.parametrize("case", ARRAY_CALLS, ids=golden_io.ids(ARRAY_CALLS))
def test_array_functions(case):
    function = getattr(ops, case["symbol"].rpartition(".")[2])
    got = function(*case["inputs"]["args"], **case["kwargs"])
    expected = case["outputs"]["result"]
    assert got.dtype == expected.dtype
    check(got, expected, case["tol"])
