"""Tests of `tfrl._internal.end_signals`."""

import signal

import pytest

from tfrl._internal import end_signals


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
        assert end_signals.hangups() == found
        with monkeypatch.context() as patched:
            patched.delattr(signal, "SIGHUP")
            assert end_signals.hangups() == []
    finally:
        signal.signal(signal.SIGHUP, before)
