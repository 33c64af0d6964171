"""Tests of `tfrl._internal.process_events`."""

import gc
import os
import threading
import time

import pytest

from tfrl._internal import process_events


def test_waits_for_another_and_no_longer():
    event = process_events.ProcessEvent()
    other = process_events.ProcessEvent(event.fds)
    start = time.monotonic()
    assert not event.wait(0.05)
    assert time.monotonic() - start >= 0.04
    timer = threading.Timer(0.05, other.set)
    timer.start()
    assert event.wait(30.0)
    assert time.monotonic() - start < 20
    timer.join()


def test_set_often_is_set_once():
    event = process_events.ProcessEvent()
    for _ in range(100_000):  # more than the pipe holds
        event.set()
    assert event.wait(0.0)
    assert not event.wait(0.0)
    event.set()
    assert event.wait(0.0)


def test_only_who_made_it_closes_it():
    event = process_events.ProcessEvent()
    fds = event.fds
    other = process_events.ProcessEvent(fds)
    del other
    gc.collect()
    event.set()
    assert event.wait(0.0)
    del event
    gc.collect()
    for fd in fds:
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(fd)
