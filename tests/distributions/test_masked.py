"""Tests of `tfrl.distributions.masked`."""

import math

import confidence
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.distributions import masked

tfd = tfp.distributions

SEED = np.array([3, 7], np.int32)
LOGITS = np.array([[0.5, 30.0, -1.0, 2.0], [1.0, 0.0, 0.0, np.nan]], np.float32)
MASK = np.array([[1, 0, 1, 1], [1, 1, 0, 0]], np.int8)


def probabilities(logits, mask):
    """Softmax over the options allowed, one row after the other."""
    rows = []
    for row, allowed in zip(logits.astype(np.float64), mask.astype(bool), strict=True):
        weights = np.where(allowed, np.exp(np.where(allowed, row, 0.0)), 0.0)
        rows.append(weights / weights.sum())
    return np.array(rows)


def test_by_hand():
    dist = masked.MaskedCategorical([0.0, 5.0, math.log(3.0)], [True, False, True])
    np.testing.assert_allclose(dist.probs_parameter(), [0.25, 0.0, 0.75], rtol=1e-6)
    entropy = 0.25 * math.log(4.0) + 0.75 * math.log(4.0 / 3.0)
    np.testing.assert_allclose(dist.entropy(), entropy, rtol=1e-6)
    assert int(dist.mode()) == 2
    assert dist.logits[1] == 5.0
    assert dist.logits_parameter()[1] == -np.inf


@pytest.mark.parametrize(("dtype", "jit"), [("float32", True), ("float64", False)])
def test_against_a_plain_softmax(dtype, jit):
    options = np.arange(4)[:, None]

    @tf.function(jit_compile=jit)
    def everything(logits, mask):
        dist = masked.MaskedCategorical(logits, mask)
        return (
            *(dist.probs_parameter(), dist.log_prob(options), dist.prob(options)),
            *(dist.entropy(), dist.mode(), dist.mean()),
        )

    probs, log_probs, masses, entropy, mode, mean = everything(
        LOGITS.astype(dtype), MASK
    )
    expected = probabilities(LOGITS, MASK)
    np.testing.assert_allclose(probs, expected, rtol=1e-5)
    np.testing.assert_array_equal(probs.numpy() == 0, MASK == 0)
    np.testing.assert_array_equal(np.isneginf(log_probs), MASK.T == 0)
    with np.errstate(divide="ignore"):
        logs = np.log(expected)
    np.testing.assert_allclose(log_probs, logs.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(masses, expected.T, rtol=1e-5)
    terms = np.where(expected > 0, expected * np.where(expected > 0, logs, 0.0), 0.0)
    np.testing.assert_allclose(entropy, -terms.sum(-1), rtol=1e-5)
    np.testing.assert_array_equal(mode, [3, 0])
    np.testing.assert_allclose(mean, expected @ np.arange(4), rtol=1e-5)
    assert {each.dtype.name for each in (probs, log_probs, entropy)} == {dtype}


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
def test_draws(jit):
    dist = masked.MaskedCategorical(LOGITS, MASK)
    draw = tf.function(lambda: dist.sample(20_000, seed=SEED), jit_compile=jit)
    drawn = draw().numpy()
    for numbers, probs in zip(drawn.T, probabilities(LOGITS, MASK), strict=True):
        confidence.assert_frequencies(np.bincount(numbers, minlength=4), probs)
    # Logarithms may differ in the last digit, and an option that is as good be taken.
    assert np.mean(drawn == dist.sample(20_000, seed=SEED)) > 0.9999


@pytest.mark.parametrize("level", [1e8, -1e8])
def test_equal_logits_are_drawn_alike_however_large(level):
    drawn = masked.MaskedCategorical([level] * 3, [True, False, True])
    counts = np.bincount(drawn.sample(20_000, seed=SEED), minlength=3)
    confidence.assert_frequencies(counts, [0.5, 0.0, 0.5])


def test_seeds():
    dist = masked.MaskedCategorical(np.zeros([50, 4], "f"), MASK[0])
    assert dist.sample(seed=1).dtype == tf.int32
    for seed in (5, SEED):
        np.testing.assert_array_equal(dist.sample(2, seed), dist.sample(2, seed))
    assert np.any(dist.sample(seed=5) != dist.sample(seed=6))
    assert np.any(dist.sample() != dist.sample())


def test_rows_without_an_option_are_uniform_in_graphs():
    @tf.function(jit_compile=True)
    def everything(logits, mask):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            dist = masked.MaskedCategorical(logits, mask)
            log_probs = dist.log_prob([1, 1])
        gradient = tape.gradient(log_probs, logits)
        return dist.probs_parameter(), dist.entropy(), dist.mode(), gradient

    mask = MASK * np.array([[0], [1]], np.int8)
    probs, entropy, mode, gradient = everything(tf.constant(LOGITS), tf.constant(mask))
    np.testing.assert_allclose(probs[0], [0.25] * 4)
    np.testing.assert_allclose(probs[1], probabilities(LOGITS, MASK)[1], rtol=1e-5)
    np.testing.assert_allclose(entropy[0], math.log(4.0), rtol=1e-6)
    assert int(mode[0]) == 0
    np.testing.assert_array_equal(gradient[0], [0.0] * 4)


def test_divergence():
    one = masked.MaskedCategorical(LOGITS[:1], MASK[:1])
    two = masked.MaskedCategorical([1.0, 1.0, 1.0, 1.0], [True, False, True, True])
    probs = probabilities(LOGITS[:1], MASK[:1])[0][[0, 2, 3]]
    expected = (probs * np.log(3.0 * probs)).sum()
    np.testing.assert_allclose(tfd.kl_divergence(one, two), [expected], rtol=1e-5)
    free = tfd.Categorical(logits=tf.zeros(4))
    expected = (probs * np.log(4.0 * probs)).sum()
    np.testing.assert_allclose(tfd.kl_divergence(one, free), [expected], rtol=1e-5)
    assert np.isposinf(tfd.kl_divergence(free, two))


def test_shapes_slices_and_copies():
    dist = masked.MaskedCategorical(LOGITS[:, None], MASK[0], dtype=tf.int64)
    assert (dist.batch_shape, dist.event_shape, dist.dtype) == ([2, 1], [], tf.int64)
    assert dist.sample([3], seed=1).shape == [3, 2, 1]
    part = dist[0]
    assert part.batch_shape == [1]
    # Not to the last bit: kernels vectorise [1, 4] and [2, 1, 4] differently.
    np.testing.assert_allclose(
        part.probs_parameter(), dist.probs_parameter()[0], rtol=1e-6
    )
    other = dist.copy(mask=[True, True, False, False])
    np.testing.assert_array_equal(other.mask, [True, True, False, False])
    assert other.dtype == tf.int64
    wide = masked.MaskedCategorical(LOGITS[0, :1] + np.zeros(4, "f"), MASK)
    assert wide.batch_shape == [2]


@pytest.mark.parametrize(
    ("mask", "error", "match"),
    [
        ([False, False, False], ValueError, "an allowed option in each row; got none"),
        ([[1, 0, 0], [0, 0, 0]], ValueError, "got none in 1 of 2"),
        ([1.0, 0.0, 1.0], TypeError, "expected bool or integers; got float32"),
        ([True, False], ValueError, "expected a shape that broadcasts with that of"),
        (True, ValueError, "expected rank of at least 1"),
    ],
    ids=["nothing", "one row of nothing", "floats", "shape", "scalar"],
)
def test_bad_masks(mask, error, match):
    with pytest.raises(error, match=f"`MaskedCategorical`: `mask` .*{match}"):
        masked.MaskedCategorical(tf.zeros([2, 3]), mask)
