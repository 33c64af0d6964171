"""How often a run reports, is evaluated and saved."""

import dataclasses

from tfrl._internal import checks


@dataclasses.dataclass(frozen=True)
class Intervals:
    """How often a `Trainer` reports, evaluates and saves, in epochs.

    Attributes:
        log_epochs: epochs between rows of `metrics.csv`.
        eval_epochs: epochs between evaluations; None for the final one alone.
        eval_episodes: greedy episodes per evaluation.
        checkpoint_epochs: epochs between checkpoints.
        checkpoints_kept: number of newest checkpoints that stay on disk.

    Example:
        >>> Intervals(log_epochs=1).checkpoints_kept
        3
    """

    log_epochs: int = 10
    eval_epochs: int | None = None
    eval_episodes: int = 20
    checkpoint_epochs: int = 100
    checkpoints_kept: int = 3

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if value is not None:
                checks.check_whole_number("Intervals", name, value, low=1)
