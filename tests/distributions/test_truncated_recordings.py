"""Truncated distributions and their standard distributions against recordings."""

import golden_io
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl import distributions
from tfrl.distributions import _draws


def class_of(symbol):
    name = symbol.rsplit(".", 1)[-1]
    return getattr(distributions, {"T2Cdf_": "t2cdf"}.get(name, name))


CASES = golden_io.load(
    "alf/distributions",
    {"t": tf.constant, "obj": lambda content: class_of(content["cls"])},
)
MODES = {"eager": lambda function: function, "graph": tf.function}


def of_kind(*kinds):
    cases = [case for case in CASES if case["kind"] in kinds]
    return pytest.mark.parametrize("case", cases, ids=golden_io.ids(cases))


def check(case, got, expected=None):
    expected = case["out"] if expected is None else expected
    for name, value in got.items():
        np.testing.assert_allclose(value, expected[name], err_msg=name, **case["tol"])


def with_gradients(function, inputs, cotangent=None):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        out = function(*inputs)
    return out, tape.gradient(out, inputs, output_gradients=cotangent)


def test_recordings_are_there():
    kinds = [case["kind"] for case in CASES]
    names = ("its", "grad", "object", "truncated", "stats", "raises", "kl")
    assert [kinds.count(kind) for kind in names] == [3, 2, 5, 9, 3, 1, 1]
    assert len(kinds) == 24


@pytest.mark.parametrize("mode", MODES)
@of_kind("its")
def test_standard_distributions(case, mode):
    its, given = class_of(case["symbol"]), case["in"]

    @MODES[mode]
    def run(x, q):
        cdf, (dcdf,) = with_gradients(its.cdf, [x])
        log_prob, (dlog_prob,) = with_gradients(its.log_prob, [x])
        icdf, (dicdf,) = with_gradients(its.icdf, [q])
        names = "cdf dcdf log_prob dlog_prob icdf dicdf".split()
        values = cdf, dcdf, log_prob, dlog_prob, icdf, dicdf
        return dict(zip(names, values, strict=True))

    got = {name: value.numpy() for name, value in run(given["x"], given["q"]).items()}
    sure = case["out"]["mask_icdf"].numpy()
    expected = {name: value.numpy() for name, value in case["out"].items()}
    for name in ("icdf", "dicdf"):
        got[name], expected[name] = got[name][sure], expected[name][sure]
    check(case, got, expected)


@of_kind("grad")
def test_distribution_function_of_t2(case):
    y, (dy,) = with_gradients(class_of(case["symbol"]), [case["in"]["x"]])
    check(case, {"y": y, "dy": dy})


@of_kind("object")
def test_objects(case):
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


@of_kind("truncated")
def test_truncated(case, monkeypatch):
    make, given, expected = class_of(case["symbol"]), case["in"], case["out"]
    names = ("loc", "scale", "lower_bound", "upper_bound", "value")
    inputs = [given[name] for name in names]

    def uniform(shape, seed, dtype):
        del seed
        return tf.cast(tf.reshape(given["u"], shape), dtype)

    monkeypatch.setattr(_draws, "uniform", uniform)

    # The other files run eagerly; a gradient's first eager trace takes a second.
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
def test_draws(case, n_draws=200_000):
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
def test_refused(case):
    with pytest.raises(ValueError, match="`scale` expected numbers > 0"):
        class_of(case["symbol"])(*case["ctor"]["args"])


@pytest.mark.parametrize("mode", MODES)
@of_kind("kl")
def test_divergence(case, mode):
    given = case["in"]
    bounds = given["lower"], given["upper"]

    def divergence(loc_p, scale_p, loc_q, scale_q):
        return tfp.distributions.kl_divergence(
            distributions.TruncatedNormal(loc_p, scale_p, *bounds),
            distributions.TruncatedNormal(loc_q, scale_q, *bounds),
        )

    @MODES[mode]
    def run(*inputs):
        return with_gradients(divergence, list(inputs))

    names = ("loc_p", "scale_p", "loc_q", "scale_q")
    divergences, gradients = run(*(given[name] for name in names))
    check(case, {"kl": divergences})
    for got, expected in zip(gradients, case["out"]["grads"], strict=True):
        np.testing.assert_allclose(got, expected, **case["tol"])
