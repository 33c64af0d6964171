"""What all agents promise."""

import dataclasses
import functools
import gc
import weakref

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf
from agent_examples import BOX, assert_close, params_of, trajectory_of, two_replicas

from tfrl.agents import _minibatches, replicated
from tfrl.agents import agent as agents
from tfrl.agents.off_policy import c51, dqn, iqn, qr_dqn, rainbow
from tfrl.agents.offline import bc
from tfrl.agents.on_policy import _on_policy, a2c, impala, policy_gradient, ppo
from tfrl.core import compile, pytree, records
from tfrl.replay.sampling import transitions
from tfrl.schedules import progress, schedulers

S = gym.spaces
IMAGE = S.Box(0, 255, (36, 36, 1), np.uint8)
T, N = 6, 2
CONFIGS = {
    "ppo": ppo.PPO(
        minibatch_size=4,
        n_epochs=2,
        learning_rate=0.01,
        value_clip=0.2,
        entropy_coefficient=0.01,
        target_kl=5e-4,
        normalize_observations=True,
        normalize_rewards=True,
        hidden_units=(8,),
    ),
    "ppo_memory": ppo.PPO(
        **{"minibatch_size": 12, "n_epochs": 2, "hidden_units": (8,)},
        **{"memory": "gru", "memory_units": 2},
    ),
    "policy_gradient": policy_gradient.PolicyGradient(hidden_units=(8,)),
    "a2c": a2c.A2C(hidden_units=(8,)),
    "impala": impala.IMPALA(hidden_units=(8,)),
    "dqn": dqn.DQN(hidden_units=(8,), target_period=2, tau=0.5),
    "c51": c51.C51(hidden_units=(8,), target_period=2, n_atoms=5, double=True),
    "qr_dqn": qr_dqn.QRDQN(hidden_units=(8,), n_quantiles=5, dueling=True),
    "iqn": iqn.IQN(hidden_units=(8, 6), n_fractions=3, n_target_fractions=4),
    "rainbow": rainbow.Rainbow(hidden_units=(8,), n_atoms=5),
    "bc": bc.BC(hidden_units=(8,), learning_rate=0.01),
}
Q_LEARNING = ("dqn", "c51", "qr_dqn", "iqn", "rainbow")
COMPILED = dict.fromkeys(Q_LEARNING, _minibatches._compiled_update)
COMPILED["bc"] = bc._compiled_update
LONG = ("ppo_memory",)
kinds = pytest.mark.parametrize(
    "kind",
    [pytest.param(x, marks=[pytest.mark.slow] if x in LONG else []) for x in CONFIGS],
)


def made(kind, seed=0, space=BOX, **settings):
    config = dataclasses.replace(CONFIGS[kind], **settings)
    counts = {} if kind in COMPILED else {"n_envs": N, "n_steps": T}
    return config.create(space, S.Discrete(3, start=5), seed=seed, **counts)


def experience_of(kind, seed=0, space=BOX):
    """What an agent of a kind learns from, twelve rows."""
    seen = trajectory_of(space, S.Discrete(3), T, N, seed)
    if kind == "ppo_memory":
        seen = seen._replace(states=np.full((T, N, 4), 0.5, np.float32))
    if kind == "impala":
        seen = seen._replace(log_probs=np.full((T, N), -1.5, np.float32))
    if kind not in COMPILED:
        return seen._replace(valid=np.random.default_rng(seed).random((T, N)) < 0.7)
    data = tf.nest.map_structure(lambda x: x.reshape(3, 4, *x.shape[2:]), seen)
    if kind == "bc":
        return {"observations": data.observations, "actions": data.actions + 5}
    discounts = np.where(data.terminated, 0.0, 0.97).astype(np.float32)
    rows = records.Transition(*data[:3], discounts, data.next_observations)
    weights = np.linspace(0.2, 1.0, 12, dtype=np.float32).reshape(3, 4)
    indices = np.zeros((3, 4), np.int64)
    return transitions.Sample(rows, indices, weights, weights)


@kinds
def test_an_agent_acts_for_its_spaces_alike_from_one_seed(kind):
    agent = made(kind, seed=3)
    assert isinstance(agent, pytree.PyTreeNode)
    x = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    known = agent.policy.initial_state(64)
    act = functools.partial(agent.policy.act, x, known)
    first = act(seed=1, temperature=1.0).actions
    assert first.dtype == np.int64 and set(first) <= {5, 6, 7}
    np.testing.assert_array_equal(first, act(seed=1).actions)
    assert not np.array_equal(first, act(seed=2).actions)
    greedy, parameters = act(temperature=0.0).actions, agent.policy.outputs(x, known)[0]
    np.testing.assert_array_equal(greedy, np.argmax(parameters, -1) + 5)
    assert_close(agent, made(kind, seed=3))
    other = tf.nest.flatten(made(kind, seed=4))
    pairs = zip(tf.nest.flatten(agent), other, strict=True)
    assert any(not np.array_equal(a, b) for a, b in pairs)


@kinds
def test_an_update_repeats_leaves_the_old_agent_and_needs_one_trace(kind):
    agents = [made(kind, seed=seed) for seed in range(2)]
    networks = [agent.policy.state.model_def for agent in agents]
    before = [np.array(x) for x in tf.nest.flatten(agents[0])]
    learned = [agent.update(experience_of(kind))[0] for agent in agents]
    function = COMPILED.get(kind, _on_policy._compiled_update)
    n_traces = function.trace_count()
    again, info = agents[0].update(experience_of(kind))
    assert_close(again, learned[0])
    assert_close(agents[0], before)
    again, _ = again.update(experience_of(kind, seed=1))
    assert 0 < n_traces == function.trace_count()
    values = {name: x for name, x in info.items() if name != "priorities"}
    assert all(np.shape(x) == () and np.isfinite(x) for x in values.values())
    # What is compiled is shared, the network that a user reaches each agent's own.
    x = np.full((2, 3), 0.3, np.float32)
    known = agents[0].policy.initial_state(2)
    given = (tf.constant(x), known) if tf.is_tensor(known) else x
    for agent, network in zip(learned, networks, strict=True):
        assert agent.policy.state.model_def is network
        found = tf.nest.flatten(agent.policy.to_keras()(given))[0]
        expected = agent.policy.outputs(x, known)[0]
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.abs(networks[0](given)[0] - networks[1](given)[0]).max() > 1e-4


def test_compiled_functions_know_one_network_of_each_architecture():
    states = [made("ppo", seed=seed).policy.state for seed in range(2)]
    shared = states[0].lent()
    assert shared.model_def is states[1].lent().model_def
    assert shared.model_def not in [state.model_def for state in states]
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(shared(x)[0], states[0](x)[0], rtol=1e-6)
    back = shared.returned(states[0])
    assert back.model_def is states[0].model_def
    assert back.apply_fn == states[0].apply_fn
    for other in ({"hidden_units": (6,)}, {"activation": "relu"}):
        assert made("ppo", **other).policy.state.lent().model_def != shared.model_def
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        assert made("ppo").policy.state.lent().model_def is not shared.model_def
    found = tf.function(lambda: tf.constant(states[0].lent() is states[0]))()
    assert found, "in a graph networks are used as they are"


def test_networks_go_with_the_last_who_uses_them():
    shared = made("bc", hidden_units=(11,)).model.lent()
    network = weakref.ref(shared.model_def)
    del shared
    gc.collect()
    assert network() is None


# Policy gradients share the update of PPO.
@pytest.mark.parametrize(
    "kind",
    [
        *("ppo", pytest.param("policy_gradient", marks=pytest.mark.slow), "dqn"),
        pytest.param("impala", marks=pytest.mark.slow),
        pytest.param("ppo_memory", marks=pytest.mark.slow),
        *("iqn", pytest.param("rainbow", marks=pytest.mark.slow), "bc"),
    ],
)
def test_two_replicas_learn_what_one_learns(kind):
    alone, shared, counts = made(kind), made(kind), []
    for seed in range(3):
        alone, expected = alone.update(experience_of(kind, seed))
        with two_replicas().scope():
            shared, info = shared.update(experience_of(kind, seed))
        assert_close((shared, info), (alone, expected), rtol=1e-4, atol=2e-6)
        counts.append(float(info.get("gradient_steps", 0)))
    if kind == "ppo":
        function = replicated._function(two_replicas(), _on_policy._update)
        assert function.experimental_get_tracing_count() == 1
        # The divergence stops both after the same steps, some before the last.
        assert 0 < min(counts) < 6


@kinds
def test_rows_that_replicas_cannot_share_are_refused(kind):
    name = dict.fromkeys(Q_LEARNING, "batch_size") | {"bc": "batch"}
    name = name.get(kind, "minibatch_size")
    settings = {"ppo": {"minibatch_size": 3}, "ppo_memory": {"minibatch_size": 6}}
    agent, odd = made(kind, **settings.get(kind, {})), experience_of(kind)
    if kind in ("policy_gradient", "a2c", "impala"):
        name, odd = "trajectory", tf.nest.map_structure(lambda x: x[:3, :1], odd)
    elif kind == "ppo_memory":
        name = "minibatch_size / n_steps"
    elif kind != "ppo":
        odd = tf.nest.map_structure(lambda x: x[:, :3], odd)
    with two_replicas().scope():
        match = f"`{name}` expected .* 2 replicas .*[13]"
        with pytest.raises(ValueError, match=match):
            agent.update(odd)


@pytest.mark.parametrize(
    ("kind", "space"),
    [
        *[
            pytest.param(
                *(kind, BOX),
                id=f"{kind}-numbers",
                marks=[pytest.mark.slow] if kind in (*Q_LEARNING[1:], *LONG) else [],
            )
            for kind in CONFIGS
        ],
        pytest.param("ppo", IMAGE, id="ppo-images"),
        pytest.param("policy_gradient", IMAGE, marks=pytest.mark.slow),
        pytest.param("dqn", IMAGE, id="dqn-images"),
        pytest.param("bc", IMAGE, marks=pytest.mark.slow),
    ],
)
def test_an_update_is_compiled_as_its_network_wants(by_xla, monkeypatch, kind, space):
    trace, compiled_by_xla = compile._traces.trace, []

    def spied(function, *args):
        if function.__module__.startswith("tfrl.agents"):
            compiled_by_xla.append(args[-1])
        return trace(function, *args[:-1], False)

    monkeypatch.setattr(compile._traces, "trace", spied)
    agent = made(kind, space=space, hidden_units=(7,))
    _, info = agent.update(experience_of(kind, space=space))
    assert all(np.isfinite(x).all() for x in info.values())
    assert set(compiled_by_xla) == {space is BOX}


STEP = keras.optimizers.schedules.PiecewiseConstantDecay([3], [0.5, 0.25])
BY_STEPS = schedulers.LinearScheduler("env_steps", ((0, 0.1), (100, 0.2)))
BY_SHARE = schedulers.LinearScheduler("percent", ((0.0, 0.4), (1.0, 0.0)))
HALFWAY = progress.Progress(percent=0.5, iterations=4, env_steps=50)


@pytest.mark.parametrize(
    ("rate", "line", "expected"),
    [
        (0.3, "constant", (0.3, 0.3)),
        (0.3, "linear", (0.3, 0.15)),
        (BY_STEPS, "constant", (0.1, 0.15)),
        (BY_SHARE, "constant", (0.4, 0.2)),
        (STEP, "constant", (0.5, 0.25)),
    ],
    ids=["number", "line", "steps", "share", "Keras"],
)
def test_a_schedule_follows_its_own_progress(rate, line, expected):
    config = ppo.PPO(learning_rate=rate, learning_rate_schedule=line)
    found = [
        agents.settings_at(config, told, ["learning_rate"])["learning_rate"]
        for told in (progress.Progress(), HALFWAY, progress.Progress(percent=1.0))
    ]
    with progress.progress_context(HALFWAY):
        found[2:] = [
            agents.settings_at(config, None, ["learning_rate"])["learning_rate"]
        ]
    assert all(x.dtype == tf.float32 and x.shape == () for x in found)
    np.testing.assert_allclose(found, [*expected, expected[1]], rtol=1e-6)


@pytest.mark.parametrize(
    "kind",
    ["ppo", pytest.param("policy_gradient", marks=pytest.mark.slow), "dqn", "bc"],
)
def test_the_progress_alone_says_the_rate_of_an_update(kind):
    """So a resumed run, which knows its progress, goes on where it was."""
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([6], [1e-2, 1e-3])
    whole = {"target_kl": None, "n_epochs": 1} if kind == "ppo" else {}
    agent = made(kind, learning_rate=schedule, **whole)
    start, moves = params_of(agent), []
    for count in (6, 7):
        told = progress.Progress(iterations=count)
        learned, info = agent.update(experience_of(kind), progress=told)
        if kind != "bc":
            assert float(info["learning_rate"]) == pytest.approx(10.0 ** (4 - count))
        moves.append(
            max(np.abs(x - start[name]).max() for name, x in params_of(learned).items())
        )
    assert moves[1] == pytest.approx(moves[0] / 10, rel=0.3)


BAD_SETTINGS = {
    "learning_rate": (0.0, ValueError),
    "max_gradient_norm": (-1.0, ValueError),
    "hidden_units": (8, TypeError),
}
BAD_OF_KINDS = {
    "ppo": [
        ("hidden_units", (0,), ValueError),
        ("learning_rate", "linear", TypeError),
        ("gamma", 1.5, ValueError),
        ("n_epochs", 0, ValueError),
        ("clip_schedule", "cosine", ValueError),
        ("target_kl", -1.0, ValueError),
    ],
    "ppo_memory": [("memory", "rnn", ValueError), ("memory_units", 0, ValueError)],
    "policy_gradient": [("gamma", -0.1, ValueError)],
    "a2c": [("decay", 1.5, ValueError), ("eps", 0.0, ValueError)],
    "impala": [("clip_rho", 0.0, ValueError), ("clip_pg_rho", -1.0, ValueError)],
    "dqn": [
        ("epsilon", 1.5, ValueError),
        ("epsilon", -0.5, ValueError),
        ("target_period", 0, ValueError),
        ("target_period", 1.5, TypeError),
        ("tau", 2.0, ValueError),
        ("huber_delta", 0.0, ValueError),
        ("dueling", 1, TypeError),
        ("adam_epsilon", 0.0, ValueError),
    ],
    "c51": [
        ("n_atoms", 1, ValueError),
        ("v_min", 10.0, ValueError),
        ("v_min", np.nan, ValueError),
        ("double", 1, TypeError),
    ],
    "qr_dqn": [("n_quantiles", 0, ValueError), ("huber_delta", -1.0, ValueError)],
    "iqn": [("n_cosines", 0, ValueError), ("hidden_units", (), ValueError)],
    "rainbow": [("noise", 0.0, ValueError), ("epsilon", 2.0, ValueError)],
    "bc": [],
}


@kinds
def test_bad_settings_are_refused(kind):
    config = CONFIGS[kind]
    common = [(name, *bad) for name, bad in BAD_SETTINGS.items()]
    for name, value, error in [*common, *BAD_OF_KINDS[kind]]:
        where = f"`{type(config).__name__}`: `{name}` expected"
        with pytest.raises(error, match=where):
            dataclasses.replace(config, **{name: value})
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.learning_rate = 0.5


def test_a_schedule_cannot_fall_besides():
    with pytest.raises(ValueError, match="`PPO`: `clip_schedule` expected 'constant'"):
        ppo.PPO(clip=BY_SHARE, clip_schedule="linear")
