"""Tests of `tfrl.losses.supervised`."""

import math

import numpy as np
import pytest
import refusals
import tensorflow as tf
from default_rows import slow
from refusals import bad, zeros

from tfrl import losses

GENERATOR = np.random.default_rng(0)


def classification_slowly(output, target):
    """One prediction at a time, in Python."""
    rows, labels = np.float64(output), np.ravel(target)
    rows = rows.reshape(len(labels), -1).tolist()
    loss = hits = 0.0
    for row, label in zip(rows, labels.tolist(), strict=True):
        top = max(row)
        loss += top + math.log(sum(math.exp(x - top) for x in row)) - row[label]
        hits += row.index(top) == label
    return loss, hits / len(labels)


def test_classification_by_hand():
    # Softmax of [log 3, 0] is [3/4, 1/4].
    output = tf.constant([[math.log(3.0), 0.0], [math.log(3.0), 0.0]], tf.float64)
    info = losses.classification_loss(output, tf.constant([0, 1]))
    np.testing.assert_allclose(info.loss, math.log(4 / 3) + math.log(4), rtol=1e-12)
    np.testing.assert_array_equal(info.extra, 0.5)


@pytest.mark.parametrize(
    ("output_shape", "target_shape"),
    [
        ([4, 3], [4]),
        ([4, 3], [4, 1]),
        ([4, 3], [4, 1, 1]),
        ([4, 1, 3], [4]),
        ([4, 1, 3], [4, 1]),
        ([4, 1, 3], [4, 1, 1]),
        ([4, 2, 3], [4, 2]),
        ([4, 2, 3], [4, 2, 1]),
        ([4, 6], [4, 2]),
        ([4, 6], [4, 2, 1]),
        ([1, 3], [1]),
        ([3, 3, 3], [3, 3]),
    ],
    ids=str,
)
@pytest.mark.parametrize("mode", ["graph", *slow("eager")])
def test_every_documented_shape(output_shape, target_shape, mode):
    output = GENERATOR.normal(size=output_shape)
    target = GENERATOR.integers(0, 3, size=target_shape)
    function = losses.classification_loss
    if mode == "graph":
        specs = [
            tf.TensorSpec([None] * len(output_shape), tf.float64),
            tf.TensorSpec([None] * len(target_shape), tf.int64),
        ]
        function = tf.function(function, input_signature=specs)
    info = function(output, target)
    loss, accuracy = classification_slowly(output, target)
    np.testing.assert_allclose(info.loss, loss, rtol=1e-12)
    np.testing.assert_allclose(info.extra, accuracy, rtol=1e-6)
    assert info.loss.shape == info.extra.shape == []


@pytest.mark.parametrize("target_dtype", ["uint8", "int16", "int32", "uint32", "int64"])
def test_classes_of_any_integer_dtype(target_dtype):
    info = losses.classification_loss(
        tf.constant([[2.0, 1.0]]), tf.constant([1], target_dtype)
    )
    np.testing.assert_allclose(info.loss, math.log(1 + math.e), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("jit", [False, *slow(True)], ids=["eager", "xla"])
def test_dtype_is_kept(dtype, jit):
    def both(output):
        classes = losses.classification_loss(output, tf.constant([[0], [1]]))
        return *classes, losses.regression_loss(output, [[1, 0], [0, 2]]).loss

    run = tf.function(both, jit_compile=True) if jit else both
    results = run(tf.constant([[1.0, 1.0], [0.0, 0.0]], dtype))
    assert [result.dtype for result in results] == [dtype] * 3
    numbers = [float(tf.cast(result, tf.float64)) for result in results]
    np.testing.assert_allclose(numbers, [math.log(4), 0.5, 2.5], rtol=1e-2)


def test_accuracy_of_more_rows_than_float16_counts():
    output = tf.one_hot(tf.zeros([5000], tf.int32), 2, dtype=tf.float16)
    target = tf.constant([0] * 4000 + [1] * 1000)
    accuracy = losses.classification_loss(output, target).extra
    np.testing.assert_allclose(accuracy, 0.8, rtol=1e-3)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e4, 1e30])
def test_extreme_logits(scale):
    output = tf.constant([[scale, -scale, 0.0]])
    with tf.GradientTape() as tape:
        tape.watch(output)
        loss = losses.classification_loss(output, tf.constant([1])).loss
    gradient = tape.gradient(loss, output)
    expected = math.log(3) if scale < 1 else 2 * scale
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    wanted = [1 / 3, -2 / 3, 1 / 3] if scale < 1 else [1.0, -1.0, 0.0]
    np.testing.assert_allclose(gradient, [wanted], atol=1e-6)


@pytest.mark.parametrize("shape", [[5, 1], [5, 2, 1], [5, 3]], ids=str)
def test_regression_sums_half_squares(shape):
    output, target = GENERATOR.normal(size=(2, *shape))
    info = losses.regression_loss(tf.constant(output), tf.constant(target))
    pairs = zip(output.ravel(), target.ravel(), strict=True)
    np.testing.assert_allclose(info.loss, sum((x - y) ** 2 for x, y in pairs) / 2)
    assert info.extra == ()


def test_regression_gradients_reach_both():
    output, target = tf.constant([[3.0], [1.0]]), tf.constant([[1.0], [1.5]])
    with tf.GradientTape() as tape:
        tape.watch([output, target])
        loss = losses.regression_loss(output, target).loss
    of_output, of_target = tape.gradient(loss, [output, target])
    np.testing.assert_array_equal(of_output, [[2.0], [-0.5]])
    np.testing.assert_array_equal(of_target, [[-2.0], [0.5]])


C, R = losses.classification_loss, losses.regression_loss


@refusals.table(
    (
        C,
        *(
            bad(ValueError, "target", zeros(*output), np.zeros(target, int))
            for output, target in (
                *(([4, 3], [5]), ([4, 3], [4, 2]), ([4, 2, 3], [4])),
                *(([4, 2, 3], [4, 3]), ([4, 2, 3], [4, 2, 2]), ([4], [4])),
                *(([4, 2, 3, 1], [4, 2]), ([4, 3], [4, 1, 1, 1]), ([4, 3], [])),
            )
        ),
        bad(TypeError, "target", zeros(2, 3), zeros(2)),
        bad(TypeError, "output", np.zeros((2, 3), int), np.zeros(2, int)),
    ),
    (
        R,
        bad(TypeError, "output", np.zeros((2, 3), int), zeros(2, 3)),
        bad(ValueError, "target", zeros(5, 1), zeros(5)),
    ),
)
def test_errors(row):
    row()
