"""What observations become before a network: cast, scaled, located, differenced.

Images have their channels first, `[B, C, H, W]`; stacked frames are the last axis.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tfrl._internal import checks, operands, precision
from tfrl.core import compile, nest

TensorLike: TypeAlias = operands.TensorLike


def cast_transformer(observation: Any, dtype: Any = tf.float32) -> Any:
    """Casts every tensor of an observation.

    Args:
        observation: nest of arrays or tensors of any dtype; None leaves stay.
        dtype: the dtype wanted.

    Returns:
        A nest of tensors in the same structure.

    Raises:
        TypeError: if `dtype` is no dtype.

    Example:
        >>> cast_transformer({"pixels": np.array([255], np.uint8)})["pixels"].numpy()
        array([255.], dtype=float32)
    """
    where, name = "cast_transformer", "observation"
    wanted = operands.dtype_of(where, dtype)

    def cast(leaf: Any) -> tf.Tensor:
        found = leaf if tf.is_tensor(leaf) else checks.as_tensor(where, name, leaf)
        return tf.cast(found, wanted)

    return nest.map_leaves(cast, observation)


def image_scale_transformer(
    observation: Any,
    fields: Sequence[str] | None = None,
    min: float = -1.0,
    max: float = 1.0,
) -> Any:
    """Scales pixels from 0 ... 255 to `min` ... `max`.

        min + (max - min) * pixel / 255

    Args:
        observation: a uint8 image, or dicts and named tuples with such images in them.
        fields: paths to the images, with dots between the names: "camera.left". None,
            or no path at all, if `observation` is the image.
        min: what a pixel of 0 becomes.
        max: what a pixel of 255 becomes.

    Returns:
        The observation with float32 images; everything else in it as it was.

    Raises:
        ValueError: if a path leads nowhere, or `min` or `max` is not finite.
        TypeError: if an image is not uint8.

    Example:
        >>> seen = {"camera": np.array([0, 255], np.uint8), "speed": 3.0}
        >>> image_scale_transformer(seen, fields=["camera"], min=0.0)
        {'camera': <tf.Tensor: ... numpy=array([0., 1.], dtype=float32)>, 'speed': 3.0}
    """
    where = "image_scale_transformer"
    checks.check_finite(where, "min", min)
    checks.check_finite(where, "max", max)

    def scaled(image: Any) -> tf.Tensor:
        found = getattr(image, "dtype", None)
        if found is None or tf.as_dtype(found) != tf.uint8:
            what = type(image).__name__ if found is None else tf.as_dtype(found).name
            raise TypeError(
                f"`{where}`: `observation` expected images of dtype uint8; got {what}; "
                "name the images in `fields`"
            )
        return tf.cast(image, tf.float32) * ((max - min) / 255) + min

    if not fields:
        return scaled(observation)
    for path in fields:
        observation = _replaced(where, path, path.split("."), observation, scaled)
    return observation


def append_coordinate(im: TensorLike) -> tf.Tensor:
    """Appends two channels that say where each pixel is.

        y = -1 + 2 * row / H,    x = -1 + 2 * column / W

    The coordinates run from -1 in even steps and end one step short of 1. The channel
    of y stands before that of x.

    Args:
        im: `[B, C, H, W]`, floating; the result has its dtype.

    Returns:
        `[B, C + 2, H, W]`.

    Raises:
        ValueError: if the rank is not 4.
        TypeError: if `im` is not floating.

    Example:
        >>> append_coordinate(tf.zeros([1, 1, 2, 2]))[0, 1:].numpy()
        array([[[-1., -1.],
                [ 0.,  0.]],
               [[-1.,  0.],
                [-1.,  0.]]], dtype=float32)

    References:
        Liu et al. (2018), "An Intriguing Failing of Convolutional Neural Networks and
        the CoordConv Solution", section 3.
    """
    image = operands.leading("append_coordinate", "im", im)
    checks.check_rank("append_coordinate", "im", image, exact=4)
    batch, channels, height, width = image.shape
    located = _append_coordinate(image)
    more = None if channels is None else channels + 2
    return tf.ensure_shape(located, [batch, more, height, width])


def spatial_broadcast(
    z: TensorLike, im_shape: tuple[int | tf.Tensor, ...]
) -> tf.Tensor:
    """Repeats an embedding at every pixel of an image.

    Args:
        z: `[..., D]`, of any dtype.
        im_shape: a tuple whose last two elements are the height and the width, each an
            int or an integer scalar.

    Returns:
        `[..., D, H, W]`.

    Raises:
        ValueError: if `z` is a scalar, or `im_shape` has fewer than two elements or a
            negative one.
        TypeError: if `im_shape` is not a tuple.

    Example:
        >>> spatial_broadcast(tf.constant([1.0, 2.0]), (1, 3)).numpy()
        array([[[1., 1., 1.]],
               [[2., 2., 2.]]], dtype=float32)

    References:
        Watters, Matthey, Burgess, Lerchner (2019), "Spatial Broadcast Decoder: A Simple
        Architecture for Learning Disentangled Representations in VAEs", section 2.
    """
    where = "spatial_broadcast"
    embedding = operands.ranked(where, "z", z, at_least=1)
    checks.check_type(where, "im_shape", im_shape, tuple, "a tuple")
    if len(im_shape) < 2:
        raise ValueError(f"`{where}`: `im_shape` expected 2 sizes; got {im_shape!r}")
    for size in im_shape[-2:]:
        if not tf.is_tensor(size):
            checks.check_whole_number(where, "im_shape", size, low=0)
    multiples = [1] * embedding.shape.rank + list(im_shape[-2:])
    return tf.tile(embedding[..., tf.newaxis, tf.newaxis], multiples)


def diff_transform(X: TensorLike, dtype: Any = "float32") -> tf.Tensor:
    """Turns stacked frames into the last frame and its discrete derivatives.

        result[..., n - 1 - k] = k-th difference of the last k + 1 frames

    so that the last channel is the position, the one before it the velocity, then the
    acceleration, and so on: `X @ diff_transform_matrix(n)`, computed by differences,
    which keeps what matrix units of reduced precision would lose.

    Args:
        X: `[..., n]`, `n` frames in order of time, integers or floating; `n` must be
            known while tracing.
        dtype: floating dtype of the result. It is computed in float64 if either dtype
            is that, else in float32.

    Returns:
        The shape of `X`.

    Raises:
        ValueError: if `X` is a scalar or the number of frames is unknown or 0.
        TypeError: if `X` is not numeric or `dtype` not floating.

    Example:
        >>> diff_transform([1.0, 2.0, 4.0]).numpy()  # acceleration, velocity, position
        array([1., 2., 4.], dtype=float32)
    """
    frames = operands.ranked("diff_transform", "X", X, at_least=1)
    wanted = operands.floating_dtype("diff_transform", dtype)
    if not (frames.dtype.is_floating or frames.dtype.is_integer):
        raise TypeError(
            f"`diff_transform`: `X` expected numbers; got {frames.dtype.name}"
        )
    count = frames.shape[-1]
    if not count:
        raise ValueError(
            "`diff_transform`: `X` expected a known number of frames along the last "
            f"axis; got shape {frames.shape}; set it with tf.ensure_shape"
        )
    return _diff_transform(frames, num_frames=count, dtype=wanted)


def diff_transform_matrix(num_frames: int, dtype: Any = "float32") -> tf.Tensor:
    """The matrix that turns stacked frames into discrete derivatives.

        M[i, j] = (-1)^(n - 1 - i) * binomial(n - 1 - j, n - 1 - i),    n = num_frames

    Multiplied from the left by `[..., n]` frames in order of time, see
    `diff_transform`.

    Args:
        num_frames: how many frames are stacked, at least 1.
        dtype: floating dtype of the result.

    Returns:
        `[num_frames, num_frames]`.

    Raises:
        ValueError: if `num_frames` is less than 1, or so many that an entry leaves the
            range of `dtype`.
        TypeError: if `num_frames` is not an int or `dtype` not floating.

    Example:
        >>> diff_transform_matrix(4).numpy()
        array([[-1.,  0.,  0.,  0.],
               [ 3.,  1.,  0.,  0.],
               [-3., -2., -1.,  0.],
               [ 1.,  1.,  1.,  1.]], dtype=float32)
    """
    where = "diff_transform_matrix"
    count = checks.check_whole_number(where, "num_frames", num_frames, low=1)
    wanted = operands.floating_dtype(where, dtype)
    orders = range(count - 1, -1, -1)
    rows = [
        [(-1) ** back * math.comb(order, back) for order in orders] for back in orders
    ]
    greatest = math.comb(count - 1, (count - 1) // 2)
    if greatest > float(wanted.max):
        raise ValueError(
            f"`{where}`: `num_frames` expected few enough for {wanted.name}; "
            f"got {num_frames}, with entries up to {greatest}"
        )
    return tf.cast(tf.constant(rows, tf.float64), wanted)


@compile.compiled
def _append_coordinate(image: tf.Tensor) -> tf.Tensor:
    shape = tf.shape(image)
    spots = tf.concat([shape[:1], [1], shape[2:]], axis=0)
    wide = precision.widened(image).dtype

    def evenly(size: tf.Tensor) -> tf.Tensor:
        steps = tf.cast(tf.range(size), wide)
        return tf.cast(-1 + 2 * steps / tf.cast(size, wide), image.dtype)

    rows = tf.broadcast_to(evenly(shape[2])[:, tf.newaxis], spots)
    columns = tf.broadcast_to(evenly(shape[3]), spots)
    return tf.concat([image, rows, columns], axis=1)


@compile.compiled(static=("num_frames", "dtype"))
def _diff_transform(frames: tf.Tensor, num_frames: int, dtype: tf.DType) -> tf.Tensor:
    wide = tf.float64 if tf.float64 in (frames.dtype, dtype) else tf.float32
    differences = tf.cast(frames, wide)
    newest = [differences[..., -1:]]
    for _ in range(num_frames - 1):
        differences = differences[..., 1:] - differences[..., :-1]
        newest.append(differences[..., -1:])
    return tf.cast(tf.concat(newest[::-1], axis=-1), dtype)


def _replaced(
    where: str, path: str, names: Sequence[str], tree: Any, change: Any
) -> Any:
    """A copy of a dict or named tuple in which one leaf is changed."""
    if not names:
        return change(tree)
    name, *rest = names
    is_mapping, fields = isinstance(tree, Mapping), getattr(tree, "_fields", ())
    if name not in (tree if is_mapping else fields):
        raise ValueError(
            f"`{where}`: `fields` expected paths within the observation; got {path!r}, "
            f"but there is no {name!r} in {sorted(tree if is_mapping else fields)}"
        )
    inner = tree[name] if is_mapping else getattr(tree, name)
    inner = _replaced(where, path, rest, inner, change)
    if not is_mapping:
        return tree._replace(**{name: inner})
    copied = copy.copy(tree)
    copied[name] = inner
    return copied
