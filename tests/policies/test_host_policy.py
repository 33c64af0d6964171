"""Tests of `tfrl.policies.host_policy`."""

import agent_examples
import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from tfrl import agents
from tfrl._internal import dtype_policies
from tfrl.policies import actor_critic, host_policy

S = gym.spaces
IMAGE = S.Box(0, 255, (36, 36, 1), np.uint8)


def new_policy(observation_space, action_space=None, updates=2, **settings):
    """A policy whose weights and moments are no longer the initial ones."""
    policy = agent_examples.new_policy(
        observation_space,
        S.Discrete(3) if action_space is None else action_space,
        **{"hidden_units": (16, 8), **settings},
    )
    rng = np.random.default_rng(0)
    for _ in range(updates):
        policy = nudged(policy, rng)
    return policy


def nudged(policy, rng):
    grads = tf.nest.map_structure(
        lambda x: tf.constant(3.0 * rng.standard_normal(x.shape), x.dtype),
        policy.state.params,
    )
    return policy.replace(state=policy.state.apply_gradients(grads=grads))


def batch_of(space, n_rows, seed=0):
    space.seed(seed)
    rows = [space.sample() for _ in range(n_rows)]
    empty = gym.vector.utils.create_empty_array(space, n_rows)
    return gym.vector.utils.concatenate(space, rows, empty)


def count_traces(monkeypatch):
    """Counts how often the actor is traced or run by Python."""
    calls = []
    original = actor_critic.ActorCriticPolicy.outputs

    def outputs(self, observations, state=()):
        calls.append(observations)
        return original(self, observations, state)

    monkeypatch.setattr(actor_critic.ActorCriticPolicy, "outputs", outputs)
    return calls


@pytest.mark.parametrize(
    ("action_space", "normalize", "activation"),
    [(S.Discrete(3), False, "relu"), (S.Box(-1.0, 1.0, (2,)), True, "tanh")],
    ids=["discrete", "continuous normalized"],
)
def test_mirror_equals_the_network(action_space, normalize, activation):
    space = S.Box(-np.inf, np.inf, (2, 3))
    policy = new_policy(
        space,
        action_space,
        activation=activation,
        normalize_observations=normalize,
        log_std=-0.7,
    )
    rng = np.random.default_rng(1)
    if normalize:
        seen = rng.normal(100.0, 3.0, (50, 2, 3)).astype(np.float32)
        policy = policy.update_moments(seen, tf.ones([50]))
    host = host_policy.HostPolicy(policy)
    assert host.mirrored
    for n_rows in (1, 8):
        observations = rng.normal(90.0, 9.0, (n_rows, 2, 3)).astype(np.float32)
        expected = policy.parameters(observations)
        found = host(observations)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    if isinstance(action_space, S.Box):
        np.testing.assert_array_equal(found[:, 2:], expected[:, 2:])


@pytest.mark.parametrize(
    "space",
    [
        S.Box(-1.0, 1.0, ()),
        S.Box(-1.0, 1.0, (4,), np.float64),
        S.Box(-1.0, 1.0, (4,), np.float16),
        S.Box(0, 255, (4,), np.uint8),
        S.Box(0, 100_000, (4,), np.int32),
        S.MultiBinary(3),
    ],
    ids=str,
)
def test_mirror_of_other_flat_observations(space):
    observations = batch_of(space, 6)
    policy = new_policy(space, normalize_observations=True)
    policy = policy.update_moments(observations, tf.ones([6]))
    assert policy.observation_moments != ((),) or isinstance(space, S.MultiBinary)
    host = host_policy.HostPolicy(policy)
    assert host.mirrored
    np.testing.assert_allclose(
        host(observations), policy.parameters(observations), rtol=1e-4, atol=1e-5
    )
    host.push(policy, probe=observations)


def test_weights_may_be_arrays():
    space, actions = gym.spaces.Box(-1.0, 1.0, (4,)), gym.spaces.Discrete(2)
    made = agents.PPO(hidden_units=(8,)).create(space, actions, seed=0).policy
    params = {name: np.array(x) for name, x in made.state.params.items()}
    policy = made.replace(state=made.state.replace(params=params))
    seen = np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(3, 4)
    acted = [each.act(seen, seed=0).log_probs for each in (made, policy)]
    np.testing.assert_allclose(acted[1], acted[0], rtol=1e-6)


def test_masks_are_no_part_of_a_copy():
    flat = S.Box(-1.0, 1.0, (3,))
    masked = new_policy(S.Dict(action_mask=S.MultiBinary(3), x=flat))
    assert host_policy.HostPolicy(masked).mirrored
    assert host_policy.numpy_copy(masked) is None
    assert host_policy.numpy_copy(new_policy(flat)) is not None


def test_push_takes_over_weights_and_moments(monkeypatch):
    space = S.Box(-np.inf, np.inf, (3,))
    policy = new_policy(space, normalize_observations=True)
    host = host_policy.HostPolicy(policy)
    observations = np.random.default_rng(0).normal(5, 2, (7, 3)).astype(np.float32)
    before = host(observations)
    newer = nudged(policy, np.random.default_rng(3))
    newer = newer.update_moments(observations, tf.ones([7]))
    calls = count_traces(monkeypatch)
    for n_rows in (1, 2, 7):
        host.push(newer, probe=observations[:n_rows])
    assert len(calls) == 1
    monkeypatch.undo()
    found = host(observations)
    assert np.abs(found - before).max() > 0.1
    np.testing.assert_allclose(
        found, newer.parameters(observations), rtol=1e-4, atol=1e-4
    )


def test_push_detects_a_corrupted_copy(monkeypatch):
    policy = new_policy(S.Box(-1.0, 1.0, (3,)))
    host = host_policy.HostPolicy(policy)
    probe = np.ones((2, 3), np.float32)
    host.push(policy, probe=probe)
    original = actor_critic.ActorCriticPolicy.dense_layers

    def corrupted(self):
        (kernel, bias, activation), *others = original(self)
        return [(kernel + 0.01, bias, activation), *others]

    monkeypatch.setattr(actor_critic.ActorCriticPolicy, "dense_layers", corrupted)
    host.push(policy)
    with pytest.raises(
        ValueError, match="`HostPolicy.push`: `policy` expected to equal"
    ):
        host.push(policy, probe=probe)


@pytest.mark.parametrize("activation", ["tanh", "elu"])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_push_takes_no_weights_that_are_not_finite(activation, number):
    policy = new_policy(S.Box(-1.0, 1.0, (3,)), activation=activation)
    params = dict(policy.state.params)
    key = next(key for key in params if "actor/output/kernel" in key)
    params[key] = tf.fill(params[key].shape, number)
    broken = policy.replace(state=policy.state.replace(params=params))
    host = host_policy.HostPolicy(policy)
    assert host.mirrored == (activation == "tanh")
    seen, kept = np.ones((2, 3), np.float32), host.policy
    before = host(seen)
    for probe in (None, seen):
        with pytest.raises(ValueError, match="`HostPolicy.push`.* 1 of .*output/kern"):
            host.push(broken, probe=probe)
    assert host.policy is kept
    np.testing.assert_array_equal(host(seen), before)


@pytest.mark.parametrize("name", ["float16", "mixed_float16", "mixed_bfloat16"])
def test_push_names_a_dtype_policy_of_a_small_range(name):
    with dtype_policies.used(name):
        policy = new_policy(S.Box(-1.0, 1.0, (3,)))
    params = tf.nest.map_structure(lambda x: x + np.inf, policy.state.params)
    broken = policy.replace(state=policy.state.replace(params=params))
    remedy = f"dtype policy '{name}' take '{name.replace('fl', 'bfl')}', whose range is"
    if name == "mixed_bfloat16":
        remedy = "; lower the learning rate, or clip gradients"
    with pytest.raises(ValueError, match=f"weights that are finite.*{remedy}"):
        host_policy.HostPolicy(policy).push(broken)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_push_tells_of_outputs_that_overflow():
    policy = new_policy(S.Box(-1.0, 1.0, (3,)))
    params = dict(policy.state.params)
    for key, x in params.items():
        if "actor" in key and x.shape.rank == 2:
            params[key] = tf.fill(x.shape, tf.float32.max)
    large = policy.replace(state=policy.state.replace(params=params))
    host = host_policy.HostPolicy(large)
    with pytest.raises(ValueError, match="outputs that are finite; .*, though its wei"):
        host.push(large, probe=np.ones((2, 3), np.float32))


def test_push_takes_no_other_network():
    space = S.Box(-1.0, 1.0, (3,))
    host, like = host_policy.HostPolicy(new_policy(space)), new_policy(space)
    host.push(like)  # made anew, of the same shapes
    assert host.policy is like
    other = new_policy(space, hidden_units=(16,))
    for probe in (None, np.ones((2, 3), np.float32)):
        with pytest.raises(ValueError, match=r"`HostPolicy.push`.* \[3, 16\].*; got"):
            host.push(other, probe=probe)
        assert host.policy is like


@pytest.mark.parametrize("first", [np.int64, bool, np.float64])
def test_what_came_first_does_not_say_how_others_are_read(first):
    space = S.Dict(a=S.Box(-1.0, 1.0, (4,)), b=S.Box(-1.0, 1.0, (2,)))
    policy, host = new_policy(space), host_policy.HostPolicy(new_policy(space))
    batch = batch_of(space, 50)
    expected = policy.parameters(tf.nest.map_structure(tf.constant, batch))
    host(tf.nest.map_structure(lambda x: np.zeros(x.shape, first), batch))
    np.testing.assert_allclose(host(batch), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("space", "kwargs"),
    [
        (S.Dict(x=S.Box(-1.0, 1.0, (2,)), k=S.Discrete(3)), {}),
        (S.Tuple((S.Box(-1.0, 1.0, (2,)), S.MultiBinary(2))), {}),
        (S.Discrete(5, start=2), {}),
        (IMAGE, {}),
        (S.Box(-1.0, 1.0, (2,)), {"activation": "elu"}),
    ],
    ids=["dict", "tuple", "discrete", "image", "activation"],
)
def test_others_run_as_one_trace(monkeypatch, space, kwargs):
    policy = new_policy(space, normalize_observations=True, **kwargs)
    host = host_policy.HostPolicy(policy)
    assert not host.mirrored
    calls = count_traces(monkeypatch)
    found = {n: host(batch_of(space, n)) for n in (1, 4, 2)}
    newer = nudged(policy, np.random.default_rng(5))
    host.push(newer, probe=batch_of(space, 4))
    later = host(batch_of(space, 4))
    assert len(calls) == 1
    monkeypatch.undo()
    for n, parameters in found.items():
        expected = policy.parameters(batch_of(space, n))
        assert isinstance(parameters, np.ndarray)
        np.testing.assert_allclose(parameters, expected, rtol=1e-4, atol=1e-5)
    expected = newer.parameters(batch_of(space, 4))
    np.testing.assert_allclose(later, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(later - found[4]).max() > 1e-3


def test_many_rows_of_a_wide_network_run_as_one_trace(monkeypatch):
    space = S.Box(-1.0, 1.0, (2,))
    policy = new_policy(space, hidden_units=(300, 300))
    host, calls = host_policy.HostPolicy(policy), count_traces(monkeypatch)
    few, many = batch_of(space, 8), batch_of(space, 90)
    found = [host(few), host(many), host(few), host(many)]
    assert len(calls) == 1
    host.push(policy, probe=many)
    assert len(calls) == 1, "where the copy does not act it is not compared"
    monkeypatch.undo()
    for rows, parameters in zip([few, many] * 2, found, strict=True):
        expected = policy.parameters(rows)
        np.testing.assert_allclose(parameters, expected, rtol=1e-4, atol=1e-5)


def test_observations_of_other_shapes_are_refused():
    for space, observations, got in (
        (S.Box(-1.0, 1.0, (6,)), np.zeros((2, 2, 3)), r"\['B', 6\].*got \(2, 2, 3\)"),
        (S.Box(-1.0, 1.0, (6,)), np.zeros(6), r"\['B', 6\].*got \(6,\)"),
        (S.Box(-1.0, 1.0, (6,)), [[0.0] * 5], r"\['B', 6\].*got \(1, 5\)"),
        (S.Box(-1.0, 1.0, ()), np.array(3.0), r"\['B'\].*got \(\)"),
        (IMAGE, np.zeros((1, 36, 36), np.uint8), r"36, 36, 1\].*got \(1, 36, 36\)"),
    ):
        host = host_policy.HostPolicy(new_policy(space, updates=0))
        with pytest.raises(ValueError, match=f"`HostPolicy`: `observations` .*{got}"):
            host(observations)
    space = S.Dict(x=S.Box(-1.0, 1.0, (2,)), k=S.Tuple([S.Discrete(3)]))
    host = host_policy.HostPolicy(new_policy(space, updates=0))
    nest = {"x": np.zeros((4, 2), "f"), "k": (np.zeros(4, int),)}
    for change, message in (
        ({"x": np.zeros((4, 1, 2), "f")}, r"\['x'\]` must have shape \['B', 2\]"),
        ({"x": np.zeros((3, 2), "f")}, "` must have one number of rows"),
        ({"k": ()}, r"\['k'\]` must be a tuple with 0"),
    ):
        with pytest.raises(ValueError, match=f"`HostPolicy`: .*{message}"):
            host({**nest, **change})
    with pytest.raises(TypeError, match=r"`observations\['x'\]` must be an array of"):
        host({**nest, "x": [[0.0], [1.0, 2.0]]})


@pytest.mark.parametrize(
    "space",
    [
        S.Box(-1.0, 1.0, (6,)),
        S.Dict(x=S.Box(-1.0, 1.0, (2,)), k=S.Tuple([S.Discrete(3)])),
        IMAGE,
    ],
    ids=["mirrored", "nest", "image"],
)
def test_lists_and_no_rows(space):
    host = host_policy.HostPolicy(new_policy(space, updates=0))
    nest = batch_of(space, 2)
    assert host(mapped(lambda x: x[:0], nest)).shape == (0, 3)
    lists = mapped(lambda x: x.tolist(), nest)
    np.testing.assert_allclose(host(lists), host(nest), rtol=1e-5, atol=1e-6)
    if space is IMAGE:
        with pytest.raises(ValueError, match="`observations` must be pixels of 0 to 2"):
            host(np.full((1, 36, 36, 1), 256).tolist())


def mapped(function, nest):
    if isinstance(nest, dict):
        return {key: mapped(function, part) for key, part in nest.items()}
    if isinstance(nest, tuple):
        return tuple(mapped(function, part) for part in nest)
    return function(nest)
