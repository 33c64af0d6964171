"""Tests of `tfrl.host.networks`."""

import math
import pickle

import numpy as np
import pytest

from tfrl.host import networks


def test_hand_worked():
    network = networks.NumpyNetwork(
        [np.array([[1.0], [2.0]], "f"), np.array([[3.0, -1.0]], "f")],
        [np.array([0.5], "f"), np.array([0.0, 1.0], "f")],
        ["relu", "tanh"],
        (np.array([1.0, 0.0]), np.array([2.0, 1.0])),
        np.array([-1.0, 0.25], "f"),
    )
    # (2, 3) -> ((2 - 1) * 2, 3) = (2, 3) -> 2 + 6 + 0.5 = 8.5
    # (2, 99) -> (2, 10) after clipping -> 22.5;  (-9, 0) -> (-10, 0) -> 0
    seen = np.array([[2, 3], [2, 99], [-9, 0]], np.float32)
    found = network(seen)
    hidden = [8.5, 22.5, 0.0]
    expected = [[math.tanh(3 * h), math.tanh(1 - h), -1.0, 0.25] for h in hidden]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.dtype == np.float32
    assert seen.tolist() == [[2, 3], [2, 99], [-9, 0]], "observations stay"


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float64", "bool"])
def test_other_dtypes_and_shapes_are_flattened(dtype):
    network = networks.NumpyNetwork(
        [np.eye(4, dtype="f")], [np.ones(4, "f")], ["linear"]
    )
    seen = np.array([[[0, 1], [1, 0]]], dtype)
    assert network(seen).tolist() == [[1, 2, 2, 1]]


def test_arrays_are_the_networks_own_and_copies_are_not():
    network = networks.NumpyNetwork(
        [np.eye(1, dtype="f")], [np.zeros(1, "f")], ["linear"], (), np.zeros(1, "f")
    )
    copy = pickle.loads(pickle.dumps(network)).copy()
    for number, array in enumerate(copy.arrays(), start=2):
        array[...] = number
    assert copy(np.ones((1, 1), "f")).tolist() == [[2 + 3, 4]]
    assert network(np.ones((1, 1), "f")).tolist() == [[1, 0]]


def test_deviations_may_be_fewer_than_outputs():
    network = networks.NumpyNetwork(
        [np.eye(2, dtype="f")], [np.zeros(2, "f")], ["linear"], log_std=np.float32([7])
    )
    assert network(np.float32([[1, 2], [3, 4]])).tolist() == [[1, 2, 7], [3, 4, 7]]
