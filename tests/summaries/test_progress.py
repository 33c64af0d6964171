"""Tests of the progress of a run on the terminal and in files."""

import io

import pytest
import rich.console

from tfrl.summaries import progress


class Clock:
    seconds = 100.0

    def __call__(self):
        return self.seconds


def console(terminal):
    return rich.console.Console(
        file=io.StringIO(),
        force_terminal=terminal,
        force_interactive=terminal,
        width=120,
        color_system=None,
    )


def run(clock, page, updates, total=1000, start=0):
    """Plays (seconds, env_steps, return) and returns the lines printed."""
    given = {"start_env_steps": start, "clock": clock, "console": page}
    with progress.Progress(total, description="ppo", **given) as shown:
        for seconds, env_steps, return_mean in updates:
            clock.seconds = 100.0 + seconds
            shown.update(env_steps, return_mean)
    return page.file.getvalue().splitlines()


def test_speed_and_remaining_time_by_hand():
    lines = run(
        Clock(), console(False), [(10, 100, 9.0), (20, 600, 20.26), (25, 1000, 500.0)]
    )
    assert lines == [
        "ppo   10%  100/1,000 steps  return 9.0  10 steps/s  ETA 0:01:30",
        "ppo   60%  600/1,000 steps  return 20.3  50 steps/s  ETA 0:00:08",
        "ppo  100%  1,000/1,000 steps  return 500.0  60 steps/s  ETA 0:00:00",
    ]


def test_resumed_steps_do_not_count_as_speed():
    lines = run(Clock(), console(False), [(10, 900, 1.0)], start=800)
    assert lines == ["ppo   90%  900/1,000 steps  return 1.0  10 steps/s  ETA 0:00:10"]


@pytest.mark.parametrize(
    ("seconds", "steps", "shown"),
    [
        (0.1, 20, [20, 1000]),  # quick: only the first and the last
        (5.0, 20, [20, 120, 220, 320, 420, 520, 620, 720, 820, 920, 1000]),
        (2.0, 100, [100, 400, 700, 1000]),
    ],
    ids=["quick", "ten_percent", "five_seconds"],
)
def test_lines_come_at_the_rarer_of_both_intervals(seconds, steps, shown):
    updates = [(seconds * i, steps * i, 0.0) for i in range(1, 1000 // steps + 1)]
    lines = run(Clock(), console(False), updates)
    assert [int(line.split()[2].split("/")[0].replace(",", "")) for line in lines] == (
        shown
    )


def test_last_line_of_an_interrupted_run_is_shown_once():
    lines = run(Clock(), console(False), [(1, 10, 1.0), (2, 20, 2.0), (3, 30, 3.0)])
    assert [line.split()[2] for line in lines] == ["10/1,000", "30/1,000"]
    page = console(False)
    with pytest.raises(KeyError):
        with progress.Progress(100, description="x", console=page) as shown:
            shown.update(10, 1.0)
            raise KeyError
    assert page.file.getvalue().count("10/100") == 1


def test_no_update_prints_nothing_and_no_time_is_no_speed():
    assert run(Clock(), console(False), []) == []
    (line,) = run(Clock(), console(False), [(0, 10, float("nan"))])
    assert line.endswith("10/1,000 steps  - steps/s  ETA -")  # nor a return


def test_say_prints_as_is():
    page = console(False)
    long = "[bold] at /a/very/long/path " * 8
    with progress.Progress(10, description="x", console=page) as shown:
        shown.say(long)
    assert page.file.getvalue() == long + "\n"


def test_bar_on_a_terminal():
    page, clock = console(True), Clock()
    with progress.Progress(
        1000, description="ppo [x]", clock=clock, console=page
    ) as shown:
        clock.seconds += 1
        shown.update(500, 77.0)
        drawn = page.file.getvalue()
        assert "ppo [x]" in drawn
        assert "500/1,000 steps  return 77.0  500 steps/s  ETA 0:00:01" in drawn
        clock.seconds += 0.1
        shown.update(510, 78.0)  # too soon to draw again
        assert page.file.getvalue() == drawn
        shown.say("a line above")
        clock.seconds += 0.1
        shown.update(520, 79.0)
    text = page.file.getvalue()
    assert "a line above" in text
    assert "520/1,000" in text[text.index("a line above") :]


def test_standard_output_by_default_and_bad_counts(capsys):
    with progress.Progress(10, description="ppo") as shown:
        shown.update(10, 1.0)
    assert capsys.readouterr().out.startswith("ppo  100%  10/10 steps")
    for total, start in ((0, 0), (10, -1), (10, 11)):
        with pytest.raises(ValueError, match=f"`Progress`: .*got {start} and {total}"):
            progress.Progress(total, description="x", start_env_steps=start)


def test_a_notebook_gets_plain_lines(monkeypatch, capsys):
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    with progress.Progress(1000, description="ppo", clock=Clock()) as shown:
        shown.update(1000, 1.0)
    assert capsys.readouterr().out == (
        "ppo  100%  1,000/1,000 steps  return 1.0  - steps/s  ETA -\n"
    )


def test_lines_in_a_notebook_whose_kernel_forces_colours(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-color")
    with progress.Progress(10, description="ppo") as shown:
        shown.update(5, 1.0)
        shown.update(10, 1.0)
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("ppo   50%") and last.startswith("ppo  100%")
