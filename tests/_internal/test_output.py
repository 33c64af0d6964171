"""Tests of `tfrl._internal.output`: what is said may be lost, a run may not."""

import os
import pathlib
import subprocess
import sys

import pytest

from tfrl import command
from tfrl._internal import output
from tfrl.saving import checkpoints

ROOT = pathlib.Path(__file__).parents[2]
CONFIG = str(ROOT / "configs" / "ppo_cartpole.gin")
SMALL = [
    *("train_rl.n_epochs = 60", "Trainer.total_env_steps = None"),
    *("Trainer.n_envs = 2", "Trajectories.n_steps = 8", "PPO.minibatch_size = 16"),
    *("Intervals.eval_episodes = 2", "make_vec.vectorization = 'sync'"),
]

# Says more than a stream keeps, on lines and by a bar, and ends as a command does.
SPEAKER = """
import atexit, sys
from tfrl import command
from tfrl._internal import output
from tfrl.experiments import seeds
from tfrl.summaries import progress
atexit.register(output.settle)
with progress.Progress(1000, description="ppo") as shown, seeds._Board([]) as board:
    for i in range(1, 1001):
        shown.update(i, 1.0)
        shown.say("a notice")
        board.say("a notice")
output.say("the end")
print("done", file=sys.stderr)
"""


def python(program, stdout, **options):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, *program], stdout=stdout, env=environment, **options
    )


def broken_pipe():
    """The end of a pipe from which nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "wb")


OPENED = {"full": lambda: open("/dev/full", "wb"), "broken": broken_pipe}


@pytest.mark.parametrize(
    "kind", [pytest.param("full", marks=pytest.mark.slow), "broken"]
)
def test_what_nobody_takes_is_lost_and_nothing_else(kind):
    with OPENED[kind]() as stdout:
        process = python(["-c", SPEAKER], stdout, stderr=subprocess.PIPE)
    err = process.communicate()[1].decode()
    assert process.returncode == 0 and "Error" not in err and err.endswith("done\n")


@pytest.mark.slow
@pytest.mark.parametrize("kind", OPENED)
def test_a_command_trains_to_the_end_without_a_reader(kind, tmp_path):
    flags = [f"--config={binding}" for binding in SMALL]
    program = ["-m", "tfrl", "train", CONFIG, *flags, f"--output_dir={tmp_path}"]
    with OPENED[kind]() as stdout:
        process = python(program, stdout, stderr=subprocess.PIPE)
    err = process.communicate()[1].decode()
    assert (process.returncode, err) == (0, "")
    assert checkpoints.list_steps(tmp_path)[-1] == 60 * 16
    assert (tmp_path / "policy").is_dir()


def test_seeds_are_trained_without_a_reader(tmp_path):
    program = tmp_path / "python"
    child = "print('seed_0  50%  1/2 steps', flush=True)"
    program.write_text(f"#!{sys.executable}\n{child}\n")
    program.chmod(0o755)
    caller = (
        f"import sys; sys.executable = {str(program)!r}; from tfrl import command; "
        "sys.exit(command.main())"
    )
    runs = tmp_path / "runs"
    argv = ["train", "a.gin", "--seeds=0-1", "--jobs=1", f"--output_dir={runs}"]
    with broken_pipe() as stdout:
        process = python(["-c", caller, *argv], stdout, stderr=subprocess.PIPE)
    err = process.communicate()[1].decode()
    assert (process.returncode, err) == (0, "")
    assert (runs / "seeds.json").read_text().count('"done"') == 2


def test_a_stream_is_looked_up_when_it_is_written_to(capsys, monkeypatch):
    output.say("half way")
    output.complain("wrong")
    assert capsys.readouterr() == ("half way\n", "wrong\n")
    assert output.STDOUT.encoding.lower() == "utf-8" and not output.STDOUT.isatty()
    monkeypatch.setattr(sys, "stdout", None)
    output.say("nobody hears this")
    assert not output.STDOUT.isatty()
    with pytest.raises(OSError, match="fileno"):
        output.STDOUT.fileno()


@pytest.mark.parametrize("argv", [["zoo"], ["check-env", "CartPole-v1", "--steps=20"]])
def test_commands_end_quietly_where_the_reader_has_left(argv):
    with broken_pipe() as stdout:
        process = python(["-m", "tfrl", *argv], stdout, stderr=subprocess.PIPE)
    err = process.communicate()[1].decode()
    assert process.returncode == 0 and "Broken pipe" not in err


def test_a_pipe_to_somebody_else_that_breaks_is_an_error(monkeypatch, capsys):
    def lost(*_):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(command, "_opened", lost)
    assert command.main(["evaluate", "run"]) == 2
    assert "tfrl evaluate: error: [Errno 32] Broken pipe" in capsys.readouterr().err
