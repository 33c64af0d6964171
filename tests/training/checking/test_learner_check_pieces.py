"""Tests of `tfrl.training.checking.learner_check` with learners of many kinds."""

import functools

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tests.training.checking import test_learner_check as simple
from tfrl import replay as replay_room
from tfrl.environments import wrappers
from tfrl.host import stepping
from tfrl.training.checking import learner_check

GAMMA = 0.9


def bugs(env, buffer, loss, gamma=GAMMA):
    return learner_check.check_learner(env, buffer, loss, gamma).bugs


def stepper(make, copy=True, mode=AutoresetMode.NEXT_STEP):
    return stepping.Stepper(
        SyncVectorEnv([make] * 2, copy=copy, autoreset_mode=mode), seed=3
    )


class Rollout(list):
    """Columns `[T, N]`."""

    def __init__(self, swapped=None):
        super().__init__()
        self.swapped = swapped

    def add(self, *columns):
        self.append([np.array(column) for column in columns])

    def sample(self, batch_size):
        columns = [np.stack(column) for column in zip(*self, strict=True)]
        if self.swapped is not None:
            column = np.swapaxes(columns[self.swapped], 0, 1)
            columns[self.swapped] = column.reshape(columns[self.swapped].shape)
        return columns


def advantages(cut=simple.done, mask=lambda te, tr: te, lift=lambda e: e, gamma=GAMMA):
    """Generalized advantages, trace decay 0.8."""

    def errors(batch, values):
        observations, _, rewards, terminated, truncated, following = batch
        onward = gamma * (1.0 - mask(terminated, truncated)) * values(following)
        deltas = rewards + onward.numpy() - values(observations).numpy()
        decay = 0.8 * gamma * (1.0 - cut(terminated, truncated))
        for t in reversed(range(len(deltas) - 1)):
            deltas[t] += decay[t] * deltas[t + 1]
        return lift(deltas)

    return errors


def mean_square(errors):
    return np.mean(errors**2)


ADVANTAGES = {
    "right": (advantages(), ()),
    "right_mean_square": (advantages(lift=mean_square), ()),
    "right_root": (advantages(lift=lambda e: np.sqrt(mean_square(e) + 1e-20)), ()),
    "right_mean_of_envs": (advantages(lift=lambda e: e.mean(1)), ()),
    "leak": (advantages(simple.nowhere), ("leak_across_episodes",)),
    "leak_mean_square": (
        advantages(simple.nowhere, lift=mean_square),
        ("leak_across_episodes",),
    ),
    "leak_at_limits": (advantages(lambda te, tr: te), ("leak_across_episodes",)),
    "leak_and_done": (
        advantages(simple.nowhere, simple.done),
        ("done_only_mask", "leak_across_episodes"),
    ),
    "gamma_twice": (advantages(gamma=GAMMA**2), ("gamma_twice",)),
}


@pytest.mark.parametrize("name", ADVANTAGES)
def test_advantages(name):
    loss, expected = ADVANTAGES[name]
    assert bugs(stepper, Rollout(), loss) == expected


@pytest.mark.parametrize("column", [0, 2, 5], ids=["seen", "rewards", "following"])
def test_swapped_axes_are_found(column):
    assert bugs(stepper, Rollout(column), simple.loss()) == ("unexplained",)


class Shifted(simple.Steps):
    """Rewards of the step before, 0 at the start of an episode."""

    def sample(self, batch_size):
        columns = super().sample(batch_size)
        starts = np.roll(columns[3] | columns[4], 1)
        columns[2] = np.where(starts, 0.0, np.roll(columns[2], 1))
        return columns


class Without(simple.Steps):
    """Leaves out the steps with a flag."""

    def __init__(self, flag):
        super().__init__()
        self.flag = flag

    def add(self, *columns):
        if not columns[self.flag].any():
            super().add(*columns)


class Some(simple.Steps):
    """Draws without replacement."""

    def sample(self, batch_size):
        rows = np.random.default_rng(0).choice(len(self), batch_size, replace=False)
        return [column[rows] for column in super().sample(batch_size)]


class Ended(gym.Wrapper):
    """Takes time limits for true ends."""

    def step(self, action):
        seen, reward, terminated, truncated, info = self.env.step(action)
        return seen, reward, terminated or truncated, False, info


class InPlace(gym.Wrapper):
    """Shows always the same array."""

    def reset(self, **kwargs):
        self.shown, info = self.env.reset(**kwargs)
        return self.shown, info

    def step(self, action):
        self.shown[:], *rest = self.env.step(action)
        return self.shown, *rest


class Copying(simple.Steps):
    def add(self, *columns):
        super().add(*map(np.array, columns))


def boxed(make):
    low, high = np.float32(-1.0), np.float32(1.0)
    env = make(gym.spaces.Box(2.0 * low, 2.0 * high, (1,)))
    return gym.wrappers.ClipAction(gym.wrappers.RescaleAction(env, low, high))


LEARNERS = {
    "off_by_one": (simple.plain, Shifted, ("reward_off_by_one",)),
    "no_true_ends": (simple.plain, lambda env: Without(3), ("steps_left_out",)),
    "no_time_limits": (simple.plain, lambda env: Without(4), ()),
    "without_replacement": (simple.plain, Some, ()),
    "limit_as_end": (lambda make: Ended(make()), simple.Steps, ("done_only_mask",)),
    "overwritten": (
        lambda make: InPlace(make()),
        simple.Steps,
        ("overwritten_observations",),
    ),
    "overwriting_vector": (
        functools.partial(stepper, copy=False),
        simple.Steps,
        ("overwritten_observations",),
    ),
    "copied": (lambda make: InPlace(make()), Copying, ()),
    "frames": (
        lambda make: gym.wrappers.FrameStackObservation(make(), 3),
        simple.Steps,
        (),
    ),
    "skipped": (
        lambda make: gym.wrappers.MaxAndSkipObservation(make(), 2),
        simple.Steps,
        (),
    ),
    "actions": (boxed, simple.Steps, ()),
    "great_rewards": (
        lambda make: wrappers.ScaleReward(make(), 1e5),
        simple.Steps,
        (),
    ),
    "list_infos": (
        lambda make: gym.wrappers.vector.DictInfoToList(
            simple.vector(AutoresetMode.DISABLED)(make)
        ),
        simple.Steps,
        (),
    ),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_learners(name):
    env, buffer, expected = LEARNERS[name]
    made = (lambda env: buffer()) if isinstance(buffer, type) else buffer
    assert bugs(env, made, simple.loss()) == expected


@pytest.mark.parametrize("kind", ["next", "same", "single"])
def test_data_buffer(kind):
    env = {
        "next": stepper,
        "same": functools.partial(stepper, copy=False, mode=AutoresetMode.SAME_STEP),
        "single": simple.plain,
    }[kind]
    spec = tf.TensorSpec
    flags = [spec([], tf.bool)] * 2
    row = (spec([12]), spec([], tf.int64), spec([], tf.float64), *flags, spec([12]))

    class Data:
        def __init__(self, played):
            self.buffer = replay_room.DataBuffer(row, 1000)

        def add(self, seen, actions, rewards, *rest):
            columns = (seen, actions, np.asarray(rewards, np.float64), *rest)
            self.buffer.add_batch(columns)

        def sample(self, batch_size):
            return [np.asarray(x) for x in self.buffer.get_batch(batch_size)]

    assert bugs(env, Data, simple.loss()) == ()
    assert bugs(env, Data, simple.loss(mask=simple.done)) == ("done_only_mask",)


@pytest.mark.parametrize(
    ("discounts", "expected"),
    [
        (lambda d: d, ()),
        (lambda d: d * GAMMA, ("gamma_twice",)),
        (np.sign, ("gamma_missing",)),
        (lambda d: GAMMA * np.sign(d), ("gamma_missing",)),
        (lambda d: GAMMA**3 * np.sign(d), ("short_windows",)),
    ],
    ids=["right", "twice", "missing", "once", "always_n"],
)
def test_three_steps_of_priority(discounts, expected):
    class Replay:
        def __init__(self, played):
            actions = tf.TensorSpec([], tf.int64)
            store = replay_room.EpisodeStore(tf.TensorSpec([12]), actions, 1000, 2)
            kind = replay_room.Transitions(3, GAMMA)
            self.add = store.add
            self.replay = replay_room.PrioritizedReplay(store, kind, seed=0)

        def sample(self, batch_size):
            return self.replay.sample(batch_size).data

    def loss(data, values):
        targets = data.rewards + discounts(data.discounts) * values(
            data.next_observations
        )
        return values(data.observations) - targets

    assert bugs(stepper, Replay, loss) == expected


@pytest.mark.parametrize(
    ("error", "message", "changed"),
    [
        (TypeError, "`env` expected a function; got None", {"env": None}),
        (TypeError, "`loss` expected a function; got None", {"loss": None}),
        (TypeError, "`env` expected to return a Gym", {"env": lambda make: None}),
        (
            ValueError,
            "`env` expected to return the chain",
            {"env": lambda make: gym.make("CartPole-v1")},
        ),
        (
            ValueError,
            "`env` expected episodes of 5 steps",
            {"env": lambda make: gym.wrappers.TimeLimit(make(), 3)},
        ),
        (
            ValueError,
            "`env` expected finite rewards",
            {"env": lambda m: gym.wrappers.TransformReward(m(), lambda r: np.nan)},
        ),
        (TypeError, "`buffer` expected the methods", {"buffer": None}),
        (TypeError, "`buffer` expected the methods", {"buffer": lambda env: []}),
        (ValueError, "got inf where", {"loss": lambda batch, values: np.inf}),
        (TypeError, "alone; got None", {"loss": lambda batch, values: None}),
        (
            TypeError,
            "losses alone; got ",
            {"loss": lambda batch, values: (simple.loss()(batch, values), {})},
        ),
        (ValueError, "got none", {"loss": lambda b, v: simple.loss()(b, v)[:0]}),
        (ValueError, "12 numbers", {"loss": lambda b, v: v(b[0][:, :6])}),
    ],
    ids=lambda x: x.replace("`", "").replace(" ", "_") if isinstance(x, str) else None,
)
def test_bad_input(error, message, changed):
    given = {"env": simple.plain, "buffer": simple.Steps(), "loss": simple.loss()}
    with pytest.raises(error, match=f"`check_learner`: .*{message}"):
        learner_check.check_learner(**given | changed)
