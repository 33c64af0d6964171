"""Means of several curves with intervals, and smoothing."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from tfrl._internal import arguments, checks

# How many standard errors of a mean a normal variable stays within, by percentage.
_NORMAL_ERRORS = {80: 1.282, 85: 1.440, 90: 1.645, 95: 1.960, 99: 2.576}
INTERVAL_MODES = ("std", "minmax", *(f"CI_{level}" for level in _NORMAL_ERRORS))
_BLOCK_NUMBERS = 1 << 22  # resampled scores held at once


class MeanCurve(NamedTuple):
    """A mean over curves with the same x, and a region around it.

    Attributes:
        x: `[points]` steps.
        y: `[points]` mean of the curves.
        min_y: `[points]` lower end of the region; None draws no region.
        max_y: `[points]` upper end of it.
        ay: mean over the curves of their means over the points, one number.
        min_ay: lower end of its region.
        max_ay: upper end of it.
        name: what the legend says.

    Example:
        >>> MeanCurve(np.arange(3), np.array([0.0, 1.0, 4.0]), name="PPO").name
        'PPO'
    """

    x: Any = None
    y: Any = None
    min_y: Any = None
    max_y: Any = None
    ay: Any = None
    min_ay: Any = None
    max_ay: Any = None
    name: str | None = None

    @classmethod
    def from_curves(
        cls,
        x: Any,
        ys: Sequence[Any],
        interval_mode: str = "std",
        name: str = "MeanCurve",
    ) -> Self:
        """Returns the mean of curves and the region of an interval mode around it.

            std:     mean +- std            (of the n curves, ddof 0)
            minmax:  [min, max]
            CI_X:    mean +- z_X std / sqrt(n),  X in 80, 85, 90, 95, 99 per cent

        The last one takes the mean for normal, which of a few runs is optimistic;
        `interquartile_mean` has an interval that is not.

        Args:
            x: `[points]` steps.
            ys: n curves `[points]`, n >= 1.
            interval_mode: one of the above, such as "CI_95".
            name: what the legend says.

        Returns:
            The mean, in float64.

        Raises:
            ValueError: if there is no curve or no point, the curves are of unequal
                length, or the mode is not known.

        Example:
            >>> curve = MeanCurve.from_curves([0, 1], [[0.0, 2.0], [2.0, 6.0]])
            >>> curve.y, curve.min_y, curve.max_y
            (array([1., 4.]), array([0., 2.]), array([2., 6.]))
            >>> float(curve.ay), float(curve.max_ay)
            (2.5, 4.0)
        """
        where = "MeanCurve.from_curves"
        checks.check_one_of(where, "interval_mode", interval_mode, INTERVAL_MODES)
        checks.check_type(where, "ys", ys, Iterable, "curves")
        x, curves = np.asarray(x), [as_numbers(where, "ys", y) for y in ys]
        shapes = [curve.shape for curve in curves]
        if x.ndim != 1 or not x.size or set(shapes) != {x.shape}:
            raise ValueError(
                f"`{where}`: `ys` expected curves of one axis, as long as `x`, with a "
                f"point at least; got shapes {shapes} and {x.shape}"
            )
        points = np.stack(curves)
        return cls(
            x,
            *_mean_and_interval(points, interval_mode),
            *_mean_and_interval(points.mean(axis=1), interval_mode),
            name,
        )

    def final_y(self, N: int = 1) -> tuple[float, float, float]:  # noqa: N803
        """Returns the means of y, min_y and max_y over the last points.

        Args:
            N: over how many.

        Returns:
            Three numbers.

        Raises:
            ValueError: if there are fewer points or no region.

        Example:
            >>> curve = MeanCurve.from_curves([0, 1, 2], [[0.0, 2.0, 4.0]])
            >>> curve.final_y(2)
            (3.0, 3.0, 3.0)
        """
        where = "MeanCurve.final_y"
        if self.y is None or self.min_y is None or self.max_y is None:
            raise ValueError(
                f"`{where}`: expected a curve with y, min_y and max_y; got one without"
            )
        checks.check_whole_number(where, "N", N, low=1, high=len(self.y))
        low, high = np.mean(self.min_y[-N:]), np.mean(self.max_y[-N:])
        return float(np.mean(self.y[-N:])), float(low), float(high)


def ema_smooth(
    scalars: Sequence[float] | np.ndarray,
    weight: float = 0.6,
    speed: float = 64.0,
    adaptive: bool = False,
    mode: str = "forward",
) -> np.ndarray:
    """Smooths numbers by the running average that TensorBoard draws.

        h_i = weight h_{i-1} + (1 - weight) x_i,   y_i = h_i / (1 - weight^(i+1))

    from h = 0: the divisor makes the weights of x_0 .. x_i sum to 1, and y_0 = x_0.

    Args:
        scalars: `[n]` numbers, n >= 0.
        weight: of the past, in [0, 1); 0 leaves the numbers as they are.
        speed: with `adaptive`, how fast the weight of x_i falls; greater is less
            smooth.
        adaptive: whether x_i has the weight speed / (i + speed) in place of
            1 - weight, so that late numbers move the average less.
        mode: "forward", or "both" for the mean of this and the same from the end.

    Returns:
        `[n]` float64.

    Raises:
        ValueError: if an argument is out of range or the mode is not known.

    Example:
        >>> ema_smooth([1.0, 2.0, 3.0], weight=0.5).round(3)
        array([1.   , 1.667, 2.429])

    References:
        Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015, section 3
        (the divisor).
    """
    where = "ema_smooth"
    checks.check_one_of(where, "mode", mode, ("forward", "both"))
    values = as_numbers(where, "scalars", scalars)
    checks.check_rank(where, "scalars", values, exact=1)
    if adaptive:
        checks.check_positive(where, "speed", speed)
        incoming = (speed / (np.arange(len(values)) + speed)).tolist()
    else:
        arguments.check_number(where, "weight", weight, 0, 1)
        if weight == 1:
            raise ValueError(f"`{where}`: `weight` expected a number in [0, 1); got 1")
        incoming = [1.0 - weight] * len(values)
    smooth = _running_average(values, incoming)
    if mode == "both":
        smooth = (smooth + _running_average(values[::-1], incoming)[::-1]) / 2
    return smooth


def as_numbers(where: str, name: str, values: Any) -> np.ndarray:
    """Returns values in float64; the error of what is none names the argument."""
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise checks.wrong_type(where, name, values, "numbers") from error


def _running_average(values: np.ndarray, incoming: list[float]) -> np.ndarray:
    history, unseen, averages = 0.0, 1.0, []
    for value, weight in zip(values.tolist(), incoming, strict=True):
        history += weight * (value - history)
        unseen *= 1.0 - weight
        averages.append(history / (1.0 - unseen))
    return np.array(averages, np.float64)


def line_smooth(values: np.ndarray, width: int) -> np.ndarray:
    """Smooths numbers by lines fitted to windows of them.

    Each number becomes what the line of least squares through the `width` numbers
    around it says there, which is their mean; at both ends, where the window would not
    fit, the line of the outermost window is read off.

    Args:
        values: `[n]` finite numbers.
        width: odd, of the window, at most n.

    Returns:
        `[n]` float64.

    Raises:
        TypeError: if `width` is no int.
        ValueError: if `width` is even or does not fit, or `values` has other axes.

    Example:
        >>> line_smooth(np.array([0.0, 3.0, 0.0, 3.0, 0.0]), 3)
        array([1., 1., 2., 1., 1.])

    References:
        Savitzky and Golay, "Smoothing and Differentiation of Data by Simplified Least
        Squares Procedures", 1964 (here of order 1).
    """
    values = np.asarray(values, np.float64)
    checks.check_rank("line_smooth", "values", values, exact=1)
    width = checks.check_whole_number("line_smooth", "width", width, low=1)
    if width % 2 == 0 or width > len(values):
        raise ValueError(
            f"`line_smooth`: `width` expected an odd int in [1, {len(values)}], the "
            f"number of points; got {width}"
        )
    if width == 1:
        return values
    reach, x = width // 2, np.arange(width)
    sums = np.concatenate([[0.0], np.cumsum(values - values[0])])
    means = values[0] + (sums[width:] - sums[:-width]) / width
    first, last = (
        np.polyval(np.polyfit(x, window, 1), x)
        for window in (values[:width], values[-width:])
    )
    return np.concatenate([first[:reach], means, last[-reach:]])


def interquartile_mean(
    scores: Any,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int | np.random.Generator | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the mean of the middle half of all scores, and an interval around it.

        k = floor(n / 4) of n = runs x tasks:  mean of sorted scores k .. n - k - 1

    Less noisy than the median, and not moved by outliers as the mean is. The interval
    is that between percentiles of a stratified bootstrap: in every resample each task
    draws as many runs as it has, with replacement. Scores are to be comparable
    between tasks, so normalize them first.

    Args:
        scores: `[runs, tasks, ...]` finite numbers, for example one per task, or a
            curve per task: trailing axes are kept, and resampled alike.
        confidence: share of resamples within the interval, in (0, 1).
        resamples: how many.
        seed: of the resamples; an int makes them the same again.

    Returns:
        The interquartile mean and both ends of the interval, `[...]` float64. Of
        curves they are the y, min_y and max_y of a `MeanCurve`.

    Raises:
        ValueError: if `scores` has less than two axes, no runs, no tasks or numbers
            that are not finite, or an argument is out of range.

    Example:
        >>> scores = np.array([[0.0], [1.0], [3.0], [90.0]])
        >>> middle, low, high = interquartile_mean(scores, seed=0)
        >>> float(middle), bool(low < middle < high)
        (2.0, True)

    References:
        Agarwal, Schwarzer, Castro, Courville and Bellemare, "Deep Reinforcement
        Learning at the Edge of the Statistical Precipice", 2021, section 4.
    """
    where = "interquartile_mean"
    values = np.asarray(scores)
    checks.check_rank(where, "scores", values, at_least=2)
    checks.check_finite(where, "scores", values)
    if not (isinstance(confidence, float) and 0.0 < confidence < 1.0):
        raise ValueError(
            f"`{where}`: `confidence` expected a float in (0, 1); got "
            f"{checks.shown(confidence)}"
        )
    checks.check_whole_number(where, "resamples", resamples, low=1)
    runs, tasks, *rest = values.shape
    if not values.size:
        raise ValueError(
            f"`{where}`: `scores` expected a run and a task at least; got shape "
            f"{list(values.shape)}"
        )
    flat = values.astype(np.float64).reshape(runs, tasks, math.prod(rest))
    generator = arguments.generator(where, "seed", seed)
    drawn = np.empty([resamples, flat.shape[2]])
    rows = max(1, _BLOCK_NUMBERS // flat.size)
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        picked = generator.integers(runs, size=(count, runs, tasks))
        drawn[start : start + count] = _middle_mean(flat[picked, np.arange(tasks)])
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(drawn, [tail, 1.0 - tail], axis=0)
    middle = _middle_mean(flat[None])[0]
    return middle.reshape(rest), low.reshape(rest), high.reshape(rest)


def _middle_mean(scores: np.ndarray) -> np.ndarray:
    """Means of the middle halves, `[k, runs, tasks, points]` to `[k, points]`."""
    count = scores.shape[1] * scores.shape[2]
    cut = count // 4
    ordered = np.sort(scores.reshape(len(scores), count, -1), axis=1)
    return ordered[:, cut : count - cut].mean(axis=1)


def _mean_and_interval(
    values: np.ndarray, interval_mode: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, lower and upper end over the first axis."""
    mean = values.mean(axis=0)
    if interval_mode == "minmax":
        return mean, values.min(axis=0), values.max(axis=0)
    reach = values.std(axis=0)
    if interval_mode != "std":
        errors = _NORMAL_ERRORS[int(interval_mode.removeprefix("CI_"))]
        reach = errors * reach / math.sqrt(len(values))
    return mean, mean - reach, mean + reach
