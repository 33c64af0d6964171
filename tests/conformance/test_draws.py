"""Draws of every distribution have the probabilities that it gives them.

For draws x with the density p, the mean of 1 / p(x) over those in a box is its volume,
and over all of a finite number of outcomes it is that number. So a total other than 1
is seen, or draws that depend on each other where their density does not; the tests of
the rooms compare the draws of single numbers with distribution functions.
"""

import confidence
import numpy as np
import pytest
import tensorflow as tf
from conformance import examples

COUNT = 50_000
SEED, PILOT_SEED = (3, 11), (4, 12)


def drawn(dist, count, seed):
    return tf.nest.map_structure(lambda x: x.numpy(), dist.sample(count, seed=seed))


def moves(draws):
    """The continuous part of draws, with an axis for its numbers."""
    part = draws["move"] if isinstance(draws, dict) else draws
    return part[..., None] if part.ndim == 2 else part


def outcomes(example, low, high):
    """Values to score: points of a box, its corners among them, all options, or both.

    Of each there is one for all that make up the batch.
    """
    if low is None:
        return np.expand_dims(example.options, 1)
    axes = [np.linspace(0.0, 1.0, 25)] * low.shape[-1]
    steps = np.stack(np.meshgrid(*axes), axis=-1).reshape([-1, 1, len(axes)])
    points = np.float32(low + (high - low) * steps)
    if example.options is None:
        return points
    return {
        "choice": np.repeat(example.options, len(points))[:, None],
        "move": np.tile(points, [len(example.options), 1, 1]),
    }


def of_the_volume():
    """The rows; those that take half a second and are like another are slow."""
    long = ("DiagMultivariateBeta", "TruncatedCauchy", "TruncatedDistribution")
    for example in examples.DISTRIBUTIONS:
        name = example.cls.__name__
        marks = [pytest.mark.slow] if name in long else []
        yield pytest.param(example, id=name, marks=marks)


@pytest.mark.parametrize("example", list(of_the_volume()))
def test_mean_of_the_inverse_density_is_the_volume(example):
    dist = example()
    draws = drawn(dist, COUNT, SEED)
    low = high = None
    inside, volume = True, 1.0
    if example.options is None or isinstance(draws, dict):
        pilot = moves(drawn(dist, 2000, PILOT_SEED))
        low, high = np.quantile(pilot, [0.25, 0.75], axis=0)
        # A number on which draws are clipped lies outside.
        inside = ((moves(draws) > low) & (moves(draws) < high)).all(axis=-1)
        volume = np.prod(high - low, axis=-1)
    values = outcomes(example, low, high)
    if np.ndim(values) == 3 and tf.TensorShape(dist.event_shape).rank == 0:
        values = values[..., 0]
    densities = np.exp(dist.log_prob(values))
    least = np.min(np.where(densities > 0.0, densities, np.inf), axis=0)
    if example.options is not None:
        volume = volume * np.mean(densities > 0.0, axis=0) * len(example.options)

    weights = np.where(inside, np.exp(-dist.log_prob(draws)), 0.0)
    margins = confidence.cdf_margin(COUNT) / least / volume
    assert np.all(margins < 0.25), "the bounds are too far to tell"
    for one, size, density in zip(weights.T, volume, least, strict=True):
        confidence.assert_mean(one, size, 0.0, 1.01 / density)
