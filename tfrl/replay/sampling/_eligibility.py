"""Which rows of an episode store can be drawn; kept up to date as steps are added."""

from typing import NamedTuple

import numpy as np

from tfrl.replay import _episode_rows

_ONE = np.array(1)


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
        indices: `[capacity]`, the index of that step; if it is not, that of a step of
            another row, so that nothing is equal to it that is looked up there.
        count: how many are.
        checked: `[num_environments]`, the index of the first step about which nothing
            was decided.
    """

    def __init__(
        self, steps: _episode_rows.EpisodeRows, reach: int, behind: int
    ) -> None:
        self._steps = steps
        self._reach = np.array(reach * steps.num_environments)
        self._later = (reach - 1) * steps.num_environments
        self._behind = behind * steps.num_environments
        self.flags = np.zeros(steps.capacity, bool)
        self.indices = np.arange(1, steps.capacity + 1)
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

    def is_current(self) -> bool:
        """Whether nothing has changed in the store."""
        steps = self._steps
        if self._is_restored or steps.contents.restores != self._restores:
            return False
        return steps.upcoming.tobytes() == self._seen.tobytes()

    def update(self) -> Change | None:
        """Catches up with the store; returns what changed, None if it did not.

        A row that is eligible in a change holds a step that never was before.
        """
        if self.is_current():
            return None
        steps = self._steps
        restores, upcoming = steps.contents.restores, steps.upcoming
        is_restored = self._is_restored
        afresh = restores != self._restores and not is_restored
        self._restores, self._is_restored = restores, False
        if afresh:
            self.restore(np.zeros_like(self.flags), steps.everyone)
            self._is_restored = False
        change = self._decide()
        self._seen = upcoming.copy()
        if is_restored or afresh:
            everywhere = np.arange(1, steps.capacity + 1)
            self.indices = np.where(self.flags, steps.marks.arrays[0], everywhere)
        if not afresh:
            return change
        eligible = np.zeros_like(self.flags)
        eligible[change.rows] = change.eligible
        return Change(np.arange(steps.capacity), eligible)

    def _decide(self) -> Change:
        steps, top = self._steps, self._steps.top()
        indices, first, _ = steps.marks.arrays
        oldest, upcoming = steps.oldest(top), steps.upcoming
        starts = np.maximum(self.checked, oldest)
        index, _ = _episode_rows.spans(starts, top, steps.stride)
        rows = index % steps.modulus
        eligible = steps.ends(rows) - index >= self._reach
        eligible &= indices.take(rows) == index
        if self._behind:
            begin = np.maximum(first.take(rows), index - self._behind)
            eligible &= begin >= oldest.take(index % steps.stride)
            rows, eligible = self._with_lost(rows, eligible, starts, oldest)
        self.count += int(np.count_nonzero(eligible))
        self.count -= int(np.count_nonzero(self.flags.take(rows)))
        self.flags[rows] = eligible
        self.indices[rows] = np.where(eligible, indices.take(rows), rows + _ONE)
        self.checked = upcoming.copy()
        if self._later:
            # What goes on may come to have as many steps.
            heads = first.take(upcoming % steps.modulus)
            undecided = np.maximum(heads, upcoming - self._later)
            self.checked = np.where(steps.running(), undecided, upcoming)
        return Change(rows, eligible)

    def _with_lost(
        self,
        rows: np.ndarray,
        eligible: np.ndarray,
        starts: np.ndarray,
        oldest: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Adds the rows of steps decided before whose past has been overwritten."""
        steps, stride = self._steps, self._steps.stride
        early = np.minimum(oldest + self._behind, starts)
        index, _ = _episode_rows.spans(oldest, early, stride)
        near = index % steps.modulus
        lost = near[steps.marks.arrays[1].take(near) < oldest.take(index % stride)]
        return (
            np.concatenate([rows, lost]),
            np.concatenate([eligible, np.zeros(lost.size, bool)]),
        )
