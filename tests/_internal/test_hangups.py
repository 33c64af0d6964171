"""Tests of `tfrl._internal.hangups`."""

import signal

import pytest

from tfrl._internal import hangups


@pytest.mark.parametrize(
    ("handler", "found"),
    [
        (signal.SIG_DFL, [signal.SIGHUP]),
        (lambda *_: None, [signal.SIGHUP]),
        (signal.SIG_IGN, []),
    ],
    ids=["default", "own", "nohup"],
)
def test_only_what_would_end_the_process_counts(handler, found, monkeypatch):
    before = signal.signal(signal.SIGHUP, handler)
    try:
        assert hangups.hangups() == found
        with monkeypatch.context() as patched:
            patched.delattr(signal, "SIGHUP")
            assert hangups.hangups() == []
    finally:
        signal.signal(signal.SIGHUP, before)
