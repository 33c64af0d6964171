"""Tests of `tfrl.agents.off_policy.r2d2` against the algorithm written out in NumPy."""

import dataclasses
import functools

import agent_rows
import default_rows
import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf
from agent_examples import BOX, assert_close

from tfrl.agents.off_policy import dqn, r2d2
from tfrl.core import records
from tfrl.environments import vector, wrappers
from tfrl.exporting import export
from tfrl.policies import host_policy
from tfrl.replay import episodes
from tfrl.replay.sampling import prioritized, transitions, uniform
from tfrl.training.fitting import agent_model, fit_callbacks

S = gym.spaces
N_ACTIONS, UNITS, T, BURN_IN = 3, 2, agent_rows.T, agent_rows.BURN_IN
CONFIG = r2d2.R2D2(
    hidden_units=(8,),
    memory_units=UNITS,
    n_step_returns=2,
    gamma=0.9,
    learning_rate=0.01,
    adam_epsilon=1.0,  # so that the first step tells the size of gradients
    max_gradient_norm=None,
    epsilon=0.1,
    target_period=2,
    tau=0.5,
)


def make_agent(space=BOX, seed=0, network=None, burn_in=BURN_IN, **settings):
    config = dataclasses.replace(CONFIG, **settings)
    given = {"network": network, "burn_in": burn_in}
    agent, other = (
        config.create(space, S.Discrete(N_ACTIONS), seed=x, **given)
        for x in (seed, seed + 50)
    )
    if network is not None:  # whose weights have names of their own
        return agent
    # A copy that is another network: what it says tells the targets apart. The last
    # layer starts small: what is remembered would hardly count.
    params, copy = (
        {k: x + 0.3 * np.sign(x) for k, x in known.items()}
        for known in (agent.policy.state.params, other.target_params)
    )
    state = agent.policy.state.replace(params=params)
    policy = agent.policy.replace(state=state)
    return agent.replace(policy=policy, target_params=copy)


def make_sample(n_minibatches=1, n_rows=8, seed=0, space=BOX):
    raw = S.Discrete(N_ACTIONS)
    return agent_rows.sequences_of(space, raw, n_minibatches, n_rows, seed)


def doubles(params):
    return {
        name.removeprefix("recurrent/"): np.asarray(value, np.float64)
        for name, value in params.items()
    }


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def remembered(params, x, memory):
    """One step of an LSTM, whose memory is its output and then its state."""
    output, state = memory[:UNITS], memory[UNITS:]
    gates = x @ params["memory/kernel"] + params["memory/bias"]
    gates = gates + output @ params["memory/recurrent_kernel"]
    enters, stays, new, leaves = np.split(gates, 4)
    state = sigmoid(stays) * state + sigmoid(enters) * np.tanh(new)
    return np.concatenate([sigmoid(leaves) * np.tanh(state), state])


def valued(params, memory):
    """The duelling values of all choices."""

    def dense(part):
        kernels = [params[f"{part}/{x}/kernel"] for x in ("hidden_0", "output")]
        biases = [params[f"{part}/{x}/bias"] for x in ("hidden_0", "output")]
        hidden = np.maximum(memory[:UNITS] @ kernels[0] + biases[0], 0.0)
        return hidden @ kernels[1] + biases[1]

    found = dense("outputs")
    if "state/output/bias" in params:
        found = dense("state") + found - found.mean()
    return found


def warm(params, row):
    """What is remembered before the first step to learn from."""
    first = int(np.argmax(row.valid))
    memory = np.zeros(2 * UNITS) if first else row.states[0].astype(np.float64)
    for t in range(first, BURN_IN):
        memory = remembered(params, row.observations[t], memory)
    return memory


def values_of(params, row, memory):
    """Values at the valid steps to learn from, and after the last."""
    last = int(np.flatnonzero(row.valid)[-1])
    shown = [*row.observations[BURN_IN : last + 1], row.next_observations[last]]
    found = []
    for x in shown:
        memory = remembered(params, x, memory)
        found.append(valued(params, memory))
    return np.array(found)


def squashed(x, eps):
    return x if eps is None else np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + eps * x


def unsquashed(y, eps):
    if eps is None:
        return y
    root = (np.sqrt(1 + 4 * eps * (abs(y) + 1 + eps)) - 1) / (2 * eps)
    return np.sign(y) * (root**2 - 1)


def targets_of(config, row, values, later, allowed=None):
    """Targets of the valid steps to learn from, one reward after the other."""
    n_valid, found = len(values) - 1, []
    chooser = values if config.double else later
    if allowed is not None:  # after each step
        chooser = chooser.copy()
        chooser[1:][allowed[BURN_IN : BURN_IN + n_valid] == 0] = -np.inf
    for t in range(n_valid):
        total, factor = 0.0, 1.0
        for k in range(t, min(t + config.n_step_returns, n_valid)):
            total += factor * row.rewards[BURN_IN + k]
            factor *= config.gamma * (not row.terminated[BURN_IN + k])
        best = chooser[k + 1].argmax()
        total += factor * unsquashed(later[k + 1][best], config.rescaling)
        found.append(squashed(total, config.rescaling))
    return np.array(found)


def huber(errors, delta):
    size = np.abs(errors)
    if delta is None:
        return 0.5 * errors**2
    return np.where(size < delta, 0.5 * errors**2, delta * (size - 0.5 * delta))


def rows_of(data):
    """The sequences of one minibatch, one by one."""
    for b in range(len(data.rewards)):
        yield tf.nest.map_structure(lambda x, b=b: x[b], data)


def written_out(agent, sample, allowed=None):
    """Priorities, and the loss as a function of parameters that learn.

    Memories that are warmed up, and targets, do not follow these. What is `allowed`
    after each step are masks `[B, T, n]`.
    """
    config = agent.config
    now, copy = doubles(agent.policy.state.params), doubles(agent.target_params)
    known, priorities = [], []
    for b, row in enumerate(rows_of(sample.data)):
        memory = warm(now, row)
        values = values_of(now, row, memory)
        later = values_of(copy, row, warm(copy, row))
        masks = None if allowed is None else allowed[b]
        targets = targets_of(config, row, values, later, masks)
        known.append((row, memory, targets))
        actions = row.actions[BURN_IN : BURN_IN + len(targets)]
        errors = np.abs(targets - values[np.arange(len(targets)), actions])
        share = config.eta * errors.max() + (1 - config.eta) * errors.mean()
        priorities.append(share)

    def loss_of(params):
        losses = []
        for row, memory, targets in known:
            n = len(targets)
            taken = values_of(doubles(params), row, memory)[
                np.arange(n), row.actions[BURN_IN : BURN_IN + n]
            ]
            total = huber(targets - taken, config.huber_delta).sum()
            losses.append(total / (T - BURN_IN))
        return (sample.weights * losses).mean()

    return np.array(priorities), loss_of


SETTINGS = {
    "defaults": ({},),
    "long": ({"n_step_returns": 9, "rescaling": None, "eta": 0.0},),
    "plain": (
        {"double": False, "dueling": False, "huber_delta": None, "n_step_returns": 1},
    ),
}


@pytest.mark.parametrize("settings", default_rows.params(SETTINGS, ["defaults"]))
def test_an_update_equals_the_algorithm_written_out(settings):
    agent = make_agent(**settings)
    sample = tf.nest.map_structure(lambda x: x[0], make_sample(n_rows=24))
    ends = sample.data.terminated | sample.data.truncated
    valid = sample.data.valid
    assert sample.data.terminated.any() and sample.data.truncated.any()
    assert (~valid[:, 0]).any() and (~valid[:, -1]).any() and (~ends.any(1)).any()
    priorities, loss_of = written_out(agent, sample)
    learned, info = agent.update(sample)
    state = agent.policy.state
    assert float(info["loss"]) == pytest.approx(loss_of(state.params), rel=1e-4)
    np.testing.assert_allclose(info["priorities"], priorities, rtol=1e-3, atol=1e-5)
    rng, n_compared = np.random.default_rng(0), 0
    for name, value in state.params.items():
        value = np.asarray(value, np.float64)
        for _ in range(3):
            place = tuple(rng.integers(0, n) for n in value.shape)
            around = []
            for step in (1e-4, -1e-4):
                other = value.copy()
                other[place] += step
                around.append(loss_of({**doubles(state.params), _short(name): other}))
            slope = (around[0] - around[1]) / 2e-4
            step = np.asarray(learned.policy.state.params[name])[place] - value[place]
            expected = -0.01 * slope / (abs(slope) + 1.0)
            assert step == pytest.approx(expected, rel=0.02, abs=2e-6), name
            n_compared += abs(slope) > 1e-3
    assert n_compared >= 12


def _short(name):
    return name.removeprefix("recurrent/")


def test_padding_and_what_comes_after_an_end_do_not_count():
    agent, sample = make_agent(), make_sample(n_rows=12)
    data, rng = sample.data, np.random.default_rng(1)
    whole = agent.update(sample)

    def spoilt(leaf):
        valid = data.valid.reshape(*data.valid.shape, *[1] * (leaf.ndim - 3))
        other = rng.permuted(leaf, axis=1)
        return np.where(valid, leaf, other)

    changed = data._replace(
        observations=spoilt(data.observations),
        actions=spoilt(data.actions),
        rewards=spoilt(data.rewards),
    )
    assert_close(agent.update(sample._replace(data=changed)), whole, rtol=1e-6)
    # Of what was remembered only the first counts, and not behind padding.
    states = data.states.copy()
    states[:, :, 1:] = 7.0
    states[~data.valid[..., 0]] = 5.0
    changed = data._replace(states=states)
    assert_close(agent.update(sample._replace(data=changed)), whole, rtol=1e-6)
    changed = data._replace(states=data.states + 1.0)
    _, info = agent.update(sample._replace(data=changed))
    moved = np.abs(info["priorities"] - whole[1]["priorities"]) > 1e-4
    np.testing.assert_array_equal(moved, data.valid[..., 0])


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["lstm", "gru", "own"])
def test_many_steps_in_one_call_are_as_many_calls(memory):
    network = own if memory == "own" else None
    agent = make_agent(memory=memory, network=network)
    size = agent.policy.units
    assert size == {"lstm": 2 * UNITS, "gru": UNITS, "own": UNITS}[memory]
    sample = make_sample(n_minibatches=4)
    states = sample.data.states[..., :size]
    sample = sample._replace(data=sample.data._replace(states=states))
    whole, info = agent.update(sample)
    found = []
    for k in range(4):
        one = tf.nest.map_structure(lambda x, k=k: x[k], sample)
        agent, each = agent.update(one)
        found.append(each)
    close = {"rtol": 1e-4, "atol": 1e-6}
    assert_close(agent, whole, **close)
    assert_close(
        np.stack([x["priorities"] for x in found]), info["priorities"], **close
    )
    assert_close(np.mean([x["loss"] for x in found]), info["loss"], **close)


def own(seen, acts):
    """A recurrent network of a user's."""
    inputs, memory = keras.Input(seen.shape), keras.Input((UNITS,))
    after, _ = keras.layers.SimpleRNNCell(UNITS)(inputs, [memory])
    return keras.Model(
        (inputs, memory), (keras.layers.Dense(int(acts.n))(after), after)
    )


def test_it_acts_by_the_memory_and_explores():
    agent = make_agent()
    policy = agent.policy.replace(epsilon=tf.constant(0.5))
    params, host = doubles(policy.state.params), host_policy.HostPolicy(policy)
    rng, n = np.random.default_rng(0), 400
    memory, state = np.zeros((n, 2 * UNITS)), policy.initial_state(n)
    for _ in range(3):
        x = rng.normal(size=(n, 3)).astype(np.float32)
        memory = np.stack(
            [remembered(params, *each) for each in zip(x, memory, strict=True)]
        )
        best = np.array([valued(params, each) for each in memory]).argmax(-1)
        for acting, given in ((host, x), (policy, tf.constant(x))):
            greedy = acting.act(given, state, temperature=0.0)
            assert (np.asarray(greedy.actions) == best).mean() > 0.99
            acted = acting.act(given, state, seed=1)
            share = (np.asarray(acted.actions) == best).mean()
            assert share == pytest.approx(0.5 + 0.5 / N_ACTIONS, abs=0.08)
            np.testing.assert_allclose(acted.state, memory, rtol=1e-4, atol=1e-5)
        state = acted.state


def masked(data, rng):
    """The same with masks that allow what was done, and nothing after some ends."""
    masks = (rng.random((*data.rewards.shape, N_ACTIONS)) < 0.6).astype(np.int8)
    np.put_along_axis(masks, data.actions[..., None], 1, -1)
    after = np.roll(masks, -1, axis=1)
    ended = data.terminated | data.truncated
    after[ended] = [0, 0, 1]
    after[ended & (rng.random(ended.shape) < 0.5)] = 0
    seen, then = data.observations, data.next_observations
    return data._replace(
        observations={"action_mask": masks, "observation": seen},
        next_observations={"action_mask": after, "observation": then},
    )


@pytest.mark.parametrize("huber_delta", [*default_rows.slow(1.0), None])
def test_what_is_forbidden_is_no_target(huber_delta):
    space = S.Dict(action_mask=S.MultiBinary(N_ACTIONS), observation=BOX)
    agent = make_agent(space, huber_delta=huber_delta)
    assert agent.policy.is_masked
    sample = tf.nest.map_structure(lambda x: x[0], make_sample(n_rows=24))
    data = masked(sample.data, np.random.default_rng(0))
    after = data.next_observations["action_mask"]
    # Where nothing is allowed, all is.
    allowed = np.where(after.any(-1, keepdims=True), after, 1)
    priorities, loss_of = written_out(agent, sample, allowed)
    free, _ = written_out(agent, sample)
    learned, info = agent.update(sample._replace(data=data))
    np.testing.assert_allclose(info["priorities"], priorities, rtol=1e-3, atol=1e-5)
    assert np.abs(priorities - free).max() > 1e-2
    expected = loss_of(agent.policy.state.params)
    assert float(info["loss"]) == pytest.approx(expected, rel=1e-4)
    leaves = tf.nest.flatten(learned.policy.state.params)
    assert all(np.isfinite(x).all() for x in leaves)
    given = tf.nest.map_structure(lambda x: x[:, 0], data.observations)
    acted = agent.policy.act(given, agent.policy.initial_state(24), seed=0)
    assert given["action_mask"][np.arange(24), acted.actions].all()


@pytest.mark.slow
def test_normalized_observations_are_what_is_learned_from():
    agent = make_agent(normalize_observations=True)
    sample = make_sample(n_rows=30)
    data = sample.data
    far = data._replace(
        observations=7 * data.observations + 30,
        next_observations=7 * data.next_observations + 30,
    )
    learned, info = agent.update(sample._replace(data=far))
    (moments,) = learned.policy.observation_moments
    rows = far.observations[data.valid]
    np.testing.assert_allclose(moments.mean, rows.mean(0), rtol=1e-4)
    assert float(moments.count) == len(rows)
    given = [
        ((x - rows.mean(0)) / rows.std(0)).astype(np.float32)
        for x in (far.observations, far.next_observations)
    ]
    normal = data._replace(observations=given[0], next_observations=given[1])
    _, expected = make_agent().update(sample._replace(data=normal))
    for name in info:
        assert_close(info[name], expected[name], rtol=5e-3, atol=1e-4)


def test_sequences_of_a_store_are_what_it_learns_from():
    """What a user's own loop does, with an episode cut off and one that goes on."""
    agent = make_agent(burn_in=1)
    memory = tf.TensorSpec([2 * UNITS])
    store = episodes.EpisodeStore(
        *(tf.TensorSpec([3]), tf.TensorSpec([], tf.int64), 64), 1, memory
    )
    rng, state = np.random.default_rng(0), agent.policy.initial_state(1)
    shown = rng.normal(size=(20, 1, 3)).astype(np.float32)
    for t in range(19):
        acted = agent.policy.act(shown[t], state, seed=t)
        cut = [t == 6]
        given = shown[t], acted.raw_actions, [1.0], [False], cut, shown[t + 1]
        store.add(*given, extra=state)
        state = agent.policy.initial_state(1) if cut[0] else acted.state
    kind = transitions.Sequences(4, burn_in=1, pad_end=True)
    drawn = uniform.UniformReplay(store, kind, seed=0).sample(16)
    sample = drawn._replace(data=drawn.data._replace(states=drawn.extra))
    again, info = agent.update(sample)
    assert info["priorities"].shape == (16,) and int(again.policy.state.step) == 2
    assert (~drawn.data.valid).any()


def test_states_of_another_precision_are_taken():
    sample, agent = make_sample(), make_agent()
    half = sample.data.states.astype(np.float16)
    _, info = agent.update(bad_sample(states=half))
    _, same = agent.update(bad_sample(states=half.astype(np.float32)))
    np.testing.assert_array_equal(info["priorities"], same["priorities"])


def bad_sample(**changes):
    sample = make_sample()
    return sample._replace(data=sample.data._replace(**changes))


def test_what_does_not_fit_is_told():
    agent, sample = make_agent(), make_sample()
    data = sample.data
    where = "`R2D2.update`: `sample` expected"
    for given in (data, sample._replace(data=records.Transition(*data[:5])), None):
        with pytest.raises(TypeError, match=f"{where} a Sample of Trajectories"):
            agent.update(given)
    for states in ((), data.states[..., :3], data.states[:, :, :1]):
        with pytest.raises(
            ValueError, match=rf"{where} `states` of shape \[1, 8, 6, 4"
        ):
            agent.update(bad_sample(states=states))
    for changes in (
        {"rewards": data.rewards[:, :, 1:]},
        {"valid": data.valid[:, 1:]},
        {"actions": data.actions[..., 0]},
    ):
        with pytest.raises(ValueError, match=f"{where} actions, rewards, terminated"):
            agent.update(bad_sample(**changes))
    with pytest.raises(ValueError, match=f"{where} actions, rewards, terminated"):
        agent.update(sample._replace(weights=np.ones(data.rewards.shape, np.float32)))
    short = tf.nest.map_structure(lambda x: x[:, :, :BURN_IN], data)
    with pytest.raises(ValueError, match="sequences of more than `burn_in` = 2 steps"):
        agent.update(sample._replace(data=short))
    late = np.ones(data.valid.shape, bool)
    late[0, 3, : BURN_IN + 1] = False  # as where `Sequences` has a longer burn-in
    with pytest.raises(
        ValueError, match=f"{where} sequences whose step 2, the first b"
    ):
        agent.update(bad_sample(valid=late))
    match = "`DQN.update`: `sample` expected a Sample of Transitions"
    plain = dqn.DQN(hidden_units=(8,)).create(BOX, S.Discrete(N_ACTIONS))
    with pytest.raises(TypeError, match=match):
        plain.update(sample)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory": None}, "`memory` expected one of .'gru', 'lstm', 'own'.; got None"),
        ({"memory": "rnn"}, "`memory` expected one of .'gru', 'lstm', 'own'.; got 'r"),
        ({"memory_units": 0}, "`memory_units` expected"),
        ({"gamma": 1.5}, "`gamma` expected"),
        ({"eta": -0.1}, "`eta` expected"),
        ({"rescaling": -1.0}, "`rescaling` expected"),
        ({"n_step_returns": 0}, "`n_step_returns` expected"),
    ],
)
def test_settings_out_of_range(settings, message):
    with pytest.raises(ValueError, match=f"`R2D2`: {message}"):
        r2d2.R2D2(**settings)


def test_networks_and_spaces_that_do_not_fit_are_told():
    for memory, network in (("own", None), ("gru", own)):
        with pytest.raises(ValueError, match="`R2D2`: `memory` expected 'gru' or"):
            make_agent(memory=memory, network=network)
    with pytest.raises(TypeError, match="`R2D2.create`: `action_space` expected a D"):
        CONFIG.create(BOX, BOX)
    with pytest.raises(ValueError, match="`R2D2.create`: `burn_in` expected"):
        make_agent(burn_in=-1)


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["lstm", "own"])
def test_what_is_exported_is_the_policy(tmp_path, memory):
    agent = make_agent(memory=memory, network=own if memory == "own" else None)
    folder = tmp_path / "policy"
    export.export_policy(agent, folder, BOX, S.Discrete(N_ACTIONS))
    assert max(export.verify(folder).values()) <= 1e-5
    file = tmp_path / "policy.tflite"
    export.export_policy(agent, file, BOX, S.Discrete(N_ACTIONS))
    assert max(export.verify(file).values()) <= 1e-5
    loaded = tf.saved_model.load(folder)
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    state = agent.policy.initial_state(5)
    found = loaded.signatures["serving_default"](
        observations=tf.constant(x), state=tf.constant(state)
    )
    expected = agent.policy.act(x, state, temperature=0.0)
    np.testing.assert_array_equal(found["actions"], expected.actions)
    np.testing.assert_allclose(found["state"], expected.state, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_it_is_fitted_from_a_store_of_a_users_own():
    positions = functools.partial(wrappers.PartialObservation, indices=[0, 2])
    envs = vector.make_vec("CartPole-v1", 2, wrappers=[positions])
    spaces = envs.single_observation_space, envs.single_action_space
    agent = dataclasses.replace(CONFIG, epsilon=0.5).create(*spaces, burn_in=BURN_IN)
    specs = tf.TensorSpec([2]), tf.TensorSpec([], tf.int64)
    memory = tf.TensorSpec([2 * UNITS])
    store = episodes.EpisodeStore(*specs, 1_000, 2, extra_spec=memory)
    kind = transitions.Sequences(6, BURN_IN, pad_end=True)
    replay = prioritized.PrioritizedReplay(store, kind, seed=0)
    model = agent_model.AgentModel(agent)
    model.compile()
    collect = fit_callbacks.Collect(envs, store, warm_up_steps=64)
    fit = {"batch_size": 8, "steps_per_epoch": 5, "callbacks": [collect]}
    history = model.fit(replay, epochs=2, verbose=0, **fit).history
    assert int(model.agent.policy.state.step) == 11
    assert np.isfinite(history["loss"]).all()
    assert np.ptp(replay.sample(64).probabilities) > 1e-4
    envs.close()
