"""Readers: shapes, frames and targets. What they read is in test_transitions."""

import numpy as np
import pytest
import replay_episodes
import tensorflow as tf

from tfrl.replay.episodes import EpisodeStore
from tfrl.replay.sampling import _reading
from tfrl.replay.sampling.transitions import Hindsight, Sequences, Transitions

KINDS = [
    Transitions(),
    Transitions(3),
    Transitions(frame_stack=2),
    Sequences(3, burn_in=1),
    Sequences(2, frame_stack=2, time_major=True),
]


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_targets_get_what_new_arrays_get(kind):
    both = replay_episodes.Stream(2, 12).run(0, 40, ends=0.1)
    reader = kind.reader(both.store.steps)
    rows = np.flatnonzero(both.store.steps.columns().end == 1 << 62)[:1].repeat(4)
    expected = reader.read(rows, None, None)
    outer = reader.outer(4)
    assert all(leaf.shape[: len(outer)] == outer for leaf in expected)
    targets = [np.empty_like(leaf) for leaf in expected]
    found = reader.read(rows, None, targets)
    for leaf, target, one in zip(found, targets, expected, strict=True):
        assert leaf is target
        np.testing.assert_array_equal(leaf, one)


def test_frames_of_any_shape_of_rows():
    both = replay_episodes.Stream(1, 8)
    for code in (1, 1, 2, 1):
        both.advance([code])
    steps, seen = both.store.steps, both.model.seen[0]
    frames = _reading.Frames(steps, 3)
    rows = np.array([[0, 1], [2, 3], [4, 5]])
    (found,) = frames.read(steps.columns(), rows, iter([None]))
    expected = [
        [[seen[0]] * 3, [seen[0], seen[0], seen[1]]],
        [[seen[0], seen[1], seen[2]], [seen[1], seen[2], seen[3]]],
        [[seen[4]] * 3, [seen[4], seen[4], seen[5]]],
    ]
    np.testing.assert_array_equal(found, expected)


def test_rewards_that_are_infinite_stay_where_they_are():
    store = EpisodeStore(tf.TensorSpec([]), tf.TensorSpec([]), 10)
    for reward, ends in [(1.0, True), (np.inf, False), (2.0, False)]:
        store.add([0.0], [0.0], [reward], [ends], [False], [0.0])
    reader = Transitions(3, 0.5).reader(store.steps)
    found = reader.read(np.array([0, 2, 3]), None, None)
    assert found[2].tolist() == [1.0, np.inf, 2.0]


def test_goals_need_finished_numbers():
    spec = {key: tf.TensorSpec([2]) for key in ("achieved_goal", "desired_goal", "x")}
    store = EpisodeStore(spec, tf.TensorSpec([]), 10)
    hindsight = Hindsight(lambda achieved, desired: (achieved == desired).all(-1))
    goals = _reading.Goals(store.steps, hindsight)
    assert goals._desired == 1
    columns = store.steps.columns()
    columns.observations[0][1] = 4.0
    rows, wanted = np.array([0, 1]), np.full([2, 2], 4.0)
    assert goals.rewards(columns, rows, wanted).tolist() == [True, False]
