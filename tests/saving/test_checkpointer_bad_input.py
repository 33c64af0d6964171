"""Tests of what `tfrl.saving.checkpointer` refuses."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl._internal import sealed_folder
from tfrl.core import pytree
from tfrl.saving import checkpointer


class Node(pytree.PyTreeNode):
    w: int


def holder(held):
    made = tf.Module()
    made.held, made.v = held, tf.Variable(1.0)
    return made


def lookup_table():
    return tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)


def ring():
    made = [tf.Variable(1.0)]
    made.append(made)
    return made


def bad_inputs(folder):
    manager = checkpointer.Checkpointer(folder, m=tf.Variable(1.0))
    manager.save(5)
    made = checkpointer.Checkpointer
    return {
        "no items": (lambda: made(folder), ValueError, "`kwargs` expected objects"),
        "taken": (lambda: made(folder, keep=1), ValueError, "got .'keep'.; name them"),
        "text": (lambda: made(folder, a="x"), TypeError, "got str, in which"),
        "unbuilt": (
            lambda: made(folder, a=keras.layers.Dense(2)),
            ValueError,
            "`a` expected built layers",
        ),
        "node inside": (
            lambda: made(folder, a=[tf.Variable(1.0), Node(1)]),
            TypeError,
            r"`a\.1` expected nothing immutable .* got a Node; pass it as an item",
        ),
        "same step": (lambda: manager.save(5), ValueError, "expected a step after 5"),
        "negative": (lambda: manager.save(-1), ValueError, "`global_step` expected"),
        "keep": (lambda: manager.save(6, keep=0), ValueError, "`keep` expected"),
        "score": (
            lambda: manager.save(6, score=np.nan),
            ValueError,
            "`score` expected",
        ),
        "which": (lambda: manager.load("newest"), ValueError, "`global_step` expected"),
        "file": (
            lambda: made(folder / "ckpt-5" / "structure.json", a=tf.Variable(1.0)),
            ValueError,
            "`ckpt_dir` expected a folder that can be made",
        ),
    }


def more_bad_inputs(folder):
    manager = checkpointer.Checkpointer(folder, m=tf.Variable(1.0))
    manager.save(5)
    made = checkpointer.Checkpointer
    return {
        "score of many": (
            lambda: manager.save(6, score=np.ones(2)),
            ValueError,
            "`Checkpointer.save`: `score` expected rank 0",
        ),
        "which array": (
            lambda: manager.load(np.array([5, 6])),
            TypeError,
            "`Checkpointer.load`: `global_step` expected an int",
        ),
        "prefixes": (
            lambda: manager.load(ignored_parameter_prefixes=[3]),
            TypeError,
            "`ignored_parameter_prefixes` expected a list of texts; got .3.",
        ),
        "no prefix": (
            lambda: checkpointer.extract_sub_state_dict_from_checkpoint(None, folder),
            TypeError,
            "`checkpoint_prefix` expected a list of texts; got .None.",
        ),
        "no path": (
            lambda: checkpointer.extract_sub_state_dict_from_checkpoint("m", None),
            TypeError,
            "`checkpoint_path` expected a path; got None",
        ),
        "no folder": (
            lambda: made(None, a=tf.Variable(1.0)),
            TypeError,
            "`Checkpointer`: `ckpt_dir` expected a path; got None",
        ),
        "unwritable": (
            lambda: made("/proc/self", a=tf.Variable(1.0)).save(1),
            OSError,
            "`Checkpointer.save`: `ckpt_dir` expected a disk that takes the files",
        ),
        "save in a function": (
            tf.function(lambda: [manager.save(6), 1][1]),
            ValueError,
            "`Checkpointer.save`: expected to be called outside of tf.function",
        ),
        "load in a function": (
            tf.function(lambda: manager.load()),
            ValueError,
            "`Checkpointer.load`: expected to be called outside of tf.function",
        ),
    }


def bad_items(folder):
    made = checkpointer.Checkpointer
    return {
        "table": (
            lambda: made(folder, a=holder(lookup_table())),
            TypeError,
            r"`a\.held` expected what can be saved; got a MutableHashTable; keep",
        ),
        "iterator": (
            lambda: made(folder, a=holder(iter(tf.data.Dataset.range(3)))),
            TypeError,
            r"`a\.held` expected what can be saved; got a OwnedIterator",
        ),
        "ring": (
            lambda: made(folder, a=ring()),
            ValueError,
            "`a` expected objects nested some hundred times at most; got a list",
        ),
        "keys": (
            lambda: made(folder, a={"b": tf.ones(1), 3: tf.ones(1)}),
            TypeError,
            r"`a` expected keys that can be sorted; got \['b', 3\]",
        ),
    }


BAD = ["no items", "taken", "text", "unbuilt", "node inside", "same step", "negative"]
BAD += ["keep", "score", "which", "file"]
MORE = ["score of many", "which array", "prefixes", "no prefix", "no path", "no folder"]
MORE += ["unwritable", "save in a function", "load in a function", "table", "iterator"]
MORE += ["ring", "keys"]


@pytest.mark.parametrize("name", [*BAD, *MORE])
def test_bad_inputs(tmp_path, name):
    cases = bad_inputs(tmp_path) if name in BAD else more_bad_inputs(tmp_path)
    call, error, message = {**cases, **bad_items(tmp_path)}[name]
    with pytest.raises(error, match=message):
        call()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {".lock", "ckpt-5"}


def test_a_failed_save_leaves_the_items(tmp_path):
    manager = checkpointer.Checkpointer(tmp_path, a=(tf.ones([2]),))
    manager.save(5, a=(tf.fill([2], 2.0),))
    with pytest.raises(ValueError, match="expected a step after 5"):
        manager.save(5, a=(tf.zeros([2]),))
    with pytest.raises(TypeError, match="`a` expected modules.*got str"):
        manager.save(6, a="x")
    np.testing.assert_array_equal(manager["a"][0], [2.0, 2.0])
    assert manager.load() == 5


def test_objects_with_slots_and_variables_of_any_rank(tmp_path):
    @dataclasses.dataclass(slots=True)
    class Slots:
        rate: tf.Variable
        name: str

    class More(Slots):
        __slots__ = "later"

    any_rank = tf.Variable([1.0, 2.0], shape=tf.TensorShape(None))
    holds = [Slots(tf.Variable(3.0), "a"), More(tf.Variable(4.0), "b"), any_rank]
    manager = checkpointer.Checkpointer(tmp_path, m=holds)
    manager.save(1)
    for variable in (holds[0].rate, holds[1].rate, any_rank):
        variable.assign(0.0)
    assert manager.load() == 1
    assert (float(holds[0].rate), float(holds[1].rate)) == (3.0, 4.0)
    np.testing.assert_array_equal(any_rank, [1.0, 2.0])


def test_a_model_goes_on_as_another_one_that_was_made_later(tmp_path):
    def made(seed):
        keras.utils.set_random_seed(seed)
        model = keras.Sequential([keras.Input([4])])
        model.add(keras.layers.Dropout(0.3))
        model.add(keras.layers.Dense(1))
        model.compile(keras.optimizers.Adam(0.1), "mse")
        model.optimizer.build(model.trainable_variables)
        return model

    first, second = made(1), made(2)
    data = np.random.default_rng(0).normal(size=[16, 4]), np.ones([16, 1])
    first.fit(*data, verbose=0, shuffle=False)
    checkpointer.Checkpointer(tmp_path, model=first).save(1)
    assert checkpointer.Checkpointer(tmp_path, model=second).load() == 1
    for model in (first, second):
        model.fit(*data, verbose=0, shuffle=False)
    for one, other in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("text", ["", "3", "{}", '{"bit_generator":"PCG64"}'])
def test_states_of_generators_fit_or_are_damage(tmp_path, text):
    rng = np.random.default_rng(3)
    before = rng.bit_generator.state
    manager = checkpointer.Checkpointer(tmp_path, r=rng)
    path = manager.save(1)
    body = sealed_folder.unseal(path, "structure.json")
    (path / "structure.json").unlink()
    del body["files"]
    sealed_folder.seal(path, "structure.json", {**body, "generators": {"r": text}})
    with pytest.raises(ValueError, match="damaged .a generator cannot be read"):
        manager.load()
    assert rng.bit_generator.state == before
