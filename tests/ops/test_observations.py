"""Observations cast, scaled, located and differenced."""

import collections

import numpy as np
import pytest
import refusals
import tensorflow as tf
from refusals import bad

from tfrl import ops

Seen = collections.namedtuple("Seen", ["camera", "speed"])


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (49, 98)])
def test_coordinates_are_even_steps(shape):
    height, width = shape
    got = ops.append_coordinate(tf.ones([2, 3, height, width], tf.float64))
    assert got.shape == [2, 5, height, width]
    np.testing.assert_array_equal(got[:, :3], 1.0)
    for row in range(height):
        for column in (0, width // 2, width - 1):
            expected = [-1 + 2 * row / height, -1 + 2 * column / width]
            for picture in got[:, 3:, row, column]:
                np.testing.assert_allclose(picture, expected, rtol=1e-15)


@pytest.mark.parametrize("xla", [None, True], ids=["graph", "xla"])
def test_coordinates_of_unknown_sizes(xla):
    spec = tf.TensorSpec([None, None, None, None])
    graph = tf.function(ops.append_coordinate, input_signature=[spec], jit_compile=xla)
    image = np.random.default_rng(0).normal(size=[2, 1, 3, 4]).astype(np.float32)
    np.testing.assert_allclose(graph(image), ops.append_coordinate(image), rtol=1e-6)
    assert ops.append_coordinate(tf.zeros([0, 1, 3, 4])).shape == [0, 3, 3, 4]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_coordinates_are_rounded_once(dtype):
    image = tf.zeros([1, 1, 300, 2], dtype)
    got = ops.append_coordinate(image)[0, 1, :, 0]
    exact = -1 + 2 * np.arange(300, dtype=np.float32) / np.float32(300)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, tf.cast(exact, dtype))


def test_coordinates_let_the_gradient_through():
    image = tf.ones([1, 2, 2, 2])
    with tf.GradientTape() as tape:
        tape.watch(image)
        loss = tf.reduce_sum(3.0 * ops.append_coordinate(image))
    np.testing.assert_array_equal(
        tape.gradient(loss, image), 3.0 * np.ones([1, 2, 2, 2])
    )
    with pytest.raises(TypeError, match="`im` expected a floating-point dtype"):
        ops.append_coordinate(tf.zeros([1, 1, 2, 2], tf.uint8))


def test_broadcast_repeats_at_every_pixel():
    z = tf.constant([[1, 2, 3], [4, 5, 6]], tf.int64)
    got = ops.spatial_broadcast(z, (7, 3, 4, 5))
    assert got.shape == [2, 3, 4, 5]
    assert got.dtype == tf.int64
    np.testing.assert_array_equal(
        got, np.broadcast_to(z[..., None, None], [2, 3, 4, 5])
    )

    @tf.function(
        input_signature=[tf.TensorSpec([None, None]), tf.TensorSpec([2], tf.int32)]
    )
    def like(z, size):
        return ops.spatial_broadcast(z, (size[0], size[1]))

    assert like([[1.0]], [2, 3]).shape == [1, 1, 2, 3]


@refusals.table(
    (
        ops.spatial_broadcast,
        bad(TypeError, "im_shape", [1.0], [2, 2]),
        bad(TypeError, "im_shape", [1.0], 2),
        bad(ValueError, "im_shape", [1.0], (2,)),
        bad(ValueError, "im_shape", [1.0], (2, -1)),
        bad(ValueError, "z", 1.0, (2, 2)),
    )
)
def test_broadcast_refuses(row):
    row()


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, 1.0), (3, 3), (1.0, 0.0)])
def test_scaled_pixels(low, high):
    pixels = np.arange(256, dtype=np.uint8)
    got = ops.image_scale_transformer(pixels, min=low, max=high)
    assert got.dtype == tf.float32
    expected = [low + (high - low) * pixel / 255 for pixel in range(256)]
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


def test_fields_are_found_in_dicts_and_named_tuples():
    pixel = tf.constant([0, 255], tf.uint8)
    seen = Seen(camera={"left": pixel, "right": pixel}, speed=[pixel, None])
    observation = collections.OrderedDict(b=seen, a=pixel)
    got = ops.image_scale_transformer(observation, ["b.camera.left", "a"])
    assert list(got) == ["b", "a"]
    assert isinstance(got["b"], Seen)
    assert got["b"].speed is seen.speed
    assert got["b"].camera["right"] is pixel
    for image in (got["a"], got["b"].camera["left"]):
        np.testing.assert_array_equal(image, [-1.0, 1.0])
    # What was given is as it was.
    assert observation["a"] is pixel
    assert seen.camera["left"] is pixel


PIXEL = np.zeros([1], np.uint8)


@refusals.table(
    (
        ops.image_scale_transformer,
        bad(ValueError, "fields", {"a": {"d": PIXEL}}, ["b"]),
        bad(ValueError, "fields", {"a": {"d": PIXEL}}, ["a.c"]),
        bad(TypeError, "observation", {"a": PIXEL}),
        bad(TypeError, "observation", {"a": tf.zeros([1])}, ["a"]),
        bad(ValueError, "max", PIXEL, max=np.inf),
    )
)
def test_scaling_refuses(row):
    row()


def test_cast_goes_through_the_nest():
    observation = {"a": (np.array([1], np.uint8), None), "b": [tf.constant(True)]}
    got = ops.cast_transformer(observation, tf.float16)
    assert got["a"][0].dtype == got["b"][0].dtype == tf.float16
    assert got["a"][1] is None
    assert ops.cast_transformer(np.array([2])).dtype == tf.float32
    with pytest.raises(TypeError):
        ops.cast_transformer(np.array([2]), "number")


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_differences_are_the_matrix_product(count):
    frames = np.random.default_rng(count).normal(size=[3, 2, count])
    # The k-th difference, one by one.
    expected = np.stack(
        [np.diff(frames, count - 1 - j, axis=-1)[..., -1] for j in range(count)],
        axis=-1,
    )
    matrix = ops.diff_transform_matrix(count, "float64")
    np.testing.assert_allclose(
        frames @ matrix.numpy(), expected, rtol=1e-10, atol=1e-12
    )
    got = ops.diff_transform(frames, "float64")
    assert got.dtype == tf.float64
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
    assert ops.diff_transform(frames).dtype == tf.float32


@pytest.mark.parametrize("xla", [None, True], ids=["graph", "xla"])
def test_differences_of_pixels_in_graphs(xla):
    spec = tf.TensorSpec([None, 3], tf.uint8)
    graph = tf.function(
        lambda x: ops.diff_transform(x, "bfloat16"),
        input_signature=[spec],
        jit_compile=xla,
    )
    got = graph(np.array([[250, 0, 5], [0, 255, 0]], np.uint8))
    assert got.dtype == tf.bfloat16
    # 255 - 2 * 0 + 5 and 0 - 2 * 255 + 0, to 8 bits.
    expected = tf.cast([[255.0, 5.0, 5.0], [-510.0, -255.0, 0.0]], tf.bfloat16)
    np.testing.assert_array_equal(got, expected)


unknown_frames = tf.function(ops.diff_transform)


@refusals.table(
    (
        ops.diff_transform,
        bad(ValueError, "X", tf.zeros([2, 0])),
        bad(ValueError, "X", 1.0),
        bad(TypeError, "X", [True]),
        bad(TypeError, "dtype", [1.0], "int32"),
    ),
    (
        lambda: unknown_frames.get_concrete_function(tf.TensorSpec([2, None])),
        bad(ValueError, "X"),
    ),
    (ops.diff_transform_matrix, bad(ValueError, "num_frames", 20, "float16")),
)
def test_differences_refuse(row):
    row()
