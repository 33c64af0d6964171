"""Positions on the host: their lock, and waiting."""

import threading

import numpy as np
import pytest

from tfrl.replay import _positions


def shared_positions(num_environments=1):
    parts = _positions.shared(num_environments)
    return _positions.Positions("steps", num_environments, parts)


@pytest.mark.parametrize("make", [_positions.Positions, shared_positions])
def test_numbers_come_back_as_copies(make):
    count = 3
    positions = make("steps", count) if make is _positions.Positions else make(count)
    ids = np.array([2, 0])
    positions.set(ids, (np.array([5, 6]), np.array([1, 2])))
    found = positions.get(ids)
    np.testing.assert_array_equal(found, [[5, 6], [1, 2]])
    found[0][:] = 9
    np.testing.assert_array_equal(positions.get(np.arange(3)), [[6, 0, 5], [2, 0, 1]])


def test_what_is_kept_comes_back_into_the_same_contents_only():
    kept = _positions.Positions("this", 2)
    kept.set(np.array([1]), (np.array([2**40]), np.array([3])))
    fresh = _positions.Positions("this", 2)
    fresh.deserialize(kept.serialize())
    np.testing.assert_array_equal(fresh.get(np.arange(2)), [[0, 2**40], [0, 3]])
    other = _positions.Positions("that", 2)
    with pytest.raises(ValueError, match="a buffer of this; got one of that"):
        other.deserialize(kept.serialize())
    np.testing.assert_array_equal(other.get(np.arange(2)), np.zeros([2, 2]))


def test_waiting_tries_until_there_is_something_or_it_is_stopped():
    positions = shared_positions()
    ids, found = np.array([0]), []

    def wait(least):
        result = positions.wait_for(ids, lambda sizes: sizes >= least, lambda: least)
        found.append(result)

    waiting = threading.Thread(target=wait, args=[3])
    waiting.start()
    for size in range(4):
        assert found == []
        positions.set(ids, (np.array([size]), np.array([size])))
    waiting.join(30.0)
    assert found == [3]
    waiting = threading.Thread(target=wait, args=[4])
    waiting.start()
    positions.stop(True)
    waiting.join(30.0)
    assert found == [3, None]
    wait(1)
    positions.stop(False)
    wait(2)
    assert found == [3, None, None, 2]


def test_the_lock_is_re_entrant_and_gives_up_on_a_dead_holder(monkeypatch):
    monkeypatch.setattr(_positions, "_PATIENCE_SECONDS", 0.05)
    positions = shared_positions()
    raised = []

    def other():
        try:
            with positions.lock:
                pass
        except TimeoutError as error:
            raised.append(str(error))

    with positions.lock, positions.lock:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(30.0)
    assert (
        "expected its lock to be free within 0 s; got it held by process" in raised[0]
    )
    thread = threading.Thread(target=other)
    thread.start()
    thread.join(30.0)
    assert len(raised) == 1


def test_the_positions_of_one_process_neither_wait_nor_travel():
    alone = _positions.Positions("steps", 1)
    assert not alone.can_wait
    with pytest.raises(TypeError, match="`allow_multiprocess` expected True"):
        alone.__reduce__()
