"""Small sets of images in the formats of the field."""

import gzip
import struct

import numpy as np


def parts(shape, sizes=(12, 7), seed=0):
    """Images and labels of both parts."""
    rng = np.random.default_rng(seed)
    return tuple(
        (rng.integers(0, 256, (n, *shape), np.uint8), np.arange(n) % 10) for n in sizes
    )


def write_npz(path, data, **changes):
    """Writes the arrays of both parts; `changes` replaces some of them."""
    (x_train, y_train), (x_test, y_test) = data
    arrays = {
        "x_train": x_train,
        "y_train": y_train,
        "x_test": x_test,
        "y_test": y_test,
    }
    np.savez(path, **{**arrays, **changes})
    return path


def idx(array):
    """The bytes of an IDX file."""
    sizes = struct.pack(f">{array.ndim}i", *array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def write_idx(folder, data, packed=True, dot="-"):
    """Writes the four IDX files."""
    folder.mkdir(exist_ok=True)
    for name, (images, labels) in zip(("train", "t10k"), data, strict=True):
        for kind, array in (("images", images), ("labels", labels)):
            file = folder / f"{name}-{kind}{dot}idx{array.ndim}-ubyte"
            if packed:
                file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(idx(array)))
            else:
                file.write_bytes(idx(array))
    return folder


def write_records(folder, data):
    """Writes the binary version of CIFAR-10: five files and one."""
    folder.mkdir(exist_ok=True)
    for names, (images, labels) in zip(
        ([f"data_batch_{k}.bin" for k in range(1, 6)], ["test_batch.bin"]),
        data,
        strict=True,
    ):
        rows = [
            bytes([int(label)]) + np.moveaxis(image, -1, 0).tobytes()
            for image, label in zip(images, labels, strict=True)
        ]
        for name, places in zip(
            names, np.array_split(np.arange(len(rows)), len(names)), strict=True
        ):
            (folder / name).write_bytes(b"".join(rows[place] for place in places))
    return folder
