"""Schedules of rates, weights and temperatures over the progress of training.

Here are the schedules, and the record of how far training has come that they read when
they are called without an argument. What moves that record is in `tfrl.training`; a
transform of gradients that follows a schedule is in `tfrl.agents`; noise and
exploration that take a scheduled strength are in `tfrl.exploration`.
"""

from tfrl.schedules.annealing import (
    CosineScheduler,
    OneCycleScheduler,
    PolynomialScheduler,
)
from tfrl.schedules.joined import JoinedScheduler, WarmUpScheduler
from tfrl.schedules.progress import Progress, current_progress, progress_context
from tfrl.schedules.schedulers import (
    ConstantScheduler,
    CyclicalScheduler,
    ExponentialScheduler,
    LinearScheduler,
    Scheduler,
    StepScheduler,
    StepwiseLinearFunction,
    as_scheduler,
)

__all__ = [
    "ConstantScheduler",
    "CosineScheduler",
    "CyclicalScheduler",
    "ExponentialScheduler",
    "JoinedScheduler",
    "LinearScheduler",
    "OneCycleScheduler",
    "PolynomialScheduler",
    "Progress",
    "Scheduler",
    "StepScheduler",
    "StepwiseLinearFunction",
    "WarmUpScheduler",
    "as_scheduler",
    "current_progress",
    "progress_context",
]
