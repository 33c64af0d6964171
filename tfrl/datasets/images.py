"""MNIST and CIFAR-10 as batches of `tf.data`."""

import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl.datasets import _batches, _image_files

_Norm = tuple[tuple[float, ...], tuple[float, ...]]

# Mean and standard deviation of the pixels in [0, 1], by channel.
_MNIST = (0.1307,), (0.3081,)
_CIFAR10 = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def get_classes(target: Any, labels: Sequence[int]) -> list[int]:
    """Returns where examples of some classes are in a set.

    Args:
        target: the labels `[S]`, an object that has them as its attribute `targets`,
            or a `tf.data.Dataset` of single (example, label) pairs.
        labels: the classes wanted.

    Returns:
        Indices of the examples whose label is among `labels`, in order.

    Raises:
        ValueError: if the labels have not one axis.

    Example:
        >>> get_classes([0, 1, 2, 2, 0], labels=[0, 2])
        [0, 2, 3, 4]
    """
    if isinstance(target, tf.data.Dataset):
        given = np.array([np.asarray(label) for _, label in target])
    else:
        given = np.asarray(getattr(target, "targets", target))
    if given.ndim != 1:
        raise ValueError(
            "`get_classes`: `target` expected labels [S]; got "
            f"{list(given.shape)}; flatten them, or unbatch the dataset"
        )
    return np.flatnonzero(np.isin(given, np.asarray(labels))).tolist()


def load_mnist(
    label_idx: Sequence[int] | None = None,
    train_bs: int = 100,
    test_bs: int = 100,
    num_workers: int = 0,
    *,
    path: str | os.PathLike[str] | None = None,
    seed: int | None = None,
) -> tuple[tf.data.Dataset, tf.data.Dataset]:
    """Returns the handwritten digits of MNIST, to learn from and to judge by.

    Pixels are brought to [0, 1] and normalised, `(x - 0.1307) / 0.3081`. The first set
    is shuffled anew in every epoch, the second is in its own order.

    Args:
        label_idx: the digits to keep, None for all. Labels stay as they are.
        train_bs: batch size of the first.
        test_bs: batch size of the second; the last batches may be smaller.
        num_workers: batches made ahead of time in the background, 0 for none.
        path: an `.npz` file of `x_train`, `y_train`, `x_test`, `y_test` such as Keras
            keeps, or a folder of the four IDX files, packed by gzip or not; None
            downloads the set into Keras' cache.
        seed: of the shuffling; None for a fresh one.

    Returns:
        Two `tf.data.Dataset`s of (images `[B, 28, 28, 1]` float32, labels `[B]`
        int64).

    Raises:
        ConnectionError: if the set cannot be downloaded.
        TypeError: if a number is no int.
        ValueError: if a number is out of range, no example is left, or a file is not
            what it should be.

    Example:
        >>> train, test = load_mnist()  # doctest: +SKIP
        >>> next(iter(train))[0].shape  # doctest: +SKIP
        TensorShape([100, 28, 28, 1])

    References:
        LeCun et al., "Gradient-based learning applied to document recognition", 1998.
    """
    where = "load_mnist"
    _batches.check(where, train_bs, test_bs, num_workers, seed)
    parts = (
        _batches.fetched(where, "MNIST", keras.datasets.mnist.load_data)
        if path is None
        else _image_files.read_mnist(where, path)
    )
    sizes = (train_bs, test_bs)
    return _pipelines(where, parts, label_idx, sizes, num_workers, seed, _MNIST)


def load_cifar10(
    label_idx: Sequence[int] | None = None,
    train_bs: int = 100,
    test_bs: int = 100,
    num_workers: int = 0,
    *,
    path: str | os.PathLike[str] | None = None,
    seed: int | None = None,
) -> tuple[tf.data.Dataset, tf.data.Dataset]:
    """Returns the small photographs of CIFAR-10, to learn from and to judge by.

    Pixels are brought to [0, 1] and normalised channel by channel with the means
    (0.4914, 0.4822, 0.4465) and deviations (0.2023, 0.1994, 0.2010). The first set is
    shuffled anew in every epoch, the second is in its own order.

    Args:
        label_idx: the classes to keep, None for all. Labels stay as they are.
        train_bs: batch size of the first.
        test_bs: batch size of the second; the last batches may be smaller.
        num_workers: batches made ahead of time in the background, 0 for none.
        path: an `.npz` file of `x_train`, `y_train`, `x_test`, `y_test`, or the folder
            of the set's binary version (`data_batch_1.bin`, ...; that for Python is
            pickled and is not read); None downloads the set into Keras' cache.
        seed: of the shuffling; None for a fresh one.

    Returns:
        Two `tf.data.Dataset`s of (images `[B, 32, 32, 3]` float32, labels `[B]`
        int64).

    Raises:
        ConnectionError: if the set cannot be downloaded.
        TypeError: if a number is no int.
        ValueError: if a number is out of range, no example is left, or a file is not
            what it should be.

    Example:
        >>> train, test = load_cifar10(label_idx=[3, 5])  # doctest: +SKIP
        >>> next(iter(train))[0].shape  # doctest: +SKIP
        TensorShape([100, 32, 32, 3])

    References:
        Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
    """
    where = "load_cifar10"
    _batches.check(where, train_bs, test_bs, num_workers, seed)
    parts = (
        _batches.fetched(where, "CIFAR-10", _downloaded_cifar10)
        if path is None
        else _image_files.read_cifar10(where, path)
    )
    sizes = (train_bs, test_bs)
    return _pipelines(where, parts, label_idx, sizes, num_workers, seed, _CIFAR10)


def _downloaded_cifar10() -> _image_files.Parts:
    (x_train, y_train), (x_test, y_test) = keras.datasets.cifar10.load_data()
    if keras.config.image_data_format() == "channels_first":
        x_train, x_test = (np.moveaxis(x, 1, -1) for x in (x_train, x_test))
    return (x_train, y_train), (x_test, y_test)


def _pipelines(
    where: str,
    parts: _image_files.Parts,
    label_idx: Sequence[int] | None,
    sizes: tuple[int, int],
    num_workers: int,
    seed: int | None,
    norm: _Norm,
) -> tuple[tf.data.Dataset, tf.data.Dataset]:
    train, test = (_chosen(where, *part, label_idx) for part in parts)

    def ready(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        pixels = tf.cast(images, tf.float32) / 255.0
        if pixels.shape.rank == 3:
            pixels = pixels[..., tf.newaxis]
        mean, std = map(tf.constant, norm)
        return (pixels - mean) / std, tf.cast(labels, tf.int64)

    batches = (
        _batches.shuffled(train, sizes[0], seed),
        tf.data.Dataset.from_tensor_slices(test).batch(sizes[1]),
    )
    first, second = (_batches.ahead(data.map(ready), num_workers) for data in batches)
    return first, second


def _chosen(
    where: str, images: np.ndarray, labels: np.ndarray, label_idx: Sequence[int] | None
) -> tuple[np.ndarray, np.ndarray]:
    labels = np.ravel(labels)
    if label_idx is None:
        return images, labels
    places = get_classes(labels, label_idx)
    if not places:
        raise ValueError(
            f"`{where}`: `label_idx` expected labels among "
            f"{np.unique(labels).tolist()}; got {label_idx!r}; correct it"
        )
    return images[places], labels[places]
