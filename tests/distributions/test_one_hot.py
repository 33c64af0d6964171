"""Tests of `tfrl.distributions.one_hot`."""

import inspect

import confidence
import golden_distributions
import golden_io
import modes
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.distributions import one_hot

tfd = tfp.distributions
SEED = [3, 7]
StraightThrough = one_hot.OneHotCategoricalStraightThrough
GumbelSoftmax = one_hot.OneHotCategoricalGumbelSoftmax
CLASSES = ("OneHotCategoricalStraightThrough", "OneHotCategoricalGumbelSoftmax")
BOTH = pytest.mark.parametrize("cls", [StraightThrough, GumbelSoftmax])
INJECTED = golden_distributions.load(CLASSES, "injected")
MODES = golden_distributions.load(CLASSES, "mode_grad")
PROBS = np.array([0.1, 0.0, 0.6, 0.3], np.float32)


@golden_distributions.cases(CLASSES)
def test_golden(case, mode):
    golden_distributions.check(case, mode)


@golden_distributions.draws(CLASSES)
def test_golden_draws(case):
    golden_distributions.check_draws(case)


@pytest.mark.parametrize("case", INJECTED, ids=golden_io.ids(INJECTED))
def test_golden_draws_of_given_noise(case, monkeypatch):
    given, expected = case["in"], case["out"]
    noise, logits = tf.constant(given["gumbel"]), tf.constant(given["logits"])
    monkeypatch.setattr(
        one_hot,
        "_gumbel",
        lambda n, like, seed: tf.reshape(noise, [n, *like.shape]),
    )
    with tf.GradientTape() as tape:
        tape.watch(logits)
        dist = GumbelSoftmax(given["hard_sample"], given["tau"], logits=logits)
        draws = dist.sample(noise.shape[: noise.shape.rank - logits.shape.rank])
        total = tf.reduce_sum(draws * given["ct"])
    np.testing.assert_allclose(draws, expected["sample"], **case["tol"])
    gradient = tape.gradient(total, logits)
    np.testing.assert_allclose(gradient, expected["dlogits"], **case["tol"])


@pytest.mark.parametrize("case", MODES, ids=golden_io.ids(MODES))
def test_golden_modes(case):
    given, expected = case["in"], case["out"]
    cls = getattr(one_hot, case["symbol"].rsplit(".", 1)[-1])
    logits = tf.constant(given["logits"])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        mode = cls(logits=logits).mode()
        total = tf.reduce_sum(mode * given["ct"])
    np.testing.assert_allclose(mode, expected["mode"], **case["tol"])
    gradient = tape.gradient(total, logits)
    np.testing.assert_allclose(gradient, expected["dlogits"], **case["tol"])


@BOTH
def test_by_hand(cls):
    for dist in (cls(probs=10 * PROBS), cls(logits=np.log(PROBS + 1e-30) + 5.0)):
        np.testing.assert_allclose(dist.mean(), PROBS, atol=1e-6)
        np.testing.assert_array_equal(dist.mode(), [0, 0, 1, 0])
        np.testing.assert_allclose(dist.variance(), PROBS * (1 - PROBS), atol=1e-6)
        covariance = np.diag(PROBS) - np.outer(PROBS, PROBS)
        np.testing.assert_allclose(dist.covariance(), covariance, atol=1e-6)
        expected = -(np.log(0.1) * 0.1 + np.log(0.6) * 0.6 + np.log(0.3) * 0.3)
        np.testing.assert_allclose(dist.entropy(), expected, rtol=1e-5)
        log_probs = dist.log_prob([[0.0, 0.0, 0.0, 1.0], [0.2, 0.1, 0.6, 0.1]])
        np.testing.assert_allclose(log_probs, np.log([0.3, 0.6]), rtol=1e-5)
        np.testing.assert_allclose(dist.probs_parameter(), PROBS, atol=1e-6)
        assert dist.reparameterization_type == tfd.FULLY_REPARAMETERIZED


@BOTH
def test_draws_are_one_hot_with_the_right_frequencies(cls):
    dist = cls(probs=tf.constant(np.stack([PROBS, PROBS[::-1]])))
    sample = tf.function(lambda: dist.sample(20_000, seed=SEED), jit_compile=True)
    draws = sample().numpy()
    assert np.all((draws == 0) | (draws == 1))
    np.testing.assert_array_equal(draws.sum(-1), 1.0)
    confidence.assert_frequencies(draws[:, 0].sum(0), PROBS)
    confidence.assert_frequencies(draws[:, 1].sum(0), PROBS[::-1])
    # The rows are independent.
    joint = np.einsum("ni,nj->ij", draws[:, 0], draws[:, 1])
    confidence.assert_frequencies(joint.ravel(), np.outer(PROBS, PROBS[::-1]).ravel())


@BOTH
def test_probs_of_all_sizes(cls):
    probs = tf.constant([1e-30, 1e20, 0.0])
    with tf.GradientTape() as tape:
        tape.watch(probs)
        log_prob = cls(probs=probs).log_prob([1.0, 0.0, 0.0])
    np.testing.assert_allclose(log_prob, -50 * np.log(10.0), rtol=1e-6)
    np.testing.assert_allclose(tape.gradient(log_prob, probs), [1e30, -1e-20, -1e-20])


def test_straight_through_gradient_is_that_of_probs():
    logits, weights = tf.constant([0.3, -1.0, 2.0]), np.array([1.0, 2.0, 4.0])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        draws = StraightThrough(logits=logits).sample(7, seed=SEED)
        total = tf.reduce_sum(draws * tf.constant(weights, tf.float32))
    probs = np.exp(logits) / np.exp(logits).sum()
    expected = 7 * probs * (weights - probs @ weights)
    np.testing.assert_allclose(tape.gradient(total, logits), expected, rtol=1e-5)


def test_soft_draws():
    draws = GumbelSoftmax(False, 2.0, probs=PROBS).sample(1000, seed=SEED).numpy()
    np.testing.assert_allclose(draws.sum(-1), 1.0, rtol=1e-6)
    assert 0.01 < draws[:, 2].min() < draws[:, 2].max() < 0.99
    np.testing.assert_array_equal(draws[:, 1], 0.0)
    # The greatest entry is a categorical draw whatever the temperature.
    hard = GumbelSoftmax(True, 0.1, probs=PROBS).sample(1000, seed=SEED).numpy()
    np.testing.assert_array_equal(hard.argmax(-1), draws.argmax(-1))


@BOTH
def test_dtype_slices_copies_and_kl(cls):
    logits = tf.random.stateless_normal([4, 2, 3], SEED, dtype=tf.float64)
    dist = cls(logits=logits, validate_args=True)
    assert (dist.dtype, dist.batch_shape, dist.event_shape) == ("float64", [4, 2], [3])
    draws = dist.sample(5, seed=SEED)
    assert (draws.dtype, draws.shape) == ("float64", [5, 4, 2, 3])
    assert (type(dist[1:, 0]), dist[1:, 0].batch_shape) == (cls, [3])
    copied = dist.copy(probs=tf.fill([5], 0.2), logits=None)
    assert (copied.batch_shape, copied.event_shape) == ([], [5])
    other = cls(logits=tf.zeros([3], tf.float64))
    log_probs = tf.nn.log_softmax(logits)
    expected = np.sum(np.exp(log_probs) * (log_probs + np.log(3)), -1)
    np.testing.assert_allclose(tfd.kl_divergence(dist, other), expected)


RULED_OUT = (
    ([0.0, 1.0], [0.5, 0.5], np.log(2.0)),
    ([1.0, 0.0], [1.0, 0.0], 0.0),
    ([0.5, 0.5], [0.0, 1.0], np.inf),
)


@BOTH
@pytest.mark.parametrize("key", ["probs", "logits"])
@pytest.mark.parametrize("mode", ["eager", "xla"])
def test_divergences_of_classes_ruled_out(cls, key, mode):
    a, b, expected = (np.array(x, np.float32) for x in zip(*RULED_OUT, strict=True))
    if key == "logits":
        # What is next to ruled out counts nothing either, where its chance is 0.
        a, b = (
            np.append(tf.math.log(x), [[0.0, -1e9], [np.nan, 0.0]], 0) for x in (a, b)
        )
        b[3, 1], expected = -np.inf, np.append(expected, [0.0, np.nan])

    def divergences(a, b):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch((a, b))
            one, other = cls(**{key: a}), cls(**{key: b})
            divergence = tfd.kl_divergence(one, other)
            entropy = one.cross_entropy(other) - one.entropy()
        return (divergence, entropy), [
            tape.gradient(x, (a, b)) for x in (divergence, entropy)
        ]

    values, gradients = modes.run(mode, divergences, tf.constant(a), tf.constant(b))
    np.testing.assert_allclose(values, [expected] * 2, rtol=1e-6, atol=1e-6)
    for gradient in tf.nest.flatten(gradients):
        assert np.isfinite(gradient[~np.isnan(expected)]).all()


def test_hyper_parameters_survive():
    dist = GumbelSoftmax(False, 0.3, logits=tf.zeros([4, 3]))
    for other in (dist.copy(), dist[1:], tf.function(lambda dist: dist)(dist)):
        assert other.parameters["hard_sample"] is False
        assert other.parameters["tau"] == 0.3
    np.testing.assert_array_equal(dist.copy().sample(seed=SEED), dist.sample(seed=SEED))


@pytest.mark.parametrize("hard", [True, False])
def test_hard_sample_may_be_a_tensor(hard):
    @tf.function
    def sample(flag):
        return GumbelSoftmax(flag, 2.0, probs=PROBS).sample(seed=SEED)

    expected = GumbelSoftmax(hard, 2.0, probs=PROBS).sample(seed=SEED)
    np.testing.assert_allclose(sample(tf.constant(hard)), expected, rtol=1e-5)


@BOTH
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "`probs` or `logits`.*got neither"),
        ({"probs": [1.0], "logits": [0.0]}, "`probs` or `logits`.*got both"),
        ({"logits": 0.0}, "`logits` expected rank of at least 1"),
        ({"probs": [0.5, -0.5]}, "`probs` expected numbers in"),
    ],
    ids=["neither", "both", "scalar", "negative"],
)
def test_errors(cls, given, message):
    with pytest.raises(ValueError, match=f"`{cls.__name__}`: {message}"):
        cls(**given)


NUMBERS = (0.0, -1.0, float("nan"), [1.0, 100.0], np.ones(1), tf.ones([2]))
FLAGS = (None, 0.5, 1, np.array([True, False]), [0.0, 1.0])
BAD = [
    *((ValueError, {"tau": tau}) for tau in NUMBERS),
    *((TypeError, {"tau": tau}) for tau in (None, "x", True)),
    *((TypeError, {"hard_sample": flag}) for flag in FLAGS),
]


@pytest.mark.parametrize(("error", "given"), BAD, ids=str)
def test_arguments_of_gumbel_softmax(error, given):
    (name,) = given
    message = f"`OneHotCategoricalGumbelSoftmax`: `{name}` expected"
    with pytest.raises(error, match=message):
        GumbelSoftmax(**given, logits=[0.0, 0.0])


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("OneHotCategoricalStraightThrough", ([1.0, 2.0],)),
        ("OneHotCategoricalStraightThrough", (None, [1.0, 2.0])),
        ("OneHotCategoricalGumbelSoftmax", (True, 0.5, [1.0, 2.0])),
        ("OneHotCategoricalGumbelSoftmax", ([0.0, 1.0],)),
        ("OneHotCategoricalGumbelSoftmax", (tf.constant([0.0, 1.0]),)),
        ("OneHotCategoricalGumbelSoftmax", (True, np.array([0.0, 1.0]))),
    ],
)
def test_probs_and_logits_are_given_by_name(name, args):
    with pytest.raises(TypeError, match=rf"`{name}`: .* probs=\.\.\. or logits="):
        getattr(one_hot, name)(*args)


def test_what_comes_before_may_be_given_by_position():
    made = one_hot.OneHotCategoricalGumbelSoftmax(False, 0.5, probs=[0.2, 0.8])
    assert made.parameters["tau"] == 0.5
    names = list(inspect.signature(one_hot.OneHotCategoricalGumbelSoftmax).parameters)
    assert names[:4] == ["hard_sample", "tau", "probs", "logits"]
