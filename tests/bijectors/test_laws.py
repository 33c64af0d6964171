"""What holds for every bijector: inverses, Jacobians, gradients, modes, dtypes.

Values are compared with formulas of greater range in the conformance tests.
"""

import golden_io
import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies

from tfrl import bijectors

# With inputs that neither saturate nor leave the domain.
BIJECTORS = {
    "StableTanh": (bijectors.StableTanh(), (-4.0, 4.0)),
    "Softsign": (bijectors.Softsign(), (-30.0, 31.0)),
    "Softplus": (bijectors.Softplus(), (-9.0, 30.0)),
    "Softlower": (bijectors.Softlower(-1.0, 0.5), (-4.0, 9.0)),
    "Softupper": (bijectors.Softupper(2.0, 0.5), (-9.0, 5.0)),
    "Softclip": (bijectors.Softclip(-1.0, 2.0), (-6.0, 7.0)),
    "Softclip half": (bijectors.Softclip(-np.inf, 2.0), (-9.0, 7.0)),
    "SoftclipTF": (bijectors.SoftclipTF(-1.0, 2.0, 0.5), (-4.0, 5.0)),
    "SoftclipTF soft": (bijectors.SoftclipTF(-1.0, 2.0, 50.0), (-90.0, 90.0)),
    "AffineTransform": (bijectors.AffineTransform(1.0, -2.0), (-9.0, 9.0)),
    "ExpTransform": (bijectors.ExpTransform(), (-9.0, 9.0)),
    "PowerTransform": (bijectors.PowerTransform(-0.5), (0.1, 9.0)),
    "SigmoidTransform": (bijectors.SigmoidTransform(), (-7.0, 7.0)),
}
over_bijectors = pytest.mark.parametrize("name", BIJECTORS)


@over_bijectors
def test_inverse_undoes_forward_and_log_det_is_that_of_the_slope(name):
    bijector, (low, high) = BIJECTORS[name]
    x = tf.constant(np.linspace(low, high, 41))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = bijector.forward(x)
    slope, y = tape.gradient(y, x), tf.identity(y)
    np.testing.assert_allclose(bijector.inverse(y), x, rtol=1e-10, atol=1e-10)
    back = bijector.forward(tf.identity(bijector.inverse(y)))
    np.testing.assert_allclose(back, y, rtol=1e-12, atol=1e-14)
    log_slope = bijector.forward_log_det_jacobian(x)
    np.testing.assert_allclose(log_slope, np.log(np.abs(slope)), rtol=1e-9, atol=1e-9)
    got = bijector.inverse_log_det_jacobian(tf.identity(y))
    np.testing.assert_allclose(got, -log_slope, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@over_bijectors
def test_narrow_dtypes(name, dtype):
    bijector, (low, high) = BIJECTORS[name]
    x = tf.constant(np.linspace(low, high, 41), dtype)
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


finite = strategies.floats(-1e6, 1e6, width=32)
positive = strategies.floats(np.float32(1e-3), np.float32(1e4), width=32)


@pytest.mark.slow
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
@hypothesis.settings(max_examples=30)
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


# Recordings.

CASES = [
    case
    for case in golden_io.load("alf/dist_utils", {"t": tf.constant})
    if case["symbol"].rsplit(".", 1)[-1] in bijectors.__all__
]
# What Softclip was recorded to compute as a difference, without digits in the tails.
DIFFERENCES = ("log_abs_det_jacobian", "dy_dx")


def of_kind(kind):
    cases = [case for case in CASES if case["kind"] == kind]
    return pytest.mark.parametrize("case", cases, ids=golden_io.ids(cases))


def make(case):
    return getattr(bijectors, case["symbol"].rsplit(".", 1)[-1])


@of_kind("transform")
def test_golden(case):
    bijector = make(case)(**case["in"]["ctor"])

    def everything(x, y_in):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = bijector.forward(x)
        return {
            "y": y,
            "inv_of_y": bijector.inverse(tf.identity(y)),
            "log_abs_det_jacobian": bijector.forward_log_det_jacobian(x),
            "inv": bijector.inverse(y_in),
            "dy_dx": tape.gradient(y, x),
        }

    x = case["in"]["x"]
    y_in = case["in"].get("y_in")
    y_in = everything(x, x)["y"] if y_in is None else y_in
    got = everything(x, y_in)
    for name, expected in case["out"].items():
        if not name.startswith("mask"):
            result, mask = got[name].numpy(), case["out"][f"mask_{name}"].numpy()
            if case["symbol"].endswith("Softclip") and name in DIFFERENCES:
                lost = ~np.isfinite(expected)
                assert np.isfinite(result[lost]).all()
                mask &= ~lost
            assert result.shape == expected.shape
            assert result.dtype == np.float32
            np.testing.assert_allclose(
                result[mask], expected.numpy()[mask], **case["tol"], err_msg=name
            )


@of_kind("object")
def test_golden_object(case):
    bijector = make(case)(*case["ctor"]["args"], **case["ctor"]["kwargs"])
    for step in case["steps"]:
        method = {"": bijector.forward, "_inverse": bijector.inverse}[step["name"]]
        np.testing.assert_allclose(method(*step["args"]), step["out"], **case["tol"])


@of_kind("equality")
def test_golden_equality(case):
    one, other = (make(case)(**case["in"][name]) for name in "ab")
    assert (one == other) is case["out"]["equal"]
    assert (hash(one) == hash(other)) is case["out"]["equal"]


@of_kind("cache")
def test_golden_cache(case):
    bijector = make(case)(bijectors.StableTanh)()
    y = bijector.forward(case["in"]["x"])
    assert (bijector.inverse(y) is case["in"]["x"]) is case["out"]["same_object"]
    np.testing.assert_allclose(y, case["out"]["y"], **case["tol"])
    copied = bijector.inverse(tf.identity(y))
    np.testing.assert_allclose(copied, case["out"]["inv_of_clone"], **case["tol"])


@of_kind("raises")
def test_golden_refusal(case):
    with pytest.raises(ValueError, match="`high` expected numbers > `low`"):
        make(case)(*case["args"], **case["kwargs"])
