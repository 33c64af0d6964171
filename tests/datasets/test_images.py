"""Tests of `tfrl.datasets.images`: what is read from files, and what is refused."""

import gzip
import os
import pickle
import struct
import types
import zipfile

import golden_io
import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.datasets import image_sets
from tfrl.datasets import images

DIGITS = image_sets.parts((28, 28))
PHOTOS = image_sets.parts((32, 32, 3))
MNIST, CIFAR10 = (0.1307, 0.3081), ([0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010])


def arrays(data):
    return tuple(np.concatenate(part) for part in zip(*data, strict=True))


def assert_parts(loaded, expected, norm=MNIST):
    """Both parts are those expected, of the first in any order."""
    for data, (images_, labels) in zip(loaded, expected, strict=True):
        x, y = arrays(data)
        raw = np.round((x * norm[1] + norm[0]) * 255).astype(np.uint8)
        raw, labels = raw.reshape(len(raw), -1), np.ravel(labels)
        wanted = images_.reshape(len(raw), -1)
        if data is loaded[0]:
            raw, wanted = (x[np.lexsort(x.T)] for x in (raw, wanted))
            y, labels = np.sort(y), np.sort(labels)
        np.testing.assert_array_equal(raw, wanted)
        np.testing.assert_array_equal(y, labels)


def test_recorded_classes():
    (case,) = golden_io.load("alf/misc", symbol="get_classes")
    given, indices = case["in"], case["out"]["indices"]
    target = types.SimpleNamespace(targets=given["targets"])
    assert images.get_classes(target, given["labels"]) == indices


@pytest.mark.parametrize(
    "form",
    [list, np.array, tf.constant, lambda y: tf.data.Dataset.from_tensor_slices((y, y))],
    ids=["list", "numpy", "tensor", "dataset"],
)
def test_classes_of_labels(form):
    assert images.get_classes(form([3, 1, 3, 2]), [3, 9]) == [0, 2]
    assert images.get_classes(form([3, 1, 3, 2]), []) == []


@pytest.mark.parametrize(
    "target",
    [[[1, 2]], 3, tf.data.Dataset.from_tensor_slices(([1, 2], [1, 2])).batch(2)],
    ids=["rows", "number", "batches"],
)
def test_classes_of_what_is_no_list_of_labels(target):
    with pytest.raises(ValueError, match=r"`target` expected labels \[S\]; got"):
        images.get_classes(target, [1])


def test_digits(tmp_path):
    path = image_sets.write_npz(tmp_path / "digits.npz", DIGITS)
    loaded = images.load_mnist(train_bs=5, test_bs=4, path=str(path), seed=1)
    assert [len(x) for x, _ in loaded[0]] == [5, 5, 2]
    x, y = next(iter(loaded[1]))
    assert x.shape == (4, 28, 28, 1) and x.dtype == tf.float32 and y.dtype == tf.int64
    assert_parts(loaded, DIGITS)


@pytest.mark.parametrize("form", ["npz", "records"])
def test_photographs(tmp_path, form):
    if form == "npz":
        columns = [(x, y[:, np.newaxis]) for x, y in PHOTOS]
        path = image_sets.write_npz(tmp_path / "b.npz", columns)
    else:
        path = image_sets.write_records(tmp_path / "bin", PHOTOS)
    loaded = images.load_cifar10(path=path)
    assert_parts(loaded, PHOTOS, CIFAR10)
    expected = (PHOTOS[1][0] / 255 - CIFAR10[0]) / CIFAR10[1]
    np.testing.assert_allclose(arrays(loaded[1])[0], expected, atol=1e-5)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("dot", ["-", "."], ids=["dash", "dot"])
def test_idx(tmp_path, packed, dot):
    folder = image_sets.write_idx(tmp_path / "idx", DIGITS, packed, dot)
    assert_parts(images.load_mnist(path=folder), DIGITS)


def test_only_the_first_part_is_shuffled(tmp_path):
    path = image_sets.write_npz(tmp_path / "digits.npz", DIGITS)
    train, test = images.load_mnist(train_bs=12, path=path, seed=1, num_workers=2)
    first, second = (next(iter(train)) for _ in range(2))
    assert not np.array_equal(first[1], second[1])
    for x, y in (first, second):  # images stay with their labels
        raw = np.round((x[..., 0] * 0.3081 + 0.1307) * 255).astype(np.uint8)
        for image, label in zip(raw, y, strict=True):
            places = np.flatnonzero((DIGITS[0][0] == image).all(axis=(1, 2)))
            assert DIGITS[0][1][places] == [label]
    np.testing.assert_array_equal(*(next(iter(test))[1] for _ in range(2)))


def test_some_classes(tmp_path):
    path = image_sets.write_npz(tmp_path / "digits.npz", DIGITS)
    train, test = images.load_mnist([1, 3], path=path)
    assert sorted(arrays(train)[1]) == [1, 1, 3]  # twelve examples: 0, ..., 9, 0, 1
    assert arrays(test)[1].tolist() == [1, 3]
    with pytest.raises(ValueError, match=r"`label_idx` expected .*among \[0, .*\[8\]"):
        images.load_mnist([8], path=path)  # the second part has none


@pytest.mark.parametrize(
    ("load", "module", "data"),
    [
        (images.load_mnist, keras.datasets.mnist, DIGITS),
        (images.load_cifar10, keras.datasets.cifar10, PHOTOS),
    ],
    ids=["mnist", "cifar10"],
)
def test_downloads(monkeypatch, load, module, data):
    columns = tuple((x, y[:, np.newaxis].astype(np.uint8)) for x, y in data)
    monkeypatch.setattr(module, "load_data", lambda: columns)
    np.testing.assert_array_equal(arrays(load()[1])[1], data[1][1])
    if load is images.load_cifar10:
        monkeypatch.setattr(keras.config, "image_data_format", lambda: "channels_first")
        first = tuple((np.moveaxis(x, -1, 1), y) for x, y in PHOTOS)
        monkeypatch.setattr(module, "load_data", lambda: first)
        assert next(iter(load()[1]))[0].shape == (7, 32, 32, 3)

    def no_connection():
        raise Exception("URL fetch failure on https://...: None -- unreachable")

    monkeypatch.setattr(module, "load_data", no_connection)
    with pytest.raises(ConnectionError, match="unreachable; get the .* its `path`"):
        load()


@pytest.mark.parametrize("load", [images.load_mnist, images.load_cifar10])
def test_bad_input(load, tmp_path):
    with pytest.raises(ValueError, match="`train_bs` expected an int of at least 1"):
        load(train_bs=0)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "nowhere", tmp_path / "pipe"):
        with pytest.raises(ValueError, match="expected a file or folder that exists"):
            load(path=path)


class Bomb:
    """Makes the folder `executed` beside the file that it is read from."""

    def __init__(self, file):
        self.place = str(file.with_name("executed"))

    def __reduce__(self):
        return os.mkdir, (self.place,)


def test_bomb_works(tmp_path):
    pickle.loads(pickle.dumps(Bomb(tmp_path / "file")))
    assert (tmp_path / "executed").exists()


def objects(path):
    image_sets.write_npz(path, DIGITS, x_train=np.array([Bomb(path)], dtype=object))


def missing_array(path):
    np.savez(path, x_train=DIGITS[0][0])


def pickled(path):
    path.write_bytes(pickle.dumps(Bomb(path)))


def truncated(path):
    image_sets.write_npz(path, DIGITS)
    path.write_bytes(path.read_bytes()[:-200])


def overwritten(path, start, data):
    old = path.read_bytes()
    path.write_bytes(old[:start] + data + old[start + len(data) :])


def flipped(path):
    image_sets.write_npz(path, DIGITS)
    overwritten(path, 2000, bytes([path.read_bytes()[2000] ^ 1]))


def rewritten(path, changes, method=zipfile.ZIP_STORED):
    image_sets.write_npz(path, DIGITS)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in {**members, **changes}.items():
            archive.writestr(name, content)


def header(text):
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + b"\0"


def header_of_a_giant(path):
    text = b"{'descr': '|u1', 'fortran_order': False, 'shape': (9999999999999,), }\n"
    rewritten(path, {"x_train.npy": header(text)})


def header_without_end(path):
    rewritten(path, {"x_train.npy": header(b"{'descr': (\n")[:-1]})


def pickle_under_the_name_of_an_array(path):
    rewritten(path, {"x_train.npy": pickle.dumps(Bomb(path))})


def damaged_lzma(path):
    rewritten(path, {}, zipfile.ZIP_LZMA)
    overwritten(path, 60, bytes(30))


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (header_without_end, "a.npz"),
        (damaged_lzma, "a.gz"),
        (objects, "a.npz"),
        (missing_array, "a"),
        (pickled, "a.npz"),
        (pickled, "a.gz"),
        (pickled, "a"),
        (truncated, "a.npz"),
        (flipped, "a"),
        (header_of_a_giant, "a.npz"),
        (pickle_under_the_name_of_an_array, "a.npz"),
        (empty, "a"),
    ],
)
def test_refused_npz(tmp_path, write, name):
    file = tmp_path / "set.npz"
    write(file)
    file = file.rename(tmp_path / name)
    match = f"`load_mnist`: `path` '.*{name}' expected an .npz"
    with pytest.raises(ValueError, match=match):
        images.load_mnist(path=file)
    assert not (tmp_path / "executed").exists()


def test_only_arrays_of_the_size_of_the_sets_are_read(tmp_path, monkeypatch):
    # `x_train` would be taken for `x_train.npy`, whatever its size.
    rewritten(tmp_path / "a.npz", {"x_train": b"more", "y_train": b"more"})
    assert_parts(images.load_mnist(path=tmp_path / "a.npz"), DIGITS)
    monkeypatch.setattr(images, "_MOST_BYTES", 5000)
    with pytest.raises(ValueError, match="expected an .npz .*an array of 9536 bytes"):
        images.load_mnist(path=tmp_path / "a.npz")


THINGS = "expected uint8 images .* integer labels"


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"x_train": np.zeros((12, 28, 27), np.uint8)}, THINGS),
        ({"x_train": np.zeros((12, 28, 28), np.float32)}, THINGS),
        ({"y_train": np.zeros(11, np.int64)}, THINGS),
        ({"y_train": np.zeros(12)}, THINGS),
        ({"x_test": np.zeros((0, 28, 28), np.uint8), "y_test": np.zeros(0)}, THINGS),
        ({"x_train": np.uint8(0)}, THINGS),
        ({"y_test": np.arange(7) - 1}, "expected labels in 0 to 9; got -1 to 5"),
    ],
    ids=["size", "dtype", "fewer", "floats", "nothing", "number", "classes"],
)
def test_npz_of_other_things(tmp_path, changes, match):
    path = image_sets.write_npz(tmp_path / "a.npz", DIGITS, **changes)
    with pytest.raises(ValueError, match=match):
        images.load_mnist(path=path)


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
        images.load_mnist(path=folder)


@pytest.mark.parametrize("damage", ["cut", "flip", "no_gzip", "swollen", "missing"])
def test_damaged_gzip(tmp_path, damage):
    folder = image_sets.write_idx(tmp_path / "idx", DIGITS)
    file = folder / "t10k-images-idx3-ubyte.gz"
    data, match = file.read_bytes(), "t10k-images.*expected an IDX file"
    if damage == "flip":
        overwritten(file, len(data) // 2, bytes([data[len(data) // 2] ^ 255]))
    elif damage == "swollen":  # read no further than its head says
        file.write_bytes(
            gzip.compress(image_sets.idx(DIGITS[1][0]) + bytes(10_000_000))
        )
        match = "5489 numbers or more where there are 5488"
    elif damage == "missing":
        file.unlink()
        match = "expected one of the files .*t10k-images"
    else:
        file.write_bytes({"cut": data[:-20], "no_gzip": GOOD}[damage])
    with pytest.raises(ValueError, match=match):
        images.load_mnist(path=folder)


@pytest.mark.parametrize("size", [0, 3072, 3074], ids=["empty", "short", "long"])
def test_refused_records(tmp_path, size):
    folder = image_sets.write_records(tmp_path / "bin", PHOTOS)
    (folder / "data_batch_3.bin").write_bytes(bytes(size))
    with pytest.raises(ValueError, match=f"data_batch_3.bin.*3073 bytes; got {size} b"):
        images.load_cifar10(path=folder)


def test_pickled_version_is_not_read(tmp_path):
    file = tmp_path / "data_batch_1"
    file.write_bytes(pickle.dumps(Bomb(file)))
    with pytest.raises(ValueError, match="no data_batch_1.bin; get the set's binary"):
        images.load_cifar10(path=tmp_path)
    assert not (tmp_path / "executed").exists()
