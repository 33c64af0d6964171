"""A small environment without faults, and others with one each."""

import itertools
import random

import gymnasium as gym
import numpy as np

S = gym.spaces
CLOCK = itertools.count()
SPENT = []


class Sound(gym.Env):
    """A walk on a line that ends at either end, or is cut off after 30 steps."""

    metadata = {"render_modes": []}
    observation_space = S.Box(-10.0, 10.0, (2,), np.float32)
    action_space = S.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self):
        self.kept = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = float(self.np_random.uniform(-1.0, 1.0))
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        self.place += float(action[0]) + float(self.np_random.normal(0.0, 0.3))
        terminated, truncated = abs(self.place) > 3.0, self.steps == 30
        return (
            self.observe(),
            -abs(self.place),
            terminated,
            truncated,
            {"at": self.steps},
        )

    def observe(self):
        return np.clip([self.place, self.steps / 10.0], -10.0, 10.0).astype(np.float32)


def odd(step=None, reset=None, **attributes):
    """A class that returns something else, of what is right, or declares it."""

    class Odd(Sound):
        def reset(self, **kwargs):
            found = super().reset(**kwargs)
            return found if reset is None else reset(*found)

        def step(self, action):
            found = super().step(action)
            return found if step is None else step(self, *found)

    for name, value in attributes.items():
        setattr(Odd, name, value)
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


class Overwriting(Sound):
    """Returns the same array again and again."""

    shown = None

    def observe(self):
        self.shown = np.zeros(2, np.float32) if self.shown is None else self.shown
        self.shown[:] = super().observe()
        return self.shown


class Greedy(Sound):
    """Scales actions where they lie."""

    def step(self, action):
        action *= 0.5
        return super().step(action)


class Thrifty(Sound):
    """Has one dict for all infos."""

    def __init__(self):
        super().__init__()
        self.info = {"a": 1}

    def step(self, action):
        return *super().step(action)[:4], self.info


class Growing(Sound):
    """Has another space after some steps."""

    def step(self, action):
        found = super().step(action)
        self.observation_space = type(self.observation_space)(-99.0, 99.0, (2,))
        return found


class Timed(Sound):
    """Depends on what no seed sets."""

    def observe(self):
        return super().observe() + np.float32(next(CLOCK) % 7)


class Worldly(Sound):
    """Draws from a global generator."""

    draw = staticmethod(lambda: random.gauss(0.0, 0.1))

    def step(self, action):
        return super().step(action + self.draw())


class Legacy(Worldly):
    draw = staticmethod(lambda: np.random.normal(0.0, 0.1))


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


class Limited(Sound):
    """Takes its time limit for a true end."""

    def step(self, action):
        *found, _, _, info = super().step(0.0 * action)
        return *found, self.steps >= 20, False, info


Blind = odd(observe=lambda _: np.zeros(2, np.float32))
# Its infos have now this type, now that.
Moody = odd(lambda env, *x: (*x[:4], {"goal": None if env.steps < 4 else 1.5}))
# Ends for a moment.
Endless = odd(lambda env, o, r, t, u, i: (o, r, env.steps == 5, False, i))
Eternal = odd(lambda _, o, r, t, u, i: (o, r, False, False, i))
