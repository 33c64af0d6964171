"""Tests of what `tfrl.training.checkpointer` refuses."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.core import pytree
from tfrl.training import checkpointer


class Node(pytree.PyTreeNode):
    w: int


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


BAD = ["no items", "taken", "text", "unbuilt", "node inside", "same step", "negative"]
BAD += ["keep", "score", "which", "file"]


@pytest.mark.parametrize("name", BAD)
def test_bad_inputs(tmp_path, name):
    call, error, message = bad_inputs(tmp_path)[name]
    with pytest.raises(error, match=message):
        call()
