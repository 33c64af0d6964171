"""A small deterministic environment in several observation spaces; a strict one."""

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tfrl._internal import allowed_actions, gym_checks

S = gym.spaces
BOX = S.Box(-np.inf, np.inf, (3,), np.float32)
LAYOUTS = {
    "box": BOX,
    "dict": S.Dict(z=BOX, a=S.Discrete(100)),
    "tuple": S.Tuple((S.Discrete(100), S.Dict(b=BOX))),
}
MODES = [AutoresetMode.DISABLED, AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP]


class Walk(gym.Env):
    """Episodes of 1 to 5 steps, ended truly or cut off, as drawn at reset.

    The observation holds the place (moved by the action), the step and a number drawn
    at reset, so that no two moments look alike.
    """

    action_space = S.Discrete(3)

    def __init__(self, layout="box", bad=None):
        self.layout = layout
        self.observation_space = LAYOUTS[layout]
        self.bad = bad
        self.total = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.length = int(self.np_random.integers(1, 6))
        self.true_end = bool(self.np_random.random() < 0.5)
        self.mark = float(self.np_random.random())
        self.place, self.steps = 0.0, 0
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        self.total += 1
        self.place += float(action) - 0.75
        reward = self.place + self.mark
        if self.bad is not None and self.total == self.bad[1]:
            if self.bad[0] == "reward":
                reward = self.bad[2]
            else:
                self.place = self.bad[2]
        ended = self.steps >= self.length
        end = (ended and self.true_end, ended and not self.true_end)
        return self.observe(), reward, *end, {}

    def observe(self):
        box = np.array([self.place, self.steps, self.mark], np.float32)
        if self.layout == "dict":
            return {"z": box, "a": self.steps}
        if self.layout == "tuple":
            return (self.steps, {"b": box})
        return box


def vector(mode, n_envs=3, layout="box", bad=None, **kwargs):
    """`n_envs` walks; `bad` are per environment None or (what, step, value)."""
    bad = [None] * n_envs if bad is None else bad
    return SyncVectorEnv(
        [lambda each=each: Walk(layout, each) for each in bad],
        autoreset_mode=mode,
        **kwargs,
    )


def box_of(observations):
    """The `[..., 3]` part of a nest of observations."""
    if isinstance(observations, dict):
        return observations["z"]
    return observations[1]["b"] if isinstance(observations, tuple) else observations


def act(observations):
    """Raw actions that depend on nothing but the observation of their row."""
    box = box_of(observations).astype(np.float64)
    return (np.floor(box.sum(-1) * 1e4) % 3).astype(np.int32)


class Strict(gym.Env):
    """Allows one half of the options, drawn anew in each step, and refuses others.

    Args:
        actions: the space.
        tell: "method", "info" or "observation", where the mask is.
    """

    def __init__(self, actions=None, tell="method"):
        self.action_space = actions or gym.spaces.Discrete(4)
        self.observation_space = gym.spaces.Box(-10.0, 10.0, (2,))
        self.counts, self.tell = gym_checks.option_counts(self.action_space), tell
        if tell == "method":
            self.action_masks = lambda: self.mask
        n_options = sum(self.counts)
        if tell == "observation":
            mask = gym.spaces.MultiBinary(n_options)
            parts = {"action_mask": mask, "observation": self.observation_space}
            self.observation_space = gym.spaces.Dict(parts)

    def answer(self):
        pieces = [self.np_random.permutation(n) < (n + 1) // 2 for n in self.counts]
        self.mask = np.concatenate(pieces).astype(np.int8)
        seen = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        if self.tell == "observation":
            seen = {"action_mask": self.mask.copy(), "observation": seen}
        return seen, {"action_mask": self.mask.copy()} if self.tell == "info" else {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.n_steps = 0
        return self.answer()

    def step(self, action):
        batch = gym_checks.mapped(lambda x: np.asarray(x)[None], action)
        mask = self.mask[None]
        if allowed_actions.forbidden(self.action_space, batch, mask).any():
            raise ValueError(f"illegal move {action}")
        self.n_steps += 1
        seen, info = self.answer()
        return seen, 1.0, self.n_steps > self.np_random.integers(4, 9), False, info
