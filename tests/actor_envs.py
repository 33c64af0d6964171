"""Environments for actor processes; nothing here imports TensorFlow."""

import contextlib
import functools
import os
import random
import signal
import sys
import time

import gymnasium as gym
import numpy as np


class Counting(gym.Env):
    """Shows [steps since it was made, episode, step of the episode, its number].

    Episode e takes 1 + (7 e mod 5) steps and is terminated if e is even, else
    truncated. Rewards are 2 * steps + action.
    """

    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,))
    action_space = gym.spaces.Discrete(3)

    def __init__(self, number=0):
        self.number, self.steps, self.episode, self.t = number, 0, -1, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return self.seen(), {}

    def step(self, action):
        reward = 2.0 * self.steps + int(action)
        self.steps, self.t = self.steps + 1, self.t + 1
        over, even = self.t == 1 + 7 * self.episode % 5, self.episode % 2 == 0
        return self.seen(), reward, over and even, over and not even, {}

    def seen(self):
        return np.array([self.steps, self.episode, self.t, self.number], np.float32)


class Sleeping(Counting):
    """Its steps take a millisecond without computing anything."""

    def step(self, action):
        time.sleep(1e-3)
        return super().step(action)


class Lived(Counting):
    """Has a number that no other has, and takes a random time for a step."""

    def __init__(self, seconds=0.0):
        super().__init__(int.from_bytes(os.urandom(3)))
        self.seconds = seconds

    def step(self, action):
        if self.seconds:
            time.sleep(self.seconds * random.random())
        return super().step(action)


def lived(n_envs, seconds=0.0):
    """A vector of these."""
    return gym.vector.SyncVectorEnv(
        [functools.partial(Lived, seconds)] * n_envs,
        autoreset_mode=gym.vector.AutoresetMode.DISABLED,
    )


class Failing(Counting):
    """Fails in its tenth step or another, in the way it is told."""

    def __init__(self, how, at=9):
        super().__init__()
        self.how, self.at = how, at

    def step(self, action):
        if self.steps == self.at:
            FAILURES[self.how]()
        return super().step(action)


class Nested(Counting):
    """Shows a dict."""

    observation_space = gym.spaces.Dict(x=Counting.observation_space)

    def seen(self):
        return {"x": super().seen()}


class Nameless:
    """Is no environment."""


def explode():
    raise OSError("the wheel came off")


def hang():
    while True:
        time.sleep(0.01)


FAILURES = {
    "error": explode,
    "exit": functools.partial(sys.exit, 3),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hang": hang,
}


def vector(n_envs=3, mode="disabled", kind=Counting):
    """A vector of counting environments."""
    modes = {
        "disabled": gym.vector.AutoresetMode.DISABLED,
        "same": gym.vector.AutoresetMode.SAME_STEP,
        "next": gym.vector.AutoresetMode.NEXT_STEP,
    }
    makers = [functools.partial(kind, number) for number in range(n_envs)]
    return gym.vector.SyncVectorEnv(makers, autoreset_mode=modes[mode])


def uneven(n_envs, mark, learner):
    """Environments that are slow in the first of the actors that makes some."""
    seconds = 0.0
    if os.getpid() != learner:
        with contextlib.suppress(FileExistsError):
            mark.touch(exist_ok=False)
            seconds = 4e-3
    return lived(n_envs, seconds)


def failing(n_envs, how, learner, at=9):
    """Environments that fail after a while, in actors alone."""
    if os.getpid() == learner:
        return vector(n_envs)
    return gym.vector.SyncVectorEnv(
        [functools.partial(Failing, how, at)] * n_envs,
        autoreset_mode=gym.vector.AutoresetMode.DISABLED,
    )


def dying(n_envs, mark, learner):
    """Environments that kill the actor that makes them, once there is a file."""
    if mark.exists() and os.getpid() != learner:
        os.kill(os.getpid(), signal.SIGKILL)
    return lived(n_envs)


def asynchronous():
    """Environments in processes of their own."""
    return gym.vector.AsyncVectorEnv(
        [Counting] * 2,
        context="spawn",
        autoreset_mode=gym.vector.AutoresetMode.DISABLED,
    )


def nan():
    """An environment whose observations are no numbers, after a while."""
    return gym.wrappers.TransformObservation(
        Counting(), lambda seen: np.where(seen[0] > 20, np.float32(np.nan), seen), None
    )


def nest():
    """An environment whose observations are a dict."""
    return Nested()


def with_tensorflow():
    """What must not happen in an actor."""
    import tensorflow

    return tensorflow


def first(outputs, rng):
    """The action of the greatest output."""
    return outputs.argmax(-1)


def drawn(outputs, rng):
    """Any action, whatever the outputs."""
    return rng.integers(3, size=len(outputs))


def constant(outputs, rng, action):
    """The action that is set."""
    return np.full(len(outputs), int(action))


def either(outputs, rng):
    """One of two actions."""
    return rng.integers(2, size=len(outputs))


class Masked(Counting):
    """The same with a mask, which forbids the option `t mod 3`."""

    observation_space = gym.spaces.Dict(
        action_mask=gym.spaces.MultiBinary(3), observation=Counting.observation_space
    )

    def seen(self):
        mask = (np.arange(3) != self.t % 3).astype(np.int8)
        return {"action_mask": mask, "observation": super().seen()}


class Pictured(Counting):
    """Shows an image."""

    observation_space = gym.spaces.Box(0, 255, (36, 36, 1), np.uint8)

    def seen(self):
        return np.full((36, 36, 1), 7 * self.t, np.uint8)


class Many(Counting):
    """Shows a nest, and takes one."""

    observation_space = gym.spaces.Dict(
        x=Counting.observation_space, parts=gym.spaces.Tuple([gym.spaces.Discrete(9)])
    )
    action_space = gym.spaces.Dict(
        press=gym.spaces.Discrete(3), steer=gym.spaces.Box(-1.0, 1.0, (2,))
    )

    def step(self, action):
        return super().step(action["press"])

    def seen(self):
        return {"x": super().seen(), "parts": (np.int64(self.t),)}


def _vector_of(kind, n_envs):
    return gym.vector.SyncVectorEnv(
        [kind] * n_envs, autoreset_mode=gym.vector.AutoresetMode.DISABLED
    )


masks = functools.partial(_vector_of, Masked)
images = functools.partial(_vector_of, Pictured)
nests = functools.partial(_vector_of, Many)
