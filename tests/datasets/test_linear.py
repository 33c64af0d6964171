"""Tests of `tfrl.datasets.linear`."""

import golden_io
import numpy as np
import pytest
import tensorflow as tf

from tfrl.datasets import linear


def recorded(symbol):
    (case,) = golden_io.load("alf/misc", symbol=symbol)
    return case


def test_recorded_statistics():
    case = recorded("TestDataSet")
    out, atol = case["out"], case["tol"]["atol"]
    data = linear.TestDataSet(3, 2, case["in"]["n"], seed=0)
    features, targets = data.get_features().numpy(), data.get_targets().numpy()
    noise = targets - features @ data.weight.numpy()
    assert len(data) == out["len"]
    assert [list(part.shape) for part in data[0]] == out["item0_shapes"]
    np.testing.assert_allclose(features.mean(0), out["feature_mean"], atol=atol)
    np.testing.assert_allclose(features.std(0), out["feature_std"], atol=atol)
    np.testing.assert_allclose(noise.std(0), out["noise_std"], atol=atol)
    assert np.all((data.weight >= 5.0) & (data.weight < 6.0))


def test_recorded_loaders():
    case = recorded("load_test")
    out = case["out"]
    train, test = linear.load_test(**case["in"], seed=1)
    assert (len(train), len(test)) == (out["n_train_batches"], out["n_test_batches"])
    assert [list(part.shape) for part in next(iter(train))] == out["batch"]
    sizes = [sum(len(x) for x, _ in data) for data in (train, test)]
    assert sizes == [out["train_size"], out["test_size"]]


def test_both_parts_have_one_weight():
    found = []
    for data in linear.load_test(seed=2):
        x, y = (np.concatenate(part) for part in zip(*data, strict=True))
        weight, residues, *_ = np.linalg.lstsq(x, y, rcond=None)
        found.append(weight)
        np.testing.assert_allclose(residues / len(x), 1.0, atol=0.25)
    # Each estimate has a standard deviation of 1 / sqrt(500) at most.
    np.testing.assert_allclose(*found, atol=0.3)


def test_both_parts_are_shuffled_anew():
    for data in linear.load_test(seed=3):
        first, second = (np.concatenate([x for x, _ in data]) for _ in range(2))
        assert not np.array_equal(first, second)
        np.testing.assert_array_equal(np.sort(first, 0), np.sort(second, 0))


def test_seeds():
    one, two, other = (linear.TestDataSet(seed=seed) for seed in (4, 4, 5))
    np.testing.assert_array_equal(one.get_targets(), two.get_targets())
    assert not np.array_equal(one.get_targets(), other.get_targets())
    first, second = (next(iter(linear.load_test(seed=4)[0]))[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_given_weight_and_examples():
    data = linear.TestDataSet(2, 1, 5, weight=np.array([[1.0], [0.0]]), seed=0)
    assert data.weight.dtype == tf.float32
    for i in (0, 4, -1):
        features, targets = data[i]
        np.testing.assert_array_equal(features, data.get_features()[i])
        np.testing.assert_array_equal(targets, data.get_targets()[i])
    assert len(list(data)) == 5  # iteration ends
    with pytest.raises(IndexError, match=r"`index` expected .*\[-5, 4\]; got 5"):
        data[5]


def test_batches_ahead_are_the_same():
    plain, ahead = (linear.load_test(num_workers=n, seed=1)[0] for n in (0, 2))
    assert len(plain) == len(ahead)
    for mine, yours in zip(plain, ahead, strict=True):
        np.testing.assert_array_equal(mine[0], yours[0])


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"size": 0}, ValueError, "`size` expected an int of at least 1; got 0"),
        ({"input_dim": 1.5}, TypeError, "`input_dim` expected an int"),
        ({"output_dim": -1}, ValueError, "`output_dim` expected an int"),
        ({"weight": [1.0, 2.0, 3.0]}, ValueError, r"shape \[3, 1\]; got \[3\]"),
    ],
    ids=["size", "input", "output", "weight"],
)
def test_bad_sets(kwargs, error, message):
    with pytest.raises(error, match=f"`TestDataSet`: .*{message}"):
        linear.TestDataSet(**kwargs)


@pytest.mark.parametrize(
    ("name", "value"),
    [("train_bs", 0), ("test_bs", 0), ("num_workers", -1), ("seed", 2**63)],
)
def test_bad_loaders(name, value):
    with pytest.raises(ValueError, match=f"`load_test`: `{name}` expected"):
        linear.load_test(**{name: value})
