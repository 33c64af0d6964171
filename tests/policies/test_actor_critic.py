"""Tests of `tfrl.policies.actor_critic`, and of what `NetworkPolicy` does."""

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf
from agent_examples import BOX, NEST, batch_of, new_policy

from tfrl.policies import network_policy, networks

S = gym.spaces


def tensors_of(nest):
    return tf.nest.map_structure(tf.constant, nest)


def test_normalizes_the_float_parts_alone():
    policy = new_policy(NEST, S.Discrete(2), normalize_observations=True)
    observations = batch_of(NEST, 5, 4)
    valid = np.arange(20).reshape(5, 4) % 3 > 0
    policy = policy.update_moments(observations, tf.constant(valid))
    normalized = policy.normalize(observations)
    np.testing.assert_array_equal(normalized["goal"], observations["goal"])
    np.testing.assert_array_equal(normalized["bits"][0], observations["bits"][0])
    for leaf, found in (
        (observations["position"], normalized["position"]),
        (observations["bits"][1], normalized["bits"][1]),
    ):
        known = leaf[valid].astype(np.float64)
        expected = (leaf - known.mean(0)) / np.sqrt(known.var(0) + 1e-8)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        assert found.dtype == leaf.dtype
    few = batch_of(NEST, 3)
    eager = policy.parameters(few)
    graph = tf.function(lambda p, o: p.parameters(o), autograph=False)(
        policy, tensors_of(few)
    )
    direct, _ = policy.state(policy.normalize(few))
    np.testing.assert_allclose(eager, graph, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(eager, direct, rtol=1e-5, atol=1e-7)
    raw = new_policy(NEST, S.Discrete(2))
    assert raw.normalize(observations) is observations
    assert raw.observation_moments == ()


def test_policies_of_one_architecture_share_traces_but_no_layer_and_no_weights():
    policies = [new_policy(BOX, S.Discrete(2), seed=seed) for seed in (0, 0, 1)]
    first, same, other = policies
    # What is compiled is shared; what a user can reach is each policy's own.
    assert len({id(policy.lent().state.model_def) for policy in policies}) == 1
    reachable = [policy.state.model_def for policy in policies]
    assert len({id(x) for x in (*reachable, first.lent().state.model_def)}) == 4
    for policy in policies:
        for variable in policy.state.model_def.variables:
            expected = policy.state.params[variable.path]
            np.testing.assert_array_equal(variable.numpy(), expected)
    for name, value in first.state.params.items():
        np.testing.assert_array_equal(same.state.params[name], value)
    observations = np.ones((4, 3), np.float32)
    found = first.parameters(observations)
    traces = network_policy._compiled_outputs.experimental_get_tracing_count
    n_traces = traces()
    alone = networks.ActorCritic(
        networks.SpaceEncoder.describe(BOX), 2, None, (8,), "tanh", seed=1
    )
    np.testing.assert_allclose(
        other.parameters(observations), alone(observations)[0], rtol=1e-5
    )
    grads = tf.nest.map_structure(tf.ones_like, first.state.params)
    newer = first.replace(state=first.state.apply_gradients(grads=grads))
    for policy in (other, newer):
        assert np.abs(policy.parameters(observations) - found).max() > 1e-4
    assert traces() == n_traces
    apart = new_policy(BOX, S.Discrete(3)), new_policy(BOX, S.Discrete(2), log_std=1.0)
    assert apart[0].lent().state.model_def is not first.lent().state.model_def
    assert apart[1].lent().state.model_def is first.lent().state.model_def


@pytest.mark.parametrize(
    ("space", "settings"),
    [
        (S.Discrete(3, start=2), {}),
        (S.MultiDiscrete([3, 2]), {}),
        (S.Box(-1.0, 1.0, (2,)), {"log_std": 0.5}),
        (S.Box(-1.0, 1.0, (2,), np.float64), {"squash": True}),
    ],
    ids=["discrete", "multi discrete", "box", "squashed"],
)
def test_drawn_actions(space, settings):
    policy = new_policy(BOX, space, **settings)
    observations = batch_of(BOX, 40, center=0.0)
    actions = policy.act(observations, seed=3).actions
    assert actions.dtype == space.dtype and isinstance(actions, np.ndarray)
    assert all(space.contains(np.asarray(action)) for action in actions)
    np.testing.assert_array_equal(policy.act(observations, seed=3).actions, actions)
    assert np.any(policy.act(observations, seed=4).actions != actions)
    greedy, head = policy.act(observations, temperature=0.0).actions, policy.head
    best = head.to_env(head.mode(policy.parameters(observations)))
    np.testing.assert_allclose(greedy, best, rtol=1e-4, atol=1e-6)
    assert policy.act(observations).actions.shape == actions.shape


@pytest.mark.parametrize(
    ("bad", "normalize"),
    [
        pytest.param(np.nan, False, marks=pytest.mark.slow),
        (np.nan, True),
        (np.inf, False),
    ],
)
def test_observations_that_are_not_finite_are_refused(bad, normalize):
    policy = new_policy(NEST, S.Discrete(2), normalize_observations=normalize)
    observations = batch_of(NEST, 2)
    wanted = policy.act(tensors_of(observations), seed=0).actions
    observations["position"][1, 0] = bad
    message = "`act`: `observations` expected finite numbers"
    for given in (observations, tensors_of(observations)):
        with pytest.raises(ValueError, match=message):
            policy.act(given, seed=0)
    # Rows do not touch each other in a graph, which looks at no values.
    found = tf.function(lambda x: policy.act(x, seed=0).actions, autograph=False)(
        observations
    )
    assert found[0] == wanted[0]


def test_what_cannot_be_acted_on_is_refused():
    policy = new_policy(BOX, S.Discrete(2))
    for x in ([[None] * 3], [["a"] * 3], np.ones((1, 3), complex)):
        with pytest.raises(TypeError, match="`act`: `observations` expected real"):
            policy.act(np.array(x))
    for make in (np.full, tf.fill):
        with pytest.raises(ValueError, match="`act`: `observations` expected finite"):
            policy.act(make((1, 3), np.float64(1e300)))
    for temperature in (-1.0, np.nan, np.inf):
        for make in (np.zeros, tf.zeros):
            with pytest.raises(ValueError, match="`act`: `temperature` expected"):
                policy.act(make((1, 3), "float32"), temperature=temperature)
    where = "`act`: `observations` must"
    with pytest.raises(ValueError, match=where + r" have shape \['B', 3\].*\(1, 2\)"):
        policy.act([[0.0, 1.0]], seed=0)
    with pytest.raises(TypeError, match=where + " be an array of numbers"):
        policy.act([["a", "b", "c"]], seed=0)
    found = policy.act([[0.5, 0.0, 1]], seed=0).actions
    expected = policy.act(np.array([[0.5, 0.0, 1.0]], "f"), seed=0).actions
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(TypeError, match="`action_space`"):
        new_policy(BOX, S.Text(2))
    with pytest.raises(TypeError, match="`observation_space`"):
        new_policy(S.Text(2), S.Discrete(2))
    with pytest.raises(ValueError, match="`squash`"):
        new_policy(BOX, S.Discrete(2), squash=True)


def test_dense_layers_and_log_std():
    policy = new_policy(BOX, S.Box(-1.0, 1.0, (2,)), log_std=0.5)
    shapes = [(k.shape, b.shape, a) for k, b, a in policy.dense_layers()]
    assert shapes == [([3, 8], [8], "tanh"), ([8, 2], [2], "linear")]
    np.testing.assert_array_equal(policy.log_std(), [0.5, 0.5])
    assert new_policy(BOX, S.Discrete(2)).log_std() is None
    assert new_policy(NEST, S.Discrete(2)).dense_layers() is None
    assert policy.without_optimizer().state.opt_state == ()


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_no_images_give_no_actions(dtype):
    before = keras.config.dtype_policy()
    try:
        keras.config.set_dtype_policy(dtype)
        policy = new_policy(S.Box(0, 255, (36, 36, 3), np.uint8), S.Discrete(2))
    finally:
        keras.config.set_dtype_policy(before)
    none = np.zeros((0, 36, 36, 3), np.uint8)
    assert policy.act(none, seed=0).actions.shape == (0,)
