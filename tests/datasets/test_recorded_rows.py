"""Tests of `tfrl.datasets.recorded_rows`."""

import gymnasium as gym
import numpy as np
import pytest

from tfrl.datasets import recorded, recorded_rows
from tfrl.training import _recorded_rows

SPACES = gym.spaces.Box(-9.0, 9.0, (1,)), gym.spaces.Discrete(3)


def test_sets_of_other_shapes_are_not_joined():
    with pytest.raises(ValueError, match="`join_rows`: `parts` expected x of the same"):
        recorded_rows.join_rows([{"x": np.zeros(2)}, {"x": np.zeros((2, 1))}])
    with pytest.raises(ValueError, match="`join_rows`: `parts` expected x of the same"):
        recorded_rows.join_rows([{"x": {"a": np.zeros(2)}}, {"x": {"b": np.zeros(2)}}])


def test_sets_are_joined():
    parts = [{"observations": {"x": np.arange(n)}} for n in (3, 2)]
    both = recorded_rows.join_rows(parts)
    assert both["observations"]["x"].tolist() == [0, 1, 2, 0, 1]
    for parts in ([], [{"actions": np.ones(2)}, {"rewards": np.ones(2)}]):
        with pytest.raises(ValueError, match="`join_rows`: `parts` expected"):
            recorded_rows.join_rows(parts)


def episode(n_steps=3, **changed):
    """Steps whose observations count; those that are None are left out."""
    logged = {
        "observations": np.arange(n_steps + 1.0)[:, None],
        "actions": np.arange(n_steps) % 3,
        "rewards": np.arange(n_steps) / 2,
        "terminated": True,
        **changed,
    }
    return {name: x for name, x in logged.items() if x is not None}


def test_episodes_become_rows():
    cut = episode(2, terminated=False, truncated=[False, True])
    rows = recorded_rows.rows_from_episodes(iter([episode(), cut]))
    assert rows["observations"].ravel().tolist() == [0, 1, 2, 0, 1]
    assert rows["next_observations"].ravel().tolist() == [1, 2, 3, 1, 2]
    assert rows["actions"].tolist() == [0, 1, 2, 0, 1]
    assert rows["rewards"].tolist() == [0.0, 0.5, 1.0, 0.0, 0.5]
    assert np.flatnonzero(rows["terminated"]).tolist() == [2]
    assert np.flatnonzero(rows["truncated"]).tolist() == [4]
    # As learners and writers take them.
    _recorded_rows.transitions_of(rows, 0.9, SPACES)


def test_they_are_those_that_minari_gives(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    rows = recorded_rows.rows_from_episodes([episode(), episode(2, terminated=False)])
    recorded.write_minari("logged-v0", rows, SPACES)
    found = recorded.MinariDataset("logged-v0")()
    assert sorted(found) == sorted(rows)
    for name, column in rows.items():
        np.testing.assert_array_equal(found[name], column)


@pytest.mark.parametrize(
    "logged",
    [
        episode(terminated=[0, 0, 1]),
        episode(observations=[[0], [1], [2], [3]], actions=[0, 1, 2]),
        episode(
            observations=np.arange(3.0)[:, None],
            next_observations=np.arange(1.0, 4.0)[:, None],
        ),
    ],
    ids=["ends", "lists", "next"],
)
def test_episodes_are_logged_in_several_ways(logged):
    found, expected = map(recorded_rows.rows_from_episodes, ([logged], [episode()]))
    for name, column in expected.items():
        np.testing.assert_array_equal(found[name], column)


def test_the_last_observation_may_lack_where_nothing_follows():
    seen = {"x": np.arange(3.0), "y": (np.arange(3),)}
    rows = recorded_rows.rows_from_episodes([episode(observations=seen)])
    assert rows["next_observations"]["x"].tolist() == [1, 2, 2]
    assert rows["next_observations"]["y"][0].tolist() == [1, 2, 2]
    match = r"`episodes\[0\]` expected 4 observations of 3 .*; got 3; add"
    with pytest.raises(ValueError, match=match):
        recorded_rows.rows_from_episodes([episode(observations=seen, terminated=False)])


def test_steps_are_logged_as_a_loop_does():
    seen = [{"x": np.full(2, i), "y": (i, 2.0 * i)} for i in range(4)]
    logged = episode(observations=seen, rewards=(0.0, 0.5, 1.0))
    rows = recorded_rows.rows_from_episodes([logged])
    assert rows["observations"]["x"].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert rows["next_observations"]["y"][1].tolist() == [2.0, 4.0, 6.0]
    assert rows["rewards"].tolist() == [0.0, 0.5, 1.0]


@pytest.mark.parametrize(
    ("changed", "match"),
    {
        "a column": ({"actions": None}, r"none of \['actions'\]"),
        "done": ({"terminated": None, "dones": True}, "`terminated`, .*; say which"),
        "others": ({"infos": {}}, r"got \['infos'\] besides; leave"),
        "long": ({"observations": np.zeros(5)}, "length 3 or 4, .*; got 5"),
        "next": ({"next_observations": np.zeros(3)}, "observations of length 3,.* 4"),
        "actions": ({"actions": [0, 1]}, "actions of length 3, .*; got 2"),
        "none": ({"rewards": []}, "rewards .*of a step at least"),
        "ragged": ({"actions": [[0], [1, 2], [0]]}, "actions that are arrays of num"),
        "parts": ({"observations": [{"x": 1}, 2, 3, 4]}, "the same parts in each"),
        "objects": ({"observations": [object()] * 4}, "observations that are arrays"),
        "early": ({"terminated": [0, 1, 1]}, "last step alone, 2; .* step 1; part the"),
        "flags": ({"truncated": 0.5}, "truncated that is a bool"),
        "shapes": (
            {"observations": np.zeros((4, 2))},
            "observations of the same shape",
        ),
    }.values(),
)
def test_what_is_no_episode_is_refused(changed, match):
    with pytest.raises(ValueError, match=f"`rows_from_episodes`: `episodes.*{match}"):
        recorded_rows.rows_from_episodes([episode(), episode(**changed)])


@pytest.mark.parametrize("given", [episode(), 3, [3]])
def test_what_are_no_episodes_is_refused(given):
    match = r"`rows_from_episodes`: `episodes(\[0\])?` expected"
    with pytest.raises(TypeError, match=match):
        recorded_rows.rows_from_episodes(given)
    with pytest.raises(ValueError, match=match):
        recorded_rows.rows_from_episodes([])
