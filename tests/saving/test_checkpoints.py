"""Tests of `tfrl.saving.checkpoints`."""

import itertools
import json
import os
import random
import shutil
from typing import NamedTuple

import keras
import numpy as np
import pytest
import refusals
import tensorflow as tf
from refusals import bad

from tfrl import agents
from tfrl.core import pytree
from tfrl.saving import checkpointer, checkpoints


class Moments(NamedTuple):
    mean: object
    count: object


class Agent(pytree.PyTreeNode):
    name: str = pytree.nonpytree_field()
    params: object = None
    moments: object = None


def make_state(value=1.0):
    return {
        "agent": Agent(
            name="x",
            params=[tf.fill([2, 3], value), tf.constant([value, -0.0], tf.bfloat16)],
            moments=Moments(np.array([value, np.nan]), np.int64(2**60)),
        ),
        "flags": (tf.constant([True, False]), (), {}, None),
        "empty": tf.zeros([0, 4], tf.int32),
    }


def bits(state):
    return [
        None
        if leaf is None
        else (type(leaf), leaf.dtype, tuple(leaf.shape), np.asarray(leaf).tobytes())
        for leaf in tf.nest.flatten(state)
    ]


METADATA = {
    "rng": np.random.default_rng(3).bit_generator.state,
    "shape": (1, 2),
    "best": float("nan"),
    "obs": np.arange(4, dtype=np.float16),
}


def save(directory, *steps, keep=3):
    for step in steps:
        checkpoints.save_run(
            directory, step, {"w": tf.fill([4], float(step))}, {"n": step}, keep=keep
        )


def load(directory, step=None):
    state, metadata, found = checkpoints.load_run(
        directory, {"w": tf.zeros([4])}, step=step
    )
    assert metadata == {"n": found}
    np.testing.assert_array_equal(state["w"], [found] * 4)
    return found


def folder_of(directory, step):
    return directory / "checkpoints" / f"step-{step}"


def test_a_nested_state_comes_back_bit_by_bit(tmp_path):
    state = make_state()
    path = checkpoints.save_run(tmp_path, 7, state, METADATA)
    assert path == folder_of(tmp_path, 7)
    back, metadata, step = checkpoints.load_run(tmp_path, make_state(5.0))
    tf.nest.assert_same_structure(back, state)
    assert isinstance(back["agent"], Agent) and back["agent"].name == "x"
    assert bits(back) == bits(state)
    assert step == 7
    assert list(metadata) == list(METADATA)
    assert metadata["rng"] == METADATA["rng"]
    assert metadata["shape"] == (1, 2) and np.isnan(metadata["best"])
    assert metadata["obs"].dtype == np.float16


def test_variables_are_saved_by_value(tmp_path):
    variable = tf.Variable([1.0, 2.0])
    checkpoints.save_run(tmp_path, 0, [variable], {})
    variable.assign([3.0, 4.0])
    ((value,), _, _) = checkpoints.load_run(tmp_path, [variable])
    np.testing.assert_array_equal(value, [1.0, 2.0])


def test_an_empty_state_comes_back(tmp_path):
    checkpoints.save_run(tmp_path, 0, (), {})
    assert checkpoints.load_run(tmp_path, ()) == ((), {}, 0)


def test_the_newest_steps_stay(tmp_path):
    assert checkpoints.list_steps(tmp_path) == []
    assert checkpoints.latest_step(tmp_path) is None
    save(tmp_path, 0, 5, 10, 15)
    assert checkpoints.list_steps(tmp_path) == [5, 10, 15]
    assert checkpoints.latest_step(tmp_path) == 15
    assert [load(tmp_path, step) for step in (None, 5, 10)] == [15, 5, 10]
    save(tmp_path, 20, keep=1)
    assert checkpoints.list_steps(tmp_path) == [20]
    assert sorted(os.listdir(tmp_path / "checkpoints")) == [".lock", "step-20"]
    (folder_of(tmp_path, 20) / "manifest.json").unlink()
    assert checkpoints.latest_step(tmp_path) is None


FILES = ["arrays.index", "arrays.data-00000-of-00001", "metadata.json", "manifest.json"]


def test_these_are_all_files(tmp_path):
    save(tmp_path, 1)
    assert sorted(os.listdir(folder_of(tmp_path, 1))) == sorted(FILES)


@pytest.mark.parametrize("name", FILES)
def test_every_flipped_bit_is_found(tmp_path, name):
    save(tmp_path, 1, 2)
    path = folder_of(tmp_path, 2) / name
    data = path.read_bytes()
    rng = random.Random(name)
    for place in {0, len(data) - 1, *(rng.randrange(len(data)) for _ in range(25))}:
        changed = bytearray(data)
        changed[place] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        with pytest.warns(UserWarning, match=rf"step-2 is damaged \({name} is not as"):
            assert load(tmp_path) == 1
        with pytest.raises(ValueError, match=rf"step-2, damaged \({name} is not as"):
            load(tmp_path, 2)
    path.write_bytes(data)
    assert load(tmp_path) == 2


@pytest.mark.parametrize("damage", ["truncate", "extend", "remove"])
@pytest.mark.parametrize("name", FILES)
def test_every_changed_length_is_found(tmp_path, name, damage):
    save(tmp_path, 1, 2)
    path = folder_of(tmp_path, 2) / name
    if damage == "truncate":
        path.write_bytes(path.read_bytes()[:-1])
    elif damage == "extend":
        path.write_bytes(path.read_bytes() + b" ")
    else:
        path.unlink()
    with pytest.warns(UserWarning, match=f"damaged .{name} (is not as|cannot be)"):
        assert load(tmp_path) == 1


def test_exchanged_folders_are_found(tmp_path):
    save(tmp_path, 1, 2)
    shutil.copytree(folder_of(tmp_path, 1), folder_of(tmp_path, 3))
    with pytest.warns(UserWarning, match="it holds step 1"):
        assert load(tmp_path) == 2


@pytest.mark.parametrize("step", [None, 3])
def test_a_missing_step_is_an_error(tmp_path, step):
    if step is not None:
        save(tmp_path, 1)
    steps = r"`directory` .* a saved step; got none|`step` expected one of \[1\].*got 3"
    with pytest.raises(ValueError, match=steps):
        load(tmp_path, step)


@pytest.mark.parametrize("step", [1, 2])
def test_steps_only_grow(tmp_path, step):
    save(tmp_path, 1, 2)
    with pytest.raises(ValueError, match=f"expected a step after 2.*got {step};"):
        save(tmp_path, step)
    assert load(tmp_path) == 2


def test_a_damaged_later_step_gives_way(tmp_path):
    save(tmp_path, 1, 2, 3)
    for step in (2, 3):
        (folder_of(tmp_path, step) / "metadata.json").write_text("{}")
    with pytest.warns(UserWarning, match="`save_run`.*metadata.json.*removing it"):
        save(tmp_path, 2, keep=1)
    assert checkpoints.list_steps(tmp_path) == [2]
    assert load(tmp_path) == 2


def change(**replaced):
    state = make_state()
    agent = state["agent"]
    return {**state, "agent": agent.replace(**replaced)}


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            change(params=[tf.zeros([2, 4]), tf.zeros([2], tf.bfloat16)]),
            r"state.agent.params.0 is float32 \[2, 3\] on disk but float32 \[2, 4\]",
        ),
        (
            change(params=[tf.zeros([2, 3], tf.float64), tf.zeros([2], tf.bfloat16)]),
            r"params.0 is float32 \[2, 3\] on disk but float64 \[2, 3\]",
        ),
        (change(params=[tf.zeros([2, 3])]), r"params.1 is bfloat16 \[2\] .*missing"),
        (change(moments=None), r"moments.mean is .*missing here"),
        ({**make_state(), "new": tf.zeros(1)}, r"state.new is missing on disk"),
        ({**make_state(), "empty": None}, r"empty is int32 \[0, 4\] on disk but None"),
        (
            make_state()["agent"],
            "state.agent.params.0 is .* but missing here.*; and 8 more",
        ),
    ],
    ids=["shape", "dtype", "shorter", "none", "new", "none-leaf", "other"],
)
def test_another_agent_is_an_error(tmp_path, template, message):
    checkpoints.save_run(tmp_path, 1, make_state(), {})
    with pytest.raises(ValueError, match=f"another agent or shape: .*{message}"):
        checkpoints.load_run(tmp_path, template)


@refusals.table(
    (
        checkpoints.save_run,
        bad(ValueError, "step", "unused", -1, {}, {}),
        bad(TypeError, "step", "unused", 1.5, {}, {}),
        bad(ValueError, "keep", "unused", 1, {}, {}, keep=0),
        bad(TypeError, "metadata", "unused", 1, {}, [1]),
        bad(TypeError, "directory", None, 1, {}, {}),
        bad(OSError, "directory", "/proc/self/x", 1, {}, {}),
    ),
    (
        checkpoints.load_run,
        bad(TypeError, "directory", 3, {}),
        bad(TypeError, "step", "unused", {}, True),
    ),
)
def test_refusals(row):
    row()


def test_bad_arguments_write_nothing(tmp_path):
    directory = tmp_path / "run"
    for state, metadata, message in [
        ({"a": 3}, {}, "got int at state/a"),
        ({3: tf.ones(1), "a": None}, {}, "`state` expected keys that can be sorted"),
        ({}, {"a": {1}}, "`value.'a'.` expected .* got set"),
    ]:
        with pytest.raises(TypeError, match=message):
            checkpoints.save_run(directory, 1, state, metadata)
    for call in (save, load):
        with pytest.raises(ValueError, match=f"`{call.__name__}_run`: .*tf.function"):
            tf.function(lambda call=call: call(directory, 1))()
    assert not directory.exists()


class PowerCut(OSError):
    """What the failing disk of these tests raises."""


def failing(monkeypatch, module, name, number):
    calls, original, numbers = [], getattr(module, name), itertools.count()

    def call(*args, **kwargs):
        calls.append(args)
        if next(numbers) == number:
            raise PowerCut(f"{name} {number}")
        return original(*args, **kwargs)

    monkeypatch.setattr(module, name, call)
    return calls


@pytest.mark.parametrize(
    ("module", "name", "calls"),
    [
        (os, "fsync", 6),
        (os, "rename", 2),
        (os, "unlink", 4),
        (os, "open", 11),
        (shutil, "rmtree", 1),
    ],
    ids=["fsync", "rename", "unlink", "open", "rmtree"],
)
def test_every_failing_call_leaves_the_old_or_the_new_state(
    tmp_path, monkeypatch, module, name, calls
):
    for number in range(calls + 1):
        directory = tmp_path / str(number)
        save(directory, 1, 2, 3)
        with monkeypatch.context() as patch:
            made = failing(patch, module, name, number)
            if number < calls:
                with pytest.raises(PowerCut):
                    save(directory, 4)
            else:
                # The loop above has failed every call that a save makes.
                save(directory, 4)
                assert len(made) == calls
        assert load(directory) in (3, 4)
        save(directory, 5)
        assert load(directory) == 5
        assert sorted(os.listdir(directory / "checkpoints"))[1:] == [
            f"step-{step}" for step in checkpoints.list_steps(directory)
        ]


def test_a_full_disk_is_an_os_error(tmp_path, monkeypatch):
    save(tmp_path, 1)

    def refuse(**kwargs):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(tf.raw_ops, "SaveV2", refuse)
        with pytest.raises(OSError, match="No space left"):
            save(tmp_path, 2)
    assert load(tmp_path) == 1
    assert sorted(os.listdir(tmp_path / "checkpoints")) == [".lock", "step-1"]


def test_numbers_that_keras_gave_may_differ(tmp_path):
    class Own(keras.layers.Layer):
        """Known to the process, which must not change what names mean."""

    assert Own

    def network(*names):
        return {f"net/{name}/kernel": np.full([3], i) for i, name in enumerate(names)}

    checkpoints.save_run(tmp_path, 1, network("dense_2", "dense_10", "own_1"), {})
    for template in (
        network("dense", "dense_1", "own_1"),
        network("dense_10", "dense_11", "own_1"),
        network("dense_2", "dense_10", "own_1"),
    ):
        found, _, _ = checkpoints.load_run(tmp_path, template)
        np.testing.assert_equal(found, template)
    for names in (
        ("dense", "dense_1", "own"),
        ("dense", "dense_1", "own_2"),
        ("dense", "own_1"),
        ("dense", "dense_1", "dense_2"),
        ("dense", "dense_1", "dense_2", "own_1"),
    ):
        with pytest.raises(ValueError, match="of another agent or shape"):
            checkpoints.load_run(tmp_path, network(*names))


def test_a_step_is_a_checkpoint_of_one_item(tmp_path):
    state, metadata = {"w": tf.ones([2]), "b": (np.arange(3), np.int8(1))}, {"n": 3}
    path = checkpoints.save_run(tmp_path / "run", 4, state, metadata)
    manager = checkpointer.Checkpointer(tmp_path, state=state)
    other = manager.save(4, metadata=metadata, state=state)
    assert {*os.listdir(path)} - {*os.listdir(other)} == {"manifest.json"}
    bodies = [
        json.loads(file.read_bytes())["manifest"]
        for file in (path / "manifest.json", other / "structure.json")
    ]
    assert bodies[1].pop("score") is None
    assert bodies[0] == bodies[1]


def test_layers_that_the_user_named_are_told_apart(tmp_path):
    def agent(*names):
        layers = [keras.layers.Dense(2, name=name) for name in names]
        net = keras.Sequential([keras.Input([2]), *layers])
        for k, layer in enumerate(layers):
            layer.bias.assign([float(k)] * 2)
        return agents.TrainState.create(net)

    def biases(state):
        return [x for x in tf.nest.flatten(state) if x.shape == [2]]

    checkpoints.save_run(tmp_path, 1, agent("dense_7001", "dense_7002"), {})
    back, _, _ = checkpoints.load_run(tmp_path, agent("dense_7001", "dense_7002"))
    np.testing.assert_array_equal(biases(back), [[0.0, 0.0], [1.0, 1.0]])
    for names in (("dense_7002", "dense_7003"), ("left", "right")):
        with pytest.raises(ValueError, match="another agent or shape: "):
            checkpoints.load_run(tmp_path, agent(*names))


@pytest.mark.parametrize("before", [0, 1, 2])
def test_random_states_are_told_apart_whatever_keras_counted_before(before, tmp_path):
    class Noisy(keras.layers.Layer):
        def __init__(self, count, name):
            super().__init__(name=name)
            word = f"seed_generator_{count}" if count else "seed_generator"
            self.noise = keras.random.SeedGenerator(count, name=word)

        def call(self, x):
            return x + 0.0

    def agent(first):
        layers = Noisy(first, "left"), Noisy(first + 1, "right")
        return agents.TrainState.create(keras.Sequential([keras.Input([2]), *layers]))

    state = agent(before)
    checkpoints.save_run(tmp_path, 1, state, {})
    back, _, _ = checkpoints.load_run(tmp_path, agent(7))
    assert list(back.extra_variables) == list(state.extra_variables)
    seeds = [int(x[0]) for x in back.extra_variables.values()]
    assert seeds == [before, before + 1]


def test_words_in_keys_do_not_mix_places(tmp_path):
    def state(*values):
        one, two, three = map(np.float32, values)
        return {"a": {"b": one}, "a/b": two, "a.b": three}

    checkpoints.save_run(tmp_path, 1, state(1, 2, 3), {})
    back, _, _ = checkpoints.load_run(tmp_path, state(0, 0, 0))
    assert back == state(1, 2, 3)
