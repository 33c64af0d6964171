"""Quantile fractions and their embedding."""

import golden_io
import numpy as np
import pytest
import tensorflow as tf

from tfrl import ops
from tfrl.ops import quantile_fractions

DRAWN = golden_io.load("coax/array", symbol="quantiles_uniform")


@pytest.mark.parametrize("case", DRAWN, ids=golden_io.ids(DRAWN))
def test_random_fractions_of_the_recorded_draw(case):
    got = quantile_fractions._cuts(tf.constant(case["inputs"]["uniform_draw"]))
    assert got.shape == ops.quantiles_uniform(**case["kwargs"]).shape
    np.testing.assert_allclose(got, case["outputs"]["result"], **case["tol"])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_even_fractions_of_a_dtype(dtype):
    got = ops.quantiles(3, 5, dtype=dtype)
    assert got.dtype == dtype
    assert got.shape == [3, 5]
    exact = tf.constant([[0.0, 1 / 5, 2 / 5, 3 / 5, 4 / 5]] * 3, tf.float64)
    np.testing.assert_array_equal(got, tf.cast(exact, dtype))


@pytest.mark.parametrize("seed", [0, 2**40, (1, 2)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_random_fractions_rise_to_one(seed, dtype):
    got = ops.quantiles_uniform(seed, 50, 16, dtype=dtype)
    assert got.dtype == dtype
    assert got.shape == [50, 16]
    fractions = np.float64(got)
    np.testing.assert_array_equal(fractions[:, -1], 1.0)
    assert fractions.min() > 0.0
    steps = np.diff(fractions, axis=-1)
    assert np.all(steps > 0.0) or (dtype == "bfloat16" and np.all(steps >= 0.0))


def test_random_fractions_follow_the_seed_everywhere():
    def drawn(seed, like):
        return ops.quantiles_uniform(seed, tf.shape(like)[0], num_quantiles=4)

    specs = [tf.TensorSpec([2], tf.int32), tf.TensorSpec([None])]
    seed, like = tf.constant([3, 4]), tf.zeros([5])
    eager = drawn(seed, like)
    for xla in (None, True):
        graph = tf.function(drawn, input_signature=specs, jit_compile=xla)
        np.testing.assert_allclose(graph(seed, like), eager, rtol=1e-6)
    assert np.any(drawn(tf.constant([3, 5]), like) != eager)
    assert np.any(
        ops.quantiles_uniform(None, 5, 4) != ops.quantiles_uniform(None, 5, 4)
    )


def test_random_fractions_are_spread_evenly():
    fractions = ops.quantiles_uniform(5, batch_size=4000, num_quantiles=10)
    # A cut of exchangeable pieces: piece i ends at (i + 1) / 10 on average.
    means = np.mean(fractions, axis=0)
    np.testing.assert_allclose(means, np.arange(1, 11) / 10, atol=0.01)


def test_hand_worked_embedding():
    tau = tf.constant([[0.0, 1 / 3], [0.5, 1.0]], tf.float64)
    got = ops.quantile_cos_embedding(tau, n=3)
    expected = [[[1, 1, 1], [0.5, -0.5, -1]], [[0, -1, 0], [-1, 1, -1]]]
    np.testing.assert_allclose(got, expected, atol=1e-12)
    assert ops.quantile_cos_embedding(tau).shape == [2, 2, 64]
    assert ops.quantile_cos_embedding(0.5, n=2).shape == [2]


@pytest.mark.parametrize("xla", [None, True], ids=["graph", "xla"])
def test_embedding_of_unknown_sizes(xla):
    spec = tf.TensorSpec([None, None], tf.float64)
    graph = tf.function(
        lambda tau: ops.quantile_cos_embedding(tau, n=5),
        input_signature=[spec],
        jit_compile=xla,
    )
    tau = np.random.default_rng(0).random([3, 4])
    expected = np.cos(np.pi * tau[..., np.newaxis] * np.arange(1, 6))
    np.testing.assert_allclose(graph(tau), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float16", 1e-3), ("bfloat16", 1e-2)]
)
def test_embedding_keeps_the_dtype(dtype, tolerance):
    tau = tf.cast([0.25, 0.75, 0.9], dtype)
    got = ops.quantile_cos_embedding(tau)
    assert got.dtype == dtype
    angles = np.pi * np.float64(tau)[:, np.newaxis] * np.arange(1, 65)
    np.testing.assert_allclose(np.float64(got), np.cos(angles), atol=tolerance)


def test_arguments_are_checked():
    draws = {ops.quantiles: (), ops.quantiles_uniform: (0,)}
    for function, seed in draws.items():
        with pytest.raises(
            ValueError, match="`batch_size` expected an int of at least 0"
        ):
            function(*seed, -1)
        with pytest.raises(
            ValueError, match="`num_quantiles` expected an int of at le"
        ):
            function(*seed, 1, 0)
        with pytest.raises(TypeError, match="`num_quantiles` expected an int of at le"):
            function(*seed, 1, 2.0)
        with pytest.raises(TypeError, match="`dtype` expected a floating-point dtype"):
            function(*seed, 1, 2, dtype=tf.int32)
    with pytest.raises(
        TypeError, match="`quantile_fractions` expected a floating-poin"
    ):
        ops.quantile_cos_embedding([1, 2])
    with pytest.raises(ValueError, match="`n` expected an int of at least 1; got 0"):
        ops.quantile_cos_embedding([0.5], n=0)
