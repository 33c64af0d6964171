"""Warns once of actors that send nothing."""

import logging
import time
from collections.abc import Iterable

_LOG = logging.getLogger(__name__)
# An actor that is waited for so long is told of.
SECONDS = 60.0


class SilentActors:
    """Tells of actors that are waited for and send nothing, of each once.

    Args:
        count: how many actors there are.
    """

    def __init__(self, count: int) -> None:
        self._heard = [time.monotonic()] * count
        self._told: set[int] = set()

    def heard(self, number: int) -> None:
        """Notes that an actor has sent something, or begins."""
        self._heard[number] = time.monotonic()

    def tell(self, waited_for: Iterable[int]) -> None:
        """Logs a line if some of these actors have sent nothing for long."""
        now = time.monotonic()
        # Those that fall silent together are told of together.
        silent = {x for x in waited_for if now - self._heard[x] > 0.5 * SECONDS}
        silent -= self._told
        if any(now - self._heard[number] > SECONDS for number in silent):
            self._told |= silent
            _LOG.warning(
                "`Trainer`: all actors expected to play; got nothing from %s for %.0f "
                "seconds; see whether environments hang, or end the run by Ctrl-C, "
                "which saves all whole epochs",
                ", ".join(f"actor {number}" for number in sorted(silent)),
                min(now - self._heard[number] for number in silent),
            )
