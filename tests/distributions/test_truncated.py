"""Tests of `tfrl.distributions.truncated`."""

import functools
import itertools

import confidence
import default_rows
import golden_io
import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl import distributions
from tfrl._internal import draws
from tfrl.distributions import _truncation, inverse_transform, truncated

SEED = [3, 7]
TRUE = {
    truncated.TruncatedNormal: scipy.stats.norm,
    truncated.TruncatedCauchy: scipy.stats.cauchy,
    truncated.TruncatedT2: lambda loc, scale: scipy.stats.t(2, loc, scale * 0.5**0.5),
}
CLASSES = list(TRUE)
LOW, HIGH = np.array([-1.0, -2.0], "f"), np.array([1.0, 3.0], "f")


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


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
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
    bijector = dist.experimental_default_event_space_bijector()
    np.testing.assert_allclose(bijector.forward([-50.0, 50.0]), [-1.0, 3.0])


def test_outside_the_bounds_there_is_nothing():
    dist = two_by_two(truncated.TruncatedCauchy)
    outside = tf.constant([[1.5, 1.0], [-1.01, 1.0], [0.0, 3.01]])
    assert np.isneginf(dist.log_prob(outside)).all()
    assert np.isfinite(dist.log_prob([LOW, HIGH, LOW])).all()
    assert np.isnan(dist.log_prob([[np.nan, 0.0]] * 3)).all()


@pytest.mark.slow
def test_is_copied_with_everything_and_compiles():
    dist = two_by_two(mass_floor=0.0, validate_args=True, name="Policy")
    copied = dist.copy(scale=tf.ones([2]))
    assert isinstance(copied, truncated.TruncatedNormal)
    assert (copied.mass_floor, copied.validate_args) == (0.0, True)
    for name in ("loc", "lower_bound", "upper_bound"):
        np.testing.assert_array_equal(getattr(copied, name), getattr(dist, name))
    own = truncated.TruncatedDistribution(0.0, 1.0, -1.0, 1.0, inverse_transform.T2ITS)
    assert own.its is inverse_transform.T2ITS
    log_prob = tf.function(lambda given, x: given.log_prob(x), jit_compile=True)
    values = tf.constant([0.5, 1.0])
    np.testing.assert_allclose(log_prob(dist, values), dist.log_prob(values), rtol=1e-5)


def test_mass_floor_calls_far_locations_back():
    given = tf.constant([50.0]), 0.1, -1.0, 1.0
    exact = truncated.TruncatedNormal(*given, mass_floor=0.0)
    floored = truncated.TruncatedNormal(*given)
    # An exponential distribution of rate 490 / 0.1 from the upper bound down.
    np.testing.assert_allclose(exact.prob(1.0), 4900.0, rtol=1e-3)
    z = (0.5 - 50.0) / 0.1
    base = scipy.stats.norm.logpdf(z) - np.log(0.1) - np.log(1e-30)
    np.testing.assert_allclose(floored.log_prob(0.5), base, rtol=1e-6)


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


BAD = {
    "scale 0": ({"scale": 0.0}, "`scale` expected numbers > 0"),
    "scale below 0": ({"scale": tf.constant([1.0, -1.0])}, "`scale` expected numbers"),
    "empty": ({"lower_bound": 1.0}, "`upper_bound` expected numbers > "),
    "NaN": ({"lower_bound": np.nan}, "`upper_bound` expected numbers > "),
    "one vector": ({"lower_bound": [-1.0]}, "`upper_bound` expected the shape"),
    "event": (
        {"lower_bound": [-1.0] * 3, "upper_bound": [1.0] * 3, "loc": [0.0, 1.0]},
        "`loc` expected a shape that ends in",
    ),
    "integer": ({"loc": tf.constant(0)}, "`loc` expected a floating-point dtype"),
    "narrow": ({"loc": tf.constant(0.0, tf.bfloat16)}, "`loc` .*; got bfloat16"),
    "floor": ({"mass_floor": -1.0}, "`mass_floor` expected numbers in"),
}


@pytest.mark.parametrize(("kwargs", "message"), BAD.values(), ids=BAD)
def test_bad_parameters_are_refused(kwargs, message):
    given = {"loc": 0.0, "scale": 1.0, "lower_bound": -1.0, "upper_bound": 1.0}
    is_dtype = tf.is_tensor(kwargs.get("loc"))
    with pytest.raises(
        TypeError if is_dtype else ValueError, match=f"`TruncatedNormal`: {message}"
    ):
        truncated.TruncatedNormal(**(given | kwargs))


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


# Numbers far out, where densities underflow.

STANDARD = {
    "normal": inverse_transform.NormalITS,
    "cauchy": inverse_transform.CauchyITS,
    "t2": inverse_transform.T2ITS,
}
NAMES = ("loc", "scale", "lower", "upper", "value")
# Locations up to a billion scales from the bounds, scales a billion times their gap.
GRID = [
    (loc, scale, low, high, low + share * (high - low))
    for loc, scale, (low, high), share in itertools.product(
        [0.0, 0.5, 1.0, -1.001, 3.0, -10.0, 50.0, 1e3, -1e4, 1e6],
        [1e-3, 0.1, 1.0, 10.0, 1e3, 1e6],
        [(-1.0, 1.0), (-0.001, 0.001), (-100.0, 1.0), (0.25, 0.75)],
        [0.0, 0.25, 1.0],
    )
]
EXTREME = [0.0, 1e-38, -1e-38, 1e4, -1e4, 1e30, -1e30]
EXTREMES = [
    (loc, scale, low, high, min(max(low, -1e30), high))
    for loc, scale, (low, high) in itertools.product(
        EXTREME,
        [1e-38, 1e-30, 1e-4, 1.0, 1e4, 1e30],
        [
            (-1.0, 1.0),
            (-np.inf, np.inf),
            (0.0, np.inf),
            (-1e30, 1e30),
            (0.0, 1e-37),
            (-1e4, 1e-4),
        ],
    )
]


def columns(rows, dtype):
    """Rows of numbers that float32 can hold, as a column for each name."""
    exact = np.array(rows, np.float32)
    exact[:, 4] = np.clip(exact[:, 4], exact[:, 2], exact[:, 3])
    return [tf.constant(column, dtype) for column in exact.T]


@functools.cache
def elementwise(name, mass_floor, dtype):
    """Log-densities of a column of values with bounds of their own, and gradients."""

    @tf.function(input_signature=[tf.TensorSpec([None], dtype)] * 5)
    def run(loc, scale, lower, upper, value):
        inputs = [loc, scale, lower, upper, value]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            densities = _truncation.log_densities(
                value, *inputs[:4], STANDARD[name], mass_floor
            )
        return densities, tape.gradient(densities, inputs)

    return run


def normal_oracle(loc, scale, lower, upper, value):
    """By the logarithm of the distribution function, in the tail that is smaller."""
    low, high = (lower - loc) / scale, (upper - loc) / scale
    low, high = np.where(low + high > 0, (-high, -low), (low, high))
    log_low, log_high = scipy.special.log_ndtr(low), scipy.special.log_ndtr(high)
    log_mass = log_high + np.log(-np.expm1(log_low - log_high))
    squares = 0.5 * ((value - loc) / scale) ** 2 + 0.5 * np.log(2 * np.pi)
    return -squares - np.log(scale) - log_mass


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal_against_the_log_distribution_function(dtype):
    rng = np.random.default_rng(1)
    loc = rng.normal(size=2000) * rng.choice([0.3, 3.0, 10.0], 2000)
    rows = [loc, np.exp(rng.normal(size=2000)), rng.uniform(-1, 1, 2000)]
    loc, scale, value = (np.float64(np.float32(row)) for row in rows)
    given = tf.constant(loc, dtype), tf.constant(scale, dtype), -1.0, 1.0
    dist = truncated.TruncatedNormal(*given, mass_floor=0.0)
    got = dist.log_prob(tf.constant(value, dtype))
    expected = normal_oracle(loc, scale, -1.0, 1.0, value)
    tolerance = {"float32": 2e-6, "float64": 1e-11}[dtype]
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


FLOORS = {"normal": 1e-30, "cauchy": 1e-30, "t2": 0.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mass_floor"),
    [
        ("normal", 1e-30),
        ("cauchy", 1e-30),
        pytest.param("normal", 0.0, marks=pytest.mark.slow),
        pytest.param("t2", 0.0, marks=pytest.mark.slow),
    ],
)
def test_float32_has_the_digits_of_float64_however_far_away(name, mass_floor):
    (density, gradients), (exact_density, exact_gradients) = (
        elementwise(name, mass_floor, dtype)(*columns(GRID, dtype))
        for dtype in (tf.float32, tf.float64)
    )
    np.testing.assert_allclose(density, exact_density, rtol=2e-5, atol=2e-6)
    for index, (got, exact) in enumerate(zip(gradients, exact_gradients, strict=True)):
        # A heavy tail's derivatives are differences of numbers of about 1 / scale.
        unit = 0.0 if name == "normal" else 1.0 / np.array(GRID)[:, 1]
        assert np.isfinite(got).all()
        np.testing.assert_allclose(
            *(
                np.float64(each) / (np.abs(exact) + unit + 1e-30)
                for each in (got, exact)
            ),
            # What the floor leaves of a mass is the exponential of a difference.
            atol=1e-2 if mass_floor else 1e-4,
            err_msg=NAMES[index],
        )


@pytest.mark.parametrize("name", ["normal", *default_rows.slow("t2", "cauchy")])
def test_nothing_extreme_gives_nan(name):
    run = elementwise(name, FLOORS[name], tf.float32)
    inputs = columns(EXTREMES, tf.float32)
    density, gradients = run(*inputs)
    assert not np.isnan(density).any()
    assert not any(np.isnan(gradient).any() for gradient in gradients)
    if name != "normal":
        assert np.isfinite(density).all()
    for uniform in (0.0, 0.3, 1.0 - 2.0**-24):
        with tf.GradientTape() as tape:
            tape.watch(inputs[:4])
            draws = _truncation.quantiles(
                tf.fill([len(EXTREMES)], uniform), inputs[:4], STANDARD[name]
            )
        assert np.all((draws >= inputs[2]) & (draws <= inputs[3]))
        assert np.isfinite(draws).all()
        for gradient in tape.gradient(draws, inputs[:4]):
            assert not np.isnan(gradient).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", STANDARD)
def test_gradients_are_central_differences(name):
    point = np.array([0.3, 0.7, -1.0, 1.5, 0.9])
    far = np.array([-4.0, 0.7, -1.0, 1.5, 0.9])
    run = elementwise(name, FLOORS[name], tf.float64)
    for centre in (point, far):
        _, gradients = run(*(tf.constant([v], tf.float64) for v in centre))
        for index, gradient in enumerate(gradients):
            moved = np.tile(centre, (2, 1))
            moved[:, index] += [1e-5, -1e-5]
            up, down = run(*(tf.constant(v) for v in moved.T))[0].numpy()
            difference = (up - down) / 2e-5
            np.testing.assert_allclose(gradient[0], difference, rtol=1e-6, atol=1e-8)
    outside = tf.constant([[0.3], [0.7], [-1.0], [1.5], [1.6]], tf.float64)
    density, gradients = run(*outside)
    assert np.isneginf(density).all()
    assert float(gradients[-1][0]) == 0.0


@pytest.mark.parametrize("pair", ["near", "far", "wide"])
def test_divergence_is_an_integral(pair):
    one, other = {
        "near": ((0.3, 0.5), (-0.2, 0.9)),
        "far": ((-6.0, 0.5), (8.0, 0.9)),
        "wide": ((0.3, 40.0), (2.0, 0.4)),
    }[pair]
    x = np.linspace(-1.0, 1.5, 200_001)
    log_p, log_q = (normal_oracle(*p, -1.0, 1.5, x) for p in (one, other))
    expected = np.trapezoid(np.exp(log_p) * (log_p - log_q), x)
    dists = [truncated.TruncatedNormal(*np.float64(p), -1.0, 1.5) for p in (one, other)]
    got = tfp.distributions.kl_divergence(*dists)
    np.testing.assert_allclose(got, expected, rtol=1e-7)


# Recordings.


def class_of(symbol):
    name = symbol.rsplit(".", 1)[-1]
    return getattr(distributions, {"T2Cdf_": "t2cdf"}.get(name, name))


CASES = golden_io.load(
    "alf/distributions",
    {"t": tf.constant, "obj": lambda content: class_of(content["cls"])},
)


def of_kind(*kinds):
    cases = [case for case in CASES if case["kind"] in kinds]
    return pytest.mark.parametrize("case", cases, ids=golden_io.ids(cases))


def check(case, got, expected):
    for name, value in got.items():
        np.testing.assert_allclose(value, expected[name], err_msg=name, **case["tol"])


def with_gradients(function, inputs, cotangent=None):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        out = function(*inputs)
    return out, tape.gradient(out, inputs, output_gradients=cotangent)


@of_kind("object")
def test_golden_objects(case):
    dist = class_of(case["symbol"])(*case["ctor"]["args"], **case["ctor"]["kwargs"])
    for step in case["steps"]:

        def run(step=step):
            got = getattr(dist, step["name"])
            is_method = step["op"] == "method" or step["name"] in ("mean", "mode")
            return got(*step.get("args", ())) if is_method else got

        if "raises" in step:
            with pytest.raises(NotImplementedError):
                run()
        else:
            np.testing.assert_allclose(run(), step["out"], **case["tol"])


# Each class and each shape once; a trace with gradients takes half a second.
DEFAULT = ["TruncatedNormal/001", "TruncatedCauchy/003", "TruncatedT2/005"]
ROWS = {case["id"]: (case,) for case in CASES if case["kind"] == "truncated"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", default_rows.params(ROWS, [f"distributions/{name}" for name in DEFAULT])
)
def test_golden(case, monkeypatch):
    make, given, expected = class_of(case["symbol"]), case["in"], case["out"]
    names = ("loc", "scale", "lower_bound", "upper_bound", "value")
    inputs = [given[name] for name in names]

    def uniform(shape, seed, dtype):
        del seed
        return tf.cast(tf.reshape(given["u"], shape), dtype)

    monkeypatch.setattr(draws, "uniform", uniform)

    @tf.function
    def run(*inputs):
        def log_prob(*inputs):
            return make(*inputs[:4]).log_prob(inputs[4])

        def sample(loc, scale):
            return make(loc, scale, *inputs[2:4]).sample(given["u"].shape[0])

        density, gradients = with_gradients(log_prob, inputs, given["ct"])
        draws, of_draws = with_gradients(sample, inputs[:2], given["ct2"])
        dist = make(*inputs[:4])
        got = {"log_prob": density, "mode": dist.mode(), "get_mode": dist.mode()}
        got |= {"rsample_given_u": draws}
        got |= zip(("rsample_dloc", "rsample_dscale"), of_draws, strict=True)
        got |= zip(
            ("dloc", "dscale", "dlower", "dupper", "dvalue"), gradients, strict=True
        )
        values = given["value_with_sample_dim"]
        return got | {"log_prob_sample_dim": dist.log_prob(values)}

    got = run(*inputs)
    got["log_prob_sample_dim"], expected = inside(
        given, got["log_prob_sample_dim"], expected
    )
    check(case, got, expected)
    dist = make(*inputs[:4])
    assert dist.batch_shape.as_list() == expected["batch_shape"]
    assert dist.event_shape.as_list() == expected["event_shape"]
    assert dist.reparameterization_type == tfp.distributions.FULLY_REPARAMETERIZED


def inside(given, log_probs, expected):
    """What was recorded for values outside the bounds is not -inf, as it should be."""
    values = given["value_with_sample_dim"]
    within = (values >= given["lower_bound"]) & (values <= given["upper_bound"])
    axes = list(range(-given["lower_bound"].shape.rank, 0))
    within = tf.reduce_all(within, axis=axes).numpy()
    assert np.all(np.isneginf(log_probs.numpy()[~within]))
    name = "log_prob_sample_dim"
    return log_probs.numpy()[within], expected | {name: expected[name].numpy()[within]}


@of_kind("stats")
def test_golden_draws(case, n_draws=200_000):
    given, expected = case["in"], case["out"]
    names = ("loc", "scale", "lower", "upper")
    dist = class_of(case["symbol"])(*(given[name] for name in names))
    draws = dist.sample(n_draws, seed=[1, 2]).numpy().astype(np.float64)
    spread = n_draws**-0.5 + case["n_draws"] ** -0.5
    assert np.all(
        np.abs(draws.mean(0) - expected["mean"]) <= 5 * expected["std"] * spread
    )
    np.testing.assert_allclose(draws.std(0), expected["std"], rtol=0.02)
    for level, quantile in zip(
        case["quantile_levels"], expected["quantiles"], strict=True
    ):
        variance = level * (1 - level) * (1 / n_draws + 1 / case["n_draws"])
        assert abs(np.mean(draws < quantile) - level) <= 5 * np.sqrt(variance)
    np.testing.assert_allclose(draws.min(0), expected["min"], rtol=1e-4)
    np.testing.assert_allclose(draws.max(0), expected["max"], rtol=1e-4)


@of_kind("raises")
def test_golden_refusals(case):
    with pytest.raises(ValueError, match="`scale` expected numbers > 0"):
        class_of(case["symbol"])(*case["ctor"]["args"])


@pytest.mark.slow
@of_kind("kl")
def test_golden_divergence(case):
    given = case["in"]
    bounds = given["lower"], given["upper"]

    def divergence(loc_p, scale_p, loc_q, scale_q):
        return tfp.distributions.kl_divergence(
            distributions.TruncatedNormal(loc_p, scale_p, *bounds),
            distributions.TruncatedNormal(loc_q, scale_q, *bounds),
        )

    inputs = [given[name] for name in ("loc_p", "scale_p", "loc_q", "scale_q")]
    divergences, gradients = with_gradients(divergence, inputs)
    check(case, {"kl": divergences}, case["out"])
    for got, expected in zip(gradients, case["out"]["grads"], strict=True):
        np.testing.assert_allclose(got, expected, **case["tol"])
