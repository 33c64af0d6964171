"""Tests of `tfrl.distributions.inverse_transform`."""

import golden_io
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import tensorflow as tf

from tfrl.distributions import _truncation, inverse_transform

STANDARD = {
    "normal": (inverse_transform.NormalITS, scipy.stats.norm()),
    "cauchy": (inverse_transform.CauchyITS, scipy.stats.cauchy()),
    # With 2 degrees of freedom, of x sqrt(2).
    "t2": (inverse_transform.T2ITS, scipy.stats.t(2, scale=0.5**0.5)),
}
EXTREMES = [0.0, 1e-38, -1e-38, 1.0, -1.0, 1e4, -1e4, 1e30, -1e30]


CASES = [
    case
    for case in golden_io.load("alf/distributions", {"t": tf.constant})
    if case["kind"] in ("its", "grad")
]


class Logistic(inverse_transform.InverseTransformSampling):
    """A distribution that leaves the ratios to the base class."""

    cdf = staticmethod(tf.sigmoid)
    icdf = staticmethod(lambda x: tf.math.log(x) - tf.math.log1p(-x))
    log_prob = staticmethod(lambda x: -tf.math.softplus(x) - tf.math.softplus(-x))


class PlainNormal(inverse_transform.InverseTransformSampling):
    """A normal distribution that does so, too."""

    cdf = staticmethod(inverse_transform.NormalITS.cdf)
    log_prob = staticmethod(inverse_transform.NormalITS.log_prob)


@pytest.mark.parametrize("name", STANDARD)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_have_all_their_digits(name, dtype):
    its, true = STANDARD[name]
    tolerance = {"float32": 5e-6, "float64": 1e-13}[dtype]
    x = tf.constant([-12.0, -5.0, -1.0, -1e-3, 0.0, 0.5, 1.0, 3.0, 12.0], dtype)
    q = tf.constant([1e-6, 1e-3, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999], dtype)
    got = its.cdf(x), its.log_prob(x), its.icdf(q)
    exact_x, exact_q = np.float64(x), np.float64(q)
    expected = true.cdf(exact_x), true.logpdf(exact_x), true.ppf(exact_q)
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == dtype
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance / 10)
    # In the left tail to relative precision.
    np.testing.assert_allclose(got[0][:3], expected[0][:3], rtol=4 * tolerance)


@pytest.mark.parametrize("name", STANDARD)
def test_far_out_nothing_is_lost_and_no_gradient_breaks(name):
    its, true = STANDARD[name]
    x = tf.constant(EXTREMES)
    for function, derivative in (
        (its.cdf, true.pdf),
        (its.log_prob, None),
    ):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        gradient = tape.gradient(y, x)
        finite = ~np.isneginf(y) if name == "normal" else np.full(len(x), True)
        assert np.isfinite(y.numpy()[finite]).all()
        assert np.isfinite(gradient).all()
        if derivative is not None:
            expected = derivative(EXTREMES)
            np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-38)
    if name != "normal":
        np.testing.assert_allclose(its.log_prob(x), true.logpdf(EXTREMES), rtol=1e-5)


@pytest.mark.parametrize("name", STANDARD)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_dtypes_are_kept(name, dtype):
    its, _ = STANDARD[name]
    for function in (its.cdf, its.icdf, its.log_prob):
        wide = function(tf.constant([0.25, 0.75]))
        narrow = function(tf.constant([0.25, 0.75], dtype))
        assert narrow.dtype == dtype
        np.testing.assert_allclose(tf.cast(narrow, tf.float32), wide, rtol=1e-2)


def test_t2cdf_by_hand():
    # 1/2 + 3/5 / 2 at x = 3/4, whose norm is 5/4; the slope is (4/5)^3 / 2.
    with tf.GradientTape() as tape:
        x = tf.constant([0.75, -0.75, 0.0, -np.inf, np.inf], tf.float64)
        tape.watch(x)
        y = tf.function(inverse_transform.t2cdf, jit_compile=True)(x)
    np.testing.assert_allclose(y, [0.8, 0.2, 0.5, 0.0, 1.0], rtol=1e-15, atol=0)
    slopes = [0.256, 0.256, 0.5, 0.0, 0.0]
    np.testing.assert_allclose(tape.gradient(y, x), slopes, rtol=1e-15)
    assert np.all(np.diff(inverse_transform.t2cdf(np.linspace(-1e4, 1e4, 9999))) > 0)


def test_interface_leaves_the_functions_to_subclasses():
    for name in ("cdf", "icdf", "log_prob"):
        with pytest.raises(NotImplementedError, match=f"`{name}`"):
            getattr(inverse_transform.InverseTransformSampling, name)(0.0)


def ratios(its, origin, below, above, scale):
    arguments = [tf.constant([v], tf.float64) for v in (origin, below, above, scale)]
    step = 0.5 * (arguments[2] - arguments[1])
    log_mass = its.log_mass_ratio(*arguments)
    log_ratio = its.log_density_ratio(arguments[0], step, arguments[3])
    return float(log_mass[0]), float(log_ratio[0])


@pytest.mark.parametrize(
    "interval",
    [
        (0.0, 1.0, 2.0, 0.7),
        (0.0, 1e-3, 2e-3, 5.0),
        (0.0, 30.0, 0.0, 1.0),
        (3.0, 0.0, 2.0, 1.5),
        (-3.0, 1.0, 0.0, 1.5),
        (-40.0, 80.0, 0.0, 2.0),
    ],
    ids=["around", "narrow", "one_sided", "above", "below", "far_below"],
)
@pytest.mark.parametrize("name", [*STANDARD, "logistic"])
def test_ratios_are_integrals_of_the_density(name, interval):
    its, true = STANDARD.get(name, (Logistic, scipy.stats.logistic()))
    origin, below, above, scale = interval

    def relative(x):
        logs = true.logpdf(x / scale) - true.logpdf(origin / scale)
        return np.exp(logs)

    points = sorted(
        {
            origin - below,
            origin + above,
            *(p for p in (-5.0, 0.0, 5.0) if origin - below < p < origin + above),
        }
    )
    expected = sum(
        scipy.integrate.quad(relative, *ends, epsabs=0, epsrel=1e-11)[0]
        for ends in zip(points[:-1], points[1:], strict=True)
    )
    log_mass, log_ratio = ratios(its, *interval)
    np.testing.assert_allclose(log_mass, np.log(expected), rtol=1e-9, atol=1e-9)
    step = 0.5 * (above - below)
    np.testing.assert_allclose(log_ratio, np.log(relative(origin + step)), atol=1e-12)


def test_base_class_gives_what_subclasses_do_better():
    interval = (2.0, 0.0, 1.0, 0.8)
    np.testing.assert_allclose(
        ratios(PlainNormal, *interval),
        ratios(inverse_transform.NormalITS, *interval),
        rtol=1e-10,
    )
    # Without any mass left it stays finite.
    assert np.isfinite(ratios(PlainNormal, 60.0, 0.0, 1.0, 1.0)[0])


def with_gradient(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return y.numpy(), tape.gradient(y, x).numpy()


@pytest.mark.parametrize("case", CASES, ids=golden_io.ids(CASES))
def test_golden(case):
    given = case["in"]
    if case["kind"] == "grad":
        got = dict(
            zip(
                "y dy".split(),
                with_gradient(inverse_transform.t2cdf, given["x"]),
                strict=True,
            )
        )
    else:
        its = getattr(inverse_transform, case["symbol"].rsplit(".", 1)[-1])
        got = {}
        for name, x in (("cdf", "x"), ("log_prob", "x"), ("icdf", "q")):
            got[name], got[f"d{name}"] = with_gradient(getattr(its, name), given[x])
    assert len(CASES) == 5
    sure = case["out"].get("mask_icdf")
    for name, value in got.items():
        expected = case["out"][name].numpy()
        if name.endswith("icdf"):
            value, expected = value[sure], expected[sure]
        np.testing.assert_allclose(value, expected, err_msg=name, **case["tol"])


def test_quotients_are_finite_with_their_gradients():
    x = tf.constant([3.0, 0.0, np.inf, -1e30, 1e30])
    scale = tf.constant([2.0, 1e-30, 1.0, 1e-30, 1e-37])
    with tf.GradientTape() as tape:
        tape.watch([x, scale])
        quotient = _truncation.standardized(x, scale)
        loss = quotient / tf.stop_gradient(tf.maximum(tf.abs(quotient), 1.0))
    gradients = tape.gradient(loss, [x, scale])
    assert np.isfinite([quotient, *gradients]).all()
    np.testing.assert_allclose([g[0] for g in gradients], [1 / 3, -0.5])
    assert float(gradients[1][3]) == 0.0  # held at the limit
