import dataclasses
import functools
import json
import pathlib
import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tfrl.agents import ppo
from tfrl.configuring import configs
from tfrl.environments import vector
from tfrl.saving import typed_json
from tfrl.training import _kept_arguments

SPACES = [
    gym.spaces.Box(-1.0, 1.0, (3,)),
    gym.spaces.Box(0, 255, (4, 4, 3), np.uint8),
    gym.spaces.Box(
        np.array([-1.0, -np.inf]), np.array([np.inf, 2.0]), dtype=np.float64
    ),
    gym.spaces.Box(-np.inf, np.inf, (), np.float32),
    gym.spaces.Box(0.0, 1.0, (0, 2)),
    gym.spaces.Discrete(3, start=-1),
    gym.spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 0], [0, -1]]),
    gym.spaces.MultiBinary(3),
    gym.spaces.MultiBinary([2, 2]),
    gym.spaces.Tuple((gym.spaces.Discrete(2), gym.spaces.MultiBinary(2))),
    gym.spaces.Dict(
        {
            "z": gym.spaces.Discrete(2),
            "a": gym.spaces.Dict({"b": gym.spaces.Box(-1, 1, (2,))}),
        }
    ),
]


@dataclasses.dataclass(frozen=True)
class Settings:
    rate: float = 0.1
    inner: Any = None
    hidden: int = dataclasses.field(default=0, init=False)


def make(env_id, /, *more, size=1, **options):
    return env_id, more, size, options


def plain(first, second=2, **options):
    return first, second, options


def through_json(value):
    data = _kept_arguments.kept(value)
    return typed_json.from_json(typed_json.to_json(data))


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_spaces_come_back(space):
    again = _kept_arguments.made(through_json(space))
    assert again == space and again.dtype == space.dtype
    if isinstance(space, gym.spaces.Dict):
        assert list(again) == list(space)


def test_a_picture_takes_no_room():
    space = gym.spaces.Box(0, 255, (210, 160, 3), np.uint8)
    assert len(typed_json.to_json(_kept_arguments.kept(space))) < 200


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        float("inf"),
        "text",
        b"bytes",
        np.float32(0.5),
        [1, (2, {"a": None})],
        {},
        ppo.PPO(gamma=0.5, hidden_units=(3,)),
        Settings(0.2, Settings(inner=(Settings(), "x"))),
        plain,
        Settings,
        pathlib.PurePath.joinpath,
        gym.vector.AutoresetMode.DISABLED,
    ],
    ids=lambda value: re.sub(" at 0x.*", "", repr(value)),
)
def test_values_come_back(value):
    data = _kept_arguments.kept(value)
    assert _kept_arguments.lost(data, "x") == {}
    again = _kept_arguments.made(through_json(value))
    assert again == value and type(again) is type(value)


def test_partials_come_back_with_their_defaults():
    data = through_json(functools.partial(plain, 1, third=[3]))
    named = data.pop("=partial")
    assert named.endswith("test_kept_arguments:plain")
    assert data == {"first": 1, "second": 2, "third": [3]}
    again = _kept_arguments.made({"=partial": named, **data})
    assert again() == (1, 2, {"third": [3]})
    # Partials of partials are one.
    nested = functools.partial(functools.partial(plain, 1), second=5)
    assert _kept_arguments.made(through_json(nested))() == (1, 5, {})


def test_what_gin_binds_is_kept_as_if_given():
    wrapped = configs.register({"kept_plain": plain})["kept_plain"]
    assert _kept_arguments.kept(wrapped) == _kept_arguments.kept(plain)
    configs.parse(bindings=["kept_plain.first = 1"])
    partial = functools.partial(plain, first=1)
    assert _kept_arguments.kept(wrapped) == _kept_arguments.kept(partial)
    partial = functools.partial(wrapped, second=3)
    assert _kept_arguments.kept(partial)["first"] == 1
    configs.clear()
    assert _kept_arguments.made(_kept_arguments.kept(partial))(1)[1] == 3


class Own(gym.spaces.Discrete):
    pass


def local():
    def inner():
        pass

    return inner


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (lambda: 0, "function <lambda> of "),
        (local(), "function local.<locals>.inner of "),
        (functools.partial(local()), "function local.<locals>.inner of "),
        (functools.partial(make, "a"), "with arguments without names"),
        (object(), "an object of builtins.object"),
        (Own(2), ".Own"),
        (gym.spaces.Text(3), "gymnasium.spaces.text.Text"),
        (vector.make_vec("CartPole-v1", 1), "an object of gymnasium."),
        ({"=call": 1}, "an object of builtins.dict"),
    ],
)
def test_what_cannot_be_kept_is_named(value, what):
    data = through_json({"a": Settings(inner=[0, value])})
    ((place, found),) = _kept_arguments.lost(data, "x").items()
    assert place == "x.a.inner[1]" and what in found
    assert " at 0x" not in found


def test_what_is_not_there_is_named():
    for named, word in [("no_such_module:f", "no_such"), ("json:no_such", "no_such")]:
        with pytest.raises(ValueError, match=rf"`open_run`: .*{word}.*PYTHONPATH"):
            _kept_arguments.made({"x": {"=name": named}})
    named = _kept_arguments.kept(Settings())["=call"]
    with pytest.raises(ValueError, match="use the versions that made it"):
        _kept_arguments.made({"=call": named, "gone": 1})


def test_differences_are_named_by_their_place():
    old = _kept_arguments.kept(ppo.PPO())
    new = _kept_arguments.kept(ppo.PPO(gamma=0.1, hidden_units=(3,)))
    assert _kept_arguments.differences(old, new, "agent") == {
        "agent.gamma": ("0.99", "0.1"),
        "agent.hidden_units": ("(64, 64)", "(3,)"),
    }
    assert _kept_arguments.differences(old, old, "agent") == {}
    other = _kept_arguments.kept(Settings())
    found = _kept_arguments.differences(old, other, "agent")
    assert "PPO" in found["agent"][0] and "Settings" in found["agent"][1]
    assert found["agent.rate"] == ("(nothing)", "0.1")
    arrays = [{"a": np.array([1.0, x])} for x in (2.0, 3.0)]
    assert list(_kept_arguments.differences(*arrays)) == ["a"]
    assert _kept_arguments.differences(arrays[0], arrays[0]) == {}


@pytest.mark.parametrize(
    ("one", "two"),
    [(1, 1.0), (np.int64(2), 2), ((3, 3), [3, 3]), (float("nan"), float("nan"))],
    ids=lambda value: re.sub(" at 0x.*", "", repr(value)),
)
def test_what_means_the_same_is_no_difference(one, two):
    assert _kept_arguments.differences({"a": one}, {"a": two}) == {}


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (1, 2),
        (1, "1"),
        (None, 0),
        ((3, 3), (3,)),
        (np.zeros(2), np.zeros(3)),
        ([np.zeros(2)], [np.ones(2)]),
        (((1, 2), 3), ((1, 3), 3)),
    ],
    ids=lambda value: re.sub(" at 0x.*", "", repr(value)),
)
def test_what_differs(one, two):
    assert len(_kept_arguments.differences({"a": one}, {"a": two})) == 1


def test_arguments_that_came_later_have_their_defaults():
    data = _kept_arguments.kept(ppo.PPO(gamma=0.5))
    whole = json.dumps(data)
    data.pop("clip")
    assert json.dumps(_kept_arguments.completed(data)) == whole
    lost = _kept_arguments.kept(lambda: 0)
    assert _kept_arguments.completed(lost) == lost
