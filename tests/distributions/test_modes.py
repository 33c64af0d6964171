"""Tests of `tfrl.distributions.modes`."""

import golden_io
import golden_policies
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl import bijectors, distributions
from tfrl.distributions import modes, product, spec, squashed

tfd, tfb = tfp.distributions, tfp.bijectors

# Every recorded distribution has its modes, its base and its parameters recorded, too.
CASES = [
    case
    for case in golden_io.load("alf/dist_utils", {"t": tf.constant})
    if case["kind"] == "distribution"
]
COUNT = 27
# The recorded library cannot handle its plain Beta at all; TFP's has all of this.
BEYOND = ("dist_utils/Beta/004",)
REFUSED = ("NotImplementedError", "KeyError")


def refused(expected):
    return isinstance(expected, str) and expected in REFUSED


def check_or_refuse(case, name, function):
    expected = case["out"][name]
    if not refused(expected):
        np.testing.assert_allclose(function(), expected, **case["tol"], err_msg=name)
    elif case["id"] not in BEYOND:
        with pytest.raises(NotImplementedError):
            function()


def test_every_case_runs():
    assert len(CASES) == COUNT
    assert sum(case["symbol"].endswith("get_mode") for case in CASES) == 15


@pytest.mark.parametrize("case", CASES, ids=golden_io.ids(CASES))
def test_golden(case):
    dist = golden_policies.build(case["in"]["dist"])
    check_or_refuse(case, "get_mode", lambda: modes.get_mode(dist))
    check_or_refuse(case, "get_rmode", lambda: modes.get_rmode(dist))
    expected = case["out"]["get_base_dist"]
    if not refused(expected):
        assert type(modes.get_base_dist(dist)).__name__ == expected
    elif case["id"] not in BEYOND:
        with pytest.raises(NotImplementedError, match="`get_base_dist`: `dist`"):
            modes.get_base_dist(dist)


@pytest.mark.parametrize("case", CASES, ids=golden_io.ids(CASES))
def test_golden_parameters(case):
    dist = golden_policies.build(case["in"]["dist"])
    expected = case["out"]["extract_distribution_parameters"]
    if case["id"] in BEYOND:
        assert expected == "KeyError"
        return
    got = spec.extract_distribution_parameters(dist)
    expected = golden_policies.in_our_words(expected)
    assert got.keys() == expected.keys()
    if "logits" in got:  # recorded as log-probabilities
        got = {"logits": tf.nn.log_softmax(got["logits"])}
    if "probs" in got:
        got = {"probs": got["probs"] / tf.reduce_sum(got["probs"], -1, keepdims=True)}
    if "mixture_distribution" in got:
        logits = got["mixture_distribution"]["logits"]
        got["mixture_distribution"] = {"logits": tf.nn.log_softmax(logits)}
    tf.nest.map_structure(
        lambda *pair: np.testing.assert_allclose(*pair, **case["tol"]), got, expected
    )
    recorded = golden_policies.build(case["out"]["DistributionSpec.input_params_spec"])
    made = spec.DistributionSpec.from_distribution(dist, from_dim=1)
    assert made.input_params_spec == golden_policies.in_our_words(recorded)


# What no other file repeats: the recorded distributions of TFP's own classes.
OTHERS = [case for case in CASES if case["symbol"].endswith("get_mode")]


@pytest.mark.parametrize("case", OTHERS, ids=golden_io.ids(OTHERS))
def test_golden_statistics(case):
    dist = golden_policies.build(case["in"]["dist"])
    expected = case["out"]
    log_prob = dist.log_prob(case["in"]["value"])
    np.testing.assert_allclose(log_prob, expected["log_prob"], **case["tol"])
    assert dist.batch_shape == expected["batch_shape"]
    assert dist.event_shape == expected["event_shape"]
    for name in ("entropy", "mean", "stddev", "variance"):
        if tf.is_tensor(expected.get(name)):
            got = getattr(dist, name)()
            np.testing.assert_allclose(got, expected[name], **case["tol"])
    is_free = dist.reparameterization_type == tfd.FULLY_REPARAMETERIZED
    assert is_free == expected["has_rsample"]


def tanh_normal(loc):
    return tfd.TransformedDistribution(tfd.Normal(loc, 1.0), bijectors.StableTanh())


def test_gradients_of_transformed_modes():
    loc = tf.constant([0.5, -1.0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(loc)
        dist = tfd.Independent(tanh_normal(loc), 1)
        mode, rmode = modes.get_mode(dist), modes.get_rmode(dist)
    np.testing.assert_allclose(mode, np.tanh(loc), rtol=1e-6)
    np.testing.assert_allclose(rmode, np.tanh(loc), rtol=1e-6)
    assert tape.gradient(mode, loc) is None
    np.testing.assert_allclose(
        tape.gradient(rmode, loc), 1 - np.tanh(loc) ** 2, rtol=1e-5
    )


def test_mixtures_take_the_most_probable_component():
    logits = tf.constant([[0.0, 2.0, 1.0], [5.0, 2.0, 1.0]])
    loc = tf.reshape(tf.range(12.0), [2, 3, 2])

    @tf.function(
        input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([None, 3, 2])]
    )
    def both(logits, loc):
        same = tfd.MixtureSameFamily(
            tfd.Categorical(logits=logits), tfd.MultivariateNormalDiag(loc)
        )
        parts = [tfd.MultivariateNormalDiag(loc[:, k]) for k in range(3)]
        mixed = tfd.Mixture(tfd.Categorical(logits=logits), parts)
        return modes.get_mode(same), modes.get_rmode(mixed)

    expected = [[2.0, 3.0], [6.0, 7.0]]
    np.testing.assert_array_equal(both(logits, loc), [expected, expected])


def test_mixture_of_one_weight_for_all_rows():
    dist = tfd.MixtureSameFamily(
        tfd.Categorical(logits=[0.0, 1.0]), tanh_normal(tf.constant([[1.0, 2.0]] * 3))
    )
    np.testing.assert_allclose(modes.get_mode(dist), [np.tanh(2.0)] * 3, rtol=1e-6)


def test_products_are_taken_apart():
    parts = {"a": tanh_normal(tf.constant([0.5])), "b": tfd.Poisson([2.5])}
    dist = product.Product(parts)
    mode = modes.get_mode(dist)
    np.testing.assert_allclose(mode["a"], np.tanh([0.5]), rtol=1e-6)
    np.testing.assert_allclose(mode["b"], [2.0])
    continuous = product.Product({"a": parts["a"]})
    np.testing.assert_allclose(modes.get_rmode(continuous)["a"], mode["a"])
    with pytest.raises(NotImplementedError, match="`get_base_dist`"):
        modes.get_base_dist(dist)


def test_bases():
    loc, scale = tf.constant([[1.0, 2.0]]), tf.constant([[3.0, 4.0]])
    for dist in (
        tfd.MultivariateNormalDiag(loc, scale),
        distributions.DiagMultivariateNormal(loc, scale),
        tfd.TransformedDistribution(
            tfd.MultivariateNormalDiag(loc, scale), bijectors.StableTanh()
        ),
    ):
        base = modes.get_base_dist(dist)
        assert isinstance(base, tfd.Normal)
        np.testing.assert_allclose(base.loc, loc)
        np.testing.assert_allclose(base.scale, scale)
    full = tfd.MultivariateNormalTriL(loc, tf.eye(2))
    assert modes.get_base_dist(full) is full
    policy = squashed.SquashedNormal(loc, scale)
    assert modes.get_base_dist(policy) is policy


@pytest.mark.parametrize(
    "dist",
    [
        tfd.Categorical(logits=[0.0, 1.0]),
        tfd.Independent(tfd.Bernoulli(logits=[0.0, 1.0]), 1),
        distributions.OneHotCategoricalStraightThrough(logits=[0.0, 1.0]),
        tfd.MixtureSameFamily(
            tfd.Categorical(logits=[0.0]), tfd.Bernoulli(logits=[0.0])
        ),
        product.Product((tfd.Normal(0.0, 1.0), tfd.Categorical(logits=[0.0]))),
    ],
    ids=["categorical", "bits", "one-hot", "mixture", "product"],
)
def test_categories_have_no_rmode(dist):
    with pytest.raises(NotImplementedError, match="`get_rmode`: `dist` expected cont"):
        modes.get_rmode(dist)


def test_unknown_modes():
    with pytest.raises(NotImplementedError, match="`get_mode`: `dist` expected"):
        modes.get_mode(tfd.Blockwise([tfd.Normal(0.0, 1.0)]))


def test_joint_distributions_of_tfp():
    joint = tfd.JointDistributionNamed(
        {"a": tfd.Normal([1.0], 1.0), "b": tfd.Normal([2.0], 1.0)}
    )
    np.testing.assert_allclose(modes.get_mode(joint)["b"], [2.0])
    np.testing.assert_allclose(modes.get_rmode(joint)["a"], [1.0])
    with pytest.raises(NotImplementedError, match="`get_base_dist`"):
        modes.get_base_dist(joint)
