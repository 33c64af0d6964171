"""Which rows of an episode store can be drawn; kept up to date as steps are added."""

from typing import NamedTuple

import numpy as np

from tfrl.replay import _episode_rows


class Change(NamedTuple):
    """Rows about which something was decided, each once, and what."""

    rows: np.ndarray
    eligible: np.ndarray


class Eligibility:
    """Follows a store and decides which of its steps are eligible.

        the episode has `reach` steps from this one on, itself included, and
        of the `behind` steps before it in its episode none is overwritten

    A step becomes eligible at most once, and ceases to be so once.

    Attributes:
        flags: `[capacity]` bool, whether the step in a row is eligible.
        count: how many are.
        checked: `[num_environments]`, the index of the first step about which nothing
            was decided.
    """

    def __init__(
        self, steps: _episode_rows.EpisodeRows, reach: int, behind: int
    ) -> None:
        self._steps = steps
        self._reach = reach * steps.num_environments
        self._behind = behind * steps.num_environments
        self.flags = np.zeros(steps.capacity, bool)
        self.count = 0
        self.checked = steps.everyone
        self._seen = self.checked - 1
        self._restores = steps.contents.restores
        self._is_restored = False

    def restore(self, flags: np.ndarray, checked: np.ndarray) -> None:
        """Takes over what was decided about a store that is restored along."""
        self.flags[:], self.checked = flags, checked
        self.count = int(np.count_nonzero(flags))
        self._seen = checked - 1
        self._is_restored = True

    def update(self) -> Change | None:
        """Catches up with the store; returns what changed, None if it did not.

        A row that is eligible in a change holds a step that never was before.
        """
        steps = self._steps
        restores, upcoming = steps.contents.restores, steps.upcoming
        afresh = restores != self._restores and not self._is_restored
        self._restores, self._is_restored = restores, False
        if afresh:
            self.restore(np.zeros_like(self.flags), steps.everyone)
            self._is_restored = False
        elif (upcoming == self._seen).all():
            return None
        change = self._decide()
        self._seen = upcoming.copy()
        if not afresh:
            return change
        eligible = np.zeros_like(self.flags)
        eligible[change.rows] = change.eligible
        return Change(np.arange(steps.capacity), eligible)

    def _decide(self) -> Change:
        steps, stride = self._steps, self._steps.num_environments
        columns, oldest, top = steps.columns(), steps.oldest(), steps.top()
        starts = np.maximum(self.checked, oldest)
        index, _ = _episode_rows.spans(starts, top, stride)
        rows = index % steps.capacity
        eligible = steps.ends(rows) - index >= self._reach
        eligible &= columns.indices.take(rows) == index
        if self._behind:
            eligible &= np.maximum(
                columns.first.take(rows), index - self._behind
            ) >= oldest.take(index % stride)
            rows, eligible = self._with_lost(rows, eligible, starts)
        self.count += int(np.count_nonzero(eligible)) - int(
            np.count_nonzero(self.flags.take(rows))
        )
        self.flags[rows] = eligible
        upcoming = steps.upcoming
        first = columns.first.take(upcoming % steps.capacity)
        undecided = np.maximum(first, upcoming - (self._reach - stride))
        self.checked = np.where(steps.running(), undecided, upcoming)
        return Change(rows, eligible)

    def _with_lost(
        self, rows: np.ndarray, eligible: np.ndarray, starts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Adds the rows of steps decided before whose past has been overwritten."""
        steps, stride = self._steps, self._steps.num_environments
        oldest = steps.oldest()
        early = np.minimum(oldest + self._behind, starts)
        index, _ = _episode_rows.spans(oldest, early, stride)
        near = index % steps.capacity
        lost = near[steps.columns().first.take(near) < oldest.take(index % stride)]
        return (
            np.concatenate([rows, lost]),
            np.concatenate([eligible, np.zeros(lost.size, bool)]),
        )
