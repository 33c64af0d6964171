"""Adapted layers of Keras: what computes with their variables, and who copies these."""

import functools

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

import tfrl
from tfrl import agents
from tfrl._internal import adapted_layers

ROWS = np.random.default_rng(0).normal(3.0, 2.0, (64, 4)).astype(np.float32)
SPACES = gym.spaces.Box(-np.inf, np.inf, (4,)), gym.spaces.Discrete(2)


def network(adapted=True, seed=1):
    """Of layers of Keras alone, one of which knows the moments of `ROWS`, or none."""
    keras.utils.set_random_seed(seed)
    scale = keras.layers.Normalization(name="scale")
    if adapted:
        scale.adapt(ROWS)
    dense = keras.layers.Dense(2, name="out")
    return keras.Sequential([keras.Input([4]), scale, dense], name="net")


def assert_alike(one, other):
    np.testing.assert_allclose(one(ROWS), other(ROWS), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
def test_a_state_computes_with_what_it_holds(mode):
    known, unknown = network(), network(adapted=False)
    states = [
        agents.TrainState.create(each, tx=agents.adam(1e-3))
        for each in (known, unknown)
    ]
    moved = states[1].replace(
        **{
            name: dict(zip(getattr(states[1], name), found.values(), strict=True))
            for name in ("params", "extra_variables")
            for found in [getattr(states[0], name)]
        }
    )
    call = lambda state, x: state(x)  # noqa: E731
    if mode != "eager":
        call = tf.function(call, autograph=False, jit_compile=mode == "xla")
    before = unknown(ROWS).numpy()
    np.testing.assert_allclose(call(moved, ROWS), known(ROWS), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(unknown(ROWS), before)
    assert_alike(moved.to_keras(), known)


def test_a_network_of_them_makes_the_same_model():
    agent = agents.DQN().create(*SPACES, network=network())
    model = agent.policy.to_keras()
    np.testing.assert_allclose(model(ROWS), network()(ROWS), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("nested", [False, True])
def test_checkpoints_bring_them_back(nested, tmp_path):
    known, unknown = network(), network(adapted=False, seed=2)

    def items(model):
        return {"nets": {"critics": [model]}} if nested else {"net": model}

    tfrl.saving.Checkpointer(tmp_path, **items(known)).save(1)
    tfrl.saving.Checkpointer(tmp_path, **items(unknown)).load()
    assert_alike(known, unknown)


@pytest.mark.parametrize("clone", [False, True])
def test_targets_start_as_what_they_follow(clone):
    known = network()
    target = keras.models.clone_model(known) if clone else network(adapted=False)
    tfrl.layers.TargetUpdater({"q": known}, {"q": target})
    assert_alike(known, target)


def test_runs_are_opened_as_they_were(tmp_path):
    with tfrl.training.Trainer(
        tmp_path / "run",
        1,
        agent=agents.A2C(),
        network=policy_network(),
        make_envs=functools.partial(
            tfrl.environments.make_vec, "CartPole-v1", vectorization="sync"
        ),
        n_envs=2,
        experience=tfrl.training.Trajectories(4),
        intervals=tfrl.training.Intervals(eval_episodes=1),
    ) as trainer:
        trainer.run(quiet=True)
        wanted = trainer.agent.policy.state(ROWS)
    with tfrl.rl_trainer.open_run(tmp_path / "run") as run:
        for one, other in zip(run.policy.state(ROWS), wanted, strict=True):
            np.testing.assert_array_equal(one, other)


def policy_network():
    inputs = keras.Input([4])
    seen = network()(inputs)
    values = keras.layers.Reshape([])(keras.layers.Dense(1)(seen))
    return keras.Model(inputs, [seen, values])


def test_constants_stay_when_a_call_fails():
    layer = keras.layers.Normalization()
    layer.build((None, 1))
    before = layer.mean
    with pytest.raises(KeyError), adapted_layers.following([layer]):
        raise KeyError
    assert layer.mean is before
