"""The progress of a run on the terminal."""

import datetime
import math
import time
from collections.abc import Callable
from typing import Self

import rich.console
import rich.progress
import rich.text

from tfrl._internal import output

# Seconds from one showing to the next, and what part of the run.
_BAR_PACE, _LINE_PACE = (0.25, 0.0), (5.0, 0.1)


class Progress:
    """Shows progress, last mean return, speed and remaining time of a run.

    On a terminal this is a bar under the description, redrawn at most four times a
    second and only by `update`, without a thread of its own. Elsewhere (a file, a
    pipe, a notebook) it is plain lines: the first update, the last one, and in between
    one when both 5 seconds and 10 % of the run have passed since the line before.

        steps_per_second = (env_steps - first_env_steps) / (now - first_time)
        remaining        = (total_env_steps - env_steps) / steps_per_second

    `first` is the first update, so that what a run does once before (compilation)
    does not count; the first update itself is measured from the entry of the context
    and `start_env_steps`.

    What standard output does not take (its reader is gone, its disk is full) is lost,
    and nothing else comes of it.

    Args:
        total_env_steps: environment steps at the end of the run.
        description: what is running, for example `ppo CartPole-v1`.
        start_env_steps: steps done by earlier processes of the run; no speed comes
            from them.
        clock: seconds from any origin, never decreasing.
        console: where to print; None takes standard output.

    Raises:
        ValueError: if `start_env_steps` is not in [0, total_env_steps] or
            `total_env_steps` not positive.

    Example:
        >>> with Progress(1000, description="ppo CartPole-v1") as progress:
        ...     progress.update(500, 21.5)
        ...     progress.say("half way")
        ppo CartPole-v1  50%  500/1,000 steps  return 21.5 ... steps/s  ETA 0:00:...
        half way
    """

    def __init__(
        self,
        total_env_steps: int,
        *,
        description: str,
        start_env_steps: int = 0,
        clock: Callable[[], float] = time.monotonic,
        console: rich.console.Console | None = None,
    ) -> None:
        if total_env_steps < 1 or not 0 <= start_env_steps <= total_env_steps:
            raise ValueError(
                "`Progress`: `start_env_steps` and `total_env_steps` expected "
                "0 <= start <= total and 1 <= total; "
                f"got {start_env_steps} and {total_env_steps}"
            )
        self._total = total_env_steps
        self._description = description
        self._clock = clock
        self._console = console or _console_of_standard_output()
        self._start = (clock(), start_env_steps)
        self._first: tuple[float, int] | None = None
        self._line = ""
        self._shown_line = ""
        self._shown_at = (-float("inf"), -total_env_steps)
        self._bar: rich.progress.Progress | None = None
        if self._console.is_interactive:
            self._bar = rich.progress.Progress(
                rich.progress.BarColumn(max(8, min(40, self._console.width - 68))),
                rich.progress.TextColumn("{task.fields[report]}", markup=False),
                console=self._console,
                auto_refresh=False,
            )
            self._task = self._bar.add_task(
                description, total=total_env_steps, completed=start_env_steps, report=""
            )

    def update(self, env_steps: int, return_mean: float) -> None:
        """Tells how far the run is; prints only when it is time to.

        Args:
            env_steps: environment steps of the whole run so far.
            return_mean: mean return of the last episodes; nan where there is none,
                which is not shown.
        """
        now = self._clock()
        report = self._report(now, env_steps, return_mean)
        self._line = f"{self._description}  {report}"
        seconds, steps = now - self._shown_at[0], env_steps - self._shown_at[1]
        done = env_steps >= self._total
        wait, share = _BAR_PACE if self._bar is not None else _LINE_PACE
        due = done or (seconds >= wait and steps >= share * self._total)
        if self._bar is not None:
            self._bar.update(
                self._task, completed=env_steps, report=report, refresh=due
            )
        elif due:
            self._show_line()
        if due:
            self._shown_at = (now, env_steps)

    def say(self, text: str) -> None:
        """Prints a line, above the bar if there is one.

        Args:
            text: printed as it is.
        """
        self._console.print(rich.text.Text(text), soft_wrap=True)

    def __enter__(self) -> Self:
        self._start = (self._clock(), self._start[1])
        if self._bar is not None:
            self.say(self._description)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.refresh()
            self._bar.stop()
        elif self._line != self._shown_line:
            self._show_line()

    def _show_line(self) -> None:
        self.say(self._line)
        self._shown_line = self._line

    def _report(self, now: float, env_steps: int, return_mean: float) -> str:
        since = self._start if self._first is None else self._first
        if self._first is None:
            self._first = (now, env_steps)
        seconds, steps = now - since[0], env_steps - since[1]
        speed, remaining = "-", "-"
        if seconds > 0 and steps > 0:
            rate = steps / seconds
            left = max(self._total - env_steps, 0) / rate
            speed = f"{rate:,.0f}"
            remaining = str(datetime.timedelta(seconds=round(left)))
        known = "" if math.isnan(return_mean) else f"return {return_mean:.1f}  "
        return (
            f"{env_steps / self._total:4.0%}  {env_steps:,}/{self._total:,} steps  "
            f"{known}{speed} steps/s  ETA {remaining}"
        )


def _console_of_standard_output() -> rich.console.Console:
    # In a notebook, Rich would frame each line by empty ones, and, as kernels set
    # FORCE_COLOR, draw a bar, of which longer lines leave their ends.
    return rich.console.Console(
        file=output.STDOUT,  # type: ignore[arg-type]
        force_jupyter=False,
        force_interactive=None if output.STDOUT.isatty() else False,
    )
