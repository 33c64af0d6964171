"""Tests of `tfrl.exporting.of_distributions`."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from conformance import examples

from tfrl import distributions
from tfrl.distributions import spec
from tfrl.exporting import export, of_distributions

tfd = tfp.distributions
EXAMPLES = {example.cls.__name__: example for example in examples.DISTRIBUTIONS}
SEED = np.array([5, 6], np.int32)


def spec_of(dist):
    return spec.DistributionSpec.from_distribution(dist, from_dim=1)


def flat(values, name):
    if not isinstance(values, dict):
        return {name: values}
    parts = (flat(value, f"{name}_{key}") for key, value in values.items())
    return {key: value for part in parts for key, value in part.items()}


def same(found, wanted):
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_allclose(
            found[name], value, rtol=1e-5, atol=1e-6, err_msg=name
        )
        assert found[name].dtype == tf.convert_to_tensor(value).dtype


def check_distribution(dist, path):
    """Every endpoint of the written model does what the distribution does."""
    export.export_model(spec_of(dist), path)
    model = tf.saved_model.load(str(path))
    parameters = distributions.extract_distribution_parameters(dist)
    if not isinstance(parameters, dict):
        parameters = {"parameters": parameters}
    given = {}
    for key, value in parameters.items():
        given.update(flat(value, key))

    def call(name, **more):
        # Other batch sizes than that of the examples.
        return model.signatures[name](**given, **more)

    drawn = call("sample", seed=tf.constant(SEED))
    values, log_probs = dist.experimental_sample_and_log_prob(seed=SEED)
    same(drawn, {**flat(values, "values"), "log_probs": log_probs})
    values = {k: x for k, x in drawn.items() if k != "log_probs"}
    same(call("log_prob", **values), {"log_probs": drawn["log_probs"]})
    told = {
        "mode": (lambda: distributions.get_mode(dist), "values"),
        "mean": (dist.mean, "values"),
        "entropy": (dist.entropy, "entropies"),
    }
    for name, (function, output) in told.items():
        try:
            wanted = function()
        except (NotImplementedError, ValueError):
            assert name not in model.signatures
        else:
            same(call(name), flat(wanted, output))
    return set(model.signatures)


QUICK = ["Product"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=[] if x in QUICK else pytest.mark.slow) for x in EXAMPLES],
)
def test_distributions_of_ours(tmp_path, name):
    found = check_distribution(EXAMPLES[name](), tmp_path / "model")
    assert {"sample", "log_prob"} <= found


def test_a_distribution_of_one_nameless_tensor(tmp_path):
    dist_spec = spec.DistributionSpec(
        lambda logits: tfd.Categorical(logits=logits), tf.TensorSpec([3])
    )
    export.export_model(dist_spec, tmp_path / "model")
    model = tf.saved_model.load(str(tmp_path / "model"))
    logits = tf.constant([[0.0, 0.0, 2.0]])
    assert model.signatures["mode"](parameters=logits)["values"].numpy().tolist() == [2]


@pytest.mark.slow
def test_distributions_within_distributions(tmp_path):
    mixture = tfd.MixtureSameFamily(
        tfd.Categorical(logits=tf.zeros([4, 2])),
        tfd.Normal(tf.random.stateless_normal([4, 2], SEED), tf.ones([4, 2])),
    )
    found = check_distribution(mixture, tmp_path / "model")
    assert "entropy" not in found


def test_methods():
    dist_spec = spec_of(EXAMPLES["SquashedNormal"]())
    found = of_distributions.distribution_endpoints(dist_spec, ["mode", "sample"])
    assert list(found) == ["mode", "sample"]
    assert list(found["sample"].inputs) == ["loc", "scale", "seed"]
    assert found["mode"].inputs["loc"].shape.as_list() == [None, 2]
    cauchy = spec_of(
        tfd.TransformedDistribution(tfd.Cauchy([0.0], [1.0]), tfp.bijectors.Exp())
    )
    assert "entropy" not in of_distributions.distribution_endpoints(cauchy)
    with pytest.raises(NotImplementedError):
        of_distributions.distribution_endpoints(cauchy, ["entropy"])


def test_undefined_statistics_are_left_out(tmp_path):
    cauchy = spec_of(tfd.Cauchy([0.0], [1.0]))
    assert list(of_distributions.distribution_endpoints(cauchy)) == [
        *("sample", "log_prob", "mode", "entropy")
    ]
    found = of_distributions.distribution_endpoints(cauchy, ["mean"])
    with pytest.raises(
        ValueError, match="'mean' expected examples .* NaN alone as 'values'"
    ):
        export.export_model(found, tmp_path / "model")
    strict = spec_of(tfd.Cauchy([0.0], [1.0], allow_nan_stats=False))
    with pytest.raises(ValueError, match="undefined"):
        of_distributions.distribution_endpoints(strict, ["mean"])


def test_errors():
    with pytest.raises(TypeError, match="`dist_spec` expected a DistributionSpec,"):
        of_distributions.distribution_endpoints(tfd.Normal(0.0, 1.0))
    normal = spec_of(tfd.Normal([0.0], [1.0]))
    for methods in (["sample", "median"], "mode"):
        with pytest.raises(ValueError, match="`methods` expected some of .*'sample'"):
            of_distributions.distribution_endpoints(normal, methods)
    named = spec.DistributionSpec(
        lambda p: tfd.Normal(p["values"], 1.0), {"values": tf.TensorSpec([])}
    )
    with pytest.raises(ValueError, match=r"other than \['seed', 'values'\]; got"):
        of_distributions.distribution_endpoints(named)
