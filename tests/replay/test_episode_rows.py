"""Rows of episodes and the marks beside them."""

import numpy as np
import pytest
import replay_episodes

from tfrl.replay import _episode_rows
from tfrl.replay.memory import numpy_storage
from tfrl.replay.sampling.transitions import Transitions
from tfrl.replay.sampling.uniform import UniformReplay

OPEN = 1 << 62


def test_spans():
    starts, stops = np.array([3, 10, 8, 1]), np.array([9, 10, 4, 3])
    found = _episode_rows.spans(starts, stops, 2)
    assert found.tolist() == [3, 5, 7, 1]
    assert _episode_rows.spans(starts[:0], stops[:0], 2).tolist() == []


def test_marks_by_hand():
    both = replay_episodes.Stream(1, 6)
    for code in (replay_episodes.ON, replay_episodes.TERMINATED, replay_episodes.ON):
        both.advance([code])
    # Two steps and their closing row, a step and its head, a row never written.
    steps = both.store.steps
    columns = steps.columns()
    assert columns.indices.tolist() == [0, 1, 2, 3, 4, 0]
    assert columns.first.tolist() == [0, 0, 0, 3, 3, 0]
    assert columns.end.tolist() == [2, 2, 2, OPEN, 4, 0]
    assert steps.ends(np.arange(5)).tolist() == [2, 2, 2, 4, 4]
    assert (steps.upcoming, steps.top(), steps.oldest()) == (4, 5, 0)
    # The next two fill the last row and overwrite the first.
    both.advance([replay_episodes.ON])
    both.advance([replay_episodes.TRUNCATED])
    assert columns.indices.tolist() == [6, 1, 2, 3, 4, 5]
    assert columns.end.tolist() == [6, 2, 2, 6, 6, 6]
    assert (steps.upcoming, steps.top(), steps.oldest()) == (7, 7, 1)


def test_an_episode_longer_than_the_store_ends_in_every_row():
    both = replay_episodes.Stream(1, 4)
    for code in [replay_episodes.ON] * 6 + [replay_episodes.TRUNCATED]:
        both.advance([code])
    steps = both.store.steps
    assert steps.columns().indices.tolist() == [4, 5, 6, 7]
    assert steps.columns().end.tolist() == [7, 7, 7, 7]
    assert steps.columns().first.tolist() == [0, 0, 0, 0]
    assert (steps.upcoming, steps.oldest()) == (8, 4)


def test_environments_take_turns_in_the_rows():
    both = replay_episodes.Stream(3, 4)
    for codes in ([1, 0, 2], [1, 0, 1]):
        both.advance(codes)
    steps = both.store.steps
    # In each row what environment 0, 1, 2 has at position 0, 1, 2, 3.
    index = [[0, 0, 2], [3, 0, 5], [6, 0, 8], [0, 0, 11]]
    assert steps.columns().indices.reshape(4, 3).tolist() == index
    assert steps.upcoming.tolist() == [6, 1, 11]
    assert steps.oldest().tolist() == [0, 1, 2]


def test_what_is_kept_is_refused_elsewhere():
    contents = _episode_rows.Contents("this")
    contents.deserialize(contents.serialize())
    assert contents.restores == 1
    with pytest.raises(ValueError, match="a store of that; got one of this"):
        contents.deserialize("that")
    assert contents.restores == 1


class Killed(Exception):
    """The process is no more."""


class Mortal(np.ndarray):
    """An array that leaves garbage behind when the writes have run out."""

    left = 0

    def __setitem__(self, key, value):
        Mortal.left -= 1
        array = self.view(np.ndarray)
        if Mortal.left < 0:
            if array.dtype == np.float32:
                array[key] = np.nan
            raise Killed
        array[key] = value


@pytest.mark.parametrize("rounds", [0, 1, 11, 12, 13])
@pytest.mark.parametrize(
    "codes", [[1, 1], [2, 1], [3, 2], [0, 4], [1, 0]], ids=lambda codes: str(codes)
)
def test_whoever_is_killed_while_adding_leaves_whole_steps(rounds, codes, monkeypatch):
    finished = False
    for writes in range(40):
        both = replay_episodes.Stream(2, 5).run(4, rounds, ends=0.4)
        if rounds > 1:
            both.advance([replay_episodes.TERMINATED, replay_episodes.ON])
        before = both.model.transitions(2)
        with monkeypatch.context() as patch:
            patch.setattr(
                numpy_storage.NumpyStorage,
                "arrays",
                property(lambda s: [a.view(Mortal) for a in s._rows.arrays()]),
            )
            Mortal.left = writes
            try:
                both.advance(codes)
                finished = True
            except Killed:
                pass
        after = both.model.transitions(2)
        replay = UniformReplay(both.store, Transitions(2), seed=0)
        if finished:
            break
        # None but those that were there, and all that there was no need to overwrite.
        assert replay.size >= len({*before} & {*after})
        # How the steps before go on: as before, or with a step that was cut short.
        for _ in range(2):
            if replay.size:
                sample = replay.sample(100)
                index, data = sample.indices, sample.data
                assert not any(np.isnan(leaf).any() for leaf in data)
                known = {row[:2] for row in before.values()}
                assert {*zip(data.observations, data.actions, strict=True)} <= known
                assert {*index.tolist()} <= {*before}
            both.store.cut()
            assert not both.store.steps.running().any()
    assert finished
    replay_episodes.assert_draws(replay, after)
