"""Epochs that take long can be broken off, as if they had never begun."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tfrl.agents import agent as agents
from tfrl.training import _own_state, _process, _workers
from tfrl.training.collecting import collection

# A shorter epoch is not worth what it costs to know the way back.
_LONG_SECONDS = 1.0

Update = Callable[[agents.Agent, Any], tuple[agents.Agent, dict]]


class LongEpochs:
    """Breaks an epoch off while its update lasts, and goes back to its beginning.

    What is saved then is the end of the epoch before, to the bit. Epochs of less than a
    second are finished, and so are those of several workers, who wait for each other.
    How long an epoch takes is known from the one before.

    Args:
        workers: who learn.
        rng: what the actions are drawn by.
        collector: who plays.
        seed: of new episodes, where environments know no way back.
        may_break_off: False where more changes in an epoch, such as a replay.
    """

    def __init__(
        self,
        workers: _workers.Workers,
        rng: np.random.Generator,
        collector: collection.Collector,
        seed: int,
        *,
        may_break_off: bool = True,
    ) -> None:
        self._own = rng, collector
        self._seed = seed
        self._workers = workers
        self._may_break_off = workers.count == 1 and may_break_off
        self._long = self._may_break_off

    @contextlib.contextmanager
    def epoch(self, interruption: _process.Interruption) -> Iterator[Update]:
        """Yields what updates an agent within an epoch.

        Args:
            interruption: says when to break off.

        Raises:
            Interrupted: if the epoch was broken off; it has never been.
        """
        start, before = time.perf_counter(), None
        if self._long:
            before = _own_state.captured(*self._own)

        def update(agent: Any, experience: Any) -> Any:
            with self._workers.scope():
                if before is None:
                    return agent.update(experience)
                return interruption.call(agent.update, experience)

        try:
            yield update
        except _process.Interrupted:
            _own_state.restore(before or {}, *self._own, self._seed)
            raise
        seconds = time.perf_counter() - start
        self._long = self._may_break_off and seconds > _LONG_SECONDS
