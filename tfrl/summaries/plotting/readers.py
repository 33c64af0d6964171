"""Mean curves out of the event files of several runs."""

import contextlib
import functools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorboard.compat.proto import types_pb2

from tfrl._internal import checks, event_files
from tfrl.summaries.plotting import mean_curve

_Path = str | os.PathLike[str]
_Points = tuple[np.ndarray, np.ndarray]  # steps and values

_LAST_STEPS_APART = 0.05
_SHOWN_TAGS = 20


class _CurveReader:
    """A mean curve, and what its axes show."""

    _curve: mean_curve.MeanCurve
    _x_label = "Steps"
    _y_label: str | None = None

    def __call__(self) -> mean_curve.MeanCurve:
        """Returns the mean."""
        return self._curve

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
        return str(self._y_label)


class MeanCurveReader(_CurveReader):
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
        >>> reader.last_steps
        [100, 100, 100]
    """

    _tag: str | None = None

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
        modes = mean_curve.INTERVAL_MODES
        checks.check_one_of(where, "interval_mode", interval_mode, modes)
        smooth = _smoother(where, smoothing)
        runs = _checked_runs(where, event_file)
        tag = self._tag if tag is None else tag
        checks.check_type(where, "tag", tag, str, "the name of scalars")
        given = None if x_steps is None else _checked_steps(where, x_steps)
        folders = [(run, _files(where, run)) for run in runs]
        points = [_scalars(where, *folder, str(tag)) for folder in folders]
        x = _common_steps(where, runs, points) if given is None else given
        if given is not None:
            _check_last_steps(where, runs, points, float(x[-1]))
        self._last_steps = [int(steps[-1]) for steps, _ in points]
        self._ys = np.stack([smooth(_interpolated(x, *found)) for found in points])
        self._y_label = tag if self._y_label is None else self._y_label
        make = mean_curve.MeanCurve.from_curves
        self._curve = make(x, list(self._ys), interval_mode, name)

    @property
    def ys(self) -> np.ndarray:
        """Curves `[runs, points]` that were averaged, interpolated and smoothed."""
        return self._ys

    @property
    def last_steps(self) -> list[int]:
        """The last step of each run; without `x_steps` the mean ends at the least."""
        return self._last_steps


class EnvironmentStepsReturnReader(MeanCurveReader):
    """Reads average returns against environment steps.

    Takes the arguments of `MeanCurveReader`; the tag is
    "Metrics_vs_EnvironmentSteps/AverageReturn".

    Example:
        >>> EnvironmentStepsReturnReader([])
        Traceback (most recent call last):
        ...
        ValueError: `EnvironmentStepsReturnReader`: `event_file` expected a run at
        least; got an empty list
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
        least; got an empty list
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
        an empty list
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
        an empty list
    """

    _tag = "Metrics/success"
    _x_label = "Training Iterations"
    _y_label = "Success Rate"


class MeanCurveGroupReader(_CurveReader):
    """Averages one method's mean curves over several tasks.

        mean over tasks of (y - y_0) / (y_1 - y_0)

    for y and the ends of its region alike. For an interval over tasks that counts
    every run, give the readers' `ys` to `interquartile_mean`.

    Args:
        mean_curve_readers: one reader per task, all with the same x.
        task_performance_ranges: (y_0, y_1) per task, for example the returns of random
            and of good play; None leaves the curves as they are.
        name: of the method, shown in the legend.

    Raises:
        TypeError: if one of the readers is something else.
        ValueError: if there is no reader, the readers have other x than the first, or
            there are not as many ranges, or one of them is empty.

    Example:
        >>> MeanCurveGroupReader([])
        Traceback (most recent call last):
        ...
        ValueError: `MeanCurveGroupReader`: `mean_curve_readers` expected a reader at
        least; got none
    """

    def __init__(
        self,
        mean_curve_readers: Sequence[MeanCurveReader],
        task_performance_ranges: Sequence[tuple[float, float]] | None = None,
        name: str = "MeanCurveGroupReader",
    ) -> None:
        where = "MeanCurveGroupReader"
        if not mean_curve_readers:
            raise ValueError(
                f"`{where}`: `mean_curve_readers` expected a reader at least; got none"
            )
        name_of_all, kinds = "mean_curve_readers", "MeanCurveReaders"
        for reader in mean_curve_readers:
            checks.check_type(where, name_of_all, reader, MeanCurveReader, kinds)
        curves = [reader() for reader in mean_curve_readers]
        x = curves[0].x
        for curve in curves:
            if curve.x.shape != x.shape or not np.allclose(curve.x, x):
                raise ValueError(
                    f"`{where}`: `{name_of_all}` expected the x of the first, "
                    f"{len(x)} points from {x[0]:g} to {x[-1]:g}; got {len(curve.x)} "
                    f"from {curve.x[0]:g} to {curve.x[-1]:g} in {curve.name!r}; give "
                    "all of them the same x_steps"
                )
        ranges = task_performance_ranges
        if ranges is None:
            ranges = [(0.0, 1.0)] * len(curves)
        _check_ranges(where, ranges, len(curves))
        pairs = zip(curves, ranges, strict=True)
        scaled = [_normalized(curve, *ends) for curve, ends in pairs]
        fields = [np.mean(field, axis=0) for field in zip(*scaled, strict=True)]
        self._curve = mean_curve.MeanCurve(x, *fields)._replace(name=name)
        self._x_label = mean_curve_readers[0].x_label
        self._y_label = mean_curve_readers[0].y_label
        if task_performance_ranges is not None:
            self._y_label = "Normalized Score"


def _checked_runs(where: str, event_file: Any) -> list[_Path]:
    several = isinstance(event_file, Iterable) and not isinstance(event_file, str)
    runs: list[Any] = list(event_file) if several else [event_file]
    if not runs:
        raise ValueError(
            f"`{where}`: `event_file` expected a run at least; got an empty list"
        )
    for run in runs:
        paths = "a path, or a list of paths"
        checks.check_type(where, "event_file", run, str | os.PathLike, paths)
    return runs


def _files(where: str, run: _Path) -> list[pathlib.Path]:
    """A run is an event file or a folder of some, in the order of their names."""
    path = pathlib.Path(run)
    if path.is_file():
        return [path]
    files = sorted(p for p in path.glob("*tfevents*") if p.is_file())
    if files:
        return files
    found = "which has none" if path.is_dir() else "which does not exist"
    # Not further down: the path may be wrong, and all of a disk below it.
    near = (path.glob(f"{folders}*tfevents*") for folders in ("*/", "*/*/"))
    below = sorted({os.fspath(p.parent) for found in near for p in found})
    if below:
        found += f", but there are some in {', '.join(below[:8])}"
    raise ValueError(
        f"`{where}`: `event_file` expected folders with event files (*tfevents*); got "
        f"{path}, {found}"
    )


def _scalars(where: str, run: _Path, files: list[pathlib.Path], tag: str) -> _Points:
    """Steps (int64, increasing) and finite values (float64) of one tag in a run.

    What the run wrote before it went back to an earlier step is dropped, as is a record
    at the end of a file that is not all there (still being written, or was killed).
    """
    steps, numbers, tags = [], [], set()
    for path in files:
        for step, value in _values(where, path):
            tags.add(value.tag)
            if value.tag == tag:
                steps.append(step)
                numbers.append(_number(where, tag, value))
    if not steps:
        shown = str(sorted(tags)[:_SHOWN_TAGS]) if tags else "nothing in it"
        if len(tags) > _SHOWN_TAGS:
            shown += f" and {len(tags) - _SHOWN_TAGS} more"
        raise ValueError(
            f"`{where}`: `event_file` expected runs with scalars {tag!r}; got {run} "
            f"with {shown}; give one of its tags as `tag`, or leave the run out"
        )
    # What was written before the run went back to its step or an earlier one is gone.
    order, values = np.array(steps, np.int64), np.array(numbers, np.float64)
    lowest_later = np.minimum.accumulate(order[::-1])[::-1]
    last = np.append(order[:-1] < lowest_later[1:], True)
    kept = last & np.isfinite(values)
    if np.count_nonzero(kept) < 2:
        raise ValueError(
            f"`{where}`: `event_file` expected runs of two finite points at least; got "
            f"{np.count_nonzero(kept)} of {np.count_nonzero(last)} in {run}; train "
            "longer, or report more often, by `Intervals.log_epochs`"
        )
    return order[kept], values[kept]


def _values(where: str, path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    try:
        for event in event_files.read_events(path):
            for value in event.summary.value:
                yield event.step, value
    except ValueError as error:
        raise ValueError(
            f"`{where}`: `event_file` expected event files of TensorBoard; got {path}, "
            "which is damaged or something else; take it out of the folder"
        ) from error


def _number(where: str, tag: str, value: Any) -> float:
    """The one number of a summary value, of TensorFlow 2 or before."""
    if value.HasField("simple_value"):
        return value.simple_value
    tensor = value.tensor
    # A few bytes may declare any shape: look before it is filled.
    if not tensor.tensor_shape.dim:
        if tensor.dtype == types_pb2.DT_FLOAT and len(tensor.float_val) == 1:
            return tensor.float_val[0]  # by far the most frequent one
        with contextlib.suppress(TypeError, ValueError):
            kind = tf.as_dtype(tensor.dtype)
            if kind.is_floating or kind.is_integer or kind.is_bool:
                return float(tf.make_ndarray(tensor))
    raise ValueError(
        f"`{where}`: `tag` expected that of real scalars; got {tag!r}, under which "
        "lies something else (a histogram, a text, an image)"
    )


def _smoother(
    where: str, smoothing: int | float | None
) -> Callable[[np.ndarray], np.ndarray]:
    if smoothing is None:
        return np.asarray
    if isinstance(smoothing, float | np.floating):
        if not 0.0 <= smoothing < 1.0:
            raise ValueError(
                f"`{where}`: `smoothing` expected a weight in [0, 1) if it is a float; "
                f"got {checks.shown(smoothing)}"
            )
        return functools.partial(mean_curve.ema_smooth, weight=float(smoothing))
    width = checks.check_whole_number(where, "smoothing", smoothing, low=3)
    if width % 2 == 0:
        raise ValueError(
            f"`{where}`: `smoothing` expected an odd width if it is an int; got {width}"
        )

    def smooth(values: np.ndarray) -> np.ndarray:
        if width > len(values):
            raise ValueError(
                f"`{where}`: `smoothing` expected a window within the {len(values)} "
                f"points of x; got {width}; give a narrower one, or more `x_steps`"
            )
        return mean_curve.line_smooth(values, width)

    return smooth


def _checked_steps(where: str, x_steps: Sequence[float] | np.ndarray) -> np.ndarray:
    x = np.asarray(x_steps)
    checks.check_rank(where, "x_steps", x, exact=1)
    checks.check_finite(where, "x_steps", x)
    if not x.size or np.any(np.diff(x) <= 0):
        raise ValueError(
            f"`{where}`: `x_steps` expected increasing steps, one at least; got "
            f"{checks.shown(x_steps)}"
        )
    return x


def _common_steps(
    where: str, runs: Sequence[_Path], points: Sequence[_Points]
) -> np.ndarray:
    firsts = [steps[0] for steps, _ in points]
    lasts = [steps[-1] for steps, _ in points]
    if max(firsts) >= min(lasts):
        late, early = runs[int(np.argmax(firsts))], runs[int(np.argmin(lasts))]
        raise ValueError(
            f"`{where}`: `event_file` expected runs with steps in common; got {late} "
            f"beginning at {max(firsts)} and {early} ending at {min(lasts)}"
        )
    counts = [(s[-1] - s[0]) // (s[-1] - s[-2]) for s, _ in points]
    longest = max(len(steps) for steps, _ in points)
    count = min(max(*counts, 2), longest)
    return np.linspace(max(firsts), min(lasts), int(count))


def _check_last_steps(
    where: str, runs: Sequence[_Path], points: Sequence[_Points], last: float
) -> None:
    for run, (steps, _) in zip(runs, points, strict=True):
        if last - steps[-1] > _LAST_STEPS_APART * abs(last):
            raise ValueError(
                f"`{where}`: `event_file` expected runs that end within 5 per cent of "
                f"step {last:g}, the last of `x_steps`, or later; got {run} ending at "
                f"{steps[-1]}"
            )


def _interpolated(x: np.ndarray, steps: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values of the line through the points at x, continued at both ends."""
    left = np.clip(np.searchsorted(steps, x, side="right") - 1, 0, len(steps) - 2)
    share = (x - steps[left]) / (steps[left + 1] - steps[left])
    return values[left] + share * (values[left + 1] - values[left])


def _check_ranges(
    where: str, ranges: Sequence[tuple[float, float]], count: int
) -> None:
    ends = mean_curve.as_numbers(where, "task_performance_ranges", ranges)
    empty = ends.shape != (count, 2) or np.any(ends[:, 0] == ends[:, 1])
    if empty or not np.isfinite(ends).all():
        raise ValueError(
            f"`{where}`: `task_performance_ranges` expected {count} pairs of finite "
            f"numbers that differ, one a reader; got {checks.shown(ranges)}"
        )


def _normalized(
    curve: mean_curve.MeanCurve, zero: float, one: float
) -> tuple[np.ndarray, ...]:
    """The fields between x and name, where y_0 becomes 0 and y_1 becomes 1."""
    y, min_y, max_y, ay, min_ay, max_ay = (
        (np.asarray(field) - zero) / (one - zero) for field in curve[1:-1]
    )
    if one < zero:
        min_y, max_y, min_ay, max_ay = max_y, min_y, max_ay, min_ay
    return y, min_y, max_y, ay, min_ay, max_ay
