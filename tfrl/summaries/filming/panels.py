"""Charts of numbers, to stand beside the frames of a video."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfrl._internal import arguments, checks

_INK, _BAR, _DPI = "#1f2933", "#2f6fb3", 100


def render_bars(
    name: str,
    data: Any,
    labels: Sequence[str] | None = None,
    low: float | None = None,
    high: float | None = None,
    size: tuple[int, int] = (320, 200),
) -> Any:
    """Draws numbers as bars, such as the probabilities of actions.

    Args:
        name: title.
        data: `[n]` finite numbers, n >= 1.
        labels: one for each bar; None for their numbers from 0.
        low: lower end of the axis, None for what the data need. Give both ends to
            compare the frames of a video.
        high: upper end.
        size: width and height in pixels.

    Returns:
        A `PIL.Image.Image`.

    Raises:
        ImportError: if matplotlib or Pillow is missing (extras `plots` and `video`).
        ValueError: if `data` has another shape or is not finite, or there are not as
            many labels as bars.

    Example:
        >>> render_bars("action", [0.2, 0.8], ["left", "right"], 0.0, 1.0).size
        (320, 200)
    """
    values = _checked("render_bars", data, low, high, axes=1)
    if labels is not None:
        checks.check_type("render_bars", "labels", labels, Sequence, "a list of texts")
    if labels is not None and len(labels) != len(values):
        raise ValueError(
            f"`render_bars`: `labels` expected {len(values)} of them, one a bar; "
            f"got {len(labels)}"
        )
    figure, axes = _panel("render_bars", name, size)
    places = np.arange(len(values))
    axes.bar(places, values, color=_BAR)
    axes.set_xticks(places, labels=labels if labels is not None else places)
    axes.set_ylim(low, high)
    axes.spines[["top", "right"]].set_visible(False)
    return render_figure(figure)


def render_heatmap(
    name: str,
    data: Any,
    low: float | None = None,
    high: float | None = None,
    size: tuple[int, int] = (320, 240),
) -> Any:
    """Draws a matrix of numbers in colours, such as a critic over a grid of actions.

    Args:
        name: title.
        data: `[height, width]` finite numbers; the first row is the uppermost.
        low: number with the darkest colour, None for the least. Give both to compare
            the frames of a video.
        high: number with the brightest colour, None for the greatest.
        size: width and height in pixels.

    Returns:
        A `PIL.Image.Image`.

    Raises:
        ImportError: if matplotlib or Pillow is missing (extras `plots` and `video`).
        ValueError: if `data` has another shape or is not finite.

    Example:
        >>> render_heatmap("critic", np.eye(3)).size
        (320, 240)
    """
    values = _checked("render_heatmap", data, low, high, axes=2)
    figure, axes = _panel("render_heatmap", name, size)
    shown = axes.imshow(values, vmin=low, vmax=high, aspect="auto", cmap="viridis")
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True)
    bar = figure.colorbar(shown)
    bar.ax.tick_params(labelsize=8, labelcolor=_INK)
    return render_figure(figure)


def render_figure(figure: Any) -> Any:
    """Draws a figure of matplotlib at its own size.

    Args:
        figure: a `matplotlib.figure.Figure`.

    Returns:
        A `PIL.Image.Image` in RGB.

    Raises:
        ImportError: if matplotlib or Pillow is missing (extras `plots` and `video`).

    Example:
        >>> from matplotlib import figure
        >>> render_figure(figure.Figure(figsize=(2, 1), dpi=100)).size
        (200, 100)
    """
    where = "render_figure"
    backend = "matplotlib.backends.backend_agg"
    agg = arguments.imported(where, backend, "matplotlib", "plots")
    pillow = arguments.imported(where, "PIL.Image", "pillow", "video")
    canvas = agg.FigureCanvasAgg(figure)
    canvas.draw()
    return pillow.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def _panel(where: str, name: str, size: tuple[int, int]) -> tuple[Any, Any]:
    figure = arguments.imported(where, "matplotlib.figure", "matplotlib", "plots")
    width, height = checks.check_whole_numbers(where, "size", size, low=1)
    inches = width / _DPI, height / _DPI
    panel = figure.Figure(figsize=inches, dpi=_DPI, layout="constrained")
    axes = panel.add_subplot()
    axes.set_title(name, loc="left", fontsize=10, color=_INK)
    axes.tick_params(labelsize=8, labelcolor=_INK, length=0)
    return panel, axes


def _checked(where: str, data: Any, low: Any, high: Any, axes: int) -> np.ndarray:
    for name, end in {"low": low, "high": high}.items():
        if end is not None:
            arguments.check_number(where, name, end, -np.inf, np.inf)
    values = np.asarray(data)
    checks.check_rank(where, "data", values, exact=axes)
    checks.check_finite(where, "data", values)
    if not values.size:
        raise ValueError(
            f"`{where}`: `data` expected a number at least; got shape {values.shape}"
        )
    return values.astype(np.float64)
