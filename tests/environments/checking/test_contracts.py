"""Faults planted into what an environment declares and returns."""

import gymnasium as gym
import numpy as np
import pytest
from faulty_envs import Sound

from tfrl.environments.checking import _contracts, env_check

S = gym.spaces


def declared(**spaces):
    class Odd(Sound):
        pass

    for name, space in spaces.items():
        setattr(Odd, name, space)
    return Odd


def returning(change_step=None, change_reset=None):
    class Odd(Sound):
        def reset(self, **kwargs):
            found = super().reset(**kwargs)
            return found if change_reset is None else change_reset(*found)

        def step(self, action):
            found = super().step(action)
            return found if change_step is None else change_step(*found)

    return Odd


class OldReset(Sound):
    def reset(self):
        return super().reset()


class FixedSeed(Sound):
    def reset(self, seed=3, options=None):
        return super().reset(seed=seed)


class Unseeded(Sound):
    def reset(self, *, seed=None, options=None):
        return super().reset()


class Raising(Sound):
    def step(self, action):
        if self.steps == 5:
            raise RuntimeError("the robot fell")
        return super().step(action)


FAULTS = {
    "no_space": declared(observation_space=None),
    "bounds": declared(observation_space=S.Box(-10.0, 10.0, (2, 0), np.float32)),
    "reset_arguments": OldReset,
    "reset_return": returning(change_reset=lambda o, i: o),
    "step_return": returning(lambda o, r, t, u, i: (o, r, t or u, i)),
    "raises": Raising,
    "observation_form": returning(lambda o, *rest: (o[:1], *rest)),
    "observation_dtype": returning(lambda o, *rest: (o.astype(np.float64), *rest)),
    "observation_not_finite": returning(lambda o, *rest: (o * np.nan, *rest)),
    "observation_bounds": returning(lambda o, *rest: (o + 30, *rest)),
    "reset_bounds": returning(change_reset=lambda o, i: (o + 30, i)),
    "reward_type": returning(lambda o, r, *rest: (o, np.array([r]), *rest)),
    "reward_not_finite": returning(lambda o, r, *rest: (o, np.inf, *rest)),
    "end_type": returning(lambda o, r, t, u, i: (o, r, int(t), u, i)),
    "info_type": returning(lambda o, r, t, u, i: (o, r, t, u, None)),
    "action_unbounded": declared(action_space=S.Box(-np.inf, np.inf, (1,))),
    "action_scale": declared(action_space=S.Box(0.0, 1.0, (1,))),
    "space_kind": declared(observation_space=S.Text(4)),
    "seed_default": FixedSeed,
    "seed_not_kept": Unseeded,
    "bounds_equal": declared(
        observation_space=S.Box(np.float32([-10, 3]), np.float32([10, 3]))
    ),
    "render_modes": declared(metadata={}),
}
WARNINGS = [
    *["observation_bounds", "action_unbounded", "bounds_equal", "render_modes"],
    *["action_scale", "space_kind", "seed_default", "seed_not_kept"],
]
# What a fault brings with it: samples of [10, 3] are not of the space [-10, 10], an
# array is no Text, an unseeded environment repeats nothing.
BROUGHT = {
    "bounds_equal": {"observation_bounds", "reset_bounds"},
    "space_kind": {"observation_form"},
    "seed_not_kept": {"not_reproducible"},
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(name):
    report = env_check.check_env(FAULTS[name], n_steps=100, raise_errors=False)
    (found,) = [found for found in report.findings if found.name == name]
    assert found.level == ("warning" if name in WARNINGS else "error")
    others = {found.name for found in report.errors} - {name}
    assert others <= BROUGHT.get(name, set())


def test_faults_are_told_with_step_and_numbers():
    def at_seven(o, *rest):
        return (o * np.nan if np.isclose(o[1], 0.7) else o, *rest)

    report = env_check.check_env(returning(at_seven), n_steps=50, raise_errors=False)
    what = {found.name: found.what for found in report.findings}
    assert "the observation[0] of step 7 is nan" in what["observation_not_finite"]
    report = env_check.check_env(Raising, n_steps=50, raise_errors=False)
    assert report.errors[0].what.endswith("RuntimeError: the robot fell")


def test_choices_outside_are_errors():
    class Counting(Sound):
        observation_space = S.Dict(a=S.Discrete(3), b=Sound.observation_space)

        def observe(self):
            return {"a": self.steps, "b": super().observe()}

    report = env_check.check_env(Counting, n_steps=50, raise_errors=False)
    (found,) = report.errors
    assert found.name == "observation_choice"
    assert (
        "the observation['a'] of step 3 is 3 (int), not an int in [0, 2]" in found.what
    )


@pytest.mark.parametrize(
    ("space", "names"),
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
def test_spaces(space, names):
    env = declared(observation_space=space)()
    assert [name for name, _ in _contracts.faults_of_spaces(env)] == names
