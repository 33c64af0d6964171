"""Tests of PPO with a memory; what all agents do is in `test_agent`."""

import functools

import default_rows
import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf
from agent_examples import BOX, NEST, assert_close, params_of, trajectory_of

from tfrl.agents import advantages, replicated
from tfrl.agents.on_policy import _on_policy, ppo
from tfrl.environments import vector, wrappers
from tfrl.exporting import export
from tfrl.training.fitting import agent_model, fit_callbacks

S = gym.spaces
CHOICES = S.Discrete(3)
T, N, UNITS = 6, 4, 3
# What a memory of these units is in numbers, of actor and critic.
SIZES = {"gru": 2 * UNITS, "lstm": 4 * UNITS, "own": UNITS}


def own(seen, acts):
    """A recurrent network of a user's."""
    inputs, memory = keras.Input(seen.shape), keras.Input((UNITS,))
    after, _ = keras.layers.SimpleRNNCell(UNITS)(inputs, [memory])
    outputs = [keras.layers.Dense(n)(after) for n in (int(acts.n), 1)]
    return keras.Model((inputs, memory), (*outputs, after))


def make_agent(memory="gru", space=BOX, actions=CHOICES, **settings):
    defaults = {"n_epochs": 1, "minibatch_size": T * N, "hidden_units": (4,)}
    config = ppo.PPO(memory=memory, memory_units=UNITS, **{**defaults, **settings})
    network = own if memory == "own" else None
    agent = config.create(space, actions, n_envs=N, n_steps=T, network=network)
    # Last layers start small: what is remembered would hardly count.
    params = {k: x if "kernel" in k else x + 0.1 for k, x in params_of(agent).items()}
    state = agent.policy.state.replace(
        params=tf.nest.map_structure(tf.constant, params)
    )
    return agent.replace(policy=agent.policy.replace(state=state))


def make_trajectory(memory="gru", seed=0, space=BOX, actions=CHOICES):
    """Ends, limits and resets amid; all but the first memories are wrong."""
    rng = np.random.default_rng(seed)
    seen = trajectory_of(space, actions, T, N, seed)
    states = rng.normal(size=(T, N, SIZES[memory])).astype(np.float32)
    valid = np.ones((T, N), bool)
    valid[1:] = ~(seen.terminated | seen.truncated)[:-1] | (
        rng.random((T - 1, N)) < 0.5
    )
    return seen._replace(valid=valid, states=states)


def said_slowly(network, trajectory):
    """Logits, values and values of successors, step by step and row by row."""
    rows = [[], [], []]
    for n in range(N):
        memory = trajectory.states[0, n]
        for t in range(T):
            if t:
                flags = trajectory.terminated, trajectory.truncated, ~trajectory.valid
                over = any(flag[t - 1, n] for flag in flags)
                memory = tf.zeros_like(memory) if over else memory
            now, then = (
                x[t, n][None]
                for x in (trajectory.observations, trajectory.next_observations)
            )
            logits, value, memory = network((now, memory[None]))
            follows = network((then, memory))[1]
            memory = memory[0]
            for column, x in zip(rows, (logits[0], value[0], follows[0]), strict=True):
                column.append(x)
    return [tf.stack(x) for x in rows]  # sequence after sequence


def in_time(leaf):
    return np.swapaxes(np.reshape(leaf, [N, T, *leaf.shape[1:]]), 0, 1)


@pytest.mark.parametrize("memory", [*default_rows.slow("gru", "own"), "lstm"])
def test_a_trajectory_is_told_step_by_step(memory):
    agent, trajectory = make_agent(memory), make_trajectory(memory)
    given = tf.nest.map_structure(tf.constant, trajectory)
    found = advantages.outputs_of(agent.policy, given)
    network = agent.policy.state
    expected = [in_time(x) for x in said_slowly(network, trajectory)]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.reshape(one, other.shape), other, atol=1e-5)
    states = trajectory.states.copy()
    states[0] = 0.0
    other = advantages.outputs_of(agent.policy, given._replace(states=states))
    assert np.abs(other.values - found.values).max() > 1e-3


def plain_update(agent, trajectory):
    """The loss of one full-batch step, and its gradients, by loops and a tape."""
    config, params = agent.config, agent.policy.state.params
    weights = np.swapaxes(trajectory.valid, 0, 1).reshape(-1).astype(np.float32)
    network = functools.partial(agent.policy.state, params=params)
    with tf.GradientTape() as tape:
        tape.watch(params)
        logits, values, following = said_slowly(network, trajectory)
        known, then = (in_time(x.numpy()) for x in (values, following))
        gains, running = np.zeros((T, N)), np.zeros(N)
        for t in reversed(range(T)):
            alive = 1.0 - trajectory.terminated[t]
            delta = trajectory.rewards[t] + config.gamma * alive * then[t] - known[t]
            goes_on = alive * (1.0 - trajectory.truncated[t])
            running = delta + config.gamma * config.lambda_ * goes_on * running
            gains[t] = running
        returns = np.swapaxes(gains + known, 0, 1).reshape(-1).astype(np.float32)
        gains = np.swapaxes(gains, 0, 1).reshape(-1).astype(np.float32)
        mean = (gains * weights).sum() / weights.sum()
        spread = (((gains - mean) ** 2) * weights).sum() / weights.sum()
        gains = (gains - mean) / np.sqrt(spread + 1e-8)
        taken = np.swapaxes(trajectory.actions, 0, 1).reshape(-1)
        log_probs = tf.gather(tf.math.log_softmax(logits), taken, batch_dims=1)
        ratio = tf.exp(log_probs - tf.stop_gradient(log_probs))
        losses = 0.5 * config.value_coefficient * (values - returns) ** 2
        losses -= ratio * gains
        loss = tf.reduce_sum(weights * losses) / weights.sum()
    return float(loss), tape.gradient(loss, params)


@pytest.mark.slow
@pytest.mark.parametrize(
    "memory", ["lstm", pytest.param("own", marks=pytest.mark.slow)]
)
def test_one_step_equals_the_algorithm_written_out(memory):
    agent = make_agent(memory, max_gradient_norm=None, learning_rate=0.01)
    trajectory = make_trajectory(memory)
    loss, grads = plain_update(agent, trajectory)
    updated, info = agent.update(trajectory)
    assert float(info["loss"]) == pytest.approx(loss, abs=1e-4)
    before = params_of(agent)
    for name, value in params_of(updated).items():
        grad = grads[name].numpy()
        # The first step of Adam.
        step = 0.01 * grad / (np.abs(grad) + 1e-5)
        clear = np.abs(grad) > 1e-4  # of others it is the rounding
        found = (before[name] - value)[clear]
        np.testing.assert_allclose(found, step[clear], rtol=0.02, err_msg=name)


def test_minibatches_are_whole_environments():
    agent = make_agent(minibatch_size=T)
    rows = advantages.estimate_advantages(
        agent.policy, *(lambda x: (x, x.rewards))(make_trajectory()), gamma=1, lambda_=1
    )
    assert rows.weights.shape == rows.begins.shape == (N, T)
    assert rows.states.shape == (N, SIZES["gru"])
    for size in (T - 1, 2 * T + 1, 3 * T):
        match = (
            rf"`minibatch_size` expected to divide .*: one of \[{T}, {2 * T}, {4 * T}\]"
        )
        with pytest.raises(ValueError, match=match):
            make_agent(minibatch_size=size)


@pytest.mark.slow
def test_a_long_update_is_that_of_one_call(monkeypatch):
    given = {"space": NEST, "actions": S.Box(-1.0, 1.0, (2,))}
    agent = make_agent(**given, minibatch_size=2 * T, normalize_observations=True)
    trajectory = make_trajectory(**given)
    whole = agent.update(trajectory)
    sizes, compiled = [], _on_policy._compiled_sequences

    def counted(policy, part):
        sizes.append(part.rewards.shape[1])
        return compiled(policy, part)

    monkeypatch.setattr(_on_policy, "_compiled_sequences", counted)
    monkeypatch.setattr(replicated, "_BRIEF_WORK", 1)
    monkeypatch.setattr(replicated, "_FORWARD_ROWS", 3 * T)
    assert_close(agent.update(trajectory), whole, rtol=1e-5, atol=1e-6)
    assert sizes == [3, 3]


def test_what_does_not_fit_is_told():
    agent, trajectory = make_agent(), make_trajectory()
    for states in ((), trajectory.states[..., 1:]):
        with pytest.raises(
            ValueError, match=r"`trajectory` expected `states` of shape"
        ):
            agent.update(trajectory._replace(states=states))
    for memory, network in (("own", None), ("gru", own)):
        config = ppo.PPO(memory=memory, minibatch_size=T)
        with pytest.raises(ValueError, match="`PPO`: `memory` expected 'gru' or"):
            config.create(BOX, CHOICES, network=network)
    with pytest.raises(ValueError, match=r"`network` expected .*memory \[B, 5\]"):
        ppo.PPO(memory="own", memory_units=5).create(BOX, CHOICES, network=own)
    for settings, message in (
        ({"memory": "rnn"}, r"memory` expected one of \[None, 'gru', 'lstm', 'own'\]"),
        ({"memory": "gru", "memory_units": 0}, "memory_units` expected"),
    ):
        with pytest.raises(ValueError, match=f"`PPO`: `{message}"):
            ppo.PPO(**settings)


@pytest.mark.slow
def test_it_is_fitted_and_exported(tmp_path):
    hidden = functools.partial(wrappers.PartialObservation, indices=[0, 2])
    envs = vector.make_vec("CartPole-v1", 2, wrappers=[hidden])
    spaces = envs.single_observation_space, envs.single_action_space
    config = ppo.PPO(memory="own", memory_units=UNITS, minibatch_size=8)
    model = agent_model.AgentModel.create(config, *spaces, network=own)
    model.compile()
    rollouts = fit_callbacks.Rollouts(envs, n_steps=8)
    model.fit(rollouts, epochs=1, steps_per_epoch=3, verbose=0)
    assert int(model.agent.n_updates_done) == 3
    export.export_policy(model.agent, tmp_path / "policy", *spaces)
    assert max(export.verify(tmp_path / "policy").values()) <= 1e-5
