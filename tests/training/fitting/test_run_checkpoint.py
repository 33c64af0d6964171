"""A run of `fit` that was broken off goes on as if it had not been."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import fit_examples as examples
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import replay, saving, training

OLD = pathlib.Path(__file__).parents[2] / "golden" / "old_runs"


def run_q(folder, epochs, broken=None, kind=replay.UniformReplay, **options):
    """A DQN-like run with dropout; returns its model, logs and store."""
    model = examples.q_model(**options)
    store = examples.store(capacity=90)  # wraps around
    source = kind(store, seed=3)
    collect = training.Collect(
        examples.walks(), store, examples.acting(model), warm_up_steps=30, seed=5
    )
    checkpoint = training.RunCheckpoint(
        folder, {"collect": collect, "source": source}, keep=2
    )
    callbacks = [collect, checkpoint, *([] if broken is None else [broken])]
    history = model.fit(
        source,
        batch_size=8,
        steps_per_epoch=6,
        epochs=epochs,
        callbacks=callbacks,
        verbose=0,
    )
    return model, history, store


def run_data(folder, epochs, broken=None):
    network = keras.Sequential(
        [examples.network(), keras.layers.Dropout(0.2, seed=1), keras.layers.Dense(3)]
    )
    network.layers[-1].kernel.assign(np.eye(3, dtype=np.float32))

    def loss_fn(model, batch, training):
        logits = model.network(batch["x"], training=training)
        return -batch["y"] * tf.nn.log_softmax(logits)[:, 0]

    model = training.FitModel(network, loss_fn)
    model.compile(keras.optimizers.Adam(0.01, clipnorm=1.0))
    rng = np.random.default_rng(0)
    drawn = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: logs.update(draw=rng.random())
    )
    checkpoint = training.RunCheckpoint(folder, {"rng": rng})
    callbacks = [drawn, checkpoint, *([] if broken is None else [broken])]
    data = examples.data(24, 6)
    history = model.fit(data, epochs=epochs, callbacks=callbacks, verbose=0)
    return model, history, None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "options"),
    [
        pytest.param(run_q, {}, marks=pytest.mark.slow),
        (run_q, {"kind": replay.PrioritizedReplay, "steps_per_execution": 2}),
        (run_data, {}),
    ],
    ids=["uniform", "prioritized", "data"],
)
def test_the_same_weights_as_without_interruption(tmp_path, run, options):
    right, history, store = run(tmp_path / "right", 5, **options)
    with pytest.raises(examples.BreakOffError):
        run(tmp_path / "run", 5, examples.break_off_in(3), **options)
    model, rest, other = run(tmp_path / "run", 5, **options)
    assert rest.epoch == [3, 4]
    for name, values in history.history.items():
        assert rest.history[name] == values[3:], name
    examples.assert_same(examples.weights_of(right), examples.weights_of(model))
    examples.assert_same(
        [v.numpy() for v in right.optimizer.variables],
        [v.numpy() for v in model.optimizer.variables],
    )
    if store is not None:
        samples = [
            replay.UniformReplay(each, seed=0).sample(64) for each in (store, other)
        ]
        examples.assert_same(*map(tf.nest.flatten, samples))
        assert int(model.env_steps) == int(right.env_steps)


@pytest.mark.slow
def test_a_run_that_is_done_stays_as_it_is(tmp_path):
    first, _, _ = run_q(tmp_path, 2)
    again, history, _ = run_q(tmp_path, 2)
    assert history.epoch == []
    examples.assert_same(examples.weights_of(first), examples.weights_of(again))
    longer, history, _ = run_q(tmp_path, 4)
    assert history.epoch == [2, 3]
    assert saving.list_steps(tmp_path) == [3, 4]
    replays = sorted(path.name for path in (tmp_path / "replay").iterdir())
    assert replays == ["step-3", "step-4"]


def test_saves_at_intervals_and_at_the_end(tmp_path):
    model = examples.fit_model()
    checkpoint = training.RunCheckpoint(tmp_path, every_epochs=2)
    options = {"callbacks": [checkpoint], "verbose": 0, "epochs": 5}
    model.fit(examples.data(8, 4), **options)
    assert saving.list_steps(tmp_path) == [2, 4, 5]
    stopped = training.RunCheckpoint(tmp_path / "stopped", every_epochs=10)

    def stop(epoch, logs):
        model.stop_training = epoch == 2

    options["callbacks"] = [keras.callbacks.LambdaCallback(on_epoch_end=stop), stopped]
    model.fit(examples.data(8, 4), **options)
    assert saving.list_steps(tmp_path / "stopped") == [3]


VICTIM = """
import sys
sys.path[:0] = sys.argv[1:3]
import conftest
conftest.pytest_configure()
import keras, os, signal
from training.fitting import test_run_checkpoint as runs
print("begin", flush=True)
def saved(step):
    print("epoch", flush=True)
loud = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: saved(epoch))
runs.run_q(sys.argv[3], 200, loud)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kills", [8])
def test_killed_at_any_moment(tmp_path, kills):
    random = np.random.default_rng(kills)
    tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    root = os.path.dirname(tests)
    for _ in range(kills):
        victim = subprocess.Popen(
            [sys.executable, "-c", VICTIM, root, tests, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4):
            victim.stdout.readline()
        time.sleep(0.2 * random.random())
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        victim.stdout.close()
    done = saving.latest_step(tmp_path)
    assert done >= 3 * kills
    model, history, _ = run_q(tmp_path, done + 2)
    assert history.epoch == [done, done + 1]
    right, _, _ = run_q(tmp_path / "right", done + 2)
    examples.assert_same(examples.weights_of(right), examples.weights_of(model))


def test_other_parts_and_models_are_refused(tmp_path):
    model = examples.fit_model()
    rng = np.random.default_rng(0)

    def fit(folder, model=model, **parts):
        model.fit(
            examples.data(8, 4),
            callbacks=[training.RunCheckpoint(folder, parts)],
            verbose=0,
        )

    fit(tmp_path, rng=rng)
    with pytest.raises(
        ValueError, match=r"`parts` expected \['rng'\], with .*got \[\]"
    ):
        fit(tmp_path)
    with pytest.raises(ValueError, match="a checkpoint of another agent or shape"):
        fit(tmp_path, examples.q_model(), rng=rng)
    # The folder was given back each time.
    fit(tmp_path, rng=rng)


def test_two_runs_in_one_folder(tmp_path):
    with saving.RunLock(tmp_path):
        with pytest.raises(ValueError, match="no other run at work in it"):
            run_q(tmp_path, 1)


@pytest.mark.slow
def test_damaged_parts(tmp_path):
    run_q(tmp_path, 2)
    folder = tmp_path / "replay" / "step-2"
    path = min(folder.glob("*.segment"), key=lambda each: each.stat().st_nlink)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        ValueError, match="`parts` expected .* with .*step-2; got others .*damaged"
    ):
        run_q(tmp_path, 3)
    shutil.rmtree(folder)
    with pytest.warns(UserWarning, match="none in"):
        with pytest.raises(
            ValueError, match="`parts` expected .*; got others .*there are"
        ):
            run_q(tmp_path, 3)
    shutil.rmtree(tmp_path / "checkpoints" / "step-2")
    assert run_q(tmp_path, 3)[1].epoch == [1, 2]


@pytest.mark.slow
def test_damaged_checkpoints(tmp_path):
    run_q(tmp_path, 2)
    (tmp_path / "checkpoints" / "step-2" / "metadata.json").write_bytes(b"{}")
    with pytest.warns(UserWarning, match="step-2 is damaged"):
        assert run_q(tmp_path, 3)[1].epoch == [1, 2]
    assert saving.list_steps(tmp_path) == [2, 3]


def fitted(folder, epochs=1, **parts):
    model = examples.fit_model()
    checkpoint = training.RunCheckpoint(folder, parts)
    data, options = examples.data(8, 4), {"epochs": epochs, "verbose": 0}
    return model.fit(data, callbacks=[checkpoint], **options)


def test_saves_share_the_rows_of_a_replay_that_stay(tmp_path):
    rows = replay.DataBuffer(tf.TensorSpec([4]), capacity=64, seed=0)
    rows.add_batch(np.ones([64, 4], np.float32))
    fitted(tmp_path, 3, rows=rows, plain=tf.Variable(1.0))
    files = [
        {file.stat().st_ino for file in folder.glob("replay/*.segment")}
        for folder in (tmp_path / "parts").glob("ckpt-*")
    ]
    assert len(files) == 3 and set.intersection(*files)


def run_of_many_parts(folder, epochs):
    """As the runs in `golden/old_runs/fit_*` were made, for one epoch."""
    rows = replay.DataBuffer(tf.TensorSpec([4]), capacity=16, seed=0)
    plain, rng = [tf.Variable(1.0), tf.Variable([2.0])], np.random.default_rng(0)
    model = examples.fit_model()
    data = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: (
            rows.add_batch(rng.random([3, 4], np.float32)),
            plain[0].assign_add(1.0),
        )
    )
    parts = {"rows": rows, "plain": plain, "rng": rng}
    callbacks = [data, training.RunCheckpoint(folder, parts)]
    options = {"epochs": epochs, "verbose": 0, "shuffle": False}
    history = model.fit(examples.data(8, 4), callbacks=callbacks, **options)
    state = [rows.get_all(), float(plain[0]), rng.random()]
    return history.epoch, state, examples.weights_of(model)


@pytest.mark.parametrize("name", ["fit_apart", "fit_together"])
def test_runs_of_earlier_versions(tmp_path, name):
    folder = tmp_path / "run"
    shutil.copytree(OLD / name, folder)
    epochs, state, weights = run_of_many_parts(folder, 2)
    assert epochs == [1]
    right, expected, others = run_of_many_parts(tmp_path / "right", 2)
    assert right == [0, 1]
    examples.assert_same(state, expected)
    for one, other in zip(weights, others, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    parts = sorted(path.name for path in folder.glob("parts/*-*"))
    assert parts == ["ckpt-2", "step-1"]
    segment = next(folder.glob("parts/ckpt-2/replay/*.segment"))
    segment.write_bytes(b"")
    with pytest.raises(ValueError, match="`parts` expected .*step-2; got others"):
        run_of_many_parts(folder, 3)


@pytest.mark.slow
def test_a_replay_that_was_saved_among_the_other_parts(tmp_path):
    run_q(tmp_path / "run", 2)
    folder = shutil.copytree(tmp_path / "run", tmp_path / "old")
    source = replay.UniformReplay(examples.store(capacity=90), seed=3)
    replay.load(folder / "replay" / "step-2", {"replay": source})
    shutil.rmtree(folder / "replay")
    saving.Checkpointer(folder / "parts", source=source).save(2)
    found = [run_q(each, 3)[0] for each in (folder, tmp_path / "run")]
    examples.assert_same(*map(examples.weights_of, found))
    assert not list(folder.glob("parts/ckpt-3"))
    assert (folder / "replay" / "step-3").is_dir()


def test_damaged_parts_of_earlier_versions(tmp_path):
    folder = shutil.copytree(OLD / "fit_apart", tmp_path / "run")
    (folder / "parts" / "step-1" / "parts.index").write_bytes(b"")
    with pytest.raises(ValueError, match="`parts` .*parts.index is not as it was"):
        run_of_many_parts(folder, 2)


@pytest.mark.parametrize(
    ("saved", "now", "match"),
    [
        ([1.0], [2.0, 3.0], "missing there: part.1"),
        ([1.0, 2.0], [3.0], "unexpected there: part.1"),
        ([[1.0]], [[1.0, 2.0]], r"part.0 is float32 \[1\] on disk"),
    ],
    ids=["shorter", "longer", "shape"],
)
def test_parts_of_another_make(tmp_path, saved, now, match):
    fitted(tmp_path, part=list(map(tf.Variable, saved)))
    with pytest.raises(ValueError, match=rf"`parts` expected \['part'\].*{match}"):
        fitted(tmp_path, part=list(map(tf.Variable, now)))


def test_all_that_is_in_a_part_comes_back(tmp_path):
    def made():
        module = tf.Module()
        module.noise = [keras.layers.Dropout(0.1, seed=1)]
        module.rng, module.v = np.random.default_rng(0), tf.Variable(1.0)
        layer = keras.layers.Dense(1)
        layer.build((None, 1))
        return {"m": module, "layer": layer}

    parts = made()
    parts["m"].v.assign(2.0)
    parts["m"].noise[0](np.ones([3]), training=True)
    parts["m"].rng.random(3)
    fitted(tmp_path, **parts)
    others = made()
    fitted(tmp_path, 1, **others)
    assert float(others["m"].v) == 2.0
    seeds = [each["m"].noise[0].seed_generator.state for each in (parts, others)]
    np.testing.assert_array_equal(*seeds)
    np.testing.assert_array_equal(others["layer"].kernel, parts["layer"].kernel)
    generators = [each["m"].rng.bit_generator.state for each in (parts, others)]
    assert generators[0] == generators[1]


@pytest.mark.slow
def test_environments_that_cannot_be_captured_start_anew(tmp_path):
    def run(epochs):
        model, store = examples.q_model(), examples.store()
        envs = examples.walks()
        envs.envs[0].unwrapped.engine = memoryview(b"")
        collect = training.Collect(envs, store, examples.acting(model), warm_up_steps=9)
        source = replay.UniformReplay(store, seed=0)
        checkpoint = training.RunCheckpoint(
            tmp_path, {"collect": collect, "source": source}
        )
        model.fit(
            source,
            steps_per_epoch=2,
            epochs=epochs,
            callbacks=[collect, checkpoint],
            verbose=0,
        )
        return collect.env_steps

    assert run(1) == 15
    with pytest.warns(UserWarning, match="`Collect`: resumed with new episodes"):
        assert run(2) == 21


def test_only_a_fit_model_can_resume(tmp_path):
    network = examples.network()
    network.compile("sgd", "mse")
    with pytest.raises(ValueError, match="`model` expected a FitModel"):
        network.fit(
            np.ones([4, 3]),
            np.ones([4, 3]),
            callbacks=[training.RunCheckpoint(tmp_path)],
            verbose=0,
        )


@pytest.mark.parametrize(
    ("error", "name", "options"),
    [
        (ValueError, "parts", {"parts": {"a b": tf.Variable(0)}}),
        (ValueError, "parts", {"parts": {"self": tf.Variable(0)}}),
        (TypeError, "parts", {"parts": {"array": np.ones(2)}}),
        (TypeError, "number", {"parts": {"number": 3}}),
        (TypeError, "parts", {"parts": {3: tf.Variable(0)}}),
        (TypeError, "parts", {"parts": [tf.Variable(0)]}),
        (ValueError, "every_epochs", {"every_epochs": 0}),
        (ValueError, "keep", {"keep": 0}),
        (TypeError, "make_envs", {"make_envs": "CartPole-v1"}),
    ],
)
def test_bad_arguments(tmp_path, error, name, options):
    with pytest.raises(error, match=f"`RunCheckpoint`: `{name}` expected"):
        training.RunCheckpoint(tmp_path, **options)


def test_a_folder_that_is_moved_ends_the_run(tmp_path):
    moves = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: (
            epoch == 1 and (tmp_path / "run").rename(tmp_path / "moved")
        )
    )
    with pytest.raises(ValueError, match="got .*run, moved .* --resume NEW"):
        run_data(tmp_path / "run", 3, moves)
    assert [each.name for each in tmp_path.iterdir()] == ["moved"]
    assert saving.list_steps(tmp_path / "moved") == [1]
