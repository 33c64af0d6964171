"""Tests of `tfrl.distributions.affine`."""

import confidence
import golden_distributions
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.distributions import affine, beta, cauchy, normal

tfd = tfp.distributions
SEED = [3, 7]
CLASSES = ("AffineTransformedDistribution",)
Affine = affine.AffineTransformedDistribution


@golden_distributions.cases(CLASSES)
def test_golden(case, mode):
    golden_distributions.check(case, mode)


@golden_distributions.draws(CLASSES)
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


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_and_statistics(name):
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

    # Sizes may be unknown; tracing takes a second.
    known = name != "vector event, more batch from loc"
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
    loc, scale = tf.constant(0.5), tf.constant(-3.0)
    with tf.GradientTape() as tape:
        tape.watch([loc, scale])
        dist = Affine(normal.Normal(0.0, 1.0), loc, scale)
        draw = dist.sample(seed=SEED)
    assert dist.reparameterization_type == tfd.FULLY_REPARAMETERIZED
    expected = [1.0, (draw - 0.5) / -3.0]
    np.testing.assert_allclose(tape.gradient(draw, [loc, scale]), expected, rtol=1e-5)


def test_dtype_slices_copies_and_kl():
    infinite = Affine(cauchy.StableCauchy(0.0, 1.0), 1.0, -2.0)
    assert np.isposinf(infinite.stddev())
    np.testing.assert_allclose(infinite.entropy(), np.log(8 * np.pi), rtol=1e-6)
    base = normal.DiagMultivariateNormal(tf.zeros([4, 3], tf.float64), 1.0)
    dist = Affine(base, 1, [[2.0]] * 4)
    assert (dist.dtype, dist.batch_shape, dist.event_shape) == ("float64", [4], [3])
    assert dist.sample(seed=SEED).dtype == "float64"
    assert (dist[1:].batch_shape, dist[1:].event_shape) == ([3], [3])
    copied = dist.copy(scale=5.0)
    np.testing.assert_array_equal(copied.stddev(), np.full([4, 3], 5.0))
    np.testing.assert_allclose(tfd.kl_divergence(dist, dist), [0.0] * 4, atol=1e-12)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"scale": 0}, ValueError),
        ({"scale": [1.0, 0.0]}, ValueError),
        ({"scale": tf.constant(0.0)}, ValueError),
        ({"scale": [1.0, 2.0, 3.0], "loc": [0.0, 1.0]}, ValueError),
        ({"base_dist": 3.0}, TypeError),
        ({"base_dist": tfd.Categorical([0.0, 0.0])}, TypeError),
    ],
    ids=["zero", "a zero", "tensor", "shape", "number", "categories"],
)
def test_errors(changes, error):
    given = {"base_dist": normal.Normal(0.0, 1.0), "loc": 0.0, "scale": 1.0}
    name = next(iter(changes))
    with pytest.raises(error, match=f"`AffineTransformedDistribution`: `{name}` exp"):
        Affine(**{**given, **changes})
