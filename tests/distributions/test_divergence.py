"""Divergences of normals with independent dimensions."""

import numpy as np
import pytest
import refusals
import tensorflow as tf
import tensorflow_probability as tfp
from refusals import bad, zeros

from tfrl import distributions

tfd = tfp.distributions


def draw(*shape, dtype=np.float64):
    rng = np.random.default_rng(0)
    locs, logs = rng.normal(size=(2, 2, *shape))
    return [
        x.astype(dtype) for x in (locs[0], np.exp(logs[0]), locs[1], np.exp(logs[1]))
    ]


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)], ids=str)
def test_equals_the_integral_of_another(shape):
    loc, scale, other_loc, other_scale = draw(*shape)
    found = distributions.normal_divergence(loc, scale, other_loc, other_scale)
    one, other = tfd.Normal(loc, scale), tfd.Normal(other_loc, other_scale)
    np.testing.assert_allclose(found, tfd.kl_divergence(one, other), rtol=1e-9)
    xla = tf.function(distributions.normal_divergence, jit_compile=True)
    np.testing.assert_allclose(xla(loc, scale, other_loc, other_scale), found)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_what_is_equal_does_not_diverge(dtype):
    loc, scale, *_ = (tf.constant(x, dtype) for x in draw(4))
    given = [loc, scale, loc, scale]
    with tf.GradientTape() as tape:
        tape.watch(given)
        found = distributions.normal_divergence(*given)
    assert found.dtype == dtype
    np.testing.assert_array_equal(tf.cast(found, "float64"), zeros(4))
    for gradient in tape.gradient(found, given):
        np.testing.assert_allclose(tf.cast(gradient, "float64"), zeros(4), atol=1e-6)


def test_means_and_scales_apart_add_up_where_one_of_them_stays():
    loc, scale, other_loc, other_scale = draw(4)
    of_means = distributions.normal_divergence(loc, scale, other_loc, scale)
    of_scales = distributions.normal_divergence(loc, scale, loc, other_scale)
    np.testing.assert_allclose(of_means, 0.5 * ((loc - other_loc) / scale) ** 2)
    ratio = scale / other_scale
    expected = 0.5 * (ratio**2 - 1) - np.log(ratio)
    np.testing.assert_allclose(of_scales, expected, rtol=1e-9)


@refusals.table(
    (
        distributions.normal_divergence,
        bad(ValueError, "scale", zeros(2), [0.0, 1.0], zeros(2), [1.0, 1.0]),
        bad(ValueError, "other_scale", zeros(2), [1.0, 1.0], zeros(2), [1.0, -1.0]),
        bad(ValueError, "other_loc", zeros(2), [1.0, 1.0], zeros(3), [1.0, 1.0]),
        bad(TypeError, "loc", [1, 2], [1.0, 1.0], [1, 2], [1.0, 1.0]),
    ),
)
def test_errors(row):
    row()
