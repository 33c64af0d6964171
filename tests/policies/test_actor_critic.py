"""Tests of `tfrl.policies.actor_critic`, and of what `NetworkPolicy` does."""

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf
from nested_policies import NEST, batch_of, new_policy

from tfrl.agents import gradient_transforms, train_state
from tfrl.policies import actor_critic, network_policy, networks

S = gym.spaces


def test_normalizes_the_float_parts_alone():
    policy = new_policy(NEST, S.Discrete(2), normalize_observations=True)
    observations = batch_of(NEST, 5, 4)
    valid = np.arange(20).reshape(5, 4) % 3 > 0
    policy = policy.update_moments(observations, tf.constant(valid))
    normalized = policy.normalize(observations)
    np.testing.assert_array_equal(normalized["goal"], observations["goal"])
    np.testing.assert_array_equal(normalized["bits"][0], observations["bits"][0])
    for name, leaf, found in (
        ("position", observations["position"], normalized["position"]),
        ("last bit", observations["bits"][1], normalized["bits"][1]),
    ):
        known = leaf[valid].astype(np.float64)
        expected = (leaf - known.mean(0)) / np.sqrt(known.var(0) + 1e-8)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=name)
        assert found.dtype == leaf.dtype


def test_without_normalization_nothing_changes():
    policy = new_policy(NEST, S.Discrete(2))
    observations = batch_of(NEST, 3)
    assert policy.normalize(observations) is observations
    assert policy.observation_moments == ()


@pytest.mark.parametrize("normalize", [False, True], ids=["raw", "normalized"])
def test_parameters_eager_and_in_a_graph(normalize):
    policy = new_policy(NEST, S.Discrete(2), normalize_observations=normalize)
    observations = batch_of(NEST, 3)
    if normalize:
        policy = policy.update_moments(observations, tf.ones([3]))
    eager = policy.parameters(observations)
    graph = tf.function(lambda p, o: p.parameters(o))(
        policy, tf.nest.map_structure(tf.constant, observations)
    )
    direct, _ = policy.state(policy.normalize(observations))
    np.testing.assert_allclose(eager, graph, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(eager, direct, rtol=1e-5, atol=1e-7)


def test_policies_of_one_architecture_share_traces_but_no_layer_and_no_weights():
    spaces = S.Box(-1.0, 1.0, (3,)), S.Discrete(2)
    policies = [new_policy(*spaces, seed=seed) for seed in (0, 0, 1)]
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
    kernel = "actor_critic/actor/output/kernel"
    assert np.abs(other.state.params[kernel] - first.state.params[kernel]).max() > 1e-3
    observations = np.ones((4, 3), np.float32)
    found = first.parameters(observations)
    traces = network_policy._compiled_outputs.experimental_get_tracing_count
    n_traces = traces()
    assert np.abs(found - other.parameters(observations)).max() > 1e-4
    assert traces() == n_traces
    alone = networks.ActorCritic(
        networks.SpaceEncoder.describe(spaces[0]), 2, None, (8,), "tanh", seed=1
    )
    np.testing.assert_allclose(
        other.parameters(observations), alone(observations)[0], rtol=1e-5
    )


@pytest.mark.parametrize(
    "change",
    [{"hidden_units": (9,)}, {"activation": "relu"}, {"action_space": S.Discrete(3)}],
    ids=["units", "activation", "outputs"],
)
def test_other_architectures_are_compiled_apart(change):
    arguments = {"action_space": S.Discrete(2), "hidden_units": (8,)}
    tx = gradient_transforms.sgd(0.1)
    one, other = (
        actor_critic.ActorCriticPolicy.create(
            S.Box(-1.0, 1.0, (3,)),
            learner=lambda network: train_state.TrainState.create(network, tx=tx),
            **given,
        )
        for given in (arguments, {**arguments, **change})
    )
    assert one.lent().state.model_def is not other.lent().state.model_def


def test_newer_weights_do_not_retrace():
    policy = new_policy(S.Box(-1.0, 1.0, (3,)), S.Discrete(2))
    observations = np.ones((4, 3), np.float32)
    before = policy.parameters(observations)
    traces = network_policy._compiled_outputs.experimental_get_tracing_count
    n_traces = traces()
    newer = policy.replace(
        state=policy.state.apply_gradients(
            grads=tf.nest.map_structure(tf.ones_like, policy.state.params)
        )
    )
    assert np.abs(newer.parameters(observations) - before).max() > 0.01
    assert traces() == n_traces


@pytest.mark.parametrize(
    ("space", "kwargs"),
    [
        (S.Discrete(3, start=2), {}),
        (S.MultiDiscrete([3, 2]), {}),
        (S.Box(-1.0, 1.0, (2,)), {"log_std": 0.5}),
        (S.Box(-1.0, 1.0, (2,), np.float64), {"squash": True}),
    ],
    ids=["discrete", "multi discrete", "box", "squashed"],
)
def test_drawn_actions(space, kwargs):
    policy = new_policy(S.Box(-1.0, 1.0, (3,)), space, **kwargs)
    observations = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    actions = policy.act(observations, seed=3).actions
    assert actions.dtype == space.dtype
    assert isinstance(actions, np.ndarray)
    assert all(space.contains(np.asarray(action)) for action in actions)
    np.testing.assert_array_equal(policy.act(observations, seed=3).actions, actions)
    other = policy.act(observations, seed=4).actions
    assert np.any(other != actions)
    greedy = policy.act(observations, temperature=0.0).actions
    head = policy.head
    best = head.to_env(head.mode(policy.parameters(observations)))
    np.testing.assert_allclose(greedy, best, rtol=1e-4, atol=1e-6)
    assert policy.act(observations).actions.shape == actions.shape


@pytest.mark.parametrize("temperature", [-1.0, np.nan, np.inf])
def test_other_temperatures_are_refused(temperature):
    policy = new_policy(S.Box(-1.0, 1.0, (3,)), S.Discrete(2))
    for make in (np.zeros, tf.zeros):
        with pytest.raises(ValueError, match="`act`: `temperature` expected"):
            policy.act(make((1, 3), "float32"), temperature=temperature)


@pytest.mark.parametrize(
    ("bad", "normalize"), [(np.nan, False), (np.nan, True), (np.inf, False)]
)
def test_observations_that_are_not_finite_are_refused(bad, normalize):
    policy = new_policy(NEST, S.Discrete(2), normalize_observations=normalize)
    observations = batch_of(NEST, 2)
    tensors = tf.nest.map_structure(tf.constant, observations)
    wanted = policy.act(tensors, seed=0).actions
    observations["position"][1, 0] = bad
    message = "`act`: `observations` expected finite numbers"
    for given in (observations, tf.nest.map_structure(tf.constant, observations)):
        with pytest.raises(ValueError, match=message):
            policy.act(given, seed=0)
    # Rows do not touch each other in a graph, which looks at no values.
    found = tf.function(lambda x: policy.act(x, seed=0).actions)(observations)
    assert found[0] == wanted[0]


def test_unsupported_spaces_are_refused():
    with pytest.raises(TypeError, match="`action_space`"):
        new_policy(S.Box(-1.0, 1.0, (3,)), S.Text(2))
    with pytest.raises(TypeError, match="`space`"):
        new_policy(S.Text(2), S.Discrete(2))
    with pytest.raises(ValueError, match="`squash`"):
        new_policy(S.Box(-1.0, 1.0, (3,)), S.Discrete(2), squash=True)


def test_dense_layers_and_log_std():
    policy = new_policy(S.Box(-1.0, 1.0, (3,)), S.Box(-1.0, 1.0, (2,)), log_std=0.5)
    layers = policy.dense_layers()
    shapes = [(k.shape.as_list(), b.shape.as_list(), a) for k, b, a in layers]
    assert shapes == [([3, 8], [8], "tanh"), ([8, 2], [2], "linear")]
    np.testing.assert_array_equal(policy.log_std(), [0.5, 0.5])
    assert new_policy(S.Box(-1.0, 1.0, (3,)), S.Discrete(2)).log_std() is None
    assert new_policy(NEST, S.Discrete(2)).dense_layers() is None


def test_without_optimizer_keeps_what_acts():
    policy = new_policy(S.Box(-1.0, 1.0, (3,)), S.Discrete(2))
    light = policy.without_optimizer()
    assert light.state.opt_state == ()
    observations = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(
        light.parameters(observations), policy.parameters(observations)
    )


def test_observations_may_be_lists():
    policy = new_policy(S.Box(-1.0, 1.0, (3,)), S.Discrete(2))
    found = policy.act([[0.5, 0.0, 1]], seed=0).actions
    expected = policy.act(np.array([[0.5, 0.0, 1.0]], "f"), seed=0).actions
    np.testing.assert_array_equal(found, expected)
    where = "`act`: `observations` must"
    with pytest.raises(ValueError, match=where + r" have shape \['B', 3\].*\(1, 2\)"):
        policy.act([[0.0, 1.0]], seed=0)
    with pytest.raises(TypeError, match=where + " be an array of numbers"):
        policy.act([["a", "b", "c"]], seed=0)


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
