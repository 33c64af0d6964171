"""Agents that learn by plain graphs: XLA takes seconds where a trace takes tenths."""

import contextlib

import pytest

from tfrl.agents import _distillation_steps, _minibatches, replicated
from tfrl.agents.offline import bc
from tfrl.agents.on_policy import _on_policy
from tfrl.core import _traces, compile

UPDATES = {
    value: _traces.Cache()
    for module in (_distillation_steps, _minibatches, _on_policy, bc)
    for value in vars(module).values()
    if isinstance(value, compile.JittedFunc)
}


@contextlib.contextmanager
def plain_graphs():
    """A context in which no update is compiled by XLA.

    What is traced so is kept for the next context: outside no test meets it.
    """
    with pytest.MonkeyPatch.context() as patch:
        for update, traces in UPDATES.items():
            patch.setattr(update, "xla", False)
            patch.setattr(update, "_cache", traces)
        patch.setattr(replicated, "_by_xla", lambda *_: False)
        yield


@contextlib.contextmanager
def own_traces():
    """A context that starts without a trace of any update and leaves none."""
    with pytest.MonkeyPatch.context() as patch:
        for update in UPDATES:
            patch.setattr(update, "_cache", _traces.Cache())
        yield
