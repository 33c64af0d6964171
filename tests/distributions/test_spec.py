"""Tests of `tfrl.distributions.spec`."""

import pickle

import golden_io
import golden_policies
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl import bijectors, core, distributions
from tfrl.distributions import spec

tfd, tfb = tfp.distributions, tfp.bijectors

COUNTS = {
    "extract_spec": 9,
    "distributions_to_params": 5,
    "to_distribution_param_spec": 1,
    "params_to_distributions": 1,
    "DistributionSpec": 1,
}
CASES = {symbol: golden_policies.load(symbol) for symbol in COUNTS}


def golden(symbol):
    cases = CASES[symbol]
    return pytest.mark.parametrize("case", cases, ids=golden_io.ids(cases))


def squashed(loc, softness=0.3):
    """A policy with a hyper-parameter deep inside."""
    normal = distributions.DiagMultivariateNormal(loc, tf.ones_like(loc))
    clip = bijectors.Softclip(-1.0, 2.0, hinge_softness=softness)
    return tfd.TransformedDistribution(
        normal, tfb.Chain([bijectors.AffineTransform(0.5, 2.0), clip])
    )


def nest_of_three():
    return {
        "c": tfd.Categorical(logits=tf.reshape(tf.range(6.0), [2, 3])),
        "n": [squashed(tf.ones([2, 4])), (tf.constant([[1], [2]]),)],
    }


def assert_same_parameters(got, expected, tol):
    """Nests agree; logits and probabilities as far as they tell weights apart."""
    tf.nest.assert_same_structure(got, expected)
    for (path, one), (_, two) in zip(
        *(keras.tree.flatten_with_path(nest) for nest in (got, expected)), strict=True
    ):
        if path[-1] == "logits":
            one = tf.nn.log_softmax(one)
        np.testing.assert_allclose(one, two, **tol)


def test_every_case_runs():
    assert {symbol: len(cases) for symbol, cases in CASES.items()} == COUNTS


@golden("extract_spec")
def test_extract_spec_golden(case):
    nest = golden_policies.build(case["args"][0])
    if case["kind"] == "raises":
        with pytest.raises(ValueError, match="expected tensors, arrays and dist"):
            spec.extract_spec(nest, **case["kwargs"])
        return
    specs = spec.extract_spec(nest, **case["kwargs"])
    expected = golden_policies.build(case["out"])
    assert core.is_same_spec(spec.to_distribution_param_spec(specs), expected)


@golden("distributions_to_params")
def test_distributions_to_params_golden(case):
    nest = golden_policies.build(case["args"][0])
    if case["kind"] == "raises":
        with pytest.raises(ValueError, match="expected tensors, arrays and dist"):
            spec.distributions_to_params(nest)
        return
    expected = golden_policies.in_our_words(case["out"])
    assert_same_parameters(spec.distributions_to_params(nest), expected, case["tol"])


@golden("to_distribution_param_spec")
def test_to_distribution_param_spec_golden(case):
    example = golden_policies.build(CASES["extract_spec"][0]["args"][0])
    specs = spec.to_distribution_param_spec(spec.extract_spec(example))
    assert core.is_same_spec(specs, golden_policies.build(case["out"]["out"]))


@golden("params_to_distributions")
def test_params_to_distributions_golden(case):
    example = golden_policies.build(CASES["extract_spec"][0]["args"][0])
    made = spec.params_to_distributions(
        case["in"]["params"], spec.extract_spec(example)
    )

    def check(dist, recorded):
        expected = recorded.content
        assert type(dist).__name__ == expected["cls"]
        assert dist.batch_shape == expected["batch_shape"]
        assert dist.event_shape == expected["event_shape"]
        parameters = spec.extract_distribution_parameters(dist)
        assert_same_parameters(parameters, expected["params"], case["tol"])

    recorded = case["out"]["dists"]
    check(made["c"], recorded["c"])
    check(made["n"][0], recorded["n"][0])
    check(made["n"][1][0], recorded["n"][1][0])


@golden("DistributionSpec")
def test_distribution_spec_golden(case):
    loc, scale = case["in"]["loc"], case["in"]["scale"]
    dist = distributions.DiagMultivariateNormal(loc, scale)
    two = distributions.DiagMultivariateNormal(loc[:2], scale[:2])
    made = spec.DistributionSpec.from_distribution(two)
    expected = golden_policies.build(case["out"]["input_params_spec"])
    assert made.input_params_spec == expected
    again = made.build_distribution({"loc": loc, "scale": scale})
    np.testing.assert_allclose(again.log_prob(loc), dist.log_prob(loc))
    with pytest.raises(ValueError, match="`input_params` expected the structure of"):
        made.build_distribution({"loc": loc})


def test_by_hand():
    made = spec.DistributionSpec(
        lambda p: tfd.Normal(p["mean"], 2.0), {"mean": tf.TensorSpec([], tf.float64)}
    )
    dist = made.build_distribution({"mean": 3})
    assert dist.dtype == tf.float64
    np.testing.assert_allclose([dist.mean(), dist.stddev()], [3.0, 2.0])


def test_every_hyper_parameter_is_kept():
    dist = squashed(tf.zeros([5, 2]), softness=0.3)
    made = spec.DistributionSpec.from_distribution(dist, from_dim=1)
    vector = tf.TensorSpec([2])
    assert made.input_params_spec == {"loc": vector, "scale": vector}
    again = made.build_distribution({"loc": np.zeros(2), "scale": np.ones(2)})
    assert again.bijector.bijectors[1].hinge_softness == 0.3
    value = tf.constant([1.2, 1.3])
    np.testing.assert_allclose(
        again.log_prob(value), dist.log_prob(value)[0], rtol=1e-6
    )


def test_nests_come_back():
    nest = nest_of_three()
    specs, params = spec.extract_spec(nest), spec.distributions_to_params(nest)
    tf.nest.assert_same_structure(spec.to_distribution_param_spec(specs), params)
    again = spec.params_to_distributions(params, specs)
    assert again["n"][1][0] is nest["n"][1][0]
    assert spec.extract_spec(again) == specs
    actions = {"c": tf.constant([0, 2]), "n": [tf.fill([2, 4], 1.1)]}
    for name, one, two in (
        ("c", again["c"], nest["c"]),
        ("n", again["n"][0], nest["n"][0]),
    ):
        action = tf.nest.flatten(actions[name])[0]
        np.testing.assert_allclose(one.log_prob(action), two.log_prob(action))


def test_parameters_cross_functions():
    specs = spec.extract_spec(nest_of_three())
    signature = spec.to_distribution_param_spec(spec.extract_spec(nest_of_three(), 0))
    traces = []

    @tf.function(input_signature=[signature])
    def through(params):
        traces.append(params)
        nest = spec.params_to_distributions(params, specs)
        nest["c"] = tfd.Categorical(logits=nest["c"].logits + 1.0)
        assert spec.extract_spec(nest) == specs
        return spec.distributions_to_params(nest)

    params = spec.distributions_to_params(nest_of_three())
    out = through(through(params))
    np.testing.assert_allclose(out["c"]["logits"], params["c"]["logits"] + 2.0)
    np.testing.assert_array_equal(out["n"][0]["loc"], params["n"][0]["loc"])
    assert len(traces) == 1


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
def test_unknown_batches_and_gradients(jit_compile):
    made = spec.DistributionSpec.from_distribution(squashed(tf.zeros([1, 2])), 1)

    @tf.function(
        input_signature=[tf.TensorSpec([None, 2])] * 2, jit_compile=jit_compile
    )
    def gradient(loc, scale):
        dist = made.build_distribution({"loc": loc, "scale": scale})
        params = spec.extract_distribution_parameters(dist)
        dist = made.build_distribution(params)
        return tf.gradients(dist.log_prob(1.2 + 0.0 * loc), [loc, scale])

    loc = tf.constant([[0.1, 0.2], [0.3, 0.4], [-1.0, 2.0]])
    with tf.GradientTape() as tape:
        tape.watch(loc)
        log_prob = squashed(loc).log_prob(tf.fill([3, 2], 1.2))
    expected = tape.gradient(log_prob, loc)
    np.testing.assert_allclose(
        gradient(loc, tf.ones([3, 2]))[0], expected, rtol=1e-4, atol=1e-5
    )


class Policy(tf.Module):
    """Parameters and a fixed draw of a squashed policy, as a SavedModel has them."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2])])
    def act(self, observations):
        dist = squashed(observations)
        return spec.extract_distribution_parameters(dist)


def test_saved_model_gives_parameters(tmp_path):
    module = Policy()
    tf.saved_model.save(module, str(tmp_path), signatures={"act": module.act})
    loaded = tf.saved_model.load(str(tmp_path))
    out = loaded.signatures["act"](observations=tf.constant([[1.0, 2.0]]))
    np.testing.assert_array_equal(out["loc"], [[1.0, 2.0]])
    np.testing.assert_array_equal(out["scale"], [[1.0, 1.0]])


def test_storages_of_numpy_and_datasets():
    dist = squashed(tf.reshape(tf.range(12.0), [6, 2]))
    made = spec.DistributionSpec.from_distribution(dist, from_dim=1)
    storage = tf.nest.map_structure(
        lambda leaf: np.zeros([6, *leaf.shape], leaf.dtype.as_numpy_dtype),
        made.input_params_spec,
    )
    params = spec.extract_distribution_parameters(dist)
    tf.nest.map_structure(
        lambda rows, value: rows.__setitem__(..., value), storage, params
    )
    rows = tf.nest.map_structure(lambda rows: rows[2:5], storage)
    value = tf.fill([2], 1.1)
    expected = dist.log_prob(value)[2:5]
    np.testing.assert_allclose(
        made.build_distribution(rows).log_prob(value), expected, rtol=1e-6
    )
    dataset = tf.data.Dataset.from_tensor_slices(rows).batch(3)
    dataset = dataset.map(lambda p: made.build_distribution(p).log_prob(value))
    np.testing.assert_allclose(next(iter(dataset)), expected, rtol=1e-6)


def test_zeros_and_sameness_of_core():
    made = spec.DistributionSpec.from_distribution(squashed(tf.zeros([1, 2])), 1)
    zeros = core.zeros_from_spec({"policy": made}, 3)["policy"]
    assert zeros.batch_shape == [3]
    np.testing.assert_array_equal(zeros.distribution.loc, tf.zeros([3, 2]))
    assert core.is_same_spec([made], [pickle.loads(pickle.dumps(made))])
    assert not core.is_same_spec([made], [tf.TensorSpec([2])])


@pytest.mark.parametrize(
    "other",
    [
        squashed(tf.zeros([1, 2]), softness=0.5),
        squashed(tf.zeros([1, 3])),
        squashed(tf.zeros([1, 2], tf.float64)),
        squashed(tf.zeros([1, 2])).distribution,
        tfd.TransformedDistribution(squashed(tf.zeros([1, 2])), tfb.Scale(1.0)),
    ],
    ids=["softness", "shape", "dtype", "class", "nesting"],
)
def test_specs_differ(other):
    one = spec.DistributionSpec.from_distribution(squashed(tf.zeros([1, 2])), 1)
    same = spec.DistributionSpec.from_distribution(squashed(tf.ones([7, 2])), 1)
    two = spec.DistributionSpec.from_distribution(other, 1)
    assert one == same
    assert hash(one) == hash(same)
    assert {one: "one", same: "same"} == {one: "same"}
    assert one != two
    assert one != "spec"
    assert two == pickle.loads(pickle.dumps(two))
    assert "Softclip" in repr(one)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: spec.DistributionSpec(3, {}), TypeError, "`builder` expected a func"),
        (
            lambda: spec.DistributionSpec(tfd.Normal, {"loc": 1.0}),
            TypeError,
            "`input_params_spec` expected a nest of tf.TensorSpec",
        ),
        (
            lambda: spec.DistributionSpec.from_distribution(tf.zeros(3)),
            TypeError,
            "`dist` expected a distribution",
        ),
        (
            lambda: spec.extract_distribution_parameters([tfd.Normal(0.0, 1.0)]),
            TypeError,
            "`dist` expected a distribution",
        ),
        (
            lambda: spec.extract_spec(tfd.Normal(tf.zeros([]), 1.0)),
            ValueError,
            "`from_dim` expected at most",
        ),
        (lambda: spec.extract_spec(tf.zeros([])), ValueError, "`from_dim` expected"),
        (
            lambda: spec.params_to_distributions(
                {"a": tf.zeros(2)}, {"b": tf.TensorSpec([2])}
            ),
            ValueError,
            "`nests` expected the structure of its spec",
        ),
    ],
    ids=["builder", "specs", "tensor", "nest", "scalar", "no axis", "structure"],
)
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call()
