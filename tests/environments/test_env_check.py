"""Tests of `check_env`: faults planted into a sound environment are found and told."""

import functools
import inspect
import itertools
import pathlib
import random
import subprocess
import sys
import threading

import default_rows
import faulty_envs as faulty
import gymnasium as gym
import numpy as np
import pytest
from default_rows import slow
from faulty_envs import Sound, odd
from toy_envs import Strict

from tfrl.environments import (
    _contracts,
    _episodes,
    action_masks,
    compiled,
    env_check,
    matrix_game,
)

S = gym.spaces


def names(report):
    return {found.name for found in report.findings}


def check(env, n_steps=64, **kwargs):
    return env_check.check_env(env, raise_errors=False, n_steps=n_steps, **kwargs)


ERRORS = [
    ("no_space", odd(observation_space=None)),
    ("bounds", odd(observation_space=S.Box(-10.0, 10.0, (2, 0), np.float32))),
    ("reset_arguments", faulty.OldReset),
    ("reset_return", odd(reset=lambda o, i: o)),
    ("step_return", odd(lambda _, o, r, t, u, i: (o, r, t or u, i))),
    ("raises", faulty.Raising),
    ("observation_form", odd(lambda _, o, *rest: (o[:1], *rest))),
    ("observation_dtype", odd(lambda _, o, *rest: (o.astype(np.float64), *rest))),
    ("observation_not_finite", odd(lambda _, o, *rest: (o * np.nan, *rest))),
    ("reset_bounds", odd(reset=lambda o, i: (o + 30, i))),
    ("reward_type", odd(lambda _, o, r, *rest: (o, np.array([r]), *rest))),
    ("reward_not_finite", odd(lambda _, o, r, *rest: (o, np.inf, *rest))),
    ("end_type", odd(lambda _, o, r, t, u, i: (o, r, int(t), u, i))),
    ("info_type", odd(lambda _, o, r, t, u, i: (o, r, t, u, None))),
    *[
        ("observation_overwritten", faulty.Overwriting),
        ("space_changes", faulty.Growing),
    ],
    *[("action_changed", faulty.Greedy), ("not_reproducible", faulty.Timed)],
    *[("global_random", faulty.Worldly), ("global_random", faulty.Legacy)],
    *[("shared_state", faulty.Default), ("shared_state", faulty.OfClass)],
    *[("shared_state", faulty.OfModule), ("reset_incomplete", faulty.Tired)],
    ("reset_incomplete", faulty.OwnDice),
]
EQUAL = S.Box(np.float32([-10, 3]), np.float32([10, 3]))
WARNINGS = [
    ("observation_bounds", odd(lambda _, o, *rest: (o + 30, *rest))),
    ("action_unbounded", odd(action_space=S.Box(-np.inf, np.inf, (1,)))),
    ("action_scale", odd(action_space=S.Box(0.0, 1.0, (1,)))),
    ("space_kind", odd(observation_space=S.Text(4))),
    *[("seed_default", faulty.FixedSeed), ("seed_not_kept", faulty.Unseeded)],
    *[("bounds_equal", odd(observation_space=EQUAL)), ("info_changes", faulty.Moody)],
    *[("render_modes", odd(metadata={})), ("info_reused", faulty.Thrifty)],
    ("observation_constant", faulty.Blind),
    *[("observation_is_state", faulty.Bare), ("reset_reseeds", faulty.Stuck)],
    *[("reset_reseeds", faulty.Fixed), ("reset_reseeds", faulty.FixedDice)],
    *[("reset_reseeds", faulty.Start), ("plays_on", faulty.Endless)],
    *[("time_limit", faulty.Limited), ("endless", faulty.Eternal)],
]
# What a fault brings with it: samples of [10, 3] are not of the space [-10, 10], an
# array is no Text, an unseeded environment repeats nothing.
BROUGHT = {
    "bounds_equal": {"observation_bounds", "reset_bounds"},
    "space_kind": {"observation_form"},
    "seed_not_kept": {"not_reproducible"},
}


@pytest.mark.parametrize(
    ("level", "name", "env"),
    [("error", *row) for row in ERRORS] + [("warning", *row) for row in WARNINGS],
    ids=lambda value: getattr(value, "__name__", value).replace("Odd", ""),
)
def test_planted_faults_are_found(level, name, env):
    report = check(env, n_steps=1000 if env is faulty.Eternal else 64)
    (found,) = [found for found in report.findings if found.name == name]
    assert found.level == level and found.remedy
    errors = {error.name for error in report.errors}
    assert errors - {name} <= BROUGHT.get(name, set())


def test_every_fault_that_is_looked_for_has_a_remedy():
    source = "".join(map(inspect.getsource, (_contracts, _episodes, env_check)))
    listed = [name for table in _contracts._REMEDIES.values() for name in table]
    assert len(listed) == len(set(listed)) == 47
    assert [name for name in listed if source.count(f'"{name}"') < 2] == []


def test_faults_are_told_with_step_and_numbers():
    def at_seven(_, o, *rest):
        return (o * np.nan if np.isclose(o[1], 0.7) else o, *rest)

    class Counting(Sound):
        observation_space = S.Dict(a=S.Discrete(3), b=Sound.observation_space)

        def observe(self):
            return {"a": self.steps, "b": super().observe()}

    class Worse(faulty.Greedy):
        def step(self, action):
            action *= 0.5 if self.steps else 1.0
            found = Sound.step(self, action)
            return found[0], float("nan"), *found[2:]

    for env, name, text in (
        (odd(at_seven), "observation_not_finite", "observation[0] of step 7 is nan"),
        (faulty.Raising, "raises", "RuntimeError: the robot fell"),
        (faulty.OfClass, "shared_state", "`OfClass.counts` is one object for all"),
        (faulty.Default, "shared_state", "`visited` is one object for all instances"),
        (
            Counting,
            "observation_choice",
            "the observation['a'] of step 3 is 3 (int), not an int in [0, 2]",
        ),
        (Worse, "reward_not_finite", "the reward of step 1 is nan"),
        (Worse, "action_changed", "step 2 changed the array of its action"),
    ):
        what = {found.name: found.what for found in check(env, 50).errors}
        assert text in what[name]


@pytest.mark.parametrize(
    ("space", "found"),
    [
        (S.Discrete(3), []),
        (S.Discrete(3, start=1), ["start"]),
        (S.Dict(a=S.Tuple([S.MultiDiscrete([2, 2], start=[0, 1])])), ["start"]),
        (S.Box(0, 255, (84, 84, 3), np.uint8), []),
        (S.Box(0, 1, (84, 84, 3), np.float32), ["image"]),
        (S.Box(0, 1, (4, 84, 84), np.float32), ["image"]),
        (S.Box(0, 1, (3, 3, 3), np.float32), []),
    ],
    ids=str,
)
def test_spaces(space, found):
    env = odd(observation_space=space)()
    assert [name for name, _ in _contracts.faults_of_spaces(env)] == found


def test_a_sound_environment_has_no_findings_and_global_generators_are_left_alone():
    np.random.seed(3)
    random.seed(3)
    expected = np.random.random(), random.random()
    np.random.seed(3)
    random.seed(3)
    report = check(Sound)
    assert (np.random.random(), random.random()) == expected
    assert report.findings == report.skipped == ()
    assert report.env == "Sound" and report.steps_per_second > 100
    assert str(report).startswith("Sound: 0 errors, 0 warnings; about ")


@pytest.mark.parametrize(
    "env",
    [
        *[faulty.Idle, "CartPole-v1", "FrozenLake-v1", *slow("Blackjack-v1")],
        lambda: gym.make("FrozenLake-v1", is_slippery=False),
        *slow("Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0"),
        *slow("Pendulum-v1", "FrozenLake8x8-v1", "CliffWalking-v1"),
    ],
)
def test_sound_environments_may_always_be_the_same(env):
    report = env_check.check_env(env, n_steps=100)
    assert report.errors == ()
    assert "reset_reseeds" not in names(report)


@pytest.mark.slow
@pytest.mark.parametrize(
    "env_id",
    [
        *["LunarLander-v3", "LunarLanderContinuous-v3", "BipedalWalker-v3"],
        *["InvertedPendulum-v5", "HalfCheetah-v5", "Ant-v5", "Humanoid-v5"],
        "Reacher-v5",
    ],
)
def test_simulators_have_no_errors(env_id):
    pytest.importorskip("Box2D")
    pytest.importorskip("mujoco")
    report = env_check.check_env(env_id)
    assert report.errors == ()
    assert "not_capturable" in names(report)


STACK = functools.partial(gym.wrappers.FrameStackObservation, stack_size=4)


@pytest.mark.parametrize(
    "wrap",
    [gym.wrappers.NormalizeObservation, gym.wrappers.RecordEpisodeStatistics]
    + slow(STACK, gym.wrappers.TimeAwareObservation, gym.wrappers.FlattenObservation),
)
def test_wrappers_have_no_errors(wrap):
    report = check(lambda: wrap(gym.make("CartPole-v1")))
    assert report.errors == ()
    learns = wrap is gym.wrappers.NormalizeObservation
    assert ("wrapper_state" in names(report)) == learns


def test_an_environment_is_compared_with_its_copies_and_stays_open():
    class Closing(Sound):
        def close(self):
            self.closed = True

    env = Closing()
    env.action_space.seed(3)
    before = repr(env.action_space.np_random.bit_generator.state)
    report = check(env)
    assert report.findings == report.skipped == ()
    assert not hasattr(env, "closed")
    assert repr(env.action_space.np_random.bit_generator.state) == before
    env.handle = open(pathlib.Path(__file__))  # noqa: SIM115
    with env.handle:
        report = check(env)
    assert "pass a function that makes it" in report.skipped[0]
    assert "not_capturable" in names(report)


def test_what_is_registered_as_not_reproducible_is_not_compared():
    gym.register("Timed-v0", entry_point=faulty.Timed, nondeterministic=True)
    try:
        report = check("Timed-v0")
    finally:
        gym.registry.pop("Timed-v0")
    assert report.errors == ()
    assert any("registered as not so" in reason for reason in report.skipped)


def test_errors_are_raised_and_warnings_are_not():
    bad = odd(lambda _, *found: (*found[:2], 0, 0, {}))
    with pytest.raises(ValueError, match="(?s)`check_env`: `env` .*1 error.*end_type"):
        env_check.check_env(bad, n_steps=50)
    assert [found.name for found in check(bad).errors] == ["end_type"]
    assert check(faulty.Blind).errors == () != check(faulty.Blind).warnings
    env_check.check_env(faulty.Blind, n_steps=50)


def unregistered():
    return gym.make_vec("CartPole-v1", 2)


@pytest.mark.parametrize(
    ("env", "error", "message"),
    [
        (3, TypeError, "`env` .* got 3"),
        (unregistered, TypeError, "`env` .*got SyncVectorEnv|got Cart"),
        (lambda: None, TypeError, "`env` .*got None"),
        ("NoSuchThing-v0", ValueError, "`env` .*got 'NoSuchThing-v0': .*exist"),
        ("math:Four", ValueError, "`env` .*'math' was .* registers no 'Four'"),
    ],
    ids=["number", "vector", "nothing", "unknown", "unregistered"],
)
def test_what_is_no_environment(env, error, message):
    with pytest.raises(error, match=f"`check_env`: {message}"):
        env_check.check_env(env)


def test_bad_numbers():
    for kwargs, error in (
        ({"n_steps": 0}, ValueError),
        ({"n_steps": 1.5}, TypeError),
        ({"seed": -1}, ValueError),
    ):
        with pytest.raises(error, match=f"`check_env`: `{next(iter(kwargs))}` expecte"):
            env_check.check_env(Sound, **kwargs)


def test_tensorflow_is_not_loaded():
    script = (
        "import sys; from tfrl import environments;"
        "print(environments.check_env('CartPole-v1', n_steps=20));"
        "sys.exit('tensorflow' in sys.modules)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("CartPole-v1: 0 errors")


def test_frames_are_looked_at_when_asked_for():
    frames = {"render_modes": ["rgb_array"], "render_fps": 30}
    drawn = odd(metadata=frames, render_mode="rgb_array", render=lambda _: [[0, 0, 0]])
    assert "render" not in names(check(drawn, 20))
    (found,) = check(drawn, 20, render=True).findings
    assert found.what == "in mode 'rgb_array' it returned a list of length 1"
    assert "rendering" in check(Sound, 20, render=True).skipped[0]


def test_what_is_left_behind():
    class Fragile(Sound):
        def close(self):
            if self.kept == "closed":
                raise OSError("closed twice")
            self.kept = "closed"

    lock = threading.Lock()

    def make():
        env = Fragile()
        env.lock = lock
        return env

    what = {found.name: found.what for found in check(make, 20).findings}
    assert set(what) == {"not_capturable", "not_sendable", "close_fails"}
    assert what["not_capturable"] == "env.lock is of type _thread.lock"
    assert what["close_fails"] == "OSError: closed twice"


def test_slow_environments_are_told(monkeypatch):
    clock = itertools.count(step=10.0)
    monkeypatch.setattr(env_check.time, "perf_counter", lambda: next(clock))
    report = check(Sound, 100)
    assert names(report) == {"slow"}
    assert report.steps_per_second == 10.0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (np.zeros(3, np.int32), np.zeros(3, np.float32), False),
        (np.zeros((100, 2)), np.zeros((2, 100)), False),
        (np.array([np.nan]), np.array([np.nan]), True),
        ({"a": 1, "b": (2, "x")}, {"b": (2, "x"), "a": 1}, True),
        (int("1" * 30), int("1" * 30), True),
        (int("1" * 30), int("1" * 30) + 1, False),
    ],
    ids=["dtype", "shape", "nan", "order", "large", "value"],
)
def test_nests_are_compared_by_value(one, other, same):
    assert (_episodes._frozen(one) == _episodes._frozen(other)) == same


def test_scribbling():
    nest = {"a": (np.zeros(2), np.zeros(2, bool)), "b": np.full(1, 255, np.uint8)}
    nest["fixed"] = np.zeros(1)
    nest["fixed"].flags.writeable = False
    _episodes._scribble(nest)
    assert nest["a"][0].tolist() == [1, 1] and nest["a"][1].all()
    assert nest["b"].item() == 0 and nest["fixed"].item() == 0


def test_for_several_agents_the_vector_is_named():
    for given in (matrix_game.MatrixGame, matrix_game.MatrixGame()):
        with pytest.raises(TypeError, match=r"`env` .*several agents a `ParallelEnvV"):
            env_check.check_env(given)


def test_of_compiled_environments_their_own_check_is_named():
    env = compiled.AutoReset(compiled.CartPole())
    for given in (env, compiled.as_vector_env(env, 1)):
        with pytest.raises(TypeError, match="`check_env`: `env` .*; of compiled env"):
            env_check.check_env(given)


@pytest.mark.parametrize(
    ("tell", "wrap"),
    default_rows.params(
        {
            "method": ("method", lambda env: env),
            "info": ("info", lambda env: env),
            "observation": ("observation", lambda env: env),
            "method, wrapped": ("method", action_masks.ActionMasks),
            "info, wrapped": ("info", action_masks.ActionMasks),
            "limited": ("info", lambda env: gym.wrappers.TimeLimit(env, 5)),
        },
        ["method", "info, wrapped"],
    ),
)
def test_only_what_masks_allow_is_played(tell, wrap):
    parts = S.MultiDiscrete([3, 4]), S.Box(-1.0, 1.0, (1,))
    for space in (S.Discrete(4), parts[0], S.Tuple(parts)):
        assert check(lambda x=space: wrap(Strict(x, tell)), n_steps=200).errors == ()
