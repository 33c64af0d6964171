"""Tests of `tfrl.training.collecting.collection`."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.vector import AutoresetMode
from toy_envs import LAYOUTS, MODES, Walk, act, vector

from tfrl.environments.compiled import vector_env
from tfrl.policies import policy
from tfrl.training import evaluation
from tfrl.training.collecting import collection


def to_env(actions):
    return actions.astype(np.int64)


def collected(mode, layout="box", n_steps=20, rounds=3, seed=5, **kwargs):
    collector = collection.Collector(
        vector(mode, layout=layout, **kwargs), n_steps, seed
    )
    return collector, [collector.collect(act, to_env) for _ in range(rounds)]


def transitions(trajectories, env):
    """The valid transitions of one environment in order, as tuples of numbers."""
    found = []
    for trajectory in trajectories:
        leaves = tf.nest.flatten(trajectory._replace(valid=()))
        for t in np.flatnonzero(trajectory.valid[:, env]):
            found.append(tuple(x for leaf in leaves for x in np.ravel(leaf[t, env])))
    return found


def played_slowly(env, seed, n):
    """The first `n` transitions of one walk, without any vector."""
    found, episodes, total = [], [], 0.0
    observation, _ = env.reset(seed=seed)
    while len(found) < n:
        action = act(observation[None])[0]
        after, reward, terminated, truncated, _ = env.step(int(action))
        found.append(
            (*observation, action, np.float32(reward), terminated, truncated, *after)
        )
        total += reward
        if terminated or truncated:
            episodes.append((total, env.steps))
            after, _ = env.reset()
            total = 0.0
        observation = after
    return found, episodes


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_transitions_are_those_of_a_single_environment(mode):
    collector, trajectories = collected(mode)
    ends = np.zeros(2, int)
    for env in range(3):
        found = transitions(trajectories, env)
        expected, _ = played_slowly(Walk(), 5 + env, len(found))
        np.testing.assert_array_equal(found, expected)
        ends += np.array(found)[:, 5:7].sum(0).astype(int)
    assert ends.min() > 3, "both kinds of end must have come up"
    n_valid = sum(int(trajectory.valid.sum()) for trajectory in trajectories)
    assert collector.env_steps == n_valid
    assert (n_valid < 180) == (mode == AutoresetMode.NEXT_STEP)
    for played in trajectories:
        if mode == AutoresetMode.NEXT_STEP:
            ended = (played.terminated | played.truncated)[:-1]
            np.testing.assert_array_equal(played.valid[1:], ~ended)
            np.testing.assert_array_equal(played.rewards[~played.valid], 0.0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_modes_give_the_same_transitions(layout):
    runs = [collected(mode, layout)[1] for mode in MODES]
    for env in range(3):
        rows = [transitions(trajectories, env) for trajectories in runs]
        n = min(map(len, rows))
        assert n > 30
        np.testing.assert_array_equal(rows[0][:n], rows[1][:n])
        np.testing.assert_array_equal(rows[0][:n], rows[2][:n])


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_episode_returns_and_lengths(mode):
    collector, trajectories = collected(mode, n_steps=7, rounds=9)
    episodes = []
    for env in range(3):
        n = len(transitions(trajectories, env))
        episodes += played_slowly(Walk(), 5 + env, n)[1]
    found = zip(collector.episode_returns, collector.episode_lengths, strict=True)
    np.testing.assert_allclose(sorted(found), sorted(episodes), rtol=1e-12)
    assert len(episodes) > 20


def test_the_last_episodes_are_of_all_environments():
    """Else those that end together, by a time limit, would speak for all."""
    envs = vector_env.make_compiled("CartPole-v1", 130)
    collector = collection.Collector(envs, 40, 0)
    random = np.random.default_rng(0)
    trajectory = collector.collect(lambda x: random.integers(0, 2, len(x)))
    assert np.sum(trajectory.terminated & trajectory.valid) > 130
    assert len(collector.episode_returns) == len(collector.episode_lengths) == 130


def test_shapes_and_dtypes():
    _, (trajectory,) = collected(AutoresetMode.DISABLED, "dict", n_steps=4, rounds=1)
    assert list(trajectory.observations) == ["z", "a"], "the environment's order"
    assert trajectory.observations["z"].shape == (4, 3, 3)
    assert trajectory.observations["z"].dtype == np.float32
    assert trajectory.observations["a"].dtype == np.int64
    assert trajectory.actions.dtype == np.int32
    assert trajectory.rewards.dtype == np.float32
    for flags in (trajectory.terminated, trajectory.truncated, trajectory.valid):
        assert flags.dtype == bool
        assert flags.shape == (4, 3)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_environments_that_overwrite_what_they_showed(mode):
    safe = collected(mode)[1]
    shared = collected(mode, copy=False)[1]
    for one, other in zip(tf.nest.flatten(safe), tf.nest.flatten(shared), strict=True):
        np.testing.assert_array_equal(one, other)


def test_trajectories_are_not_overwritten_by_later_ones():
    collector = collection.Collector(vector(AutoresetMode.DISABLED), 5, 0)
    first = collector.collect(act, to_env)
    kept = tf.nest.map_structure(np.copy, first)
    collector.collect(act, to_env)
    for one, other in zip(tf.nest.flatten(first), tf.nest.flatten(kept), strict=True):
        np.testing.assert_array_equal(one, other)


def test_to_env_gets_the_raw_actions_and_rows_keep_them():
    seen = []

    def shifted(actions):
        seen.append(actions.copy())
        return (actions - 10).astype(np.int64)

    collector = collection.Collector(vector(AutoresetMode.DISABLED), 6, 0)
    chooser = policy.FunctionPolicy(lambda obs: act(obs) + 10, shifted)
    trajectory = collector.collect(chooser)
    np.testing.assert_array_equal(trajectory.actions, seen)
    assert trajectory.actions.min() >= 10


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("what", "name"), [("reward", "rewards"), ("observation", "next_observations")]
)
@pytest.mark.parametrize(
    ("layout", "part"),
    [("box", ""), ("dict", r"\['z'\]"), ("tuple", r"\[1\]\['b'\]")],
)
def test_numbers_that_are_none_name_step_and_environment(
    what, name, layout, part, value
):
    envs = vector(
        AutoresetMode.DISABLED, layout=layout, bad=[None, (what, 13, value), None]
    )
    collector = collection.Collector(envs, 10, 0)
    # Fixed actions: one made of a NaN would be another error.
    still = np.ones(3, np.int32)
    collector.collect(lambda _: still, to_env)
    part = part if what == "observation" else ""
    with pytest.raises(
        ValueError,
        match=f"`Collector.collect`: `{name}{part}` expected finite numbers; got "
        f"{value} at step 3 of those just played in environment 1;",
    ):
        collector.collect(lambda _: still, to_env)


@pytest.mark.parametrize("first", [0, 2])
def test_observations_explain_actions_that_are_no_numbers(first):
    class Blind(Walk):
        action_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)

        def reset(self, **kwargs):
            seen, info = super().reset(**kwargs)
            return seen * (np.nan if first == 0 else 1.0), info

        def step(self, action):
            seen, *rest = super().step(0)
            return seen * (np.nan if self.steps == first else 1.0), *rest

    envs = gym.vector.SyncVectorEnv([Blind] * 2)
    message = f"got nan at step {first} of those just played in environment 0; fix the"
    for where, play in (
        ("Collector.collect", collection.Collector(envs, 5, 0).collect),
        ("evaluate", lambda policy: evaluation.evaluate(policy, envs, 2, seed=0)),
    ):
        match = f"`{where}`: `observations` expected finite numbers; {message}"
        with pytest.raises(ValueError, match=match):
            play(lambda seen: seen[:, :1])


def test_a_reward_that_is_too_large_is_told_as_it_is():
    envs = vector(AutoresetMode.DISABLED, bad=[None, ("reward", 3, 1e300), None])
    collector = collection.Collector(envs, 10, 0)
    with pytest.raises(ValueError, match=r"got 1e\+300, too large for float32, at st"):
        collector.collect(lambda _: np.ones(3, np.int32), to_env)


class Far(gym.Env):
    """Shows a number, which grows fast."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, dtype):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.full(1, 1e30, self.observation_space.dtype)
        return self.place, {}

    def step(self, action):
        self.place = self.place * 1e4
        return self.place, 0.0, False, False, {}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_observation_that_is_too_large_is_told_as_it_is(dtype):
    envs = gym.vector.SyncVectorEnv([lambda: Far(dtype)] * 2)
    collector = collection.Collector(envs, 2, 0)

    def still(observations):
        return np.zeros(2, np.int64)

    assert collector.collect(still).observations.dtype == dtype
    large = r"1e\+42, too large for float32," if dtype == np.float64 else "inf"
    with (
        np.errstate(over="ignore"),
        pytest.raises(ValueError, match=f"finite numbers; got {large} at step 1"),
    ):
        collector.collect(still)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_state_round_trip(mode):
    collector, _ = collected(mode, "dict", n_steps=7)
    state = collector.state()
    kept = tf.nest.map_structure(np.copy, state)
    again, _ = collected(mode, "dict", n_steps=7)
    # What it lived through meanwhile must be forgotten, the environments' state aside.
    again.episode_returns.append(1e6)
    again.env_steps = -1
    again._returns += 3.0
    again.set_state(state, same_episodes=True)
    next_ones = [each.collect(act, to_env) for each in (collector, again)]
    for one, other in zip(*map(tf.nest.flatten, next_ones), strict=True):
        np.testing.assert_array_equal(one, other)
    assert collector.env_steps == again.env_steps
    assert list(collector.episode_returns) == list(again.episode_returns)
    assert list(collector.episode_lengths) == list(again.episode_lengths)
    assert 1e6 not in again.episode_returns
    for one, other in zip(tf.nest.flatten(state), tf.nest.flatten(kept), strict=True):
        np.testing.assert_array_equal(one, other)


def test_state_with_new_episodes_takes_the_counters_alone():
    collector, _ = collected(AutoresetMode.DISABLED)
    fresh = collection.Collector(vector(AutoresetMode.DISABLED), 20, 77)
    shown = fresh.observations.copy()
    fresh.set_state(collector.state(), same_episodes=False)
    assert fresh.env_steps == collector.env_steps
    assert fresh.episode_returns == collector.episode_returns
    assert fresh.episode_returns.maxlen == 100
    np.testing.assert_array_equal(fresh.observations, shown)
    fresh.collect(act, to_env)
    expected, episodes = played_slowly(Walk(), 77, 20)
    assert episodes[0][0] in fresh.episode_returns


def test_reset_gives_running_episodes_up():
    collector, _ = collected(AutoresetMode.NEXT_STEP, n_steps=8, rounds=1)
    assert collector._stepper.resetting.any() or collector._lengths.any()
    collector.reset(5)
    first = collector.collect(act, to_env)
    _, (expected,) = collected(AutoresetMode.NEXT_STEP, n_steps=8, rounds=1)
    for one, other in zip(
        tf.nest.flatten(first), tf.nest.flatten(expected), strict=True
    ):
        np.testing.assert_array_equal(one, other)


class Counting:
    """Remembers how many steps it has acted in the episode."""

    def initial_state(self, batch_size):
        return {"count": np.zeros(batch_size, np.int64)}

    def act(self, observations, state=(), **_):
        actions = act(observations)
        log_probs = -np.asarray(state["count"], np.float32)
        return policy.Acted(actions, actions, log_probs, {"count": state["count"] + 1})


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_what_was_remembered_before_each_step_is_kept(mode):
    collector = collection.Collector(vector(mode), 20, 5)
    counts = np.zeros(3, int)
    for _ in range(2):
        trajectory = collector.collect(Counting())
        found = trajectory.states["count"]
        np.testing.assert_array_equal(trajectory.log_probs, -found)
        for t in range(20):
            valid = trajectory.valid[t]
            np.testing.assert_array_equal(found[t][valid], counts[valid])
            ended = (trajectory.terminated | trajectory.truncated)[t]
            # Where an environment only resets, nothing is seen of the next episode.
            counts = np.where(ended | ~valid, 0, counts + 1)
    plain = collection.Collector(vector(mode), 2, 5).collect(act)
    assert plain.states == plain.log_probs == ()


def test_errors():
    with pytest.raises(ValueError, match="`Collector`: `n_steps` expected an int of"):
        collection.Collector(vector(AutoresetMode.DISABLED), 0, 0)


@pytest.mark.parametrize(
    ("later", "message"),
    [(np.full(2, 7), "got 7 among them"), (np.zeros(1, int), r"got \[1\]; return one")],
)
def test_a_function_is_asked_at_every_step(later, message):
    collector = collection.Collector(vector(AutoresetMode.SAME_STEP, 2), 5, 0)
    choices = iter([np.zeros(2, int), np.zeros(2, int), later])
    with pytest.raises(ValueError, match=f"`policy` expected to return .*{message}"):
        collector.collect(lambda observations: next(choices))
    assert next(choices, None) is None


def test_what_is_done_where_one_only_resets_does_not_count():
    envs = vector(AutoresetMode.NEXT_STEP, 2)
    collector = collection.Collector(envs, 60, 0)

    def choose(observations):
        return np.where(collector._resetting, 7, act(observations))

    trajectory = collector.collect(choose)
    assert (trajectory.actions == 7).any() and not trajectory.valid.all()
    np.testing.assert_array_equal(trajectory.actions == 7, ~trajectory.valid)
