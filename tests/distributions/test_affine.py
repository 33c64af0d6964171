"""Tests of `tfrl.distributions.affine`."""

import confidence
import golden_distributions
import golden_io
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.distributions import affine, beta, cauchy, normal

tfd = tfp.distributions
SEED = [3, 7]
CLASSES = ("AffineTransformedDistribution",)
CASES = golden_distributions.load(CLASSES)
DRAWS = golden_distributions.load(CLASSES, "stats")
Affine = affine.AffineTransformedDistribution


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("case", CASES, ids=golden_io.ids(CASES))
def test_golden(case, mode):
    golden_distributions.check(case, mode)


@pytest.mark.parametrize("case", DRAWS, ids=golden_io.ids(DRAWS))
def test_golden_draws(case):
    golden_distributions.check_draws(case)


def test_by_hand():
    dist = Affine(
        normal.DiagMultivariateNormal([0.0, 1.0], [1.0, 2.0]), 5.0, [2.0, -3.0]
    )
    np.testing.assert_allclose(dist.mean(), [5.0, 2.0])
    np.testing.assert_allclose(dist.mode(), [5.0, 2.0])
    np.testing.assert_allclose(dist.stddev(), [2.0, 6.0])
    np.testing.assert_allclose(dist.variance(), [4.0, 36.0])
    wide = Affine(tfd.MultivariateNormalDiag([0.0, 1.0], [1.0, 2.0]), 5.0, [2.0, -3.0])
    np.testing.assert_allclose(wide.covariance(), [[4.0, 0.0], [0.0, 36.0]])
    expected = np.log(2 * np.pi * np.e) + np.log(12.0)
    np.testing.assert_allclose(dist.entropy(), expected, 1e-6)
    np.testing.assert_allclose(dist.prob([5.0, 2.0]), 1 / (2 * np.pi * 12), 1e-6)
    np.testing.assert_array_equal(dist.loc, 5.0)
    np.testing.assert_array_equal(dist.scale, [2.0, -3.0])


# Base, loc, scale, batch shape, the same as plain normals of shape batch + event.
SHAPES = {
    "scalar event, scale of the batch": ([], [4], [4], [4]),
    "scalar event, more batch from loc": ([3], [2, 1], [], [2, 3]),
    "vector event, one scale": ([4, 3], [], [], [4]),
    "vector event, scale of the event": ([3], [3], [3], []),
    "vector event, scale of the batch": ([3], [], [4, 1], [4]),
    "vector event, more batch from loc": ([3], [2, 4, 1], [4, 3], [2, 4]),
}


SIZES = [(name, True) for name in SHAPES] + [(name, False) for name in [*SHAPES][1::4]]


@pytest.mark.parametrize(("name", "known"), SIZES)
def test_shapes_and_statistics(name, known):
    base_shape, loc_shape, scale_shape, batch_shape = SHAPES[name]
    rng = np.random.default_rng(0)
    mean, loc = rng.normal(size=base_shape), rng.normal(size=loc_shape)
    std, scale = (
        np.exp(rng.normal(size=base_shape)),
        -np.exp(rng.normal(size=scale_shape)),
    )
    event_ndims = int(name.startswith("vector"))
    tensors = [tf.constant(x, tf.float32) for x in (mean, std, loc, scale)]
    specs = [tf.TensorSpec([None] * x.shape.rank, x.dtype) for x in tensors]

    def statistics(mean, std, loc, scale):
        base = tfd.Independent(tfd.Normal(mean, std), event_ndims)
        dist = Affine(base, loc, scale)
        draws = dist.sample(5, seed=SEED)
        moments = dist.mean(), dist.mode(), dist.stddev(), dist.variance()
        shape = dist.batch_shape_tensor()
        return shape, *moments, dist.entropy(), draws, dist.log_prob(draws)

    function = statistics if known else tf.function(statistics, input_signature=specs)
    shape, *moments, entropy, draws, log_probs = function(*tensors)
    event_shape = base_shape[len(base_shape) - event_ndims :]
    full = [*batch_shape, *event_shape]
    true_mean = np.broadcast_to(loc + scale * mean, full)
    true_std = np.broadcast_to(np.abs(scale) * std, full)
    assert shape.numpy().tolist() == batch_shape
    expected = [true_mean, true_mean, true_std, true_std**2]
    for got, exact in zip(moments, expected, strict=True):
        assert got.shape == full
        np.testing.assert_allclose(got, exact, rtol=1e-5)
    axes = tuple(range(-event_ndims, 0))
    norm = scipy.stats.norm(true_mean, true_std)
    np.testing.assert_allclose(entropy, norm.entropy().sum(axes), rtol=1e-5, atol=1e-5)
    assert draws.shape == [5, *full]
    np.testing.assert_allclose(
        log_probs, norm.logpdf(draws).sum(axes), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("scale", [2.0, -2.0])
def test_draws_and_distribution_function(scale):
    dist = Affine(beta.Beta(2.0, 3.0), 1.0, scale)
    draws = dist.sample(50_000, seed=SEED)
    true = scipy.stats.beta(2, 3)

    def cdf(x):
        share = (x - 1.0) / scale
        return true.cdf(share) if scale > 0 else true.sf(share)

    confidence.assert_cdf(draws, cdf)
    points = 1.0 + scale * np.linspace(0.1, 0.9, 5, dtype=np.float32)
    np.testing.assert_allclose(dist.cdf(points), cdf(points), rtol=1e-4)
    levels = np.linspace(0.1, 0.9, 5, dtype=np.float32)
    np.testing.assert_allclose(dist.cdf(dist.quantile(levels)), levels, rtol=1e-4)


def test_gradients_of_a_stored_draw_reach_loc_and_scale():
    loc, scale = tf.Variable(1.0), tf.Variable(-2.0)
    dist = Affine(normal.Normal(0.0, 1.0), loc, scale)
    draw = dist.sample(seed=SEED)
    with tf.GradientTape() as tape:
        log_prob = dist.log_prob(draw)
    gradients = tape.gradient(log_prob, [loc, scale])
    z = (draw.numpy() - 1.0) / -2.0
    np.testing.assert_allclose(gradients, [z / -2.0, (z**2 - 1) / -2.0], rtol=1e-4)


def test_draws_are_reparameterised_as_the_base():
    assert Affine(normal.Normal(0.0, 1.0), 0.0, 2.0).reparameterization_type == (
        tfd.FULLY_REPARAMETERIZED
    )
    loc, scale = tf.constant(0.5), tf.constant(-3.0)
    with tf.GradientTape() as tape:
        tape.watch([loc, scale])
        draw = Affine(normal.Normal(0.0, 1.0), loc, scale).sample(seed=SEED)
    by_loc, by_scale = tape.gradient(draw, [loc, scale])
    np.testing.assert_allclose(
        [by_loc, by_scale], [1.0, (draw - 0.5) / -3.0], rtol=1e-5
    )


def test_xla():
    @tf.function(jit_compile=True)
    def everything(loc, scale):
        dist = Affine(normal.DiagMultivariateNormal(tf.zeros([2, 3]), 1.0), loc, scale)
        draws, log_probs = dist.experimental_sample_and_log_prob(seed=SEED)
        return dist.entropy(), dist.stddev(), log_probs, dist.log_prob(draws)

    entropy, stddev, log_probs, again = everything(tf.constant(1.0), tf.constant(-2.0))
    expected = 1.5 * np.log(2 * np.pi * np.e) + 3 * np.log(2.0)
    np.testing.assert_allclose(entropy, [expected] * 2, rtol=1e-6)
    np.testing.assert_array_equal(stddev, np.full([2, 3], 2.0))
    np.testing.assert_allclose(log_probs, again, rtol=1e-5)


def test_infinite_statistics_pass_through():
    dist = Affine(cauchy.StableCauchy(0.0, 1.0), 1.0, -2.0)
    assert np.isposinf(dist.stddev())
    np.testing.assert_allclose(dist.entropy(), np.log(8 * np.pi), rtol=1e-6)


def test_dtype_slices_copies_and_kl():
    base = normal.DiagMultivariateNormal(tf.zeros([4, 3], tf.float64), 1.0)
    dist = Affine(base, 1, [[2.0]] * 4)
    assert (dist.dtype, dist.batch_shape, dist.event_shape) == ("float64", [4], [3])
    assert dist.sample(seed=SEED).dtype == "float64"
    assert (dist[1:].batch_shape, dist[1:].event_shape) == ([3], [3])
    copied = dist.copy(scale=5.0)
    np.testing.assert_array_equal(copied.stddev(), np.full([4, 3], 5.0))
    np.testing.assert_allclose(tfd.kl_divergence(dist, dist), [0.0] * 4, atol=1e-12)


def test_crosses_function_boundaries():
    @tf.function
    def shifted(dist):
        return Affine(dist.base_dist, dist.loc + 1.0, dist.scale)

    for loc in (1.0, 2.0):
        dist = shifted(Affine(normal.Normal(0.0, 1.0), loc, -2.0))
        assert isinstance(dist, Affine)
        assert isinstance(dist.base_dist, normal.Normal)
        np.testing.assert_allclose([dist.mean(), dist.stddev()], [loc + 1, 2.0])
    assert shifted.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("scale", [0, [1.0, 0.0], tf.constant(0.0)], ids=str)
def test_scale_must_not_be_zero(scale):
    message = "`AffineTransformedDistribution`: `scale` expected numbers other than 0"
    with pytest.raises(ValueError, match=message):
        Affine(normal.Normal(0.0, 1.0), 0.0, scale)


def test_other_errors():
    where = "`AffineTransformedDistribution`: "
    with pytest.raises(TypeError, match=f"{where}`base_dist` expected a TFP"):
        Affine(3.0, 0.0, 1.0)
    with pytest.raises(
        TypeError, match=f"{where}`base_dist` expected a distribution of"
    ):
        Affine(tfd.Categorical([0.0, 0.0]), 0.0, 1.0)
    with pytest.raises(ValueError, match=f"{where}`scale` expected a shape"):
        Affine(normal.Normal(0.0, 1.0), [0.0, 1.0], [1.0, 2.0, 3.0])
