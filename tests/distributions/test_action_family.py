"""Tests of `tfrl.distributions.action_family`."""

import math

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.core import specs
from tfrl.distributions import action_family, masked, product, squashed

tfd = tfp.distributions
S = gym.spaces

SEED = np.array([3, 7], np.int32)
# name: space, number of parameters, of these scales
SPACES = {
    "discrete": (S.Discrete(4), 4, 0),
    "discrete from -3": (S.Discrete(4, start=-3), 4, 0),
    "multi discrete": (S.MultiDiscrete([3, 2, 5]), 10, 0),
    "multi discrete, equal": (S.MultiDiscrete([3, 3]), 6, 0),
    "multi discrete from": (S.MultiDiscrete([3, 2], start=[5, -2]), 5, 0),
    "table of choices": (S.MultiDiscrete([[2, 3], [4, 5]]), 14, 0),
    "multi binary": (S.MultiBinary([2, 3]), 12, 0),
    "box": (S.Box(-2.0, 1.0, (3,)), 6, 3),
    "box of one number": (S.Box(-2.0, 1.0, ()), 2, 1),
    "matrix": (S.Box(np.float32([[-1, 0]]), np.float32([[1, 5]])), 4, 2),
    "unbounded": (S.Box(-np.inf, np.inf, (2,)), 4, 2),
    "dict": (S.Dict(b=S.Box(-1.0, 1.0, (2,)), a=S.Discrete(3)), 7, 2),
    "nested": (
        S.Dict(a=S.Tuple([S.Discrete(2), S.Box(0.0, 1.0, (1,))]), b=S.Discrete(3)),
        7,
        1,
    ),
}
EVERY_SPACE = pytest.mark.parametrize(
    ("space", "n_parameters", "n_scales"), SPACES.values(), ids=SPACES
)


@EVERY_SPACE
def test_draws_and_modes_lie_in_the_space(space, n_parameters, n_scales):
    family = action_family.ActionFamily(space)
    assert (family.n_parameters, family.n_scales) == (n_parameters, n_scales)

    @tf.function(input_signature=[tf.TensorSpec([None, n_parameters])])
    def act(parameters):
        dist = family.distribution(parameters)
        actions, log_probs = dist.experimental_sample_and_log_prob(seed=SEED)
        return actions, log_probs, dist.log_prob(actions), dist.mode()

    parameters = np.random.default_rng(0).normal(size=[20, n_parameters])
    actions, log_probs, again, mode = act(parameters.astype(np.float32))
    assert log_probs.shape == [20]
    np.testing.assert_allclose(log_probs, again, rtol=1e-3, atol=1e-3)
    for nest in (actions, mode):
        for row in range(20):
            action = tf.nest.map_structure(lambda x: x.numpy()[row], nest)  # noqa: B023
            flat = tf.nest.map_structure(np.asarray, action)
            assert space.contains(flat)


@EVERY_SPACE
def test_any_batch_axes(space, n_parameters, n_scales):
    family = action_family.ActionFamily(space)
    for batch in ([], [3, 2]):
        dist = family.distribution(tf.zeros([*batch, n_parameters]))
        assert dist.batch_shape == batch
        assert dist.log_prob(dist.sample(seed=SEED)).shape == batch


def test_compiles_with_gradients():
    family = action_family.ActionFamily(
        S.Dict(a=S.MultiDiscrete([2, 3]), b=S.Box(-1.0, 1.0, (2,)))
    )
    parameters = tf.constant(np.random.default_rng(0).normal(size=[4, 9]), tf.float32)
    actions = family.distribution(parameters).sample(seed=SEED)

    def gradient(parameters):
        with tf.GradientTape() as tape:
            tape.watch(parameters)
            log_probs = family.distribution(parameters).log_prob(actions)
        return log_probs, tape.gradient(log_probs, parameters)

    compiled = tf.function(gradient, jit_compile=True)
    for got, want in zip(compiled(parameters), gradient(parameters), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
        assert np.isfinite(got).all()


def test_choices_by_hand():
    family = action_family.ActionFamily(S.MultiDiscrete([2, 3], start=[1, -1]))
    logits = np.log(np.float32([0.25, 0.75, 0.5, 0.2, 0.3]))
    dist = family.distribution(logits)
    np.testing.assert_allclose(dist.prob([1, -1]), 0.25 * 0.5, rtol=1e-5)
    np.testing.assert_allclose(dist.prob([2, 1]), 0.75 * 0.3, rtol=1e-5)
    np.testing.assert_array_equal(dist.prob([0, 0]), 0.0)
    np.testing.assert_array_equal(dist.mode(), [2, -1])


def test_padded_choices_have_finite_gradients():
    family = action_family.ActionFamily(S.MultiDiscrete([2, 5]))
    parameters = tf.zeros([7])
    with tf.GradientTape() as tape:
        tape.watch(parameters)
        dist = family.distribution(parameters)
        result = dist.log_prob([1, 4]) + dist.entropy()
    expected = np.float64([-0.5, 0.5, -0.2, -0.2, -0.2, -0.2, 0.8])
    np.testing.assert_allclose(tape.gradient(result, parameters), expected, atol=1e-6)


def test_scales_by_hand():
    family = action_family.ActionFamily(
        S.Box(-1.0, 1.0, (3,)), init_scale=0.5, min_scale=0.1
    )
    dist = family.distribution(tf.constant([1.0, 2.0, 3.0, 0.0, -200.0, 1.0]))
    assert isinstance(dist, squashed.SquashedNormal)
    np.testing.assert_array_equal(dist.loc, [1.0, 2.0, 3.0])
    grown = 0.1 + 0.4 * math.log1p(math.e * (math.e - 1))
    np.testing.assert_allclose(dist.scale, [0.5, 0.1, grown], rtol=1e-6)
    np.testing.assert_array_equal(dist.high, [1.0, 1.0, 1.0])


def test_parts_in_the_order_of_the_nest_scales_last():
    family = action_family.ActionFamily(SPACES["nested"][0])
    dist = family.distribution(tf.constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0]))
    assert isinstance(dist, product.Product)
    choice, normal = dist.distributions["a"]
    np.testing.assert_array_equal(choice.logits, [1.0, 2.0])
    np.testing.assert_array_equal(normal.loc, [3.0])
    np.testing.assert_allclose(normal.scale, [1.0], rtol=1e-6)
    np.testing.assert_array_equal(dist.distributions["b"].logits, [4.0, 5.0, 6.0])


def test_families_of_floats():
    box, half = S.Box(-1.0, 1.0, (2,)), S.Box(0.0, np.inf, (2,))
    for space in (box, half):
        dist = action_family.ActionFamily(space, "normal").distribution(tf.zeros(4))
        np.testing.assert_allclose(dist.stddev(), [1.0, 1.0], rtol=1e-6)
    family = action_family.ActionFamily(box, "squashed_normal")
    assert isinstance(family.distribution(tf.zeros(4)), squashed.SquashedNormal)
    match = "`action_spec` expected floats with finite bounds, low < high, or without"
    for space, kind in ((half, None), (half, "squashed_normal")):
        with pytest.raises(ValueError, match=match):
            action_family.ActionFamily(space, kind)
    with pytest.raises(ValueError, match=match):
        action_family.ActionFamily(tf.TensorSpec([2]), "squashed_normal")


def test_specs_and_dtypes():
    spec = {"a": specs.BoundedTensorSpec([], tf.int32, 0, 2), "b": tf.TensorSpec([2])}
    family = action_family.ActionFamily(spec)
    assert family.action_spec == spec
    dist = family.distribution(tf.zeros([7], tf.float64))
    assert dist.dtype == {"a": tf.int32, "b": tf.float64}


def test_parameters_of_a_discrete_space_can_be_masked():
    family = action_family.ActionFamily(S.Discrete(3))
    parameters = tf.constant([0.0, 9.0, 1.0])
    assert int(family.distribution(parameters).mode()) == 1
    mask = [True, False, True]
    assert int(masked.MaskedCategorical(parameters, mask).mode()) == 2


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ((S.Text(3),), TypeError, "`space` expected a Box"),
        ((tf.TensorSpec([2], tf.int32),), TypeError, "of bounded integers"),
        ((tf.TensorSpec([2], tf.string),), TypeError, "of bounded integers"),
        ((3,), TypeError, "of bounded integers"),
        ((tf.TensorSpec([None]),), ValueError, "expected known dimensions"),
        ((S.Box(0, 2**20, (1,), np.int32),), ValueError, "at most 65536 options"),
        ((S.Discrete(2), "beta"), ValueError, "`family` expected one of"),
        ((S.Discrete(2), None, 1.0, 0.0), ValueError, "`min_scale` expected numbers >"),
        ((S.Discrete(2), None, 0.1, 0.5), ValueError, "`init_scale` expected numbers"),
    ],
    ids=[
        *("text", "integers without bounds", "string", "no spec", "unknown dimension"),
        *("too many options", "family", "min_scale", "init_scale"),
    ],
)
def test_bad_arguments(arguments, error, match):
    with pytest.raises(error, match=match):
        action_family.ActionFamily(*arguments)


def test_bad_parameters():
    family = action_family.ActionFamily(S.Discrete(3))
    with pytest.raises(ValueError, match="`parameters` expected 3 numbers along"):
        family.distribution(tf.zeros([4]))
    with pytest.raises(ValueError, match="`parameters` expected rank of at least 1"):
        family.distribution(tf.zeros([]))
    with pytest.raises(TypeError, match="`parameters` expected a floating-point"):
        family.distribution(tf.zeros([3], tf.int32))
