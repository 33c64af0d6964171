"""Which steps of an episode store can be drawn."""

from typing import NamedTuple

import numpy as np

from tfrl.replay import _episode_rows

_NONE, _ONE = np.array(0), np.array(1)


def spans(starts: np.ndarray, stops: np.ndarray, step: int | np.ndarray) -> np.ndarray:
    """Returns all `range(start, stop, step)` one after the other."""
    counts = np.maximum(stops - starts, _NONE) // step
    after = counts.cumsum()
    total = int(after[-1]) if after.size else 0
    firsts = starts - step * (after - counts)
    return firsts.repeat(counts) + step * np.arange(total)


class Change(NamedTuple):
    """Rows about which something was decided, each once, and what."""

    rows: np.ndarray
    eligible: np.ndarray


class Eligibility:
    """Follows a store and decides which of its steps are eligible.

        the episode has `reach` steps from this one on, itself included, or, with
        `pad_end`, has ended, and
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
        self,
        steps: _episode_rows.EpisodeRows,
        reach: int,
        behind: int,
        pad_end: bool = False,
    ) -> None:
        self._steps, self._pad_end = steps, pad_end
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

    def update(self) -> Change | None:
        """Catches up with the store; returns what changed, None if it did not.

        A row that is eligible in a change holds a step that never was before.
        """
        steps, is_restored = self._steps, self._is_restored
        restores, upcoming = steps.contents.restores, steps.upcoming
        if not is_restored and restores == self._restores:
            if upcoming.tobytes() == self._seen.tobytes():
                return None
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
        index = spans(starts, top, steps.stride)
        rows = index % steps.modulus
        ahead = steps.ends(rows) - index
        eligible = ahead >= self._reach
        if self._pad_end:
            eligible |= (ahead > 0) & steps.have_ended(rows)
        eligible &= indices.take(rows) == index
        if self._behind:
            begin = np.maximum(first.take(rows), index - self._behind)
            eligible &= begin >= oldest.take(index % steps.stride)
            # And of those decided before, those whose past has been overwritten.
            early = np.minimum(oldest + self._behind, starts)
            index = spans(oldest, early, steps.stride)
            near = index % steps.modulus
            gone = first.take(near) < oldest.take(index % steps.stride)
            rows = np.concatenate([rows, near[gone]])
            never = np.zeros(rows.size - eligible.size, bool)
            eligible = np.concatenate([eligible, never])
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
