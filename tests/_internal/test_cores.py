"""Cores that a process may use."""

import os

import pytest

from tfrl._internal import cores


def test_those_that_the_system_leaves(monkeypatch):
    if not hasattr(os, "sched_getaffinity"):
        pytest.skip("a system that limits no process")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3, 4})
    assert cores.n_cores() == 3


@pytest.mark.parametrize(("count", "expected"), [(6, 6), (None, 1)])
def test_all_where_the_system_limits_none(count, expected, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    assert cores.n_cores() == expected
