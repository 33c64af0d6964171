"""Files with valid digests that say what is not so, and things that are no files."""

import json
import os
import pathlib
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import replay, saving, training
from tfrl._internal import durable, sealed_folder
from tfrl.saving import checkpointer, checkpoints

EXBIBYTE = 1 << 60


def item():
    made = tf.Module()
    made.w = tf.Variable([1.0, 2.0])
    made.rng = np.random.default_rng(0)
    made.buffer = filled()
    return made


def filled():
    made = replay.DataBuffer(tf.TensorSpec([2]), capacity=8, seed=0)
    made.add_batch(np.ones([3, 2], np.float32))
    return made


class Checkpoint:
    file = "ckpt-1/structure.json"

    def save(self, folder):
        checkpointer.Checkpointer(folder, m=item()).save(1)

    def load(self, folder):
        checkpointer.Checkpointer(folder, m=item()).load(1)


class Run:
    file = "checkpoints/step-1/manifest.json"

    def save(self, folder):
        checkpoints.save_run(folder, 1, {"w": tf.ones([2])}, {"a": 1})

    def load(self, folder):
        checkpoints.load_run(folder, {"w": tf.zeros([2])}, step=1)


class Replay:
    file = "manifest.json"

    def save(self, folder):
        replay.save(folder, {"b": filled()})

    def load(self, folder):
        replay.load(folder, {"b": filled()})


FORMATS = [Checkpoint(), Run(), Replay()]
WRONG = [None, True, -1, EXBIBYTE, 1 << 70, "", "../../../../dev/zero", "\ud800"]
WRONG += [[], [None], {}, {"format": 1}]


def body_of(path):
    return json.loads(path.read_bytes())["manifest"]


def places(value, path=()):
    """Where in a nest something could be forged."""
    yield path
    parts = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        parts = enumerate(value)
    for key, part in parts:
        yield from places(part, (*path, key))


def forged(body, path, wrong):
    body = json.loads(json.dumps(body))
    if not path:
        return wrong
    holder = body
    for key in path[:-1]:
        holder = holder[key]
    if wrong is KeyError:
        del holder[path[-1]]
    else:
        holder[path[-1]] = wrong
    return body


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: type(kind).__name__)
def test_forged_manifests(tmp_path, kind):
    original, copy = tmp_path / "original", tmp_path / "copy"
    kind.save(original)
    body = body_of(original / kind.file)
    rng = np.random.default_rng(0)
    where = list(places(body))
    refused = 0
    for k in rng.choice(len(where), min(25, len(where)), replace=False):
        wrong = [KeyError, *WRONG][rng.integers(len(WRONG) + 1)]
        new = forged(body, where[k], wrong)
        if new is KeyError:
            continue
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(original, copy)
        (copy / kind.file).write_bytes(sealed_folder.sealed(new))
        try:
            kind.load(copy)
        except ValueError as error:
            assert str(error).startswith("`"), error
            refused += 1
    assert refused > 5


def test_sizes_that_no_machine_has(tmp_path):
    kind = Replay()
    kind.save(tmp_path)
    body = body_of(tmp_path / kind.file)
    for part in body["parts"]:
        # Paths, contents, size, step, segments.
        part[2:] = [EXBIBYTE, EXBIBYTE, [None]]
    (tmp_path / kind.file).write_bytes(sealed_folder.sealed(body))
    with pytest.raises(ValueError, match="of the size that"):
        kind.load(tmp_path)


def test_arrays_that_are_not_those_of_the_structure(tmp_path):
    for name, shape in (("a", [2]), ("b", [4000])):
        folder = tmp_path / name
        checkpointer.Checkpointer(folder, w=tf.Variable(tf.ones(shape))).save(1)
    structure = tmp_path / "a/ckpt-1/structure.json"
    body = body_of(structure)
    for file in list(body["files"]):
        shutil.copy(tmp_path / "b/ckpt-1" / file, tmp_path / "a/ckpt-1" / file)
    body["files"] = body_of(tmp_path / "b/ckpt-1/structure.json")["files"]
    structure.write_bytes(sealed_folder.sealed(body))
    with pytest.raises(ValueError, match=r"\[4000\] as the shape of 'w'"):
        checkpointer.Checkpointer(tmp_path / "a", w=tf.Variable([0.0, 0.0])).load()
    with pytest.raises(ValueError, match="as the shape"):
        saving.extract_sub_state_dict_from_checkpoint("", tmp_path / "a/ckpt-1")


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: type(kind).__name__)
@pytest.mark.parametrize("what", ["pipe", "dangling", "folder"])
def test_what_is_no_file_is_not_waited_for(tmp_path, kind, what):
    kind.save(tmp_path)
    path = tmp_path / kind.file
    path.unlink()
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "nothing")
    with pytest.raises((OSError, ValueError), match="`|no regular file|directory"):
        kind.load(tmp_path)


def test_links_are_removed_and_not_followed(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_bytes(b"kept")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / ".writing-ckpt-3").symlink_to(elsewhere)
    os.mkfifo(folder / ".writing-pipe")
    with durable.shared_folder(folder):
        pass
    assert os.listdir(folder) == [".lock"]
    (folder / "ckpt-1").symlink_to(elsewhere)
    durable.remove_folder(folder / "ckpt-1")
    assert (elsewhere / "kept").read_bytes() == b"kept"
    (folder / ".writing-a").symlink_to(elsewhere / "kept")
    with pytest.raises(OSError, match="a link or pipe is in the way"):
        durable.replace_file(folder / "a", b"new")
    assert (elsewhere / "kept").read_bytes() == b"kept"


def test_deep_json(tmp_path, monkeypatch):
    def storage():
        return replay.NumpyStorage(tf.TensorSpec([2]), capacity=3, path=tmp_path)

    storage().close()
    (tmp_path / "storage.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="`NumpyStorage`: `path` expected to hold"):
        storage()
    (tmp_path / "storage.json").unlink()
    os.mkfifo(tmp_path / "storage.json")
    with pytest.raises(ValueError, match="`NumpyStorage`: `path` expected to hold"):
        storage()
    monkeypatch.setenv("TF_CONFIG", "[" * 100_000)
    with pytest.raises(ValueError, match="`TF_CONFIG` expected JSON") as found:
        training_cluster()
    assert len(str(found.value)) < 1000


def training_cluster():
    from tfrl.distribute import per_process  # noqa: PLC0415

    return per_process.read_tf_config("strategy")


def test_names_that_no_file_can_hold(tmp_path):
    half = {"a": {"\ud800": tf.Variable(1.0)}}
    with pytest.raises(ValueError, match="`Checkpointer`: `m` expected names of whole"):
        checkpointer.Checkpointer(tmp_path, m=half)
    with pytest.raises(ValueError, match="`state` expected names of whole characters"):
        checkpoints.save_run(tmp_path, 1, {"\ud800": tf.ones([1])}, {})
    for path in ("a\0b", "a\ud800b"):
        with pytest.raises(ValueError, match="`ckpt_dir` expected a path; .* no file"):
            checkpointer.Checkpointer(path, m=tf.Variable(1.0))
        with pytest.raises(ValueError, match="`directory` expected a path; .* no file"):
            checkpoints.save_run(path, 1, (), {})


def run_of_fit(folder):
    network = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    model = training.FitModel(network, lambda model, x: model(x) ** 2)
    model.compile("sgd")
    parts = {"rng": np.random.default_rng(0)}
    saved = training.RunCheckpoint(folder, parts=parts)
    model.fit(np.ones([8, 1], np.float32), verbose=0, epochs=2, callbacks=[saved])


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"states": {}, "tracked": []},
        {"states": {"rng": {}}, "tracked": {"names": [], "digests": {}}},
        {"states": {"rng": 3}, "tracked": {"names": [], "digests": {}}},
        {"states": {}, "tracked": {"names": ["rng"], "digests": {3: 4}}},
        {"states": {}, "tracked": {"names": 3, "replays": ["x"], "digests": {}}},
    ],
)
def test_forged_runs_of_fit(tmp_path, metadata):
    run_of_fit(tmp_path)
    newest = max(pathlib.Path(tmp_path, "checkpoints").glob("step-*"))
    template = {"model": [], "optimizer": [], "own": []}
    body = body_of(newest / "manifest.json")
    shapes = {name.split(".")[1] for name in body["arrays"]}
    assert shapes <= {*template}
    from tfrl.saving import typed_json

    (newest / "metadata.json").write_text(typed_json.to_json(metadata))
    (newest / "manifest.json").unlink()
    sealed_folder.seal(newest, "manifest.json", {**body, "files": None})
    with pytest.raises(ValueError, match="`RunCheckpoint`: "):
        run_of_fit(tmp_path)
