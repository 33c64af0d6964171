"""The ways a function of tensors is run: eagerly, in a graph, compiled by XLA."""

import numpy as np
import pytest
import tensorflow as tf

MODES = {"eager": {}, "graph": {"jit_compile": None}, "xla": {"jit_compile": True}}
modes = pytest.mark.parametrize("mode", MODES)


def in_mode(mode, function):
    if mode == "eager":
        return function
    return tf.function(function, autograph=False, **MODES[mode])


def run(mode, function, *args):
    return in_mode(mode, function)(*args)


def same(got, expected, **tolerance):
    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, **tolerance), got, expected
    )


def both_ways(function):
    """A parameter `run` of a test: `function`, and `function` compiled by XLA."""
    return pytest.mark.parametrize(
        "run", [function, tf.function(function, jit_compile=True)], ids=["eager", "xla"]
    )
