"""Updates of the tests of this folder are plain graphs, which XLA does not compile.

A slow test, or one that asks for the fixture `by_xla`, gets what users get.
"""

import pytest

from tfrl.agents import _on_policy, bc, dqn
from tfrl.core import compile


@pytest.fixture
def by_xla():
    """Leaves the choice of the compiler as it is."""


@pytest.fixture(autouse=True)
def _plain_graphs(request, monkeypatch):
    slow = request.node.get_closest_marker("slow") is not None
    if not slow and "by_xla" not in request.fixturenames:
        for module in (_on_policy, bc, dqn):
            for value in vars(module).values():
                if isinstance(value, compile.JittedFunc):
                    monkeypatch.setattr(value, "xla", False)
