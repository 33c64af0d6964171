"""MNIST and CIFAR-10 as batches of `tf.data`, downloaded or read from files.

Files may be `.npz`, IDX or the binary version of CIFAR-10; nothing of them is executed.
"""

import gzip
import math
import os
import pathlib
import struct
import zipfile
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from tfrl.datasets import _batches

# Images `[S, ...]` uint8 and labels `[S]`.
_Part: TypeAlias = tuple[np.ndarray, np.ndarray]

# Of each of four arrays: the largest of the sets has 150 MB.
_MOST_BYTES = 1 << 28


class _Set(NamedTuple):
    """What a set of images is.

    `name` is that of its module in Keras, `mean` and `std` are those of the pixels in
    [0, 1], by channel, and `read` reads both parts from a folder.
    """

    name: str
    shape: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    read: Callable[[str, pathlib.Path], list[_Part]]


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
    sizes = (train_bs, test_bs)
    return _loaded("load_mnist", _MNIST, label_idx, sizes, num_workers, path, seed)


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
    sizes = (train_bs, test_bs)
    return _loaded("load_cifar10", _CIFAR10, label_idx, sizes, num_workers, path, seed)


def _loaded(
    where: str,
    of: _Set,
    label_idx: Sequence[int] | None,
    sizes: tuple[int, int],
    num_workers: int,
    path: str | os.PathLike[str] | None,
    seed: int | None,
) -> tuple[tf.data.Dataset, tf.data.Dataset]:
    _batches.check(where, *sizes, num_workers, seed)
    if path is None:
        parts = _batches.fetched(where, of.name, lambda: _downloaded(of.name))
    else:
        file = _batches.existing(where, path)
        found = of.read(where, file) if file.is_dir() else _read_npz(where, file)
        parts = [_checked(where, file, *part, of.shape) for part in found]
    train, test = (_chosen(where, *part, label_idx) for part in parts)

    def ready(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        pixels = tf.cast(images, tf.float32) / 255.0
        if pixels.shape.rank == 3:
            pixels = pixels[..., tf.newaxis]
        mean, std = map(tf.constant, (of.mean, of.std))
        return (pixels - mean) / std, tf.cast(labels, tf.int64)

    first = _batches.shuffled(train, sizes[0], seed).map(ready)
    second = tf.data.Dataset.from_tensor_slices(test).batch(sizes[1]).map(ready)
    return _batches.ahead(first, num_workers), _batches.ahead(second, num_workers)


def _chosen(
    where: str, images: np.ndarray, labels: np.ndarray, label_idx: Sequence[int] | None
) -> _Part:
    labels = np.ravel(labels)
    if label_idx is None:
        return images, labels
    places = get_classes(labels, label_idx)
    if not places:
        raise ValueError(
            f"`{where}`: `label_idx` expected labels among "
            f"{np.unique(labels).tolist()}; got {label_idx!r}"
        )
    return images[places], labels[places]


def _downloaded(name: str) -> list[_Part]:
    parts = getattr(keras.datasets, name).load_data()
    if name == "cifar10" and keras.config.image_data_format() == "channels_first":
        return [(np.moveaxis(images, 1, -1), labels) for images, labels in parts]
    return list(parts)


def _reject(where: str, file: Any, expected: str, got: Any, remedy: str) -> NoReturn:
    if isinstance(got, Exception):
        got = f"{type(got).__name__}: {got}"
    raise ValueError(
        f"`{where}`: `path` {str(file)!r} expected {expected}; got {got}; {remedy}"
    )


def _checked(
    where: str,
    file: pathlib.Path,
    images: np.ndarray,
    labels: np.ndarray,
    shape: tuple[int, ...],
) -> _Part:
    """The images and labels `[S]`; raises unless they are bytes and belong together."""
    # Labels of CIFAR-10 come as [S, 1].
    flat = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    fits = images.shape[1:] == shape and flat.shape == images.shape[:1] and len(flat)
    if not fits or images.dtype != np.uint8 or flat.dtype.kind not in "iu":
        expected = f"uint8 images {['S', *shape]} and integer labels ['S']"
        got = " and ".join(f"{x.dtype} {list(x.shape)}" for x in (images, labels))
        _reject(where, file, expected, got, "choose another file")
    if flat.min() < 0 or flat.max() > 9:
        got = f"{flat.min()} to {flat.max()}"
        _reject(where, file, "labels in 0 to 9", got, "choose another file")
    return images, flat


def _read_npz(where: str, file: pathlib.Path) -> list[_Part]:
    names = ("x_train", "y_train", "x_test", "y_test")
    try:
        # With endings, lest `x_train` is read where `x_train.npy` was judged.
        members = [f"{name}.npy" for name in names]
        with zipfile.ZipFile(file) as archive:
            size = max(archive.getinfo(member).file_size for member in members)
        if size > _MOST_BYTES:
            raise ValueError(f"an array of {size} bytes")
        with np.load(file, allow_pickle=False) as arrays:
            found = [arrays[member] for member in members]
        # Bytes that are no array come as they are.
        if not all(isinstance(array, np.ndarray) for array in found):
            raise ValueError("something else under these names")
    except Exception as error:
        # Of a hostile file, anything may go wrong in any way.
        expected = f"an .npz file of the arrays {list(names)}"
        _reject(where, file, expected, error, "download it again")
    return [(found[0], found[1]), (found[2], found[3])]


def _read_idx_files(where: str, folder: pathlib.Path) -> list[_Part]:
    def read(name: str) -> _Part:
        images = _read_idx(where, folder, f"{name}-images", 3)
        return images, _read_idx(where, folder, f"{name}-labels", 1)

    return [read("train"), read("t10k")]


def _read_idx(where: str, folder: pathlib.Path, stem: str, rank: int) -> np.ndarray:
    """The array of an IDX file: bytes 0, 0, 8, rank, then int32 sizes, then uint8s."""
    names = [f"{stem}{dot}idx{rank}-ubyte{end}" for dot in "-." for end in ("", ".gz")]
    file = next((folder / name for name in names if (folder / name).is_file()), None)
    if file is None:
        _reject(where, folder, f"one of the files {names}", "none", "get the set anew")
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            magic = stream.read(4)
            if magic != bytes([0, 0, 8, rank]):
                raise ValueError(f"the beginning {magic!r}")
            sizes = struct.unpack(f">{rank}i", stream.read(4 * rank))
            count = math.prod(sizes)
            if min(sizes) < 0 or count > _MOST_BYTES:
                raise ValueError(f"the sizes {list(sizes)}")
            data = stream.read(count + 1)
        if len(data) != count:
            raise ValueError(f"{len(data)} numbers or more where there are {count}")
    except Exception as error:
        expected = f"an IDX file of uint8 numbers with {rank} axes"
        _reject(where, file, expected, error, "download it again")
    return np.frombuffer(data, np.uint8).reshape(sizes)


def _read_records(where: str, folder: pathlib.Path) -> list[_Part]:
    """Records of a label's byte and 3072 of an image, channel by channel."""
    parts = []
    for names in ([f"data_batch_{k}.bin" for k in range(1, 6)], ["test_batch.bin"]):
        rows = []
        for file in [folder / name for name in names]:
            if not file.is_file():
                remedy = "get the set's binary version"
                _reject(where, folder, f"the files {names}", f"no {file.name}", remedy)
            size = file.stat().st_size
            if not size or size % 3073 or size > _MOST_BYTES:
                expected = "records of 3073 bytes"
                _reject(where, file, expected, f"{size} bytes", "download it again")
            rows.append(np.fromfile(file, np.uint8).reshape(-1, 3073))
        labels, images = np.split(np.concatenate(rows), [1], axis=1)
        parts.append((np.moveaxis(images.reshape(-1, 3, 32, 32), 1, -1), labels))
    return parts


_MNIST = _Set("mnist", (28, 28), (0.1307,), (0.3081,), _read_idx_files)
_MEAN, _STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
_CIFAR10 = _Set("cifar10", (32, 32, 3), _MEAN, _STD, _read_records)
