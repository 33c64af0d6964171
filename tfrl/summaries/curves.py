"""Learning curves as pictures."""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfrl.summaries import run_log

_INK, _GREY, _RULE = "#1f2933", "#52606d", "#d9dee4"
_TRAIN, _EVAL, _TARGET = "#2f6fb3", "#d9602b", "#3f8f5b"
_PIXELS, _DPI = (1200, 750), 150


def plot_learning_curve(
    metrics: str | os.PathLike[str] | Mapping[str, np.ndarray],
    path: str | os.PathLike[str],
    *,
    title: str,
    target: float | None = None,
) -> None:
    """Draws the returns of a run over its environment steps, as a PNG.

    `train/return_mean` is a thin line with its running mean (over 1/15 of them)
    on top, `eval/return_mean` are points joined by a line. Rows in which one of them
    is missing or not finite are left out of it. The picture appears complete or not at
    all, and replaces an older one.

    Args:
        metrics: a `metrics.csv`, or its columns as `read_metrics` returns them.
        path: where the picture goes, `....png`; the folder must exist.
        title: written above.
        target: a return to reach, drawn as a dashed line; None for none.

    Raises:
        ImportError: if matplotlib is missing (extra `tfrl[plots]`).
        ValueError: if there is no finite return to draw, the column `env_steps` is
            missing or `path` does not end in `.png`.

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
    try:
        from matplotlib import figure  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(
            "`plot_learning_curve`: expected matplotlib; found none; "
            "run: pip install 'tfrl[plots]'"
        ) from error
    path = pathlib.Path(path)
    if path.suffix.lower() != ".png":
        raise ValueError(
            f"`plot_learning_curve`: `path` expected to end in .png; got {path}; "
            "rename it"
        )
    train, evaluation = _curves(metrics)
    picture = figure.Figure(
        figsize=(_PIXELS[0] / _DPI, _PIXELS[1] / _DPI),
        dpi=_DPI,
        layout="constrained",
        facecolor="white",
    )
    axes = picture.add_subplot()
    _draw(axes, train, evaluation, target)
    axes.set_title(title, loc="left", color=_INK, fontsize=13, weight="bold", pad=12)
    axes.set_xlabel("environment steps", color=_GREY, fontsize=10)
    axes.set_ylabel(
        "mean return per episode (sum of rewards)", color=_GREY, fontsize=10
    )
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,.10g}")
    axes.tick_params(colors=_GREY, labelsize=9, length=0)
    axes.grid(color=_RULE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(_GREY)
    axes.margins(x=0.01)
    axes.legend(fontsize=9, labelcolor=_INK, framealpha=0.9, edgecolor="none")
    _save(picture, path)


def _curves(
    metrics: str | os.PathLike[str] | Mapping[str, np.ndarray],
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns (steps, returns) of training and of evaluation, finite values only."""
    columns = metrics if isinstance(metrics, Mapping) else run_log.read_metrics(metrics)
    if "env_steps" not in columns:
        raise ValueError(
            "`plot_learning_curve`: `metrics` expected a column 'env_steps'; "
            f"got {list(columns)}; give the metrics.csv of a run"
        )
    steps = np.asarray(columns["env_steps"], np.float64)
    curves = []
    for name in ("train/return_mean", "eval/return_mean"):
        returns = np.asarray(columns.get(name, np.full(len(steps), np.nan)), np.float64)
        kept = np.isfinite(returns) & np.isfinite(steps)
        curves.append((steps[kept], returns[kept]))
    if not any(len(returns) for _, returns in curves):
        raise ValueError(
            "`plot_learning_curve`: `metrics` expected a finite 'train/return_mean' or "
            f"'eval/return_mean'; got none in {len(steps)} rows; "
            "run until an episode has ended"
        )
    return curves


def _running_mean(values: np.ndarray, width: int) -> np.ndarray:
    """Returns the mean over a centred window, cut off at both ends."""
    sums = np.concatenate([[0.0], np.cumsum(values - values[0])])
    centre = np.arange(len(values))
    low = np.maximum(centre - width // 2, 0)
    high = np.minimum(centre + width // 2 + 1, len(values))
    return values[0] + (sums[high] - sums[low]) / (high - low)


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
            _running_mean(returns, len(returns) // 15),
            color=_TRAIN,
            linewidth=2.0,
            marker="o" if len(steps) == 1 else "",
            label="training, running mean",
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


def _save(picture: Any, path: pathlib.Path) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        picture.savefig(temporary, format="png")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
