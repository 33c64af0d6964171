"""Plots of learning curves."""

import io
import os
import pathlib
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tfrl._internal import arguments, checks, durable
from tfrl.summaries import run_log
from tfrl.summaries.plotting import mean_curve

_INK, _GREY, _RULE = "#1f2933", "#52606d", "#d9dee4"
_TRAIN, _EVAL, _TARGET = "#2f6fb3", "#d9602b", "#3f8f5b"
_PIXELS, _DPI = (1200, 750), 150
_ENDINGS = (".png", ".pdf", ".svg", ".jpg", ".jpeg")
_BEST_PLACE: Mapping[str, Any] = types.MappingProxyType({"loc": "best"})
_CYCLE = 10  # colours of matplotlib that repeat
# Columns of `metrics.csv` that are drawn of a run.
RETURNS = ("train/return_mean", "eval/return_mean")


class CurvesPlotter:
    """Draws mean curves, each with the region around it, into one picture.

    The curves should be comparable. Nothing is drawn on the screen; `figure` is
    matplotlib's, to be changed before it is saved.

    Args:
        mean_curves: one, or a list of them.
        y_clipping: (low, high) to which y and the regions are cut, such as (0, 1) for
            rates; None leaves them.
        x_range: (low, high) that the curves are scaled to with `x_scaled_and_aligned`,
            None for (0, 1); not used without.
        y_range: limits of the y axis; None for what the curves need.
        x_ticks: ticks of the x axis; None for matplotlib's choice.
        x_label: of the axis; None for nothing.
        y_label: of the axis; None for nothing.
        x_scaled_and_aligned: whether the least x of all curves becomes the lower end
            of `x_range`, the greatest the upper one, and all others lie in proportion.
        figsize: width and height in inches.
        dpi: pixels per inch of `figure`.
        linestyle: "-", "--", "-." or ":", for all, or a list with one per curve.
        linewidth: in points.
        std_alpha: opacity of the regions.
        colors: one per curve; None for matplotlib's ten in turns.
        markers: one per curve; None for none.
        bg_color: of the background.
        grid_color: of the grid.
        plot_mean_only: whether to leave the regions out.
        legend_kwargs: arguments of matplotlib's legend; None for no legend.
        title: above the picture; None for nothing.

    Raises:
        ImportError: if matplotlib is missing (extra `tfrl[plots]`).
        TypeError: if a curve is something else than a `MeanCurve`.
        ValueError: if there is no curve, one is empty or its parts are of unequal
            length, or a list is not as long as that of the curves.

    Example:
        >>> import pathlib, tempfile
        >>> from tfrl.summaries.plotting import mean_curve
        >>> rng = np.random.default_rng(0)
        >>> runs = rng.normal(np.linspace(0.0, 9.0, 50), 1.0, [3, 50])
        >>> curve = mean_curve.MeanCurve.from_curves(np.arange(50), runs, name="PPO")
        >>> path = pathlib.Path(tempfile.mkdtemp(), "curves.png")
        >>> CurvesPlotter(curve, x_label="steps", y_label="return").plot(path)
        >>> path.exists()
        True
    """

    def __init__(
        self,
        mean_curves: mean_curve.MeanCurve | Sequence[mean_curve.MeanCurve],
        y_clipping: tuple[float, float] | None = None,
        x_range: tuple[float, float] | None = None,
        y_range: tuple[float, float] | None = None,
        x_ticks: Sequence[float] | None = None,
        x_label: str | None = None,
        y_label: str | None = None,
        x_scaled_and_aligned: bool = False,
        figsize: tuple[float, float] = (4, 4),
        dpi: float = 100,
        linestyle: str | Sequence[str] = "-",
        linewidth: float = 2,
        std_alpha: float = 0.2,
        colors: Sequence[Any] | None = None,
        markers: Sequence[Any] | None = None,
        bg_color: Any = "white",
        grid_color: Any = "#e6e5e3",
        plot_mean_only: bool = False,
        legend_kwargs: Mapping[str, Any] | None = _BEST_PLACE,
        title: str | None = None,
    ) -> None:
        where = "CurvesPlotter"
        curves = _checked_curves(where, mean_curves)
        count = len(curves)
        styles = [linestyle] * count if isinstance(linestyle, str) else linestyle
        cycle = [f"C{index % _CYCLE}" for index in range(count)]
        shades = cycle if colors is None else colors
        marks = [""] * count if markers is None else markers
        lists = {"linestyle": styles, "colors": shades, "markers": marks}
        for name, given in lists.items():
            checks.check_type(where, name, given, Sequence, "a list")
            if len(given) != count:
                raise ValueError(
                    f"`{where}`: `{name}` expected {count} of them, one a curve; got "
                    f"{len(given)}"
                )
        pairs = {"y_clipping": y_clipping, "x_range": x_range, "y_range": y_range}
        _check_numbers(where, pairs, dpi=dpi, linewidth=linewidth, std_alpha=std_alpha)
        if x_ticks is not None:
            mean_curve.as_numbers(where, "x_ticks", x_ticks)
        self.figure = _figure(where, figsize, dpi, bg_color)
        axes = self.figure.add_subplot()
        axes.set_facecolor(bg_color)
        xs = [np.asarray(curve.x, np.float64) for curve in curves]
        if x_scaled_and_aligned:
            xs = _aligned(where, xs, (0.0, 1.0) if x_range is None else x_range)
        low, high = (-np.inf, np.inf) if y_clipping is None else y_clipping
        for index, (x, curve) in enumerate(zip(xs, curves, strict=True)):
            shade = {"color": shades[index]}
            look = {"linestyle": styles[index], "marker": marks[index], **shade}
            y = np.clip(curve.y, low, high)
            axes.plot(x, y, linewidth=linewidth, label=curve.name, **look)
            if not plot_mean_only and curve.min_y is not None:
                ends = np.clip(curve.min_y, low, high), np.clip(curve.max_y, low, high)
                axes.fill_between(x, *ends, alpha=std_alpha, linewidth=0, **shade)
        _clean(axes, grid_color, "--")
        asked: dict[str, Any] = {"title": title, "xlabel": x_label, "ylabel": y_label}
        asked |= {"xticks": x_ticks, "ylim": y_range}
        axes.set(**{name: x for name, x in asked.items() if x is not None})
        # Left to itself, matplotlib shows no name that begins with an underscore.
        drawn = zip(axes.get_lines(), curves, strict=True)
        named = [line for line, curve in drawn if curve.name]
        if legend_kwargs is not None and named:
            axes.legend(**{"handles": named, **legend_kwargs})

    def plot(
        self,
        output_path: str | os.PathLike[str],
        dpi: float = 200,
        transparent: bool = False,
        close_fig: bool = True,
    ) -> None:
        """Saves the picture; it appears complete or not at all.

        Args:
            output_path: ends in .png, .pdf, .svg, .jpg or .jpeg; the folder must exist.
            dpi: pixels per inch.
            transparent: whether the background is transparent.
            close_fig: whether to let go of `figure`; then no more can be plotted.

        Raises:
            ValueError: if the path cannot be written, or the picture was closed.
        """
        where = "CurvesPlotter.plot"
        if self.figure is None:
            raise ValueError(
                f"`{where}`: expected a picture that is open; got one that was closed "
                "by `close_fig`"
            )
        durable.check_output_file(where, "output_path", output_path, _ENDINGS)
        checks.check_positive(where, "dpi", dpi)
        options: dict[str, Any] = {"facecolor": "none"} if transparent else {}
        options = {"dpi": dpi, "transparent": transparent, **options}
        _save(where, "output_path", self.figure, output_path, **options)
        if close_fig:
            self.figure = None


def plot_learning_curve(
    metrics: str | os.PathLike[str] | Mapping[str, np.ndarray],
    path: str | os.PathLike[str],
    *,
    title: str = "",
    target: float | None = None,
) -> None:
    """Draws the returns of a run over its environment steps, as a PNG.

    `train/return_mean` is a thin line with a smooth one, a mean over 1/15 of it, on
    top, `eval/return_mean` are points joined by a line. Rows in which one of them is
    missing or not finite are left out of it. The picture appears complete or not at
    all, and replaces an older one.

    Args:
        metrics: a `metrics.csv`, or its columns as `read_metrics` returns them.
        path: where the picture goes, `....png`; the folder must exist.
        title: written above.
        target: a return to reach, drawn as a dashed line; None for none.

    Raises:
        ImportError: if matplotlib is missing (extra `tfrl[plots]`).
        ValueError: if there is no finite return to draw, the column `env_steps` is
            missing, columns are of unequal length, or `path` does not end in `.png`.

    Example:
        >>> import pathlib, tempfile
        >>> columns = {
        ...     "env_steps": np.arange(1.0, 101.0),
        ...     "train/return_mean": np.linspace(20.0, 500.0, 100),
        ... }
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     picture = pathlib.Path(directory, "curve.png")
        ...     plot_learning_curve(columns, picture, title="PPO", target=475.0)
        ...     picture.exists()
        True
    """
    where = "plot_learning_curve"
    picture = _figure(where, (_PIXELS[0] / _DPI, _PIXELS[1] / _DPI), _DPI, "white")
    durable.check_output_file(where, "path", path, [".png"])
    if target is not None:
        arguments.check_number(where, "target", target, -np.inf, np.inf)
    train, evaluation = _curves(metrics)
    axes = picture.add_subplot()
    _draw(axes, train, evaluation, target)
    axes.set_title(title, loc="left", color=_INK, fontsize=13, weight="bold", pad=12)
    y_label = "mean return per episode (sum of rewards)"
    axes.set_xlabel("environment steps", color=_GREY, fontsize=10)
    axes.set_ylabel(y_label, color=_GREY, fontsize=10)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,.10g}")
    _clean(axes, _RULE, "-")
    axes.tick_params(colors=_GREY, labelsize=9)
    axes.spines["left"].set_visible(False)
    axes.spines["bottom"].set_color(_GREY)
    axes.legend(fontsize=9, labelcolor=_INK, framealpha=0.9, edgecolor="none")
    _save(where, "path", picture, path, facecolor="white")


def _checked_curves(where: str, given: Any) -> list[mean_curve.MeanCurve]:
    kind, name = mean_curve.MeanCurve, "mean_curves"
    is_several = isinstance(given, Iterable) and not isinstance(given, kind)
    curves = list(given) if is_several else [given]
    if not curves:
        raise ValueError(f"`{where}`: `{name}` expected a curve at least; got none")
    for curve in curves:
        checks.check_type(where, name, curve, kind, "MeanCurves")
        fields = (curve.x, curve.y, curve.min_y, curve.max_y)
        shapes = [list(np.shape(field)) for field in fields if field is not None]
        size = shapes[0][0] if len(shapes) in (2, 4) and shapes[0] else 0
        if not size or any(shape != [size] for shape in shapes):
            raise ValueError(
                f"`{where}`: `{name}` expected x, y and, for a region, min_y and max_y "
                f"of equal length; got shapes {shapes} in {curve.name!r}"
            )
    return curves


def _check_numbers(where: str, pairs: Mapping[str, Any], **numbers: Any) -> None:
    for name, number in numbers.items():
        arguments.check_number(where, name, number, 0, np.inf)
    for name, pair in pairs.items():
        if pair is not None:
            ends = mean_curve.as_numbers(where, name, pair)
            if ends.shape != (2,) or not ends[0] < ends[1]:
                raise ValueError(
                    f"`{where}`: `{name}` expected (low, high) with low < high; got "
                    f"{checks.shown(pair)}"
                )


def _aligned(
    where: str, xs: list[np.ndarray], ends: tuple[float, float]
) -> list[np.ndarray]:
    least, greatest = min(x.min() for x in xs), max(x.max() for x in xs)
    if least == greatest:
        raise ValueError(
            f"`{where}`: `mean_curves` expected more than one x to scale; got "
            f"{least:g} only"
        )
    low, high = ends
    return [low + (x - least) / (greatest - least) * (high - low) for x in xs]


def _clean(axes: Any, grid_color: Any, grid_style: str) -> None:
    axes.grid(color=grid_color, linestyle=grid_style, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=0)
    axes.margins(x=0.01)


def _curves(
    metrics: str | os.PathLike[str] | Mapping[str, np.ndarray],
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns (steps, returns) of training and of evaluation, finite values only."""
    columns = metrics if isinstance(metrics, Mapping) else run_log.read_metrics(metrics)
    if "env_steps" not in columns:
        raise ValueError(
            "`plot_learning_curve`: `metrics` expected a column 'env_steps'; "
            f"got {list(columns)}"
        )
    steps = np.asarray(columns["env_steps"], np.float64)
    curves = []
    for name in RETURNS:
        returns = np.asarray(columns.get(name, np.full(len(steps), np.nan)), np.float64)
        if returns.shape != steps.shape:
            raise ValueError(
                f"`plot_learning_curve`: `metrics` expected {len(steps)} rows in {name}"
                f", as in env_steps; got {len(returns)}"
            )
        kept = np.isfinite(returns) & np.isfinite(steps)
        curves.append((steps[kept], returns[kept]))
    if not any(len(returns) for _, returns in curves):
        raise ValueError(
            "`plot_learning_curve`: `metrics` expected a finite 'train/return_mean' or "
            f"'eval/return_mean'; got none in {len(steps)} rows: no episode has ended"
        )
    return curves


def _draw(
    axes: Any,
    train: tuple[np.ndarray, np.ndarray],
    evaluation: tuple[np.ndarray, np.ndarray],
    target: float | None,
) -> None:
    steps, returns = train
    if len(steps):
        thin = {"color": _TRAIN, "linewidth": 0.7, "alpha": 0.35}
        axes.plot(steps, returns, **thin, label="training")
        axes.plot(
            steps,
            mean_curve.line_smooth(returns, len(returns) // 30 * 2 + 1),
            color=_TRAIN,
            linewidth=2.0,
            marker="o" if len(steps) == 1 else "",
            label="training, smoothed",
        )
    if len(evaluation[0]):
        axes.plot(
            *evaluation,
            color=_EVAL,
            linewidth=1.2,
            marker="o",
            markersize=5.5,
            markeredgecolor="white",
            markeredgewidth=0.8,
            label="evaluation",
        )
    if target is not None:
        axes.axhline(
            target,
            color=_TARGET,
            linewidth=1.3,
            linestyle=(0, (5, 4)),
            zorder=1.5,
            label=f"target {target:g}",
        )


def _figure(
    where: str, inches: tuple[float, float], dpi: float, background: str
) -> Any:
    """A figure that belongs to no window, and to nobody else."""
    figure = arguments.imported(where, "matplotlib.figure", "matplotlib", "plots")
    return figure.Figure(
        figsize=inches, dpi=dpi, layout="constrained", facecolor=background
    )


def _save(where: str, name: str, picture: Any, path: Any, **options: Any) -> None:
    data = io.BytesIO()
    kind = pathlib.Path(path).suffix.lower().removeprefix(".")
    picture.savefig(data, format=kind, **options)
    with durable.explain_refusals(where, name, path):
        durable.replace_file(path, data.getvalue())
