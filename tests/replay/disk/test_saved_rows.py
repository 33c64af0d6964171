import re

import numpy as np
import pytest
import tensorflow as tf

from tfrl.core import shapes
from tfrl.replay.disk import _blocks, _saved_rows

LEAVES = [shapes.ShapeDtype((1 << 17,)), shapes.ShapeDtype((5,), np.int16)]
CAPACITY = 40  # 20 MiB in the first leaf: two parts


def rows():
    blocks = [_blocks.MemoryBlock(leaf, CAPACITY) for leaf in LEAVES]
    return _saved_rows.Leaves(blocks, "these", lambda: None)


def filled(number):
    leaves = rows()
    for array in leaves.arrays():
        array[...] = number + np.arange(array.size).reshape(array.shape) % 1000
    return leaves


def equal(one, other):
    for a, b in zip(one.arrays(), other.arrays(), strict=True):
        np.testing.assert_array_equal(a, b, strict=True)


def saved(leaves, path):
    checkpoint = tf.train.Checkpoint(leaves=leaves.state)
    return checkpoint.write(str(path))


def restored(leaves, path):
    tf.train.Checkpoint(leaves=leaves.state).read(path).assert_consumed()
    return leaves


def variables(path):
    shapes = dict(tf.train.list_variables(path))
    return sorted(shape for name, shape in shapes.items() if "/part" in name)


def test_most_bytes_are_saved_from_the_arrays(tmp_path):
    leaves = filled(1)
    path = saved(leaves, tmp_path / "c")
    # 20 MiB - 256 KiB, in parts of 16 MiB; the small leaf is inline.
    assert variables(path) == [[(4 << 20) - (1 << 18)], [1 << 24]]
    payload = tf.train.load_variable(path, "leaves/buffer0/.ATTRIBUTES/py_state")
    assert len(payload) < (1 << 18) + 500
    equal(restored(filled(5), path), leaves)


def test_each_save_and_each_restore_gets_other_names(tmp_path):
    leaves = filled(1)
    names = set()
    for number in range(3):
        path = saved(leaves, tmp_path / f"{number}")
        names.update(re.findall(r"rows_\w+", str(tf.train.list_variables(path))))
        equal(restored(leaves, path), filled(1))
    assert len(names) == 3
    assert not names & set(vars(leaves.each[0].parts))


@pytest.mark.parametrize("reason", ["forked", "copying"])
def test_without_shared_memory_all_is_inline(reason, monkeypatch, tmp_path):
    whole = saved(filled(1), tmp_path / "whole")
    if reason == "forked":
        monkeypatch.setattr(_saved_rows, "_HOME", -1)
    else:
        monkeypatch.setattr(_saved_rows, "_tensor", lambda piece: tf.constant(piece))
    leaves = filled(2)
    path = saved(leaves, tmp_path / "c")
    assert variables(path) == []
    equal(restored(filled(3), path), leaves)
    if reason == "forked":
        equal(restored(filled(3), whole), filled(1))
    monkeypatch.undo()
    equal(restored(filled(4), path), leaves)


def test_a_part_that_is_missing(tmp_path):
    leaves = filled(1)
    header = leaves.each[0].serialize()
    other = rows()
    with pytest.raises(ValueError, match="part0 in the checkpoint; got none"):
        other.each[0].deserialize(header)
    assert other.each[0].array is None
    assert not other.arrays()[0].any()
    path = saved(filled(7), tmp_path / "c")
    equal(restored(other, path), filled(7))


def test_arrays_are_given_up_before_new_ones_are_made(monkeypatch, tmp_path):
    path = saved(filled(1), tmp_path / "c")
    leaves = filled(2)
    make = leaves.each[0]._block.array
    monkeypatch.setattr(
        leaves.each[0]._block,
        "array",
        lambda: make() if leaves.each[0].array is None else pytest.fail("twice"),
    )
    equal(restored(leaves, path), filled(1))
