"""Tests of `tfrl.datasets.images`."""

import types

import golden_io
import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.datasets import image_sets
from tfrl.datasets import images

DIGITS = image_sets.parts((28, 28))
PHOTOS = image_sets.parts((32, 32, 3))


def arrays(data):
    return tuple(np.concatenate(part) for part in zip(*data, strict=True))


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
    train, test = images.load_mnist(train_bs=5, test_bs=4, path=path, seed=1)
    assert [len(x) for x, _ in train] == [5, 5, 2]
    x, y = next(iter(test))
    assert x.shape == (4, 28, 28, 1) and x.dtype == tf.float32 and y.dtype == tf.int64
    expected, labels = DIGITS[1]
    x, y = arrays(test)
    np.testing.assert_allclose(x[..., 0], (expected / 255 - 0.1307) / 0.3081, atol=1e-5)
    np.testing.assert_array_equal(y, labels)


def test_photographs(tmp_path):
    path = image_sets.write_records(tmp_path / "bin", PHOTOS)
    _, test = images.load_cifar10(path=path)
    expected, labels = PHOTOS[1]
    mean, std = [0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010]
    x, y = arrays(test)
    np.testing.assert_allclose(x, (expected / 255 - mean) / std, atol=1e-5)
    np.testing.assert_array_equal(y, labels)


def test_only_the_first_part_is_shuffled(tmp_path):
    path = image_sets.write_npz(tmp_path / "digits.npz", DIGITS)
    train, test = images.load_mnist(train_bs=12, path=path, seed=1)
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
    with pytest.raises(
        ValueError, match=r"`label_idx` expected labels among \[0, .*\[8\]"
    ):
        images.load_mnist([8], path=path)  # the second part has none


def no_connection():
    raise Exception("URL fetch failure on https://...: None -- unreachable")


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
    _, test = load()
    np.testing.assert_array_equal(arrays(test)[1], data[1][1])
    monkeypatch.setattr(module, "load_data", no_connection)
    with pytest.raises(
        ConnectionError, match="unreachable; get the file .* its `path`"
    ):
        load()


def test_downloads_with_channels_first(monkeypatch):
    first = tuple((np.moveaxis(x, -1, 1), y) for x, y in PHOTOS)
    monkeypatch.setattr(keras.datasets.cifar10, "load_data", lambda: first)
    monkeypatch.setattr(keras.config, "image_data_format", lambda: "channels_first")
    assert next(iter(images.load_cifar10()[1]))[0].shape == (7, 32, 32, 3)


@pytest.mark.parametrize("load", [images.load_mnist, images.load_cifar10])
def test_bad_input(load, tmp_path):
    with pytest.raises(ValueError, match="`train_bs` expected an int of at least 1"):
        load(train_bs=0)
    with pytest.raises(ValueError, match="expected a file or folder that exists"):
        load(path=tmp_path / "nowhere")
