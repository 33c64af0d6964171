"""Tests of `tfrl.summaries.improvement`."""

import numpy as np
import pytest
import scipy.stats

from tfrl.summaries import improvement


def test_of_one_task_it_is_the_statistic_of_mann_and_whitney():
    rng = np.random.default_rng(0)
    for runs in ((3, 3), (10, 7), (1, 5)):
        # Few values, so that some are alike.
        x, y = (rng.integers(0, 6, [n, 1]).astype(float) for n in runs)
        found, low, high = improvement.probability_of_improvement(x, y, seed=1)
        expected = scipy.stats.mannwhitneyu(x[:, 0], y[:, 0]).statistic / np.prod(runs)
        np.testing.assert_allclose(found, expected)
        assert 0 <= low <= found <= high <= 1


def test_tasks_count_alike_and_are_drawn_apart():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=[5, 3]), rng.normal(0.5, size=[8, 3])
    found = improvement.probability_of_improvement(x, y, resamples=4000, seed=0)
    each = [improvement.probability_of_improvement(*pair)[0] for pair in _tasks(x, y)]
    np.testing.assert_allclose(found[0], np.mean(each))
    # The same by drawing rows of numbers, one resample after the other.
    drawn = []
    for _ in range(4000):
        wins = []
        for a, b in _tasks(x, y):
            one, other = rng.choice(a[:, 0], 5), rng.choice(b[:, 0], 8)
            wins.append(np.mean(one[:, None] > other))
        drawn.append(np.mean(wins))
    np.testing.assert_allclose(found[1:], np.quantile(drawn, [0.025, 0.975]), atol=0.02)


def _tasks(x, y):
    return [(x[:, [i]], y[:, [i]]) for i in range(x.shape[1])]


def test_who_always_wins_has_no_interval():
    x, y = np.full([4, 2], 2.0), np.ones([3, 2])
    assert improvement.probability_of_improvement(x, y) == (1.0, 1.0, 1.0)
    assert improvement.probability_of_improvement(y, x) == (0.0, 0.0, 0.0)
    assert improvement.probability_of_improvement(x, x)[0] == 0.5


@pytest.mark.parametrize(
    ("y", "options", "words"),
    [
        (np.ones([2, 1]), {}, "`y` expected the 2 tasks of `x`; got 1"),
        (np.ones([2]), {}, "`y`"),
        (np.ones([0, 2]), {}, "`y` expected a run and a task at least"),
        (np.full([2, 2], np.nan), {}, "`y`"),
        (np.ones([2, 2]), {"confidence": 1.5}, "`confidence`"),
        (np.ones([2, 2]), {"resamples": 0}, "`resamples`"),
    ],
    ids=str,
)
def test_bad_scores_are_refused(y, options, words):
    with pytest.raises(ValueError, match="`probability_of_improvement`: " + words):
        improvement.probability_of_improvement(np.ones([3, 2]), y, **options)
