"""Faults planted into what can be seen while an environment is played."""

import numpy as np
import pytest
from faulty_envs import Sound

from tfrl.environments.checking import _watch, env_check


class Overwriting(Sound):
    """Returns the same array again and again."""

    def observe(self):
        if not hasattr(self, "shown"):
            self.shown = np.zeros(2, np.float32)
        self.shown[:] = super().observe()
        return self.shown


class Greedy(Sound):
    """Scales actions where they lie."""

    def step(self, action):
        action *= 0.5
        return super().step(action)


class Moody(Sound):
    """Its infos have now this type, now that."""

    def step(self, action):
        *found, info = super().step(action)
        return *found, {"goal": None if self.steps < 4 else 1.5}


class Thrifty(Sound):
    """Has one dict for all infos."""

    def __init__(self):
        super().__init__()
        self.info = {"a": 1}

    def step(self, action):
        return *super().step(action)[:4], self.info


class Blind(Sound):
    def observe(self):
        return np.zeros(2, np.float32)


class Growing(Sound):
    """Has another space after some steps."""

    def step(self, action):
        found = super().step(action)
        self.observation_space = type(self.observation_space)(-99.0, 99.0, (2,))
        return found


@pytest.mark.parametrize(
    ("env", "level", "name"),
    [
        (Overwriting, "error", "observation_overwritten"),
        (Greedy, "error", "action_changed"),
        (Growing, "error", "space_changes"),
        (Moody, "warning", "info_changes"),
        (Thrifty, "warning", "info_reused"),
        (Blind, "warning", "observation_constant"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_planted_faults_are_found(env, level, name):
    report = env_check.check_env(env, n_steps=100, raise_errors=False)
    assert [(found.level, found.name) for found in report.findings][:1] == [
        (level, name)
    ]


def test_the_first_of_a_kind_is_kept():
    class Worse(Greedy):
        def step(self, action):
            if self.steps:
                action *= 0.5
            found = Sound.step(self, action)
            return found[0], float("nan"), *found[2:]

    watch = _watch.Watch(Worse(), Sound.observation_space, Sound.action_space)
    watch.reset(seed=0)
    for _ in range(3):
        watch.step(np.ones(1, np.float32))
    assert watch.faults == {
        "reward_not_finite": "the reward of step 1 is nan",
        "action_changed": "step 2 changed the array of its action",
    }
