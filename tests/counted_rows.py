"""What the rows of `actor_envs.Counting` must be, worked out without playing it."""

import numpy as np


def expected(number, actions):
    """Columns of the first rows of one environment, whose actions are known."""
    count, episode, t = len(actions), 0, 0
    before, after, ends = [], [], []
    for steps in range(count):
        before.append((steps, episode, t, number))
        after.append((steps + 1, episode, t + 1, number))
        over = t + 1 == 1 + 7 * episode % 5
        ends.append((over and episode % 2 == 0, over and episode % 2 == 1))
        episode, t = (episode + 1, 0) if over else (episode, t + 1)
    ends = np.array(ends, bool).reshape(count, 2)
    return {
        "observations": np.array(before, np.float32).reshape(count, 4),
        "actions": np.asarray(actions),
        "rewards": (2.0 * np.arange(count) + actions).astype(np.float32),
        "terminated": ends[:, 0],
        "truncated": ends[:, 1],
        "next_observations": np.array(after, np.float32).reshape(count, 4),
    }


def check(number, rows):
    """Compares rows `[n, ...]` of one environment, a `Trajectory` or the like."""
    for name, column in expected(number, np.array(rows.actions)).items():
        np.testing.assert_array_equal(getattr(rows, name), column, err_msg=name)


def episodes(number, actions):
    """(return, length) of the episodes that ended in these rows."""
    rows = expected(number, actions)
    ended = rows["terminated"] | rows["truncated"]
    rewards = 2.0 * np.arange(len(actions)) + actions
    pieces = np.split(rewards, np.flatnonzero(ended) + 1)[:-1]
    return [(float(piece.sum()), len(piece)) for piece in pieces]
