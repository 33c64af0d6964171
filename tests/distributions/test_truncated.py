"""Tests of `tfrl.distributions.truncated`."""

import confidence
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.distributions import inverse_transform, truncated

SEED = [3, 7]
TRUE = {
    truncated.TruncatedNormal: scipy.stats.norm,
    truncated.TruncatedCauchy: scipy.stats.cauchy,
    truncated.TruncatedT2: lambda loc, scale: scipy.stats.t(2, loc, scale * 0.5**0.5),
}
CLASSES = list(TRUE)
LOW, HIGH = np.array([-1.0, -2.0], "f"), np.array([1.0, 3.0], "f")


def name_of(cls):
    return cls.__name__


def two_by_two(cls=truncated.TruncatedNormal, **kwargs):
    """A batch of three distributions over a plane."""
    loc = tf.constant([[0.2, 0.0], [-3.0, 5.0], [1.0, -2.0]])
    return cls(loc, tf.constant([0.7, 1.5]), LOW, HIGH, **kwargs)


def test_by_hand():
    # Uniform in the limit; half of a triangle-like heavy tail by its exact mass.
    wide = truncated.TruncatedNormal(0.0, 1e6, -1.0, 3.0)
    np.testing.assert_allclose(wide.prob([-1.0, 0.0, 3.0]), 0.25, rtol=1e-5)
    cauchy = truncated.TruncatedCauchy(0.0, 1.0, -1.0, 1.0)
    np.testing.assert_allclose(cauchy.prob([0.0, 1.0]), [2 / np.pi, 1 / np.pi])
    t2 = truncated.TruncatedT2(0.0, 1.0, 0.0, 0.75)  # its mass is 0.3
    np.testing.assert_allclose(t2.prob([0.0, 0.75]), [5 / 3, 5 / 3 * 0.512], rtol=1e-6)


@pytest.mark.parametrize("cls", CLASSES, ids=name_of)
@pytest.mark.parametrize("loc", [0.3, -2.5, 4.0], ids=["inside", "below", "above"])
def test_density_and_draws_are_those_of_the_truncated_distribution(cls, loc):
    dist = cls(tf.constant(loc, tf.float64), 1.25, -1.0, 2.0)
    true = TRUE[cls](loc, 1.25)
    below, mass = true.cdf(-1.0), true.cdf(2.0) - true.cdf(-1.0)
    x = np.linspace(-1.0, 2.0, 20_001)
    density = dist.prob(x).numpy()
    np.testing.assert_allclose(density, true.pdf(x) / mass, rtol=1e-9)
    np.testing.assert_allclose(np.trapezoid(density, x), 1.0, rtol=1e-6)

    draws = tf.function(dist.sample)(20_000, seed=SEED)
    if cls is truncated.TruncatedNormal and loc == 4.0:
        return  # a part of these is below the least quantile that is drawn
    confidence.assert_cdf(draws, lambda x: (true.cdf(x) - below) / mass)


@pytest.mark.parametrize("cls", CLASSES[::2], ids=name_of)
def test_outside_the_bounds_there_is_nothing(cls):
    dist = two_by_two(cls)
    inside = tf.constant([[0.5, 1.0]])
    outside = tf.constant([[1.5, 1.0], [-1.01, 1.0], [0.0, 3.01]])
    assert np.isneginf(dist.log_prob(outside)).all()
    assert np.isfinite(dist.log_prob(inside)).all()
    assert np.isfinite(dist.log_prob([LOW, HIGH, LOW])).all()
    assert np.isnan(dist.log_prob([np.nan, 0.0])).all()
    with tf.GradientTape() as tape:
        tape.watch(outside)
        log_prob = dist.log_prob(outside)
    np.testing.assert_array_equal(
        tape.gradient(log_prob, outside)[:, 0] * [1, 1, 0], 0.0
    )


def test_shapes_follow_the_bounds():
    dist = two_by_two()
    assert (dist.batch_shape, dist.event_shape) == ([3], [2])
    assert dist.sample([5, 4], seed=SEED).shape == [5, 4, 3, 2]
    assert dist.log_prob(tf.zeros([5, 3, 2])).shape == [5, 3]
    assert dist[1:].batch_shape == [2]
    scalar = truncated.TruncatedNormal(dist.loc, 1.0, -1.0, 1.0)
    assert (scalar.batch_shape, scalar.event_shape) == ([3, 2], [])
    assert scalar.log_prob(0.5).shape == [3, 2]
    np.testing.assert_array_equal(dist.mode(), np.clip(dist.loc, LOW, HIGH))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dtype_and_seeds(dtype):
    numbers = [np.array(v, dtype) for v in (0.0, 1.0, -1.0, 1.0)]
    dist = truncated.TruncatedNormal(*numbers)
    draws = dist.sample(9, seed=SEED)
    assert draws.dtype == dist.log_prob(draws).dtype == dtype
    np.testing.assert_array_equal(draws, dist.sample(9, seed=tf.constant(SEED)))
    np.testing.assert_array_equal(dist.sample(9, seed=5), dist.sample(9, seed=5))
    assert np.any(dist.sample(9) != dist.sample(9))


def test_crosses_functions_and_is_copied_with_everything():
    dist = two_by_two(mass_floor=0.0, validate_args=True, name="Policy")
    back = tf.function(lambda given: given)(dist)
    copied = dist.copy(scale=tf.ones([2]))
    for other in (back, copied):
        assert isinstance(other, truncated.TruncatedNormal)
        assert (other.mass_floor, other.validate_args) == (0.0, True)
        np.testing.assert_array_equal(other.lower_bound, LOW)
        np.testing.assert_array_equal(other.upper_bound, HIGH)
        np.testing.assert_array_equal(other.loc, dist.loc)
    own = truncated.TruncatedDistribution(0.0, 1.0, -1.0, 1.0, inverse_transform.T2ITS)
    assert tf.function(lambda given: given)(own).its is inverse_transform.T2ITS
    assert set(own.parameters) >= {"loc", "scale", "its", "mass_floor"}
    log_prob = tf.function(lambda given, x: given.log_prob(x), jit_compile=True)
    values = tf.constant([0.5, 1.0])
    np.testing.assert_allclose(log_prob(dist, values), dist.log_prob(values), rtol=1e-5)


def test_variables_are_read_when_used():
    loc = tf.Variable([0.0, 0.5])
    dist = truncated.TruncatedNormal(loc, 1.0, -1.0, 1.0)
    assert dist.trainable_variables == (loc,)
    before = dist.log_prob(0.5)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(dist.log_prob(0.5))
    assert np.isfinite(tape.gradient(loss, loc)).all()
    loc.assign([0.5, 0.5])
    assert float(dist.log_prob(0.5)[0]) != float(before[0])


def test_mass_floor_calls_far_locations_back():
    given = tf.constant([50.0]), 0.1, -1.0, 1.0
    exact = truncated.TruncatedNormal(*given, mass_floor=0.0)
    floored = truncated.TruncatedNormal(*given)
    # An exponential distribution of rate 490 / 0.1 from the upper bound down.
    np.testing.assert_allclose(exact.prob(1.0), 4900.0, rtol=1e-3)
    z = (0.5 - 50.0) / 0.1
    base = scipy.stats.norm.logpdf(z) - np.log(0.1) - np.log(1e-30)
    np.testing.assert_allclose(floored.log_prob(0.5), base, rtol=1e-6)


@pytest.mark.parametrize("cls", CLASSES, ids=name_of)
def test_draws_have_the_gradients_of_their_quantiles(cls):
    @tf.function
    def draw(loc, scale):
        return cls(loc, scale, -1.0, 2.0).sample(50, seed=SEED)

    at = tf.constant([[0.3, 1.25]], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(at)
        loss = tf.reduce_sum(draw(at[:, 0], at[:, 1]) ** 2)
    gradient = tape.gradient(loss, at)
    for index in range(2):
        step = 1e-5 * np.eye(2)[index]
        up, down = (
            tf.reduce_sum(draw(moved[:, 0], moved[:, 1]) ** 2)
            for moved in (at + step, at - step)
        )
        np.testing.assert_allclose(gradient[0, index], (up - down) / 2e-5, rtol=1e-5)


def test_divergence_sums_over_events_only():
    def pair(lower, upper, **kwargs):
        return [
            truncated.TruncatedNormal(tf.constant(loc), 0.5, lower, upper, **kwargs)
            for loc in ([[0.1, 0.4], [0.0, 3.0]], [[0.5, 0.4], [0.1, -3.0]])
        ]

    each = tfp.distributions.kl_divergence(*pair(-1.0, 1.0))
    assert each.shape == [2, 2]
    assert float(each[0, 1]) == pytest.approx(0.0, abs=1e-6)
    ones = np.ones(2, np.float32)
    together = tfp.distributions.kl_divergence(*pair(-ones, ones))
    np.testing.assert_allclose(together, tf.reduce_sum(each, -1), rtol=1e-5)
    others = pair(-1.0, 1.0)[0], pair(-1.0, 2.0)[1]
    with pytest.raises(ValueError, match="expected the bounds of `distribution_a`"):
        tfp.distributions.kl_divergence(*others)


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"scale": 0.0}, ValueError, "`scale` expected numbers > 0"),
        ({"scale": tf.constant([1.0, -1.0])}, ValueError, "`scale` expected numbers"),
        ({"lower_bound": 1.0}, ValueError, "`upper_bound` expected numbers > "),
        ({"lower_bound": 2.0}, ValueError, "swap or correct"),
        ({"lower_bound": np.nan}, ValueError, "`upper_bound` expected numbers > "),
        ({"lower_bound": [-1.0]}, ValueError, "`upper_bound` expected the shape"),
        (
            {"lower_bound": [-1.0] * 3, "upper_bound": [1.0] * 3, "loc": [0.0, 1.0]},
            ValueError,
            "`loc` expected a shape that ends in",
        ),
        ({"loc": [0.0] * 3, "scale": [1.0] * 2}, ValueError, "broadcasts"),
        ({"loc": tf.constant(0)}, TypeError, "`loc` expected a floating-point dtype"),
        ({"loc": tf.constant(0.0, tf.bfloat16)}, TypeError, "got bfloat16"),
        ({"mass_floor": -1.0}, ValueError, "`mass_floor` expected numbers in"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_bad_parameters_are_refused(kwargs, error, message):
    given = {"loc": 0.0, "scale": 1.0, "lower_bound": -1.0, "upper_bound": 1.0}
    with pytest.raises(error, match=f"`TruncatedNormal`: .*{message}"):
        truncated.TruncatedNormal(**(given | kwargs))


def test_bounds_of_unknown_rank_are_refused():
    @tf.function(input_signature=[tf.TensorSpec(None)])
    def make(bound):
        return truncated.TruncatedNormal(0.0, 1.0, bound, bound + 1.0).mode()

    with pytest.raises(ValueError, match="expected a known rank"):
        make(tf.zeros([]))


def test_values_are_checked_while_running():
    dist = two_by_two(validate_args=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="within the bounds"):
        dist.log_prob([2.0, 0.0])

    @tf.function(input_signature=[tf.TensorSpec([])])
    def make(scale):
        return truncated.TruncatedCauchy(
            0.0, scale, -1.0, 1.0, validate_args=True
        ).log_prob(0.0)

    with pytest.raises(tf.errors.InvalidArgumentError, match="`scale` must be"):
        make(tf.constant(-1.0))


def test_bijector_leads_into_the_bounds():
    bijector = two_by_two().experimental_default_event_space_bijector()
    inside = bijector.forward(tf.constant([-50.0, 50.0]))
    np.testing.assert_allclose(inside, [-1.0, 3.0])
