"""Tests of `tfrl.experiments.seeds`: `tfrl train --seeds` by small processes."""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tfrl import command
from tfrl._internal import durable
from tfrl.experiments import _run_folders, _seed_process, seeds

ROOT = pathlib.Path(__file__).parents[2]
CONFIG = str(ROOT / "configs" / "ppo_cartpole.gin")

# Stands for a process that trains: it says, saves and ends as its seed asks for.
CHILD = """
import pathlib, signal, sys, time
given = dict(x.removeprefix("--").split("=", 1) for x in sys.argv[1:] if "=" in x)
run = pathlib.Path(given["output_dir"])
seed = int(given["config"].split("=")[1])
run.mkdir(exist_ok=True)
was = (run / "was").read_text() if (run / "was").exists() else ""
(run / "was").write_text(was + " ".join(sys.argv[3:]) + chr(10))
print(f"{run.name}  50%  50/100 steps  return 1.0", flush=True)
settings = [x for x in sys.argv[1:] if x.endswith(".gin") or "gamma" in x]
if "--resume" not in sys.argv:
    (run / "settings").write_text(" ".join(settings))
elif settings and (run / "settings").read_text() != " ".join(settings):
    if "--override" not in sys.argv:
        time.sleep(0.3)
        sys.exit(print(f"tfrl.rl_trainer: error: got {settings}", flush=True) or 2)
if seed == 7:
    sys.exit("tfrl.rl_trainer: error: seven is unlucky")
def stop(*_):
    (run / "checkpoints" / "step-50").mkdir(parents=True)
    sys.exit(130)
signal.signal(signal.SIGINT, stop)
signal.signal(signal.SIGHUP, stop)
if seed == 9:
    print("tfrl.rl_trainer: error: `parse`: 9 is odd", file=sys.stderr)
    sys.exit(2)
if seed == 5:
    (run / "run.json").write_text(was)
    (run / "checkpoints" / "step-10").mkdir(parents=True, exist_ok=True)
    print("tfrl.rl_trainer: error: `Trainer`: the reward is NaN", file=sys.stderr)
    sys.exit(2)
if seed == 3 and not (run / "waits").exists():
    (run / "waits").touch()
    time.sleep(60)
(run / "checkpoints" / "step-100").mkdir(parents=True, exist_ok=True)
(run / "metrics.csv").write_text("env_steps,eval/return_mean\\n100,5.0\\n")
"""


@pytest.fixture
def standing_in(tmp_path, monkeypatch):
    """Has a small program in place of Python stand for the processes that train."""
    program = tmp_path / "python"
    program.write_text(f"#!{sys.executable}\n{CHILD}")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    return tmp_path / "runs"


def call(*argv):
    return command.main(["train", *map(str, argv)])


def test_a_run_of_each_seed(standing_in, capsys):
    flags = [f"--output_dir={standing_in}", "--config=PPO.gamma = 0.5", "--jobs=2"]
    assert call("a.gin", "--seeds", "0-2", *flags) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("  50%  50/100 steps" in line for line in lines) == 3
    assert sum("done, final evaluation 5.0" in line for line in lines) == 3
    record = json.loads((standing_in / "seeds.json").read_text())
    assert record["train"] == ["a.gin", "--config=PPO.gamma = 0.5"]
    assert [x["status"] for x in record["seeds"].values()] == ["done"] * 3
    assert all(x["cpu_seconds"] > 0 for x in record["seeds"].values())
    said = (standing_in / "seed_1" / "was").read_text()
    assert said.startswith("a.gin --config=PPO.gamma = 0.5 --config=train_rl.seed = 1 ")
    assert [x.name for x in _run_folders.runs_in("plot", standing_in)] == [
        *("seed_0", "seed_1", "seed_2")
    ]
    assert _run_folders.cpu_seconds_of([standing_in]) > 0


def test_one_that_fails_is_named_and_done_again(standing_in, capsys):
    assert call("a.gin", "--seeds=0,7,10", f"--output_dir={standing_in}") == 1
    out, err = capsys.readouterr()
    assert f"seed_7: failed with 1, see {standing_in}/seed_7.log: tfrl.rl_tra" in out
    assert err == "tfrl train: error: failed: seed 7\n"
    assert call("--resume", f"--output_dir={standing_in}") == 1
    out, err = capsys.readouterr()
    assert "seed_0" not in out and "seven is unlucky" in out
    assert (standing_in / "seed_0" / "was").read_text().count("\n") == 1
    # Nothing was saved: it starts anew, as it was asked for at first.
    assert (standing_in / "seed_7" / "was").read_text().count("a.gin") == 2


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_ends_all_and_is_gone_on_with(standing_in, tmp_path, number):
    # A shell's own handler stays; the signal comes to a process of its own.
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
        f"from tfrl import command; sys.executable = {str(tmp_path / 'python')!r}; "
        "sys.exit(command.main(sys.argv[1:]))"
    )
    interpreter = pathlib.Path(os.path.realpath("/proc/self/exe"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = ["train", "a.gin", "--seeds=3,0", "--jobs=1", f"--output_dir={standing_in}"]
    process = subprocess.Popen(
        [interpreter, "-c", program, *argv], stdout=subprocess.PIPE, env=environment
    )
    while not (standing_in / "seed_3" / "waits").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    out = process.communicate()[0].decode()
    assert process.returncode == 130
    assert "seed_3: interrupted" in out
    assert re.search("0 of 2 done; resume with: tfrl train .* --resume\n", out)
    assert call("--resume", f"--output_dir={standing_in}") == 0
    said = (standing_in / "seed_3" / "was").read_text().splitlines()
    # The one that SIGTERM ends saves nothing.
    assert said[1].startswith("--resume" if number != signal.SIGTERM else "a.gin")


def test_one_that_still_runs_elsewhere_is_told_and_left_alone(standing_in, capsys):
    flags = ["--resume", f"--output_dir={standing_in}"]
    assert call("a.gin", "--seeds=7,0", f"--output_dir={standing_in}") == 1
    with open(standing_in / "seed_7" / "run.lock", "ab+") as lock:
        durable.lock_file(lock.fileno())
        lock.write(b"pid 17 on moon\n")
        lock.flush()
        capsys.readouterr()
        assert call(*flags) == 1
    out, err = capsys.readouterr()
    assert out == "seed_7: still running, by pid 17 on moon\n"
    assert err == (
        "tfrl train: error: still running in another process; resume when it has "
        "ended: seed 7\n"
    )
    assert statuses(standing_in) == {7: "running", 0: "done"}
    assert (standing_in / "seed_7" / "was").read_text().count("\n") == 1
    assert call(*flags) == 1
    assert (standing_in / "seed_7" / "was").read_text().count("\n") == 2


def test_the_commands_that_are_told_can_be_pasted(standing_in, capsys):
    folder = standing_in / "a b"
    assert call("a.gin", "--seeds=0", f"--output_dir={folder}") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    told = shlex.split(last.partition("draw them: ")[2].partition(";")[0])
    assert told == ["tfrl", "plot", str(folder)]


# Begins a process that trains; is killed before it ends.
PARENT = """
import os, pathlib, signal, sys, time
from tfrl.experiments import _seed_process
sys.executable = sys.argv[1]
seed = _seed_process.SeedProcess(0, pathlib.Path(sys.argv[2]), {})
seed.start([], [], 1)
while not (seed.run / "ready").exists():
    time.sleep(0.02)
os.kill(os.getpid(), signal.SIGKILL)
"""
ORPHAN = """
import pathlib, signal, sys, time
from tfrl._internal import parents
parents.watch()
run = pathlib.Path(sys.argv[-1].partition("=")[2])
run.mkdir(exist_ok=True)
ended = []
def stop(number, _):
    signal.signal(number, signal.SIG_DFL)
    ended.append(signal.Signals(number).name)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, stop)
if "asked" in sys.argv[0]:
    signal.raise_signal(signal.SIGTERM)
try:
    input()
except EOFError:
    ended.append("no input")
before = len(ended)
(run / "ready").touch()
for _ in range(1000):
    if len(ended) == before:
        time.sleep(0.02)
(run / "part").write_text(" ".join(ended))
(run / "part").rename(run / "ended")
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [("python", "no input SIGTERM"), ("asked", "SIGTERM no input SIGINT")],
)
def test_a_process_ends_with_the_one_that_was_killed(tmp_path, name, expected):
    program = tmp_path / name
    program.write_text(f"#!{sys.executable}\n{ORPHAN}")
    program.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command_line = [sys.executable, "-c", PARENT, str(program), str(tmp_path)]
    assert subprocess.run(command_line, env=environment).returncode == -signal.SIGKILL
    end = time.monotonic() + 20
    while not (ended := tmp_path / "seed_0" / "ended").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    assert ended.read_text() == expected


def test_bad_input_is_one_line_and_leaves_nothing(standing_in, capsys):
    flags = ["--seeds=9,1", "--jobs=1", f"--output_dir={standing_in}"]
    assert call("a.gin", *flags) == 2
    out, err = capsys.readouterr()
    assert err == "tfrl train: error: `parse`: 9 is odd (seed 9)\n"
    assert [path.name for path in standing_in.iterdir()] == ["seed_9"]


def statuses(folder):
    record = json.loads((folder / "seeds.json").read_text())
    return {int(seed): each["status"] for seed, each in record["seeds"].items()}


def test_a_run_that_breaks_off_stops_no_other(standing_in, capsys):
    flags = ["--jobs=1", f"--output_dir={standing_in}"]
    assert call("a.gin", "--seeds=5,0", *flags) == 1
    out, err = capsys.readouterr()
    assert err == "tfrl train: error: failed: seed 5\n"
    assert f"seed_5: failed with 2, see {standing_in}/seed_5.log: tfrl.rl_tr" in out
    assert statuses(standing_in) == {5: "failed", 0: "done"}
    # New ones come before those that failed.
    assert call("--resume", "--seeds=5,1", *flags) == 1
    out, err = capsys.readouterr()
    assert out.index("seed_1: done") < out.index("seed_5: failed")
    said = (standing_in / "seed_5" / "was").read_text().splitlines()
    assert said[1].startswith("--resume") and err.endswith("failed: seed 5\n")


def test_nothing_is_deleted_of_runs(standing_in, capsys):
    flags = ["--jobs=1", f"--output_dir={standing_in}"]
    assert call("a.gin", "--seeds=5", *flags) == 1
    assert (standing_in / "seed_5.log").exists()
    assert statuses(standing_in) == {5: "failed"}
    # What suited one is refused by another for reasons of its own.
    assert call("--resume", "--seeds=9,0", *flags) == 1
    out, err = capsys.readouterr()
    assert err.endswith("error: failed: seed 5, 9\n") and "9 is odd" in out
    assert statuses(standing_in) == {5: "failed", 9: "failed", 0: "done"}


def test_new_settings_that_are_refused_stop_all_and_leave_what_there_is(
    standing_in, capsys
):
    flags = ["--jobs=1", f"--output_dir={standing_in}"]
    assert call("a.gin", "--seeds=0", *flags) == 0
    assert call("a.gin", "--resume", "--seeds=9,1", *flags) == 2
    assert capsys.readouterr().err.endswith("error: `parse`: 9 is odd (seed 9)\n")
    assert statuses(standing_in) == {0: "done", 9: "failed", 1: "waiting"}
    assert (standing_in / "seed_9.log").exists()
    assert _run_folders.read_record(standing_in)["train"] == ["a.gin"]


def was(folder, seed):
    """What the processes of a seed were given, one a line."""
    return (folder / f"seed_{seed}" / "was").read_text().splitlines()


@pytest.mark.parametrize("given", [["b.gin"], ["--config=PPO.gamma = 0.5"]])
def test_other_settings_are_refused_before_a_run_begins(standing_in, capsys, given):
    flags = [f"--output_dir={standing_in}"]
    assert call("a.gin", "--seeds=0,1", *flags) == 0
    before = _run_folders.read_record(standing_in)["seeds"]
    capsys.readouterr()
    assert call(*given, "--resume", "--seeds=2,1", "--jobs=3", *flags) == 2
    assert re.fullmatch(
        rf"tfrl train: error: got \['{given[0]}'\] \(seed 0\)\n",
        capsys.readouterr().err,
    )
    assert not (standing_in / "seed_2").exists()
    assert statuses(standing_in) == {0: "done", 1: "done", 2: "waiting"}
    assert _run_folders.read_record(standing_in)["seeds"].items() >= before.items()
    assert _run_folders.read_record(standing_in)["train"] == ["a.gin"]
    assert call("--resume", *flags) == 0  # with seed 2, as the others
    assert statuses(standing_in) == {0: "done", 1: "done", 2: "done"}
    assert len(was(standing_in, 0)) == 2 and "a.gin" in was(standing_in, 2)[0]
    assert call(*given, "--override", "--resume", *flags) == 0
    assert [len(was(standing_in, seed)) for seed in range(3)] == [3, 3, 2]


def test_the_same_settings_leave_alone_what_is_done(standing_in, capsys):
    flags = [f"--output_dir={standing_in}", "--auto_resume", "--seeds=0,1"]
    given = ["--config=A.b = 1", "--config=A.c=2", "--config=A.b = 3"]
    assert call("a.gin", *given, *flags) == 0
    assert "already" not in capsys.readouterr().out
    more = ["--jobs=1", "--log_level=error"]
    assert call("a.gin", given[2], given[1], *more, *flags) == 0
    assert "2 runs are in" in (out := capsys.readouterr().out)
    assert f"in {standing_in} (already done: seed 0, 1); draw" in out
    assert call("--resume", flags[0]) == 0
    assert call("a.gin", *given, *flags, "--seeds=2") == 0
    assert "3 runs are in" in (out := capsys.readouterr().out)
    assert "(already done: seed 0, 1)" in out
    assert [len(was(standing_in, seed)) for seed in range(3)] == [1, 1, 1]


def test_a_configuration_that_was_edited_is_another_one(standing_in, tmp_path):
    config, flags = tmp_path / "c.gin", [f"--output_dir={standing_in}"]
    config.write_text("A.b = 1")
    assert call(config, "--seeds=0", *flags) == 0
    config.write_text("A.b = 2")
    assert call("--resume", *flags) == 0  # reads none
    assert len(was(standing_in, 0)) == 1
    assert call("--resume", "--seeds=1", *flags) == 0
    assert was(standing_in, 0)[1].startswith(f"{config} --resume ")
    assert call(config, "--resume", *flags) == 0
    assert len(was(standing_in, 0)) == 2


def test_what_a_configuration_includes_is_a_part_of_it(standing_in, tmp_path):
    config, flags = tmp_path / "c.gin", [f"--output_dir={standing_in}"]
    config.write_text("A.b = 1\ninclude 'more/base.gin'\n")
    (tmp_path / "more").mkdir()
    base, deep = tmp_path / "more" / "base.gin", tmp_path / "more" / "deep.gin"
    base.write_text("include 'deep.gin'\nA.c = 1\n")
    deep.write_text("A.d = 1\n")
    assert call(config, "--seeds=0", *flags) == 0
    assert call(config, "--resume", *flags) == 0
    assert len(was(standing_in, 0)) == 1
    deep.write_text("A.d = 2\n")
    assert call(config, "--resume", *flags) == 0
    assert len(was(standing_in, 0)) == 2


def test_who_did_not_reach_other_settings_does_so_later(standing_in):
    flags = [f"--output_dir={standing_in}"]
    longer = "--config=Trainer.total_env_steps = 9"
    assert call("a.gin", "--seeds=0,1", *flags) == 0
    with open(standing_in / "seed_1" / "run.lock", "ab+") as lock:
        durable.lock_file(lock.fileno())
        assert call("a.gin", longer, "--resume", *flags) == 1
    assert statuses(standing_in) == {0: "done", 1: "running"}
    assert call("--resume", *flags) == 0
    assert was(standing_in, 1)[1].startswith(f"a.gin {longer} --resume ")
    assert len(was(standing_in, 0)) == 2
    assert _run_folders.read_record(standing_in)["behind"] == []


def test_a_run_that_others_go_on_with_takes_over_no_settings(standing_in, monkeypatch):
    flags = ["--jobs=1", f"--output_dir={standing_in}"]
    assert call("a.gin", "--seeds=0", *flags) == 0
    look = _seed_process.SeedProcess.holder

    def written_meanwhile(self):
        with open(self.run / "metrics.csv", "ab") as metrics:
            metrics.write(b"200,6.0\n")
        return look(self)

    monkeypatch.setattr(_seed_process.SeedProcess, "holder", written_meanwhile)
    with open(standing_in / "seed_0" / "run.lock", "ab+") as lock:
        durable.lock_file(lock.fileno())
        assert call("b.gin", "--resume", "--seeds=1", *flags) == 1
    assert _run_folders.read_record(standing_in)["train"] == ["a.gin"]
    assert statuses(standing_in) == {0: "done", 1: "waiting"}
    assert not (standing_in / "seed_1").exists()


def test_a_run_without_a_checkpoint_is_not_done(standing_in):
    flags = [f"--output_dir={standing_in}", "--auto_resume"]
    assert call("a.gin", "--seeds=0,1", *flags) == 0
    shutil.rmtree(standing_in / "seed_1" / "checkpoints")
    assert call("a.gin", *flags) == 0
    assert [len(was(standing_in, seed)) for seed in range(2)] == [1, 2]
    assert "--resume" not in was(standing_in, 1)[1]


def test_bindings_alone_are_added_to_the_configuration(standing_in):
    flags = [f"--output_dir={standing_in}"]
    assert call("a.gin", "--seeds=0", *flags) == 0
    assert call("--resume", "--config=A.b = 1", "--seeds=2", *flags) == 0
    # The one that was done goes on, with its own configuration.
    said = (standing_in / "seed_0" / "was").read_text().splitlines()
    assert said[1].startswith("--config=A.b = 1 --resume ")
    known = _run_folders.read_record(standing_in)
    assert known["train"] == ["a.gin", "--config=A.b = 1"]
    assert statuses(standing_in) == {0: "done", 2: "done"}


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--seeds=3-1"], "expected seeds such as 0-4 or 0,3,7; got '3-1'"),
        (["--seeds=1,0-2"], "expected each seed once; got '1,0-2'"),
        (["--seeds="], "expected seeds such as"),
        (["--seeds=0", "--jobs=0"], "--jobs expected a number of processes >= 1"),
        (["--jobs=2"], "--jobs expected"),
        (["--seeds=0", "--rehearse"], "leave out --seeds"),
    ],
)
def test_wrong_flags_are_one_line(argv, words, capsys):
    with pytest.raises(SystemExit) as stop:
        call("a.gin", *argv)
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_the_folder_is_as_resume_says(standing_in, capsys):
    assert call("--resume", f"--output_dir={standing_in}", "--seeds=0") == 2
    assert "without seeds.json; start without resuming" in capsys.readouterr().err
    assert call("a.gin", f"--output_dir={standing_in}", "--seeds=0") == 0
    capsys.readouterr()
    assert call("a.gin", f"--output_dir={standing_in}", "--seeds=0") == 2
    assert "expected a folder without runs" in capsys.readouterr().err
    # Of the seeds that are done no process starts; more may come.
    assert call("--resume", f"--output_dir={standing_in}", "--seeds=0,1") == 0
    assert "seed_0:" not in capsys.readouterr().out
    assert (standing_in / "seed_1" / "was").exists()
    (standing_in / "seeds.json").write_text("{}")
    assert call("--resume", f"--output_dir={standing_in}") == 2
    assert "expected" in capsys.readouterr().err
    with pytest.raises(ValueError, match="`train_seeds`: `seeds` expected a seed"):
        seeds.train_seeds(["a.gin"], [], standing_in / "other")


@pytest.mark.slow
def test_seeds_are_the_runs_that_they_would_be_alone(tmp_path):
    size = {
        "Trainer.total_env_steps": 3000,
        "Trainer.n_envs": 2,
        "PPO.minibatch_size": 64,
    }
    small = [f"--config={name} = {value}" for name, value in size.items()]
    flags = [CONFIG, *small, "--seeds=0-1", f"--output_dir={tmp_path / 'both'}"]
    environment = {**os.environ, "TF_NUM_INTRAOP_THREADS": "1"}
    python = [sys.executable, "-m", "tfrl", "train"]
    subprocess.run([*python, *flags], check=True, env=environment, cwd=ROOT)
    one = [CONFIG, *small, "--config=train_rl.seed = 1", f"--output_dir={tmp_path}/one"]
    subprocess.run([*python, *one], check=True, env=environment, cwd=ROOT)
    rows, expected = (
        (folder / "metrics.csv").read_text().splitlines()
        for folder in (tmp_path / "both" / "seed_1", tmp_path / "one")
    )
    names = rows[0].split(",")
    timed = [index for index, name in enumerate(names) if "second" in name]
    for row, other in zip(rows, expected, strict=True):
        pairs = zip(row.split(","), other.split(","), strict=True)
        assert all(a == b for i, (a, b) in enumerate(pairs) if i not in timed)
