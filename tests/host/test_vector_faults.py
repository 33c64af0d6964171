"""Tests of `what `tfrl.host.Stepper` says of faulty environments`."""

import os
import signal
import time

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from toy_envs import MODES, Walk

from tfrl.environments import vector
from tfrl.host import stepping

TUPLE = r"`step` to return \(observation, reward, terminated, truncated, info\); got "
OBSERVED = r"observations to be an array of shape \(3,\), float32, .*; got an array of "
FAULTS = {
    "four": (lambda o, r, t, u, i: (o, r, t, i), TUPLE + "4 values from"),
    "nothing": (lambda *_: None, TUPLE + "an object of type NoneType"),
    "info": (lambda o, r, t, u, i: (o, r, t, u, 3), TUPLE + "an info that is no dict"),
    "shape": (lambda o, *rest: (o[:2], *rest), OBSERVED + r"shape \(2,\), float32"),
    "dtype": (lambda o, *rest: (o.astype(str), *rest), OBSERVED + r"shape \(3,\), <U"),
    "reward": (
        lambda o, r, *rest: (o, [r, r], *rest),
        "rewards that are numbers, .* got one that is a s",
    ),
}
RESETS = {
    "bare": lambda o, i: o,
    "pair": lambda o, i: o[:2],
    "none": lambda o, i: (o, None),
}


class Faulty(Walk):
    def __init__(self, change_reset=None, change_step=None):
        super().__init__()
        self.change_reset, self.change_step = change_reset, change_step

    def reset(self, **kwargs):
        found = super().reset(**kwargs)
        return found if self.change_reset is None else self.change_reset(*found)

    def step(self, action):
        found = super().step(action)
        is_due = self.change_step is not None and self.total > 4
        return self.change_step(*found) if is_due else found


def stepper(faulty, mode, wrapped):
    def make(env):
        return gym.wrappers.TimeLimit(env, 50) if wrapped else env

    envs = [lambda: make(Faulty()), lambda: make(faulty)]
    return stepping.Stepper(SyncVectorEnv(envs, autoreset_mode=mode), 0)


def play(faulty, mode=MODES[0], wrapped=False):
    playing = stepper(faulty, mode, wrapped)
    for _ in range(30):
        playing.step(np.zeros(2, int))


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "wrapped"])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("fault", FAULTS)
def test_steps_that_break_the_rules(fault, mode, wrapped):
    change, message = FAULTS[fault]
    where = r"environment 1 \(Faulty\) at step \d"
    with pytest.raises(ValueError, match=f"`Stepper`: `envs` .*{message}.*{where}"):
        play(Faulty(change_step=change), mode, wrapped)


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "wrapped"])
@pytest.mark.parametrize("fault", RESETS)
def test_resets_that_break_the_rules(fault, wrapped):
    message = r"`reset` to return \(observation, info\).*environment 1 .* at step 0"
    with pytest.raises(ValueError, match=message):
        play(Faulty(change_reset=RESETS[fault]), wrapped=wrapped)


class OfOld(Walk):
    def reset(self):
        return super().reset()


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "wrapped"])
def test_a_reset_of_old_is_named(wrapped):
    message = r"`envs` expected `reset` to be as `reset\(self, \*, seed=None, "
    message += r".*environment 1 \(OfOld\) at step 0"
    with pytest.raises(ValueError, match=message):
        stepper(OfOld(), MODES[0], wrapped)


def test_what_an_environment_raises_is_its_own():
    def fail(*_):
        raise ValueError("not enough values to unpack, say I")

    with pytest.raises(ValueError, match="^not enough values to unpack, say I$"):
        play(Faulty(change_step=fail))


def test_numbers_of_the_declared_kind_are_taken():
    def widen(o, *rest):
        return o.astype(np.float64), *rest

    play(Faulty(change_step=widen))


class Twice(gym.vector.VectorEnv):
    """A vector whose arrays are as told."""

    num_envs = 2
    single_observation_space = Walk().observation_space
    single_action_space = Walk.action_space
    metadata = {"autoreset_mode": MODES[1]}

    def __init__(self, shown=(2, 3), rewards=(2,), flags=bool, info=None):
        self.observation_space = gym.vector.utils.batch_space(
            self.single_observation_space, 2
        )
        self.given = shown, rewards, flags, info or {}

    def reset(self, *, seed=None, options=None):
        return np.zeros((2, 3), np.float32), {}

    def step(self, actions):
        shown, rewards, flags, info = self.given
        flags = np.zeros(2, flags)
        return np.zeros(shown, np.float32), np.zeros(rewards), flags, flags, info


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"shown": (1, 3)}, r"shapes and dtypes \[\(\(2, 3\), .* at step 1"),
        ({"rewards": (2, 1)}, "rewards that are 2 numbers; got an array of shape"),
        ({"flags": int}, "terminated that are 2 bools; got an array of shape .* int"),
    ],
    ids=["stretched", "rewards", "flags"],
)
def test_vectors_that_break_the_rules(given, message):
    playing = stepping.Stepper(Twice(**given), 0)
    with pytest.raises(ValueError, match=f"`Stepper`: `envs` expected .*{message}"):
        playing.step(np.zeros(2, int))


def test_a_vector_that_is_none_of_its_space():
    envs = Twice()
    envs.observation_space = gym.spaces.Box(-1, 1, (2, 4), np.float32)
    with pytest.raises(ValueError, match=r"shape \(2, 4\), .* got .* shape \(2, 3\)"):
        stepping.Stepper(envs, 0)


def test_a_last_observation_that_is_missing():
    envs = Twice()
    envs.step = lambda actions: (
        *envs.reset()[:1],
        np.zeros(2),
        np.ones(2, bool),
        np.zeros(2, bool),
        {},
    )
    with pytest.raises(ValueError, match=r"info\['final_obs'\] where an episode ends"):
        stepping.Stepper(envs, 0).step(np.zeros(2, int))


@pytest.mark.parametrize("wait", [0.0, 0.5], ids=["now", "later"])
def test_a_killed_worker_is_told_in_a_line(wait):
    envs = vector.make_vec("CartPole-v1", 3, "async")
    processes = envs.unwrapped.processes
    try:
        playing = stepping.Stepper(envs, seed=0)
        for _ in range(5):
            playing.step(np.zeros(3, int))
        os.kill(processes[1].pid, signal.SIGKILL)
        time.sleep(wait)
        message = r"that of environment 1 \(exit code -9\) after \d+ steps; .* resume"
        with pytest.raises(ConnectionError, match=message):
            for _ in range(100):
                playing.step(np.zeros(3, int))
    finally:
        envs.close()
    assert not any(process.is_alive() for process in processes)
