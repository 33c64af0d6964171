"""How likely one method is better than another, told from the scores of their runs."""

from typing import Any

import numpy as np

from tfrl._internal import arguments, checks

_BLOCK_NUMBERS = 1 << 22  # resampled pairs held at once


def probability_of_improvement(
    x: Any,
    y: Any,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int | np.random.Generator | None = None,
) -> tuple[float, float, float]:
    """Returns how likely a run of X scores more than one of Y, and an interval.

        P(X > Y) = mean over tasks, runs i of X, j of Y of
                   1 if x_i > y_j, 1/2 if x_i = y_j, 0 otherwise

    of a task is the statistic of Mann and Whitney, divided by the number of pairs. It
    says nothing of how much better. The interval is that between percentiles of a
    stratified bootstrap: in every resample each task draws as many runs of X and of Y
    as it has, with replacement.

    Args:
        x: `[runs, tasks]` finite numbers.
        y: `[runs, tasks]`, of the same tasks; the number of runs may differ.
        confidence: share of resamples within the interval, in (0, 1).
        resamples: how many.
        seed: of the resamples; an int makes them the same again.

    Returns:
        The probability and both ends of the interval.

    Raises:
        ValueError: if the scores have other axes, no runs, unequal tasks or numbers
            that are not finite, or an argument is out of range.

    Example:
        >>> x, y = np.array([[3.0], [5.0]]), np.array([[1.0], [3.0]])
        >>> probability_of_improvement(x, y, seed=0)[0]
        0.875

    References:
        Agarwal, Schwarzer, Castro, Courville and Bellemare, "Deep Reinforcement
        Learning at the Edge of the Statistical Precipice", 2021, section 4.3.
    """
    where = "probability_of_improvement"
    scores = [_checked(where, name, each) for name, each in (("x", x), ("y", y))]
    one, other = scores
    if one.shape[1] != other.shape[1]:
        raise ValueError(
            f"`{where}`: `y` expected the {one.shape[1]} tasks of `x`; got "
            f"{other.shape[1]}"
        )
    checks.check_within(where, "confidence", confidence, 0, 1)
    checks.check_whole_number(where, "resamples", resamples, low=1)
    generator = arguments.generator(where, "seed", seed)
    # Which of each pair of runs is better does not change as they are drawn again.
    wins = np.stack([_wins(a, b) for a, b in zip(one.T, other.T, strict=True)])
    drawn = np.empty(resamples)
    rows = max(1, _BLOCK_NUMBERS // wins.size)
    tasks = np.arange(len(wins))[:, None, None]
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        i, j = (
            generator.integers(n, size=(count, len(wins), n)) for n in wins.shape[1:]
        )
        picked = wins[tasks, i[..., None], j[..., None, :]]
        drawn[start : start + count] = picked.mean(axis=(1, 2, 3))
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(drawn, [tail, 1.0 - tail])
    return float(wins.mean()), float(low), float(high)


def _wins(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """`[runs of x, runs of y]`: 1, 1/2 or 0."""
    return (np.sign(x[:, None] - y) + 1) / 2


def _checked(where: str, name: str, scores: Any) -> np.ndarray:
    values = np.asarray(scores)
    checks.check_rank(where, name, values, exact=2)
    checks.check_finite(where, name, values)
    if not values.size:
        raise ValueError(
            f"`{where}`: `{name}` expected a run and a task at least; got shape "
            f"{list(values.shape)}"
        )
    return values.astype(np.float64)
