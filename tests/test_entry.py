"""Tests of `tfrl.entry`: flags, and what is answered before TensorFlow is loaded."""

import os
import pathlib
import platform
import re
import shlex
import subprocess
import sys

import pytest

from tfrl import command, entry
from tfrl._internal import help_texts
from tfrl.experiments import commands_of_runs
from tfrl.summaries.plotting import mean_curve

ROOT = pathlib.Path(__file__).parents[1]
COMMANDS = ["evaluate", "record", "plot", "export", "verify", "doctor", "check-env"]
COMMANDS += ["train", "compare", "tune", "zoo", "collect"]
STAMP = b"0000 00:00:1795394484.008476   20143 "
OLD = b"2026-11-23 00:41:24.008476: "
NOISE = [
    b"WARNING: All log messages before absl::InitializeLog() is called are written "
    b"to STDERR",
    b"I" + STAMP + b"port.cc:153] oneDNN custom operations are on. You may see",
    b"I" + STAMP + b"cpu_feature_guard.cc:227] This TensorFlow binary is optimized",
    b"To enable the following instructions: AVX2 FMA, in other operations, rebuild",
    b"E" + STAMP + b"util.cc:131] oneDNN supports DT_INT32 only on platforms with "
    b"AVX-512. Falling back",
    b"E" + STAMP + b"cuda_dnn.cc:8579] Unable to register cuDNN factory: Attempting "
    b"to register factory for plugin cuDNN",
    b"W" + STAMP + b"computation_placer.cc:177] computation placer already registered.",
    b"E" + STAMP + b"cuda_platform.cc:51] failed call to cuInit: INTERNAL: CUDA error: "
    b"Failed call to cuInit: UNKNOWN ERROR (303)",
    b"E" + STAMP + b"text_format.cc:378] Error parsing text-format tensorflow."
    b"XlaSerializedCacheEntry: 2:1: Expected identifier, got: 5",
    b"E" + STAMP + b"cpu_aot_loader.cc:220] Loading XLA:CPU AOT result. Target machine "
    b"feature +prefer-no-scatter is not  supported on the host machine. Machine type",
    OLD + b"I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow",
    OLD + b"I external/local_xla/xla/tsl/cuda/cudart_stub.cc:32] Could not find cuda",
]
WORDS = [
    b"E" + STAMP + b"bfc_allocator.cc:501] ran out of memory trying to allocate",
    b"W" + STAMP + b"bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out of memory",
    b"F" + STAMP + b"cuda_driver.cc:12] Check failed: status",
    b"E" + STAMP + b"cuda_platform.cc:51] failed call to cuInit: INTERNAL: CUDA error: "
    b"Failed call to cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has",
    b"E" + STAMP + b"cpu_aot_loader.cc:220] Loading XLA:CPU AOT result. Target machine "
    b"feature +avx512f is not  supported on the host machine.",
    OLD + b"E tensorflow/core/util.cc:10] a real one",
    b"Traceback (most recent call last):",
    b"tfrl evaluate: error: I0000 is no folder",
    b"",
]


@pytest.mark.parametrize(
    "argv",
    [
        *(["-m", "tfrl", name, "--help"] for name in COMMANDS),
        ["-m", "tfrl", "--help"],
        ["-m", "tfrl.rl_trainer", "--help"],
        ["-m", "tfrl", "train"],
        ["-m", "tfrl", "evaluate"],
        ["-m", "tfrl.rl_trainer", "--resume=maybe"],
    ],
    ids=" ".join,
)
def test_flags_load_no_tensorflow(argv):
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *argv],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == (0 if "--help" in argv else 2)
    assert "usage: " in done.stdout or "error: " in done.stderr
    assert re.search(r"\| +argparse\b", done.stderr)
    for large in ("tensorflow", "keras", "numpy", "gymnasium"):
        assert not re.search(rf"\| +{large}\b", done.stderr), large


def test_auto_resume_goes_on_where_something_was_saved(tmp_path):
    run, flags = tmp_path / "run", ["ppo.gin", "--auto_resume"]
    asked = [*flags, f"--output_dir={run}", "--override"]
    step = run / "checkpoints" / "step-7"
    for path in (step / "arrays.bin", run / "run.json"):
        assert not entry.train_flags(asked, "tfrl train").resume
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    # What has no manifest was not saved to its end.
    assert not entry.train_flags(asked, "tfrl train").resume
    (step / "manifest.json").touch()
    assert entry.train_flags(asked, "tfrl train").resume
    (tmp_path / entry.SEEDS_RECORD).touch()
    assert entry.train_flags([*flags, f"--output_dir={tmp_path}"], "tfrl train").resume


@pytest.mark.parametrize("more", [[], ["--output_dir=run", "--resume"]])
def test_auto_resume_needs_a_folder(more, capsys):
    with pytest.raises(SystemExit, match="2"):
        entry.train_flags(["ppo.gin", "--auto_resume", *more], "tfrl train")
    assert "add that, and leave out --resume" in capsys.readouterr().err


def test_auto_resume_begins_nothing_without_a_config(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        entry.train_flags([f"--output_dir={tmp_path}", "--auto_resume"], "tfrl train")
    told = f"CONFIG expected a gin file; got none; {str(tmp_path)!r} holds no run yet"
    assert told in capsys.readouterr().err


@pytest.mark.slow
def test_commands_work_where_the_working_directory_was_removed(tmp_path):
    program = (
        "import os, sys\n"
        f"os.mkdir({str(tmp_path / 'gone')!r}); os.chdir({str(tmp_path / 'gone')!r})\n"
        "os.rmdir(os.getcwd()); sys.path.remove('')\n"
        "from tfrl import command\n"
        f"sys.argv = ['tfrl', 'doctor', {str(tmp_path / 'none')!r}]\n"
        "sys.exit(command.main())"
    )
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=variables
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "tfrl doctor: error: `find_nonfinite`" in done.stderr


def test_helping_with_training_installs_nothing():
    done = subprocess.run([ROOT / "tools" / "train", "--help"], capture_output=True)
    assert done.returncode == 0 and b"usage: tools/train CONFIG" in done.stdout


def test_modes_are_those_of_the_curves():
    assert commands_of_runs.INTERVAL_MODES == mean_curve.INTERVAL_MODES


@pytest.mark.parametrize("line", NOISE)
def test_notes_are_noise(line):
    assert entry.is_noise(line + b"\n")


@pytest.mark.parametrize("line", WORDS)
def test_all_else_is_not(line):
    assert not entry.is_noise(line + b"\n")


_CRASH = """
import os, sys
from tfrl import command, entry
from tfrl._internal import help_texts
from tfrl.experiments import commands_of_runs
entry.begin()
for line in {lines!r}:
    os.write(2, line + bytes([10]))
print("said", file=sys.stderr)
os.write(2, b"the end")
{ending}
"""


@pytest.mark.parametrize("ending", ["", "os.abort()", "os._exit(3)", "1 / 0"])
def test_stderr_has_all_but_the_noise(ending):
    program = _CRASH.format(lines=[*NOISE, *WORDS, *NOISE], ending=ending)
    done = subprocess.run(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, cwd=ROOT
    )
    assert (done.returncode == 0) == (not ending)
    expected = b"\n".join([*WORDS, b"said", b"the end"])
    assert done.stderr[: len(expected)] == expected
    assert (b"ZeroDivisionError" in done.stderr) == ("/" in ending)


def test_a_process_without_stderr_begins_too():
    program = "import sys; from tfrl import entry; entry.begin(); print('here')"
    words = f"'{sys.executable}' -c \"{program}\" 2>&-"
    done = subprocess.run(["bash", "-c", words], capture_output=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, b"here\n")


def test_a_process_ends_without_a_search_for_garbage():
    program = (
        "from tfrl import entry; entry.begin(); entry.loaded()\n"
        "class Kept:\n    def __del__(self): print('searched')\n"
        "for _ in range(2): kept = Kept(); kept.itself = kept\n"
        "del kept; print('here', flush=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, cwd=ROOT
    )
    assert (done.returncode, done.stdout) == (0, b"here\n"), done.stderr


@pytest.mark.parametrize("level", ["0", "1"])
def test_who_asks_for_notes_has_them(level):
    program = _CRASH.format(lines=NOISE, ending="")
    done = subprocess.run(
        [sys.executable, "-c", program],
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": level},
    )
    assert done.stderr == b"\n".join([*NOISE, b"said", b"the end"])


@pytest.mark.slow
def test_a_command_says_one_line_of_bad_input(tmp_path):
    environment = {k: v for k, v in os.environ.items() if "TF_" not in k}
    done = subprocess.run(
        [sys.executable, "-m", "tfrl", "doctor", "absent"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT)},
    )
    (line,) = done.stderr.splitlines()
    assert line.startswith("tfrl doctor: error: ") and done.stdout == ""


@pytest.mark.parametrize("asked", [None, "0", "1"])
def test_onednn_is_on_unless_told_otherwise(asked):
    program = (
        "import os; from tfrl import entry; entry.begin();"
        "print(os.environ.get('TF_ENABLE_ONEDNN_OPTS'))"
    )
    env = {k: v for k, v in os.environ.items() if k != "TF_ENABLE_ONEDNN_OPTS"}
    env |= {} if asked is None else {"TF_ENABLE_ONEDNN_OPTS": asked}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, cwd=ROOT, env=env
    )
    is_x86 = platform.machine() in ("x86_64", "AMD64")
    by_itself = b"1" if is_x86 else b"None"
    expected = by_itself if asked is None else asked.encode()
    assert (done.returncode, done.stdout.strip()) == (0, expected), done.stderr


def commands():
    """The parsers of all commands but `train`, by name."""
    return command._parser()._subparsers._group_actions[0].choices


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_a_terminal_and_gives_examples_that_are_such(
    name, monkeypatch, capsys
):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        command.main([name, "--help"])
    told = capsys.readouterr().out
    assert {*commands()} == {*COMMANDS}
    assert max(map(len, told.splitlines())) <= 80
    usage, does, *_ = told.split("\n\n")
    assert re.match(r"[A-Z].*\.$", does.splitlines()[0])
    assert does[1:].startswith(help_texts.summary(name)[1:])
    (examples,) = re.findall(r"^examples?:\n((?:  .*\n)+)", told, re.MULTILINE)
    for line in examples.splitlines():
        program, given, *argv = shlex.split(line)
        assert (program, given) == ("tfrl", name), line
        if name == "train":
            assert entry.train_flags(argv, "tfrl train")
        else:
            assert command._parser().parse_args([name, *argv])


@pytest.mark.parametrize("name", COMMANDS)
def test_help_tells_every_flag_in_the_same_way(name):
    """What is taken, and what happens without it."""
    parser = commands()[name]
    if name == "train":
        parser = entry._train_parser("tfrl train")
    for action in parser._actions:
        assert action.help and action.help.strip("`.") == action.help, action
        if action.option_strings and action.nargs != 0:
            is_listed = action.nargs == "+" or isinstance(action.default, list)
            alone = {"--address", "--seeds", "--minari", "--npz", "--size"}
            alone |= {"--critic", "--target"}
            told = is_listed or "by default" in action.help
            assert told or alone & {*action.option_strings}, action
