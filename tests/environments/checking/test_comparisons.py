"""Faults planted that only a comparison of episodes can show."""

import itertools
import random

import gymnasium as gym
import numpy as np
import pytest
from faulty_envs import Sound

from tfrl.environments.checking import env_check

CLOCK = itertools.count()
SPENT = []


class Timed(Sound):
    """Depends on what no seed sets."""

    def observe(self):
        return super().observe() + np.float32(next(CLOCK) % 7)


class Worldly(Sound):
    def step(self, action):
        return super().step(action + random.gauss(0.0, 0.1))


class Legacy(Sound):
    def step(self, action):
        return super().step(action + np.random.normal(0.0, 0.1))


class Default(Sound):
    """Shares a list that was a default argument."""

    def __init__(self, visited=[]):  # noqa: B006
        super().__init__()
        self.visited = visited

    def step(self, action):
        self.visited.append(self.place)
        return super().step(action)


class OfClass(Sound):
    """Shares an array of its class."""

    counts = np.zeros(3)

    def step(self, action):
        self.counts[0] += 1
        return super().step(action)


class OfModule(Sound):
    """Shares a list of its module, and shows what is in it."""

    def reset(self, **kwargs):
        SPENT.clear()
        return super().reset(**kwargs)

    def step(self, action):
        SPENT.append(1)
        found = super().step(action)
        return found[0], float(len(SPENT)), *found[2:]


class Tired(Sound):
    """Does not set its counter anew."""

    def reset(self, **kwargs):
        steps = getattr(self, "steps", 0)
        found = super().reset(**kwargs)
        self.steps = steps % 30
        return self.observe(), found[1]


class OwnDice(Sound):
    """Has a generator that is seeded once."""

    def __init__(self):
        super().__init__()
        self.dice = np.random.default_rng(0)

    def step(self, action):
        return super().step(action + self.dice.normal(0.0, 0.1))


class Bare(Sound):
    """Shows the array that is its state."""

    def reset(self, **kwargs):
        super().reset(**kwargs)
        self.state = np.array([self.place, 0.0], np.float32)
        return self.state, {}

    def step(self, action):
        self.place = float(self.state[0])
        found = super().step(action)
        self.state = found[0]
        return self.state, *found[1:]


class Stuck(Sound):
    """Begins the same episode again where no seed is given."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=11 if seed is None else seed)


class Fixed(Sound):
    """Has the same seed whatever is given."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=0)


class FixedDice(Fixed):
    """Makes its own generator anew each time."""

    def reset(self, *, seed=None, options=None):
        found = super().reset(seed=seed)
        self.dice = np.random.default_rng(0)
        self.place = float(self.dice.uniform(-1.0, 1.0))
        return self.observe(), found[1]

    def step(self, action):
        place = self.place + float(action[0]) + self.dice.normal(0.0, 0.1)
        found = super().step(action)
        self.place = float(place)
        return self.observe(), 0.0, *found[2:]


class Start(Sound):
    """Draws its start alone, always the same."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=3)

    def step(self, action):
        self.steps += 1
        self.place += float(action[0])
        return self.observe(), 0.0, False, self.steps == 30, {}


class Idle(Sound):
    """Draws by the seed it is given, and shows none of it."""

    def observe(self):
        return np.array([0.0, self.steps / 10.0], np.float32)

    def step(self, action):
        found = super().step(action)
        return found[0], 0.0, False, self.steps == 30, {}


class Endless(Sound):
    """Ends for a moment."""

    def step(self, action):
        *found, _, _, info = super().step(action)
        return *found, self.steps == 5, False, info


class Limited(Sound):
    """Takes its time limit for a true end."""

    def step(self, action):
        *found, _, _, info = super().step(0.0 * action)
        return *found, self.steps >= 20, False, info


class Eternal(Sound):
    def step(self, action):
        *found, _, _, info = super().step(action)
        return *found, False, False, info


@pytest.mark.parametrize(
    ("env", "level", "name"),
    [
        (Timed, "error", "not_reproducible"),
        (Worldly, "error", "global_random"),
        (Legacy, "error", "global_random"),
        (Default, "error", "shared_state"),
        (OfClass, "error", "shared_state"),
        (OfModule, "error", "shared_state"),
        (Tired, "error", "reset_incomplete"),
        (OwnDice, "error", "reset_incomplete"),
        (Bare, "warning", "observation_is_state"),
        (Stuck, "warning", "reset_reseeds"),
        (Fixed, "warning", "reset_reseeds"),
        (FixedDice, "warning", "reset_reseeds"),
        (Start, "warning", "reset_reseeds"),
        (Endless, "warning", "plays_on"),
        (Limited, "warning", "time_limit"),
        (Eternal, "warning", "endless"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_planted_faults_are_found(env, level, name):
    report = env_check.check_env(env, n_steps=1000, raise_errors=False)
    found = [(found.level, found.name) for found in report.findings]
    assert (level, name) in found
    assert {other for kind, other in found if kind == "error"} <= {name}


@pytest.mark.parametrize(
    "env",
    [
        Idle,
        "CliffWalking-v1",
        "FrozenLake-v1",
        lambda: gym.make("FrozenLake-v1", is_slippery=False),
        "MountainCar-v0",
        "CartPole-v1",
        "Blackjack-v1",
    ],
)
def test_what_is_always_the_same_may_be_meant_so(env):
    report = env_check.check_env(env, n_steps=200, raise_errors=False)
    assert "reset_reseeds" not in {found.name for found in report.findings}


def test_shared_state_is_named():
    report = env_check.check_env(OfClass, n_steps=50, raise_errors=False)
    assert report.errors[0].what.startswith("`OfClass.counts` is one object")
    report = env_check.check_env(Default, n_steps=50, raise_errors=False)
    assert report.errors[0].what.startswith("`visited` is one object")


def test_what_is_registered_as_not_reproducible_is_not_compared():
    gym.register("Timed-v0", entry_point=Timed, nondeterministic=True)
    try:
        report = env_check.check_env("Timed-v0", n_steps=50, raise_errors=False)
    finally:
        gym.registry.pop("Timed-v0")
    assert report.errors == ()
    assert any("registered as not so" in reason for reason in report.skipped)
