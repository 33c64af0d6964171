"""Mean curves out of the event files of several runs."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tfrl.core import checks
from tfrl.summaries.plotting import _event_files, mean_curve

_Path = str | os.PathLike[str]

_LAST_STEPS_APART = 0.05


class MeanCurveReader:
    """Reads one scalar of several runs of one method on one task, and averages it.

        x = linspace(max of first steps, min of last steps, n)
        n = max over runs of (last - first) // (last - the one before)

    but never more points than the longest run has: runs at steps 1 to 9, 0 to 10 and
    0 to 8 are shown from 1 to 8. Each run is interpolated linearly at x and smoothed
    there; then come mean and region of `MeanCurve.from_curves`. Points that are not
    finite are left out of their run. With `x_steps`, a run that begins later or ends a
    little earlier is continued linearly; none may end more than 5 per cent earlier.

    Call it for the `MeanCurve`. Files are read when it is made; written by TensorFlow,
    `RunLog`, PyTorch or tensorboardX, scalars are read alike. The four subclasses know
    their tag; give a `tag` for another, such as "eval/return_mean" of tfrl's own runs.

    Args:
        event_file: a run, or a list of them: a folder with event files (as
            TensorBoard shows it, such as ".../eval") or one event file.
        x_steps: increasing steps to interpolate at; None for those above.
        name: of the curve, shown in the legend.
        smoothing: None for none; an odd int >= 3 is the width of a Savitzky-Golay
            filter of order 1; a float in [0, 1) the weight of `ema_smooth`.
        interval_mode: of the region around the mean: "std", "minmax" or "CI_X" with
            X in 80, 85, 90, 95, 99.
        tag: of the scalars; None for that of the class.

    Raises:
        TypeError: if `smoothing` is neither None, int nor float, `event_file` no path
            or list of paths, or `tag` no str.
        ValueError: if an argument is out of range or unknown; if a run has no event
            files, damaged ones, or fewer than two finite points; if the runs have no
            steps in common, or one ends too long before the last of `x_steps`.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> for seed in range(3):
        ...     writer = tf.summary.create_file_writer(f"{folder}/{seed}")
        ...     with writer.as_default():
        ...         for step in range(0, 101, 10):
        ...             _ = tf.summary.scalar("eval/return", step + seed, step=step)
        ...     writer.close()
        >>> runs = sorted(folder.iterdir())
        >>> reader = MeanCurveReader(runs, [0, 25, 100], "PPO", tag="eval/return")
        >>> curve = reader()
        >>> curve.name, curve.y, curve.max_y.round(2)
        ('PPO', array([  1.,  26., 101.]), array([  1.82,  26.82, 101.82]))
    """

    _tag: str | None = None
    _x_label = "Steps"
    _y_label: str | None = None

    def __init__(
        self,
        event_file: _Path | Sequence[_Path],
        x_steps: Sequence[float] | np.ndarray | None = None,
        name: str = "MeanCurveReader",
        smoothing: int | float | None = None,
        interval_mode: str = "std",
        *,
        tag: str | None = None,
    ) -> None:
        where = type(self).__name__
        checks.check_one_of(
            where, "interval_mode", interval_mode, mean_curve.INTERVAL_MODES
        )
        _check_smoothing(where, smoothing)
        runs = _checked_runs(where, event_file)
        tag = _checked_tag(where, self._tag if tag is None else tag)
        given = None if x_steps is None else _checked_steps(where, x_steps)
        points = [
            _finite(where, run, *found)
            for run, found in zip(
                runs, _event_files.read_scalars(where, runs, tag), strict=True
            )
        ]
        if given is None:
            x = _common_steps(where, runs, points)
        else:
            x = given
            _check_last_steps(where, runs, points, float(x[-1]))
        self._ys = np.stack(
            [_smoothed(where, _interpolated(x, *found), smoothing) for found in points]
        )
        self._label = tag if self._y_label is None else self._y_label
        self._curve = mean_curve.MeanCurve.from_curves(
            x, list(self._ys), interval_mode, name
        )

    def __call__(self) -> mean_curve.MeanCurve:
        """Returns the mean of the runs."""
        return self._curve

    @property
    def ys(self) -> np.ndarray:
        """Curves `[runs, points]` that were averaged, interpolated and smoothed."""
        return self._ys

    @property
    def name(self) -> str:
        """Name of the curve."""
        return str(self._curve.name)

    @property
    def x_label(self) -> str:
        """What the x axis shows."""
        return self._x_label

    @property
    def y_label(self) -> str:
        """What the y axis shows."""
        return self._label


class EnvironmentStepsReturnReader(MeanCurveReader):
    """Reads average returns against environment steps.

    Takes the arguments of `MeanCurveReader`; the tag is
    "Metrics_vs_EnvironmentSteps/AverageReturn".

    Example:
        >>> EnvironmentStepsReturnReader([])
        Traceback (most recent call last):
        ...
        ValueError: `EnvironmentStepsReturnReader`: `event_file` expected a run at
        least; got an empty list; give the folders of event files
    """

    _tag = "Metrics_vs_EnvironmentSteps/AverageReturn"
    _x_label = "Environment Steps"
    _y_label = "Average Episodic Return"


class EnvironmentStepsSuccessReader(MeanCurveReader):
    """Reads success rates against environment steps.

    Takes the arguments of `MeanCurveReader`; the tag is
    "Metrics_vs_EnvironmentSteps/success".

    Example:
        >>> EnvironmentStepsSuccessReader([])
        Traceback (most recent call last):
        ...
        ValueError: `EnvironmentStepsSuccessReader`: `event_file` expected a run at
        least; got an empty list; give the folders of event files
    """

    _tag = "Metrics_vs_EnvironmentSteps/success"
    _x_label = "Environment Steps"
    _y_label = "Success Rate"


class IterationsReturnReader(MeanCurveReader):
    """Reads average returns against training iterations.

    Takes the arguments of `MeanCurveReader`; the tag is "Metrics/AverageReturn".

    Example:
        >>> IterationsReturnReader([])
        Traceback (most recent call last):
        ...
        ValueError: `IterationsReturnReader`: `event_file` expected a run at least; got
        an empty list; give the folders of event files
    """

    _tag = "Metrics/AverageReturn"
    _x_label = "Training Iterations"
    _y_label = "Average Episodic Return"


class IterationsSuccessReader(MeanCurveReader):
    """Reads success rates against training iterations.

    Takes the arguments of `MeanCurveReader`; the tag is "Metrics/success".

    Example:
        >>> IterationsSuccessReader([])
        Traceback (most recent call last):
        ...
        ValueError: `IterationsSuccessReader`: `event_file` expected a run at least; got
        an empty list; give the folders of event files
    """

    _tag = "Metrics/success"
    _x_label = "Training Iterations"
    _y_label = "Success Rate"


def _checked_runs(where: str, event_file: _Path | Iterable[_Path]) -> list[_Path]:
    runs: list[Any] = [event_file]
    if isinstance(event_file, Iterable) and not isinstance(event_file, str):
        runs = list(event_file)
    if not runs:
        raise ValueError(
            f"`{where}`: `event_file` expected a run at least; got an empty list; "
            "give the folders of event files"
        )
    if not all(isinstance(run, str | os.PathLike) for run in runs):
        raise TypeError(
            f"`{where}`: `event_file` expected a path, or a list of paths; got "
            f"{event_file!r}; give the folders of event files"
        )
    return runs


def _checked_tag(where: str, tag: str | None) -> str:
    if not isinstance(tag, str):
        raise (ValueError if tag is None else TypeError)(
            f"`{where}`: `tag` expected the name of scalars; got {tag!r}; give one, "
            "or take a subclass that knows its own"
        )
    return tag


def _check_smoothing(where: str, smoothing: int | float | None) -> None:
    if smoothing is None:
        return
    is_weight = isinstance(smoothing, float | np.floating)
    if is_weight and not 0.0 <= smoothing < 1.0:
        raise ValueError(
            f"`{where}`: `smoothing` expected a weight in [0, 1) if it is a float; got "
            f"{smoothing!r}; give an odd int for the width of a window"
        )
    if not is_weight:
        width = checks.check_whole_number(where, "smoothing", smoothing, low=3)
        if width % 2 == 0:
            raise ValueError(
                f"`{where}`: `smoothing` expected an odd width if it is an int; got "
                f"{width}; give {width + 1}"
            )


def _smoothed(
    where: str, values: np.ndarray, smoothing: int | float | None
) -> np.ndarray:
    if smoothing is None:
        return values
    if isinstance(smoothing, float | np.floating):
        return mean_curve.ema_smooth(values, float(smoothing))
    if smoothing > len(values):
        raise ValueError(
            f"`{where}`: `smoothing` expected a window within the {len(values)} points "
            f"of x; got {smoothing}; give a narrower one, or more `x_steps`"
        )
    return mean_curve.line_smooth(values, smoothing)


def _checked_steps(where: str, x_steps: Sequence[float] | np.ndarray) -> np.ndarray:
    x = np.asarray(x_steps)
    checks.check_rank(where, "x_steps", x, exact=1)
    checks.check_finite(where, "x_steps", x)
    if not x.size or np.any(np.diff(x) <= 0):
        raise ValueError(
            f"`{where}`: `x_steps` expected increasing steps, one at least; got "
            f"{x_steps!r}; sort them"
        )
    return x


def _finite(
    where: str, run: _Path, steps: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    kept = np.isfinite(values)
    if np.count_nonzero(kept) < 2:
        raise ValueError(
            f"`{where}`: `event_file` expected runs of two finite points at least; got "
            f"{np.count_nonzero(kept)} of {len(values)} in {run}; leave it out"
        )
    return steps[kept], values[kept]


def _common_steps(
    where: str,
    runs: Sequence[_Path],
    points: Sequence[tuple[np.ndarray, np.ndarray]],
) -> np.ndarray:
    firsts = [steps[0] for steps, _ in points]
    lasts = [steps[-1] for steps, _ in points]
    if max(firsts) >= min(lasts):
        late, early = runs[int(np.argmax(firsts))], runs[int(np.argmin(lasts))]
        raise ValueError(
            f"`{where}`: `event_file` expected runs with steps in common; got {late} "
            f"beginning at {max(firsts)} and {early} ending at {min(lasts)}; leave one "
            "out"
        )
    counts = [(s[-1] - s[0]) // (s[-1] - s[-2]) for s, _ in points]
    longest = max(len(steps) for steps, _ in points)
    count = min(max(*counts, 2), longest)
    return np.linspace(max(firsts), min(lasts), int(count))


def _check_last_steps(
    where: str,
    runs: Sequence[_Path],
    points: Sequence[tuple[np.ndarray, np.ndarray]],
    last: float,
) -> None:
    for run, (steps, _) in zip(runs, points, strict=True):
        if last - steps[-1] > _LAST_STEPS_APART * abs(last):
            raise ValueError(
                f"`{where}`: `event_file` expected runs that end within 5 per cent of "
                f"step {last:g}, the last of `x_steps`, or later; got {run} ending at "
                f"{steps[-1]}; leave it out, or give `x_steps` that end there"
            )


def _interpolated(x: np.ndarray, steps: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values of the line through the points at x, continued at both ends."""
    left = np.clip(np.searchsorted(steps, x, side="right") - 1, 0, len(steps) - 2)
    share = (x - steps[left]) / (steps[left + 1] - steps[left])
    return values[left] + share * (values[left + 1] - values[left])
