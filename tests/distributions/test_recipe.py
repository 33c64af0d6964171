"""Tests of `tfrl.distributions._recipe`."""

import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl import bijectors, distributions
from tfrl.distributions import (
    _recipe,
    inverse_transform,
    masked,
    product,
    squashed,
    truncated,
)

tfd, tfb = tfp.distributions, tfp.bijectors

SEED = [5, 6]
NP_MASK = np.array([True, True, False])


def transformed(base, *parts):
    """The distribution after all parts, the first one first."""
    return tfd.TransformedDistribution(base, tfb.Chain(parts[::-1]))


# Distributions of batch shape [B] from x `[B, 3]` and the paths of their parameters.
TABLE = {
    "AffineTransformed": (
        lambda x: distributions.AffineTransformedDistribution(
            distributions.DiagMultivariateNormal(x, x), 1.0, -3.0
        ),
        ["loc", "scale"],
    ),
    "AffineTransformed by tensors": (
        lambda x: distributions.AffineTransformedDistribution(
            distributions.DiagMultivariateNormal(x, x), x[:, :1], tf.constant(2.0)
        ),
        ["base_dist.loc", "base_dist.scale", "loc", "scale"],
    ),
    "Beta": (
        lambda x: tfd.Independent(distributions.Beta(x, 2.0 * x, eps=0.2), 1),
        ["concentration1", "concentration0"],
    ),
    "Cauchy": (lambda x: distributions.DiagMultivariateCauchy(x, x), ["loc", "scale"]),
    "Gumbel": (
        lambda x: distributions.OneHotCategoricalGumbelSoftmax(
            hard_sample=False, tau=0.3, logits=x
        ),
        ["logits"],
    ),
    "MaskedCategorical": (
        lambda x: masked.MaskedCategorical(x, NP_MASK),
        ["logits", "mask"],
    ),
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
    "StraightThrough": (
        lambda x: distributions.OneHotCategoricalStraightThrough(probs=x),
        ["probs"],
    ),
    "TruncatedNormal": (
        lambda x: truncated.TruncatedNormal(x, x, [-1.0] * 3, tf.constant([1.0] * 3)),
        ["loc", "scale"],
    ),
    "Truncated Cauchy": (
        lambda x: truncated.TruncatedDistribution(
            x, x, [-1.0] * 3, [2.0] * 3, inverse_transform.CauchyITS
        ),
        ["loc", "scale"],
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


@ROWS
def test_round_trip(row):
    make, names = row
    dist = make(parameters_at(4))
    recipe, parameters = _recipe.taken_apart(dist)
    assert sorted(paths(parameters)) == sorted(names)
    assert all(leaf.shape[0] == 4 for leaf in tf.nest.flatten(parameters))
    again = recipe(parameters)
    assert type(again) is type(dist)
    assert_same_distribution(dist, again)
    # One recipe serves every batch.
    recipe, _ = _recipe.taken_apart(make(parameters_at(1)))
    other = make(parameters_at(2, seed=1))
    other_recipe, parameters = _recipe.taken_apart(other)
    assert_same_distribution(other, recipe(parameters))
    assert recipe == other_recipe
    assert hash(recipe) == hash(other_recipe)


@ROWS
def test_pickle(row):
    recipe, parameters = _recipe.taken_apart(row[0](parameters_at(4)))
    again = pickle.loads(pickle.dumps(recipe))
    assert again == recipe
    assert hash(again) == hash(recipe)
    assert type(again(parameters)) is recipe.kind
    assert recipe.kind.__name__ in repr(recipe)


@ROWS
def test_distributions_that_crossed_a_function(row):
    dist = row[0](parameters_at(4))
    crossed = tf.function(lambda dist: dist)(dist)
    recipe, parameters = _recipe.taken_apart(crossed)
    assert_same_distribution(dist, recipe(parameters))


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
    recipe, parameters = _recipe.taken_apart(dist)
    found = [leaf.shape.as_list() for leaf in tf.nest.flatten(parameters)]
    assert sorted(found) == sorted(shapes)
    again = recipe(parameters)
    assert again.batch_shape == dist.batch_shape
    assert_same_distribution(dist, again)


def test_batch_axes_of_unknown_size():
    @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([3])])
    def parameters(loc, scale):
        _, found = _recipe.taken_apart(
            tfd.Independent(tfd.Normal(loc, scale), reinterpreted_batch_ndims=1)
        )
        assert found["scale"].shape.as_list() == [None, 3]
        return found

    found = parameters(tf.zeros([4, 3]), tf.constant([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(found["scale"], [[1.0, 2.0, 3.0]] * 4)
    np.testing.assert_array_equal(found["loc"], np.zeros([4, 3]))


def test_what_is_a_parameter():
    def names(dist):
        return sorted(_recipe.taken_apart(dist)[1])

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
    _, parameters = _recipe.taken_apart(tfd.Normal(variable, 1.0))
    assert isinstance(parameters["loc"], tf.Tensor)

    @tf.function(input_signature=[tf.TensorSpec([1], tf.int32)])
    def inside(shape):
        dist = tfd.Sample(tfd.Normal(0.0, 1.0), shape)
        recipe, parameters = _recipe.taken_apart(dist)
        assert sorted(parameters) == ["sample_shape"]
        return recipe(parameters).sample(seed=SEED)

    assert inside(tf.constant([4])).shape == [4]


def test_names_do_not_matter_but_are_kept():
    one, parameters = _recipe.taken_apart(tfd.Normal([0.0], 1.0, name="one"))
    two, _ = _recipe.taken_apart(tfd.Normal([0.0], 1.0, name="two"))
    assert one == two
    assert one(parameters).parameters["name"] == "one"
    three, _ = _recipe.taken_apart(tfd.Normal([0.0], 1.0, validate_args=True))
    assert one != three
    assert three(parameters).validate_args


@pytest.mark.parametrize(
    "constant",
    [
        [np.array([1.0, 2.0]), np.array([1.0, 3.0])],
        [np.zeros(2), np.zeros(3)],
        [np.zeros(2), np.zeros(2, np.float32)],
        [[1, 2], [2, 1]],
        [{"a": 1}, {"a": 2}],
        [object(), object()],
        [{1, 2}, {1, 2}],
    ],
    ids=["values", "shape", "dtype", "list", "dict", "object", "unhashable"],
)
def test_constants_tell_apart(constant):
    one, same, two = (
        _recipe.Recipe(tfd.Normal, {"loc": value}, None)
        for value in (constant[0], constant[0], constant[1])
    )
    assert one == same
    assert hash(one) == hash(same)
    assert one != two


def test_composites_within():
    kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(tf.constant(2.0), 1.0)
    dist = tfd.GaussianProcess(kernel, index_points=tf.constant([[0.0], [1.0]]))
    recipe, parameters = _recipe.taken_apart(dist)
    assert_same_distribution(dist, recipe(parameters))
    assert len(tf.nest.flatten(parameters)) >= 2
