"""Tests of `tfrl.host.stepping`."""

import copy
import gc
import os
import signal
import threading
import time
import weakref
from fractions import Fraction

import gymnasium as gym
import numpy as np
import pytest
from faulty_envs import odd
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from toy_envs import LAYOUTS, MODES, Walk, act, vector

from tfrl._internal import gym_checks
from tfrl.environments import vector as vectors
from tfrl.host import stepping


def played(mode, layout="box", n_steps=60):
    """Valid transitions of each environment: before, action, reward, flags, after."""
    stepper = stepping.Stepper(vector(mode, layout=layout), seed=5)
    found = [[] for _ in range(3)]
    for _ in range(n_steps):
        before = gym_checks.mapped(np.copy, stepper.observations)
        actions = act(before).astype(np.int64)
        outcome = stepper.step(actions)
        for n in np.flatnonzero(outcome.valid):
            row = (before, actions, *outcome[:3], outcome.next_observations)
            leaves = [leaf for x in row for leaf in gym_checks.leaves_of(x)]
            found[n].append([np.array(leaf[n]) for leaf in leaves])
    return found


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_steps_are_those_of_a_single_environment(mode):
    for n, rows in enumerate(played(mode)):
        env = Walk()
        seen, _ = env.reset(seed=5 + n)
        for before, action, reward, terminated, truncated, after in rows:
            np.testing.assert_array_equal(before, seen)
            seen, expected, *ends, _ = env.step(int(action))
            np.testing.assert_array_equal(after, seen)
            assert (reward, [terminated, truncated]) == (expected, ends)
            if any(ends):
                seen, _ = env.reset()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_modes_give_the_same_steps(layout):
    runs = [played(mode, layout) for mode in MODES]
    for rows in zip(*runs, strict=True):
        count = min(map(len, rows))
        assert count > 30
        for other in rows[1:]:
            for one, two in zip(rows[0][:count], other[:count], strict=True):
                np.testing.assert_array_equal(np.hstack(one), np.hstack(two))


def test_reset_begins_anew():
    stepper = stepping.Stepper(vector(MODES[2]), seed=5)
    first = stepper.observations.copy()
    while not stepper.resetting.any():
        stepper.step(np.zeros(3, np.int64))
    stepper.reset(5)
    np.testing.assert_array_equal(stepper.observations, first)
    assert not stepper.resetting.any()


def test_numbers_are_checked():
    rows = np.zeros((3, 2))
    gym_checks.check_numbers("play", "rewards", (rows, np.zeros((3, 2), int)))
    rows[1, 1] = -np.inf
    with pytest.raises(
        ValueError,
        match="`play`: `rewards` .* got -inf at step 2 of those just played in",
    ):
        gym_checks.check_numbers("play", "rewards", rows)
    with pytest.raises(ValueError, match=r"got nan at .*a reward of None becomes nan"):
        gym_checks.check_numbers("play", "rewards", rows * np.nan)
    shown = {"place": np.ones((3, 2)), "camera": ((), rows)}
    with pytest.raises(ValueError, match=r"`play`: `rewards\['camera'\]\[1\]` expec"):
        gym_checks.check_numbers("play", "rewards", shown)
    # Large numbers whose sum alone is infinite are finite.
    many = np.full((3, 2), 1e308)
    gym_checks.check_numbers("play", "rewards", many)
    with pytest.raises(ValueError, match=r"got 1e\+308, too large for float32, at st"):
        gym_checks.check_numbers("play", "rewards", many, np.float32)


def test_choices_are_checked():
    space = gym.spaces.Dict(
        a=gym.spaces.Tuple([gym.spaces.Discrete(2, start=3)]), b=gym.spaces.Box(0, 1)
    )
    nest = {"a": (np.full((4, 2), 3),), "b": np.full((4, 2, 1), 7.0)}
    gym_checks.check_choices("play", "observations", space, nest)
    nest["a"][0][2, 1] = 5
    message = (
        r"`observations\['a'\]\[0\]` expected .*Discrete\(2, start=3\); got 5 at step 2"
    )
    with pytest.raises(
        ValueError, match=f"`play`: {message} of those .* in environment 1"
    ):
        gym_checks.check_choices("play", "observations", space, nest)


TUPLE = r"`step` to return \(observation, reward, terminated, truncated, info\); got "
OBSERVED = r"observations to be an array of shape \(3,\), float32, .*; got an array of "
FAULTS = {
    "four": (lambda o, r, t, u, i: (o, r, t, i), TUPLE + "4 values from"),
    "nothing": (lambda *_: None, TUPLE + "an object of type NoneType"),
    "info": (lambda o, r, t, u, i: (o, r, t, u, 3), TUPLE + "an info that is no dict"),
    "shape": (lambda o, *rest: (o[:2], *rest), OBSERVED + r"shape \(2,\), float32"),
    "dtype": (lambda o, *rest: (o.astype(str), *rest), OBSERVED + r"shape \(3,\), <U"),
    "reward": (
        lambda o, r, *rest: (o, [r, r], *rest),
        r"rewards that are numbers, as of `float\(reward\)`, .* got one that is a s",
    ),
}


# What arrays take, but Gymnasium's vectors do not show.
ODD = {
    "reward": (lambda o, r, *rest: (o, "1", *rest), "str"),
    "terminated": (lambda o, r, t, *rest: (o, r, "no", *rest), "str"),
    "truncated": (lambda o, r, t, u, i: (o, r, t, None, i), "NoneType"),
}


class Faulty(Walk):
    def __init__(self, change_reset=None, change_step=None):
        super().__init__()
        self.change_reset, self.change_step = change_reset, change_step

    def reset(self, **kwargs):
        found = super().reset(**kwargs)
        return found if self.change_reset is None else self.change_reset(*found)

    def step(self, action):
        found = super().step(action)
        is_due = self.change_step is not None and self.total > 4
        return self.change_step(*found) if is_due else found


def stepper(faulty, mode, wrapped):
    def make(env):
        return gym.wrappers.TimeLimit(env, 50) if wrapped else env

    envs = [lambda: make(Faulty()), lambda: make(faulty)]
    return stepping.Stepper(SyncVectorEnv(envs, autoreset_mode=mode), 0)


def play(faulty, mode=MODES[0], wrapped=False):
    playing = stepper(faulty, mode, wrapped)
    for _ in range(30):
        playing.step(np.zeros(2, int))


wrapping = pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "wrapped"])


@wrapping
@pytest.mark.parametrize("fault", FAULTS)
def test_steps_that_break_the_rules(fault, wrapped):
    change, message = FAULTS[fault]
    where = r"environment 1 \(Faulty\) at step \d"
    for mode in MODES:
        with pytest.raises(ValueError, match=f"`Stepper`: `envs` .*{message}.*{where}"):
            play(Faulty(change_step=change), mode, wrapped)


@wrapping
@pytest.mark.parametrize("fault", ODD)
def test_what_is_no_number_is_refused(fault, wrapped):
    change, kind = ODD[fault]
    message = rf"numbers, .* ends that are bools; got one that is a {kind} from"
    with pytest.raises(ValueError, match=rf"{message} environment 1 \(Faulty\)"):
        play(Faulty(change_step=change), wrapped=wrapped)


@pytest.mark.parametrize("number", [1, np.float32(1), np.array(1.0), Fraction(1)])
@pytest.mark.parametrize("flag", [int, np.bool_])
def test_numbers_and_ends_are_of_many_kinds(number, flag):
    play(Faulty(change_step=lambda o, r, t, u, i: (o, number, flag(t), flag(u), i)))


@wrapping
def test_resets_that_break_the_rules(wrapped):
    message = r"`reset` to return \(observation, info\).*environment 1 .* at step 0"
    for change in (lambda o, i: o, lambda o, i: o[:2], lambda o, i: (o, None)):
        with pytest.raises(ValueError, match=message):
            play(Faulty(change_reset=change), wrapped=wrapped)


class OfOld(Walk):
    def reset(self):
        return super().reset()


@wrapping
def test_a_reset_of_old_is_named(wrapped):
    message = r"`envs` expected `reset` to be as `reset\(self, \*, seed=None, "
    message += r".*environment 1 \(OfOld\) at step 0"
    with pytest.raises(ValueError, match=message):
        stepper(OfOld(), MODES[0], wrapped)


def test_what_breaks_no_rule():
    def fail(*_):
        raise ValueError("not enough values to unpack, say I")

    with pytest.raises(ValueError, match="^not enough values to unpack, say I$"):
        play(Faulty(change_step=fail))
    play(Faulty(change_step=lambda o, *rest: (o.astype(np.float64), *rest)))


class Twice(gym.vector.VectorEnv):
    """A vector whose arrays are as told."""

    num_envs = 2
    single_observation_space = Walk().observation_space
    single_action_space = Walk.action_space
    metadata = {"autoreset_mode": MODES[1]}

    def __init__(self, shown=(2, 3), rewards=(2,), flags=bool, end=False):
        self.observation_space = gym.vector.utils.batch_space(
            self.single_observation_space, 2
        )
        self.given = shown, rewards, flags, end

    def reset(self, *, seed=None, options=None):
        return np.zeros((2, 3), np.float32), {}

    def step(self, actions):
        shown, rewards, flags, end = self.given
        ends = np.full(2, end, flags), np.zeros(2, flags)
        return np.zeros(shown, np.float32), np.zeros(rewards), *ends, {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"shown": (1, 3)}, r"shapes and dtypes \[\(\(2, 3\), .* at step 1"),
        (
            {"rewards": (2, 1)},
            r"that are 2 numbers; got an array of .*; let each .* one number$",
        ),
        ({"flags": int}, "terminated that are 2 bools; got an array of shape .* int"),
        ({"end": True}, r"info\['final_obs'\] where an episode ends"),
    ],
    ids=["stretched", "rewards", "flags", "last observation"],
)
def test_vectors_that_break_the_rules(given, message):
    playing = stepping.Stepper(Twice(**given), 0)
    with pytest.raises(ValueError, match=f"`Stepper`: `envs` expected .*{message}"):
        playing.step(np.zeros(2, int))
    envs = Twice()
    envs.observation_space = gym.spaces.Box(-1, 1, (2, 4), np.float32)
    with pytest.raises(ValueError, match=r"shape \(2, 4\), .* got .* shape \(2, 3\)"):
        stepping.Stepper(envs, 0)


class Untold(gym.vector.VectorEnv):
    """A vector of another mode, which it does not tell."""

    def __init__(self, mode):
        self.inner = vector(mode)
        self.num_envs, self.ended = self.inner.num_envs, None
        self.single_observation_space = self.inner.single_observation_space
        self.single_action_space = self.inner.single_action_space
        self.observation_space = self.inner.observation_space

    def reset(self, *, seed=None, options=None):
        return self.inner.reset(seed=seed, options=options)

    def step(self, actions):
        if self.ended is not None:  # It goes on being over until somebody resets it.
            return self.ended
        found = self.inner.step(actions)
        if self.inner.autoreset_mode == MODES[0] and (found[2] | found[3]).any():
            self.ended = found
        return found


def test_modes_that_are_not_told_are_seen():
    def play(mode):
        playing = stepping.Stepper(Untold(mode), 5)
        for _ in range(60):
            playing.step(act(playing.observations))

    class Told(Untold):
        metadata = {"autoreset_mode": MODES[2]}

        def step(self, actions):
            return *super().step(actions)[:4], {"final_obs": 3}

    playing = stepping.Stepper(Told(MODES[2]), 5)
    for _ in range(9):
        playing.step(act(playing.observations))
    assert stepping.autoreset_mode(Untold(MODES[2])) == MODES[2]
    play(MODES[2])
    for mode, came in ((MODES[1], r"info\['final_obs'\]"), (MODES[0], "the end of an")):
        with pytest.raises(ValueError, match=f"as of .*NEXT_STEP.* got {came}.*; name"):
            play(mode)


def test_rewards_in_steps_that_should_only_reset_are_seen():
    class Silent(gym.vector.VectorWrapper):
        """Tells neither its mode nor last observations."""

        metadata = {}
        unwrapped = property(lambda self: self)

        def step(self, actions):
            return *self.env.step(actions)[:4], {}

    def play(mode):
        options = {"autoreset_mode": mode}
        envs = gym.make_vec("CartPole-v1", 2, "sync", vector_kwargs=options)
        playing = stepping.Stepper(Silent(envs), 5)
        for _ in range(60):
            playing.step(np.zeros(2, int))

    play(MODES[2])
    came = r"got a reward in the step after the end of an episode at step \d+; name it"
    with pytest.raises(ValueError, match=f"as of .*NEXT_STEP.* {came}"):
        play(MODES[1])


def test_a_killed_worker_is_told_in_a_line():
    envs = vectors.make_vec("CartPole-v1", 2, "async")
    processes = envs.unwrapped.processes
    try:
        playing = stepping.Stepper(envs, seed=0)
        for _ in range(5):
            playing.step(np.zeros(2, int))
        os.kill(processes[1].pid, signal.SIGKILL)
        message = r"that of environment 1 \(exit code -9\) after \d+ steps; .* resume"
        with pytest.raises(ConnectionError, match=message):
            for _ in range(100):
                playing.step(np.zeros(2, int))
    finally:
        envs.close()
    assert not any(process.is_alive() for process in processes)


def fall(*_):
    raise AttributeError("'str' object has no attribute 'items', say I")


def in_processes(step):
    """A vector whose second environment returns something else."""
    made = [odd(), odd(step=step)]
    return AsyncVectorEnv(made, context="spawn", autoreset_mode=MODES[1])


PLACE = r" from environment 1 \(AsyncVectorEnv\) at step 1"
ANSWERS = {
    "info": (
        lambda env, o, r, t, u, i: (o, r, t, u, None),
        f"{TUPLE}an info that is no dict.*{PLACE}",
    ),
    "shape": (
        lambda env, o, *rest: (np.tile(o, 2), *rest),
        rf"observations as `observation_space` says; got .* shape \(4,\).*{PLACE}",
    ),
    "ragged": (
        lambda env, o, r, t, u, i: (o, r, t, u, {"at": np.zeros(2)}),
        rf"infos whose values keep kind and shape, .* with a sequence.*{PLACE}",
    ),
    "its own": (fall, "^'str' object has no attribute 'items', say I$"),
}


@pytest.mark.filterwarnings("ignore:.*ERROR")  # Gymnasium shows what a process raised
@pytest.mark.parametrize("fault", ANSWERS)
def test_processes_that_break_the_rules(fault):
    change, message = ANSWERS[fault]
    envs = in_processes(change)
    processes = envs.processes
    try:
        playing = stepping.Stepper(envs, 0)
        expected = AttributeError if fault == "its own" else ValueError
        with pytest.raises(expected, match=message):
            playing.step(np.zeros((2, 1), np.float32))
    finally:
        envs.close()
    assert not any(process.is_alive() for process in processes)


def test_a_step_that_does_not_return_is_broken_off():
    envs = in_processes(lambda *_: time.sleep(1000))
    processes, here = envs.processes, threading.get_ident()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.3, signal.pthread_kill, (here, signal.SIGINT))
    try:
        playing = stepping.Stepper(envs, 0)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            playing.step(np.zeros((2, 1), np.float32))
    finally:
        signal.signal(signal.SIGINT, before)
        envs.close()
    assert not any(process.is_alive() for process in processes)


def test_who_plays_is_told_when_another_does():
    envs = vectors.make_vec("CartPole-v1", 2)
    first = stepping.Stepper(envs, 0)
    first.step(np.zeros(2, int))
    second = stepping.Stepper(gym.vector.VectorWrapper(envs), 1)
    message = (
        "`Stepper`: `envs` .* nobody else plays; .* another has reset after step 1"
    )
    with pytest.raises(ValueError, match=message):
        first.step(np.zeros(2, int))
    second.step(np.zeros(2, int))
    first.reset(2)  # and takes them back
    first.step(np.zeros(2, int))
    with pytest.raises(ValueError, match="nobody else plays"):
        second.step(np.zeros(2, int))


def test_environments_are_freed_with_who_played_them():
    envs = vectors.make_vec("CartPole-v1", 2)
    kept = weakref.ref(envs)
    stepper = stepping.Stepper(envs, 0)
    del envs, stepper
    gc.collect()
    assert kept() is None


def test_a_copy_plays_copies():
    stepper = stepping.Stepper(vectors.make_vec("CartPole-v1", 2), 0)
    other = copy.deepcopy(stepper)
    for each in (other, stepper):
        found = each.step(np.ones(2, int)).next_observations
        np.testing.assert_array_equal(found, each.observations)
    np.testing.assert_array_equal(other.observations, stepper.observations)


def test_seeds_may_be_those_of_numpy():
    vectors_of = [vector(MODES[2]), vectors.make_vec("CartPole-v1", 2, "sync")]
    for envs in vectors_of:
        shown = [
            stepping.Stepper(envs, seed).observations.copy()
            for seed in (5, np.int64(5), np.uint8(5))
        ]
        np.testing.assert_array_equal(shown[1], shown[0])
        np.testing.assert_array_equal(shown[2], shown[0])
