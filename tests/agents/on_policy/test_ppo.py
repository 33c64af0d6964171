"""Tests of `tfrl.agents.on_policy.ppo`; what others do too is in `test_agent`."""

import gymnasium as gym
import numpy as np
import psutil
import pytest
import tensorflow as tf
from agent_examples import (
    BOX,
    NEST,
    assert_close,
    params_of,
    trajectory_of,
    two_replicas,
)

from tfrl.agents import advantages, replicated
from tfrl.agents.on_policy import _on_policy, impala, ppo
from tfrl.core import records
from tfrl.schedules import progress

S = gym.spaces
STEER = S.Box(-2.0, 2.0, (2,))
CHOICES = S.Discrete(3)
DICT = S.Dict(steer=STEER, press=S.Discrete(3, start=1), bits=S.MultiBinary(2))
TUPLE = S.Tuple((S.Discrete(2), S.Dict(deep=STEER, more=S.Discrete(4))))
T, N = 6, 2
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


def make_agent(action_space=CHOICES, seed=0, space=BOX, **settings):
    defaults = {"minibatch_size": T * N, "n_epochs": 2, "hidden_units": (8,)}
    config = ppo.PPO(**{**defaults, **settings})
    return config.create(space, action_space, n_envs=N, n_steps=T, seed=seed)


def make_trajectory(action_space=CHOICES, seed=0, space=BOX):
    return trajectory_of(space, action_space, T, N, seed)


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
    agent, trajectory = make_agent(**ONE_STEP), make_trajectory()
    loss, expected = plain_update(agent, trajectory)
    updated, info = agent.update(trajectory)
    assert float(info["loss"]) == pytest.approx(loss, abs=1e-5)
    assert float(info["gradient_steps"]) == 1
    for name, value in params_of(updated).items():
        np.testing.assert_allclose(value, expected[name], atol=2e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("space", "squash"),
    [
        # Discrete actions are those of the other tests here.
        pytest.param(S.MultiDiscrete([3, 2]), False, marks=pytest.mark.slow),
        pytest.param(STEER, False, marks=pytest.mark.slow),
        pytest.param(TUPLE, False, marks=pytest.mark.slow),
        pytest.param(DICT, False, marks=pytest.mark.slow),
        (STEER, True),
    ],
    ids=["multi discrete", "box", "tuple", "dict", "squashed box"],
)
def test_every_kind_of_action_updates_finitely(space, squash):
    agent = make_agent(space, squash=squash, n_epochs=1, **EVERYTHING)
    updated, info = agent.update(make_trajectory(space))
    assert float(info["gradient_steps"]) == 3
    assert all(np.isfinite(value).all() for value in info.values())
    before = params_of(agent)
    for name, value in params_of(updated).items():
        assert np.isfinite(value).all() and not np.array_equal(value, before[name])
    x = np.zeros((5, 3), np.float32)
    for given in (x, tf.constant(x)):
        actions = updated.policy.act(given, seed=1).actions
        for row in range(5):
            taken = tf.nest.map_structure(lambda leaf: np.asarray(leaf)[row], actions)  # noqa: B023
            assert space.contains(taken)


@pytest.mark.slow
def test_xla_compiles_all_that_an_update_may_be(by_xla):
    agent = make_agent(TUPLE, n_epochs=1, **EVERYTHING)
    learned, info = agent.update(make_trajectory(TUPLE))
    assert all(np.isfinite(value).all() for value in info.values())
    for name, value in params_of(learned).items():
        assert not np.array_equal(value, agent.policy.state.params[name]), name


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@pytest.mark.slow
def test_the_log_probabilities_of_nests_are_sums_over_the_parts():
    """Parameters are of bits, press, steer; deviations are at the end."""
    agent = make_agent(DICT, n_epochs=1, log_std=-0.3)
    x = make_trajectory().observations
    raws = [agent.policy.act(row, seed=t) for t, row in enumerate(x)]
    raw, log_probs = tf.nest.map_structure(
        lambda *leaves: np.concatenate(leaves),
        *[(acted.raw_actions, acted.log_probs) for acted in raws],
    )
    parameters = agent.policy.parameters(x.reshape(-1, 3)).numpy().astype(np.float64)
    bits, press, loc, log_std = np.split(parameters, [4, 7, 9], -1)
    rows = np.arange(T * N)
    expected = log_softmax(press)[rows, raw["press"]]
    for i in range(2):
        expected += log_softmax(bits[:, 2 * i : 2 * i + 2])[rows, raw["bits"][:, i]]
    z = (raw["steer"] - loc) / np.exp(log_std)
    expected += (-0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(-1)
    np.testing.assert_allclose(log_probs, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(agent.policy.log_std(), [-0.3, -0.3])
    # What is learned from are these: the ratio of probabilities begins at one.
    actions = tf.nest.map_structure(lambda x: x.reshape(T, N, *x.shape[1:]), raw)
    _, info = agent.update(make_trajectory()._replace(actions=actions))
    assert float(info["approx_kl"]) == pytest.approx(0.0, abs=1e-5)
    assert float(info["clip_fraction"]) == 0.0
    entropy = (0.5 * np.log(2 * np.pi * np.e) + log_std).sum(-1)
    for logits in (bits[:, :2], bits[:, 2:], press):
        logs = log_softmax(logits)
        entropy -= (np.exp(logs) * logs).sum(-1)
    assert float(info["entropy"]) == pytest.approx(entropy.mean(), abs=1e-3)


@pytest.mark.slow
def test_every_epoch_shows_every_row_once():
    """Where nothing moves, the mean over minibatches is that over all rows."""
    still = {"learning_rate": 1e-12, "normalize_advantages": False}
    trajectory = make_trajectory()
    agent = make_agent(minibatch_size=4, n_epochs=3, **still)
    learned, info = agent.update(trajectory)
    _, expected = make_agent(n_epochs=1, **still).update(trajectory)
    assert float(info["gradient_steps"]) == 9
    for name in ("loss", "policy_loss", "value_loss", "entropy"):
        assert float(info[name]) == pytest.approx(float(expected[name]), abs=1e-5)
    # The next update shuffles otherwise.
    assert not np.array_equal(learned.rng, agent.rng)
    assert int(learned.n_updates_done) == 1


def test_invalid_rows_have_no_influence():
    valid = np.ones((T, N), bool)
    valid[2, 0] = valid[4, 1] = False
    clean = make_trajectory()._replace(valid=valid)
    clean.terminated[1, 0] = clean.terminated[3, 1] = True
    spoiled = clean._replace(
        observations=np.where(valid[..., None], clean.observations, 9.0).astype("f"),
        rewards=np.where(valid, clean.rewards, 1e3).astype("f"),
    )
    agent = make_agent(**EVERYTHING)
    first, info = agent.update(clean)
    second, other = agent.update(spoiled)
    assert float(info["loss"]) == pytest.approx(float(other["loss"]), abs=1e-6)
    assert_close(params_of(first), params_of(second), atol=1e-6)
    moments = first.policy.observation_moments[0]
    np.testing.assert_allclose(
        moments.mean, clean.observations[valid].mean(0), atol=1e-6
    )


def test_truncation_bootstraps_and_termination_does_not():
    agent, trajectory = make_agent(**ONE_STEP), make_trajectory()
    nothing = np.zeros((T, N), bool)
    far = trajectory._replace(next_observations=trajectory.next_observations + 3.0)
    for terminated in (nothing, ~nothing):
        ends = {"terminated": terminated, "truncated": ~terminated}
        one, other = (
            float(agent.update(x._replace(**ends))[1]["value_loss"])
            for x in (trajectory, far)
        )
        assert (one == other) == terminated.all()


@pytest.mark.slow
def test_observations_are_normalized_by_the_moments_that_acted():
    trajectory = make_trajectory()
    updated, _ = make_agent(normalize_observations=True, **MINIBATCHES).update(
        trajectory
    )
    # Before the first update the moments change nothing, so both learn the same.
    expected, _ = make_agent(**MINIBATCHES).update(trajectory)
    assert_close(params_of(updated), params_of(expected), atol=1e-6)
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
    rates, steps = [], []
    for percent in (0.0, 0.5, 1.0):
        before, told = params_of(agent), progress.Progress(percent=percent)
        agent, info = agent.update(make_trajectory(), progress=told)
        rates.append(float(info["learning_rate"]))
        steps.append(float(info["gradient_steps"]))
    np.testing.assert_allclose(rates, [0.05, 0.025, 0.0], atol=1e-7)
    assert_close(params_of(agent), before)
    # What does not move comes to its end.
    assert 1 < steps[0] < 50 and steps[2] == 50


@pytest.mark.slow
@pytest.mark.parametrize(
    "target_kl",
    [pytest.param(None, marks=pytest.mark.slow), 2e-3],
    ids=["all steps", "early stop"],
)
def test_a_long_update_is_that_of_one_call_however_it_is_cut(monkeypatch, target_kl):
    settings = {**EVERYTHING, "learning_rate": 0.01, "target_kl": target_kl}
    agent, trajectory = make_agent(space=NEST, **settings), make_trajectory(space=NEST)
    # What the next row shows is not asked for again, a successor apart from it is.
    trajectory.next_observations["position"][1, 1] += 5.0
    whole, expected = agent.update(trajectory)
    sizes, compiled = [], _on_policy._compiled_outputs

    def counted(policy, observations):
        sizes.append(len(observations["goal"]))
        return compiled(policy, observations)

    monkeypatch.setattr(_on_policy, "_compiled_outputs", counted)
    monkeypatch.setattr(replicated, "_BRIEF_WORK", 1)
    monkeypatch.setattr(replicated, "_FORWARD_ROWS", 5)
    found = []
    for seconds in (0.0, 1e-4, 1e9):
        monkeypatch.setattr(replicated, "_PIECE_SECONDS", seconds)
        found.append(agent.update(trajectory))
    for learned, info in found:
        assert list(info) == list(expected)
        assert_close(learned, found[0][0])
        assert_close(learned, whole, rtol=1e-5, atol=1e-6)
        assert float(info["gradient_steps"]) == float(expected["gradient_steps"])
    assert (float(expected["gradient_steps"]) < 6) == (target_kl is not None)
    apart = (trajectory.terminated | trajectory.truncated)[:-1].sum()
    assert set(sizes) == {5}
    n_needed = T * N + N + apart + (not trajectory.terminated[1, 1])
    assert 3 * n_needed <= sum(sizes) < 3 * (n_needed + 5)


@pytest.mark.slow
def test_a_long_update_may_be_of_one_step(monkeypatch):
    agent = make_agent(space=NEST, minibatch_size=2, n_epochs=1)
    given = tf.nest.map_structure(lambda x: x[:1], make_trajectory(space=NEST))
    monkeypatch.setattr(replicated, "_BRIEF_WORK", 1)
    learned, info = agent.update(given)
    monkeypatch.undo()
    whole, expected = agent.update(given)
    assert_close(learned, whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(info["loss"], expected["loss"], rtol=1e-5)


@pytest.mark.slow
def test_two_replicas_learn_in_pieces_what_one_learns(monkeypatch):
    agent, trajectory = make_agent(**EVERYTHING), make_trajectory()
    alone = agent.update(trajectory)
    monkeypatch.setattr(replicated, "_BRIEF_WORK", 1)
    with two_replicas().scope():
        assert_close(agent.update(trajectory), alone, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_memory_is_flat_over_20_000_updates():
    agent = make_agent(**EVERYTHING)
    trajectories = [make_trajectory(seed=seed) for seed in range(10)]
    process, sizes = psutil.Process(), []
    for index in range(20_000):
        agent, _ = agent.update(trajectories[index % 10])
        if index % 2_000 == 1_999:
            sizes.append(process.memory_info().rss)
    assert max(sizes[1:]) - sizes[0] < 4 * 2**20, sizes


@pytest.mark.slow
def test_learns_which_actions_pay():
    settings = {"minibatch_size": 64, "learning_rate": 0.01, "hidden_units": (8,)}
    agent = ppo.PPO(lambda_=0.0, **settings).create(BOX, TUPLE, seed=0)
    x, ended = np.ones((8, 16, 3), np.float32), np.ones((8, 16), bool)
    for step in range(40):
        acted = agent.policy.act(x.reshape(-1, 3), seed=step)
        first, second = acted.actions
        paid = (
            1.0 * (first == 1)
            + (second["more"] == 2)
            - np.abs(second["deep"] - 1).sum(-1)
        )
        raw = tf.nest.map_structure(
            lambda leaf: leaf.reshape(8, 16, *leaf.shape[1:]), acted.raw_actions
        )
        rewards = paid.reshape(8, 16).astype(np.float32)
        agent, _ = agent.update(
            records.Trajectory(x, raw, rewards, ended, ~ended, x, ended)
        )
    first, second = agent.policy.act(x[0], temperature=0.0).actions
    assert (first == 1).all() and (second["more"] == 2).all()
    np.testing.assert_allclose(second["deep"], 1.0, atol=0.4)


def test_minibatches_must_fit():
    message = "`minibatch_size` expected to divide steps . environments = 12; got 5"
    with pytest.raises(ValueError, match=message):
        make_agent(minibatch_size=5)


def test_an_agent_without_an_optimizer_says_so():
    agent = make_agent()
    state = type(agent.policy.state).create(agent.policy.state.model_def)
    agent = agent.replace(policy=agent.policy.replace(state=state))
    with pytest.raises(ValueError, match="`tx` expected an optimizer"):
        agent.update(make_trajectory())


def played_by(agent, seed=0):
    """A trajectory with the log-probabilities that its actions had for an agent."""
    trajectory = make_trajectory(seed=seed)
    logits = agent.policy.parameters(trajectory.observations.reshape(-1, 3))
    known = tf.math.log_softmax(logits).numpy().reshape(T, N, 3)
    taken = np.take_along_axis(known, trajectory.actions[..., None], -1)[..., 0]
    return trajectory._replace(log_probs=taken)


def spread(agent):
    """The agent with a last layer that is not as small as it starts."""
    params = dict(agent.policy.state.params)
    params["actor_critic/actor/output/kernel"] *= 60.0
    state = agent.policy.state.replace(params=params)
    return agent.replace(policy=agent.policy.replace(state=state))


@pytest.mark.slow
def test_own_trajectories_are_corrected_by_nothing():
    # All ratios are 1: V-trace is the lambda return.
    plain, corrected = (spread(make_agent(vtrace=x, **ONE_STEP)) for x in (False, True))
    trajectory = played_by(plain)
    (one, info), (other, known) = (x.update(trajectory) for x in (plain, corrected))
    for name, value in params_of(one).items():
        np.testing.assert_allclose(params_of(other)[name], value, atol=1e-5)
    for name, value in info.items():
        assert float(value) == pytest.approx(float(known[name]), abs=1e-5), name


def test_the_clip_fraction_counts_ratios_whichever_way_the_gain():
    ratios, gains = tf.constant([1.25, 1.25, 0.75, 0.75, 1.1]), [1.0, -1, 1, -1, 1]
    rows = advantages.Experience((), (), *[tf.zeros(5)] * 5)
    rows = rows._replace(advantages=tf.constant(gains))
    given = tf.math.log(ratios), rows, {"clip": 0.2}
    _, measured = make_agent()._policy_losses(*given)
    assert measured["clip_fraction"].numpy().tolist() == [1, 1, 1, 1, 0]


@pytest.mark.slow
def test_an_older_policy_is_corrected_for_as_by_impala():
    settings = {"hidden_units": (8,), "lambda_": 0.9}
    agent = spread(make_agent(vtrace=True, **settings, gamma=0.9))
    other = impala.IMPALA(**settings, gamma=0.9)
    other = spread(other.create(BOX, CHOICES, n_envs=N, n_steps=T, seed=0))
    trajectory = played_by(spread(make_agent(seed=5)))
    found, expected = (
        x._advantages(trajectory, trajectory.rewards, None) for x in (agent, other)
    )
    assert_close(found, expected, atol=1e-6)
    ratios = np.exp(found.log_probs - trajectory.log_probs.reshape(-1))
    assert ratios.min() < 0.8 and ratios.max() > 1.2
    # The clipped ratio starts at 1, whoever acted: nothing is clipped in a first step.
    _, info = spread(make_agent(vtrace=True, **ONE_STEP)).update(trajectory)
    assert float(info["clip_fraction"]) == 0.0
    assert float(info["approx_kl"]) == pytest.approx(0.0, abs=1e-6)
    plain, _ = spread(make_agent(**ONE_STEP)).update(trajectory)
    corrected, _ = spread(make_agent(vtrace=True, **ONE_STEP)).update(trajectory)
    apart = [
        np.abs(value - params_of(corrected)[name]).max()
        for name, value in params_of(plain).items()
    ]
    assert max(apart) > 1e-4


def test_a_correction_asks_for_log_probabilities():
    assert not make_agent().needs_log_probs
    agent = make_agent(vtrace=True)
    assert agent.needs_log_probs
    with pytest.raises(ValueError, match="`PPO.update`: .*`log_probs` of shape"):
        agent.update(make_trajectory())
