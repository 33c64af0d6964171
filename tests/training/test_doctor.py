"""Tests of `tfrl.training.doctor`."""

import math
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
from event_files import writing
from tiny_agents import train

from tfrl._internal import sealed_folder
from tfrl.configuring import configs
from tfrl.saving import checkpoints
from tfrl.summaries import run_log
from tfrl.training import _run_record, doctor

COLUMNS = ["train/return_mean", "train/length_mean", "train/loss"]


@pytest.fixture
def healthy(tmp_path):
    """No episode ended before step 32; a checkpoint at 64."""
    with run_log.RunLog(tmp_path, COLUMNS) as log:
        nothing = {"train/return_mean": math.nan, "train/length_mean": math.nan}
        log.write(32, {**nothing, "train/loss": 1.0})
        log.write(64, {"train/return_mean": 9.0, "train/length_mean": 9.0})
    weights = {
        "kernel": tf.reshape(tf.range(6.0), [2, 3]),
        "count": np.int64(3),
        "half": tf.ones([2], tf.bfloat16),
        "wave": np.ones([2], np.complex64),
        "name": None,
    }
    checkpoints.save_run(tmp_path, 64, weights, {"worst": -math.inf})
    return tmp_path


def test_a_folder_of_runs_is_no_run(healthy, tmp_path_factory):
    assert doctor.find_nonfinite(healthy) == []
    runs = tmp_path_factory.mktemp("runs")
    shutil.copytree(healthy, runs / "first")
    message = r"expected the folder of one run; got '.*' with 1 in it, such as 'first'"
    with pytest.raises(ValueError, match=message):
        doctor.find_nonfinite(runs)
    # A run may hold another.
    shutil.copytree(healthy, healthy / "inner")
    assert doctor.find_nonfinite(healthy) == []


def test_weights(healthy):
    kernel = np.zeros([2, 3], np.float32)
    kernel[1, 0], kernel[1, 2] = np.nan, np.inf
    checkpoints.save_run(healthy, 96, {"net": {"kernel": kernel}}, {})
    kernel[0, 1] = -np.inf
    checkpoints.save_run(healthy, 128, {"net": {"kernel": kernel}}, {})
    (found,) = doctor.find_nonfinite(healthy)
    assert found[:3] == (96, "state.net.kernel", (1, 0))
    assert math.isnan(found.value)
    assert found[4:] == (2, 6, "checkpoints/step-96")
    assert str(found) == (
        "step 96: state.net.kernel[1, 0] is nan (2 of 6 elements are not finite) in "
        "checkpoints/step-96"
    )


@pytest.mark.parametrize(
    "leaf",
    [
        tf.constant([1.0, np.inf], tf.bfloat16),
        np.array([1.0, complex(0, np.nan)], np.complex64),
        np.array([1.0, -np.inf]),
    ],
    ids=["bfloat16", "complex64", "float64"],
)
def test_weights_of_every_kind(leaf, tmp_path):
    checkpoints.save_run(tmp_path, 3, (leaf,), {})
    (found,) = doctor.find_nonfinite(tmp_path)
    assert found[:3] == (3, "state.0", (1,))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
def test_metrics(value, tmp_path):
    with run_log.RunLog(tmp_path, COLUMNS) as log:
        log.write(32, {"train/length_mean": 9.0, "train/loss": 1.0})
        log.write(64, {"train/loss": value})
        log.write(96, {"train/return_mean": math.nan, "train/length_mean": 9.0})
    first, then = doctor.find_nonfinite(tmp_path)
    assert (first.step, first.tensor, first.file) == (64, "train/loss", "metrics.csv")
    assert str(first) == f"step 64: train/loss is {value} in metrics.csv"
    # A return of episodes that did end.
    assert (then.step, then.tensor) == (96, "train/return_mean")
    (tmp_path / "metrics.csv").unlink()
    again = doctor.find_nonfinite(tmp_path)
    assert [each[:2] for each in again] == [first[:2], then[:2]]
    assert "tfevents" in again[0].file


def test_events_of_others(tmp_path):
    with writing(tmp_path / "eval"):
        tf.summary.text("notes", "inf", step=1)
        tf.summary.histogram("weights", [1.0, 2.0], step=1)
        tf.summary.scalar("q", 1.0, step=1)
        tf.summary.scalar("q", math.nan, step=7)
        tf.summary.scalar("q", math.inf, step=8)
    (found,) = doctor.find_nonfinite(tmp_path)
    assert (found.step, found.tensor) == (7, "q")
    assert found.file.startswith("eval/events.out.tfevents.")


def test_the_earliest_comes_first(healthy):
    checkpoints.save_run(healthy, 96, {"b": np.array([np.nan])}, {})
    with run_log.RunLog(healthy / "more", ["train/loss"]) as log:
        log.write(80, {"train/loss": math.nan})
    found = doctor.find_nonfinite(healthy)
    assert [each.step for each in found] == [80, 96]


def test_a_killed_writer_is_no_damage(healthy):
    (path,) = healthy.glob("events.out.tfevents.*")
    whole = path.read_bytes()
    for cut in (1, 5, 14):
        path.write_bytes(whole[:-cut])
        assert doctor.find_nonfinite(healthy) == []
    with (healthy / "metrics.csv").open("a") as file:
        file.write("96,na")
    assert doctor.find_nonfinite(healthy) == []


def _flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(bytes(data))


def _cut(path):
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("pattern", "damage"),
    [
        ("events.out.tfevents.*", _flip),
        ("events.out.tfevents.*", lambda path: path.write_bytes(b"no records" * 9)),
        ("checkpoints/step-64/arrays.data*", _flip),
        ("checkpoints/step-64/arrays.data*", _cut),
        ("checkpoints/step-64/arrays.data*", lambda path: path.write_bytes(b"")),
        ("checkpoints/step-64/metadata.json", _cut),
        ("checkpoints/step-64/arrays.index", _flip),
        ("checkpoints/step-64/arrays.index", pathlib.Path.unlink),
        ("metrics.csv", lambda path: path.write_text("")),
        ("metrics.csv", lambda path: path.write_text("env_steps,a\n1,2,3\n")),
        ("metrics.csv", lambda path: path.write_text("a,b\n1,2\n")),
        ("metrics.csv", lambda path: path.write_bytes(b"\xff\xfe\n")),
    ],
    ids=[
        *["event", "no_events", "tensor", "cut", "no_tensor", "metadata"],
        *["index", "no_index"],
        *["empty", "ragged", "no_steps", "no_text"],
    ],
)
def test_damaged_files_are_named(pattern, damage, healthy):
    (path,) = healthy.glob(pattern)
    damage(path)
    with pytest.raises(ValueError, match="`find_nonfinite`: `directory`") as error:
        doctor.find_nonfinite(healthy)
    place = path.parent if "checkpoints" in pattern else path
    assert str(place) in str(error.value) and "damaged" in str(error.value)


def test_no_run(tmp_path):
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(ValueError, match="expected the folder of a run"):
            doctor.find_nonfinite(folder)


def keep(folder):
    """Saves a checkpoint as trainers do, and a half row after it."""
    with run_log.RunLog(folder, COLUMNS) as log:
        log.write(32, {"train/loss": 1.0})
        metadata = {"log": log.position()}
        checkpoints.save_run(folder, 32, {"w": np.ones(2)}, metadata)
        log.write(64, {"train/loss": 2.0})
    with log.path.open("a") as rows:
        rows.write("96,1.")


def test_rows_are_held_against_the_checkpoint(tmp_path):
    keep(tmp_path)
    assert doctor.find_nonfinite(tmp_path) == []
    path = tmp_path / "metrics.csv"
    text = path.read_text()
    for changed in (text.replace(",1.0", ",1.5"), text[:40]):
        path.write_text(changed)
        with pytest.raises(
            ValueError, match=r"metrics.csv', damaged \(rows that step-3"
        ):
            doctor.find_nonfinite(tmp_path)
    # After the checkpoint nothing is known; a resumed run writes that again.
    path.write_text(text.replace(",2.0", ",2.5"))
    assert doctor.find_nonfinite(tmp_path) == []


def test_what_mends_damaged_rows_is_told(tmp_path):
    with run_log.RunLog(tmp_path, COLUMNS) as log:
        for step in (32, 64, 96):
            log.write(step, {"train/loss": 1.0})
            metadata = {"log": log.position()}
            checkpoints.save_run(tmp_path, step, {"w": np.ones(2)}, metadata)
    lines = log.path.read_text().splitlines(keepends=True)
    log.path.write_text("".join([*lines[:2], lines[2].replace("1.0", "1.5"), lines[3]]))
    told = "restore it from a copy, or go on from step 32, .*: remove step-64, step-96 "
    with pytest.raises(ValueError, match=told):
        doctor.find_nonfinite(tmp_path)
    with pytest.raises(ValueError, match="restore it from a copy, or see by `tfrl doc"):
        run_log.RunLog(tmp_path, COLUMNS, metadata["log"])
    for step in (64, 96):
        shutil.rmtree(tmp_path / "checkpoints" / f"step-{step}")
    assert doctor.find_nonfinite(tmp_path) == []
    _, metadata, _ = checkpoints.load_run(tmp_path, {"w": np.ones(2)})
    with run_log.RunLog(tmp_path, COLUMNS, metadata["log"]) as log:
        log.write(64, {"train/loss": 1.0})
    assert run_log.read_metrics(log.path)["env_steps"].tolist() == [32, 64]


def test_rows_after_the_checkpoint_are_written_anew(tmp_path):
    keep(tmp_path)
    with (tmp_path / "metrics.csv").open("a") as rows:
        rows.write("2,3,4,5,6\n")
    with pytest.raises(ValueError, match="; resume the run, which writes its last row"):
        doctor.find_nonfinite(tmp_path)


@pytest.fixture(scope="module", name="record")
def _record(tmp_path_factory):
    """The bytes of a `run.json`."""
    folder = tmp_path_factory.mktemp("run")
    train(folder, n_epochs=1)
    return (folder / "run.json").read_bytes()


def test_any_changed_byte_of_a_record_is_damage(record, tmp_path):
    path = tmp_path / "run.json"
    assert doctor.list_overrides(tmp_path) == []
    path.write_bytes(record)
    assert doctor.list_overrides(tmp_path) == []
    damaged = []
    for place in range(0, len(record), 97):
        changed = bytearray(record)
        changed[place] ^= 1
        damaged += [bytes(changed), record[:place]]
    body = sealed_folder.unsealed(record)
    forgeries = [[], {}, {**body, "run": []}, {**body, "run": {"arguments": {}}}]
    for name, other in (("arguments", {}), ("overrides", [{}]), ("spaces", 3)):
        forgeries.append({**body, "run": {**body["run"], name: other}})
    for data in [*damaged, *map(sealed_folder.sealed, forgeries)]:
        path.write_bytes(data)
        with pytest.raises(ValueError, match="`list_overrides`: .*as they were writ"):
            doctor.list_overrides(tmp_path)
    path.write_bytes(sealed_folder.sealed({"format": 2}))
    with pytest.raises(ValueError, match="expected a run of format 1; got format 2"):
        doctor.list_overrides(tmp_path)


def test_a_config_that_changed_is_damage(record, tmp_path):
    keep(tmp_path)
    text = "make_vec.env_id = 'CartPole-v1'\n"
    # A run of old, of which nothing is known.
    (tmp_path / "config.gin").write_text(text)
    assert doctor.find_nonfinite(tmp_path) == []
    (tmp_path / "run.json").write_bytes(record)
    assert doctor.find_nonfinite(tmp_path) == []
    # Killed between the two files, old or new: each tells of itself.
    path = configs.write(tmp_path, text=text)
    assert doctor.find_nonfinite(tmp_path) == []
    _run_record.write(tmp_path, _run_record.read("x", tmp_path))
    data = path.read_bytes()
    for damaged in (data[:-1], data.replace(b"v1", b"v0"), text.encode(), b""):
        path.write_bytes(damaged)
        for look in (doctor.find_nonfinite, doctor.list_overrides):
            with pytest.raises(
                ValueError, match=r"config.gin', which is not; restore it; or"
            ):
                look(tmp_path)
    # Whoever means the change says so.
    (tmp_path / "run.json").unlink()
    path.write_text(text)
    assert doctor.find_nonfinite(tmp_path) == []
