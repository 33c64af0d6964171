"""Tests of `tfrl.distributions.spec`."""

import pickle

import default_rows
import golden_io
import golden_policies
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl import bijectors, core, distributions
from tfrl.distributions import product, spec, squashed

tfd, tfb = tfp.distributions, tfp.bijectors
parameters_of = spec.extract_distribution_parameters

SEED = [5, 6]
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


def clipped(loc, softness=0.3):
    """A policy with a hyper-parameter deep inside."""
    normal = distributions.DiagMultivariateNormal(loc, tf.ones_like(loc))
    clip = bijectors.Softclip(-1.0, 2.0, hinge_softness=softness)
    return tfd.TransformedDistribution(
        normal, tfb.Chain([bijectors.AffineTransform(0.5, 2.0), clip])
    )


def nest_of_three():
    return {
        "c": tfd.Categorical(logits=tf.reshape(tf.range(6.0), [2, 3])),
        "n": [clipped(tf.ones([2, 4])), (tf.constant([[1], [2]]),)],
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


def test_gradients_go_through():
    made = spec.DistributionSpec.from_distribution(clipped(tf.zeros([1, 2])), 1)

    loc = tf.constant([[0.1, 0.2], [0.3, 0.4], [-1.0, 2.0]])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(loc)
        one = clipped(loc)
        two = made.build_distribution(parameters_of(one))
        log_probs = [dist.log_prob(tf.fill([3, 2], 1.2)) for dist in (one, two)]
    expected, got = (tape.gradient(log_prob, loc) for log_prob in log_probs)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_specs_are_values():
    one = spec.DistributionSpec.from_distribution(clipped(tf.zeros([1, 2])), 1)
    same = spec.DistributionSpec.from_distribution(clipped(tf.ones([7, 2])), 1)
    assert {one: "one", same: "same"} == {one: "same"}
    again = pickle.loads(pickle.dumps(one))
    assert core.is_same_spec([one], [again])
    assert again.build_distribution({"loc": np.zeros(2), "scale": np.ones(2)})
    assert "Softclip" in repr(one)
    for other in (
        clipped(tf.zeros([1, 2]), softness=0.5),
        clipped(tf.zeros([1, 3])),
        clipped(tf.zeros([1, 2], tf.float64)),
        clipped(tf.zeros([1, 2])).distribution,
        tfd.TransformedDistribution(clipped(tf.zeros([1, 2])), tfb.Scale(1.0)),
    ):
        assert one != spec.DistributionSpec.from_distribution(other, 1)
    assert one != "spec"
    zeros = core.zeros_from_spec({"policy": one}, 3)["policy"]
    assert zeros.batch_shape == [3]
    np.testing.assert_array_equal(zeros.distribution.loc, tf.zeros([3, 2]))


BAD = {
    "builder": (TypeError, "builder", lambda: spec.DistributionSpec(3, {})),
    "specs": (
        TypeError,
        "input_params_spec",
        lambda: spec.DistributionSpec(tfd.Normal, {"loc": 1.0}),
    ),
    "tensor": (
        TypeError,
        "dist",
        lambda: spec.DistributionSpec.from_distribution(tf.zeros(3)),
    ),
    "nest": (TypeError, "dist", lambda: parameters_of([tfd.Normal(0.0, 1.0)])),
    "scalar": (
        ValueError,
        "from_dim",
        lambda: spec.extract_spec(tfd.Normal(tf.zeros([]), 1.0)),
    ),
    "no axis": (ValueError, "from_dim", lambda: spec.extract_spec(tf.zeros([]))),
    "structure": (
        ValueError,
        "nests",
        lambda: spec.params_to_distributions(
            {"a": tf.zeros(2)}, {"b": tf.TensorSpec([2])}
        ),
    ),
}


@pytest.mark.parametrize(("error", "name", "call"), BAD.values(), ids=BAD)
def test_errors(error, name, call):
    with pytest.raises(error, match=f"`: `{name}` expected"):
        call()


# What is a parameter, and what belongs to the spec.


def transformed(base, *parts):
    """The distribution after all parts, the first one first."""
    return tfd.TransformedDistribution(base, tfb.Chain(parts[::-1]))


# Distributions of batch shape [B] from x `[B, 3]` and the paths of their parameters.
TABLE = {
    "Product": (
        lambda x: product.Product(
            {
                "a": distributions.DiagMultivariateNormal(x, x),
                "b": [tfd.Poisson(x[:, 0])],
            }
        ),
        ["distributions.a.loc", "distributions.a.scale", "distributions.b.0.rate"],
    ),
    "SquashedNormal": (
        lambda x: squashed.SquashedNormal(
            x, 0.5, tf.constant([-1.0, -2.0, 0.0]), np.float32([1.0, 1.0, 7.0])
        ),
        ["loc"],
    ),
    "tanh and affine": (
        lambda x: transformed(
            distributions.DiagMultivariateNormal(x, x),
            bijectors.StableTanh(),
            bijectors.AffineTransform(x, 2.0, event_dim=1),
        ),
        ["distribution.loc", "distribution.scale", "bijector.bijectors.0.loc"],
    ),
    "deep hyper-parameters": (
        lambda x: transformed(
            distributions.DiagMultivariateNormal(x, x),
            bijectors.Softclip(-1.0, 4.0, hinge_softness=0.3),
            tfb.Invert(tfb.Softplus(hinge_softness=0.7)),
            bijectors.PowerTransform(3.0),
        ),
        ["loc", "scale"],
    ),
    "Mixture": (
        lambda x: tfd.Mixture(
            tfd.Categorical(logits=x[:, :2]),
            [tfd.MultivariateNormalDiag(x), tfd.MultivariateNormalDiag(2.0 * x, x)],
        ),
        ["cat.logits", "components.0.loc", "components.1.loc"]
        + ["components.1.scale_diag"],
    ),
    "MixtureSameFamily": (
        lambda x: tfd.MixtureSameFamily(
            tfd.Categorical(logits=x), tfd.Normal(x, tf.constant(0.5))
        ),
        ["mixture_distribution.logits", "components_distribution.loc"]
        + ["components_distribution.scale"],
    ),
    "linear operator": (
        lambda x: tfd.MultivariateNormalLinearOperator(
            x, tf.linalg.LinearOperatorDiag(x)
        ),
        ["loc", "scale.diag"],
    ),
    "JointDistribution": (
        lambda x: tfd.JointDistributionNamed(
            {"a": tfd.Categorical(logits=x), "b": tfd.Normal(x[:, 0], 1.0)}
        ),
        ["model.a.logits", "model.b.loc"],
    ),
    "Blockwise": (
        lambda x: tfd.Blockwise(
            [tfd.Normal(x[:, 0], 1.0), tfd.MultivariateNormalDiag(x)]
        ),
        ["distributions.0.loc", "distributions.1.loc"],
    ),
    "Quantized": (
        lambda x: tfd.QuantizedDistribution(tfd.Normal(x[:, 0], 2.0), -1.0, 3.0),
        ["loc"],
    ),
    "Sample": (lambda x: tfd.Sample(tfd.Laplace(x[:, 0], 1.0), [2, 4]), ["loc"]),
    "Relaxed": (lambda x: tfd.RelaxedOneHotCategorical(0.3, logits=x), ["logits"]),
    "Masked": (
        lambda x: tfd.Masked(tfd.Gamma(x[:, 0], 2.0), x[:, 0] > 0.7),
        ["distribution.concentration", "validity_mask"],
    ),
}
ROWS = pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)


def parameters_at(n, seed=0):
    rng = np.random.default_rng(seed)
    return tf.constant(rng.uniform(0.5, 1.5, [n, 3]), tf.float32)


def paths(nest, prefix=""):
    if isinstance(nest, dict):
        return [p for k, v in nest.items() for p in paths(v, f"{prefix}{k}.")]
    if isinstance(nest, list):
        return [p for k, v in enumerate(nest) for p in paths(v, f"{prefix}{k}.")]
    return [prefix[:-1]] if tf.is_tensor(nest) else []


def assert_same_distribution(one, two):
    draw = one.sample(seed=SEED)
    tf.nest.map_structure(
        lambda *pair: np.testing.assert_allclose(*pair, rtol=1e-6),
        draw,
        two.sample(seed=SEED),
    )
    copy = tf.nest.map_structure(tf.identity, draw)
    np.testing.assert_allclose(
        two.log_prob(copy), one.log_prob(copy), rtol=1e-5, atol=1e-5
    )


# What differs in how parameters are nested; the others take as long.
DEFAULT = ["Product", "SquashedNormal", "tanh and affine", "deep hyper-parameters"]
DEFAULT += ["Mixture", "MixtureSameFamily", "linear operator", "JointDistribution"]


@pytest.mark.parametrize(("make", "names"), default_rows.params(TABLE, DEFAULT))
def test_taken_apart_and_made_again(make, names):
    dist = make(parameters_at(4))
    made = spec.DistributionSpec.from_distribution(dist)
    parameters = parameters_of(dist)
    assert sorted(paths(parameters)) == sorted(names)
    assert all(leaf.shape[0] == 4 for leaf in tf.nest.flatten(parameters))
    # In a function numbers become tensors.
    for each in (dist, tf.function(lambda dist: dist)(dist)):
        own = pickle.loads(pickle.dumps(spec.DistributionSpec.from_distribution(each)))
        again = own.build_distribution(parameters_of(each))
        assert type(again) is type(dist)
        assert_same_distribution(dist, again)
    # One builder serves every batch.
    builder = spec.DistributionSpec.from_distribution(make(parameters_at(1))).builder
    assert builder == made.builder
    assert hash(builder) == hash(made.builder)
    assert type(dist).__name__ in repr(builder)


@pytest.mark.parametrize(
    ("make", "shapes"),
    [
        (lambda: tfd.Normal(tf.zeros([2, 3]), tf.constant(1.0)), [[2, 3], [2, 3]]),
        (
            lambda: tfd.Independent(tfd.Normal(tf.zeros([2, 3]), tf.constant(1.0)), 1),
            [[2, 3], [2, 1]],
        ),
        (
            lambda: tfd.MultivariateNormalTriL(tf.zeros([2, 3]), tf.eye(3)),
            [[2, 3], [2, 3, 3]],
        ),
        (
            lambda: transformed(
                tfd.Normal(tf.constant(0.0), 1.0), tfb.Shift(tf.zeros([2, 4]))
            ),
            [[2, 4], [2, 4]],
        ),
        (
            lambda: transformed(
                tfd.MultivariateNormalDiag(tf.zeros([2, 3])),
                bijectors.StableTanh(),
                tfb.Shift(tf.zeros([3])),
                tfb.Scale(tf.constant(2.0)),
            ),
            [[2, 3], [2, 3], [2, 1]],
        ),
        (
            lambda: tfd.MixtureSameFamily(
                tfd.Categorical(logits=tf.zeros(5)),
                tfd.MultivariateNormalDiag(tf.zeros([2, 5, 3]), tf.ones([3])),
            ),
            [[2, 5], [2, 5, 3], [2, 1, 3]],
        ),
        (
            lambda: tfd.BatchBroadcast(tfd.Normal(tf.constant(0.0), 1.0), [2, 3]),
            [[2, 3]],
        ),
    ],
    ids=["scalar", "event", "matrix", "shift", "chain", "mixture", "broadcast"],
)
def test_every_tensor_has_the_batch_axes(make, shapes):
    dist = make()
    parameters = parameters_of(dist)
    found = [leaf.shape.as_list() for leaf in tf.nest.flatten(parameters)]
    assert sorted(found) == sorted(shapes)
    again = spec.DistributionSpec.from_distribution(dist).build_distribution(parameters)
    assert again.batch_shape == dist.batch_shape
    assert_same_distribution(dist, again)


def test_batch_axes_of_unknown_size():
    @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([3])])
    def parameters(loc, scale):
        found = parameters_of(tfd.Independent(tfd.Normal(loc, scale), 1))
        assert found["scale"].shape.as_list() == [None, 3]
        return found

    found = parameters(tf.zeros([4, 3]), tf.constant([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(found["scale"], [[1.0, 2.0, 3.0]] * 4)
    np.testing.assert_array_equal(found["loc"], np.zeros([4, 3]))


def test_what_is_a_parameter():
    def names(dist):
        return sorted(parameters_of(dist))

    variable = tf.Variable([1.0, 2.0])
    assert names(tfd.Normal([0.0, 1.0], 1.0)) == ["loc"]
    assert names(tfd.Normal(np.float64(0.0), np.ones(2))) == ["scale"]
    assert names(tfd.Normal(variable, keras.Variable([1.0, 1.0]))) == ["loc", "scale"]
    positive = tfp.util.TransformedVariable([1.0, 1.0], tfb.Exp())
    assert names(tfd.Normal(variable, positive)) == ["loc", "scale"]
    assert names(tfd.Normal(0.0, 1.0)) == []
    assert names(transformed(tfd.Normal(0.0, 1.0), tfb.Shift(np.ones(2, "f")))) == []
    # Of these TFP knows no batch; in a graph the value is known at run time only.
    assert names(tfd.Sample(tfd.Normal(0.0, 1.0), tf.constant([2]))) == []
    assert isinstance(parameters_of(tfd.Normal(variable, 1.0))["loc"], tf.Tensor)

    @tf.function(input_signature=[tf.TensorSpec([1], tf.int32)])
    def inside(shape):
        dist = tfd.Sample(tfd.Normal(0.0, 1.0), shape)
        made = spec.DistributionSpec.from_distribution(dist)
        assert names(dist) == ["sample_shape"]
        return made.build_distribution(parameters_of(dist)).sample(seed=SEED)

    assert inside(tf.constant([4])).shape == [4]


def test_names_do_not_matter_but_are_kept():
    one, two, three = (
        spec.DistributionSpec.from_distribution(tfd.Normal([0.0], 1.0, **kwargs))
        for kwargs in ({"name": "one"}, {"name": "two"}, {"validate_args": True})
    )
    assert one == two
    assert one.build_distribution({"loc": np.zeros(1)}).parameters["name"] == "one"
    assert one != three
    assert three.build_distribution({"loc": np.zeros(1)}).validate_args


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (np.array([1.0, 2.0]), np.array([1.0, 3.0])),
        (np.zeros(2), np.zeros(3)),
        (np.zeros(2, np.int32), np.zeros(2, np.float32)),
        ([1, 2], [2, 1]),
        ({"a": 1}, {"a": 2}),
        (object(), object()),
        ({1, 2}, {1, 2}),
    ],
    ids=["values", "shape", "dtype", "list", "dict", "object", "unhashable"],
)
def test_constants_tell_apart(one, two):
    class Named(tfd.Normal):
        def __init__(self, label):
            super().__init__(0.0, 1.0)
            self._parameters = {"label": label}

        @classmethod
        def _parameter_properties(cls, dtype, num_classes=None):
            return {}

    first, same, second = (
        spec.DistributionSpec.from_distribution(Named(label))
        for label in (one, one, two)
    )
    assert first == same
    assert hash(first) == hash(same)
    assert first != second


def test_composites_within():
    kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(tf.constant(2.0), 1.0)
    dist = tfd.GaussianProcess(kernel, index_points=tf.constant([[0.0], [1.0]]))
    parameters = parameters_of(dist)
    made = spec.DistributionSpec.from_distribution(dist)
    assert_same_distribution(dist, made.build_distribution(parameters))
    assert len(tf.nest.flatten(parameters)) >= 2
