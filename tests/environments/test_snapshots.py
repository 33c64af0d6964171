"""Tests of `tfrl.environments.snapshots`."""

import enum
import io
import pickle
import random
from collections import Counter, OrderedDict, deque

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces, wrappers
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as vector_wrappers

from tfrl.environments import snapshots
from tfrl.saving import typed_json


def through_json(snapshot):
    return typed_json.from_json(typed_json.to_json(snapshot))


def drawn(space, n_steps, seed):
    space.seed(seed)
    return [space.sample() for _ in range(n_steps)]


def play(env, actions):
    """Steps an environment and records everything it answers but the time."""
    mode = env.metadata.get("autoreset_mode")
    record = []
    for action in actions:
        answer = env.step(action)
        record.append(answer)
        done = np.logical_or(answer[2], answer[3])
        if not isinstance(env.unwrapped, gym.vector.VectorEnv):
            record += [env.reset()] if done else []
        elif mode == AutoresetMode.DISABLED and done.any():
            record.append(env.reset(options={"reset_mask": done}))
        record.append(env.action_space.sample())
    return record


def flat(record):
    """Turns a record into comparable bytes; a clock's readings are left out."""
    if isinstance(record, dict):
        return {k: flat(v) for k, v in record.items() if k not in ("t", "_t")}
    if isinstance(record, list | tuple | deque):
        return [flat(item) for item in record]
    if isinstance(record, np.ndarray) and record.dtype.hasobject:
        return [flat(item) for item in record]
    array = np.asarray(record)
    return array.dtype.str, array.shape, array.tobytes()


def check_resumes(make, before=70, after=130, prepare=lambda env: None):
    env = make()
    env.reset(seed=3)
    actions = drawn(env.action_space, before + after, 5)
    play(env, actions[:before])
    snapshot = through_json(snapshots.capture(env))
    assert snapshots.uncapturable(env) is None
    expected = flat(play(env, actions[before:]))
    copy = make()
    prepare(copy)
    snapshots.restore(copy, snapshot)
    assert flat(play(copy, actions[before:])) == expected
    # The snapshot has not been changed by the steps after it.
    snapshots.restore(env, snapshot)
    assert flat(play(env, actions[before:])) == expected


NAMES = ["Acrobot-v1", "Pendulum-v1", "MountainCarContinuous-v0"]


def slow(*rows):
    return [pytest.param(*row, marks=pytest.mark.slow) for row in rows]


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *(("CartPole-v1", mode) for mode in AutoresetMode),
        ("Blackjack-v1", AutoresetMode.DISABLED),
        *slow(*((name, mode) for name in NAMES for mode in AutoresetMode)),
    ],
)
def test_vector_environments_resume(name, mode):
    def make():
        one = [lambda: gym.make(name, max_episode_steps=50)] * 3
        return SyncVectorEnv(one, autoreset_mode=mode)

    check_resumes(make, prepare=lambda env: env.reset(seed=9))


def make_native():
    return gym.make_vec("CartPole-v1", 4, vectorization_mode="vector_entry_point")


def started(env):
    env.reset(seed=11)
    for action in drawn(env.action_space, 7, 13):
        env.step(action)


@pytest.mark.parametrize(
    "make",
    [
        lambda: wrappers.RecordEpisodeStatistics(gym.make("CartPole-v1")),
        lambda: wrappers.FrameStackObservation(gym.make("CartPole-v1"), 3),
        lambda: wrappers.NormalizeObservation(gym.make("CartPole-v1")),
        lambda: wrappers.NormalizeReward(gym.make("Pendulum-v1")),
        lambda: wrappers.DelayObservation(gym.make("CartPole-v1"), 2),
        lambda: wrappers.TimeAwareObservation(gym.make("CartPole-v1")),
        lambda: wrappers.TransformReward(gym.make("CartPole-v1"), lambda r: 2 * r),
        lambda: wrappers.StickyAction(gym.make("CartPole-v1"), 0.5),
        lambda: vector_wrappers.RecordEpisodeStatistics(make_native()),
        lambda: vector_wrappers.NormalizeObservation(make_native()),
        lambda: vector_wrappers.NormalizeReward(make_native()),
    ],
    ids=(
        "statistics stack normalize reward delay time transform sticky "
        "vector-statistics vector-normalize vector-reward"
    ).split(),
)
def test_wrappers_resume(make):
    check_resumes(make, before=30, after=60, prepare=started)


def test_observations_that_are_not_copied_resume():
    def make():
        return SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2, copy=False)

    env = make()
    env.reset(seed=3)
    actions = drawn(env.action_space, 40, 5)
    play(env, actions[:20])
    snapshot = through_json(snapshots.capture(env))
    copy = make()
    snapshots.restore(copy, snapshot)
    for action in actions[20:]:
        expected, got = env.step(action)[0], copy.step(action)[0]
        np.testing.assert_array_equal(got, expected)
        assert not np.shares_memory(got, expected)
    assert got is copy.step(actions[0])[0]


def test_capturing_before_the_first_reset_resumes():
    env, copy = gym.make("CartPole-v1"), gym.make("CartPole-v1")
    snapshot = through_json(snapshots.capture(env))
    started(copy)
    snapshots.restore(copy, snapshot)
    with pytest.raises(gym.error.ResetNeeded):
        copy.step(0)
    assert "_np_random" not in vars(copy.unwrapped)


class Memory:
    """A simple object of a user's."""

    def __init__(self):
        self.seen = []


class Mood(enum.Enum):
    CALM = 1
    WILD = 2


class Rich(gym.Env):
    """Has state of every kind that can be captured."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,))

    def __init__(self, other=None):
        self.action_space = spaces.Dict(
            {"a": spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (2,))])}
        )
        self.memory = Memory()
        self.mood = Mood.CALM
        self.buffer = np.zeros((4, 3))
        self.row = self.buffer[1]
        self.columns = self.buffer.T[::-1]
        self.noise = np.random.Generator(np.random.MT19937(1))
        kinds = np.random.Philox, np.random.SFC64, np.random.PCG64DXSM
        self.dice = tuple(np.random.Generator(kind(7)) for kind in kinds)
        self.draw = self.noise.normal
        self.plans = {
            (0, 1): deque([1.5], maxlen=2),
            3: {"x", b"y"},
            None: frozenset([2]),
        }
        self.plans["self"] = self.plans
        self.counts = Counter("aab")
        self.order = OrderedDict(b=1, a=[2])
        self.same = self.buffer
        self.fortran = np.asfortranarray(np.arange(6.0).reshape(2, 3))
        self.when = np.datetime64("2020-01-01")
        self.rule = lambda: self.mood
        self.kind = dict
        self.other = other

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.row.copy(), {}

    def step(self, action):
        self.buffer += self.draw(size=(4, 3)) + self.np_random.normal()
        self.buffer += sum(dice.normal() for dice in self.dice)
        self.memory.seen.append(float(self.buffer[0, 0]))
        self.plans[0, 1].append(self.memory.seen[-1])
        self.counts["b"] += 2
        self.order.move_to_end(next(iter(self.order)))
        self.mood = Mood.WILD if self.row[0] > 0 else Mood.CALM
        self.late = self.memory
        info = {"mood": self.mood.name, "last": list(self.plans[0, 1])}
        info["columns"] = self.columns.copy()
        info["counts"] = [*self.counts.items(), *self.order.items()]
        return self.row.copy(), self.fortran.sum(), False, False, info


def test_every_kind_of_state_resumes():
    for prepare in (lambda env: None, started):
        check_resumes(Rich, before=5, after=5, prepare=prepare)


def test_what_was_one_object_is_one_object_again():
    env, copy = Rich(), Rich()
    env.reset(seed=3)
    env.step(None)
    snapshots.restore(copy, through_json(snapshots.capture(env)))
    assert copy.same is copy.buffer
    assert copy.late is copy.memory
    assert copy.plans["self"] is copy.plans
    assert copy.fortran.flags.f_contiguous and not copy.fortran.flags.c_contiguous
    copy.buffer[1, 2] = 77.0
    assert copy.row[2] == 77.0 and copy.columns[0, 1] == 77.0
    assert env.buffer[1, 2] != 77.0
    assert copy.draw.__self__ is copy.noise
    assert copy.kind is dict and copy.rule() is copy.mood


def test_what_is_one_object_only_in_the_fresh_environment_is_parted():
    env, copy = Rich(), Rich()
    env.noise2 = np.random.Generator(np.random.MT19937(2))
    copy.noise2 = copy.noise
    snapshots.restore(copy, snapshots.capture(env))
    assert copy.noise2 is not copy.noise
    for name in ("noise", "noise2"):
        assert getattr(copy, name).random() == getattr(env, name).random()


def test_the_snapshot_is_not_shared():
    env = Rich(other=np.zeros(3))
    snapshot = snapshots.capture(env)
    before = typed_json.to_json(snapshot)
    env.other += 1.0
    env.step(env.reset(seed=3))
    copy = Rich()
    snapshots.restore(copy, snapshot)
    copy.other += 1.0
    copy.step(copy.reset(seed=3))
    assert typed_json.to_json(snapshot) == before


class Slotted:
    __slots__ = ("x", "__dict__")


class Listed(list):
    pass


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (memoryview(b""), "builtins.memoryview"),
        (io.BytesIO(), "_io.BytesIO"),
        (random.Random(3), "random.Random"),
        (np.random.RandomState(3), "numpy.random.*RandomState"),
        (Slotted(), "test_snapshots.Slotted"),
        (Listed(), "test_snapshots.Listed"),
        (pickle.Pickler(io.BytesIO()), "_pickle.Pickler"),
        (type("Engine", (io.BytesIO,), {})(), "Engine"),
        (np.array([None]), "numpy.ndarray"),
        (np.zeros(1, [("x", "f4")]), "numpy.ndarray"),
        (1j, "builtins.complex"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_more_than_plain_data_is_named(value, kind):
    env = Rich(other=Memory())
    env.other.deep = {"k": [0, (value,)]}
    assert snapshots.capture(env) is None
    reason = snapshots.uncapturable(gym.wrappers.OrderEnforcing(env))
    path = r"env.env.other.deep\['k'\]\[1\]\[0\] is of type"
    with pytest.raises(AssertionError, match=rf"^{path} .*{kind}$"):
        raise AssertionError(reason)


@pytest.mark.parametrize("value", [Memory(), Mood.CALM], ids=["object", "enum"])
def test_objects_in_collections_are_named(value):
    assert "env.other[0] is of type" in snapshots.uncapturable(Rich(other=[value]))


def test_worker_processes_are_not_captured(monkeypatch):
    made = gym.vector.AsyncVectorEnv([lambda: gym.make("CartPole-v1")], context="fork")
    try:
        assert snapshots.capture(made) is None
        assert snapshots.uncapturable(made).startswith("env.")
    finally:
        made.close()


def test_what_has_no_module_is_named():
    class Homeless(type):
        """Makes types without a module, as SWIG does."""

        __module__ = property(lambda cls: cls.nowhere)

    env = Rich(other=Homeless("Body", (), {"__slots__": ()})())
    assert snapshots.uncapturable(env) == "env.other is of type None.Body"


def test_a_nest_too_deep_is_told():
    deep = []
    for _ in range(10_000):
        deep = [deep]
    env = Rich(other=deep)
    assert snapshots.capture(env) is None
    assert snapshots.uncapturable(env) == "env owns too deep a nest"
    env.other = None
    while deep:  # one by one: the end of all at once would be as deep
        (deep,) = deep


@pytest.mark.slow
def test_environments_of_box2d_are_told():
    pytest.importorskip("Box2D")
    env = gym.make("LunarLander-v3")
    env.reset(seed=0)
    assert snapshots.capture(env) is None
    assert "Box2D" in snapshots.uncapturable(env) or "b2" in snapshots.uncapturable(env)


def sync(*names):
    return SyncVectorEnv(
        [lambda name=name: gym.make(name) for name in names], observation_mode="same"
    )


class Wilder(Memory):
    pass


def other_memory():
    env = Rich()
    env.memory = Wilder()
    return env


def pole(wrap=lambda env: env):
    return lambda: wrap(gym.make("CartPole-v1"))


TWICE = "CartPole-v1", "CartPole-v1"


@pytest.mark.parametrize(
    ("one", "another", "message"),
    [
        (pole(), lambda: gym.make("Pendulum-v1"), "captured, CartPole-v1; got Pendul"),
        (pole(), pole(wrappers.NormalizeObservation), "TimeLimit at env; got .*Normal"),
        (lambda: sync("CartPole-v1"), lambda: sync(*TWICE), "1 environments.*got 2"),
        (
            lambda: sync(*TWICE),
            lambda: sync("CartPole-v1"),
            "2 environments.*got 1",
        ),
        (lambda: sync("CartPole-v0"), lambda: sync("Acrobot-v1"), "CartPoleEnv at env"),
        (Rich, other_memory, "Memory at env.memory; got .*Wilder"),
    ],
    ids=["id", "wrapper", "more", "fewer", "inner", "object"],
)
@pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")
def test_another_environment_is_refused_unchanged(one, another, message):
    snapshot = snapshots.capture(one())
    env = another()
    before = typed_json.to_json(snapshots.capture(env))
    with pytest.raises(ValueError, match=f"^`restore`: `env` expected .*{message}"):
        snapshots.restore(env, snapshot)
    assert typed_json.to_json(snapshots.capture(env)) == before


def test_other_objects_are_refused():
    twice = Rich()
    twice.other = twice.memory
    moodless = Rich()
    moodless.mood = None
    for env, copy, message in (
        (Rich(other=Memory()), twice, "own at env.other; got one that is used twice"),
        (Rich(), moodless, "Mood at env.mood; got builtins.NoneType"),
        (Rich(other=[len]), Rich(other=[]), r"builtin.* at env.other\[0\]; got"),
    ):
        with pytest.raises(ValueError, match=f"`restore`: `env` expected .*{message}"):
            snapshots.restore(copy, snapshots.capture(env))


def test_gymnasium_still_has_the_names_that_snapshots_know():
    told = (
        "Gymnasium {} no longer as `tfrl.environments.snapshots` knows it: {}; "
        "see what holds that state now, and mend the names there"
    )
    env = gym.make("CartPole-v1")
    for what, holder, name in (
        ("keeps a space's generator", gym.spaces.Discrete(2), "_np_random"),
        ("keeps a wrapper's arguments", env, "_saved_kwargs"),
        ("keeps a wrapper's metadata", env, "_metadata"),
        ("keeps an environment's spec", env.unwrapped, "spec"),
    ):
        assert name in vars(holder), told.format(what, name)
    pickled = gym.utils.EzPickle(width=3)
    assert vars(pickled)["_ezpickle_kwargs"] == {"width": 3}, told.format(
        "keeps the arguments of what can be pickled", "_ezpickle_kwargs"
    )
