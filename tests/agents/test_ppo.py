import dataclasses

import gymnasium as gym
import numpy as np
import psutil
import pytest
import tensorflow as tf

from tfrl.agents import _on_policy, _pieces, ppo
from tfrl.core import compile, records
from tfrl.schedules import progress

BOX = gym.spaces.Box(-1.0, 1.0, (3,))
BOX_ACTIONS = gym.spaces.Box(-2.0, 2.0, (2,))
T, N = 6, 2


def make_trajectory(action_space, seed=0, valid=None):
    rng = np.random.default_rng(seed)
    if isinstance(action_space, gym.spaces.Discrete):
        actions = rng.integers(0, action_space.n, (T, N)).astype(np.int32)
    elif isinstance(action_space, gym.spaces.MultiDiscrete):
        actions = rng.integers(0, action_space.nvec, (T, N, 2)).astype(np.int32)
    else:
        actions = rng.normal(size=(T, N, *action_space.shape)).astype(np.float32)
    terminated = rng.random((T, N)) < 0.2
    truncated = ~terminated & (rng.random((T, N)) < 0.2)
    observations = rng.normal(size=(T, N, 3)).astype(np.float32)
    successors = rng.normal(size=(T, N, 3)).astype(np.float32)
    goes_on = ~(terminated | truncated)[:-1]
    successors[:-1][goes_on] = observations[1:][goes_on]
    return records.Trajectory(
        observations=observations,
        actions=actions,
        rewards=rng.normal(size=(T, N)).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        next_observations=successors,
        valid=np.ones((T, N), bool) if valid is None else valid,
    )


# Tests that take settings from here share what is compiled.
ONE_STEP = {"n_epochs": 1, "entropy_coefficient": 0.01, "max_gradient_norm": 0.05}
MINIBATCHES = {"minibatch_size": 4}
EVERYTHING = {
    "minibatch_size": 4,
    "value_clip": 0.2,
    "entropy_coefficient": 0.01,
    "normalize_observations": True,
    "normalize_rewards": True,
}


def make_agent(action_space=None, seed=0, **settings):
    config = ppo.PPO(**{"minibatch_size": T * N, "n_epochs": 2, **settings})
    space = gym.spaces.Discrete(3) if action_space is None else action_space
    return config.create(BOX, space, n_envs=N, n_steps=T, seed=seed)


def params_of(agent):
    return {name: np.array(x) for name, x in agent.policy.state.params.items()}


def plain_update(agent, trajectory):
    """One full-batch PPO step for discrete actions, by loops and a tape."""
    config, model = agent.config, agent.policy.state.model_def
    for variable in model.variables:
        variable.assign(agent.policy.state.params[variable.path])
    values = model.critic(trajectory.observations.reshape(-1, 3)).numpy().reshape(T, N)
    following = model.critic(trajectory.next_observations.reshape(-1, 3)).numpy()
    following = following.reshape(T, N)
    advantages = np.zeros((T, N))
    for n in range(N):
        running = 0.0
        for t in reversed(range(T)):
            alive = 1.0 - trajectory.terminated[t, n]
            delta = trajectory.rewards[t, n] - values[t, n]
            delta += config.gamma * alive * following[t, n]
            goes_on = alive * (1.0 - trajectory.truncated[t, n])
            running = delta + config.gamma * config.lambda_ * goes_on * running
            advantages[t, n] = running
    returns = (advantages + values).reshape(-1)
    advantages = advantages.reshape(-1)
    advantages = (advantages - advantages.mean()) / np.sqrt(advantages.var() + 1e-8)
    observations = trajectory.observations.reshape(-1, 3)
    actions = trajectory.actions.reshape(-1)
    with tf.GradientTape() as tape:
        logits = model.actor(observations)
        all_log_probs = tf.math.log_softmax(logits)
        log_probs = tf.gather(all_log_probs, actions, batch_dims=1)
        ratio = tf.exp(log_probs - tf.stop_gradient(log_probs))
        policy_loss = -tf.reduce_mean(ratio * advantages.astype(np.float32))
        errors = model.critic(observations) - returns.astype(np.float32)
        entropy = -tf.reduce_sum(tf.exp(all_log_probs) * all_log_probs, -1)
        loss = (
            policy_loss
            + config.value_coefficient * 0.5 * tf.reduce_mean(errors**2)
            - config.entropy_coefficient * tf.reduce_mean(entropy)
        )
    variables = model.trainable_variables
    grads = [g.numpy().astype(np.float64) for g in tape.gradient(loss, variables)]
    norm = np.sqrt(sum((g**2).sum() for g in grads))
    scale = min(1.0, config.max_gradient_norm / norm)
    # The first Adam step: both bias-corrected moments are the gradient's own.
    return float(loss), {
        variable.path: variable.numpy()
        - config.learning_rate * (g * scale) / (np.abs(g * scale) + 1e-5)
        for variable, g in zip(variables, grads, strict=True)
    }


def test_one_step_equals_the_algorithm_written_out():
    agent = make_agent(**ONE_STEP)
    trajectory = make_trajectory(gym.spaces.Discrete(3))
    loss, expected = plain_update(agent, trajectory)
    updated, info = agent.update(trajectory)
    assert float(info["loss"]) == pytest.approx(loss, abs=1e-5)
    assert float(info["gradient_steps"]) == 1
    for name, value in params_of(updated).items():
        np.testing.assert_allclose(value, expected[name], atol=2e-6, err_msg=name)


@pytest.mark.parametrize(
    ("space", "squash"),
    [
        # Discrete actions are those of the other tests here.
        pytest.param(
            gym.spaces.Discrete(3), False, id="discrete", marks=pytest.mark.slow
        ),
        pytest.param(
            gym.spaces.MultiDiscrete([3, 2]),
            False,
            id="multi_discrete",
            marks=pytest.mark.slow,
        ),
        pytest.param(BOX_ACTIONS, False, id="box", marks=pytest.mark.slow),
        pytest.param(BOX_ACTIONS, True, id="squashed-box"),
    ],
)
def test_every_kind_of_action_updates_finitely(space, squash):
    agent = make_agent(space, squash=squash, **EVERYTHING)
    before = params_of(agent)
    updated, info = agent.update(make_trajectory(space))
    assert float(info["gradient_steps"]) == 6
    assert all(np.isfinite(value).all() for value in info.values())
    for name, value in params_of(updated).items():
        assert np.isfinite(value).all() and not np.array_equal(value, before[name])
    actions = updated.policy.act(np.zeros((5, 3), np.float32), seed=1).actions
    assert all(space.contains(action) for action in actions)


def test_the_old_agent_stays_and_updates_repeat():
    agent = make_agent(**MINIBATCHES)
    trajectory = make_trajectory(gym.spaces.Discrete(3))
    before = params_of(agent)
    first, _ = agent.update(trajectory)
    second, _ = agent.update(trajectory)
    for name, value in params_of(agent).items():
        np.testing.assert_array_equal(value, before[name])
    for name, value in params_of(first).items():
        np.testing.assert_array_equal(value, params_of(second)[name])
    # The next update shuffles otherwise.
    assert not np.array_equal(first.rng, agent.rng)


def test_invalid_rows_have_no_influence():
    valid = np.ones((T, N), bool)
    valid[2, 0] = valid[4, 1] = False
    clean = make_trajectory(gym.spaces.Discrete(3), valid=valid)
    clean.terminated[1, 0] = clean.terminated[3, 1] = True
    spoiled = clean._replace(
        observations=np.where(valid[..., None], clean.observations, 9.0).astype("f"),
        rewards=np.where(valid, clean.rewards, 1e3).astype("f"),
    )
    agent = make_agent(squash=False, **EVERYTHING)
    first, info = agent.update(clean)
    second, other = agent.update(spoiled)
    assert float(info["loss"]) == pytest.approx(float(other["loss"]), abs=1e-6)
    for name, value in params_of(first).items():
        np.testing.assert_allclose(value, params_of(second)[name], atol=1e-6)
    moments = first.policy.observation_moments[0]
    np.testing.assert_allclose(
        moments.mean, clean.observations[valid].mean(0), atol=1e-6
    )


def test_truncation_bootstraps_and_termination_does_not():
    trajectory = make_trajectory(gym.spaces.Discrete(3))
    nothing = np.zeros((T, N), bool)
    agent = make_agent(**ONE_STEP)
    far = trajectory._replace(next_observations=trajectory.next_observations + 3.0)
    cut = {"terminated": nothing, "truncated": ~nothing}
    losses = [
        float(agent.update(x._replace(**cut))[1]["value_loss"])
        for x in (trajectory, far)
    ]
    assert losses[0] != losses[1]
    over = {"terminated": ~nothing, "truncated": nothing}
    losses = [
        float(agent.update(x._replace(**over))[1]["value_loss"])
        for x in (trajectory, far)
    ]
    assert losses[0] == losses[1]


def test_observations_are_normalized_by_the_moments_that_acted():
    agent = make_agent(normalize_observations=True, **MINIBATCHES)
    plain = make_agent(**MINIBATCHES)
    trajectory = make_trajectory(gym.spaces.Discrete(3))
    updated, _ = agent.update(trajectory)
    # Before the first update the moments change nothing, so both learn the same.
    expected, _ = plain.update(trajectory)
    for name, value in params_of(updated).items():
        np.testing.assert_allclose(value, params_of(expected)[name], atol=1e-6)
    moments = updated.policy.observation_moments[0]
    rows = trajectory.observations.reshape(-1, 3).astype(np.float64)
    np.testing.assert_allclose(moments.mean, rows.mean(0), atol=1e-6)
    np.testing.assert_allclose(moments.variance, rows.var(0), atol=1e-6)


def test_linear_schedules_reach_zero_and_target_kl_stops_early():
    agent = make_agent(
        n_epochs=50,
        learning_rate=0.05,
        learning_rate_schedule="linear",
        target_kl=0.01,
    )
    trajectory = make_trajectory(gym.spaces.Discrete(3))
    rates, steps = [], []
    for percent in (0.0, 0.5, 1.0):
        before = params_of(agent)
        agent, info = agent.update(
            trajectory, progress=progress.Progress(percent=percent)
        )
        rates.append(float(info["learning_rate"]))
        steps.append(float(info["gradient_steps"]))
    np.testing.assert_allclose(rates, [0.05, 0.025, 0.0], atol=1e-7)
    for name, value in params_of(agent).items():
        np.testing.assert_array_equal(value, before[name])
    # What does not move comes to its end.
    assert 1 < steps[0] < 50 and steps[2] == 50


def test_one_trace_for_all_updates_and_agents_of_a_kind():
    make_agent(**MINIBATCHES).update(make_trajectory(gym.spaces.Discrete(3)))
    before = compile.trace_count(_on_policy._compiled_update)
    for seed in range(2):
        agent = make_agent(seed=seed, **MINIBATCHES)
        for step in range(4):
            agent, _ = agent.update(make_trajectory(gym.spaces.Discrete(3), step))
    assert before > 0 and compile.trace_count(_on_policy._compiled_update) == before


@pytest.mark.parametrize(
    "target_kl",
    [
        pytest.param(None, id="all steps", marks=pytest.mark.slow),
        pytest.param(2e-3, id="early stop"),
    ],
)
def test_a_long_update_is_that_of_one_call_however_it_is_cut(monkeypatch, target_kl):
    agent = make_agent(learning_rate=0.01, target_kl=target_kl, **EVERYTHING)
    trajectory = make_trajectory(gym.spaces.Discrete(3))
    whole, expected = agent.update(trajectory)
    monkeypatch.setattr(_pieces, "_BRIEF_WORK", 1)
    found = []
    for seconds in (0.0, 1e-4, 1e9):
        monkeypatch.setattr(_pieces, "_PIECE_SECONDS", seconds)
        found.append(agent.update(trajectory))
    for learned, info in found:
        assert list(info) == list(expected)
        assert float(info["gradient_steps"]) == float(expected["gradient_steps"])
        for name, value in params_of(learned).items():
            np.testing.assert_array_equal(value, params_of(found[0][0])[name])
            close = {"rtol": 1e-5, "atol": 1e-6}
            np.testing.assert_allclose(value, params_of(whole)[name], **close)
    assert (float(expected["gradient_steps"]) < 6) == (target_kl is not None)


@pytest.mark.slow
def test_memory_is_flat_over_20_000_updates():
    agent = make_agent(**EVERYTHING)
    trajectories = [make_trajectory(gym.spaces.Discrete(3), seed) for seed in range(10)]
    process, sizes = psutil.Process(), []
    for index in range(20_000):
        agent, _ = agent.update(trajectories[index % 10])
        if index % 2_000 == 1_999:
            sizes.append(process.memory_info().rss)
    assert max(sizes[1:]) - sizes[0] < 4 * 2**20, sizes


@pytest.mark.slow
def test_learns_which_arm_pays():
    agent = make_agent(gym.spaces.Discrete(2), learning_rate=0.02, lambda_=0.0)
    observations = np.ones((T, N, 3), np.float32)
    ended = np.ones((T, N), bool)
    for seed in range(30):
        actions = agent.policy.act(observations.reshape(-1, 3), seed=seed).actions
        actions = actions.reshape(T, N).astype(np.int32)
        agent, _ = agent.update(
            records.Trajectory(
                observations=observations,
                actions=actions,
                rewards=actions.astype(np.float32),
                terminated=ended,
                truncated=~ended,
                next_observations=observations,
                valid=ended,
            )
        )
    assert np.all(agent.policy.act(observations[0], temperature=0.0).actions)
    logits = agent.policy.parameters(observations[0])
    assert tf.nn.softmax(logits)[0, 1] > 0.9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 1.5}, "`PPO`: `gamma` expected"),
        ({"learning_rate": 0.0}, "`PPO`: `learning_rate` expected"),
        ({"n_epochs": 0}, "`PPO`: `n_epochs` expected"),
        ({"clip_schedule": "cosine"}, "`PPO`: `clip_schedule` expected one of"),
        ({"target_kl": -1.0}, "`PPO`: `target_kl` expected"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ppo.PPO(**settings)


def test_minibatches_must_fit():
    message = "`minibatch_size` expected to divide steps . environments = 12; got 5"
    with pytest.raises(ValueError, match=message):
        make_agent(minibatch_size=5)


def test_settings_are_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ppo.PPO().gamma = 0.5


@pytest.mark.parametrize(("units", "error"), [(8, TypeError), ((0,), ValueError)])
def test_widths_are_checked_at_construction(units, error):
    with pytest.raises(error, match="`PPO`: `hidden_units` expected"):
        ppo.PPO(hidden_units=units)
