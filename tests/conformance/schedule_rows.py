"""Rows of the schedules, as functions of a tensor of progress."""

from conformance.battery import Row, between
from conformance.inputs import uniform

from tfrl import schedules

PAIRS = [(5, 1.3), (10, 0.7), (20, 0.1)]


def row(name, schedule, kinks, **changes):
    return Row(
        name=f"schedules.{name}",
        call=lambda progress: schedule(progress),
        make=uniform(0.0, 25.0, progress=["B", 2]),
        differentiable=("progress",),
        kinks={"progress": kinks},
        extremes={"progress": between(0.0, 1e30)},
        **changes,
    )


class Harmonic(schedules.Scheduler):
    def value_at(self, progress):
        return 1.0 / (1.0 + progress)


ROWS = (
    row("Scheduler", Harmonic("iterations"), ()),
    row(
        "StepScheduler",
        schedules.StepScheduler("env_steps", PAIRS, warm_up_period=3, start=1),
        (1, 4, 5, 10, 20),
    ),
    row(
        "LinearScheduler",
        schedules.LinearScheduler("iterations", [(0, 0.2), *PAIRS]),
        (0, 5, 10, 20),
    ),
    row(
        "ExponentialScheduler",
        schedules.ExponentialScheduler("iterations", 0.7, 0.3, 10),
        (),
        rounding=16,  # of the exponent
    ),
    row(
        "CyclicalScheduler",
        schedules.CyclicalScheduler("iterations", 0.1, 0.7, 3, "linear"),
        (0, 3, 6, 9, 12, 15, 18, 21, 24),
        rounding=16,  # of the phase
    ),
    row(
        "CosineScheduler",
        schedules.CosineScheduler("iterations", 1.3, 15.0, 0.1),
        (0, 15),
        rounding=16,  # of the angle
    ),
    row(
        "PolynomialScheduler",
        schedules.PolynomialScheduler("iterations", 1.3, 0.1, 2.5, 15.0, 3.0),
        (3, 18),
        rounding=32,  # of what is left, to a power
    ),
    row(
        "OneCycleScheduler",
        schedules.OneCycleScheduler("iterations", 1.3, 20.0, 0.3, 4.0, 10.0),
        (0, 6, 20),
        rounding=32,  # of the angle
    ),
    row(
        "JoinedScheduler",
        schedules.JoinedScheduler(
            "iterations",
            [
                (0, 0.3),
                (5, schedules.ExponentialScheduler("iterations", 0.7, 0.3, 10)),
                (20, schedules.LinearScheduler("iterations", [(0, 0.7), (3, 0.1)])),
            ],
        ),
        (5, 20, 23),
        rounding=16,  # of the exponent
    ),
    row(
        "WarmUpScheduler",
        schedules.WarmUpScheduler(
            "iterations", 5, schedules.CosineScheduler("iterations", 1.3, 15.0), 0.1
        ),
        (5, 20),
        rounding=32,  # of the angle
    ),
    row(
        "StepwiseLinearFunction",
        schedules.StepwiseLinearFunction((2, 1.3), (10, 0.7), (20, 0.1)),
        (2, 10, 20),
        rounding=8,
    ),
)
