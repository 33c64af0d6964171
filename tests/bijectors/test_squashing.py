"""Tests of tfrl.bijectors.squashing; laws are in test_laws, figures in
test_recordings, the numerics of the soft bounds in test_soft_bounds."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl import bijectors, ops

tfb, tfd = tfp.bijectors, tfp.distributions


def test_worked_values():
    half = np.log(3.0) / 2  # tanh(ln(3) / 2) = 1 / 2
    tanh = bijectors.StableTanh()
    np.testing.assert_allclose(tanh.forward([half]), [0.5], rtol=1e-6)
    np.testing.assert_allclose(tanh.inverse([-0.5]), [-half], rtol=1e-6)
    got = tanh.forward_log_det_jacobian([half])
    np.testing.assert_allclose(got, [np.log(0.75)], rtol=1e-6)
    softsign = bijectors.Softsign()
    np.testing.assert_allclose(softsign.inverse([0.75]), [3.0], rtol=1e-6)
    got = softsign.forward_log_det_jacobian([3.0, -1.0])
    np.testing.assert_allclose(got, -2 * np.log([4.0, 2.0]), rtol=1e-6)
    softplus = bijectors.Softplus(2.0)
    np.testing.assert_allclose(softplus.forward([0.0]), [2 * np.log(2)], rtol=1e-6)
    np.testing.assert_allclose(softplus.inverse([2 * np.log(2)]), [0.0], atol=1e-6)
    got = softplus.forward_log_det_jacobian([0.0])
    np.testing.assert_allclose(got, [-np.log(2)], rtol=1e-6)
    clip = bijectors.Softclip(1.0, 5.0, 7.0)
    np.testing.assert_allclose(clip.forward([3.0]), [3.0], rtol=1e-6)


@pytest.mark.parametrize("softness", [0.1, 1.0, 30.0])
def test_forward_is_the_op(softness):
    x = tf.constant(np.linspace(-20, 20, 41))
    parts = {
        "Softlower": ([-1.0], ops.softlower),
        "Softupper": ([2.0], ops.softupper),
        "Softclip": ([-1.0, 2.0], ops.softclip),
        "SoftclipTF": ([-1.0, 2.0], ops.softclip_tf),
    }
    for name, (bounds, op) in parts.items():
        got = getattr(bijectors, name)(*bounds, softness).forward(x)
        np.testing.assert_array_equal(got, op(x, *bounds, softness))
    got = bijectors.Softplus(softness).forward(x)
    np.testing.assert_allclose(got, softness * np.logaddexp(0, x / softness))


TWINS = {
    "StableTanh": (bijectors.StableTanh(), tfb.Tanh()),
    "Softsign": (bijectors.Softsign(), tfb.Softsign()),
    "Softplus": (bijectors.Softplus(0.5), tfb.Softplus(np.float64(0.5))),
    "SoftclipTF": (
        bijectors.SoftclipTF(-1.0, 2.0, 0.5),
        tfb.SoftClip(*map(np.float64, (-1.0, 2.0, 0.5))),
    ),
    "Softlower": (
        bijectors.Softlower(-1.0, 0.5),
        tfb.SoftClip(low=np.float64(-1.0), hinge_softness=np.float64(0.5)),
    ),
    "Softupper": (
        bijectors.Softupper(2.0, 0.5),
        tfb.SoftClip(high=np.float64(2.0), hinge_softness=np.float64(0.5)),
    ),
}


@pytest.mark.parametrize("name", TWINS)
def test_twins_where_theirs_have_digits(name):
    ours, theirs = TWINS[name]
    x = tf.constant(np.linspace(-4, 4, 33))
    y = tf.identity(ours.forward(x))
    np.testing.assert_allclose(y, theirs.forward(x), rtol=1e-9)
    np.testing.assert_allclose(ours.inverse(y), theirs.inverse(y), atol=1e-6)
    for function in ("forward_log_det_jacobian", "inverse_log_det_jacobian"):
        value = x if function.startswith("forward") else y
        got, expected = (getattr(b, function)(value) for b in (ours, theirs))
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-9)


BOUNDED = {
    "tanh": (bijectors.StableTanh(), [-1.0, 1.0]),
    "softsign": (bijectors.Softsign(), [-1.0, 1.0]),
    "softplus": (bijectors.Softplus(0.1), [0.0]),
    "softlower": (bijectors.Softlower(-300.0, 2.0), [-300.0]),
    "softupper": (bijectors.Softupper(0.7), [0.7]),
    "softclip": (bijectors.Softclip(-1.0, 2.0, 0.01), [-1.0, 2.0]),
    "softclip around 0": (bijectors.Softclip(0.0, 1e-3), [0.0, 1e-3]),
    "softclip above": (bijectors.Softclip(-np.inf, 0.0), [0.0]),
    "softclip_tf": (bijectors.SoftclipTF(-1.0, 2.0, 5.0), [-1.0, 2.0]),
    "softclip_tf wide": (bijectors.SoftclipTF(0.0, 1e4, 0.1), [0.0, 1e4]),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", BOUNDED)
def test_actions_stored_on_the_bounds_are_safe(name, dtype):
    bijector, bounds = BOUNDED[name]
    loc = tf.constant(0.3, dtype)
    scale = tf.constant(1.0, dtype)
    y = tf.constant(bounds, dtype)
    with tf.GradientTape() as tape:
        tape.watch([loc, scale, y])
        distribution = tfd.TransformedDistribution(tfd.Normal(loc, scale), bijector)
        log_prob = distribution.log_prob(y)
    assert np.isfinite(log_prob).all()
    for gradient in tape.gradient(log_prob, [loc, scale, y]):
        assert np.isfinite(gradient).all()
    x = bijector.inverse(y)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(bijector.forward(x), bounds, rtol=eps, atol=1e-37)
    step = 1e-3 * np.maximum(np.abs(bounds), 1.0)
    if len(bounds) == 2:
        beyond = tf.constant([bounds[0] - step[0], bounds[1] + step[1]], dtype)
        assert np.isnan(bijector.inverse(beyond)).all()


def test_far_outputs_are_inverted():
    # exp(y / s) overflows.
    got = bijectors.Softplus(0.1).inverse([60.0, 1e4, 1e30])
    np.testing.assert_allclose(got, [60.0, 1e4, 1e30], rtol=1e-6)
    # The difference of two sigmoids is 0.
    slopes = bijectors.Softclip(-1.0, 2.0, 0.1).forward_log_det_jacobian([-50.0, 50.0])
    np.testing.assert_allclose(slopes, [-490.0, -480.0], rtol=1e-6)


def test_bounds_may_be_variables_and_learn():
    low, softness = tf.Variable(-1.0), tf.Variable(0.5)
    bijector = bijectors.Softclip(low, 2.0, softness)
    with tf.GradientTape() as tape:
        log_det = bijector.inverse_log_det_jacobian([-0.9, 0.0, 1.9], event_ndims=1)
    gradients = tape.gradient(log_det, [low, softness])
    for variable, gradient in zip([low, softness], gradients, strict=True):
        ends = []
        for step in (1e-2, -2e-2):
            variable.assign_add(step)
            ends.append(bijector.inverse_log_det_jacobian([-0.9, 0.0, 1.9], 1))
        variable.assign_add(1e-2)
        np.testing.assert_allclose(gradient, (ends[0] - ends[1]) / 2e-2, rtol=5e-2)


REFUSALS = {
    "zero softness": (lambda: bijectors.Softplus(0.0), "`Softplus`: `hinge_softness`"),
    "softness": (lambda: bijectors.Softclip(0.0, 1.0, [1.0, -1.0]), "`hinge_softness`"),
    "tensor": (lambda: bijectors.Softplus(tf.constant(-1.0)), "`hinge_softness` exp"),
    "variable": (lambda: bijectors.Softlower(0.0, tf.Variable(0.0)), "`hinge_softn"),
    "reversed": (lambda: bijectors.Softclip(1.0, -1.0), "`high` expected numbers > "),
    "equal": (lambda: bijectors.SoftclipTF(1.0, [2.0, 1.0]), "`high` expected numbers"),
    "nan": (lambda: bijectors.Softlower(np.nan), "`Softlower`: `low` expected numbers"),
    "infinite": (lambda: bijectors.SoftclipTF(-np.inf, 0.0), "`low` expected finite"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    make, message = REFUSALS[name]
    with pytest.raises(ValueError, match=message):
        make()
    if name != "variable":  # no function may make one at every call
        with pytest.raises(ValueError, match=message):
            tf.function(lambda: make().forward(1.0), autograph=False)()


def test_symbolic_parameters_pass():
    function = tf.function(
        lambda low, high, softness: bijectors.Softclip(low, high, softness).forward(0.0)
    )
    got = function(*map(tf.constant, (-1.0, 1.0, 0.5)))
    np.testing.assert_allclose(got, 0.0, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_softsign_is_inverted_to_finite_numbers_on_its_bounds(dtype):
    bijector, bounds = bijectors.Softsign(), tf.constant([-1.0, 1.0], dtype)
    inverted = bijector.inverse(bounds)
    assert np.all(np.isfinite(inverted.numpy().astype(np.float64)))
    back = bijector.forward(inverted).numpy().astype(np.float64)
    np.testing.assert_allclose(back, [-1.0, 1.0], rtol=1e-6)
    slopes = bijector.inverse_log_det_jacobian(bounds)
    assert np.all(np.isfinite(slopes.numpy().astype(np.float64)))
    beyond = bijector.inverse(tf.constant([1.5, np.nan], dtype))
    assert np.all(np.isnan(beyond.numpy().astype(np.float64)))
