"""What holds for every bijector: inverses, Jacobians, gradients, modes, dtypes."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from hypothesis import strategies

from tfrl import bijectors

tfd = tfp.distributions

# With inputs that neither saturate nor leave the domain.
BIJECTORS = {
    "StableTanh": (bijectors.StableTanh(), (-4.0, 4.0)),
    "Softsign": (bijectors.Softsign(), (-30.0, 31.0)),
    "Softplus": (bijectors.Softplus(), (-9.0, 30.0)),
    "Softplus sharp": (bijectors.Softplus(0.1), (-0.8, 3.0)),
    "Softlower": (bijectors.Softlower(-1.0, 0.5), (-4.0, 9.0)),
    "Softupper": (bijectors.Softupper(2.0, 0.5), (-9.0, 5.0)),
    "Softclip": (bijectors.Softclip(-1.0, 2.0), (-6.0, 7.0)),
    "Softclip soft": (bijectors.Softclip(-1.0, 2.0, 50.0), (-90.0, 90.0)),
    "Softclip half": (bijectors.Softclip(-np.inf, 2.0), (-9.0, 7.0)),
    "SoftclipTF": (bijectors.SoftclipTF(-1.0, 2.0, 0.5), (-4.0, 5.0)),
    "SoftclipTF soft": (bijectors.SoftclipTF(-1.0, 2.0, 50.0), (-90.0, 90.0)),
    "AffineTransform": (bijectors.AffineTransform(1.0, -2.0), (-9.0, 9.0)),
    "ExpTransform": (bijectors.ExpTransform(), (-9.0, 9.0)),
    "PowerTransform": (bijectors.PowerTransform(-0.5), (0.1, 9.0)),
    "SigmoidTransform": (bijectors.SigmoidTransform(), (-7.0, 7.0)),
}
over_bijectors = pytest.mark.parametrize("name", BIJECTORS)


def grid(name, dtype="float64", count=41):
    return tf.constant(np.linspace(*BIJECTORS[name][1], count), dtype)


def slope_and_log_slope(bijector, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = bijector.forward(x)
    return y, tape.gradient(y, x), bijector.forward_log_det_jacobian(x)


@over_bijectors
def test_inverse_undoes_forward(name):
    bijector = BIJECTORS[name][0]
    for dtype, tolerance in (("float32", 2e-3), ("float64", 1e-10)):
        x = grid(name, dtype)
        y = tf.identity(bijector.forward(x))
        np.testing.assert_allclose(
            bijector.inverse(y), x, rtol=tolerance, atol=tolerance
        )
        back = bijector.forward(tf.identity(bijector.inverse(y)))
        np.testing.assert_allclose(back, y, rtol=tolerance / 100, atol=tolerance / 1e4)


@over_bijectors
def test_log_det_is_that_of_the_slope(name):
    bijector = BIJECTORS[name][0]
    x = grid(name)
    y, slope, log_slope = slope_and_log_slope(bijector, x)
    np.testing.assert_allclose(log_slope, np.log(np.abs(slope)), rtol=1e-9, atol=1e-9)
    got = bijector.inverse_log_det_jacobian(tf.identity(y))
    np.testing.assert_allclose(got, -log_slope, rtol=1e-8, atol=1e-8)
    step = 1e-6 * float(x[-1] - x[0])
    quotient = (bijector.forward(x + step) - bijector.forward(x - step)) / (2 * step)
    scale = np.abs(slope).max()
    np.testing.assert_allclose(slope, quotient, rtol=1e-5, atol=1e-7 * scale)


@over_bijectors
def test_gradients_of_inverse_and_log_det(name):
    bijector = BIJECTORS[name][0]
    x = grid(name)[1:-1]
    y = tf.identity(bijector.forward(x))
    functions = [
        (bijector.inverse, y, 1e-7 * float(tf.reduce_max(y) - tf.reduce_min(y))),
        (bijector.forward_log_det_jacobian, x, 1e-6 * float(x[-1] - x[0])),
    ]
    for function, value, step in functions:
        # Not across a bound, where the least distance is that of the neighbours.
        step = min(step, 1e-3 * float(tf.reduce_min(tf.abs(y[1:] - y[:-1]))))
        with tf.GradientTape() as tape:
            tape.watch(value)
            result = function(value)
        gradient = tape.gradient(result, value, unconnected_gradients="zero")
        quotient = (function(value + step) - function(value - step)) / (2 * step)
        size = np.abs(result).max()
        noise = 1e-15 * size / step
        np.testing.assert_allclose(
            gradient, quotient, rtol=1e-4, atol=10 * noise + 1e-9
        )


@over_bijectors
def test_jacobian_integrates_to_the_range(name):
    bijector = BIJECTORS[name][0]
    x = grid(name, count=20_001)
    y, _, log_slope = slope_and_log_slope(bijector, x)
    area = np.trapezoid(np.exp(log_slope), x)
    np.testing.assert_allclose(area, abs(float(y[-1] - y[0])), rtol=1e-5)


@pytest.mark.slow
def test_graph_and_jit_equal_eager():
    # One of each computation, in one function: compiling takes the time.
    names = ["StableTanh", "Softsign", "Softplus", "Softclip half", "SoftclipTF"]
    names += ["AffineTransform", "PowerTransform", "SigmoidTransform"]
    inputs = {name: tf.reshape(grid(name, "float32", 12), [3, 4]) for name in names}

    def everything(inputs):
        results = {}
        for name, x in inputs.items():
            bijector = BIJECTORS[name][0]
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = bijector.forward(x)
                inverse = bijector.inverse(tf.identity(y))
                values = [y, inverse, bijector.forward_log_det_jacobian(x, 1)]
            results[name] = [*values, tape.gradient(values, x)]
        return results

    expected = everything(inputs)
    signature = [dict.fromkeys(names, tf.TensorSpec([None, None]))]
    for jit_compile in (False, True):
        function = tf.function(
            everything, signature, jit_compile=jit_compile, autograph=False
        )
        results = function(inputs)
        for name in names:
            for got, wanted in zip(results[name], expected[name], strict=True):
                np.testing.assert_allclose(
                    got, wanted, rtol=2e-3, atol=1e-4, err_msg=name
                )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@over_bijectors
def test_narrow_dtypes(name, dtype):
    bijector = BIJECTORS[name][0]
    x = grid(name, dtype)
    wide = tf.cast(x, tf.float64)
    for function in ("forward", "forward_log_det_jacobian"):
        got = getattr(bijector, function)(x)
        assert got.dtype == dtype
        expected = getattr(bijector, function)(wide)
        np.testing.assert_allclose(
            tf.cast(got, tf.float64), expected, rtol=2e-2, atol=0.1
        )
    y = bijector.forward(x)
    got = bijector.inverse(tf.identity(y))
    assert got.dtype == dtype
    assert np.isfinite(tf.cast(got, tf.float64)).all()


@over_bijectors
def test_log_prob_integrates_to_one(name):
    bijector, (low, high) = BIJECTORS[name]
    middle = low + 0.5 * (high - low)
    base = tfd.Normal(np.float64(middle), (high - low) / 20.0)
    distribution = tfd.TransformedDistribution(base, bijector)
    x = grid(name, count=20_001)
    y = np.asarray(bijector.forward(x))
    area = np.trapezoid(np.exp(distribution.log_prob(tf.constant(y))), y)
    np.testing.assert_allclose(abs(area), 1.0, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extremes_are_finite(dtype):
    @tf.function(autograph=False)
    def derivatives(values, *methods):
        results = {}
        for name, value in values.items():
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(value)
                got = [getattr(BIJECTORS[name][0], method)(value) for method in methods]
            slopes = [tape.gradient(result, value) for result in got]
            zero = tf.zeros_like(value)
            results[name] = got, [zero if slope is None else slope for slope in slopes]
        return results

    x = np.array([-1e30, -1e4, -20.0, -1e-38, 0.0, 1e-38, 1.0, 20.0, 1e4, 1e30])
    inputs = {
        name: tf.constant(np.abs(x) if name == "PowerTransform" else x, dtype)
        for name in BIJECTORS
    }
    outputs = {}
    forward = derivatives(inputs, "forward", "forward_log_det_jacobian")
    for name, ((y, log_det), (_, bend)) in forward.items():
        assert not np.isnan(y).any(), name
        assert np.isfinite(log_det).all(), name
        assert np.isfinite(bend).all(), name
        outputs[name] = tf.constant(np.nan_to_num(y))
    inverse = derivatives(outputs, "inverse", "inverse_log_det_jacobian")
    for name, (results, slopes) in inverse.items():
        for result, slope in zip(results, slopes, strict=True):
            assert np.isfinite(result).all(), name
            assert not np.isnan(slope).any(), name


finite = strategies.floats(-1e6, 1e6, width=32)
positive = strategies.floats(np.float32(1e-3), np.float32(1e4), width=32)


@hypothesis.given(
    strategies.sampled_from(["Softclip", "SoftclipTF", "Softlower", "Softupper"]),
    strategies.sampled_from(["float32", "float64"]),
    finite,
    positive,
    positive,
    strategies.lists(
        strategies.floats(*np.float32([-1e30, 1e30]).tolist(), width=32),
        min_size=1,
        max_size=4,
    ),
)
@hypothesis.settings(max_examples=60)
def test_soft_bounds_of_any_size(kind, dtype, low, width, softness, x):
    low, high = np.float32(low), np.float32(low) + np.float32(width)
    hypothesis.assume(low < high)
    bounds = {"Softlower": [low], "Softupper": [high]}.get(kind, [low, high])
    # Tensors, that each example may be a use of the same traces.
    parameters = [tf.constant(each, dtype) for each in (*bounds, softness)]
    bijector = getattr(bijectors, kind)(*parameters)
    x = tf.constant(x, dtype)
    y = bijector.forward(x).numpy()
    least = -np.inf if kind == "Softupper" else low
    most = np.inf if kind == "Softlower" else high
    assert ((y >= least) & (y <= most)).all()
    log_det = bijector.forward_log_det_jacobian(x).numpy()
    assert np.isfinite(log_det).all()
    assert (log_det <= 1.0).all()
    # Both ways around, and on the bounds.
    y = tf.constant(np.append(y, bounds), dtype)
    back = bijector.inverse(y)
    assert np.isfinite(back).all()
    eps = np.finfo(dtype).eps
    scale = np.abs([*bounds, softness]).max()
    np.testing.assert_allclose(
        bijector.forward(tf.identity(back)), y, rtol=32 * eps, atol=32 * eps * scale
    )
    assert np.isfinite(bijector.inverse_log_det_jacobian(y)).all()
