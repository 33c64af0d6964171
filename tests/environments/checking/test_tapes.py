"""Tests of `tfrl.environments.checking._tapes`."""

import random

import numpy as np
import pytest
from faulty_envs import Sound

from tfrl.environments.checking import _tapes


def test_a_seed_makes_the_same_tape():
    one, two = (_tapes.play(Sound(), 3, 100) for _ in range(2))
    assert one == two and one.raised is None
    assert _tapes.first_difference(one, two) is None
    assert sum(length for length, _ in one.ends) <= 100
    # Of each episode the first observation, of each step one more.
    assert len(one.rows) == 100 + 1 + len(one.ends)


def test_the_first_difference_is_counted():
    one = _tapes.Tape([(1,), (2,), (3,)], [])
    assert _tapes.first_difference(one, _tapes.Tape([(1,), (5,), (3,)], [])) == 1
    assert _tapes.first_difference(one, _tapes.Tape([(1,), (2,)], [])) == 2


def test_what_is_raised_is_kept():
    class Falling(Sound):
        def step(self, action):
            raise OSError("gone")

    tape = _tapes.play(Falling(), 0, 10)
    assert tape.raised == "after 1 observations: OSError: gone"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (np.zeros(3), np.zeros(3), True),
        (np.zeros(3), np.zeros(3, np.float32), False),
        (np.zeros((100, 2)), np.zeros((2, 100)), False),
        (np.array([np.nan]), np.array([np.nan]), True),
        ({"a": 1, "b": (2, "x")}, {"b": (2, "x"), "a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
    ],
    ids=["zeros", "dtype", "shape", "nan", "order", "value"],
)
def test_frozen_nests(one, other, same):
    assert (_tapes.frozen(one) == _tapes.frozen(other)) == same


def test_large_integers_are_compared_by_value():
    one, other = int("1" * 30), int("1" * 30)
    assert _tapes.frozen(one) == _tapes.frozen(other) != _tapes.frozen(one + 1)


def test_scribbling():
    nest = {"a": (np.zeros(2), np.zeros(2, bool)), "b": np.full(1, 255, np.uint8)}
    nest["fixed"] = np.zeros(1)
    nest["fixed"].flags.writeable = False
    _tapes.scribble(nest)
    assert nest["a"][0].tolist() == [1, 1] and nest["a"][1].all()
    assert nest["b"].item() == 0 and nest["fixed"].item() == 0


def test_global_randomness_is_put_back():
    random.seed(1)
    expected = random.random()
    random.seed(1)
    with _tapes.global_randomness(5):
        one = random.random(), np.random.random()
    assert random.random() == expected
    with _tapes.global_randomness(5):
        assert (random.random(), np.random.random()) == one
