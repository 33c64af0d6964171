"""Tests of `tfrl.training._processes`."""

import concurrent.futures
import gc
import os
import signal

import pytest

from tfrl.training import _processes


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["int", "term"])
def test_the_first_signal_is_noted_and_the_second_acts(number):
    caught = []
    before = signal.signal(number, lambda *_: caught.append(number))
    try:
        with _processes.interruptible() as interrupted:
            assert not interrupted()
            os.kill(os.getpid(), number)
            assert interrupted() and caught == []
            os.kill(os.getpid(), number)
            assert caught == [number]
        os.kill(os.getpid(), number)
        assert caught == [number] * 2
    finally:
        signal.signal(number, before)


def test_a_call_is_broken_off_and_the_rest_is_not():
    calls = []

    def called(number):
        calls.append("begun")
        os.kill(os.getpid(), number)
        calls.append("ended")

    with _processes.interruptible() as interrupted:
        assert interrupted.call(max, 1, 2) == 2
        with pytest.raises(_processes.Interrupted):
            interrupted.call(called, signal.SIGTERM)
        assert interrupted() and calls == ["begun"]
        # Nothing more is begun.
        with pytest.raises(_processes.Interrupted):
            interrupted.call(called, signal.SIGTERM)
        assert calls == ["begun"]
    with _processes.interruptible() as interrupted:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupted()


def test_other_threads_are_never_interrupted():
    def run():
        with _processes.interruptible() as interrupted:
            return interrupted()

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(run).result() is False


def test_objects_are_settled_inside_and_collected_again_after():
    with pytest.raises(KeyError), _processes.settled():
        assert gc.get_freeze_count() > 0
        raise KeyError
    assert gc.get_freeze_count() == 0
