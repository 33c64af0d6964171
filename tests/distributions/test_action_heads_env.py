"""Tests of the distributions of environment's actions that heads make."""

import math

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.core import spaces, specs
from tfrl.distributions import action_heads, product, squashed

tfd = tfp.distributions
S = gym.spaces

SEED = np.array([3, 7], np.int32)


def head_of(space, squash=None, init_scale=1.0, **options):
    """The head whose deviations go through softplus, squashed where bounds are."""
    return action_heads.action_head(
        space, squash=squash, init_scale=init_scale, **options
    )


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
    head = head_of(space)
    assert (head.n_outputs, head.n_log_stds) == (n_parameters, n_scales)

    @tf.function(input_signature=[tf.TensorSpec([None, n_parameters])])
    def act(parameters):
        dist = head.env_distribution(parameters)
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
    head = head_of(space)
    for batch in ([], [3, 2]):
        dist = head.env_distribution(tf.zeros([*batch, n_parameters]))
        assert dist.batch_shape == batch
        assert dist.log_prob(dist.sample(seed=SEED)).shape == batch


def test_compiles_with_gradients():
    head = head_of(S.Dict(a=S.MultiDiscrete([2, 3]), b=S.Box(-1.0, 1.0, (2,))))
    parameters = tf.constant(np.random.default_rng(0).normal(size=[4, 9]), tf.float32)
    actions = head.env_distribution(parameters).sample(seed=SEED)

    def gradient(parameters):
        with tf.GradientTape() as tape:
            tape.watch(parameters)
            log_probs = head.env_distribution(parameters).log_prob(actions)
        return log_probs, tape.gradient(log_probs, parameters)

    compiled = tf.function(gradient, jit_compile=True)
    for got, want in zip(compiled(parameters), gradient(parameters), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
        assert np.isfinite(got).all()


def test_choices_by_hand():
    head = head_of(S.MultiDiscrete([2, 3], start=[1, -1]))
    logits = np.log(np.float32([0.25, 0.75, 0.5, 0.2, 0.3]))
    dist = head.env_distribution(logits)
    np.testing.assert_allclose(dist.prob([1, -1]), 0.25 * 0.5, rtol=1e-5)
    np.testing.assert_allclose(dist.prob([2, 1]), 0.75 * 0.3, rtol=1e-5)
    np.testing.assert_array_equal(dist.prob([0, 0]), 0.0)
    np.testing.assert_array_equal(dist.mode(), [2, -1])


def test_padded_choices_have_finite_gradients():
    head = head_of(S.MultiDiscrete([2, 5]))
    parameters = tf.zeros([7])
    with tf.GradientTape() as tape:
        tape.watch(parameters)
        dist = head.env_distribution(parameters)
        result = dist.log_prob([1, 4]) + dist.entropy()
    expected = np.float64([-0.5, 0.5, -0.2, -0.2, -0.2, -0.2, 0.8])
    np.testing.assert_allclose(tape.gradient(result, parameters), expected, atol=1e-6)


def test_scales_by_hand():
    head = head_of(S.Box(-1.0, 1.0, (3,)), init_scale=0.5, min_scale=0.1)
    dist = head.env_distribution(tf.constant([1.0, 2.0, 3.0, 0.0, -200.0, 1.0]))
    assert isinstance(dist, squashed.SquashedNormal)
    np.testing.assert_array_equal(dist.loc, [1.0, 2.0, 3.0])
    grown = 0.1 + 0.4 * math.log1p(math.e * (math.e - 1))
    np.testing.assert_allclose(dist.scale, [0.5, 0.1, grown], rtol=1e-6)
    np.testing.assert_array_equal(dist.high, [1.0, 1.0, 1.0])


def test_parts_in_the_order_of_the_nest_scales_last():
    head = head_of(SPACES["nested"][0])
    dist = head.env_distribution(tf.constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0]))
    assert isinstance(dist, product.Product)
    choice, normal = dist.distributions["a"]
    np.testing.assert_array_equal(choice.logits, [1.0, 2.0])
    np.testing.assert_array_equal(normal.loc, [3.0])
    np.testing.assert_allclose(normal.scale, [1.0], rtol=1e-6)
    np.testing.assert_array_equal(dist.distributions["b"].logits, [4.0, 5.0, 6.0])


def test_bounds_say_what_floats_get():
    box, half = S.Box(-1.0, 1.0, (2,)), S.Box(0.0, np.inf, (2,))
    for space in (box, half):
        dist = head_of(space, False).env_distribution(tf.zeros(4))
        np.testing.assert_allclose(dist.stddev(), [1.0, 1.0], rtol=1e-6)
    for squash in (True, None):
        dist = head_of(box, squash).env_distribution(tf.zeros(4))
        assert isinstance(dist, squashed.SquashedNormal)
    assert head_of(box, None) == head_of(box, True)
    head = head_of(SPACES["unbounded"][0])
    assert isinstance(head.env_distribution(tf.zeros(4)).distribution, tfd.Normal)
    for space in (half, tf.TensorSpec([2])):
        with pytest.raises(ValueError, match="`action_head`: `squash` expected a Box"):
            head_of(space, True)


def test_specs_and_dtypes():
    spec = {"a": specs.BoundedTensorSpec([], tf.int32, 0, 2), "b": tf.TensorSpec([2])}
    dist = head_of(spec).env_distribution(tf.zeros([7], tf.float64))
    assert dist.dtype == {"a": tf.int32, "b": tf.float64}
    for space, *_ in SPACES.values():
        assert head_of(spaces.spec_from_space(space)) == head_of(space)


@pytest.mark.parametrize("squash", [False, True])
def test_environments_density_is_that_of_raw_actions(squash):
    """Clipped heads have the normal's; squashed ones what tanh makes of it."""
    space = S.Box(np.float32([[-1, 0]]), np.float32([[1, 5]]))
    head = head_of(space, squash, 0.3, min_scale=0.01)
    parameters = np.random.default_rng(0).normal(size=[9, 4]).astype(np.float32)
    raw = head.sample(parameters, SEED)
    actions = head.to_env(raw) if squash else tf.reshape(raw, [9, 1, 2])
    for log_prob in (head.log_prob, head.host_log_prob):
        np.testing.assert_allclose(
            log_prob(parameters, raw.numpy()),
            head.env_distribution(parameters).log_prob(actions),
            *(1e-3, 1e-3),
        )
    deviations = 0.01 + 0.29 * np.log1p((np.e - 1) * np.exp(parameters[:, 2:]))
    normal = head.distribution(parameters)
    np.testing.assert_allclose(normal.stddev(), deviations, rtol=1e-4)
    for temperature in (0.5, 3.0):
        for tempered in (head.tempered, head.host_tempered):
            found = head.distribution(tempered(parameters, temperature)).stddev()
            expected = np.maximum(temperature * deviations, 0.01)
            np.testing.assert_allclose(found, expected, rtol=1e-4)
    for tempered in (head.tempered, head.host_tempered):
        found = np.asarray(tempered(parameters, 1e-3))
        assert np.isfinite(found).all()
        np.testing.assert_allclose(head.distribution(found).stddev(), 0.01, rtol=1e-4)


def test_softplus_deviations_of_draws_on_the_host():
    head = head_of(S.Box(-1.0, 1.0, (1,)), init_scale=0.3)
    parameters = np.zeros([40_000, 2], np.float32)
    raw = head.host_sample(parameters, np.random.default_rng(0))
    assert raw.dtype == np.float32
    np.testing.assert_allclose(raw.std(), 0.3, rtol=5 / np.sqrt(8e4))
