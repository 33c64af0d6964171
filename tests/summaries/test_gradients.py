"""Tests of summaries of variables and gradients."""

import event_files
import golden_io
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from event_files import Untouchable, both
from modes import in_mode
from refusals import bad, table

import tfrl
from tfrl.summaries import gradients

CASES = {
    name: golden_io.load("alf/summary_utils_doc", build={"t": tf.constant}, symbol=name)
    for name in (
        "summarize_variables",
        "summarize_gradients",
        "summarize_tensor_gradients",
        "summarize_distribution_gradient",
    )
}


def golden(name):
    return pytest.mark.parametrize("case", CASES[name], ids=golden_io.ids(CASES[name]))


def check(case, directory):
    found = event_files.last(directory)
    event_files.check_calls(found, case["out"]["calls"], **case["tol"])


@event_files.eagerly_and_slow
@golden("summarize_variables")
def test_golden_variables(case, mode, tmp_path):
    [named] = case["in"]["args"]
    with event_files.writing(tmp_path):
        in_mode(mode, lambda: gradients.summarize_variables(named))()
    check(case, tmp_path)


@event_files.eagerly_and_slow
@golden("summarize_gradients")
def test_golden_gradients(case, mode, tmp_path):
    given = case["in"]
    pairs = list(zip(given["names"], given["grads"], strict=True))
    histogram = given["with_histogram"]
    with event_files.writing(tmp_path):
        in_mode(mode, lambda: gradients.summarize_gradients(pairs, histogram))()
    check(case, tmp_path)


@event_files.eagerly_and_slow
@golden("summarize_tensor_gradients")
def test_golden_tensor_gradients(case, mode, tmp_path):
    given = case["in"]

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            z = x * 1.0
            y = gradients.summarize_tensor_gradients(
                "g", z, given["batch_dims"], given["clone"]
            )
            # Without hooks on tensors, only uses of what was returned are seen.
            z = z if given["clone"] else y
            loss = tf.reduce_sum(y**2) + tf.reduce_sum(z**3)
        return tape.gradient(loss, x)

    with event_files.writing(tmp_path):
        gradient = in_mode(mode, step)(given["x"])
    np.testing.assert_allclose(
        gradient, 2 * given["x"] + 3 * given["x"] ** 2, rtol=1e-5, atol=1e-6
    )
    check(case, tmp_path)


@event_files.eagerly_and_slow
@golden("summarize_distribution_gradient")
def test_golden_distribution_gradient(case, mode, tmp_path):
    given = case["in"]

    def step(loc, scale):
        with tf.GradientTape() as tape:
            tape.watch([loc, scale])
            policy = tfrl.distributions.DiagMultivariateNormal(loc, scale)
            policy = gradients.summarize_distribution_gradient("g", policy)
            loss = tf.reduce_sum(policy.log_prob(tf.zeros_like(loc)))
        return tape.gradient(loss, [loc, scale])

    with event_files.writing(tmp_path):
        got = in_mode(mode, step)(given["loc"], given["scale"])
    np.testing.assert_allclose(got[0], -given["loc"] / given["scale"] ** 2, rtol=1e-5)
    check(case, tmp_path)


def test_hand_worked(tmp_path):
    rows = tf.IndexedSlices(tf.constant([[3.0], [4.0], [4.0]]), [0, 2, 2], [4, 1])
    with event_files.writing(tmp_path):
        gradients.summarize_gradients([("rows", rows), ("none", None)])
        gradients.summarize_variables([("v", keras.Variable([3.0, 4.0]))], False)
        gradients.summarize_variables([("n", tf.Variable([6, 8]))])
    found = event_files.last(tmp_path)
    assert found.pop("summarize_grads/rows_gradient")[:, 2].sum() == 4
    assert found.pop("summarize_vars/n_value")[:, 2].sum() == 2
    assert found == {
        "summarize_grads/rows_gradient_norm": np.float32(73**0.5),
        "summarize_vars/v_value_norm": 5.0,
        "summarize_vars/n_value_norm": 10.0,
    }


@both
def test_norms_of_rows(mode, tmp_path):
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            watched = [
                gradients.summarize_tensor_gradients(str(batch_dims), x, batch_dims)
                for batch_dims in (0, 1, 2)
            ]
            loss = sum(watched) * tf.constant([[3.0, 4.0], [0.0, -12.0]])
        return tape.gradient(loss, x)

    with event_files.writing(tmp_path):
        in_mode(mode, step)(tf.zeros([2, 2]))
    assert event_files.last(tmp_path) == {
        **{"0/max_norm": 13.0, "0/avg_norm": 13.0},
        **{"1/max_norm": 12.0, "1/avg_norm": 8.5},
        **{"2/max_norm": 12.0, "2/avg_norm": np.float32(19 / 4)},
    }


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_large_gradients_do_not_overflow(dtype, tmp_path):
    large = {"float16": 3e4, "float64": 3e38}.get(dtype, 2e38)
    x = tf.zeros([1, 4], dtype)
    with event_files.writing(tmp_path), tf.GradientTape() as tape:
        tape.watch(x)
        y = gradients.summarize_tensor_gradients("g", x)
        got = tape.gradient(y * tf.constant([large, 0, 0, 0], dtype), x)
    assert got.dtype == y.dtype == dtype
    found = event_files.last(tmp_path)["g/max_norm"]
    np.testing.assert_allclose(found, large, rtol=1e-2)


def test_variables_are_watched(tmp_path):
    x, y = keras.Variable([3.0, 4.0]), tf.Variable([5.0])
    with event_files.writing(tmp_path), tf.GradientTape() as tape:
        seen = gradients.summarize_tensor_gradients("g", {"x": x, "y": y}, 0)
        loss = tf.reduce_sum(seen["x"] ** 2) + tf.reduce_sum(seen["y"])
        got = tape.gradient(loss, [x.value, y])
    np.testing.assert_allclose(got[0], [6.0, 8.0])
    found = event_files.last(tmp_path)
    assert (found["g/x/max_norm"], found["g/y/max_norm"]) == (10.0, 1.0)


@both
def test_nests_scopes_and_what_has_no_gradient(mode, tmp_path):
    ints, text = tf.constant([1]), "text"

    def step(a, b):
        with tf.GradientTape() as tape:
            tape.watch([a, b])
            nest = {"b": [b, ints], "a": a, "c": (None, text)}
            with tf.name_scope("critic"):
                nest = gradients.summarize_tensor_gradients("g", nest)
            loss = tf.reduce_sum(nest["a"]) + 2 * tf.reduce_sum(nest["b"][0])
        assert nest["b"][1] is ints
        assert nest["c"] == (None, text)
        return tape.gradient(loss, [a, b])

    with event_files.writing(tmp_path):
        in_mode(mode, step)(tf.ones([3]), tf.ones([2, 1]))
    assert event_files.last(tmp_path) == {
        **{"critic/g/a/max_norm": 1.0, "critic/g/a/avg_norm": 1.0},
        **{"critic/g/b.0/max_norm": 2.0, "critic/g/b.0/avg_norm": 2.0},
    }


def test_step_and_condition_are_those_of_the_backward_pass(tmp_path):
    step, x = tf.Variable(0, dtype=tf.int64), tf.Variable([1.0])

    @tf.function(autograph=False)
    def update():
        with tf.GradientTape() as tape:
            y = gradients.summarize_tensor_gradients("g", x)
            loss = tf.reduce_sum(y**2)
        x.assign_sub(0.25 * tape.gradient(loss, x))

    with (
        event_files.writing(tmp_path, step=step),
        tf.summary.record_if(lambda: step % 2 == 0),
    ):
        for _ in range(4):
            update()
            step.assign_add(1)
    found = event_files.points(tmp_path)["g/max_norm"]
    assert [(at, float(norm)) for at, norm in found] == [(0, 2.0), (2, 0.5)]


def test_one_forward_pass_two_gradients(tmp_path):
    x = tf.constant([1.0])
    with event_files.writing(tmp_path):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = gradients.summarize_tensor_gradients("g", x)
            z = 3 * y
        with tf.summary.record_if(False):
            tape.gradient(y, x)
        tape.gradient(z, x)
    assert event_files.last(tmp_path)["g/max_norm"] == 3.0


def test_nothing_changes_when_off(tmp_path):
    x, policy = tf.ones([2]), tfp.distributions.Normal([0.0], 1.0)

    def check_same():
        assert gradients.summarize_tensor_gradients("g", x) is x
        assert gradients.summarize_distribution_gradient("p", policy) is policy
        gradients.summarize_gradients([("x", Untouchable())])
        gradients.summarize_variables([("x", Untouchable())])

    check_same()
    with event_files.writing(tmp_path), tf.summary.record_if(False):
        check_same()
    assert event_files.points(tmp_path) == {}


def test_norms_are_not_computed_in_a_graph_when_off(tmp_path, monkeypatch):
    computed, on, norm = [], tf.Variable(False), tf.norm

    def counted(rows, axis):
        with tf.control_dependencies([tf.py_function(computed.append, [0], [])]):
            return norm(rows, axis=axis)

    monkeypatch.setattr(tf, "norm", counted)

    @tf.function(autograph=False)
    def update(x):
        return tf.gradients(gradients.summarize_tensor_gradients("g", x) ** 2, x)

    with event_files.writing(tmp_path), tf.summary.record_if(lambda: on):
        update(tf.ones([2]))
        assert not computed
        on.assign(True)
        [got] = update(tf.ones([2]))
        assert len(computed) == 1
    assert got.numpy().tolist() == [2.0, 2.0]


def test_unknown_shapes(tmp_path):
    @tf.function(autograph=False, input_signature=[tf.TensorSpec(None)])
    def update(x):
        y = gradients.summarize_tensor_gradients("g", x)
        return tf.gradients(y * tf.constant([3.0, 4.0]), x)

    with event_files.writing(tmp_path):
        update(tf.ones([1, 2]))
        update(tf.ones([0, 2]))
    assert event_files.last(tmp_path)["g/max_norm"] == 5.0


def test_replicas(tmp_path):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    @tf.function(autograph=False)
    def update():
        def replica():
            x = tf.constant([1.0])
            y = gradients.summarize_tensor_gradients("g", x)
            return tf.gradients(y**2, x)[0]

        return strategy.run(replica)

    with event_files.writing(tmp_path):
        update()
    assert event_files.last(tmp_path)["g/max_norm"] == 2.0


NAMED = [("x", keras.Variable([1.0]))]
RAGGED = tf.ragged.constant([[1.0], [1.0, 2.0]])


@table(
    (
        gradients.summarize_tensor_gradients,
        bad(ValueError, "tensor", "g", tf.ones([2]), 2),
        bad(ValueError, "batch_dims", "g", tf.ones([2]), -1),
        bad(TypeError, "tensor", "g", RAGGED),
    ),
    (
        gradients.summarize_distribution_gradient,
        bad(TypeError, "batch_dims", "g", tf.ones([2]), 1.0),
    ),
    (
        gradients.summarize_gradients,
        bad(TypeError, "name_and_params", [("x", tf.constant("text"))]),
        bad(TypeError, "name_and_params", NAMED),
        bad(TypeError, "name_and_params", {"ab": tf.ones([2])}),
    ),
    (gradients.summarize_variables, bad(TypeError, "name_and_params", [tf.ones([2])])),
)
def test_refusals(row, tmp_path):
    with event_files.writing(tmp_path):
        row()
