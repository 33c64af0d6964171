"""Reads images and labels (.npz, IDX, binary CIFAR-10) and executes nothing of them."""

import gzip
import math
import os
import pathlib
import struct
import zipfile
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

Part = tuple[np.ndarray, np.ndarray]
Parts = tuple[Part, Part]
# Of each of four arrays: the largest of the sets has 150 MB.
_MOST_BYTES = 1 << 28


def read_mnist(where: str, path: str | os.PathLike[str]) -> Parts:
    """Images `[S, 28, 28]` uint8 and labels `[S]` of both parts."""
    file = _existing(where, path)
    if not file.is_dir():
        return _read_npz(where, file, (28, 28))
    parts = []
    for name in ("train", "t10k"):
        images = _read_idx(where, file, f"{name}-images", 3)
        labels = _read_idx(where, file, f"{name}-labels", 1)
        parts.append(_checked(where, file, images, labels, (28, 28)))
    return parts[0], parts[1]


def read_cifar10(where: str, path: str | os.PathLike[str]) -> Parts:
    """Images `[S, 32, 32, 3]` uint8 and labels `[S]` of both parts."""
    file = _existing(where, path)
    if not file.is_dir():
        return _read_npz(where, file, (32, 32, 3))
    names = [f"data_batch_{number}.bin" for number in range(1, 6)]
    train = _read_records(where, file, names)
    return train, _read_records(where, file, ["test_batch.bin"])


def _existing(where: str, path: str | os.PathLike[str]) -> pathlib.Path:
    file = pathlib.Path(path)
    if not (file.is_dir() or file.is_file()):
        _reject(where, file, "a file or folder that exists", "nothing", "correct it")
    return file


def _reject(where: str, file: Any, expected: str, got: str, remedy: str) -> NoReturn:
    raise ValueError(
        f"`{where}`: `path` {str(file)!r} expected {expected}; got {got}; {remedy}"
    )


def _read_npz(where: str, file: pathlib.Path, shape: tuple[int, ...]) -> Parts:
    names = ("x_train", "y_train", "x_test", "y_test")
    try:
        # With endings, lest `x_train` is read where `x_train.npy` was judged.
        members = [f"{name}.npy" for name in names]
        with zipfile.ZipFile(file) as archive:
            sizes = [archive.getinfo(member).file_size for member in members]
        if max(sizes) > _MOST_BYTES:
            raise ValueError(f"an array of {max(sizes)} bytes")
        with np.load(file, allow_pickle=False) as arrays:
            found = [arrays[member] for member in members]
        # Bytes that are no array come as they are.
        if not all(isinstance(array, np.ndarray) for array in found):
            raise ValueError("something else under these names")
        x_train, y_train, x_test, y_test = found
    except Exception as error:
        # Of a hostile file, anything may go wrong in any way.
        expected = f"an .npz file of the arrays {list(names)}"
        _reject(where, file, expected, _words(error), "download it again")
    return (
        _checked(where, file, x_train, y_train, shape),
        _checked(where, file, x_test, y_test, shape),
    )


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _checked(
    where: str,
    file: pathlib.Path,
    images: np.ndarray,
    labels: np.ndarray,
    shape: tuple[int, ...],
) -> Part:
    """The images and labels `[S]`; raises unless they are bytes and belong together."""
    # Labels of CIFAR-10 come as [S, 1].
    flat = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    fits = images.shape[1:] == shape and flat.shape == images.shape[:1] and len(flat)
    if not fits or images.dtype != np.uint8 or flat.dtype.kind not in "iu":
        expected = f"uint8 images {['S', *shape]} and integer labels ['S']"
        given = [f"{x.dtype} {list(x.shape)}" for x in (images, labels)]
        got = " and ".join(given)
        _reject(where, file, expected, got, "choose another file")
    if flat.min() < 0 or flat.max() > 9:
        got = f"{flat.min()} to {flat.max()}"
        _reject(where, file, "labels in 0 to 9", got, "choose another file")
    return images, flat


def _read_idx(where: str, folder: pathlib.Path, stem: str, rank: int) -> np.ndarray:
    """The array of an IDX file: bytes 0, 0, 8, rank, then int32 sizes, then uint8s."""
    names = [f"{stem}{dot}idx{rank}-ubyte{end}" for dot in "-." for end in ("", ".gz")]
    file = next((folder / name for name in names if (folder / name).is_file()), None)
    if file is None:
        _reject(where, folder, f"one of the files {names}", "none", "get the set anew")
    opened = gzip.open(file) if file.suffix == ".gz" else file.open("rb")
    try:
        with opened as stream:
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
        _reject(where, file, expected, _words(error), "download it again")
    return np.frombuffer(data, np.uint8).reshape(sizes)


def _read_records(where: str, folder: pathlib.Path, names: Sequence[str]) -> Part:
    """Records of a label's byte and 3072 of an image, channel by channel."""
    parts = []
    for name in names:
        file = folder / name
        if not file.is_file():
            remedy = "get the set's binary version"
            _reject(where, folder, f"the files {list(names)}", f"no {name}", remedy)
        size = file.stat().st_size
        if not size or size % 3073 or size > _MOST_BYTES:
            expected = "records of 3073 bytes"
            _reject(where, file, expected, f"{size} bytes", "download it again")
        parts.append(np.fromfile(file, np.uint8).reshape(-1, 3073))
    rows = np.concatenate(parts)
    images = np.moveaxis(rows[:, 1:].reshape(-1, 3, 32, 32), 1, -1)
    return _checked(where, folder, images, rows[:, 0], (32, 32, 3))
