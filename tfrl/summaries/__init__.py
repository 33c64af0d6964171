"""Logs, TensorBoard summaries, plots and videos of runs.

Here is what people look at: the `metrics.csv` of a run (which the trainers write by
`run_log.RunLog`), learning curves, videos; and the scalars, histograms, gradients and
times that go to `tf.summary`, computed only where they are recorded. Not here: running
averages (`tfrl.stats`), the loop that produces the numbers and the checkpoints
(`tfrl.training`).
"""

from typing import TYPE_CHECKING

from tfrl._internal import lazy_doors
from tfrl.summaries.filming.panels import render_bars, render_heatmap
from tfrl.summaries.filming.video import generate_gif, record_episode, render_episode
from tfrl.summaries.filming.video_recorder import VideoRecorder
from tfrl.summaries.improvement import probability_of_improvement
from tfrl.summaries.logs import (
    enable_logging,
    info,
    info_once,
    log_metrics,
    warning,
    warning_once,
)
from tfrl.summaries.plotting.curves import CurvesPlotter, plot_learning_curve
from tfrl.summaries.plotting.mean_curve import (
    MeanCurve,
    ema_smooth,
    interquartile_mean,
)
from tfrl.summaries.plotting.readers import (
    EnvironmentStepsReturnReader,
    EnvironmentStepsSuccessReader,
    IterationsReturnReader,
    IterationsSuccessReader,
    MeanCurveGroupReader,
    MeanCurveReader,
)
from tfrl.summaries.run_log import read_metrics
from tfrl.summaries.scalars import (
    add_mean_hist_summary,
    add_mean_summary,
    add_nested_summaries,
    run_under_record_context,
    safe_mean_hist_summary,
    safe_mean_summary,
    summarize_loss,
    summarize_nest,
    summarize_per_category_loss,
)
from tfrl.summaries.timing import record_time
from tfrl.summaries.visualizer import critic_network_visualizer

if TYPE_CHECKING:
    from tfrl.summaries.gradients import (
        summarize_distribution_gradient,
        summarize_gradients,
        summarize_tensor_gradients,
        summarize_variables,
    )
    from tfrl.summaries.histograms import (
        histogram_continuous,
        histogram_discrete,
        summarize_action,
        summarize_distribution,
    )

__all__ = [
    "CurvesPlotter",
    "EnvironmentStepsReturnReader",
    "EnvironmentStepsSuccessReader",
    "IterationsReturnReader",
    "IterationsSuccessReader",
    "MeanCurve",
    "MeanCurveGroupReader",
    "MeanCurveReader",
    "VideoRecorder",
    "add_mean_hist_summary",
    "add_mean_summary",
    "add_nested_summaries",
    "critic_network_visualizer",
    "ema_smooth",
    "enable_logging",
    "generate_gif",
    "histogram_continuous",
    "histogram_discrete",
    "info",
    "info_once",
    "interquartile_mean",
    "log_metrics",
    "plot_learning_curve",
    "probability_of_improvement",
    "read_metrics",
    "record_episode",
    "record_time",
    "render_bars",
    "render_episode",
    "render_heatmap",
    "run_under_record_context",
    "safe_mean_hist_summary",
    "safe_mean_summary",
    "summarize_action",
    "summarize_distribution",
    "summarize_distribution_gradient",
    "summarize_gradients",
    "summarize_loss",
    "summarize_nest",
    "summarize_per_category_loss",
    "summarize_tensor_gradients",
    "summarize_variables",
    "warning",
    "warning_once",
]
_LAZY = ("gradients", "histograms")  # they load TensorFlow Probability
__getattr__, __dir__ = lazy_doors.door(__name__, __all__, _LAZY)
