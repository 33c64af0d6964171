"""Tests of `tfrl.host.exploring`."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

from tfrl.host import exploring, heads

ROWS = 20_000
CHOICES = heads.NumpyCategorical((3,), (0,), scalar=True, dtype="int64")
NORMAL = heads.NumpyNormal((-1.0, 0.0), (1.0, 4.0), (2,), "float32")


def five_errors(share):
    """Five standard errors of a share of all rows."""
    return 5 * np.sqrt(share * (1 - share) / ROWS)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_the_best_is_taken_but_for_a_share(epsilon):
    values = np.tile(np.array([1.0, 5.0, 2.0], np.float32), (ROWS, 1))
    rng = np.random.default_rng(0)
    drawn = exploring.epsilon_greedily(CHOICES, values, rng, epsilon)
    shares = np.bincount(drawn, minlength=3) / ROWS
    expected = np.array([0.0, 1.0 - epsilon, 0.0]) + epsilon / 3
    np.testing.assert_array_less(
        np.abs(shares - expected), five_errors(expected) + 1e-9
    )


def test_what_is_not_allowed_is_never_taken():
    values = np.tile(np.array([1.0, -np.inf, 2.0], np.float32), (ROWS, 1))
    rng = np.random.default_rng(0)
    drawn = exploring.epsilon_greedily(CHOICES, values, rng, 0.5)
    shares = np.bincount(drawn, minlength=3) / ROWS
    assert shares[1] == 0
    np.testing.assert_allclose(shares[0], 0.25, atol=five_errors(0.25))


def test_deviations_are_kept_within_bounds():
    given = np.array([[0.5, -2.0, 9.0, -9.0]], np.float32)
    rows = np.repeat(given, ROWS, axis=0)
    rng = np.random.default_rng(0)
    drawn = exploring.within_deviations(NORMAL, (-1.0, 0.5), rows, rng)
    deviations = np.exp([0.5, -1.0])
    errors = 5 * deviations / np.sqrt(ROWS)
    assert (np.abs(drawn.mean(0) - given[0, :2]) < errors).all()
    np.testing.assert_allclose(drawn.std(0), deviations, rtol=5 / np.sqrt(2 * ROWS))
    inside = np.array([[0.5, -2.0, 0.1, -0.3]], np.float32)
    ones = [np.random.default_rng(1) for _ in "ab"]
    np.testing.assert_array_equal(
        exploring.within_deviations(NORMAL, (-1.0, 0.5), inside, ones[0]),
        NORMAL.host_sample(inside, ones[1]),
    )


@pytest.mark.parametrize("noise", [0.5, np.array([0.5, 0.1])])
def test_noise_is_around_the_actions(noise):
    means = np.tile(np.array([0.25, -3.0], np.float32), (ROWS, 1))
    drawn = exploring.disturbed(NORMAL, means, np.random.default_rng(0), noise)
    errors = 5 * np.broadcast_to(noise, 2) / np.sqrt(ROWS)
    assert (np.abs(drawn.mean(0) - means[0]) < errors).all()
    np.testing.assert_allclose(
        drawn.std(0), np.broadcast_to(noise, 2), rtol=5 / np.sqrt(2 * ROWS)
    )


def test_without_noise_actions_are_the_networks():
    means = np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32)
    for noise in (0.0, np.zeros(2)):
        drawn = exploring.disturbed(NORMAL, means, np.random.default_rng(0), noise)
        np.testing.assert_array_equal(drawn, means)
        assert drawn.dtype == np.float32


def test_they_are_sent_and_need_no_tensorflow():
    job = pickle.dumps((exploring.disturbed, NORMAL, np.zeros((1, 2), "f")))
    code = (
        "import pickle, sys, numpy\n"
        f"draw, head, means = pickle.loads({job!r})\n"
        "draw(head, means, numpy.random.default_rng(0), 0.5)\n"
        "assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
