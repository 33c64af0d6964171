"""Tests of `tfrl.datasets._image_files`: what is read, and what is refused."""

import gzip
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest

from tests.datasets import image_sets
from tfrl.datasets import _image_files

DIGITS = image_sets.parts((28, 28))
PHOTOS = image_sets.parts((32, 32, 3))


class Bomb:
    """Makes the folder `executed` beside the file that it is read from."""

    def __init__(self, file):
        self.place = str(file.with_name("executed"))

    def __reduce__(self):
        return os.mkdir, (self.place,)


def test_bomb_works(tmp_path):
    pickle.loads(pickle.dumps(Bomb(tmp_path / "file")))
    assert (tmp_path / "executed").exists()


def assert_parts(actual, expected):
    for mine, yours in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(mine[0], yours[0])
        np.testing.assert_array_equal(mine[1], yours[1])


def test_npz(tmp_path):
    path = image_sets.write_npz(tmp_path / "a.npz", DIGITS)
    assert_parts(_image_files.read_mnist("load", path), DIGITS)
    assert_parts(_image_files.read_mnist("load", str(path)), DIGITS)
    columns = [(x, y[:, np.newaxis]) for x, y in PHOTOS]
    path = image_sets.write_npz(tmp_path / "b.npz", columns)
    assert_parts(_image_files.read_cifar10("load", path), PHOTOS)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("dot", ["-", "."], ids=["dash", "dot"])
def test_idx(tmp_path, packed, dot):
    folder = image_sets.write_idx(tmp_path / "idx", DIGITS, packed, dot)
    assert_parts(_image_files.read_mnist("load", folder), DIGITS)


def test_records(tmp_path):
    folder = image_sets.write_records(tmp_path / "bin", PHOTOS)
    assert_parts(_image_files.read_cifar10("load", folder), PHOTOS)


def objects(path):
    image_sets.write_npz(path, DIGITS, x_train=np.array([Bomb(path)], dtype=object))


def missing_array(path):
    np.savez(path, x_train=DIGITS[0][0])


def pickled(path):
    path.write_bytes(pickle.dumps(Bomb(path)))


def truncated(path):
    image_sets.write_npz(path, DIGITS)
    path.write_bytes(path.read_bytes()[:-200])


def flipped(path):
    image_sets.write_npz(path, DIGITS)
    data = bytearray(path.read_bytes())
    data[2000] ^= 1
    path.write_bytes(bytes(data))


def header_of_a_giant(path):
    image_sets.write_npz(path, DIGITS)
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (9999999999999,), }\n"
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    size = struct.pack("<H", len(header))
    members["x_train.npy"] = b"\x93NUMPY\x01\x00" + size + header + b"\0"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def pickle_under_the_name_of_an_array(path):
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("x_train", "y_train", "x_test", "y_test"):
            archive.writestr(f"{name}.npy", pickle.dumps(Bomb(path)))


def rewritten(path, changes, method=zipfile.ZIP_STORED):
    image_sets.write_npz(path, DIGITS)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in {**members, **changes}.items():
            archive.writestr(name, content)


def header_without_end(path):
    header = b"{'descr': (\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    rewritten(path, {"x_train.npy": content})


def damaged_lzma(path):
    rewritten(path, {}, zipfile.ZIP_LZMA)
    data = bytearray(path.read_bytes())
    data[60:90] = bytes(30)
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    "write",
    [
        header_without_end,
        damaged_lzma,
        objects,
        missing_array,
        pickled,
        truncated,
        flipped,
        header_of_a_giant,
        pickle_under_the_name_of_an_array,
        lambda path: path.write_bytes(b""),
    ],
    ids=lambda write: write.__name__.strip("<>"),
)
@pytest.mark.parametrize("name", ["a.npz", "a.gz", "a"])
def test_refused_npz(tmp_path, write, name):
    file = tmp_path / "set.npz"
    write(file)
    file = file.rename(tmp_path / name)
    with pytest.raises(ValueError, match=f"`load`: `path` '.*{name}' expected an .npz"):
        _image_files.read_mnist("load", file)
    assert not (tmp_path / "executed").exists()


def test_only_the_arrays_that_were_judged_are_read(tmp_path):
    # `x_train` would be taken for `x_train.npy`, whatever its size.
    rewritten(tmp_path / "a.npz", {"x_train": b"more", "y_train": b"more"})
    assert_parts(_image_files.read_mnist("load", tmp_path / "a.npz"), DIGITS)


def test_arrays_are_of_the_size_of_the_sets(tmp_path, monkeypatch):
    monkeypatch.setattr(_image_files, "_MOST_BYTES", 5000)
    path = image_sets.write_npz(tmp_path / "a.npz", DIGITS)
    with pytest.raises(ValueError, match="expected an .npz .*an array of 9536 bytes"):
        _image_files.read_mnist("load", path)


def test_a_pipe_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "a.npz")
    with pytest.raises(ValueError, match="expected a file or folder that exists"):
        _image_files.read_mnist("load", tmp_path / "a.npz")


@pytest.mark.parametrize(
    "changes",
    [
        {"x_train": np.zeros((12, 28, 27), np.uint8)},
        {"x_train": np.zeros((12, 28, 28), np.float32)},
        {"y_train": np.zeros(11, np.int64)},
        {"y_train": np.zeros(12)},
        {"x_test": np.zeros((0, 28, 28), np.uint8), "y_test": np.zeros(0, np.int64)},
        {"x_train": np.uint8(0)},
    ],
    ids=["size", "dtype", "fewer_labels", "float_labels", "nothing", "number"],
)
def test_npz_of_other_things(tmp_path, changes):
    path = image_sets.write_npz(tmp_path / "a.npz", DIGITS, **changes)
    with pytest.raises(ValueError, match="expected uint8 images .* integer labels"):
        _image_files.read_mnist("load", path)


def test_labels_of_other_classes(tmp_path):
    path = image_sets.write_npz(tmp_path / "a.npz", DIGITS, y_test=np.arange(7) - 1)
    with pytest.raises(ValueError, match="expected labels in 0 to 9; got -1 to 5"):
        _image_files.read_mnist("load", path)


GOOD = image_sets.idx(DIGITS[0][0])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the beginning b''"),
        (b"\x00\x00\x08\x01" + GOOD[4:], "the beginning"),
        (b"\x00\x00\x0d\x03" + GOOD[4:], "the beginning"),
        (GOOD[:10], "requires a buffer"),
        (GOOD[:-1], "numbers or more where there are"),
        (GOOD + b"\0", "numbers or more where there are"),
        (GOOD[:4] + struct.pack(">3i", -1, 28, 28) + GOOD[16:], "the sizes"),
        (GOOD[:4] + struct.pack(">3i", 2**31 - 1, 2**31 - 1, 28), "the sizes"),
    ],
    ids=["empty", "rank", "type", "head", "short", "long", "negative", "giant"],
)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_refused_idx(tmp_path, data, message, packed):
    folder = image_sets.write_idx(tmp_path / "idx", DIGITS, packed)
    name = f"train-images-idx3-ubyte{'.gz' if packed else ''}"
    (folder / name).write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(ValueError, match=f"{name}' expected an IDX .*{message}"):
        _image_files.read_mnist("load", folder)


@pytest.mark.parametrize("damage", ["cut", "flip", "no_gzip"])
def test_damaged_gzip(tmp_path, damage):
    folder = image_sets.write_idx(tmp_path / "idx", DIGITS)
    file = folder / "t10k-images-idx3-ubyte.gz"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 255
    cut = file.read_bytes()[:-20]
    file.write_bytes({"cut": cut, "flip": bytes(data), "no_gzip": GOOD}[damage])
    with pytest.raises(ValueError, match="t10k-images.*expected an IDX file"):
        _image_files.read_mnist("load", folder)


def test_gzip_that_swells_is_read_no_further_than_its_head_says(tmp_path):
    folder = image_sets.write_idx(tmp_path / "idx", DIGITS)
    swollen = gzip.compress(GOOD + bytes(50_000_000))
    (folder / "train-images-idx3-ubyte.gz").write_bytes(swollen)
    with pytest.raises(ValueError, match="9409 numbers or more where there are 9408"):
        _image_files.read_mnist("load", folder)


def test_missing_idx(tmp_path):
    folder = image_sets.write_idx(tmp_path / "idx", DIGITS)
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(ValueError, match="expected one of the files .*t10k-labels"):
        _image_files.read_mnist("load", folder)


@pytest.mark.parametrize("size", [0, 3072, 3074], ids=["empty", "short", "long"])
def test_refused_records(tmp_path, size):
    folder = image_sets.write_records(tmp_path / "bin", PHOTOS)
    (folder / "data_batch_3.bin").write_bytes(bytes(size))
    with pytest.raises(ValueError, match=f"data_batch_3.bin.*3073 bytes; got {size} b"):
        _image_files.read_cifar10("load", folder)


def test_pickled_version_is_not_read(tmp_path):
    file = tmp_path / "data_batch_1"
    file.write_bytes(pickle.dumps(Bomb(file)))
    with pytest.raises(ValueError, match="no data_batch_1.bin; get the set's binary"):
        _image_files.read_cifar10("load", tmp_path)
    assert not (tmp_path / "executed").exists()
