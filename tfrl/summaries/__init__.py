"""What is shown of a run: its numbers on disk, its progress, its curves.

Here is what human eyes look at: the log of a run (`metrics.csv` and TensorBoard), the
bar on the terminal, the pictures, still or moving. Not here: running averages
(`tfrl.stats`), the loop that produces the numbers and the checkpoints
(`tfrl.training`).
"""

from tfrl.summaries.curves import plot_learning_curve
from tfrl.summaries.progress import Progress
from tfrl.summaries.run_log import RunLog, read_metrics
from tfrl.summaries.video import generate_gif, render_episode

__all__ = [
    "Progress",
    "RunLog",
    "generate_gif",
    "plot_learning_curve",
    "read_metrics",
    "render_episode",
]
