"""Tests of `tfrl.host._serial`: its steps equal those of Gymnasium's own vector."""

import copy

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from toy_envs import MODES

from tfrl._internal import gym_checks
from tfrl.environments import vector as vectors
from tfrl.host import _serial, stepping

S = gym.spaces
BOX = S.Box(-np.inf, np.inf, (3,), np.float32)
OBSERVATIONS = {
    "box": BOX,
    "number": S.Box(-1.0, 1.0, (), np.float64),
    "empty": S.Box(-1.0, 1.0, (0,), np.float32),
    "picture": S.Box(0, 255, (4, 5, 2), np.uint8),
    "discrete": S.Discrete(5, start=-2),
    "choices": S.MultiDiscrete([3, 4]),
    "bits": S.MultiBinary(3),
    "dict": S.Dict(b=S.Tuple([S.Discrete(3), BOX]), a=S.Box(-1.0, 1.0, (2, 2))),
}
ACTIONS = {
    "discrete": S.Discrete(4),
    "box": S.Box(-1.0, 1.0, (2,), np.float32),
    "choices": S.MultiDiscrete([3, 4]),
    "bits": S.MultiBinary(3),
    "dict": S.Dict(b=S.Tuple([S.Discrete(3), BOX]), a=S.Discrete(2)),
}


class Drawn(gym.Env):
    """Shows what its space draws, and rewards by the sum of the action."""

    def __init__(self, observations=BOX, actions=ACTIONS["discrete"]):
        self.observation_space = copy.deepcopy(observations)
        self.action_space = copy.deepcopy(actions)
        self.given = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.given.append(("reset", seed, options))
        return self.observation_space.sample(), {"begun": True}

    def step(self, action):
        self.given.append(copy.deepcopy(action))
        leaves = gym_checks.leaves_of(action)
        reward = sum(float(np.sum(leaf)) for leaf in leaves)
        ends = self.np_random.random(2) < 0.1
        return self.observation_space.sample(), reward, *ends.tolist(), {"x": reward}


def pair(n_envs=3, make=Drawn):
    """Two vectors alike, that are reset alike."""
    found = [SyncVectorEnv([make] * n_envs, autoreset_mode=MODES[0]) for _ in range(2)]
    for envs in found:
        envs.reset(seed=7)
    return found


def check_equal(one, two):
    left, right = gym_checks.leaves_of(one), gym_checks.leaves_of(two)
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("observations", OBSERVATIONS)
@pytest.mark.parametrize("actions", ACTIONS)
def test_steps_are_those_of_the_vector_itself(observations, actions, n_envs):
    spaces = OBSERVATIONS[observations], ACTIONS[actions]
    own, theirs = pair(n_envs, lambda: Drawn(*spaces))
    serial, count = _serial.SerialSteps(own), 0
    own.action_space.seed(1)
    for _ in range(60):
        action = own.action_space.sample()
        found, expected = serial.step(action), theirs.step(action)
        check_equal(found[:4], expected[:4])
        assert [info["x"] for info in found[4]] == expected[4]["x"].tolist()
        ended = found[2] | found[3]
        if ended.any():
            count += 1
            options = {"reset_mask": ended}
            after, infos = serial.reset(options=options)
            check_equal(after, theirs.reset(options=dict(options))[0])
            assert infos == [{"begun": True}] * np.count_nonzero(ended)
    assert count > 3
    for one, two in zip(own.envs, theirs.envs, strict=True):
        assert len(one.given) == len(two.given)
        for a, b in zip(one.given, two.given, strict=True):
            np.testing.assert_equal(a, b)


class Same(Drawn):
    """Shows the same array in each step, changed in place, of another dtype."""

    def __init__(self):
        super().__init__()
        self.shown = np.zeros(3)

    def reset(self, **kwargs):
        super().reset(**kwargs)
        return self.moved(), {}

    def step(self, action):
        return self.moved(), *super().step(action)[1:]

    def moved(self):
        self.shown += 1.0
        return self.shown


def test_what_is_returned_belongs_to_the_caller():
    own, theirs = pair(2, Same)
    serial = _serial.SerialSteps(own)
    steps = [serial.step(np.zeros(2, int))[:4] for _ in range(3)]
    for found in steps:
        check_equal(found, theirs.step(np.zeros(2, int))[:4])
    stepper = stepping.Stepper(SyncVectorEnv([Same], autoreset_mode=MODES[0]), 0)
    ends = 0
    for t in range(40):
        outcome = stepper.step(np.zeros(1, int))
        assert outcome.next_observations[0, 0] == 2 + t + ends
        ends += bool(outcome.terminated[0] or outcome.truncated[0])
        assert stepper.observations[0, 0] == 2 + t + ends
    assert ends


def test_a_vector_goes_on_after_steps_that_are_not_its_own():
    own, theirs = pair()
    serial = _serial.SerialSteps(own)
    for _ in range(5):
        found = serial.step(np.ones(3, int))
        theirs.step(np.ones(3, int))
        ended = found[2] | found[3]
        if ended.any():
            serial.reset(options={"reset_mask": ended})
            theirs.reset(options={"reset_mask": ended})
    check_equal(own.step(np.zeros(3, int))[:4], theirs.step(np.zeros(3, int))[:4])
    first = {"reset_mask": np.array([True, False, False])}
    check_equal(own.reset(options={**first})[0], theirs.reset(options=first)[0])
    # A reset of some that follows steps of others knows what these saw.
    seen = serial.step(np.zeros(3, int))[0]
    after = own.reset(options={"reset_mask": np.array([True, False, False])})[0]
    np.testing.assert_array_equal(after[1:], seen[1:])


class Variant(SyncVectorEnv):
    """Gives one more for each step."""

    def step(self, actions):
        seen, rewards, *rest = super().step(actions)
        return seen, rewards + 1.0, *rest


def test_variants_step_themselves(monkeypatch):
    can_play = _serial.SerialSteps.can_play
    assert can_play(pair()[0])
    assert can_play(vectors.make_vec("Pendulum-v1", 2))
    for mode in MODES[1:]:
        assert not can_play(SyncVectorEnv([Drawn], autoreset_mode=mode))
    envs = Variant([Drawn], autoreset_mode=AutoresetMode.DISABLED)
    assert not can_play(envs)
    assert not can_play(gym.wrappers.vector.RecordEpisodeStatistics(pair()[0]))
    assert stepping.Stepper(envs, 0).step(np.full(1, 3)).rewards.tolist() == [4.0]
    for name in ("step", "reset"):
        patched = pair()[0]
        setattr(patched, name, getattr(patched, name))
        assert not can_play(patched)
        with monkeypatch.context() as patch:
            patch.setattr(SyncVectorEnv, name, lambda *_, **__: None)
            assert not can_play(SyncVectorEnv([Drawn], autoreset_mode=MODES[0]))
    assert can_play(pair()[0])
