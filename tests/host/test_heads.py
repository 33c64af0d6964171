"""Tests of `tfrl.host.heads`; with TensorFlow they are tested as heads."""

import pickle
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

from tfrl.distributions import action_heads, heads_of_spaces
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
    full = heads_of_spaces.action_head(space)
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


@pytest.mark.parametrize(
    "space", [S.MultiDiscrete([2, 4]), S.Box(-1, 1, (3,))], ids=["multi", "box"]
)
def test_other_numbers_of_parameters_are_refused(space):
    head = heads_of_spaces.action_head(space).plain()
    draw = lambda x: head.host_sample(x, np.random.default_rng(0))  # noqa: E731
    n = head.n_outputs
    for call in (head.host_mode, draw):
        call(np.zeros((2, n), np.float32))
        for width in (n // 2, n - 1, n + 1, 2 * n):
            with pytest.raises(ValueError, match=rf"`{type(head).__name__}`: .* {n}\]"):
                call(np.zeros((2, width), np.float32))


def test_the_room_loads_no_tensorflow():
    code = "import sys, tfrl.host; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_log_mass_by_hand():
    head = heads.NumpyCategorical((2, 3), (5, 0), scalar=False, dtype="int64")
    logits = np.log([[0.2, 0.8, 0.5, 0.25, 0.25], [1.0, 1.0, 1e-9, 4.0, 4.0]])
    found = head.host_log_prob(logits, np.array([[1, 0], [0, 2]]))
    np.testing.assert_allclose(np.exp(found), [0.8 * 0.5, 0.5 * 0.5])


def test_log_density_by_hand():
    parameters = np.array([[3.0, np.log(2.0)]])
    clipped = heads.NumpyNormal((-1.0,), (1.0,), (1,), "float32", False)
    raw = np.array([[1.0]])
    normal = np.exp(-0.5) / np.sqrt(8 * np.pi)
    np.testing.assert_allclose(np.exp(clipped.host_log_prob(parameters, raw)), [normal])
    squashed = heads.NumpyNormal((-1.0,), (5.0,), (1,), "float32", True)
    slope = 3 * (1 - np.tanh(1.0) ** 2)
    found = np.exp(squashed.host_log_prob(parameters, raw))
    np.testing.assert_allclose(found, [normal / slope], rtol=1e-6)


def test_softplus_deviations_by_hand():
    head = heads.NumpyNormal((-1.0,), (1.0,), (1,), "float32", False, 0.5, 0.1)
    grown = 0.1 + 0.4 * np.log1p(np.e * (np.e - 1))
    for free, deviation in ((0.0, 0.5), (-200.0, 0.1), (1.0, grown)):
        at_mean = head.host_log_prob(np.array([[3.0, free]]), np.array([[3.0]]))
        np.testing.assert_allclose(
            np.exp(at_mean), [1 / (deviation * np.sqrt(2 * np.pi))], rtol=1e-6
        )


def test_composite_by_hand():
    press = heads.NumpyCategorical((2,), (1,), scalar=True, dtype="int64")
    steer = heads.NumpyNormal((-1.0,), (1.0,), (1,), "float32", False)
    head = heads.NumpyComposite((press, steer), ("press", "steer"))
    assert (head.n_outputs, head.n_log_stds, head.n_options) == (4, 1, 2)
    parameters = np.log([[0.25, 0.75, np.exp(0.5), 2.0]])
    raw = head.host_mode(parameters)
    log_prob = np.log(0.75) - np.log(2.0 * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(head.host_log_prob(parameters, raw), [log_prob])
    actions = head.host_to_env(raw)
    assert {key: x.tolist() for key, x in actions.items()} == {
        "press": [2],
        "steer": [[0.5]],
    }
    masked = head.host_masked(parameters, np.array([[True, False]]))
    assert head.host_mode(masked)["press"].tolist() == [0]
    again = pickle.loads(pickle.dumps(head))
    assert (again, hash(again)) == (head, hash(head))


def test_the_greedy_option_by_hand():
    values = np.float32([[1.0, 3.0, 3.0]])
    for epsilon, expected in ((0.0, [0, 1, 0]), (0.3, [0.1, 0.8, 0.1])):
        found = np.exp(heads.epsilon_greedy_logits(values, epsilon))
        np.testing.assert_allclose(found, [expected], rtol=1e-6)
    head = heads.NumpyCategorical((3,), (0,), scalar=True, dtype="int64")
    logits = np.repeat(heads.epsilon_greedy_logits(values, 0.3), 20_000, axis=0)
    drawn = head.host_sample(logits, np.random.default_rng(0))
    shares = np.bincount(drawn) / 20_000
    np.testing.assert_allclose(shares, [0.1, 0.8, 0.1], atol=5 * 0.4 / np.sqrt(2e4))


FINEST = np.nextafter(np.float32(0.1), np.float32(0))


@pytest.mark.parametrize(
    ("low", "high", "reached"),
    [
        (-1.0, 2.0, (-1.0, 2.0)),
        (-0.1, 0.1, (-FINEST, FINEST)),
        (-np.inf, 0.1, (-np.inf, FINEST)),
        (-1e39, 1e39, (-1e39, 1e39)),
        (-1e-40, 1e-50, (-1e-40, 1e-50)),
        (1e39, np.inf, (1e39, np.inf)),
        (0.1, 0.1 + 1e-12, (0.1, 0.1 + 1e-12)),
    ],
)
def test_bounds_of_float64_are_kept_and_reached(low, high, reached):
    head = action_heads.NormalHead((low,), (high,), (), "float64", False)
    raw = np.array([[-np.inf], [np.inf]], "f")
    found = head.host_to_env(raw)
    np.testing.assert_array_equal(head.to_env(raw), found, strict=True)
    assert found.dtype == np.float64
    assert (low <= found).all() and (found <= high).all()
    assert found.tolist() == [*map(float, reached)]
    for widened in (head.host_to_env, head.to_env):
        assert np.array_equal(widened(raw.astype("d")), [low, high])
