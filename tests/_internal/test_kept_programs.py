"""Tests of `tfrl._internal.kept_programs`."""

import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

from tfrl._internal import kept_programs
from tfrl.saving import checkpoints

NAME = "xla_compile_cache__1__2__XLA_CPU_JIT.pb"
PROGRAM_BYTES = bytes(range(200))


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Where programs are kept, and at exit nothing is sealed."""
    monkeypatch.setenv("TFRL_XLA_CACHE", str(tmp_path / "kept here"))
    monkeypatch.setenv("TF_XLA_FLAGS", "")  # So that it is put back afterwards.
    monkeypatch.delenv("TF_XLA_FLAGS")
    monkeypatch.setattr(kept_programs.atexit, "register", lambda *_: None)
    monkeypatch.setattr(kept_programs, "_folders", [])
    return tmp_path / "kept here"


def folder_of(place):
    kept_programs.keep()
    (folder,) = place.iterdir()
    return folder


def test_tensorflow_is_told_where(place):
    os.environ["TF_XLA_FLAGS"] = "--tf_xla_clustering_debug"
    kept_programs.keep()
    (folder,) = place.iterdir()
    first, rest = os.environ["TF_XLA_FLAGS"].split(" ", 1)
    assert first == "--tf_xla_clustering_debug"
    assert rest.startswith(f'--tf_xla_persistent_cache_directory="{folder}" ')
    assert folder.stat().st_mode & 0o777 == 0o700


def test_places(tmp_path, monkeypatch):
    monkeypatch.delenv("TFRL_XLA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    kept_programs.keep()
    assert str(tmp_path / "caches" / "tfrl" / "xla") in os.environ["TF_XLA_FLAGS"]
    monkeypatch.delenv("TF_XLA_FLAGS")
    monkeypatch.setenv("XDG_CACHE_HOME", "not absolute")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    kept_programs.keep()
    assert str(tmp_path / "home" / ".cache" / "tfrl") in os.environ["TF_XLA_FLAGS"]
    monkeypatch.delenv("TF_XLA_FLAGS")
    monkeypatch.setenv("TFRL_XLA_CACHE", "~/elsewhere")
    kept_programs.keep()
    assert str(tmp_path / "home" / "elsewhere") in os.environ["TF_XLA_FLAGS"]


def test_other_settings_have_other_folders(place, monkeypatch):
    kept_programs.keep()
    for name in ("XLA_FLAGS", "TF_NUM_INTRAOP_THREADS"):
        monkeypatch.delenv("TF_XLA_FLAGS")
        monkeypatch.setenv(name, "7")
        kept_programs.keep()
    assert len(list(place.iterdir())) == 3


@pytest.mark.parametrize("why", ["empty", "own", "file", "full"])
def test_nothing_is_kept(why, place, monkeypatch, capsys):
    flags = None
    if why == "empty":
        monkeypatch.setenv("TFRL_XLA_CACHE", "")
    elif why == "own":
        flags = "--tf_xla_persistent_cache_directory=mine"
        monkeypatch.setenv("TF_XLA_FLAGS", flags)
    elif why == "file":
        place.write_text("no folder")
    else:
        monkeypatch.setattr(kept_programs, "_LEAST_FREE_BYTES", 1 << 60)
    kept_programs.keep()
    assert os.environ.get("TF_XLA_FLAGS") == flags
    said = [line[:31] for line in capsys.readouterr().err.splitlines()]
    assert said == ["tfrl: warning: `TFRL_XLA_CACHE`"] * (why == "file")


def test_what_has_no_digest_or_another_goes(place):
    path = folder_of(place) / NAME
    path.write_bytes(PROGRAM_BYTES)
    kept_programs.seal(path.parent, with_new=False)
    assert not path.exists()
    path.write_bytes(PROGRAM_BYTES)
    for with_new in (True, False, True):
        kept_programs.seal(path.parent, with_new=with_new)
        assert path.read_bytes() == PROGRAM_BYTES
    path.write_bytes(PROGRAM_BYTES[:-1])
    kept_programs.seal(path.parent, with_new=True)  # changed since: not vouched for
    kept_programs.seal(path.parent, with_new=False)
    assert not path.exists()


def test_what_is_sealed_outlives_a_kill(place):
    first = folder_of(place) / NAME
    first.write_bytes(PROGRAM_BYTES)
    kept_programs.seal_new()
    second = first.with_name(f"other_{NAME}")
    second.write_bytes(PROGRAM_BYTES)
    kept_programs.seal_new()
    third = first.with_name(f"third_{NAME}")
    third.write_bytes(PROGRAM_BYTES)
    os.environ.pop("TF_XLA_FLAGS")
    kept_programs.keep()  # as the next process does
    assert first.exists() and second.exists() and not third.exists()


@pytest.mark.parametrize("text", ["", "[1]", '{"a": ', "7", "\0"])
def test_damaged_digests_vouch_for_nothing(text, place):
    path = folder_of(place) / NAME
    path.write_bytes(PROGRAM_BYTES)
    digests = path.parent / "sha256.json"
    digests.write_text(text)
    kept_programs.seal(path.parent, with_new=False)
    assert not path.exists()
    path.write_bytes(PROGRAM_BYTES)
    kept_programs.seal(path.parent, with_new=True)
    assert list(json.loads(digests.read_text())) == [NAME]


def test_what_is_old_goes(place, monkeypatch):
    folder, old = folder_of(place), time.time() - 7200
    other = place / "another machine"
    other.mkdir()
    monkeypatch.setattr(kept_programs, "_MOST_BYTES", 2 * len(PROGRAM_BYTES) + 200)
    for path, used in {
        other / "first.pb": old,
        folder / "second.pb": old + 60,
        folder / "third.pb": old + 120,
        folder / "half written": old,
        folder / "half": time.time(),
    }.items():
        path.write_bytes(PROGRAM_BYTES if path.suffix else b"")
        os.utime(path, (used, used))
    kept_programs.seal(folder, with_new=True)
    monkeypatch.delenv("TF_XLA_FLAGS")
    kept_programs.keep()
    assert {x.name for x in place.rglob("*") if x.is_file()} == {
        *("second.pb", "third.pb", "half", "sha256.json")
    }


def with_one_that_is_gone(glob):
    def found(folder, pattern):
        return [*glob(folder, pattern), folder / "gone.pb"]

    return found


def test_what_another_process_removes_meanwhile_is_passed_over(place, monkeypatch):
    folder = folder_of(place)
    (folder / NAME).write_bytes(PROGRAM_BYTES)
    monkeypatch.setattr(pathlib.Path, "glob", with_one_that_is_gone(pathlib.Path.glob))
    kept_programs.seal(folder, with_new=True)
    monkeypatch.delenv("TF_XLA_FLAGS")
    kept_programs.keep()
    assert kept_programs.are_kept() and (folder / NAME).exists()
    assert list(json.loads((folder / "sha256.json").read_text())) == [NAME]


PROGRAM = """
import sys
from tfrl import entry
entry.begin()
import tensorflow as tf
from tfrl.core import compile
entry.loaded()
before = [tf.constant([i]) for i in range(int(sys.argv[1]))]
function = compile.jit(lambda x: tf.reduce_sum(tf.tanh(x @ x) * x))
print(float(function(tf.reshape(tf.range(64.0) / 64, [8, 8]))).hex())
"""


def largest(place):
    return max(place.glob("*/*.pb"), key=lambda path: path.stat().st_size)


@pytest.mark.slow
def test_processes_share_programs_and_survive_damaged_ones(place):
    """Without the digests TensorFlow would crash at the third and the fourth."""
    found = []
    for turn, n_tensors in enumerate([0, 77, 0, 0]):
        if turn == 3:
            next(place.glob("*/sha256.json")).unlink()
        if turn >= 2:
            path = largest(place)
            content = bytearray(path.read_bytes())
            content[len(content) * 2 // 3] ^= 255
            path.write_bytes(content)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(n_tensors)],
            cwd=pathlib.Path(__file__).parents[2],
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (0, "")
        path = largest(place)
        found.append((done.stdout, path.name, path.stat().st_mtime_ns))
    values, names, times = zip(*found, strict=True)
    assert len(set(values)) == len(set(names)) == 1
    assert times[0] == times[1] != times[2] != times[3]


@pytest.mark.slow
def test_a_killed_run_goes_on_with_the_programs_it_compiled(place, tmp_path):
    run, root = tmp_path / "run", pathlib.Path(__file__).parents[2]
    words = [sys.executable, "-m", "tfrl", "train"]
    flags = [f"--output_dir={run}"]
    for name, number in (("log", 1), ("eval", 10**6), ("checkpoint", 2)):
        flags.append(f"--config=Intervals.{name}_epochs = {number}")
    process = subprocess.Popen([*words, "configs/ppo_cartpole.gin", *flags], cwd=root)
    waits = 600
    while waits and checkpoints.latest_step(run) is None:
        time.sleep(0.1)
        waits -= 1
    process.kill()
    process.wait()
    assert waits
    name, made = largest(place).name, largest(place).stat().st_mtime_ns
    more = "--config=Trainer.total_env_steps = 2048"
    done = subprocess.run([*words, "--resume", flags[0], more], cwd=root)
    assert done.returncode == 0
    path = largest(place)
    assert (path.name, path.stat().st_mtime_ns) == (name, made)
