"""Tests of `tfrl.distributions.product`."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.distributions import masked, product

tfd = tfp.distributions

SEED = np.array([3, 7], np.int32)
Pair = collections.namedtuple("Pair", ["first", "second"])


def parts(batch=4):
    rng = np.random.default_rng(0)
    logits = tf.constant(rng.normal(size=[batch, 3]), tf.float32)
    loc = tf.constant(rng.normal(size=[batch, 2]), tf.float32)
    return {
        "jump": masked.MaskedCategorical(logits, [True, False, True]),
        "steer": (
            tfd.MultivariateNormalDiag(loc, [0.5, 2.0]),
            tfd.Bernoulli(logits=logits[:, 0]),
        ),
    }


def values():
    steer = np.linspace(-1, 1, 8, dtype="f").reshape(4, 2)
    return {"steer": (steer, np.array([0, 1, 1, 0])), "jump": np.array([0, 2, 2, 0])}


def test_by_hand():
    dist = product.Product((tfd.Bernoulli(probs=0.25), tfd.Categorical(tf.zeros(4))))
    np.testing.assert_allclose(dist.prob((1, 3)), 0.25 * 0.25, rtol=1e-6)
    coin = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    np.testing.assert_allclose(dist.entropy(), coin + np.log(4.0), rtol=1e-6)
    assert tf.nest.map_structure(int, dist.mode()) == (0, 0)


def test_sums_over_the_parts():
    @tf.function(jit_compile=True)
    def everything(dist, values):
        return dist.log_prob(values), dist.entropy(), dist.mode()

    log_prob, entropy, mode = everything(product.Product(parts()), values())
    leaves, given = tf.nest.flatten(parts()), tf.nest.flatten(values())
    expected = sum(d.log_prob(v).numpy() for d, v in zip(leaves, given, strict=True))
    np.testing.assert_allclose(log_prob, expected, rtol=1e-5)
    expected = sum(d.entropy().numpy() for d in leaves)
    np.testing.assert_allclose(entropy, expected, rtol=1e-5)
    modes = tf.nest.map_structure(lambda d: d.mode(), parts())
    tf.nest.map_structure(np.testing.assert_array_equal, mode, modes)


def test_statistics_are_nests():
    dist = product.Product(parts()["steer"])
    for statistic in ("mean", "variance", "stddev"):
        expected = [getattr(part, statistic)() for part in parts()["steer"]]
        for got, want in zip(getattr(dist, statistic)(), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_draws_are_independent_and_repeat():
    normals = {name: tfd.Normal(tf.zeros([5000]), 1.0) for name in "abc"}
    dist = product.Product(normals)
    drawn = dist.sample(seed=SEED)
    again, log_prob = dist.experimental_sample_and_log_prob(seed=SEED)
    tf.nest.map_structure(np.testing.assert_array_equal, drawn, again)
    np.testing.assert_allclose(log_prob, dist.log_prob(drawn), rtol=1e-5)
    correlations = np.corrcoef(np.stack(list(drawn.values())))
    # A standard error is 5000^-1/2: exceeded with a probability below 1e-6.
    assert np.abs(correlations - np.eye(3)).max() < 5 / np.sqrt(5000)
    assert np.all(drawn["a"] != dist.sample(seed=5)["a"])
    np.testing.assert_array_equal(dist.sample(seed=5)["a"], dist.sample(seed=5)["a"])
    assert np.all(dist.sample()["a"] != dist.sample()["a"])


def test_shapes_slices_and_copies():
    dist = product.Product(parts())
    assert dist.batch_shape == [4]
    assert dist.event_shape == {"jump": [], "steer": ([2], [])}
    assert dist.dtype == {"jump": tf.int32, "steer": (tf.float32, tf.int32)}
    np.testing.assert_array_equal(dist.batch_shape_tensor(), [4])
    np.testing.assert_array_equal(dist.event_shape_tensor()["steer"][0], [2])
    drawn = dist.sample([5, 6], seed=SEED)
    shapes = tf.nest.map_structure(lambda x: tuple(x.shape), drawn)
    assert shapes["steer"] == ((5, 6, 4, 2), (5, 6, 4))
    assert dist.log_prob(drawn).shape == [5, 6, 4]
    part = dist[1:3]
    assert part.batch_shape == [2]
    loc = dist.distributions["steer"][0].loc
    np.testing.assert_array_equal(part.distributions["steer"][0].loc, loc[1:3])
    assert dist.copy(name="other").event_shape == dist.event_shape


def test_unknown_batch():
    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def everything(logits):
        dist = product.Product([tfd.Categorical(logits), tfd.Bernoulli(logits[:, 0])])
        assert dist.batch_shape.as_list() == [None]
        value, log_prob = dist.experimental_sample_and_log_prob([2], seed=SEED)
        return log_prob - dist.log_prob(value), dist.batch_shape_tensor()

    difference, batch = everything(tf.zeros([4, 3]))
    np.testing.assert_allclose(difference, np.zeros([2, 4]), atol=1e-6)
    np.testing.assert_array_equal(batch, [4])


def test_products_among_the_parts_become_part_of_the_nest():
    steer = product.Product(parts()["steer"])
    dist = product.Product({"jump": parts()["jump"], "steer": steer})
    expected = product.Product(parts())
    assert dist.event_shape == expected.event_shape
    np.testing.assert_array_equal(dist.log_prob(values()), expected.log_prob(values()))


def test_named_tuples_and_lists():
    normal = tfd.Normal(0.0, 1.0)
    assert product.Product(Pair(normal, normal)).mode() == Pair(0.0, 0.0)
    assert product.Product([normal]).mode() == [0.0]


def test_reparameterized_if_all_parts_are():
    normal, coin = tfd.Normal(0.0, 1.0), tfd.Bernoulli(0.0)
    kinds = [
        product.Product(parts).reparameterization_type
        for parts in ([normal, normal], [normal, coin])
    ]
    assert kinds == [tfd.FULLY_REPARAMETERIZED, tfd.NOT_REPARAMETERIZED]


def test_divergence_is_a_sum():
    one, two = product.Product(parts()), product.Product(parts())[::-1]
    pairs = zip(
        tf.nest.flatten(one.distributions),
        tf.nest.flatten(two.distributions),
        strict=True,
    )
    expected = sum(tfd.kl_divergence(a, b).numpy() for a, b in pairs)
    np.testing.assert_allclose(tfd.kl_divergence(one, two), expected, rtol=1e-5)
    assert expected.max() > 0.1


def test_bad_parts():
    normal = tfd.Normal(tf.zeros([4]), 1.0)
    with pytest.raises(ValueError, match="`Product`: .* a distribution at least"):
        product.Product({})
    with pytest.raises(TypeError, match="`Product`: .* a nest of distributions"):
        product.Product([normal, 1.0])
    joint = tfd.JointDistributionSequential([normal])
    with pytest.raises(TypeError, match="`Product`: .* of single tensors"):
        product.Product([normal, joint])
    with pytest.raises(ValueError, match=r"equal batch shapes; got \(4,\) and \(4, 2"):
        product.Product([normal, tfd.Normal(tf.zeros([4, 2]), 1.0)])


def test_values_of_another_structure():
    dist = product.Product(parts())
    for value in ({"jump": values()["jump"]}, {**values(), "steer": 1.0}):
        with pytest.raises((TypeError, ValueError)):
            dist.log_prob(value)
