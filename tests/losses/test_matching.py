"""Tests of `tfrl.losses.matching`."""

import itertools
import sys

import golden_io
import numpy as np
import pytest
import refusals
import tensorflow as tf
from refusals import bad, zeros

from tfrl import losses

# Two samples; pairs (0, 1) (1, 0) are best in the first, (0, 0) (1, 1) in the second.
COSTS = np.array([[[1.0, 2.0], [1.0, 9.0]], [[0.5, 4.0], [7.0, 0.25]]])


def assignment_slowly(matching_costs, costs):
    """Tries every permutation."""
    n = costs.shape[1]
    best = [
        min(
            itertools.permutations(range(n)),
            key=lambda g, sample=sample: sum(sample[i, g[i]] for i in range(n)),
        )
        for sample in np.asarray(matching_costs, np.float64)
    ]
    chosen = [[c[i, g[i]] for i in range(n)] for c, g in zip(costs, best, strict=True)]
    return np.array(chosen), np.array(best)


def in_graph(loss_fn):
    """As a function traced with unknown sizes."""
    return tf.function(
        lambda *args, **kwargs: loss_fn(*args, **kwargs), reduce_retracing=True
    )


# The other recordings are repeated by the conformance battery.
GRADIENTS = [
    case
    for case in golden_io.load("alf/losses", symbol="BipartiteMatchingLoss")
    if case["kind"] == "grad"
]


@pytest.mark.parametrize("wrap", [lambda f: f, in_graph], ids=["eager", "graph"])
@pytest.mark.parametrize("case", GRADIENTS, ids=golden_io.ids(GRADIENTS))
def test_recorded_gradients(case, wrap):
    given, out = case["in"], case["out"]
    loss_fn = wrap(losses.BipartiteMatchingLoss(given["reduction"]))
    costs, choosing = tf.constant(given["cost"]), tf.constant(given["matching"])
    with tf.GradientTape() as tape:
        tape.watch([costs, choosing])
        loss, indices = loss_fn(choosing, costs)
    of_costs, of_choosing = tape.gradient(loss, [costs, choosing])
    np.testing.assert_allclose(loss, out["loss"], **case["tol"])
    np.testing.assert_array_equal(indices, out["index"])
    np.testing.assert_allclose(of_costs, out["dcost"], **case["tol"])
    assert of_choosing is None


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [("mean", [1.5, 0.375]), ("sum", [3.0, 0.75]), ("none", [[2.0, 1.0], [0.5, 0.25]])],
)
def test_by_hand(reduction, expected):
    loss, indices = losses.BipartiteMatchingLoss(reduction)(COSTS)
    np.testing.assert_array_equal(loss, expected)
    np.testing.assert_array_equal(indices, [[1, 0], [0, 1]])


@pytest.mark.parametrize("n", [1, 2, 5])
def test_against_every_permutation(n):
    generator = np.random.default_rng(n)
    # Samples of very different scale: each is assigned on its own.
    scale = 10.0 ** np.arange(-3, 3)[:, None, None]
    choosing = generator.normal(size=(6, n, n)) * scale
    costs = generator.normal(size=(6, n, n))
    loss, indices = losses.BipartiteMatchingLoss("none")(choosing, costs)
    expected, best = assignment_slowly(choosing, costs)
    np.testing.assert_array_equal(indices, best)
    np.testing.assert_array_equal(loss, expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dtype_is_kept(dtype):
    loss, indices = losses.BipartiteMatchingLoss()(tf.constant(COSTS, dtype))
    assert loss.dtype == dtype
    assert indices.dtype == tf.int64
    np.testing.assert_array_equal(tf.cast(loss, tf.float64), [1.5, 0.375])


def test_scales_that_float32_cannot_add():
    tiny = 1e-6 * COSTS[0]
    loss, indices = losses.BipartiteMatchingLoss("sum")(
        tf.constant([tiny, 1e6 * COSTS[1]], tf.float32)
    )
    np.testing.assert_array_equal(indices, [[1, 0], [0, 1]])
    np.testing.assert_allclose(loss, [3e-6, 0.75e6], rtol=1e-6)


@pytest.mark.parametrize(
    ("given", "loss_shape", "matching_shape"),
    [
        ([2, 3, 3], [2], [2, 3]),
        ([None, 3, 3], [None], [None, 3]),
        ([None, None, None], [None], [None, None]),
        (None, [None], [None, None]),
    ],
    ids=["all known", "batch unknown", "sizes unknown", "rank unknown"],
)
def test_static_shapes(given, loss_shape, matching_shape):
    function = tf.function(losses.BipartiteMatchingLoss("sum"))
    concrete = function.get_concrete_function(tf.TensorSpec(given))
    assert concrete.structured_outputs.loss.shape.as_list() == loss_shape
    assert concrete.structured_outputs.extra.shape.as_list() == matching_shape
    costs = np.random.default_rng(0).normal(size=(2, 3, 3)).astype("float32")
    loss, indices = concrete(tf.constant(costs))
    chosen, best = assignment_slowly(costs, costs)
    np.testing.assert_array_equal(indices, best)
    np.testing.assert_allclose(loss, chosen.sum(axis=1), rtol=1e-6)


def test_xla_says_why_it_cannot():
    function = tf.function(losses.BipartiteMatchingLoss(), jit_compile=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="on_the_host_not_for_XLA"):
        function(tf.constant(COSTS))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_costs_that_are_not_finite(bad):
    costs = COSTS.copy()
    costs[1, 0, 1] = bad
    loss_fn = losses.BipartiteMatchingLoss()
    with pytest.raises(ValueError, match=r"in samples \[1\] of 2; give forbidden"):
        loss_fn(costs)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"in samples \[1\] of 2"):
        tf.function(loss_fn)(tf.constant(costs))


@refusals.table(
    (losses.BipartiteMatchingLoss, bad(ValueError, "reduction", "max")),
    (
        losses.BipartiteMatchingLoss(),
        bad(ValueError, "matching_cost_mat", zeros(2, 2)),
        bad(ValueError, "matching_cost_mat", zeros(2, 2, 3)),
        bad(ValueError, "cost_mat", COSTS, zeros(1, 2, 2)),
        bad(TypeError, "matching_cost_mat", np.zeros((2, 2, 2), int)),
        bad(TypeError, "cost_mat", COSTS, np.zeros((2, 2, 2), int)),
    ),
)
def test_errors(row):
    row()


def test_sizes_seen_only_at_run_time():
    function = tf.function(
        losses.BipartiteMatchingLoss(),
        input_signature=[tf.TensorSpec([None, None, None], tf.float64)],
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"expected \[B, N, N\]"):
        function(np.zeros((2, 2, 3)))


def test_scipy_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(ImportError, match=r"pip install scipy .*tfrl\[matching\]"):
        losses.BipartiteMatchingLoss()(COSTS)
