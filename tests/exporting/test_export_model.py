"""Tests of `exporting.export`: whole models, where they land, and `verify`."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.exporting import endpoints, export

ROWS = tf.TensorSpec([None, 3])
KINDS = ["model", "model.keras", "model.tflite"]


def dense(n_outputs=2):
    return keras.Sequential([keras.Input([3]), keras.layers.Dense(n_outputs)])


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def content_of(path):
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    return {x.name: x.read_bytes() for x in files if x.is_file()}


@pytest.mark.parametrize("name", KINDS)
def test_written_and_verified(tmp_path, name):
    path = tmp_path / "1" / "2" / name
    export.export_model(dense(), path)
    assert names(path.parent) == [name]
    found = export.verify(str(path))
    assert list(found) == ["call" if name == "model.keras" else "serving_default"]
    assert max(found.values()) < 1e-6


@pytest.mark.parametrize("name", KINDS[:2])
def test_existing_models_stay_unless_overwritten(tmp_path, name):
    path = tmp_path / name
    export.export_model(dense(), path)
    before = content_of(path)
    message = f"`export_model`: `path` expected a place where nothing is .*{name}"
    with pytest.raises(ValueError, match=message):
        export.export_model(dense(), path)
    assert content_of(path) == before and names(tmp_path) == [name]
    export.export_model(dense(), path, overwrite=True)
    assert content_of(path) != before and names(tmp_path) == [name]
    export.verify(path)


@pytest.mark.parametrize("name", KINDS[:2])
@pytest.mark.parametrize("existing", [True, False], ids=["over old", "new"])
def test_failing_writes_leave_what_was_there(tmp_path, monkeypatch, name, existing):
    path = tmp_path / name
    if existing:
        export.export_model(dense(), path)
    before = content_of(path) if existing else {}

    def full(*args, **kwargs):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        export.export_model(dense(), path, overwrite=True)
    assert names(tmp_path) == ([name] if existing else [])
    assert (content_of(path) if existing else {}) == before


DISAGREEING = {
    "unseeded": (lambda x: {"y": x + tf.random.normal([])}, "difference of .* in 'y'"),
    "host": (lambda x: {"y": tf.numpy_function(np.sin, [x], tf.float32)}, "PyFunc"),
    "nothing": (lambda x: None, "NoneType"),
    "nan": (lambda x: {"y": x * np.nan}, "NaN alone as 'y'"),
}


def test_draws_by_the_seed_of_the_program_never_appear(tmp_path):
    def draw(x):
        return {"y": x + tf.random.normal([], seed=3)}

    endpoint = endpoints.Endpoint(draw, {"x": tf.TensorSpec([None])})
    with pytest.raises(ValueError, match="`export_model`: .*difference of .* in 'y'"):
        export.export_model({"act": endpoint}, tmp_path / "model")
    assert names(tmp_path) == []


@pytest.mark.parametrize("kind", DISAGREEING)
def test_what_cannot_be_repeated_never_appears(tmp_path, kind):
    function, message = DISAGREEING[kind]
    endpoint = endpoints.Endpoint(function, {"x": tf.TensorSpec([None])})
    with pytest.raises((ValueError, TypeError), match=f"`export_model`: .*{message}"):
        export.export_model({"act": endpoint}, tmp_path / "model")
    assert names(tmp_path) == []


def test_other_weights_are_noticed(tmp_path):
    export.export_model(dense(), tmp_path / "one")
    export.export_model(dense(), tmp_path / "two")
    weights = "variables/variables.data-00000-of-00001"
    (tmp_path / "two" / weights).replace(tmp_path / "one" / weights)
    with pytest.raises(ValueError, match=f"`verify`: `path` expected the '{weights}'"):
        export.verify(tmp_path / "one")


def test_tolerance_is_checked_and_kept(tmp_path):
    for tolerance in (-1e-5, 2.0, np.nan):
        with pytest.raises(ValueError, match="`export_model`: `tolerance` expected"):
            export.export_model(dense(), tmp_path / "m", tolerance=tolerance)
        with pytest.raises(ValueError, match="`verify`: `tolerance` expected"):
            export.verify(tmp_path / "m", tolerance=tolerance)
    random_endpoint = endpoints.Endpoint(
        lambda x: {"y": x + 1e-3 * tf.random.uniform([])}, {"x": tf.TensorSpec([None])}
    )
    export.export_model(random_endpoint, tmp_path / "m", tolerance=1e-2)
    assert 0.0 < export.verify(tmp_path / "m")["serving_default"] < 1e-2
    with pytest.raises(ValueError, match="`verify`: endpoint 'serving_default'"):
        export.verify(tmp_path / "m", tolerance=1e-6)


def test_drawing_with_a_generator_goes_on_where_it_was(tmp_path):
    generator = tf.random.Generator.from_seed(1)
    draw = endpoints.Endpoint(lambda: {"y": generator.normal([3])}, {})
    export.export_model({"draw": draw}, tmp_path / "m")
    assert export.verify(tmp_path / "m") == {"draw": 0.0}
    model = tf.saved_model.load(str(tmp_path / "m"))
    for _ in range(2):
        found = model.signatures["draw"]()["y"]
        np.testing.assert_array_equal(found, generator.normal([3]))


@pytest.mark.parametrize("name", KINDS[:2])
def test_within_a_strategy(tmp_path, name):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        mirrored = dense()
        export.export_model(mirrored, tmp_path / "inside" / name)
        export.verify(tmp_path / "inside" / name)
    export.export_model(mirrored, tmp_path / "outside" / name)
    for place in ("inside", "outside"):
        assert max(export.verify(tmp_path / place / name).values()) < 1e-6
    if name == "model":
        model = tf.saved_model.load(str(tmp_path / "inside" / name))
        rows = tf.random.stateless_normal([7, 3], [1, 2])
        found = model.signatures["serving_default"](inputs=rows)["output_0"]
        np.testing.assert_allclose(found, mirrored(rows), rtol=1e-5)


def test_plain_models_within_a_strategy(tmp_path):
    model = dense()
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        export.export_model(model, tmp_path / "m")
        with pytest.raises(ValueError, match="`verify`: .*what `export_model` wrote"):
            export.verify(tmp_path / "absent")


def test_not_within_graphs_and_replicas(tmp_path):
    model = dense()
    calls = (
        lambda: export.export_model(model, tmp_path / "m"),
        lambda: export.verify(tmp_path / "m"),
        lambda: export.export_policy(None, tmp_path / "m", None, None),
    )
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for call in calls:
        message = "expected outside of functions and replicas; got one in a graph"
        with pytest.raises(ValueError, match=message):
            tf.function(call, autograph=False)()
        with pytest.raises(ValueError, match="replicas; got one in a replica"):
            strategy.run(tf.function(call, autograph=False))
    assert names(tmp_path) == []


def test_contexts_reach_the_verification(tmp_path):
    """A thread takes the place of this one, not of its settings."""
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        export.export_model(tf.abs, tmp_path / "m", ROWS)
    assert export.verify(pathlib.Path(tmp_path, "m")) == {"serving_default": 0.0}


VICTIM = """
import itertools, sys
import tensorflow as tf
from tfrl.exporting import export

weights = tf.Variable(tf.ones([500_000]))
for i in itertools.count():
    path, spec = f"{sys.argv[1]}/{i}", tf.TensorSpec([None])
    export.export_model(lambda x: x * tf.reduce_sum(weights), path, spec)
    print(i, flush=True)
"""


@pytest.mark.slow
def test_killed_exports_leave_whole_models(tmp_path):
    rng = random.Random(0)
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        with subprocess.Popen(
            [sys.executable, "-c", VICTIM, str(folder)],
            stdout=subprocess.PIPE,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            text=True,
        ) as victim:
            victim.stdout.readline()
            time.sleep(rng.random())
            victim.send_signal(signal.SIGKILL)
            told = [0, *map(int, victim.stdout)]
        whole = [name for name in names(folder) if name.isdigit()]
        assert len(whole) in (len(told), len(told) + 1)
        for name in whole:
            export.verify(folder / name)
        killed = str(len(whole))
        left = [name for name in names(folder) if not name.isdigit()]
        assert all(name.startswith(f".{killed}.export-") for name in left)
        export.export_model(tf.abs, folder / killed, ROWS)
        assert names(folder) == sorted([*whole, killed])
