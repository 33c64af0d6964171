"""Tests of `training.checking.learner_check`: every planted bug is named, no other."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tfrl import replay as replay_room
from tfrl.environments import wrappers
from tfrl.host import stepping
from tfrl.training.checking import learner_check

GAMMA = 0.9


class Steps(list):
    """Keeps steps as they come."""

    def add(self, *columns):
        self.extend(zip(*columns, strict=True))

    def sample(self, batch_size):
        return [np.stack(column) for column in zip(*self, strict=True)]


class Following(Steps):
    """Takes the next row's observation for the next one."""

    def sample(self, batch_size):
        columns = super().sample(batch_size)
        columns[5] = np.roll(columns[0], -1, axis=0)
        return [column[:-1] for column in columns]


class TwoSteps(Steps):
    """Sums rewards of two steps, over ends as well unless `stops`."""

    def __init__(self, stops):
        super().__init__()
        self.stops = stops

    def sample(self, batch_size):
        kept = []
        for first, second in zip(self, self[1:], strict=False):
            if first[3] | first[4] and self.stops:
                continue
            reward = first[2] + GAMMA * second[2]
            kept.append((*first[:2], reward, *second[3:]))
        return [np.stack(column) for column in zip(*kept, strict=True)]


def plain(make):
    return make()


def vector(mode, n_envs=2):
    return lambda make: SyncVectorEnv([make] * n_envs, autoreset_mode=mode)


def loss(gamma=GAMMA, mask=lambda terminated, truncated: terminated, lift=lambda e: e):
    def errors(batch, values):
        observations, _, rewards, terminated, truncated, following = batch
        onward = gamma * (1.0 - mask(terminated, truncated).astype(np.float32))
        targets = rewards.astype(np.float32) + onward * values(following)
        return lift(values(observations) - targets)

    return errors


def done(terminated, truncated):
    return terminated | truncated


def nowhere(terminated, truncated):
    return np.zeros_like(terminated)


def swapped(terminated, truncated):
    return truncated


PLANTED = {
    "none": (plain, Steps(), loss(), ()),
    "squared": (plain, Steps(), loss(lift=np.square), ()),
    "mean": (plain, Steps(), loss(lift=lambda e: tf.reduce_mean(e**2)), ()),
    "two_steps": (plain, TwoSteps(stops=True), loss(GAMMA**2), ()),
    "two_steps_leak": (
        plain,
        TwoSteps(stops=False),
        loss(GAMMA**2),
        ("leak_across_episodes",),
    ),
    "two_steps_leak_and_gamma": (
        plain,
        TwoSteps(stops=False),
        loss(GAMMA**4),
        ("gamma_twice", "leak_across_episodes"),
    ),
    "gamma_twice": (plain, Steps(), loss(GAMMA**2), ("gamma_twice",)),
    "gamma_missing": (plain, Steps(), loss(1.0), ("gamma_missing",)),
    "done": (plain, Steps(), loss(mask=done), ("done_only_mask",)),
    "done_mean": (
        plain,
        Steps(),
        loss(mask=done, lift=lambda e: tf.reduce_mean(e**2)),
        ("done_only_mask",),
    ),
    "no_mask": (plain, Steps(), loss(mask=nowhere), ("terminal_bootstrap",)),
    "swapped_masks": (
        plain,
        Steps(),
        loss(mask=swapped),
        ("terminal_bootstrap", "done_only_mask"),
    ),
    "done_and_gamma": (
        plain,
        Steps(),
        loss(GAMMA**2, mask=done),
        ("gamma_twice", "done_only_mask"),
    ),
    "next_row": (plain, Following(), loss(), ("reset_observation",)),
    "next_row_and_gamma": (
        plain,
        Following(),
        loss(GAMMA**2),
        ("gamma_twice", "reset_observation"),
    ),
    "leak_and_gamma": (
        plain,
        Following(),
        loss(GAMMA**2, mask=nowhere),
        ("gamma_twice", "leak_across_episodes"),
    ),
    "next_row_unmasked": (
        plain,
        Following(),
        loss(mask=nowhere),
        ("leak_across_episodes",),
    ),
    "next_row_done": (plain, Following(), loss(mask=done), ("done_only_mask",)),
    "next_step": (vector(AutoresetMode.NEXT_STEP), Steps(), loss(), ("reset_rows",)),
    "next_step_done": (
        vector(AutoresetMode.NEXT_STEP),
        Steps(),
        loss(mask=done),
        ("done_only_mask", "reset_rows"),
    ),
    "same_step": (
        vector(AutoresetMode.SAME_STEP),
        Steps(),
        loss(),
        ("reset_observation",),
    ),
    "disabled": (vector(AutoresetMode.DISABLED), Steps(), loss(), ()),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bugs_are_named(name):
    env, buffer, errors, bugs = PLANTED[name]
    buffer.clear()
    report = learner_check.check_learner(env, buffer, errors, GAMMA)
    assert report.bugs == bugs
    lines = report.text.splitlines()
    assert [line.split(":")[0] for line in lines] == list(bugs or ["no bug found"])


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)
def test_stepper_mends_every_mode(mode):
    def env(make):
        return stepping.Stepper(vector(mode)(make), seed=0)

    assert learner_check.check_learner(env, Steps(), loss()).bugs == ()
    found = learner_check.check_learner(env, Steps(), loss(mask=done)).bugs
    assert found == ("done_only_mask",)


WRAPPED = {
    "stacked": lambda make: wrappers.StackChannels(make(), 3),
    "scaled": lambda make: wrappers.ScaleReward(make(), 0.1),
    "normalised": lambda make: gym.wrappers.NormalizeObservation(make()),
    "dict": lambda make: gym.wrappers.AddRenderObservation(Drawn(make()), False),
    "limited": lambda make: gym.wrappers.TimeLimit(make(), 100),
    "autoreset": lambda make: gym.wrappers.Autoreset(make()),
}


class Drawn(gym.Wrapper):
    """Draws what it shows."""

    render_mode = "rgb_array"

    def reset(self, **kwargs):
        self.seen, info = self.env.reset(**kwargs)
        return self.seen, info

    def step(self, action):
        self.seen, *rest = self.env.step(action)
        return self.seen, *rest

    def render(self):
        return np.uint8(255 * np.reshape(self.seen, [2, 2, 3]))


@pytest.mark.parametrize("name", WRAPPED)
def test_wrappers(name):
    class Leaves(Steps):
        def sample(self, batch_size):
            columns = [list(column) for column in zip(*self, strict=True)]
            return [
                {key: np.stack([row[key] for row in column]) for key in column[0]}
                if isinstance(column[0], dict)
                else np.stack(column)
                for column in columns
            ]

        def add(self, *columns):
            rows = [
                {key: leaf[0] for key, leaf in column.items()}
                if isinstance(column, dict)
                else column[0]
                for column in columns
            ]
            self.append(tuple(rows))

    env = WRAPPED[name]
    assert learner_check.check_learner(env, Leaves(), loss()).bugs == ()
    bugs = learner_check.check_learner(env, Leaves(), loss(GAMMA**2)).bugs
    assert bugs == ("gamma_twice",)


@pytest.mark.parametrize(
    ("n", "twice", "bugs"),
    [
        (1, False, ()),
        (3, False, ()),
        (1, True, ("gamma_twice",)),
        (3, True, ("gamma_twice",)),
    ],
    ids=["one_step", "three_steps", "one_step_twice", "three_steps_twice"],
)
def test_replay_of_the_house(n, twice, bugs):
    class Replay:
        def __init__(self, stepper):
            n_envs = stepper.envs.num_envs
            actions = tf.TensorSpec([], tf.int64)
            shape = tf.TensorSpec([12])
            self.store = replay_room.EpisodeStore(shape, actions, 500, n_envs)
            kind = replay_room.Transitions(n, GAMMA)
            self.add = self.store.add
            self.replay = replay_room.UniformReplay(self.store, kind, seed=0)

        def sample(self, batch_size):
            return self.replay.sample(batch_size).data

    @tf.function
    def errors(data, values):
        # `discounts` hold gamma already; the bug is to have it in the loss as well.
        onward = data.discounts * GAMMA**n if twice else data.discounts
        targets = data.rewards + onward * values(data.next_observations)
        return values(data.observations) - targets

    def env(make):
        return stepping.Stepper(vector(AutoresetMode.SAME_STEP)(make), seed=0)

    assert learner_check.check_learner(env, Replay, errors, GAMMA).bugs == bugs


def test_compiled_loss_is_traced_once():
    traces = []

    @tf.function
    def errors(observations, values):
        traces.append(1)
        return values(observations)

    def first(batch, values):
        return errors(batch[0], values)

    # Values of 0 are right by no rule: all of them are tried.
    report = learner_check.check_learner(plain, Steps(), first)
    assert report.bugs == ("unexplained",)
    assert len(traces) == 1


def test_mixed_up_observations():
    class Shifting(Steps):
        def sample(self, batch_size):
            columns = super().sample(batch_size)
            columns[0] = columns[0] + 0.5
            return columns

    report = learner_check.check_learner(plain, Shifting(), loss())
    assert report.bugs == ("unknown_observations",)


def test_unexplained():
    class Swapping(Steps):
        def sample(self, batch_size):
            columns = super().sample(batch_size)
            columns[2] = np.flip(columns[2])
            return columns

    report = learner_check.check_learner(plain, Swapping(), loss())
    assert report.bugs == ("unexplained",)
    assert "vanishes neither" in report.text


class Hiding(gym.ObservationWrapper):
    def observation(self, observation):
        return np.zeros_like(observation)


@pytest.mark.parametrize(
    ("env", "errors", "gamma", "message"),
    [
        (
            lambda make: Hiding(make()),
            loss(),
            0.9,
            "`env` expected another observation",
        ),
        (
            lambda make: gym.wrappers.NormalizeReward(make()),
            loss(),
            0.9,
            "`env` expected one state and one reward",
        ),
        (
            plain,
            lambda batch, values: np.zeros(3),
            0.9,
            "numbers that depend on the val",
        ),
        (plain, lambda batch, values: np.nan, 0.9, "got nan where they are wrong"),
        (plain, loss(), 1.0, "`gamma` expected numbers in"),
    ],
    ids=["hiding", "rewards", "constant", "nan", "gamma"],
)
def test_bad_input(env, errors, gamma, message):
    with pytest.raises(ValueError, match=f"`check_learner`: .*{message}"):
        learner_check.check_learner(env, Steps(), errors, gamma)
