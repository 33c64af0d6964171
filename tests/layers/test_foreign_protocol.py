"""What is asked of a foreign layer before it runs, and how it is run."""

import foreign_layers
import numpy as np
import pytest
import tensorflow as tf

from tfrl import core
from tfrl.layers import _foreign


def test_one_runner_or_one_for_each_mode():
    layer = foreign_layers.Affine(2)
    for given in (layer, lambda: layer):
        runners = _foreign.runners_of(given)
        assert runners[False] is runners[True]
    runners = _foreign.runners_of(lambda training: foreign_layers.Affine(2 + training))
    assert runners[True] is not runners[False]
    (kernel, _), state = runners[True].init(core.ShapeDtype((1, 4)), np.int64(0))
    assert (kernel.shape, state) == ((4, 3), ())


def test_the_flag_goes_to_layers_that_take_it():
    x, key = tf.ones([2, 8]), tf.constant(0, tf.int64)
    (runner,) = set(_foreign.runners_of(foreign_layers.Dropout()).values())
    weights, state = runner.init(core.ShapeDtype((2, 8)), np.int64(0))
    dropped, state = runner.call(x, weights, state, key, True)
    assert set(np.unique(dropped)) == {0.0, 2.0}
    kept, _ = runner.call(x, weights, state, key, False)
    np.testing.assert_array_equal(kept, x)
    (runner,) = set(_foreign.runners_of(foreign_layers.Affine(8)).values())
    weights, state = runner.init(core.ShapeDtype((2, 8)), np.int64(0))
    assert runner.call(x, weights, state, key, True)[0].shape == (2, 8)


def test_structures_must_agree():
    nest = ({"mark": ()}, [tf.zeros([2]), None])
    _foreign.check_structure("a state", nest, nest)
    with pytest.raises(ValueError, match=r"expected a state of structure .*\[2\]"):
        _foreign.check_structure("a state", nest, ({"mark": ()}, [None]))
    with pytest.raises(ValueError, match=r"of shape \(2,\); got \(3,\)"):
        _foreign.check_structure("it", (tf.zeros([2]),), (tf.zeros([3]),))
    with pytest.raises(ValueError, match="expected it of structure"):
        _foreign.check_structure("it", (tf.zeros([2]),), [tf.zeros([2])])


@pytest.mark.parametrize(
    "dtype", [np.float16, "bfloat16", np.uint32, bool, np.complex64]
)
def test_arrays_of_numbers_and_bools_will_do(dtype):
    _foreign.check_dtype("inputs", dtype)


def test_arrays_of_strings_will_not():
    with pytest.raises(TypeError, match="`inputs` expected arrays of numbers or bools"):
        _foreign.check_dtype("inputs", np.dtype("S3"))


def test_inputs_of_another_batch_than_the_only_one():
    tensor = tf.zeros([4, 2])
    assert _foreign.of_batch(None, tensor) is tensor
    assert _foreign.of_batch(4, tensor).shape == (4, 2)
    for shape in ((None, 2), (4, 2), ()):
        _foreign.check_batch(4, shape)
    with pytest.raises(ValueError, match="`inputs` expected a batch of 3"):
        _foreign.check_batch(3, (4, 2))


def test_errors_are_laid_on_shapes_where_those_differ():
    built_for = {"a": core.ShapeDtype((None, 3)), "b": core.ShapeDtype((None, None))}
    for rows in (2, 5):
        inputs = {"a": tf.zeros([rows, 3]), "b": tf.zeros([rows, 9])}
        with pytest.raises(KeyError):
            with _foreign.blaming_shapes(built_for, inputs):
                raise KeyError("x")
    for wrong in (tf.zeros([2, 4]), tf.zeros([2]), tf.zeros([2, 3, 1])):
        with pytest.raises(ValueError, match="built for .*: reason"):
            with _foreign.blaming_shapes(built_for, {**inputs, "a": wrong}):
                raise RuntimeError("reason")
