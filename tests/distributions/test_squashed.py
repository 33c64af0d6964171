"""Tests of `tfrl.distributions.squashed`."""

import math

import confidence
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl import distributions
from tfrl._internal import draws, precision
from tfrl.distributions import squashed

tfd = tfp.distributions

SEED = np.array([3, 7], np.int32)
HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)
# name: batch shape, low, high
CASES = {
    "scalar": ([], -1.0, 1.0),
    "batch of scalars": ([5], 0.0, 3.0),
    "one bound for all": ([2, 4], -2.0, np.array([1.0, 5.0])),
    "matrix": ([4], -np.ones([2, 3]), np.array([[1.0, 5.0, 12.0]] * 2)),
}
EVERY_CASE = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def made(case, dtype="float64", scale=(0.2, 1.0)):
    """A distribution and its parameters in float64 of numpy."""
    batch, low, high = case
    rng = np.random.default_rng(0)
    event = np.broadcast_shapes(np.shape(low), np.shape(high))
    loc = rng.normal(0.0, 0.7, [*batch, *event]).astype(dtype)
    scale = rng.uniform(*scale, [*batch, *event]).astype(dtype)
    arguments = [tf.constant(part, dtype) for part in (loc, scale, low, high)]
    return squashed.SquashedNormal(*arguments), [
        np.asarray(part, np.float64) for part in (loc, scale, low, high)
    ]


def density(raw, loc, scale, low, high):
    """Log-density of a squashed number, by the change of variables."""
    normal = -0.5 * ((raw - loc) / scale) ** 2 - np.log(scale) - HALF_LOG_2_PI
    slope = (high - low) / 2 / np.cosh(raw) ** 2
    terms = normal - np.log(slope)
    return terms.sum(tuple(range(-np.broadcast(low, high).ndim, 0)))


# Density.


def test_by_hand():
    dist = squashed.SquashedNormal(0.0, 2.0, 1.0, 5.0)
    # u = 0: half range 2, tanh' = 1.
    expected = -HALF_LOG_2_PI - math.log(2.0) - math.log(2.0)
    np.testing.assert_allclose(dist.log_prob(3.0), expected, rtol=1e-6)
    # u = 1
    value = 3.0 + 2.0 * math.tanh(1.0)
    slope = 2.0 * (1.0 - math.tanh(1.0) ** 2)
    expected = -HALF_LOG_2_PI - math.log(2.0) - 0.125 - math.log(slope)
    np.testing.assert_allclose(dist.log_prob(value), expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_at_the_bounds_count_as_the_last_ones_before(dtype):
    low, high = np.array([-1.0, 0.0], dtype), np.array([1.0, 5.0], dtype)
    inputs = [tf.zeros([2, 2], dtype), tf.ones([2, 2], dtype), tf.stack([low, high])]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        dist = squashed.SquashedNormal(*inputs[:2], low, high)
        log_probs = dist.log_prob(inputs[2])
    last = math.atanh(1 - np.finfo(dtype).epsneg)
    expected = 2 * (-HALF_LOG_2_PI - 0.5 * last**2) - math.log(2.5)
    expected -= 2 * (math.log(4.0) - 2.0 * last)
    np.testing.assert_allclose(log_probs, [expected] * 2, rtol=1e-6)
    gradients = tape.gradient(log_probs, inputs)
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    np.testing.assert_allclose(gradients[0], [[-last] * 2, [last] * 2], rtol=1e-5)


def test_no_density_beyond_the_bounds():
    value = tf.constant([[-1.1, 0.0], [0.0, 1.5], [np.inf, 0.0], [0.0, 0.0]])
    loc = tf.Variable([0.0, 0.0])
    with tf.GradientTape() as tape:
        dist = squashed.SquashedNormal(loc, 1.0, -np.ones(2, "f"), np.ones(2, "f"))
        log_probs = dist.log_prob(value)
    assert np.isneginf(log_probs[:3]).all()
    assert np.isfinite(log_probs[3])
    np.testing.assert_allclose(tape.gradient(log_probs, loc), [0.0, 0.0], atol=1e-6)


# Draws.


def test_draws_have_the_distribution():
    low, high = np.array([-2.0, 0.0], "f"), np.array([2.0, 1.0], "f")
    dist = squashed.SquashedNormal([0.3, -0.5], [0.5, 1.2], low, high)
    draw = tf.function(lambda: dist.sample(40_000, seed=SEED), jit_compile=True)
    draws = draw().numpy()
    np.testing.assert_allclose(draws, dist.sample(40_000, seed=SEED), atol=1e-4)
    place = (draws.astype(np.float64) - low) / (high - low)
    assert place.min() >= 0 and place.max() <= 1
    raw = np.arctanh(np.clip(2 * place - 1, -1 + 1e-7, 1 - 1e-7))
    for column, parameters in zip(raw.T, [(0.3, 0.5), (-0.5, 1.2)], strict=True):
        confidence.assert_cdf(column, scipy.stats.norm(*parameters).cdf)


@EVERY_CASE
def test_log_prob_of_draws(case):
    dist, parameters = made(case)
    value, log_prob = dist.experimental_sample_and_log_prob([7], seed=SEED)
    assert value.shape == [7, *dist.batch_shape, *dist.event_shape]
    _, _, low, high = parameters
    raw = np.arctanh((value - (low + high) / 2) / ((high - low) / 2))
    expected = density(raw, *parameters)
    for got in (log_prob, dist.log_prob(value), dist.log_prob(value.numpy())):
        assert got.shape == [7, *dist.batch_shape]
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    drawn = dist.sample([7], seed=SEED)
    np.testing.assert_array_equal(drawn, value)
    np.testing.assert_allclose(dist.log_prob(drawn), log_prob, rtol=1e-12)


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "graph"])
def test_saturated_draws_keep_their_density(wrap):
    dist = squashed.SquashedNormal([-50.0, 50.0], 1.0)

    def score():
        value = dist.sample(seed=SEED)
        pair = dist.experimental_sample_and_log_prob(seed=SEED)
        return value, dist.log_prob(value), *pair, dist.log_prob(tf.identity(value))

    value, recalled, again, scored, recovered = wrap(score)()
    np.testing.assert_array_equal(value, [-1.0, 1.0])
    np.testing.assert_array_equal(again, value)
    noise = draws.normal([2], SEED, tf.float32)
    raw = np.array([-50.0, 50.0]) + noise
    # -log(1 - tanh(u)^2) = 2 |u| - log 4 far out.
    expected = -HALF_LOG_2_PI - 0.5 * noise**2 + 2 * np.abs(raw) - math.log(4.0)
    np.testing.assert_allclose(recalled, expected, rtol=1e-5)
    np.testing.assert_allclose(scored, expected, rtol=1e-5)
    assert np.isfinite(recovered).all()
    assert np.abs(recovered - expected).min() > 100.0


def test_draws_are_differentiable():
    parameters = [tf.Variable([0.1, -0.4]), tf.Variable([0.5, 1.5])]
    dist = squashed.SquashedNormal(*parameters, [-1.0, -3.0], [1.0, 5.0])
    assert dist.reparameterization_type == tfd.FULLY_REPARAMETERIZED
    with tf.GradientTape() as tape:
        value = dist.sample(seed=SEED)
    noise = draws.normal([2], SEED, tf.float32)
    slope = np.array([1.0, 4.0]) / np.cosh([0.1, -0.4] + [0.5, 1.5] * noise) ** 2
    of_loc, of_scale = tape.gradient(value, parameters)
    np.testing.assert_allclose(of_loc, slope, rtol=1e-5)
    np.testing.assert_allclose(of_scale, slope * noise, rtol=1e-5)


def test_gradients_by_a_draw_are_those_of_a_copy():
    given = np.array([0.3]), np.array([0.5]), -1.0, np.array([2.0])
    loc, scale, low, high = given
    dist = squashed.SquashedNormal(*(tf.constant(x, tf.float64) for x in given))
    draw = dist.sample(3, seed=SEED)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(draw)
        own, copied = dist.log_prob(draw), dist.log_prob(tf.identity(draw))
    assert tape.gradient(own, draw) is None
    np.testing.assert_allclose(copied, own, rtol=1e-12)
    place = (draw.numpy() - (low + high) / 2) / ((high - low) / 2)
    raw = np.arctanh(place)
    slope = (high - low) / 2 * (1 - place**2)
    expected = (2 * place - (raw - loc) / scale**2) / slope
    np.testing.assert_allclose(tape.gradient(copied, draw), expected, rtol=1e-9)


# As a distribution of TFP.


LOW, HIGH = np.array([-1.0, 0.0], np.float32), np.array([1.0, 5.0], np.float32)


def a_policy(batch=(3,)):
    rng = np.random.default_rng(0)
    loc = tf.constant(rng.normal(size=[*batch, 2]), tf.float32)
    scale = tf.constant(rng.uniform(0.1, 1.0, [*batch, 2]), tf.float32)
    return squashed.SquashedNormal(loc, scale, LOW, HIGH)


def test_the_bounds_give_the_shape_of_an_event():
    cases = [
        ((4, 2), (), LOW, (4,), (2,)),
        ((), (), LOW, (), (2,)),
        ((4, 1), (5, 1, 2), LOW, (5, 4), (2,)),
        ((4, 2), (2,), -1.0, (4, 2), ()),
        ((6, 2, 3), (3,), -np.ones((2, 3), "f"), (6,), (2, 3)),
    ]
    for loc, scale, low, batch, event in cases:
        dist = squashed.SquashedNormal(tf.zeros(loc), tf.ones(scale), low, low + 2)
        assert (dist.batch_shape, dist.event_shape) == (batch, event)
        assert dist.sample([7, 8]).shape == (7, 8, *batch, *event)
        assert dist.mode().shape == (*batch, *event)
        assert dist.log_prob(dist.mode()).shape == batch
        np.testing.assert_array_equal(dist.batch_shape_tensor(), batch)
        np.testing.assert_array_equal(dist.event_shape_tensor(), event)


def test_mode_and_bijector():
    dist = a_policy()
    expected = (LOW + HIGH) / 2 + (HIGH - LOW) / 2 * np.tanh(dist.loc)
    np.testing.assert_allclose(dist.mode(), expected, rtol=1e-6)
    bijector = dist.experimental_default_event_space_bijector()
    np.testing.assert_allclose(bijector.forward([0.0, 0.0]), [0.0, 2.5])
    for statistic in (dist.mean, dist.stddev, dist.variance, dist.entropy):
        with pytest.raises(NotImplementedError, match="SquashedNormal"):
            statistic()


def test_entropy_can_be_estimated():
    # The uniform distribution over [-1, 1], nearly: loc 0, scale 0.8744.
    dist = squashed.SquashedNormal(0.0, 0.8744, -1.0, 1.0)
    estimate, _ = distributions.estimated_entropy(dist, num_samples=20_000, seed=SEED)
    np.testing.assert_allclose(estimate, np.log(2.0), atol=0.02)


def test_slices_and_copies_keep_everything():
    dist = a_policy()
    part = dist[1:]
    assert part.batch_shape == [2]
    np.testing.assert_array_equal(part.loc, dist.loc[1:])
    value = dist.mode()
    np.testing.assert_array_equal(part.log_prob(value[1:]), dist.log_prob(value)[1:])
    other = dist.copy(scale=2.0 * dist.scale)
    np.testing.assert_array_equal(other.high, HIGH)
    assert set(dist.parameters) == {
        *("loc", "scale", "low", "high", "validate_args", "allow_nan_stats", "name")
    }


# Divergence.


def test_divergence_is_that_of_the_normals():
    one, two = a_policy(), a_policy().copy(loc=[0.1, -0.3], scale=0.7)
    normals = [tfd.MultivariateNormalDiag(d.loc, d.scale + [0, 0]) for d in (one, two)]
    expected = tfd.kl_divergence(*normals)
    for divergence in (tfd.kl_divergence, tf.function(tfd.kl_divergence)):
        np.testing.assert_allclose(divergence(one, two), expected, rtol=1e-5)


def test_no_divergence_between_other_bounds():
    one, two = a_policy(), a_policy().copy(high=HIGH + 1)
    with pytest.raises(ValueError, match="expected the bounds of `distribution_a`"):
        tfd.kl_divergence(one, two)
    assert np.isnan(tf.function(tfd.kl_divergence)(one, two)).all()
    with pytest.raises(ValueError, match="expected the bounds of `distribution_a`"):
        tfd.kl_divergence(one, squashed.SquashedNormal(0.0, 1.0, -np.ones(3), 1.0))
    one = squashed.SquashedNormal([0.0, 0.0], 1.0, -1.0, LOW + 3)
    with pytest.raises(ValueError, match="expected the bounds of `distribution_a`"):
        tfd.kl_divergence(one, one.copy(high=LOW + 4))
    two = squashed.SquashedNormal([0.0, 0.0], 1.0, [-1.0, -1.0], LOW + 3)
    assert float(tfd.kl_divergence(one, two)) == 0.0


# Errors.


NOT_IN_ORDER = "`high` expected numbers > `low`"
BAD = {
    "scale 0": ({"scale": 0.0}, "`scale` expected numbers > 0"),
    "scale below 0": ({"scale": tf.constant([1.0, -1.0])}, "`scale` expected numbers"),
    "scale NaN": ({"scale": np.nan}, "`scale` expected numbers > 0"),
    "swapped": ({"low": HIGH, "high": LOW}, NOT_IN_ORDER),
    "equal": ({"high": LOW}, NOT_IN_ORDER),
    "no upper bound": ({"high": np.inf}, "`high` expected finite numbers"),
    "no lower bound": ({"low": [-np.inf, 0.0]}, "`low` expected finite numbers"),
    "loc": ({"loc": tf.zeros([3])}, r"`loc` expected a shape .*\[2\]; got \[3\]"),
    "scale": ({"scale": tf.ones([4, 3])}, "`scale` expected a shape that ends in"),
    "event of 1": ({"low": -1.0, "high": np.ones(1, "f")}, "`loc` expected a shape"),
    "batch": ({"loc": np.ones([3, 2]), "scale": np.ones([4, 2])}, "`scale` .*broadc"),
}


@pytest.mark.parametrize(("changes", "match"), BAD.values(), ids=BAD)
def test_bad_parameters(changes, match):
    given = {"loc": [0.0, 0.0], "scale": 1.0, "low": LOW, "high": HIGH, **changes}
    # In a graph too, if the numbers are written into it.
    for make in (
        lambda: squashed.SquashedNormal(**given),
        tf.function(lambda: squashed.SquashedNormal(**given).mode()),
    ):
        with pytest.raises(ValueError, match=f"`SquashedNormal`: {match}"):
            make()


def test_dtypes_and_ranks():
    double = tf.constant([0.0, 1.0], tf.float64)
    # A tensor comes before an array, and numbers take what there is.
    mixed = squashed.SquashedNormal(np.zeros(2, "f"), 1, double - 2, [3.0, 4.0])
    assert mixed.dtype == mixed.high.dtype == mixed.scale.dtype == tf.float64
    assert squashed.SquashedNormal(0, 1, np.float64(0), 2).dtype == tf.float64
    assert squashed.SquashedNormal(0, 1, 0, 2).dtype == tf.float32
    with pytest.raises(TypeError, match="`loc` expected a floating-point dtype"):
        squashed.SquashedNormal(tf.constant([0, 0]), 1.0)

    @tf.function(input_signature=[tf.TensorSpec([2]), tf.TensorSpec(None)])
    def make(bound, free):
        squashed.SquashedNormal(tf.zeros([5, 2]), 1.0, bound, bound - 1.0)
        with pytest.raises(ValueError, match="`low` and `high` expected a known rank"):
            squashed.SquashedNormal(0.0, 1.0, free, free + 1.0)
        return bound

    make(tf.zeros(2), tf.zeros(2))


def test_validation_at_run_time():
    @tf.function(input_signature=[tf.TensorSpec([]), tf.TensorSpec([])])
    def score(scale, value):
        dist = squashed.SquashedNormal(0.0, scale, validate_args=True)
        return dist.log_prob(value)

    assert np.isfinite(score(1.0, 0.5))
    with pytest.raises(tf.errors.InvalidArgumentError, match="`scale` must be"):
        score(-1.0, 0.5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="within the bounds"):
        score(1.0, 1.5)


# The squashing alone.


BOUNDS = {
    "unit": (-1.0, 1.0),
    "from 0": (0.0, 5.0),
    "far away": (1000.0, 1001.0),
    "wide": (-3e30, 1e30),
    "narrow": (-1e-6, 2e-6),
}
EVERY_BOUNDS = pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)


def constants(bounds, dtype):
    return [tf.constant(bound, dtype) for bound in bounds]


@EVERY_BOUNDS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_squashing_is_a_scaled_tanh_within_the_bounds(bounds, dtype):
    low, high = constants(bounds, dtype)
    raw = np.concatenate([np.linspace(-30, 30, 601), [-1e30, 1e30]]).astype(dtype)
    actions = squashed.SquashedNormal(raw, 1.0, low, high).mode()
    centre, half = np.mean(bounds), np.diff(bounds)[0] / 2
    expected = centre + half * np.tanh(raw.astype(np.float64))
    precision = np.finfo(dtype).eps
    atol = 4 * precision * max(map(abs, bounds))
    np.testing.assert_allclose(actions, expected, atol=atol, rtol=0)
    assert np.all((actions >= low) & (actions <= high))


@EVERY_BOUNDS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_unsquash_undoes_squashing(bounds, dtype):
    low, high = constants(bounds, dtype)
    raw = np.linspace(-6, 6, 241).astype(dtype)
    actions = squashed.SquashedNormal(raw, 1.0, low, high).mode()
    back = precision.unsquash(actions, low, high)
    # What one rounding of the action moves the raw action by.
    slope = (high - low) / 2 * (1 - np.tanh(raw) ** 2)
    step = np.finfo(dtype).eps * np.abs(bounds).max() / slope.numpy()
    assert np.all(np.abs(back - raw) <= np.minimum(4 * step, 30) + 1e-6)


def test_what_tanh_cannot_tell_from_a_bound_is_constant():
    low, high = constants((0.0, 1e-6), "float32")
    actions = tf.constant([1e-18, 2e-14, 1e-13, 5e-7, np.nan])
    with tf.GradientTape() as tape:
        tape.watch(actions)
        raw = precision.unsquash(actions, low, high)
    gradient = tape.gradient(raw, actions)
    assert float(raw[0]) == float(raw[1]) < float(raw[2])
    np.testing.assert_array_equal(gradient[:2], 0.0)
    np.testing.assert_allclose(gradient[2:4], [0.5e13, 2e6], rtol=1e-5)
    assert np.isnan(raw[4])


def test_log_slope_in_the_tails():
    raw = tf.constant([-1e30, -100.0, 100.0, 1e30])
    log_slopes = precision.tanh_log_slope(raw)
    expected = np.log(4.0) - 2.0 * np.abs(raw.numpy().astype(np.float64))
    np.testing.assert_allclose(log_slopes, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_of_slopes(dtype):
    step = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    value = np.array([0.5, 1 - 8 * step, 1 - 4 * step, 1 - 2 * step])
    value = np.concatenate([-value, value])
    given = tf.constant(value, dtype)
    with tf.GradientTape() as tape:
        tape.watch(given)
        log_prob = squashed.SquashedNormal(tf.zeros([8], dtype), 2.0).log_prob(given)
    found = tf.cast(tape.gradient(log_prob, given), tf.float64)
    expected = (2 * value - np.arctanh(value) / 4) / (1 - value**2)
    np.testing.assert_allclose(found, expected, rtol=0.03)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype):
    low, high = constants((-1.0, 1.0), dtype)
    raw = precision.unsquash(tf.constant([-1.0, 0.0, 1.0], dtype), low, high)
    assert raw.dtype.name == dtype
    assert np.isfinite(tf.cast(raw, tf.float32)).all()


# Chances and quantiles.


def chance(value, loc, scale, low, high):
    """The normal's chance of what is below, by SciPy."""
    with np.errstate(divide="ignore"):
        raw = np.arctanh((value - (low + high) / 2) / ((high - low) / 2))
    return scipy.stats.norm(loc, scale).cdf(raw)


@EVERY_CASE
def test_cdf_is_the_chance_that_all_numbers_are_below(case):
    dist, (loc, scale, low, high) = made(case)
    value = dist.sample(7, seed=SEED).numpy()
    axes = tuple(range(-dist.event_shape.rank, 0))
    expected = chance(value, loc, scale, low, high).prod(axes)
    np.testing.assert_allclose(dist.cdf(value), expected, rtol=1e-7)
    np.testing.assert_allclose(dist.log_cdf(value), np.log(expected), rtol=1e-6)
    assert dist.cdf(value[:0]).shape == [0, *dist.batch_shape]
    draws = dist.sample(20_000, seed=SEED).numpy()
    below = (draws <= value[0]).all(axes).mean(0)
    np.testing.assert_allclose(below, expected[0], atol=0.02)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cdf_at_and_beyond_the_bounds(dtype):
    loc = tf.constant([-30.0, 0.0, 30.0], dtype)
    dist = squashed.SquashedNormal(loc, tf.ones([], dtype), 1.0, 3.0)
    for value, expected in [(0.5, 0.0), (1.0, 0.0), (3.0, 1.0), (3.5, 1.0)]:
        value = tf.constant(value, dtype)
        np.testing.assert_array_equal(dist.cdf(value), [expected] * 3)
        with np.errstate(divide="ignore"):
            np.testing.assert_array_equal(dist.log_cdf(value), [np.log(expected)] * 3)
    # 40 deviations below the mean, where the chance itself is 0 in float32.
    far = squashed.SquashedNormal(tf.constant(1.0, dtype), 0.025, -1.0, 1.0)
    expected = scipy.stats.norm.logcdf(-40.0)
    np.testing.assert_allclose(far.log_cdf(tf.zeros([], dtype)), expected, rtol=1e-5)
    assert np.isnan(far.cdf(tf.constant(np.nan, dtype)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_quantiles_of_one_number(dtype):
    loc, scale = np.array([0.3, -1.0, 2.0], dtype), np.array([0.5, 1.0, 0.1], dtype)
    dist = squashed.SquashedNormal(loc, scale, -2.0, 6.0)
    chances = np.array([1e-6, 0.01, 0.5, 0.99])[:, None].astype(dtype)
    found = dist.quantile(chances)
    expected = 2.0 + 4.0 * np.tanh(scipy.stats.norm(loc, scale).ppf(chances))
    assert found.dtype == dtype and found.shape == [4, 3]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    # Near a bound the digits of the value are fewer than those of its chance.
    rtol = 0.02 if dtype == "float32" else 1e-6
    np.testing.assert_allclose(dist.cdf(found), [*chances + 0 * loc], rtol=rtol)
    np.testing.assert_array_equal(dist.quantile(0.0), [-2.0] * 3)
    np.testing.assert_array_equal(dist.quantile(1.0), [6.0] * 3)
    np.testing.assert_allclose(dist.quantile(0.5), dist.mode(), rtol=1e-6)
    assert squashed.SquashedNormal(loc[:0], scale[:0]).quantile(0.5).shape == [0]
    compiled = tf.function(dist.quantile, jit_compile=True)
    # XLA's inverse of the normal's distribution has fewer digits in the tails.
    np.testing.assert_allclose(compiled(tf.constant(chances)), found, rtol=1e-3)


def test_quantiles_of_several_numbers_are_refused():
    dist = squashed.SquashedNormal(tf.zeros([3]), 1.0, -np.ones(3), np.ones(3))
    with pytest.raises(NotImplementedError, match=r"events of one number.*got.*\[3\]"):
        dist.quantile(0.5)


# Values of other dtypes.


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("own", ["float32", "float64"])
def test_values_of_every_float_dtype(own, dtype):
    dist = squashed.SquashedNormal(tf.zeros([2], own), 1.0, validate_args=True)
    value, expected = np.array([0.5, -0.25]), dist.log_prob(np.array([0.5, -0.25], own))
    for given in (value.astype(dtype), tf.constant(value, dtype)):
        for method in ("log_prob", "prob", "cdf", "log_cdf"):
            found = getattr(dist, method)(given)
            assert found.dtype == own
            wanted = getattr(dist, method)(value.astype(own))
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
        np.testing.assert_allclose(dist.log_prob(given), expected, rtol=1e-6)


def test_values_that_are_no_floats_are_refused():
    dist = squashed.SquashedNormal(0.0, 1.0)
    for method in (dist.log_prob, dist.cdf):
        with pytest.raises(
            TypeError, match="`SquashedNormal`: `value` expected.*int32"
        ):
            method(tf.constant(0))
