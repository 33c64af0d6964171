"""Policies and agents of observations with masks of allowed actions."""

import functools

import default_rows
import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf
from agent_examples import assert_close, two_replicas
from plain_graphs import plain_graphs

from tfrl.agents.off_policy import c51, dqn, iqn, qr_dqn, rainbow, sac
from tfrl.agents.offline import bc
from tfrl.agents.on_policy import policy_gradient, ppo
from tfrl.core import records
from tfrl.environments import vector
from tfrl.exporting import export
from tfrl.policies import _masks, host_policy, recurrent
from tfrl.replay.sampling import transitions
from tfrl.training import cadence, experience, trainer

S = gym.spaces
BOX = S.Box(-np.inf, np.inf, (3,))
STEER = S.Dict(press=S.Discrete(3), steer=S.Box(-1.0, 1.0, (2,)))
# Action space, options of each choice.
HEADS = {
    "discrete": (S.Discrete(4, start=2), [4]),
    "several": (S.MultiDiscrete([3, 2]), [3, 2]),
    "composite": (STEER, [3]),
}
N = 6


def space_of(n_options, **others):
    others = others or {"observation": BOX}
    return S.Dict(action_mask=S.MultiBinary(n_options), **others)


def masks_of(counts, rng, *outer):
    """Masks that allow an option of each choice, and forbid some."""
    parts = []
    for count in counts:
        part = (rng.random((*outer, count)) < 0.5).astype(np.int8)
        one = rng.integers(count, size=outer)
        np.put_along_axis(part, one[..., None], 1, axis=-1)
        parts.append(part)
    return np.concatenate(parts, axis=-1)


def seen(counts, rng, *outer):
    shown = rng.normal(size=(*outer, 3)).astype(np.float32)
    return {"action_mask": masks_of(counts, rng, *outer), "observation": shown}


def agent_of(kind="discrete", config=None, **settings):
    actions, counts = HEADS[kind]
    config = config or ppo.PPO(
        hidden_units=(8,), minibatch_size=N, n_epochs=1, max_gradient_norm=None
    )
    agent = config.create(space_of(sum(counts)), actions, seed=1, **settings)
    rng = np.random.default_rng(0)
    state = agent.policy.state
    params = {
        name: x + rng.normal(0.0, 1.0, x.shape) for name, x in state.params.items()
    }
    params = tf.nest.map_structure(lambda x: tf.constant(x, tf.float32), params)
    return agent.replace(
        policy=agent.policy.replace(state=state.replace(params=params))
    )


def masked_log_softmax(logits, mask):
    logits = np.where(mask, logits.astype(np.float64), -np.inf)
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def entropy_of(table):
    probs = np.exp(table)
    return -(probs * np.where(probs > 0, table, 0.0)).sum(-1)


def plain(agent, observations):
    """What the network says before a mask: where all is allowed."""
    free = np.ones_like(observations["action_mask"])
    return np.asarray(agent.policy.parameters({**observations, "action_mask": free}))


def chosen(actions):
    """Choices `[B, n]` of raw actions of any head here."""
    part = actions["press"] if isinstance(actions, dict) else actions
    return np.asarray(part).reshape(len(np.asarray(part)), -1)


@pytest.mark.parametrize("kind", HEADS)
def test_nobody_does_what_is_forbidden_and_log_probs_are_those_of_the_rest(kind):
    counts = HEADS[kind][1]
    agent, rng = agent_of(kind), np.random.default_rng(3)
    given = seen(counts, rng, 64)
    host = host_policy.HostPolicy(agent.policy)
    assert host.mirrored
    host.push(agent.policy, probe=given)
    exact = agent.policy.parameters(given)
    np.testing.assert_allclose(host(given), exact, rtol=1e-5, atol=1e-5)
    cuts = np.cumsum(counts)[:-1]
    masks = np.split(given["action_mask"], cuts, axis=-1)
    logits = np.split(plain(agent, given)[:, : sum(counts)], cuts, axis=-1)
    expected = [masked_log_softmax(x, m) for x, m in zip(logits, masks, strict=True)]
    tensors = tf.nest.map_structure(tf.constant, given)
    for observations in (given, tensors):
        for temperature in (1.0, 3.0, 0.0):
            acted = agent.policy.act(observations, seed=5, temperature=temperature)
            picked = chosen(acted.raw_actions)
            taken = zip(masks, picked.T, strict=True)
            assert all(mask[np.arange(64), each].all() for mask, each in taken)
        if kind != "composite":
            acted = agent.policy.act(observations, seed=5)
            columns = zip(expected, chosen(acted.raw_actions).T, strict=True)
            total = sum(table[np.arange(64), each] for table, each in columns)
            np.testing.assert_allclose(acted.log_probs, total, rtol=1e-4, atol=1e-5)
    if kind != "composite":
        found = agent.policy.head.entropy(exact)
        entropy = sum(map(entropy_of, expected))
        np.testing.assert_allclose(found, entropy, rtol=1e-4, atol=1e-5)


def test_the_mask_of_a_caller_forbids_too():
    agent, rng = agent_of(), np.random.default_rng(0)
    given = seen([4], rng, 32)
    given["action_mask"][:] = [1, 1, 1, 0]
    also = np.array([False, True, True, True])
    for observations in (given, tf.nest.map_structure(tf.constant, given)):
        for policy in (agent.policy, agent_of(config=dqn.DQN(epsilon=1.0)).policy):
            acted = policy.act(observations, seed=1, mask=np.tile(also, (32, 1)))
            assert set(np.asarray(acted.raw_actions)) == {1, 2}
            with pytest.raises(ValueError, match="must allow|an allowed option"):
                policy.act(observations, seed=1, mask=np.tile(~also[::-1], (32, 1)))


@pytest.mark.parametrize("dueling", [False, True])
def test_random_actions_are_allowed_ones(dueling):
    config = dqn.DQN(epsilon=1.0, dueling=dueling, hidden_units=(8,))
    agent, rng = agent_of(config=config), np.random.default_rng(1)
    given = seen([4], rng, 2000)
    given["action_mask"][:] = [1, 0, 1, 1]
    for observations in (given, tf.nest.map_structure(tf.constant, given)):
        actions = np.asarray(agent.policy.act(observations, seed=0).actions)
        shares = np.bincount(actions - 2, minlength=4) / 2000
        np.testing.assert_allclose(shares, [1 / 3, 0, 1 / 3, 1 / 3], atol=0.04)


def trajectory(rng, counts, actions):
    shape = (2, 3)
    flags = np.zeros(shape, bool)
    return records.Trajectory(
        observations=seen(counts, rng, *shape),
        actions=actions,
        rewards=rng.normal(size=shape).astype(np.float32),
        terminated=flags,
        truncated=flags,
        next_observations=seen(counts, rng, *shape),
        valid=~flags,
    )


@pytest.mark.parametrize(
    "config",
    [ppo.PPO, pytest.param(policy_gradient.PolicyGradient, marks=pytest.mark.slow)],
)
def test_what_is_learned_is_the_masked_distribution(config):
    """Entropy and KL of the info, and which weights of the last layer move."""
    settings = {"hidden_units": (8,), "entropy_coefficient": 0.1}
    if config is ppo.PPO:
        settings |= {"minibatch_size": N, "n_epochs": 1}
    agent, rng = agent_of(config=config(**settings)), np.random.default_rng(2)
    given = trajectory(rng, [4], None)
    given.observations["action_mask"][..., 3] = 0
    given.observations["action_mask"][..., 0] = 1
    mask = given.observations["action_mask"]
    actions = np.argmax(mask * rng.random(mask.shape), axis=-1).astype(np.int32)
    # In the last state nothing is allowed: nobody acts there.
    given.next_observations["action_mask"][-1] = 0
    with plain_graphs():
        learned, info = agent.update(given._replace(actions=actions))
    flat = tf.nest.map_structure(lambda x: x.reshape(N, -1), given.observations)
    table = masked_log_softmax(plain(agent, flat), flat["action_mask"])
    entropy = entropy_of(table).mean()
    np.testing.assert_allclose(info["entropy"], entropy, rtol=1e-4)
    if config is ppo.PPO:
        # At the first step the policy is the one that acted.
        assert abs(float(info["approx_kl"])) < 1e-6
    (name,) = [x for x in agent.policy.state.params if x.endswith("actor/output/bias")]
    moved = learned.policy.state.params[name] - agent.policy.state.params[name]
    assert np.isfinite(moved).all() and moved[3] == 0.0 and np.all(moved[:3] != 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("double", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_targets_look_at_allowed_next_actions_alone(double):
    config = dqn.DQN(double=double, hidden_units=(8,), huber_delta=None)
    agent, rng = agent_of(config=config), np.random.default_rng(4)
    other = agent_of(config=config, network=None)
    target = {n: 0.5 * x for n, x in other.policy.state.params.items()}
    agent = agent.replace(target_params=target)
    before, after = seen([4], rng, N), seen([4], rng, N)
    after["action_mask"][-1] = 0  # where an episode ends
    actions = np.argmax(before["action_mask"], axis=-1)
    rewards = rng.normal(size=N).astype(np.float32)
    discounts = np.array([0.9] * (N - 1) + [0.0], np.float32)
    rows = records.Transition(before, actions, rewards, discounts, after)
    ones = np.ones(N, np.float32)
    with plain_graphs():
        learned, info = agent.update(transitions.Sample(rows, None, ones, ones))
    state = agent.policy.state
    old = agent.replace(policy=agent.policy.replace(state=state.replace(params=target)))
    values = plain(agent, before)[np.arange(N), actions]
    later, chooser = plain(old, after), plain(agent if double else old, after)
    best = np.where(after["action_mask"], chooser, -np.inf).argmax(-1)
    targets = rewards + discounts * later[np.arange(N), best]
    found = info["priorities"]
    np.testing.assert_allclose(found, np.abs(targets - values), rtol=1e-4, atol=1e-5)
    leaves = tf.nest.flatten(learned)
    assert all(np.isfinite(x).all() for x in leaves)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "learned"),
    [
        (
            ppo.PPO(hidden_units=(8,), minibatch_size=8, n_epochs=1),
            experience.Trajectories(n_steps=8),
        ),
        (
            dqn.DQN(hidden_units=(8,), epsilon=0.3),
            experience.Replayed(1000, batch_size=8, n_steps=8, learning_starts=32),
        ),
    ],
)
def test_runs_go_on_as_if_they_had_not_stopped(tmp_path, config, learned):
    make = functools.partial(
        vector.make_vec, "Taxi-v4", vectorization="sync", action_masks=True
    )

    def run(name, n_epochs, resume=False):
        with trainer.Trainer(
            tmp_path / name,
            n_epochs,
            resume=resume,
            agent=config,
            make_envs=make,
            n_envs=2,
            experience=learned,
            intervals=cadence.Intervals(4, eval_episodes=2, checkpoint_epochs=4),
        ) as running:
            running.run(quiet=True)
        return running.agent

    whole = run("whole", 16)
    run("cut", 8)
    resumed = run("cut", 16, resume=True)
    assert_close(resumed, whole)


@pytest.mark.slow
def test_two_replicas_learn_what_one_learns():
    agent, rng = agent_of(), np.random.default_rng(2)
    given = trajectory(rng, [4], None)
    actions = np.argmax(given.observations["action_mask"], axis=-1).astype(np.int32)
    given = given._replace(actions=actions)
    alone, expected = agent.update(given)
    with two_replicas().scope():
        shared, info = agent_of().update(given)
    assert_close((shared, info), (alone, expected), rtol=1e-4, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("config", [c51.C51, qr_dqn.QRDQN, iqn.IQN, sac.SAC])
def test_others_learn_by_what_is_allowed(config):
    agent, rng = agent_of(config=config(hidden_units=(8,))), np.random.default_rng(4)
    before, after = seen([4], rng, N), seen([4], rng, N)
    actions = np.argmax(before["action_mask"], axis=-1)
    ones = np.ones(N, np.float32)
    rows = records.Transition(before, actions, ones, 0.9 * ones, after)
    with plain_graphs():
        learned, info = agent.update(transitions.Sample(rows, None, ones, ones))
    assert all(np.isfinite(x).all() for x in tf.nest.flatten((learned, info)))
    given = seen([4], rng, 64)
    acted = learned.policy.act(given, seed=0)
    assert given["action_mask"][np.arange(64), acted.raw_actions].all()


@pytest.mark.parametrize(
    "config",
    [
        dqn.DQN,
        *(pytest.param(x, marks=pytest.mark.slow) for x in (c51.C51, qr_dqn.QRDQN)),
        pytest.param(iqn.IQN, marks=pytest.mark.slow),
    ],
)
def test_a_last_observation_that_allows_nothing_is_bootstrapped_from_as_if_all(config):
    agent, rng = agent_of(config=config(hidden_units=(8,))), np.random.default_rng(4)
    before, after = seen([4], rng, N), seen([4], rng, N)
    actions, ones = np.argmax(before["action_mask"], axis=-1), np.ones(N, np.float32)
    found = []
    for allowed in (0, 1):
        after["action_mask"][-2:] = allowed
        rows = records.Transition(before, actions, ones, 0.9 * ones, after)
        with plain_graphs():
            found.append(agent.update(transitions.Sample(rows, None, ones, ones)))
    assert_close(*found)


def test_an_actor_is_as_free_where_nothing_of_a_choice_is_allowed():
    agent = agent_of("several", sac.SAC(hidden_units=(8,)))
    state, rng = agent.policy.state, np.random.default_rng(0)
    given = seen([3, 2], rng, 4)
    noise = [tf.constant(rng.gumbel(size=(4, 5)), tf.float32)]
    found = []
    for allowed in (0, 1):
        given["action_mask"][2, 3:] = allowed
        shaped = agent._shaped(state, state.params, given)
        found.append(agent._drawn(shaped, noise))
    assert_close(*found)
    # The rest of the row is still masked.
    logits = np.asarray(agent.policy.parameters(given))
    np.testing.assert_array_equal(np.isneginf(logits), given["action_mask"] == 0)


def test_networks_see_the_rest():
    """One part as it is, several as a dict; own networks, memories, normalization."""
    parts = {"bits": S.MultiBinary(2), "observation": BOX}
    policy = ppo.PPO().create(space_of(2, **parts), S.Discrete(2)).policy
    assert [key for key, _ in policy.state.model_def.network.kinds[1]] == [*parts]
    shown = []

    def network(observations, actions):
        shown.append((observations, actions))
        return keras.Sequential([keras.Input([3]), keras.layers.Dense(4)])

    agent = agent_of(config=dqn.DQN(), network=network)
    assert shown == [(BOX, HEADS["discrete"][0])]
    given = seen([4], np.random.default_rng(0), 5)
    model = agent.policy.to_keras()
    np.testing.assert_allclose(model(given), agent.policy.parameters(given), rtol=1e-5)
    assert np.isneginf(model(given)).any()
    floats = S.Dict(action_mask=S.Box(0.0, 1.0, (4,)), observation=BOX)
    config = ppo.PPO(normalize_observations=True)
    policy = config.create(floats, S.Discrete(4)).policy
    assert policy.observation_moments[0] == ()
    given["action_mask"] = given["action_mask"].astype(np.float32)
    policy = policy.update_moments(given, tf.ones([5]))
    found = host_policy.HostPolicy(policy)(given)
    np.testing.assert_allclose(found, policy.parameters(given), rtol=1e-4, atol=1e-5)
    remembering = recurrent.RecurrentPolicy.create(
        floats, S.Discrete(4), units=4, learner=policy.state.create
    )
    acted = remembering.act(given, remembering.initial_state(5), seed=0)
    assert given["action_mask"][np.arange(5), acted.actions].all()


@pytest.mark.slow
def test_what_is_exported_obeys(tmp_path):
    agent = agent_of("several")
    space, actions = space_of(5), HEADS["several"][0]
    export.export_policy(agent, tmp_path / "policy", space, actions)
    assert max(export.verify(tmp_path / "policy").values()) <= 1e-5
    served = tf.saved_model.load(tmp_path / "policy").signatures["sample"]
    given = seen([3, 2], np.random.default_rng(0), 50)
    found = served(
        **tf.nest.map_structure(tf.constant, given), seed=tf.constant([1, 2])
    )
    rows, picked = np.arange(50), found["actions"].numpy()
    assert given["action_mask"][rows, picked[:, 0]].all()
    assert given["action_mask"][rows, 3 + picked[:, 1]].all()


def test_masks_that_allow_nothing_are_refused_where_one_acts():
    agent, rng = agent_of("several"), np.random.default_rng(0)
    given = seen([3, 2], rng, 4)
    given["action_mask"][2, 3:] = 0
    for observations in (given, tf.nest.map_structure(tf.constant, given)):
        with pytest.raises(ValueError, match="none in 1 of 4"):
            agent.policy.act(observations, seed=0)
    # In a graph, which does not look at numbers, all count as allowed.
    act = tf.function(lambda x: agent.policy.act(x, seed=0), autograph=False)
    assert np.isfinite(act(given).log_probs).all()


@pytest.mark.parametrize(
    ("space", "actions", "match"),
    [
        (space_of(3), S.Discrete(2), r"2 options of the action space.*got MultiBinary"),
        (
            S.Dict(action_mask=S.Box(-1.0, 1.0, (2,)), x=BOX),
            S.Discrete(2),
            "expected zeros and ones",
        ),
        (space_of(2), S.Box(-1.0, 1.0, (2,)), "expected actions that are choices"),
        (S.Dict(action_mask=S.MultiBinary(2)), S.Discrete(2), "another part"),
    ],
)
def test_masks_of_other_spaces_are_refused(space, actions, match):
    with pytest.raises(ValueError, match=match):
        ppo.PPO().create(space, actions)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_networks_are_told_apart_and_saved(tmp_path):
    agent = agent_of("composite")
    model = agent.policy.to_keras()
    model.save(tmp_path / "policy.keras")
    given = seen([3], np.random.default_rng(0), 4)
    kept = keras.models.load_model(tmp_path / "policy.keras")
    np.testing.assert_allclose(kept(given)[0], model(given)[0], rtol=1e-6)
    network = agent.policy.state.model_def
    assert isinstance(network, _masks.MaskedNetwork)
    assert network.architecture != network.network.architecture


GOES_ON = {
    "PPO": (ppo.PPO(normalize_observations=True), ppo.PPO(gamma=0.9)),
    "BC": (bc.BC(), ppo.PPO()),
    "memory": (
        ppo.PPO(memory="gru", memory_units=4, minibatch_size=128),
        ppo.PPO(memory="own", memory_units=8, minibatch_size=128),
    ),
    "DQN": (dqn.DQN(), dqn.DQN(double=True)),
    "C51": (c51.C51(), c51.C51(double=True)),
    "QRDQN": (qr_dqn.QRDQN(), qr_dqn.QRDQN(double=True)),
    "Rainbow": (rainbow.Rainbow(), c51.C51()),
}


@pytest.mark.parametrize("is_masked", [True, False])
@pytest.mark.parametrize(
    ("kind", "old", "new"),
    default_rows.params({x: (x, *pair) for x, pair in GOES_ON.items()}, ["PPO", "DQN"]),
)
def test_what_was_learned_goes_on_with_other_settings(kind, old, new, is_masked):
    spaces = space_of(4) if is_masked else BOX, HEADS["discrete"][0]
    given = seen([4], np.random.default_rng(0), 5)
    given = given if is_masked else given["observation"]
    policy = old.create(*spaces, seed=1).policy
    if policy.observation_moments:
        policy = policy.update_moments(given, tf.ones([5]))
    network = policy.to_keras(as_network=True)
    other = new.create(*spaces, network=network, seed=2).policy
    state = policy.initial_state(5)
    wanted, found = (x.outputs(given, state)[0] for x in (policy, other))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert np.isneginf(wanted).any() == is_masked
    is_mean = kind in ("C51", "QRDQN", "Rainbow")
    if is_masked or is_mean:
        with pytest.raises(ValueError, match=r"give `policy.to_keras\(as_network"):
            new.create(*spaces, network=policy.to_keras())


def test_implicit_quantiles_are_no_network_of_one_agent_for_another():
    policy = iqn.IQN().create(BOX, S.Discrete(4)).policy
    with pytest.raises(ValueError, match="`as_network` expected False of implicit"):
        policy.to_keras(as_network=True)
