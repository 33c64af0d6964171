"""Agents that learn by plain graphs: XLA takes seconds where a trace takes tenths."""

import contextlib

import pytest

from tfrl.agents import _on_policy, bc, dqn
from tfrl.core import compile


@contextlib.contextmanager
def plain_graphs():
    """A context in which no update is compiled by XLA."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (_on_policy, bc, dqn):
            for value in vars(module).values():
                if isinstance(value, compile.JittedFunc):
                    patch.setattr(value, "xla", False)
        yield
