"""Tests of `tfrl.host.heads`; with TensorFlow they are tested as heads."""

import pickle

import gymnasium as gym
import numpy as np
import pytest

from tfrl.distributions import action_heads
from tfrl.host import heads

S = gym.spaces


def test_categorical_draws_as_softmax_says():
    head = heads.NumpyCategorical((2, 3), (5, 0), scalar=False, dtype="int64")
    logits = np.log(np.array([[0.2, 0.8, 0.5, 0.25, 0.25]]))
    rng = np.random.default_rng(0)
    drawn = head.host_sample(np.repeat(logits, 20_000, axis=0), rng)
    assert drawn.dtype == np.int32
    # Five standard errors of a share of 20,000.
    np.testing.assert_allclose(drawn.mean(0)[0], 0.8, atol=5 * np.sqrt(0.16 / 2e4))
    shares = np.bincount(drawn[:, 1]) / 2e4
    np.testing.assert_allclose(shares, [0.5, 0.25, 0.25], atol=5 * np.sqrt(0.25 / 2e4))
    assert head.host_mode(logits).tolist() == [[1, 0]]
    assert head.host_to_env(np.array([[1, 2]])).tolist() == [[6, 2]]


def test_normal_draws_by_location_and_deviation():
    head = heads.NumpyNormal((-1.0, 0.0), (1.0, 4.0), (2,), "float32", True)
    parameters = np.array([[3.0, -1.0, np.log(2.0), np.log(0.5)]], np.float32)
    rng = np.random.default_rng(0)
    drawn = head.host_sample(np.repeat(parameters, 20_000, axis=0), rng)
    np.testing.assert_allclose(drawn.mean(0), [3, -1], atol=5 * 2 / np.sqrt(2e4))
    np.testing.assert_allclose(drawn.std(0), [2.0, 0.5], rtol=5 / np.sqrt(4e4))
    assert head.host_mode(parameters).tolist() == [[3, -1]]
    raw = np.array([[0.0, 0.0], [50.0, -50.0]], np.float32)
    assert head.host_to_env(raw).tolist() == [[0, 2], [1, 0]]


def test_unsquashed_actions_are_clipped():
    head = heads.NumpyNormal((-1.0,), (np.inf,), (), "float64", False)
    assert head.host_to_env(np.array([[-3.0], [7.0]], "f")).tolist() == [-1.0, 7.0]


@pytest.mark.parametrize(
    "space",
    [
        S.Discrete(3, start=2),
        S.MultiDiscrete([2, 4]),
        S.MultiBinary(3),
        S.Box(-1, 2, (2,)),
    ],
    ids=["discrete", "multi", "binary", "box"],
)
def test_plain_heads_act_alike_and_need_no_tensorflow(space):
    full = action_heads.action_head(space)
    plain = full.plain()
    assert b"action_heads" not in pickle.dumps(plain)
    assert plain.n_outputs == full.n_outputs
    shape = (6, full.n_outputs)
    parameters = np.random.default_rng(1).standard_normal(shape).astype("f")
    for one, two in [
        (
            full.host_sample(parameters, np.random.default_rng(2)),
            plain.host_sample(parameters, np.random.default_rng(2)),
        ),
        (full.host_mode(parameters), plain.host_mode(parameters)),
    ]:
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(full.host_to_env(one), plain.host_to_env(two))


@pytest.mark.parametrize("full", [True, False], ids=["tensorflow", "numpy"])
@pytest.mark.parametrize(
    "space",
    [S.Discrete(3), S.MultiDiscrete([2, 4]), S.Box(-1, 1, (4,)), S.Box(-1, 1, (3,))],
    ids=["discrete", "multi", "even box", "odd box"],
)
def test_other_numbers_of_parameters_are_refused(space, full):
    head = action_heads.action_head(space)
    calls = [head.distribution, head.mode, head.entropy] if full else []
    if not full:
        head = head.plain()
        calls = [head.host_mode]
        calls.append(lambda x: head.host_sample(x, np.random.default_rng(0)))
    n = head.n_outputs
    for call in calls:
        call(np.zeros((2, n), np.float32))
        for width in (n // 2, n - 1, n + 1, 2 * n):
            with pytest.raises(ValueError, match=rf"`{type(head).__name__}`: .* {n}\]"):
                call(np.zeros((2, width), np.float32))
