"""Whatever a power loss leaves of a folder can be read, and holds what was promised."""

import warnings

import numpy as np
import power_loss
import pytest
import tensorflow as tf

from tfrl._internal import durable
from tfrl.replay.disk import saving
from tfrl.replay.memory import _homes, numpy_storage
from tfrl.saving import checkpointer, checkpoints, serialization

STEPS = (1, 2, 3)


def save_run(folder, step):
    checkpoints.save_run(folder, step, {"w": np.full(3, step)}, {"n": step}, keep=2)


def load_run(folder):
    state, metadata, step = checkpoints.load_run(folder, {"w": np.zeros(3, int)})
    assert metadata == {"n": step} and state["w"].tolist() == [step] * 3
    return step


def save_best_again(folder, number):
    checkpoints.save_best(folder, 5, {"w": np.full(3, number)}, {"n": number})


def save_best_earlier(folder, number):
    checkpoints.save_best(folder, 9 - number, {"w": np.full(3, number)}, {"n": number})


def load_best(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a step that was being removed
        state, metadata, _ = checkpoints.load_run(folder, {"w": np.zeros(3, int)})
    assert state["w"].tolist() == [metadata["n"]] * 3
    return metadata["n"]


def module(value):
    made = tf.Module()
    made.scale = tf.Variable(float(value))
    return made


def save_objects(folder, step):
    checkpointer.Checkpointer(folder, net=module(step)).save(step, keep=2)


def load_objects(folder):
    made = module(0)
    step = checkpointer.Checkpointer(folder, net=made).load()
    assert float(made.scale) == step
    return step


def rows(step):
    # Three segments, of which a step writes another one.
    storage = numpy_storage.NumpyStorage(tf.TensorSpec([]), capacity=6)
    ages = np.repeat([0, 1, 2], 2)
    storage.set(range(6), np.maximum(1.0, step - ages).astype(np.float32))
    return storage


def save_rows(folder, step):
    saving.save(folder / "rows", {"rows": rows(step)})


def load_rows(folder):
    storage = rows(0)
    saving.load(folder / "rows", {"rows": storage})
    step = int(storage.get(0))
    np.testing.assert_array_equal(storage.get(range(6)), rows(step).get(range(6)))
    return step


def save_file(folder, step):
    serialization.dump(step, folder / "object")


def load_file(folder):
    return serialization.load(folder / "object")


@pytest.mark.parametrize(
    ("save", "load", "n_states"),
    [
        pytest.param(save_run, load_run, 150, id="run", marks=pytest.mark.slow),
        pytest.param(
            save_best_again, load_best, 100, id="best-again", marks=pytest.mark.slow
        ),
        pytest.param(
            save_best_earlier, load_best, 60, id="best-earlier", marks=pytest.mark.slow
        ),
        pytest.param(
            save_objects, load_objects, 60, id="objects", marks=pytest.mark.slow
        ),
        # So many if its writers happen to take turns; 30 if they work at once.
        pytest.param(save_rows, load_rows, 22, id="rows"),
        pytest.param(save_file, load_file, 7, id="file"),
    ],
)
def test_nothing_acknowledged_is_lost(save, load, n_states, tmp_path, monkeypatch):
    monkeypatch.setattr(_homes, "_SEGMENT_BYTES", 8)
    folder = tmp_path / "saved"
    folder.mkdir()
    save(folder, STEPS[0])
    recorder = power_loss.Recorder(folder)
    with recorder.watching(monkeypatch):
        recorder.acknowledge(STEPS[0])
        for step in STEPS[1:]:
            save(folder, step)
            recorder.acknowledge(step)
    states = list(power_loss.crashes(recorder))
    assert len(states) >= n_states
    for number, (tree, acknowledged) in enumerate(states):
        place = tmp_path / f"state-{number}"
        power_loss.build(tree, place)
        assert load(place) >= acknowledged
        save(place, STEPS[-1] + 1)
        assert load(place) == STEPS[-1] + 1


@pytest.mark.slow
def test_a_save_that_does_not_wait_for_the_disk_is_found(tmp_path, monkeypatch):
    folder = tmp_path / "saved"
    folder.mkdir()
    save_run(folder, 1)
    recorder = power_loss.Recorder(folder)
    with recorder.watching(monkeypatch) as _, monkeypatch.context() as patch:
        patch.setattr(durable, "flush_to_disk", lambda *paths: None)
        save_run(folder, 2)
        recorder.acknowledge(2)
    lost = 0
    for number, (tree, acknowledged) in enumerate(power_loss.crashes(recorder)):
        if acknowledged == 2:
            place = tmp_path / f"state-{number}"
            power_loss.build(tree, place)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of damaged steps
                lost += load_run(place) < 2
    assert lost > 0


def test_the_model_finds_what_is_not_flushed(tmp_path, monkeypatch):
    folder = tmp_path / "saved"
    folder.mkdir()
    path, new = folder / "number", folder / "new"
    path.write_text("1")
    recorder = power_loss.Recorder(folder)
    with recorder.watching(monkeypatch):
        new.write_text("2" * 8)
        new.rename(path)
        recorder.acknowledge(2)
    found = [tree.get("number") for tree, told in power_loss.crashes(recorder) if told]
    # The old one, and of the new one nothing, half and all: its content was not waited
    # for, nor its name.
    assert {*found} == {b"1", b"", b"2222", b"22222222"}
