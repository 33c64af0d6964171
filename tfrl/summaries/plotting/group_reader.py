"""One method's mean curves over several tasks."""

from collections.abc import Sequence

import numpy as np

from tfrl.summaries.plotting import mean_curve, readers


class MeanCurveGroupReader:
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
        least; got none; give one for each task
    """

    def __init__(
        self,
        mean_curve_readers: Sequence[readers.MeanCurveReader],
        task_performance_ranges: Sequence[tuple[float, float]] | None = None,
        name: str = "MeanCurveGroupReader",
    ) -> None:
        where = "MeanCurveGroupReader"
        if not mean_curve_readers:
            raise ValueError(
                f"`{where}`: `mean_curve_readers` expected a reader at least; got "
                "none; give one for each task"
            )
        for reader in mean_curve_readers:
            if not isinstance(reader, readers.MeanCurveReader):
                raise TypeError(
                    f"`{where}`: `mean_curve_readers` expected MeanCurveReaders; got "
                    f"{reader!r} among them; give one for each task"
                )
        curves = [reader() for reader in mean_curve_readers]
        x = curves[0].x
        for curve in curves:
            if curve.x.shape != x.shape or not np.allclose(curve.x, x):
                raise ValueError(
                    f"`{where}`: `mean_curve_readers` expected the x of the first, "
                    f"{len(x)} points from {x[0]:g} to {x[-1]:g}; got {len(curve.x)} "
                    f"from {curve.x[0]:g} to {curve.x[-1]:g} in {curve.name!r}; give "
                    "all of them the same x_steps"
                )
        ranges: Sequence[tuple[float, float]] = [(0.0, 1.0)] * len(curves)
        if task_performance_ranges is not None:
            ranges = task_performance_ranges
        _check_ranges(where, ranges, len(curves))
        scaled = [
            _normalized(curve, *ends)
            for curve, ends in zip(curves, ranges, strict=True)
        ]
        fields = [np.mean(field, axis=0) for field in zip(*scaled, strict=True)]
        self._curve = mean_curve.MeanCurve(x, *fields)._replace(name=name)
        self._x_label = mean_curve_readers[0].x_label
        self._y_label = mean_curve_readers[0].y_label
        if task_performance_ranges is not None:
            self._y_label = "Normalized Score"

    def __call__(self) -> mean_curve.MeanCurve:
        """Returns the mean of the tasks."""
        return self._curve

    @property
    def name(self) -> str:
        """Name of the method."""
        return str(self._curve.name)

    @property
    def x_label(self) -> str:
        """What the x axis of the first reader shows."""
        return self._x_label

    @property
    def y_label(self) -> str:
        """What the y axis shows: scores if normalized, else as the first reader."""
        return self._y_label


def _check_ranges(
    where: str, ranges: Sequence[tuple[float, float]], count: int
) -> None:
    ends = np.asarray(ranges, np.float64)
    empty = ends.shape != (count, 2) or np.any(ends[:, 0] == ends[:, 1])
    if empty or not np.isfinite(ends).all():
        raise ValueError(
            f"`{where}`: `task_performance_ranges` expected {count} pairs of finite "
            f"numbers that differ, one a reader; got {ranges!r}; correct them"
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
