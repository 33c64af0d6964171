"""Tests of `tfrl.environments.envpool_vector`."""

import gymnasium as gym
import numpy as np
import pytest
import refusals
from gymnasium.vector import AutoresetMode
from refusals import bad

from tfrl import environments, host
from tfrl.environments import EnvPoolVector, make_vec


def angle(cosine, sine):
    return np.arctan2(np.float64(sine), cosine)


# What Gymnasium's own environment has as its state where EnvPool shows this.
STATES = {
    "CartPole-v1": lambda seen: seen,
    "MountainCar-v0": lambda seen: seen,
    "MountainCarContinuous-v0": lambda seen: seen,
    "Pendulum-v1": lambda seen: [angle(*seen[:2]), seen[2]],
    "Acrobot-v1": lambda seen: [angle(*seen[:2]), angle(*seen[2:4]), *seen[4:]],
}


# Those whose episodes at random are long.
LONG = ("MountainCarContinuous-v0", "Acrobot-v1")


@pytest.mark.parametrize(
    "env_id",
    [pytest.param(x, marks=pytest.mark.slow if x in LONG else ()) for x in STATES],
)
def test_transitions_are_those_of_gymnasium(env_id):
    envs, other = EnvPoolVector(env_id, 1), gym.make(env_id)
    assert envs.single_observation_space == other.observation_space
    assert envs.single_action_space == other.action_space
    other.reset()
    seen, _ = envs.reset(seed=3)
    other.action_space.seed(0)
    for _ in range(3):
        other.reset()
        other.unwrapped.state = np.array(STATES[env_id](seen[0]), np.float64)
        ended = False
        while not ended:
            action = other.action_space.sample()
            one, two = envs.step(np.array([action])), other.step(action)
            np.testing.assert_allclose(one[0][0], two[0], atol=2e-5)
            np.testing.assert_allclose(one[1][0], two[1], rtol=1e-5, atol=1e-5)
            assert (one[2][0], one[3][0]) == two[2:4]
            ended = two[2] or two[3]
        seen, _ = envs.reset(options={"reset_mask": np.array([True])})
    envs.close()


def test_a_mujoco_step_is_that_of_gymnasium():
    envs, other = EnvPoolVector("HalfCheetah-v5", 2), gym.make("HalfCheetah-v5")
    assert envs.single_observation_space == other.observation_space
    assert envs.single_action_space == other.action_space
    seen, _ = envs.reset(seed=0)
    other.reset()
    other.unwrapped.set_state(np.array([0.0, *seen[1, :8]]), seen[1, 8:])
    actions = envs.action_space.sample()
    one, two = envs.step(actions), other.step(actions[1])
    np.testing.assert_allclose(one[0][1], two[0], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(one[1][1], two[1], rtol=1e-3, atol=1e-3)


def played(envs, seed, n_steps=60):
    rng = np.random.default_rng(0)
    rows = [envs.reset(seed=seed)[0]]
    for _ in range(n_steps):
        actions = rng.integers(2, size=envs.num_envs)
        seen, rewards, terminated, truncated, _ = envs.step(actions)
        rows.append(np.concatenate([seen, rewards[:, None]], axis=1))
        if (terminated | truncated).any():
            seen, _ = envs.reset(options={"reset_mask": terminated | truncated})
        rows.append(seen)
    return [row.copy() for row in rows]


def test_a_seed_tells_everything():
    one, two = EnvPoolVector("CartPole-v1", 3), EnvPoolVector("CartPole-v1", 3)
    for row, other in zip(played(one, 5), played(two, 5), strict=True):
        np.testing.assert_array_equal(row, other)
    first = one.reset(seed=5)[0]
    np.testing.assert_array_equal(first, two.reset(seed=[5, 6, 7])[0])
    np.testing.assert_array_equal(
        first[1:], EnvPoolVector("CartPole-v1", 2).reset(seed=6)[0]
    )
    assert (one.reset()[0] != first).any()
    assert (EnvPoolVector("CartPole-v1", 3).reset()[0] != one.reset()[0]).any()


def test_only_what_the_mask_says_begins_anew():
    envs = EnvPoolVector("CartPole-v1", 3, max_episode_steps=4)
    assert envs.metadata["autoreset_mode"] == AutoresetMode.DISABLED
    envs.reset(seed=0)
    mask = np.array([False, True, False])
    for _ in range(3):
        seen, *_ = envs.step(np.array([0, 1, 0]))
    before = seen.copy()
    after, info = envs.reset(options={"reset_mask": mask})
    np.testing.assert_array_equal(after[~mask], before[~mask])
    assert (abs(after[1]) < 0.05).all() and (after[1] != before[1]).any()
    np.testing.assert_array_equal(info["_elapsed_step"], mask)
    *_, terminated, truncated, info = envs.step(np.array([0, 1, 0]))
    assert truncated.tolist() == [True, False, True] and not terminated.any()
    assert info["elapsed_step"].tolist() == [4, 1, 4]
    assert info["_elapsed_step"].all()


def test_a_stepper_sees_true_successors():
    envs = make_vec("CartPole-v1", 4, "envpool", max_episode_steps=7)
    stepper = host.Stepper(envs, seed=0)
    n_ends = 0
    for _ in range(30):
        before = stepper.observations
        outcome = stepper.step(np.array([0, 1, 0, 1]))
        assert outcome.valid.all()
        # A cart moves by its velocity.
        moved = before[:, 0] + 0.02 * before[:, 1]
        np.testing.assert_allclose(outcome.next_observations[:, 0], moved, atol=1e-6)
        n_ends += (outcome.terminated | outcome.truncated).sum()
    assert n_ends >= 16


def test_it_is_made_again():
    envs = make_vec("Pendulum-v1", 2, "envpool", env_kwargs={"num_threads": 1})
    again = envs.remake(n_envs=5)
    assert again.num_envs == 5 and isinstance(again.unwrapped, EnvPoolVector)
    assert again.remake.keywords["env_kwargs"] == {"num_threads": 1}


def test_pictures():
    envs = EnvPoolVector("CartPole-v1", 2, render_mode="rgb_array")
    envs.reset(seed=0)
    one, two = envs.render()
    assert one.shape == two.shape and one.shape[2] == 3 and one.dtype == np.uint8
    assert one.std() > 0 and (one != two).any()
    assert EnvPoolVector("CartPole-v1", 2).render() is None


def test_one_is_drawn():
    env = EnvPoolVector("CartPole-v1", 5, max_episode_steps=3).drawable()
    first, _ = env.reset(seed=2)
    again, _ = EnvPoolVector("CartPole-v1", 1).reset(seed=2)
    np.testing.assert_array_equal(first, again[0])
    assert env.render().ndim == 3
    ends = [env.step(1)[2:4] for _ in range(3)]
    assert ends == [(False, False)] * 2 + [(False, True)]
    env.close()


def test_a_snapshot_says_that_it_has_none():
    envs = EnvPoolVector("CartPole-v1", 2)
    envs.reset(seed=0)
    assert environments.capture(envs) is None


def test_an_unknown_name_is_told_with_those_like_it():
    with pytest.raises(ValueError, match="`task_id` .*CartPole-v1") as told:
        EnvPoolVector("Cartpole-v1", 1)
    assert len(str(told.value)) < 200


def begun():
    envs = EnvPoolVector("CartPole-v1", 2)
    envs.reset(seed=0)
    return envs


def reset(**kwargs):
    return begun().reset(**kwargs)


def step(actions):
    return begun().step(actions)


@refusals.table(
    (
        EnvPoolVector,
        bad(TypeError, "task_id", 3, 1),
        bad(ValueError, "task_id", "NoSuchGame-v1", 1),
        bad(ValueError, "n_envs", "CartPole-v1", 0),
        bad(ValueError, "render_mode", "CartPole-v1", 1, render_mode="human"),
        bad(ValueError, "options", "CartPole-v1", 1, speed=3),
        bad(ValueError, "options", "CartPole-v1", 1, seed=3),
    ),
    (
        make_vec,
        bad(
            ValueError, "wrappers", "CartPole-v1", 1, "envpool", wrappers=[gym.Wrapper]
        ),
    ),
)
def test_refusals(row):
    row()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reset(seed=-1), "`seed` expected"),
        (lambda: reset(seed=[1, 2, 3]), "`seed` expected"),
        (lambda: reset(seed="a"), "`seed` expected"),
        (lambda: reset(options={"reset_mask": [True]}), "`options` expected"),
        (lambda: reset(options={"reset_mask": [0, 1]}), "`options` expected"),
        (
            lambda: reset(seed=3, options={"reset_mask": [True, False]}),
            "`options` expected",
        ),
        (lambda: step([0]), "`actions` expected"),
        (lambda: step([0, 2]), "`actions` expected"),
        (lambda: step([0, -1]), "`actions` expected"),
        (lambda: step([0.0, 1.0]), "`actions` expected"),
        (
            lambda: EnvPoolVector("CartPole-v1", 1).step([0]),
            "`actions` expected .* after a reset",
        ),
    ],
)
def test_what_would_end_the_process_is_refused(call, message):
    with pytest.raises(ValueError, match=rf"`EnvPoolVector\.\w+`: {message}"):
        call()
