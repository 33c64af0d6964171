"""Tests of `tfrl.training.collecting.actor_collection`: how policies are played."""

import functools

import actor_envs
import agent_rows
import cloudpickle
import gymnasium as gym
import keras
import numpy as np
import own_networks
import pytest
import tensorflow as tf
import tiny_agents
from agent_examples import NEST, batch_of

from tfrl._internal import acting
from tfrl.agents.off_policy import c51, dqn, sac, td3
from tfrl.agents.on_policy import ppo
from tfrl.environments import vector
from tfrl.policies import host_policy
from tfrl.training import cadence, experience, trainer
from tfrl.training.collecting import _actor_policies, actor_collection

S = gym.spaces
B = 5
# Whose networks are dense layers, over one flat observation.
BY_TENSORFLOW = {"ppo_memory", "r2d2", "c51", "qr_dqn", "iqn", "rainbow"}


def played_by(policy, log_probs=False):
    """What plays in an actor that was given the numbers of a policy."""
    other = tf.nest.map_structure(tf.zeros_like, policy)
    played, numbers_of = _actor_policies.acting_of(policy, lambda: other, log_probs)
    own = played.begin()
    for mine, number in zip(own.arrays(), numbers_of(policy), strict=True):
        mine[...] = number
    own.renew()
    return own


def assert_alike(policy, observations, log_probs):
    """An actor does what the learner's own process would, three steps long."""
    own = played_by(policy, log_probs)
    host = host_policy.HostPolicy(policy, log_probs)
    mine, theirs = (x.initial_state(B) for x in (own, host))
    draws = np.random.default_rng(3), np.random.default_rng(3)
    for _ in range(3):
        found = own.act(observations, mine, draws[0])
        expected = host.act(observations, theirs, seed=draws[1])
        for name in ("actions", "raw_actions", "state"):
            pair = (tf.nest.flatten(getattr(x, name)) for x in (found, expected))
            for one, other in zip(*pair, strict=True):
                np.testing.assert_array_equal(one, other)
                assert np.asarray(one).dtype == np.asarray(other).dtype
        if log_probs and found.outputs is not None:  # of all steps at once
            known = own.log_prob(found.outputs, found.raw_actions)
            found = found._replace(log_probs=known)
        if log_probs:
            np.testing.assert_allclose(
                found.log_probs, expected.log_probs, rtol=1e-6, atol=1e-6
            )
        else:
            assert found.log_probs is None
        mine, theirs = found.state, expected.state
    return own


@pytest.mark.parametrize(
    ("kind", "log_probs"),
    [
        pytest.param(
            *(kind, log_probs),
            marks=[pytest.mark.slow] if log_probs and kind in BY_TENSORFLOW else [],
        )
        for kind in agent_rows.CONFIGS
        for log_probs in (False, True)
    ],
)
def test_agents_of_every_kind_are_played_as_here(kind, log_probs):
    policy = agent_rows.made(kind).policy
    seen = np.random.default_rng(1).normal(0.0, 2.0, (B, 3)).astype(np.float32)
    own = assert_alike(policy, seen, log_probs)
    if not log_probs:
        by_numpy = isinstance(own, acting.NetworkActing)
        assert by_numpy == (kind not in BY_TENSORFLOW)


@pytest.mark.parametrize(
    ("space", "settings", "by_numpy"),
    [
        (S.Box(0, 255, (36, 36, 2), np.uint8), {}, False),
        (NEST, {}, False),
        (agent_rows.BOX, {"noise_steps": 2}, False),
        (agent_rows.BOX, {"memory": "lstm", "memory_units": 3}, False),
        (agent_rows.BOX, {"normalize_observations": True, "squash": True}, True),
        (
            S.Dict(action_mask=S.MultiBinary(3), observation=agent_rows.BOX),
            {"normalize_observations": True},
            True,
        ),
    ],
    ids=["image", "nest", "gsde", "memory", "moments", "mask"],
)
def test_observations_of_every_kind_are_played_as_here(space, settings, by_numpy):
    actions = S.Discrete(3) if isinstance(space, S.Dict) else agent_rows.STEER
    made = ppo.PPO(hidden_units=(8,), **settings)
    policy = made.create(space, actions, seed=0).policy
    seen = batch_of(space, B, center=0.0)
    if isinstance(seen, dict) and "action_mask" in seen:
        seen["action_mask"][:, 0] = 1
    own = assert_alike(policy, seen, log_probs=True)
    assert isinstance(own, acting.NetworkActing) == by_numpy


def test_draws_follow_what_is_learned():
    policy = agent_rows.made("td3").policy
    assert np.shape(policy.noise) == (2,) and policy.noise[0] != policy.noise[1]
    seen = np.zeros((B, 3), np.float32)
    quiet = policy.replace(noise=0.0 * policy.noise)
    own = played_by(quiet)
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(
        own.act(seen, (), rng).raw_actions, own.act(seen, (), rng).raw_actions
    )
    spread = played_by(policy).act(np.zeros((20_000, 3), "f"), (), rng).raw_actions
    # Five standard errors of a deviation.
    expected = policy.noise.numpy()
    np.testing.assert_allclose(spread.std(0), expected, rtol=5 / np.sqrt(4e4))


def test_a_policy_that_is_no_nest_of_arrays_is_refused():
    with pytest.raises(TypeError, match="`agent` expected a policy .* got object"):
        _actor_policies.acting_of(object(), object, False)


def run(folder, n_epochs=2, **settings):
    """Trains by two actors; returns policies before the epochs, and what was given."""
    given = {"n_envs": 4, "collector": actor_collection.ActorPool(2)}
    given["intervals"] = cadence.Intervals(log_epochs=1, eval_episodes=1)
    given["experience"] = experience.Trajectories(8)
    with trainer.Trainer(folder, n_epochs, **{**given, **settings}) as running:
        policies, taken, collect = [], [], running._collector.collect

        def watched(*args, **kwargs):
            policies.append(running.agent.policy)
            taken.append(collect(*args, **kwargs))
            return taken[-1]

        running._collector.collect = watched
        running.run(quiet=True)
    return policies, taken


def check_acted(policy, trajectory):
    """Log-probabilities and memory of a trajectory are those of a policy."""
    host = host_policy.HostPolicy(policy)
    at = tf.nest.map_structure
    ended = trajectory.terminated | trajectory.truncated | ~trajectory.valid
    for t in range(len(ended)):
        seen, state, actions = (
            at(lambda x, t=t: x[t], nest)
            for nest in (trajectory.observations, trajectory.states, trajectory.actions)
        )
        parameters, after = host._outputs(host._batch(seen), state)
        shaped = policy.host_distributed(parameters, 1.0, None)
        expected = policy.head.host_log_prob(shaped, actions)
        np.testing.assert_allclose(
            trajectory.log_probs[t], expected, rtol=1e-4, atol=1e-4
        )
        if policy.__class__.__name__ == "RecurrentPolicy" and t + 1 < len(ended):
            assert not state[ended[t - 1]].any() or not t
            kept = np.where(ended[t][:, None], 0.0, after)
            np.testing.assert_allclose(trajectory.states[t + 1], kept, atol=1e-5)


SMALL = {"hidden_units": (8,), "minibatch_size": 16, "n_epochs": 1, "vtrace": True}
CARTS = functools.partial(vector.make_vec, "CartPole-v1", vectorization="sync")
SWINGS = functools.partial(vector.make_vec, "Pendulum-v1", vectorization="sync")
BRIEF = functools.partial(
    vector.make_vec, "CartPole-v1", vectorization="sync", max_episode_steps=3
)


LEARNERS = {
    "flat": ({**SMALL, "normalize_observations": True}, {"make_envs": CARTS}),
    "steer": ({**SMALL, "squash": True}, {"make_envs": SWINGS}),
    "mask": (SMALL, {"make_envs": actor_envs.masks}),
    "memory": (
        {**SMALL, "memory": "lstm", "memory_units": 3},
        {"make_envs": BRIEF},
    ),
    "gsde": ({**SMALL, "noise_steps": 3}, {"make_envs": SWINGS}),
    "images": (SMALL, {"make_envs": actor_envs.images}),
    "nests": (SMALL, {"make_envs": actor_envs.nests}),
    "own": (SMALL, {"make_envs": CARTS, "network": own_networks.actor_critic}),
}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(x, marks=() if x == "flat" else pytest.mark.slow) for x in LEARNERS],
)
def test_trajectories_are_of_the_policy_that_is_told(tmp_path, kind):
    agent, settings = LEARNERS[kind]
    policies, given = run(tmp_path, agent=ppo.PPO(**agent), **settings)
    check_acted(policies[0], given[0])
    assert all(np.isfinite(x.log_probs).all() for x in given)


@pytest.mark.slow
def test_networks_that_are_sent_as_they_are(tmp_path):
    class Tripled(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(3, activation="gelu")

        def call(self, inputs):
            return 3.0 * self.dense(inputs)

    def network(observation_space, action_space):
        seen = keras.Input(observation_space.shape)
        hidden = Tripled()(seen)
        outputs = keras.layers.Dense(int(action_space.n))(hidden)
        return keras.Model(seen, [outputs, keras.layers.Dense(1)(hidden)])

    policies, given = run(
        tmp_path, agent=ppo.PPO(**SMALL), make_envs=CARTS, network=network
    )
    check_acted(policies[0], given[0])


@pytest.mark.slow
def test_networks_that_are_made_already(tmp_path):
    network = own_networks.actor_critic(S.Box(-1, 1, (4,)), S.Discrete(2))
    policies, given = run(
        tmp_path, agent=ppo.PPO(**SMALL), make_envs=CARTS, network=network
    )
    check_acted(policies[0], given[0])


@pytest.mark.slow
def test_mixed_precision_is_that_of_the_learner(tmp_path):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        policies, given = run(tmp_path, agent=ppo.PPO(**SMALL), make_envs=CARTS)
        check_acted(policies[0], given[0])
    finally:
        keras.config.set_dtype_policy(before)


REPLAYED = experience.Replayed(
    capacity=500, batch_size=8, n_steps=8, updates_per_step=0.1, learning_starts=40
)


@pytest.mark.parametrize(
    ("agent", "make_envs"),
    [
        pytest.param(dqn.DQN(hidden_units=(8,)), CARTS, marks=pytest.mark.slow),
        pytest.param(
            dqn.DQN(hidden_units=(8,)), actor_envs.masks, marks=pytest.mark.slow
        ),
        pytest.param(sac.SAC(hidden_units=(8,)), SWINGS, marks=pytest.mark.slow),
        (td3.TD3(hidden_units=(8,)), SWINGS),
        pytest.param(c51.C51(hidden_units=(8,)), CARTS, marks=pytest.mark.slow),
        pytest.param(tiny_agents.Tiny(), CARTS, marks=pytest.mark.slow),
    ],
    ids=["dqn", "mask", "sac", "td3", "c51", "own"],
)
def test_agents_that_replay(tmp_path, agent, make_envs):
    _, given = run(tmp_path, 4, agent=agent, make_envs=make_envs, experience=REPLAYED)
    assert sum(x.valid.sum() for x in given) == 4 * 4 * 8
    if make_envs is actor_envs.masks:
        mask = given[-1].observations["action_mask"]
        assert np.take_along_axis(mask, given[-1].actions[..., None], -1).all()


def two_layers(observation_space, action_space):
    seen = keras.Input(observation_space.shape)
    hidden = seen
    for _ in range(2):
        hidden = keras.layers.Dense(3, activation="gelu")(hidden)
    outputs = keras.layers.Dense(int(action_space.n))(hidden)
    return keras.Model(seen, [outputs, keras.layers.Dense(1)(hidden)])


def test_names_that_keras_has_counted_do_not_mix_up_weights():
    def made():
        config = ppo.PPO(hidden_units=(8,))
        return config.create(agent_rows.BOX, S.Discrete(3), network=two_layers).policy

    seen = np.random.default_rng(1).normal(0.0, 2.0, (B, 3)).astype(np.float32)
    # Ten layers are never all of one number of digits.
    for _ in range(4):
        policy = made()
        played, numbers_of = _actor_policies.acting_of(policy, made, True)
        own = played.begin()
        for mine, number in zip(own.arrays(), numbers_of(policy), strict=True):
            mine[...] = number
        own.renew()
        draws = np.random.default_rng(3), np.random.default_rng(3)
        found = own.act(seen, (), draws[0])
        expected = host_policy.HostPolicy(policy, True).act(seen, seed=draws[1])
        np.testing.assert_allclose(found.log_probs, expected.log_probs, atol=1e-6)


def test_another_policy_in_an_actor_is_told():
    policies = [agent_rows.made("ppo_memory", memory_units=n).policy for n in (2, 3)]
    own = _actor_policies.acting_of(policies[0], lambda: policies[1], True)[0]
    with pytest.raises(TypeError, match="`agent` expected one that makes the same"):
        own.begin()


def test_networks_are_made_again_of_their_configuration():
    spaces = S.Box(-1, 1, (4,)), S.Discrete(2)
    network = own_networks.actor_critic(*spaces)
    sent = cloudpickle.loads(cloudpickle.dumps(_actor_policies.SentNetwork(network)))
    made = sent(*spaces)
    made.set_weights(network.get_weights())
    seen = np.ones((3, 4), np.float32)
    for one, other in zip(made(seen), network(seen), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)

    class Unsaid(keras.layers.Layer):
        def __init__(self):
            super().__init__()

        def call(self, inputs):
            return inputs

    given = keras.Input((4,))
    with pytest.raises(TypeError, match="`network` expected .* give a function"):
        _actor_policies.SentNetwork(keras.Model(given, Unsaid()(given)))

    class Subclassed(keras.Model):
        def __init__(self, width):
            super().__init__()

    # Keras' message begins with an empty line.
    with pytest.raises(TypeError, match="again.* got NotImplementedError: Object Sub"):
        _actor_policies.SentNetwork(Subclassed(3))


def test_actors_compute_in_the_dtypes_of_the_learner():
    before = keras.config.dtype_policy()
    try:
        keras.config.set_dtype_policy("mixed_bfloat16")
        config = ppo.PPO(hidden_units=(8,))

        def made():
            return config.create(agent_rows.BOX, S.Discrete(3)).policy

        played, _ = _actor_policies.acting_of(made(), made, True)
        # As in a process that knows nothing of it.
        keras.config.set_dtype_policy("float32")
        played.begin()
        assert keras.config.dtype_policy().name == "mixed_bfloat16"
    finally:
        keras.config.set_dtype_policy(before)
