"""Updates and selections of batch entries, eagerly, in graphs and under XLA."""

import numpy as np
import pytest
import refusals
import tensorflow as tf
from default_rows import slow
from refusals import bad

from tfrl import ops

MASKS = ([False] * 4, [True, False, True, False], [True] * 4)
MASK_NAMES = ["none", "some", "all"]
MODES = ["eager", "graph", *slow("xla")]


def run(mode, function, *tensors, sizes=True):
    """Calls a function of tensors in a mode, in graphs without static sizes."""
    if mode == "eager":
        return function(*tensors)
    specs = [
        tf.TensorSpec([None] * len(np.shape(x)) if sizes else None, x.dtype)
        for x in tensors
    ]
    return tf.function(
        function, input_signature=specs, jit_compile=mode == "xla", autograph=False
    )(*tensors)


def test_hand_worked_update():
    target = {"a": tf.constant([1.0, 2.0, 3.0]), "b": tf.constant([[1], [2], [3]])}

    def func(x, *, y):
        return {"a": x * y, "b": tf.cast(x, tf.int32)[:, tf.newaxis]}

    x, y = tf.constant([10.0, 20.0, 30.0]), tf.constant([2.0, 3.0, 4.0])
    got = ops.conditional_update(target, [True, False, True], func, x, y=y)
    np.testing.assert_array_equal(got["a"], [20.0, 2.0, 120.0])
    np.testing.assert_array_equal(got["b"], [[10], [2], [30]])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("mask", MASKS, ids=MASK_NAMES)
def test_func_sees_only_the_selected(mode, mask):
    rng = np.random.default_rng(1)
    target, x = rng.normal(size=(2, 4, 3)).astype(np.float32)
    kernel = tf.constant(rng.normal(size=(3, 3)), tf.float32)
    selected = [row for row, chosen in zip(x, mask, strict=True) if chosen]
    expected = target.copy()
    if selected:
        # The mean and the count tell whether any other row was there.
        rows = np.array(selected) @ kernel.numpy()
        expected[mask] = (rows - rows.mean(axis=0)) * len(rows)

    def func(x):
        rows = tf.matmul(x, kernel)
        count = tf.cast(tf.shape(rows)[0], tf.float32)
        return (rows - tf.reduce_mean(rows, axis=0)) * count

    got = run(
        mode,
        lambda target, mask, x: ops.conditional_update(target, mask, func, x),
        *map(tf.constant, (target, mask, x)),
    )
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("mask", MASKS, ids=MASK_NAMES)
def test_gradients_flow_into_target_and_through_func(mode, mask):
    target, x = tf.constant([1.0, 2.0, 3.0, 4.0]), tf.constant([4.0, -1.0, 9.0, -1.0])
    if all(mask):
        x = tf.abs(x)
    weights = tf.constant([1.0, 10.0, 100.0, 1000.0])

    def gradients(target, mask, x):
        with tf.GradientTape() as tape:
            tape.watch([target, x])
            # A square root of -1 would make the gradient NaN.
            got = ops.conditional_update(target, mask, tf.sqrt, x)
            loss = tf.reduce_sum(got * weights)
        zero = tf.UnconnectedGradients.ZERO
        return tape.gradient(loss, [target, x], unconnected_gradients=zero)

    to_target, to_x = run(mode, gradients, target, tf.constant(mask), x)
    np.testing.assert_allclose(to_target, np.where(mask, 0.0, weights))
    slopes = 0.5 / np.sqrt(np.where(mask, x, 1.0))
    np.testing.assert_allclose(to_x, np.where(mask, weights * slopes, 0.0), rtol=1e-6)


def test_none_selected_returns_the_target_uncalled():
    target = {"a": tf.zeros([2])}

    def func():
        raise AssertionError

    assert ops.conditional_update(target, [False, False], func) is target
    empty = (tf.zeros([0]),)
    assert ops.conditional_update(empty, tf.zeros([0], tf.bool), func) is empty


@pytest.mark.parametrize("mode", ["eager", *slow("graph"), "xla"])
@pytest.mark.parametrize("mask", MASKS, ids=MASK_NAMES)
def test_entries_without_elements_stay(mode, mask):
    state = {"h": tf.zeros([4, 0]), "x": tf.constant([1.0, 2.0, 3.0, 4.0])}

    def update(mask):
        with tf.GradientTape() as tape:
            tape.watch(state)
            got = ops.conditional_update(
                state, mask, lambda s: {"h": s["h"], "x": 2 * s["x"]}, state
            )
        return got, tape.gradient(got["x"], state["x"])

    got, slopes = run(mode, update, tf.constant(mask))
    assert got["h"].shape == [4, 0]
    np.testing.assert_array_equal(slopes, np.where(mask, 2.0, 1.0))
    np.testing.assert_array_equal(got["x"], slopes * state["x"])


def test_all_selected_passes_arguments_and_result_through():
    x = tf.constant([1.0, 2.0])
    seen = []

    def func(x, nothing):
        seen.extend([x, nothing])
        return "whatever"

    assert ops.conditional_update(x, [True, True], func, x, None) == "whatever"
    assert seen[0] is x
    assert seen[1] is None


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("mask", MASKS, ids=MASK_NAMES)
def test_empty_target_is_for_effects(mode, mask):
    total, calls = tf.Variable(0.0), tf.Variable(0)

    def func(x):
        total.assign_add(tf.reduce_sum(x))
        calls.assign_add(1)
        return ()

    def update(mask, x):
        got = ops.conditional_update((), mask, func, x)
        assert got == ()
        return x

    x = tf.constant([1.0, 10.0, 100.0, 1000.0])
    run(mode, update, tf.constant(mask), x)
    assert float(total) == float(np.sum(x.numpy()[mask]))
    assert int(calls) == any(mask)


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float64", "int32", "uint8", "bool"]
)
def test_dtype_stays(dtype):
    target = tf.zeros([4, 2], dtype)
    x = tf.cast(tf.ones([4, 2]), dtype)
    got = ops.conditional_update(target, MASKS[1], tf.identity, x)
    assert got.dtype == dtype
    np.testing.assert_array_equal(tf.cast(got, tf.int32)[:, 0], [1, 0, 1, 0])
    assert ops.select_from_mask(x, MASKS[1]).dtype == dtype


def test_unknown_rank_in_a_graph():
    tensors = tf.zeros([4, 2]), tf.constant(MASKS[1]), tf.ones([4, 2])
    got = run(
        "graph",
        lambda target, mask, x: ops.conditional_update(target, mask, tf.identity, x),
        *tensors,
        sizes=False,
    )
    np.testing.assert_array_equal(got[:, 0], [1, 0, 1, 0])
    got = run(
        "graph", lambda x, mask: ops.select_from_mask(x, mask), tensors[2], tensors[1]
    )
    assert got.shape == [2, 2]


@pytest.mark.parametrize("mode", MODES)
def test_select_keeps_order_and_structure(mode):
    data = {"a": np.arange(8.0).reshape(4, 2), "b": (np.array([5, 6, 7, 8]), None)}
    mask = np.array([-1.0, 0.0, np.nan, 2.0], np.float32)
    got = run(mode, lambda mask: ops.select_from_mask(data, mask), tf.constant(mask))
    np.testing.assert_array_equal(got["a"], [[0.0, 1.0], [4.0, 5.0], [6.0, 7.0]])
    np.testing.assert_array_equal(got["b"][0], [5, 7, 8])
    assert got["b"][1] is None


@pytest.mark.parametrize("mode", MODES)
def test_hand_worked_reset(mode):
    state = (tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([1, 2], tf.int64))
    initial = (tf.constant([[9.0, 9.0], [8.0, 8.0]]), tf.constant([7, 7], tf.int32))
    got = run(
        mode,
        lambda mask: ops.reset_state_if_necessary(state, initial, mask),
        tf.constant([True, False]),
    )
    np.testing.assert_array_equal(got[0], [[9.0, 9.0], [3.0, 4.0]])
    np.testing.assert_array_equal(got[1], [7, 2])
    assert got[1].dtype == tf.int64
    nothing = ops.reset_state_if_necessary(
        {"a": None, "b": ()}, {"a": None, "b": ()}, [True]
    )
    assert nothing == {"a": None, "b": ()}


ONE, TWO = tf.constant([1.0]), tf.constant([1.0, 2.0])
SOME = [True, False]


@refusals.table(
    (
        ops.conditional_update,
        bad(ValueError, "cond", TWO, True, abs, TWO),
        bad(TypeError, "cond", TWO, [1, 0], abs, TWO),
        bad(ValueError, "target", ONE, SOME, abs, TWO),
        bad(ValueError, "args", TWO, SOME, abs, ONE),
        bad(ValueError, "args", TWO, SOME, abs, 1.0),
        bad(TypeError, "func", TWO, SOME, lambda x: tf.cast(x, tf.int32), TWO),
        bad(ValueError, "func", TWO, SOME, lambda x: x[:, tf.newaxis], TWO),
        bad(ValueError, "func", TWO, SOME, lambda x: tf.ones([2]), TWO),
        bad(TypeError, "func", (TWO,), SOME, lambda x: [x], TWO),
    ),
    (
        ops.select_from_mask,
        bad(ValueError, "data", TWO, [True]),
        bad(ValueError, "mask", TWO, [[True, False]]),
    ),
    (
        ops.reset_state_if_necessary,
        bad(ValueError, "initial_state", TWO, ONE, SOME),
        bad(ValueError, "state", TWO, TWO, [True]),
        bad(TypeError, "reset_mask", TWO, TWO, [1, 0]),
        bad(ValueError, "initial_state", [TWO], [TWO, TWO], SOME),
    ),
)
def test_refusals(row):
    row()
