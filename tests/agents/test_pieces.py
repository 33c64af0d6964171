"""Tests of `tfrl.agents._pieces`."""

import time
from typing import Any, NamedTuple

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import _pieces, bc, policy_gradient, ppo, replicated, train_state
from tfrl.core import compile, records

IMAGE = gym.spaces.Box(0, 255, (36, 36, 1), np.uint8)
BOX = gym.spaces.Box(-1.0, 1.0, (3,))


class Inside(keras.layers.Layer):
    """A layer of layers that are in containers."""

    def __init__(self, *parts):
        super().__init__()
        self.parts = {"first": [parts[0]], "others": list(parts[1:])}

    def call(self, inputs):
        for part in (*self.parts["first"], *self.parts["others"]):
            inputs = part(inputs)
        return inputs


def state_of(model):
    return train_state.TrainState.create(model)


def dense():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])


def convolutional():
    layers = keras.layers.Conv2D(2, 2), keras.layers.Flatten(), keras.layers.Dense(1)
    model = Inside(*layers)
    model(np.zeros((1, 4, 4, 1), np.float32))
    return model


def trajectory_of(space, n_steps=4, n_envs=2, seed=0):
    rng = np.random.default_rng(seed)
    shape = (n_steps + 1, n_envs, *space.shape)
    shown = rng.integers(0, 200, shape).astype(space.dtype)
    flags = rng.random((n_steps, n_envs)) < 0.2
    return records.Trajectory(
        shown[:-1],
        rng.integers(0, 2, (n_steps, n_envs)).astype(np.int32),
        rng.normal(size=(n_steps, n_envs)).astype(np.float32),
        flags,
        np.zeros_like(flags),
        shown[1:],
        np.ones_like(flags),
    )


def make_agent(config, space):
    return config.create(space, gym.spaces.Discrete(2), seed=0)


@pytest.mark.parametrize("space", [BOX, IMAGE], ids=["numbers", "images"])
@pytest.mark.parametrize("agent", ["ppo", "policy_gradient", "bc"])
def test_every_agent_is_compiled_as_its_network_wants(monkeypatch, agent, space):
    trace, compiled_by_xla = compile._traces.trace, []

    def spied(function, bound, nests, leaves, relaxed, jit_compile):
        if function.__module__.startswith("tfrl.agents"):
            compiled_by_xla.append(jit_compile)
        return trace(function, bound, nests, leaves, relaxed, jit_compile)

    monkeypatch.setattr(compile._traces, "trace", spied)
    trajectory = trajectory_of(space)
    if agent == "bc":
        learner = bc.BC(hidden_units=(7,)).create(space, gym.spaces.Discrete(2))
        flat = trajectory.observations.reshape(8, *space.shape)
        learner.update({"observations": flat, "actions": np.zeros(8, np.int32)})
    else:
        config = ppo.PPO(minibatch_size=4, n_epochs=2, hidden_units=(7,))
        if agent == "policy_gradient":
            config = policy_gradient.PolicyGradient(hidden_units=(7,))
        _, info = make_agent(config, space).update(trajectory)
        assert all(np.isfinite(x).all() for x in info.values())
    assert set(compiled_by_xla) == {space is BOX}


class Count(NamedTuple):
    step: Any
    stop: Any


def counted(calls, end=None, seconds=0.0):
    def advance(progress, until):
        time.sleep(seconds * (int(until) - int(progress.step)))
        calls.append(int(until) - int(progress.step))
        stop = end is not None and int(until) >= end
        return Count(until, tf.constant(stop))

    return advance


START = Count(tf.constant(0), tf.constant(False))


def test_pieces_grow_to_a_fraction_of_a_second():
    work, calls = _pieces.Work(state_of(dense()), 1_000, 4), []
    assert int(_pieces.in_pieces(work, counted(calls), START).step) == 1_000
    assert calls[0] == 1 and sum(calls) == 1_000 and len(calls) < 10
    calls.clear()
    work = work._replace(n_steps=20)
    _pieces.in_pieces(work, counted(calls, seconds=0.1), START)
    assert sum(calls) == 20 and max(calls) <= 3


def test_pieces_stop_early():
    work, calls = _pieces.Work(state_of(dense()), 1_000, 4), []
    assert int(_pieces.in_pieces(work, counted(calls, end=3), START).step) >= 3
    assert len(calls) == 2


def test_workers_cut_alike(monkeypatch):
    monkeypatch.setattr(replicated, "n_replicas", lambda: 2)
    monkeypatch.setattr(_pieces, "_BRIEF_WORK", 7 * (6 * 10 * 4 + 1e6))
    work, calls = _pieces.Work(state_of(dense()), 16, 4), []
    assert not work.is_brief and work._replace(n_steps=7).is_brief
    _pieces.in_pieces(work, counted(calls, seconds=0.001), START)
    assert calls == [7, 7, 2]
    calls.clear()
    _pieces.in_pieces(
        work._replace(state=state_of(convolutional())), counted(calls), START
    )
    assert calls == [1] * 16


def test_what_is_brief():
    small = state_of(dense())
    assert _pieces.Work(small, 160, 64).is_brief
    assert not _pieces.Work(small, 10_000, 4).is_brief
    assert not _pieces.Work(small, 1, 10**9).is_brief
    assert not _pieces.Work(state_of(convolutional()), 1, 1).is_brief
    function = train_state.TrainState.create(lambda p, x: p * x, tf.ones([10]))
    assert _pieces.Work(function, 100, 64).is_brief
    assert _pieces.Work(function, 1, 1).n_forward_rows > 1_000_000
    assert _pieces.Work(state_of(convolutional()), 1, 1).n_forward_rows == 128


@pytest.mark.slow
def test_images_are_learned_from_at_the_speed_of_their_network():
    space = gym.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    config = ppo.PPO(minibatch_size=32, n_epochs=1)
    agent = make_agent(config, space)
    trajectory = trajectory_of(space, n_steps=16, n_envs=4)
    state = agent.policy.state
    rows = tf.constant(trajectory.observations.reshape(64, 84, 84, 4))

    @tf.function(autograph=False)
    def gradient(params):
        with tf.GradientTape() as tape:
            tape.watch(params)
            parameters, values = state(rows, params=params)
            loss = tf.reduce_mean(parameters[:, 0]) + tf.reduce_mean(values)
        return tape.gradient(loss, params)

    def cpu_seconds(run):
        run()
        spent = []
        for _ in range(7):
            start = time.process_time()
            run()
            spent.append(time.process_time() - start)
        return np.median(spent)

    tape = cpu_seconds(lambda: gradient(state.params))
    assert cpu_seconds(lambda: agent.update(trajectory)) < 4 * tape
