"""Statistical assertions that fail by chance once in a million.

Bounds are exact for every sample size (Massart's constant in the inequality of
Dvoretzky, Kiefer and Wolfowitz, and Anderson's bound of a mean that follows from it)
except chi-squared, which wants five or more expected draws per class.
"""

import numpy as np
import scipy.stats

FALSE_ALARM = 1e-6


def cdf_margin(n_draws):
    """Returns how far an empirical distribution function may be from the true one."""
    return np.sqrt(np.log(2.0 / FALSE_ALARM) / (2.0 * n_draws))


def assert_cdf(draws, cdf, cdf_below=None):
    """Draws `[n]` have the distribution function `cdf`.

    `cdf_below(x)` is the probability of less than x, where x may have a mass.
    """
    draws = np.sort(np.asarray(draws, np.float64))
    values, counts = np.unique(draws, return_counts=True)
    upto = np.cumsum(counts) / len(draws)
    below = upto - counts / len(draws)
    above = np.max(upto - cdf(values))
    beneath = np.max((cdf_below or cdf)(values) - below)
    assert max(above, beneath) <= cdf_margin(len(draws))


def assert_mean(draws, mean, low, high):
    """Draws `[n, ...]` within `[low, high]` have the mean `mean`."""
    draws = np.sort(np.asarray(draws, np.float64), axis=0)
    assert draws[0].min() >= low
    assert draws[-1].max() <= high
    n = len(draws)
    margin = np.sqrt(np.log(2.0 * draws[0].size / FALSE_ALARM) / (2.0 * n))
    weights = np.clip(margin * n - np.arange(n), 0.0, 1.0) / n
    lowest = margin * low + np.tensordot(1.0 / n - weights[::-1], draws, 1)
    greatest = margin * high + np.tensordot(1.0 / n - weights, draws, 1)
    assert np.all(lowest <= mean)
    assert np.all(mean <= greatest)


def assert_frequencies(counts, probs):
    """Counts `[k]` are those of draws with the probabilities `probs`."""
    counts, probs = np.asarray(counts), np.asarray(probs, np.float64)
    assert np.all(counts[probs == 0] == 0)
    counts, probs = counts[probs > 0], probs[probs > 0]
    expected = counts.sum() * probs / probs.sum()
    assert expected.min() >= 5
    chi2 = ((counts - expected) ** 2 / expected).sum()
    assert chi2 <= scipy.stats.chi2.isf(FALSE_ALARM, len(counts) - 1)
