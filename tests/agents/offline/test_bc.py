"""Tests of `tfrl.agents.offline.bc`; what others do too is in `test_agent`."""

import agent_examples
import default_rows
import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import gradient_transforms, train_state
from tfrl.agents.offline import bc
from tfrl.agents.on_policy import ppo
from tfrl.core import records
from tfrl.distributions import heads_of_spaces
from tfrl.environments import vector
from tfrl.training import evaluation

S = gym.spaces
BOX = S.Box(-1.0, 1.0, (3,))
SPACES = {
    "discrete": S.Discrete(3, start=5),
    "multi_discrete": S.MultiDiscrete([3, 2]),
    "box": S.Box(-2.0, 2.0, (2,)),
}


def make_agent(action_space=None, seed=0, **settings):
    space = S.Discrete(3) if action_space is None else action_space
    settings = {"hidden_units": (8,), "learning_rate": 0.01, **settings}
    return bc.BC(**settings).create(BOX, space, seed=seed)


def make_batch(space=None, n_rows=6, seed=0):
    space = S.Discrete(3) if space is None else space
    space.seed(seed)
    observations = np.random.default_rng(seed).normal(size=(n_rows, 3))
    return {
        "observations": observations.astype(np.float32),
        "actions": np.stack([space.sample() for _ in range(n_rows)]),
    }


def dense_layers(agent):
    params = agent.model.params
    names = [f"actor_critic/actor/{name}" for name in ("hidden_0", "output")]
    return [
        (np.array(params[f"{n}/kernel"], float), np.array(params[f"{n}/bias"], float))
        for n in names
    ]


def plain_step(agent, batch):
    """One gradient step on logits by matrices; Adam's first goes by the sign."""
    (w1, b1), (w2, b2) = dense_layers(agent)
    x, actions = batch["observations"].astype(float), batch["actions"]
    hidden = np.maximum(x @ w1 + b1, 0.0)
    logits = hidden @ w2 + b2
    probs = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    rows = np.arange(len(x))
    info = {
        "actor_loss": -np.log(probs[rows, actions]).mean(),
        "accuracy": (logits.argmax(-1) == actions).mean(),
        "entropy": -(probs * np.log(probs)).sum(-1).mean(),
    }
    error = probs.copy()
    error[rows, actions] -= 1.0
    error /= len(x)
    back = (error @ w2.T) * (hidden > 0)
    grads = [x.T @ back, back.sum(0), hidden.T @ error, error.sum(0)]
    weights = [w1, b1, w2, b2]
    return info, [
        w - 0.01 * g / (np.abs(g) + 1e-8) for w, g in zip(weights, grads, strict=True)
    ]


def test_one_step_equals_the_algorithm_written_out():
    agent, batch = make_agent(), make_batch()
    expected, stepped = plain_step(agent, batch)
    updated, info = agent.update(batch)
    assert set(info) == set(expected)
    for name, value in expected.items():
        assert float(info[name]) == pytest.approx(value, abs=1e-6), name
    found = [part for layer in dense_layers(updated) for part in layer]
    for got, wanted in zip(found, stepped, strict=True):
        np.testing.assert_allclose(got, wanted, atol=2e-6)
    assert int(updated.model.step) == int(agent.model.step) + 1
    for name, value in agent.model.params.items():
        same = np.array_equal(updated.model.params[name], value)
        assert same == ("/critic/" in name), name


@pytest.mark.parametrize(
    "name",
    ["discrete", *default_rows.slow("multi_discrete", "box")],
)
def test_every_kind_of_action_is_imitated(name):
    space = SPACES[name]
    agent = make_agent(
        space, hidden_units=(32,), squash=name == "box", max_gradient_norm=10.0
    )
    batch = make_batch(space, n_rows=4)
    _, first = agent.update(batch)
    for _ in range(100):
        agent, info = agent.update(batch)
    assert float(info["actor_loss"]) < float(first["actor_loss"]) - 0.5
    greedy = agent.sample_actions(batch["observations"], temperature=0.0)
    if name == "box":
        assert float(info["mse_loss"]) < 0.1 * float(first["mse_loss"])
        np.testing.assert_allclose(greedy, batch["actions"], atol=0.5)
    else:
        assert float(info["accuracy"]) == 1.0
        np.testing.assert_array_equal(greedy, batch["actions"])
    drawn = agent.sample_actions(batch["observations"], seed=1)
    assert drawn.dtype == space.dtype
    assert all(space.contains(action) for action in drawn)


def test_a_plain_model_of_logits_is_enough():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)])
    state = train_state.TrainState.create(model, tx=gradient_transforms.adam(0.1))
    agent, batch = bc.BCAgent(state), make_batch(S.Discrete(4))
    for _ in range(80):
        agent, info = agent.update(batch)
    assert set(info) == {"actor_loss", "accuracy", "entropy"}
    chosen = agent.sample_actions(batch["observations"], argmax=True)
    assert chosen.dtype == tf.int32 and chosen.shape == [6]
    assert float(info["accuracy"]) == np.mean(chosen == batch["actions"])
    with pytest.raises(ValueError, match="`BCAgent.policy`: `model` expected"):
        _ = agent.policy


@pytest.mark.parametrize(
    ("head", "functional"),
    [(None, False), (S.Box(-2.0, 2.0, (2,)), True)],
    ids=["choices", "functional"],
)
def test_dense_layers_act_in_numpy_as_in_tensorflow(head, functional):
    layers = [keras.layers.Dense(8, "tanh"), keras.layers.Dense(4, use_bias=False)]
    model = keras.Sequential([keras.Input((3,)), *layers])
    if functional:
        model = keras.Model(model.inputs, model.outputs[0])
    tx = gradient_transforms.adam(0.1)
    kind = head and heads_of_spaces.action_head(head)
    agent = bc.BCAgent(train_state.TrainState.create(model, tx=tx), head=kind)
    x = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    batch = make_batch(head or S.Discrete(4))
    for _ in range(2):  # the newer weights count
        rows = np.repeat(x[:1], 4000, axis=0)
        drawn = [agent.sample_actions(y, seed=1) for y in (rows, tf.constant(rows))]
        for chosen in (agent.sample_actions(x, argmax=True), drawn[0]):
            assert tf.is_tensor(chosen) and chosen.dtype == drawn[1].dtype
        assert drawn[0].shape == drawn[1].shape
        same, other = (np.mean(y, axis=0) for y in drawn)
        np.testing.assert_allclose(same, other, atol=0.1)
        for given in (x, x.astype(np.float64)):
            np.testing.assert_allclose(
                agent.sample_actions(given, temperature=0.0),
                agent.sample_actions(tf.constant(x), temperature=0.0),
                rtol=1e-4,
                atol=1e-5,
            )
        agent, _ = agent.update(batch)
    again = agent.sample_actions(x, seed=1), agent.sample_actions(x, seed=1)
    np.testing.assert_array_equal(*again)
    drawn = tf.function(lambda: agent.sample_actions(x, seed=1))()
    assert drawn.dtype == again[0].dtype


def test_an_own_model_may_call_a_layer_outputs():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.outputs = keras.layers.Dense(4)

        def call(self, x):
            return self.outputs(x)

    model = Own()
    model(np.zeros((1, 3), np.float32))
    agent = bc.BCAgent(train_state.TrainState.create(model))
    x = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    chosen = agent.sample_actions(x, argmax=True)
    np.testing.assert_array_equal(chosen, np.argmax(model(x), -1))


def test_temperature_divides_logits_and_multiplies_deviations():
    logits = np.log([[0.5, 0.3, 0.2]]).astype(np.float32)
    state = train_state.TrainState.create(
        lambda params, x: x @ params, tf.eye(3), gradient_transforms.sgd(0.1)
    )
    agent, rows = bc.BCAgent(state), np.repeat(logits, 4000, axis=0)
    for temperature, first in [(0.5, 0.25 / 0.38), (2.0, 0.4154)]:
        drawn = agent.sample_actions(rows, seed=3, temperature=temperature)
        assert np.mean(drawn == 0) == pytest.approx(first, abs=0.03)
    again = agent.sample_actions(rows, seed=3, temperature=2.0)
    np.testing.assert_array_equal(drawn, again)
    agent = make_agent(S.Box(-np.inf, np.inf, (1,)), log_std=0.5)
    rows = np.zeros((4000, 3), np.float32)
    spread = [
        np.std(agent.sample_actions(rows, seed=0, temperature=t)) for t in (1.0, 0.25)
    ]
    np.testing.assert_allclose(spread, np.exp(0.5) * np.array([1.0, 0.25]), rtol=0.05)


def test_records_and_keys_beside_are_taken():
    agent, batch = make_agent(), make_batch()
    expected, _ = agent.update(batch)
    before = bc._compiled_update.trace_count()
    rewards = np.zeros(6, np.float32)
    record = records.Transition(
        **batch, rewards=rewards, discounts=1, next_observations=0
    )
    for given in ({**batch, "masks": rewards}, record):
        updated, _ = agent.update(given)
        for name, value in expected.model.params.items():
            np.testing.assert_array_equal(updated.model.params[name], value)
    assert bc._compiled_update.trace_count() == before


def test_bad_batches_are_refused():
    no_rows = {"actions": np.zeros(0, int), "observations": np.zeros((0, 3), "f")}
    lengths = "leaves of the same length"
    for change, error, message in (
        ({"actions": None}, ValueError, "got dict without .'actions'."),
        ({"actions": np.zeros(5, int)}, ValueError, lengths),
        (no_rows, ValueError, "at least 1"),
        ({"actions": np.zeros(6, "f")}, TypeError, "actions that are integers"),
        (
            {"observations": np.zeros((6, 4), "f")},
            *(ValueError, r"`batch.observations` must have shape .*got \(6, 4\)"),
        ),
        ({"actions": np.full(6, 3)}, ValueError, r"in \[0, 2\]; got some in \[3, 3\]"),
        ({"actions": np.zeros((6, 1), int)}, ValueError, lengths + r".* got .*.6, 1."),
    ):
        batch = {k: v for k, v in {**make_batch(), **change}.items() if v is not None}
        with pytest.raises(error, match=message):
            make_agent().update(batch)


def test_the_policy_acts_and_is_made_once():
    agent, x = make_agent(), make_batch()["observations"]
    drawn = agent.sample_actions(x, seed=3)
    assert isinstance(drawn, np.ndarray) and agent.policy is agent.policy
    np.testing.assert_array_equal(drawn, agent.policy.act(x, seed=3).actions)
    newer, _ = agent.update(make_batch())
    assert newer.policy.state is newer.model
    tensors = agent.sample_actions(tf.constant(x), argmax=True)
    assert tf.is_tensor(tensors)
    best = np.argmax(agent.policy.parameters(x), -1)
    np.testing.assert_array_equal(tensors, best)
    # Other learners go on from here.
    config = ppo.PPO(hidden_units=(8,), activation="relu", minibatch_size=2)
    learner = config.create(BOX, S.Discrete(3), n_envs=2, n_steps=1, seed=5)
    state = learner.policy.state.replace(params=agent.policy.state.params)
    acting = learner.policy.replace(state=state)
    np.testing.assert_array_equal(acting.act(x, temperature=0.0).actions, best)


def test_bad_numbers_are_refused():
    for temperature in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="`temperature` expected"):
            make_agent().sample_actions(np.zeros((1, 3), "f"), temperature=temperature)
    with pytest.raises(ValueError, match="`observations` expected finite numbers"):
        make_agent().sample_actions(np.full((1, 3), np.nan, "f"), seed=0)
    agent = make_agent(S.Box(-1.0, 1.0, (1,)))
    batch = {"observations": np.zeros((1, 3), "f"), "actions": np.full((1, 1), np.nan)}
    with pytest.raises(ValueError, match="`batch` expected finite observations"):
        agent.update({"observations": np.full((1, 3), np.inf), "actions": [[0.5]]})
    with pytest.raises(ValueError, match="expected finite actions"):
        agent.update(batch)
    model = train_state.TrainState.create(
        lambda params, x: params * x[:, 0], tf.ones([]), gradient_transforms.sgd(0.1)
    )
    keras_model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(3)])
    tx = gradient_transforms.sgd(0.1)
    own = bc.BCAgent(train_state.TrainState.create(keras_model, tx=tx))
    with pytest.raises(ValueError, match=r"`batch` expected .*'B', 1.*got .'B', 3"):
        own.update(make_batch())
    with pytest.raises(ValueError, match="`model` expected to return logits"):
        bc.BCAgent(model).update(make_batch())


@pytest.mark.parametrize(
    "name", ["discrete", pytest.param("box", marks=pytest.mark.slow)]
)
def test_another_agent_goes_on_with_the_network_and_an_optimizer_of_its_own(name):
    space = SPACES[name]
    agent, _ = make_agent(space).update(make_batch(space))
    began = ppo.PPO(max_gradient_norm=0.1, minibatch_size=2, n_epochs=1).create(
        BOX, space, network=agent.policy.to_keras()
    )
    new, plain = began.policy, ppo.PPO(max_gradient_norm=0.1).create(BOX, space).policy
    x = np.random.default_rng(2).normal(size=(9, 3)).astype(np.float32)
    drawn = [policy.act(x, seed=4).raw_actions for policy in (agent.policy, new)]
    np.testing.assert_allclose(*drawn, atol=1e-6)
    np.testing.assert_allclose(agent.policy.values(x), new.values(x), atol=1e-6)
    assert new.state.tx == plain.state.tx != agent.policy.state.tx
    assert int(new.state.step) == 1
    unused = new.state.tx.init(new.state.params)
    tf.nest.map_structure(np.testing.assert_array_equal, new.state.opt_state, unused)
    learned, _ = began.update(agent_examples.trajectory_of(BOX, space, 2, 2))
    assert np.any(learned.policy.values(x) != new.values(x))


def test_squash_is_the_agents_and_not_the_networks():
    box, x = gym.spaces.Box(0.0, 10.0, (1,)), np.ones((3, 3), np.float32)
    cloned = bc.BC(squash=True).create(BOX, box, seed=0).policy
    network, drawn = cloned.to_keras(as_network=True), []
    for squash in (True, False):
        began = ppo.PPO(squash=squash).create(BOX, box, network=network).policy
        drawn.append(began.act(x, seed=1).actions)
    wanted = cloned.act(x, seed=1).actions
    np.testing.assert_allclose(drawn[0], wanted, rtol=1e-5)
    assert np.abs(drawn[1] - wanted).max() > 0.1


@pytest.mark.slow
def test_clones_an_expert_that_balances_the_pole():
    """From 20 episodes of a linear rule to the full 500 steps in new ones."""
    envs = vector.make_vec("CartPole-v1", 20)

    def expert(observations):
        return (observations @ [0.05, 0.1, 1.0, 0.5] > 0).astype(np.int64)

    observations, _ = envs.reset(seed=0)
    seen = []
    for _ in range(400):
        seen.append(observations)
        observations = envs.step(expert(observations))[0]
    data = np.concatenate(seen)
    agent = bc.BC(learning_rate=1e-3, hidden_units=(64, 64)).create(
        envs.single_observation_space, envs.single_action_space
    )

    def play():
        return evaluation.evaluate(
            lambda x: agent.sample_actions(x, argmax=True), envs, 20, seed=7
        ).returns.mean()

    assert play() < 100
    rng = np.random.default_rng(1)
    for _ in range(1000):
        rows = data[rng.integers(len(data), size=256)]
        agent, info = agent.update({"observations": rows, "actions": expert(rows)})
    assert float(info["accuracy"]) > 0.95
    assert play() >= 475
    envs.close()
