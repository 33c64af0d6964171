"""Tests of `tfrl.distributions.entropy`."""

import math

import golden_io
import golden_policies
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl import bijectors, core, distributions
from tfrl.distributions import entropy, product, truncated

tfd, tfb = tfp.distributions, tfp.bijectors

NUMBERS = {
    "calc_default_target_entropy": 15,
    "calc_default_max_entropy": 14,
    "calc_default_target_entropy_quantized": 9,
    "calc_uniform_log_prob": 5,
}
COUNTS = {
    "compute_entropy": 2,
    "entropy_with_fallback": 2,
    "estimated_entropy": 2,
    **NUMBERS,
}
CASES = {
    symbol: golden_io.load(
        "alf/dist_utils",
        {"t": tf.constant, "spec": lambda content: core.BoundedTensorSpec(**content)},
        symbol,
    )
    for symbol in COUNTS
}


def golden(*symbols):
    cases = [case for symbol in symbols for case in CASES[symbol]]
    return pytest.mark.parametrize("case", cases, ids=golden_io.ids(cases))


def tanh_normal(loc, scale):
    normal = distributions.DiagMultivariateNormal(loc, scale)
    return tfd.TransformedDistribution(normal, bijectors.StableTanh())


def test_every_case_runs():
    assert {symbol: len(cases) for symbol, cases in CASES.items()} == COUNTS


@golden(*NUMBERS)
def test_numbers_golden(case):
    function = getattr(entropy, case["symbol"].rsplit(".", 1)[-1])
    if case["kind"] == "raises":
        with pytest.raises(ValueError, match="expected"):
            function(*case["args"], **case["kwargs"])
        return
    result = function(*case["args"], **case["kwargs"])
    assert isinstance(result, np.float64)
    np.testing.assert_allclose(result, case["out"], **case["tol"])


@golden("compute_entropy", "entropy_with_fallback")
def test_entropies_golden(case):
    function = getattr(entropy, case["symbol"].rsplit(".", 1)[-1])
    nest = golden_policies.build(case["args"][0])
    if case["kind"] == "raises":
        with pytest.raises(NotImplementedError):
            function(nest)
        return
    results = function(nest)
    tf.nest.map_structure(
        lambda *pair: np.testing.assert_allclose(*pair, **case["tol"]),
        results,
        case["out"],
    )


@golden("estimated_entropy")
def test_estimated_entropy_golden(case):
    make = {
        "DiagMultivariateNormal": distributions.DiagMultivariateNormal,
        "tanh DiagMultivariateNormal": tanh_normal,
    }[case["in"]["desc"]]
    n = case["in"]["reps"]
    params = [tf.repeat(p[None], n, axis=0) for p in case["in"]["params"]]

    @tf.function
    def estimate(params):
        with tf.GradientTape() as tape:
            tape.watch(params)
            value, for_gradient = entropy.estimated_entropy(make(*params), seed=11)
        return value, tape.gradient(for_gradient, params)

    value, gradients = estimate(params)
    expected = [(value, case["out"]["mean_entropy"], case["out"]["se_entropy"])]
    expected += zip(
        gradients, case["out"]["mean_grad"], case["out"]["se_grad"], strict=True
    )
    for got, mean, error in expected:
        got = np.asarray(got, np.float64)
        margin = 5 * np.hypot(error, got.std(axis=0) / math.sqrt(n))
        assert np.all(np.abs(got.mean(axis=0) - mean) <= margin + 1e-6)


def test_entropy_by_hand():
    nest = {"a": tfd.Categorical(logits=[[0.0, 0.0]]), "b": (tfd.Normal([0.0], [2.0]),)}
    expected = [math.log(2.0) + 0.5 * math.log(2 * math.pi * math.e * 4)]
    np.testing.assert_allclose(entropy.compute_entropy(nest), expected, rtol=1e-6)
    exact, same = entropy.entropy_with_fallback(nest)
    np.testing.assert_allclose(exact, expected, rtol=1e-6)
    np.testing.assert_array_equal(exact, same)
    parts, _ = entropy.entropy_with_fallback(nest, return_sum=False)
    np.testing.assert_allclose(parts["b"][0], expected - np.log(2.0), rtol=1e-6)


def test_score_function_estimates_the_gradient():
    # Of a categorical the entropy and its gradient are known.
    n = 40_000
    logits = tf.constant([0.0, 1.0, -0.5])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(logits)
        rows = tf.repeat(logits[None], n, axis=0)
        tape.watch(rows)
        dist = tfd.Categorical(logits=rows)
        value, for_gradient = entropy.estimated_entropy(dist, num_samples=2, seed=1)
        exact = tfd.Categorical(logits=logits).entropy()
    error = np.std(value) / math.sqrt(n)
    assert abs(np.mean(value) - exact) <= 5 * error
    slopes = np.asarray(tape.gradient(for_gradient, rows), np.float64)
    error = slopes.std(axis=0) / math.sqrt(n)
    assert np.all(
        np.abs(slopes.mean(axis=0) - tape.gradient(exact, logits)) <= 5 * error
    )
    # The first result's own gradient would be 0 on average.
    slopes = np.asarray(tape.gradient(value, rows), np.float64)
    error = slopes.std(axis=0) / math.sqrt(n)
    assert np.all(np.abs(slopes.mean(axis=0)) <= 5 * error)


def test_fallback_in_graphs():
    @tf.function(input_signature=[tf.TensorSpec([None, 2])] * 2)
    def both(loc, scale):
        nest = [
            tanh_normal(loc, scale),
            distributions.DiagMultivariateNormal(loc, scale),
        ]
        return entropy.entropy_with_fallback(nest, return_sum=False, seed=[1, 2])

    loc, scale = tf.zeros([6, 2]), tf.ones([6, 2])
    (estimate, exact), (same, _) = both(loc, scale)
    np.testing.assert_allclose(exact, [math.log(2 * math.pi * math.e)] * 6, rtol=1e-6)
    np.testing.assert_array_equal(estimate, same)
    assert len(set(estimate.numpy().tolist())) == 6
    # The squashed normal lies within (-1, 1)^2; one draw of -log p stays near.
    assert np.all(np.abs(estimate) < 20.0)


def test_products_fall_back_part_by_part():
    parts = {"a": tanh_normal([0.5], [0.1]), "b": tfd.Normal(0.0, 1.0)}
    total, _ = entropy.entropy_with_fallback([product.Product(parts)], seed=3)
    assert np.isfinite(total)
    with pytest.raises(NotImplementedError):
        entropy.compute_entropy(product.Product(parts))
    alone, _ = entropy.entropy_with_fallback(
        product.Product({"b": parts["b"]}), return_sum=False
    )
    np.testing.assert_allclose(alone, parts["b"].entropy())


def test_seeds_and_samples():
    dist = truncated.TruncatedCauchy([0.0], [1.0], [-1.0], [1.0])
    one, again, other = (
        entropy.estimated_entropy(dist, num_samples=3, seed=seed)[0]
        for seed in (1, 1, 2)
    )
    assert one.shape == []
    assert one == again
    assert one != other
    # An even distribution tells its entropy with every draw.
    even = tfd.Independent(tfd.Uniform([0.0, 0.0], 3.0), 1)
    value, _ = entropy.estimated_entropy(even, check_numerics=True)
    np.testing.assert_allclose(value, 2 * math.log(3.0), rtol=1e-6)


def test_check_numerics():
    class Broken(tfd.Uniform):
        def _log_prob(self, x):
            return tf.math.log(x - 2.0)

    with pytest.raises(ValueError, match="expected finite"):
        entropy.estimated_entropy(Broken([0.0], 1.0), check_numerics=True)
    assert np.isnan(entropy.estimated_entropy(Broken([0.0], 1.0))[0]).all()


def brute_target(n, min_prob):
    """Entropy of one sure value among n, from its probabilities."""
    probs = [1 - min_prob] + [min_prob / (n - 1)] * (n - 1) if n > 1 else [1.0]
    return -sum(p * math.log(p) for p in probs if p > 0)


@pytest.mark.parametrize("n", [1, 2, 3, 17, 10_000])
@pytest.mark.parametrize("min_prob", [0.01, 0.5, 1.0])
def test_target_entropy_of_choices(n, min_prob):
    spec = core.BoundedTensorSpec([], tf.int32, 5, n + 4)
    np.testing.assert_allclose(
        entropy.calc_default_target_entropy(spec, min_prob),
        brute_target(n, min_prob),
        rtol=1e-12,
        atol=1e-15,
    )
    bits = core.BoundedTensorSpec([3], tf.bool, False, True)
    np.testing.assert_allclose(
        entropy.calc_default_target_entropy(bits, 0.25), 3 * brute_target(2, 0.25)
    )


def test_quantized_counts_each_dimension_once():
    low, high = [-1.0, 0.0, 0.0], [1.0, 4.0, 1.0]
    spec = core.BoundedTensorSpec([3], tf.float32, low, high)
    expected = sum(math.log(64) - 1 - math.log(h - l) for l, h in zip(low, high))  # noqa: B905, E741
    result = entropy.calc_default_target_entropy_quantized(spec, 64)
    np.testing.assert_allclose(result, expected, rtol=1e-12)
    # Uniform over all bins is the most there is.
    assert result < 3 * math.log(64)
    with pytest.raises(ValueError, match="`num_bins` expected more bins"):
        entropy.calc_default_target_entropy_quantized(spec, 4)


@pytest.mark.parametrize(
    ("n", "portion", "least", "expected"),
    [
        (100, 0.2, 0.3, math.log(20.0)),
        (4, 0.25, 0.3, 0.3),
        (2, 0.1, -5.0, math.log(0.2)),
        (7, 1.0, 0.0, math.log(7.0)),
    ],
)
def test_active_actions(n, portion, least, expected):
    spec = core.BoundedTensorSpec([], tf.int64, 0, n - 1)
    result = entropy.active_action_target_entropy(portion, least, spec)
    assert isinstance(result, float)
    np.testing.assert_allclose(result, expected, rtol=1e-12)
    pair = core.BoundedTensorSpec([2], tf.int64, 0, n - 1)
    both = entropy.active_action_target_entropy(portion, least, pair)
    np.testing.assert_allclose(both, max(math.log(n * n * portion), least), rtol=1e-12)


FLOATS = core.BoundedTensorSpec([2], tf.float32, -1.0, 1.0)
CHOICES = core.BoundedTensorSpec([2], tf.int32, 0, 3)


def spec_of(shape=(), low=0.0, high=1.0):
    return core.BoundedTensorSpec(shape, tf.float32, low, high)


NORMAL = tfd.Normal(0.0, 1.0)
BAD_NUMBERS = {
    "portion": ("active_action_target_entropy", (1.5, 0.3, CHOICES)),
    "no spec": ("active_action_target_entropy", ()),
    "floats": ("active_action_target_entropy", (0.2, 0.3, FLOATS)),
    "fraction": ("calc_default_max_entropy", (FLOATS, 1.5)),
    "equal": ("calc_default_max_entropy", (spec_of([2], 0.0, [0.0, 1.0]),)),
    "share": ("calc_default_target_entropy", (FLOATS, 0.0)),
    "unknown": ("calc_default_target_entropy", (spec_of([None]),)),
    "choices": ("calc_default_target_entropy_quantized", (CHOICES, 9)),
    "unbounded": ("calc_uniform_log_prob", (tf.TensorSpec([2]),)),
    "infinite": ("calc_uniform_log_prob", (spec_of((), 0.0, np.inf),)),
}


@pytest.mark.parametrize(("name", "args"), BAD_NUMBERS.values(), ids=BAD_NUMBERS)
def test_bad_numbers(name, args):
    kind = TypeError if not args or type(args[0]) is tf.TensorSpec else ValueError
    argument = "spec|fraction|min_prob|active_action_portion"
    with pytest.raises(kind, match=rf"`{name}`: `({argument})(\.maximum)?` expected"):
        getattr(entropy, name)(*args)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: entropy.compute_entropy([]), "a nest with a distribution"),
        (lambda: entropy.entropy_with_fallback(()), "a nest with a distribution"),
        (
            lambda: entropy.compute_entropy([tfd.Normal([0.0], 1.0), NORMAL]),
            "`entropy of leaf 1` expected",
        ),
        (lambda: entropy.estimated_entropy(NORMAL, 0), "`num_samples` expected"),
    ],
    ids=["none", "none with fallback", "shapes", "samples"],
)
def test_bad_nests(call, match):
    with pytest.raises(ValueError, match=match):
        call()
