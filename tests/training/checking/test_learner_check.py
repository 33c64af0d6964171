"""`check_learner` names every planted bug, and no other."""

import functools

import gymnasium as gym
import numpy as np
import pytest
import refusals
import tensorflow as tf
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from refusals import bad

from tfrl import replay as replay_room
from tfrl.environments import wrappers
from tfrl.host import stepping
from tfrl.training.checking import _known_chain, learner_check

GAMMA = 0.9
check = learner_check.check_learner


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


def vector(mode):
    return lambda make: SyncVectorEnv([make] * 2, autoreset_mode=mode)


def stepper(make, copy=True, mode=AutoresetMode.NEXT_STEP):
    envs = SyncVectorEnv([make] * 2, copy=copy, autoreset_mode=mode)
    return stepping.Stepper(envs, seed=3)


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


def mean_square(errors):
    return tf.reduce_mean(errors**2)


NEXT_STEP, SAME_STEP = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP
LEAK, DONE, TWICE = "leak_across_episodes", "done_only_mask", "gamma_twice"
PLANTED = {
    "none": (plain, Steps(), loss(), ()),
    "squared": (plain, Steps(), loss(lift=np.square), ()),
    "mean": (plain, Steps(), loss(lift=mean_square), ()),
    "two_steps": (plain, TwoSteps(stops=True), loss(GAMMA**2), ()),
    "two_leak": (plain, TwoSteps(stops=False), loss(GAMMA**2), (LEAK,)),
    "two_leak_gamma": (plain, TwoSteps(False), loss(GAMMA**4), (TWICE, LEAK)),
    "gamma_twice": (plain, Steps(), loss(GAMMA**2), (TWICE,)),
    "gamma_missing": (plain, Steps(), loss(1.0), ("gamma_missing",)),
    "done": (plain, Steps(), loss(mask=done), (DONE,)),
    "done_mean": (plain, Steps(), loss(mask=done, lift=mean_square), (DONE,)),
    "no_mask": (plain, Steps(), loss(mask=nowhere), ("terminal_bootstrap",)),
    "swapped_masks": (plain, Steps(), loss(mask=swapped), ("terminal_bootstrap", DONE)),
    "done_and_gamma": (plain, Steps(), loss(GAMMA**2, mask=done), (TWICE, DONE)),
    "next_row": (plain, Following(), loss(), ("reset_observation",)),
    "next_row_and_gamma": (
        *(plain, Following(), loss(GAMMA**2)),
        (TWICE, "reset_observation"),
    ),
    "leak_and_gamma": (
        *(plain, Following(), loss(GAMMA**2, mask=nowhere)),
        (TWICE, LEAK),
    ),
    "next_row_unmasked": (plain, Following(), loss(mask=nowhere), (LEAK,)),
    "next_row_done": (plain, Following(), loss(mask=done), (DONE,)),
    "next_step": (vector(NEXT_STEP), Steps(), loss(), ("reset_rows",)),
    "next_step_done": (
        *(vector(NEXT_STEP), Steps(), loss(mask=done)),
        (DONE, "reset_rows"),
    ),
    "same_step": (vector(SAME_STEP), Steps(), loss(), ("reset_observation",)),
    "disabled": (vector(AutoresetMode.DISABLED), Steps(), loss(), ()),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bugs_are_named(name):
    env, buffer, errors, bugs = PLANTED[name]
    buffer.clear()
    report = check(env, buffer, errors, GAMMA)
    assert report.bugs == bugs
    lines = report.text.splitlines()
    assert [line.split(":")[0] for line in lines] == list(bugs or ["no bug found"])


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)
def test_stepper_mends_every_mode(mode):
    env = functools.partial(stepper, mode=mode)
    assert check(env, Steps(), loss()).bugs == ()
    assert check(env, Steps(), loss(mask=done)).bugs == (DONE,)


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
    assert check(env, Leaves(), loss()).bugs == ()
    bugs = check(env, Leaves(), loss(GAMMA**2)).bugs
    assert bugs == ("gamma_twice",)


@pytest.mark.parametrize(
    ("n", "discounts", "bugs"),
    [
        (1, lambda d: d, ()),
        (1, lambda d: d * GAMMA, (TWICE,)),
        (3, lambda d: d, ()),
        (3, lambda d: d * GAMMA, (TWICE,)),
        (3, np.sign, ("gamma_missing",)),
        (3, lambda d: GAMMA * np.sign(d), ("gamma_missing",)),
        (3, lambda d: GAMMA**3 * np.sign(d), ("short_windows",)),
    ],
    ids=["one", "one_twice", "three", "twice", "missing", "once", "always_n"],
)
def test_replays_of_the_house(n, discounts, bugs):
    class Replay:
        def __init__(self, played):
            actions = tf.TensorSpec([], tf.int64)
            store = replay_room.EpisodeStore(tf.TensorSpec([12]), actions, 1000, 2)
            kind = replay_room.Transitions(n, GAMMA)
            self.add = store.add
            make = (
                replay_room.UniformReplay if n == 1 else replay_room.PrioritizedReplay
            )
            self.replay = make(store, kind, seed=0)

        def sample(self, batch_size):
            return self.replay.sample(batch_size).data

    def errors(data, values):
        # `discounts` hold gamma already; one bug is to have it in the loss as well.
        onward = discounts(data.discounts) * values(data.next_observations)
        return values(data.observations) - (data.rewards + onward)

    assert check(stepper, Replay, errors, GAMMA).bugs == bugs


def test_compiled_loss_is_traced_once():
    traces = []

    @tf.function
    def errors(observations, values):
        traces.append(1)
        return values(observations)

    def first(batch, values):
        return errors(batch[0], values)

    # Values of 0 are right by no rule: all of them are tried.
    report = check(plain, Steps(), first)
    assert report.bugs == ("unexplained",)
    assert len(traces) == 1


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


def advantages(cut=done, mask=lambda te, tr: te, lift=lambda e: e, gamma=GAMMA):
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


ADVANTAGES = {
    "right": (advantages(), ()),
    "right_mean_square": (advantages(lift=mean_square), ()),
    "right_root": (advantages(lift=lambda e: np.sqrt(mean_square(e) + 1e-20)), ()),
    "right_mean_of_envs": (advantages(lift=lambda e: e.mean(1)), ()),
    "leak": (advantages(nowhere), (LEAK,)),
    "leak_mean_square": (advantages(nowhere, lift=mean_square), (LEAK,)),
    "leak_at_limits": (advantages(lambda te, tr: te), (LEAK,)),
    "leak_and_done": (advantages(nowhere, done), (DONE, LEAK)),
    "gamma_twice": (advantages(gamma=GAMMA**2), (TWICE,)),
}


@pytest.mark.parametrize("name", ADVANTAGES)
def test_advantages(name):
    errors, expected = ADVANTAGES[name]
    assert check(stepper, Rollout(), errors).bugs == expected


class Shifted(Steps):
    """Rewards of the step before, 0 at the start of an episode."""

    def sample(self, batch_size):
        columns = super().sample(batch_size)
        starts = np.roll(columns[3] | columns[4], 1)
        columns[2] = np.where(starts, 0.0, np.roll(columns[2], 1))
        return columns


class Without(Steps):
    """Leaves out the steps with a flag."""

    def __init__(self, flag):
        super().__init__()
        self.flag = flag

    def add(self, *columns):
        if not columns[self.flag].any():
            super().add(*columns)


class Some(Steps):
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


class Copying(Steps):
    def add(self, *columns):
        super().add(*map(np.array, columns))


def boxed(make):
    low, high = np.float32(-1.0), np.float32(1.0)
    env = make(gym.spaces.Box(2.0 * low, 2.0 * high, (1,)))
    return gym.wrappers.ClipAction(gym.wrappers.RescaleAction(env, low, high))


class Displaced(Steps):
    """Shows what the environment never did."""

    def sample(self, batch_size):
        columns = super().sample(batch_size)
        columns[0] = columns[0] + 0.5
        return columns


class Flipped(Steps):
    """Mixes rewards up."""

    def sample(self, batch_size):
        columns = super().sample(batch_size)
        columns[2] = np.flip(columns[2])
        return columns


LEARNERS = {
    "off_by_one": (plain, Shifted, ("reward_off_by_one",)),
    "no_true_ends": (plain, lambda env: Without(3), ("steps_left_out",)),
    "no_time_limits": (plain, lambda env: Without(4), ()),
    "without_replacement": (plain, Some, ()),
    "displaced": (plain, Displaced, ("unknown_observations",)),
    "flipped": (plain, Flipped, ("unexplained",)),
    "swapped_seen": (stepper, lambda env: Rollout(0), ("unexplained",)),
    "swapped_rewards": (stepper, lambda env: Rollout(2), ("unexplained",)),
    "swapped_following": (stepper, lambda env: Rollout(5), ("unexplained",)),
    "limit_as_end": (lambda make: Ended(make()), Steps, (DONE,)),
    "overwritten": (
        *(lambda make: InPlace(make()), Steps),
        ("overwritten_observations",),
    ),
    "overwriting_vector": (
        *(functools.partial(stepper, copy=False), Steps),
        ("overwritten_observations",),
    ),
    "copied": (lambda make: InPlace(make()), Copying, ()),
    "frames": (lambda make: gym.wrappers.FrameStackObservation(make(), 3), Steps, ()),
    "skipped": (lambda make: gym.wrappers.MaxAndSkipObservation(make(), 2), Steps, ()),
    "actions": (boxed, Steps, ()),
    "great_rewards": (lambda make: wrappers.ScaleReward(make(), 1e5), Steps, ()),
    "list_infos": (
        lambda make: gym.wrappers.vector.DictInfoToList(
            vector(AutoresetMode.DISABLED)(make)
        ),
        *(Steps, ()),
    ),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_learners(name):
    env, buffer, expected = LEARNERS[name]
    made = (lambda env: buffer()) if isinstance(buffer, type) else buffer
    assert check(env, made, loss()).bugs == expected


class Hiding(gym.ObservationWrapper):
    def observation(self, observation):
        return np.zeros_like(observation)


class Endless(gym.Wrapper):
    def step(self, action):
        seen, reward, *_, info = self.env.step(action)
        return seen, reward, False, False, info


W, ok = gym.wrappers, (plain, Steps(), loss())


@refusals.table(
    (
        check,
        bad(TypeError, "env", None, *ok[1:]),
        bad(TypeError, "env", lambda make: None, *ok[1:]),
        bad(ValueError, "env", lambda make: gym.make("CartPole-v1"), *ok[1:]),
        bad(ValueError, "env", lambda make: W.TimeLimit(make(), 3), *ok[1:]),
        bad(ValueError, "env", lambda make: Endless(make()), *ok[1:]),
        bad(ValueError, "env", lambda make: Hiding(make()), *ok[1:]),
        bad(ValueError, "env", lambda make: W.NormalizeReward(make()), *ok[1:]),
        bad(
            *(ValueError, "env"),
            lambda make: W.TransformReward(make(), lambda reward: np.nan),
            *ok[1:],
        ),
        bad(TypeError, "buffer", plain, None, loss()),
        bad(TypeError, "buffer", plain, lambda env: [], loss()),
        bad(TypeError, "loss", plain, Steps(), None),
        bad(TypeError, "loss", plain, Steps(), lambda batch, values: None),
        bad(TypeError, "loss", plain, Steps(), lambda b, v: (loss()(b, v), {})),
        bad(ValueError, "loss", plain, Steps(), lambda batch, values: np.zeros(3)),
        bad(ValueError, "loss", plain, Steps(), lambda batch, values: np.nan),
        bad(ValueError, "loss", plain, Steps(), lambda batch, values: np.inf),
        bad(ValueError, "loss", plain, Steps(), lambda b, v: loss()(b, v)[:0]),
        bad(ValueError, "loss", plain, Steps(), lambda b, v: v(b[0][:, :6])),
        bad(ValueError, "gamma", *ok, 1.0),
    ),
)
def test_refusals(row):
    row()


REWARDS = [1.0, 2, 3, 4, 5, None, 6, 7, 8, 9, 10, None]
STEPS = {s: (s + 1, r) for s, r in enumerate(REWARDS) if r is not None}
# Rewards this great are four times the chain's own.
LAST = 7.0 * 10.0 / _known_chain.MOST


@pytest.mark.parametrize(
    ("rule", "state", "expected"),
    [
        ({}, 0, 1 + 0.5 * (2 + 0.5 * (3 + 0.5 * (4 + 0.5 * 5)))),
        ({}, 8, 8 + 0.5 * (9 + 0.5 * (10 + 0.5 * LAST))),
        ({"exponent": "twice"}, 3, 4 + 0.25 * 5),
        ({"at_time_limit": "nothing"}, 10, 10.0),
        ({"at_true_end": "last"}, 4, 5 + 0.5 * 11 * 10 / _known_chain.MOST),
        ({"rewards": "previous"}, 6, 5 + 0.5 * (6 + 0.5 * (7 + 0.5 * (8 + 4.5)))),
        ({"rewards": "next or 0"}, 3, 5.0),
        ({"n_steps": 2, "exponent": "once"}, 8, 8 + 0.5 * 9 + 0.5 * (10 + LAST / 2)),
        ({"n_steps": 2, "exponent": "n"}, 10, 10 + 0.25 * LAST),
        ({"n_steps": 3, "exponent": "once more"}, 10, 10 + 0.25 * LAST),
    ],
    ids=lambda x: "-".join(map(str, x.values())) if isinstance(x, dict) else None,
)
def test_rules_worked_by_hand(rule, state, expected):
    rule = _known_chain.Rule(**rule)
    values = _known_chain.values(rule, 0.5, STEPS)
    if rule.rewards == "previous":  # its last step bootstraps as well
        expected += 0.5**5 * LAST
    np.testing.assert_allclose(values[state], expected, rtol=1e-12)


@pytest.mark.slow
def test_rules_of_one_value_hide_bugs_of_each_other():
    found = []
    for rule in _known_chain.RULES:
        values = _known_chain.values(rule, 0.9, STEPS)
        if values is None or rule.exponent == "never" and rule.through_resets:
            continue  # a loop without a discount leaves little to tell apart
        same = [r for r, v in found if np.allclose(v, values, rtol=1e-6)]
        for other in same[:1]:
            assert set(other.bugs()) <= set(rule.bugs()), (other, rule)
        found.append((rule, values))
    assert found[0][0] == _known_chain.Rule()
    names = {bug for rule, _ in found for bug in rule.bugs()}
    assert len(names) == 9
