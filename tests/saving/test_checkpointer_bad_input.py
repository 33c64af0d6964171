"""Tests of what `tfrl.saving.checkpointer` refuses."""

import dataclasses
import functools
import tempfile

import keras
import numpy as np
import pytest
import refusals
import tensorflow as tf
from refusals import bad

from tfrl._internal import named_arrays, sealed_folder
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


@functools.cache
def manager():
    found = checkpointer.Checkpointer(tempfile.mkdtemp(), m=tf.Variable(1.0))
    found.save(5)
    return found


def save(*args, **kwargs):
    manager().save(*args, **kwargs)


def load(*args, **kwargs):
    manager().load(*args, **kwargs)


# A folder that cannot be made: what is refused is refused before.
NEVER = "/proc/self/folder"


@refusals.table(
    (
        checkpointer.Checkpointer,
        bad(ValueError, "kwargs", NEVER),
        bad(ValueError, "kwargs", NEVER, keep=1),
        bad(TypeError, "a", NEVER, a="x"),
        bad(ValueError, "a", NEVER, a=keras.layers.Dense(2)),
        bad(TypeError, "a.1", NEVER, a=[tf.Variable(1.0), Node(1)]),
        bad(TypeError, "a.held", NEVER, a=holder(lookup_table())),
        bad(TypeError, "a.held", NEVER, a=holder(iter(tf.data.Dataset.range(3)))),
        bad(ValueError, "a", NEVER, a=ring()),
        bad(TypeError, "ckpt_dir", None, a=tf.Variable(1.0)),
        bad(ValueError, "ckpt_dir", f"{__file__}/a", a=tf.Variable(1.0)),
    ),
    (
        named_arrays.name_arrays,
        bad(TypeError, "a", {"b": tf.ones(1), 3: tf.ones(1)}, "a"),
    ),
    (
        save,
        bad(ValueError, "global_step", -1),
        bad(ValueError, "keep", 6, keep=0),
        bad(ValueError, "score", 6, score=np.nan),
        bad(ValueError, "score", 6, score=np.ones(2)),
    ),
    (
        load,
        bad(ValueError, "global_step", "newest"),
        bad(TypeError, "global_step", np.array([5, 6])),
        bad(TypeError, "ignored_parameter_prefixes", ignored_parameter_prefixes=[3]),
    ),
    (
        checkpointer.extract_sub_state_dict_from_checkpoint,
        bad(TypeError, "checkpoint_prefix", None, "."),
        bad(TypeError, "checkpoint_path", "m", None),
    ),
)
def test_refusals(row):
    row()


def test_calls_at_wrong_times_and_places():
    with pytest.raises(ValueError, match="expected a step after 5"):
        save(5)
    for call in (save, load):
        with pytest.raises(ValueError, match=f"`Checkpointer.{call.__name__}`: .*tf.f"):
            tf.function(lambda call=call: [call(6), 1][1])()
    made = checkpointer.Checkpointer("/proc/self", a=tf.Variable(1.0))
    with pytest.raises(OSError, match="`Checkpointer.save`: `ckpt_dir` .* disk"):
        made.save(1)


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


@pytest.mark.slow
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


STATES = ["", "3", "{}", '{"bit_generator":"PCG64"}']
FORGED = [*({"generators": {"r": text}} for text in STATES), {"paths": {}}]


@pytest.mark.parametrize("forged", FORGED, ids=str)
def test_structures_that_contradict_themselves_are_damage(tmp_path, forged):
    rng = np.random.default_rng(3)
    before = rng.bit_generator.state
    manager = checkpointer.Checkpointer(tmp_path, r=rng)
    path = manager.save(1)
    body = sealed_folder.unseal(path, "structure.json")
    (path / "structure.json").unlink()
    del body["files"]
    sealed_folder.seal(path, "structure.json", {**body, **forged})
    with pytest.raises(ValueError, match="damaged .(a generator cannot|it lacks path)"):
        manager.load()
    assert rng.bit_generator.state == before
