"""Tests of `tfrl.distributions.heads_of_spaces`: what is refused, and by which name."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from tfrl.distributions import heads_of_spaces

S = gym.spaces
FREE = S.Box(-np.inf, np.inf, (2,))
HALF = S.Box(np.array([0.0, -np.inf], "f"), np.array([np.inf, 0.3], "f"))


@pytest.mark.parametrize(
    "space",
    [
        *(S.Text(3), S.Sequence(S.Discrete(2))),
        *(3, None, tf.TensorSpec([2], tf.int32), tf.TensorSpec([2], tf.string)),
    ],
    ids=str,
)
def test_spaces_without_a_head(space):
    with pytest.raises(TypeError, match="`action_head`: `action_space` expected"):
        heads_of_spaces.action_head(space)


def test_the_part_without_a_head_is_named():
    space = S.Dict(a=S.Discrete(2), b=S.Tuple([S.Box(-1.0, 1.0), S.Text(3)]))
    with pytest.raises(TypeError, match=r"`action_space\['b'\]\[1\]` .*; got Text"):
        heads_of_spaces.action_head(space)
    space = S.Dict(a=S.Discrete(2), b=S.Box(-1.0, 1.0, (0,)))
    with pytest.raises(ValueError, match=r"`action_space\['b'\]` must hold a number"):
        heads_of_spaces.action_head(space)


NOTHING = [S.Box(-1.0, 1.0, (0,)), S.Box(-1, 1, (2, 0)), S.Dict({}), S.Tuple([])]
EMPTY = S.Box(np.zeros(2, "f"), np.array([0, 1], "f"))
NO_BOX = [S.Discrete(2), S.Tuple([S.Discrete(2)]), FREE, HALF, EMPTY]
REFUSED = [
    *((space, {}, "`action_space` must hold a number") for space in NOTHING),
    *((space, {"squash": True}, "`action_space` must hold") for space in NOTHING),
    *((space, {"squash": True}, "`squash` expected a Box with") for space in NO_BOX),
    (HALF, {"squash": None}, "`action_space` expected floats"),
    (EMPTY, {"squash": None}, "`action_space` expected floats with finite bounds"),
    (tf.TensorSpec([None]), {}, "`action_space` expected known dimensions"),
    (S.Box(0, 2**20, (1,), np.int32), {}, "`action_space` .* at most 1048576 options"),
    (S.Discrete(2), {"min_scale": 0.0}, "`min_scale` expected numbers > 0"),
    (S.Discrete(2), {"init_scale": 1e-5}, "`init_scale` expected numbers in"),
]


@pytest.mark.parametrize(("space", "options", "match"), REFUSED)
def test_spaces_that_are_refused(space, options, match):
    with pytest.raises(ValueError, match=f"`action_head`: {match}"):
        heads_of_spaces.action_head(space, **options)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("squash", [False, True])
@pytest.mark.parametrize("shape", [(), (2,), (2, 3)], ids=str)
def test_actions_of_every_float_dtype_are_scored(shape, squash, dtype):
    box = S.Box(-0.1, 0.3, shape, dtype)
    head = heads_of_spaces.action_head(S.Dict(box=box), squash=squash)
    part, parameters = head.parts[0], 0.1 * tf.ones([4, head.n_outputs])
    # The last row lies at a bound, which rounds otherwise in another dtype.
    raw = part.from_env(
        np.array([*part.to_env(part.sample(parameters, 0))[:3], box.low])
    )
    actions = part.to_env(raw)
    assert actions.dtype == dtype
    expected = part.log_prob(parameters, raw).numpy()
    assert np.isfinite(expected).all()
    env = head.env_distribution(parameters)
    for given in (actions, actions.numpy()):
        found = env.log_prob({"box": given})
        assert found.dtype == tf.float32
        np.testing.assert_allclose(found, expected, rtol=2e-2, atol=2e-2)
        single = part.env_distribution(parameters)
        np.testing.assert_allclose(single.log_prob(given), found, rtol=1e-6)
        assert (0.0 <= single.cdf(given).numpy()).all()
    for given in (tf.cast(raw, dtype), tf.cast(raw, dtype).numpy()):
        found = part.log_prob(parameters, given)
        assert found.dtype == tf.float32
        np.testing.assert_allclose(found, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("squash", [False, True])
def test_actions_that_are_no_floats_are_refused(squash):
    head = heads_of_spaces.action_head(S.Box(-2.0, 2.0, (2,)), squash=squash)
    parameters, actions = tf.zeros([3, 4]), tf.zeros([3, 2], tf.int32)
    with pytest.raises(TypeError, match="`NormalHead`: `actions` expected.*int32"):
        head.log_prob(parameters, actions)
    with pytest.raises(TypeError, match="`value` expected a floating-point.*int32"):
        head.env_distribution(parameters).log_prob(actions)


def test_divergences_of_normals_of_a_box_are_those_of_tfp():
    head = heads_of_spaces.action_head(S.Box(-2.0, 2.0, (2,)))
    one, other = (head.env_distribution(x * tf.ones([3, 4])) for x in (0.0, 0.2))
    expected = head.distribution(tf.zeros([3, 4])).kl_divergence(
        head.distribution(0.2 * tf.ones([3, 4]))
    )
    np.testing.assert_allclose(one.kl_divergence(other), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "space",
    [
        *(S.Discrete(3, start=5), S.MultiBinary([2, 3]), FREE, HALF),
        *(S.MultiDiscrete([[3, 2]], start=[[1, 0]]), S.Box(-1.0, 1.0, (), np.float64)),
        S.Dict(a=S.Discrete(2), b=S.Tuple([S.Box(-2.0, 1.0, (1, 2))])),
    ],
    ids=str,
)
def test_a_head_tells_its_space(space):
    assert heads_of_spaces.space_of(heads_of_spaces.action_head(space)) == space
