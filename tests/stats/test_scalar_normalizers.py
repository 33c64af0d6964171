"""Normalizers of numbers against those of shape []."""

import inspect

import numpy as np
import pytest
import tensorflow as tf

from tfrl import stats

KINDS = pytest.mark.parametrize(
    ("scalar", "general", "setting"),
    [
        (stats.ScalarEMNormalizer, stats.EMNormalizer, {"update_rate": 0.2}),
        (stats.ScalarWindowNormalizer, stats.WindowNormalizer, {"window_size": 2}),
        (stats.ScalarAdaptiveNormalizer, stats.AdaptiveNormalizer, {"speed": 3.0}),
    ],
    ids=["exponential", "window", "adaptive"],
)


@KINDS
@pytest.mark.parametrize(
    "options",
    [{}, {"zero_mean": False}, {"unit_std": True}, {"variance_epsilon": 0.5}],
    ids=str,
)
def test_equals_the_general_one(scalar, general, setting, options):
    rng = np.random.default_rng(0)
    one = scalar(**setting, **options)
    two = general(tf.TensorSpec([]), **setting, **options)
    for _ in range(4):
        values = tf.constant(rng.normal(size=(2, 3)), tf.float32)
        np.testing.assert_array_equal(one.normalize(values), two.normalize(values))


@KINDS
def test_takes_what_the_general_one_takes(scalar, general, setting):
    ours = inspect.signature(scalar).parameters
    theirs = inspect.signature(general).parameters
    assert list(ours)[0] == next(iter(setting))
    assert set(ours) == set(theirs) - {"tensor_spec"}
    defaults = {name: p.default for name, p in ours.items() if name != "name"}
    assert defaults == {name: theirs[name].default for name in defaults}


def test_rewards_of_one_step_by_hand():
    normalizer = stats.ScalarWindowNormalizer(1)
    np.testing.assert_allclose(
        normalizer.normalize(tf.constant([1.0, 3.0])), [-1.0, 1.0], rtol=1e-6
    )
    assert float(normalizer.normalize(tf.constant(7.0))) == 0.0
