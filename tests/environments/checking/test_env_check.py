"""Tests of `tfrl.environments.check_env` as a whole."""

import functools
import pathlib
import subprocess
import sys
import threading
import time

import gymnasium as gym
import numpy as np
import pytest
from faulty_envs import Sound

from tfrl.environments.checking import env_check

OWN = [
    *["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0"],
    *["Pendulum-v1", "FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1"],
    "Blackjack-v1",
]
EXTRA = [
    *["LunarLander-v3", "LunarLanderContinuous-v3", "BipedalWalker-v3"],
    *["InvertedPendulum-v5", "HalfCheetah-v5", "Ant-v5", "Humanoid-v5", "Reacher-v5"],
]


def names(report):
    return {found.name for found in report.findings}


def check(env, **kwargs):
    return env_check.check_env(env, raise_errors=False, n_steps=300, **kwargs)


def test_a_sound_environment_has_no_findings():
    report = check(Sound)
    assert report.findings == report.skipped == ()
    assert report.env == "Sound" and report.steps_per_second > 100
    assert str(report).startswith("Sound: 0 errors, 0 warnings; about ")


@pytest.mark.parametrize("env_id", OWN)
def test_environments_of_gymnasium_have_no_errors(env_id):
    assert env_check.check_env(env_id, n_steps=300).errors == ()


@pytest.mark.slow
@pytest.mark.parametrize("env_id", EXTRA)
def test_simulators_have_no_errors(env_id):
    pytest.importorskip("Box2D")
    pytest.importorskip("mujoco")
    report = env_check.check_env(env_id)
    assert report.errors == ()
    assert "not_capturable" in names(report)


@pytest.mark.parametrize(
    "wrap",
    [
        gym.wrappers.NormalizeObservation,
        functools.partial(gym.wrappers.FrameStackObservation, stack_size=4),
        gym.wrappers.TimeAwareObservation,
        gym.wrappers.RecordEpisodeStatistics,
        gym.wrappers.FlattenObservation,
    ],
    ids=["normalize", "stack", "time", "statistics", "flatten"],
)
def test_wrappers_have_no_errors(wrap):
    report = check(lambda: wrap(gym.make("CartPole-v1")))
    assert report.errors == ()
    assert ("wrapper_state" in names(report)) == (wrap is OWN_STATE)


OWN_STATE = gym.wrappers.NormalizeObservation


def test_an_environment_is_compared_with_its_copies():
    class Counting(Sound):
        def reset(self, **kwargs):
            self.place = getattr(self, "place", 0)
            return super().reset(**kwargs)

    report = check(gym.make("CartPole-v1"))
    assert report.errors == report.skipped == ()
    uncopied = Counting()
    uncopied.handle = open(pathlib.Path(__file__))  # noqa: SIM115
    with uncopied.handle:
        report = check(uncopied)
    assert "pass a function that makes it" in report.skipped[0]
    assert "not_capturable" in names(report)


def test_errors_are_raised_and_warnings_are_not():
    class Bad(Sound):
        def step(self, action):
            return *super().step(action)[:2], 0, 0, {}

    with pytest.raises(
        ValueError, match="(?s)without errors; got Bad: 1 error.*end_type"
    ):
        env_check.check_env(Bad, n_steps=50)
    found = check(Bad).errors[0]
    assert (found.level, found.name) == ("error", "end_type")
    assert found.remedy == "return a bool"


@pytest.mark.parametrize(
    ("env", "error", "message"),
    [
        (3, TypeError, "expected one gymnasium.Env, .* got 3"),
        (
            lambda: gym.make_vec("CartPole-v1", 2),
            TypeError,
            "got SyncVectorEnv|got Cart",
        ),
        ("NoSuchThing-v0", ValueError, "made; got 'NoSuchThing-v0': .*exist; check"),
        (
            "math:Four",
            ValueError,
            "got 'math:Four': 'math' was .* registers no 'Four';",
        ),
        (lambda: None, TypeError, "got None, returned by the function; a v"),
    ],
    ids=["number", "vector", "unknown", "unregistered", "nothing"],
)
def test_what_is_no_environment(env, error, message):
    with pytest.raises(error, match=f"`check_env`: `env` .*{message}"):
        env_check.check_env(env)


@pytest.mark.parametrize(
    ("kwargs", "error"),
    [({"n_steps": 0}, ValueError), ({"n_steps": 1.5}, TypeError), ({"seed": -1},) * 2],
    ids=["none", "part", "seed"],
)
def test_bad_numbers(kwargs, error):
    error = ValueError if error is kwargs else error
    with pytest.raises(error, match=f"`check_env`: `{next(iter(kwargs))}` expected an"):
        env_check.check_env(Sound, **kwargs)


def test_tensorflow_is_not_loaded():
    script = (
        "import sys; from tfrl import environments;"
        "print(environments.check_env('CartPole-v1', n_steps=50));"
        "sys.exit('tensorflow' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.startswith("CartPole-v1: 0 errors")


def test_global_generators_are_left_alone():
    np.random.seed(3)
    expected = np.random.random()
    np.random.seed(3)
    check(Sound)
    assert np.random.random() == expected


def test_frames_are_looked_at_when_asked_for():
    class Drawn(Sound):
        metadata = {"render_modes": ["rgb_array"], "render_fps": 30}
        render_mode = "rgb_array"

        def render(self):
            return [[0, 0, 0]]

    assert "render" not in names(check(Drawn))
    (found,) = check(Drawn, render=True).findings
    assert found.what == "in mode 'rgb_array' it returned a list of length 1"
    assert "rendering" in check(Sound, render=True).skipped[0]


def test_an_environment_that_is_given_stays_open():
    class Closing(Sound):
        def close(self):
            self.closed = True

    env = Closing()
    env.action_space.seed(3)
    before = repr(env.action_space.np_random.bit_generator.state)
    assert check(env).findings == ()
    assert not hasattr(env, "closed")
    assert repr(env.action_space.np_random.bit_generator.state) == before


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

    what = {found.name: found.what for found in check(make).findings}
    assert set(what) == {"not_capturable", "not_sendable", "close_fails"}
    assert what["not_capturable"] == "env.lock is of type _thread.lock"
    assert what["close_fails"] == "OSError: closed twice"


def test_slow_environments_are_told():
    class Slow(Sound):
        def step(self, action):
            time.sleep(0.02)
            return super().step(action)

    report = env_check.check_env(Slow, n_steps=10, raise_errors=False)
    assert names(report) == {"slow"}
    assert report.steps_per_second < 50
