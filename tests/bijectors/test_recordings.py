"""The recorded cases of the bijectors."""

import golden_io
import numpy as np
import pytest
import tensorflow as tf

from tfrl import bijectors

CASES = [
    case
    for case in golden_io.load("alf/dist_utils", {"t": tf.constant})
    if case["symbol"].rsplit(".", 1)[-1] in bijectors.__all__
]
COUNTS = {"transform": 27, "object": 2, "equality": 4, "cache": 1, "raises": 1}
# What Softclip was recorded to compute as a difference, without digits in the tails.
DIFFERENCES = ("log_abs_det_jacobian", "dy_dx")


def of_kind(kind):
    cases = [case for case in CASES if case["kind"] == kind]
    return pytest.mark.parametrize("case", cases, ids=golden_io.ids(cases))


def make(case):
    return getattr(bijectors, case["symbol"].rsplit(".", 1)[-1])


def test_every_case_runs():
    kinds = [case["kind"] for case in CASES]
    assert {kind: kinds.count(kind) for kind in kinds} == COUNTS


@pytest.mark.parametrize("mode", ["eager", "graph"])
@of_kind("transform")
def test_transform(case, mode):
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

    if mode == "graph":
        ranks = [[None] * (case["in"]["x"].shape.rank)] * 2
        everything = tf.function(everything, [tf.TensorSpec(r) for r in ranks])
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
def test_object(case):
    bijector = make(case)(*case["ctor"]["args"], **case["ctor"]["kwargs"])
    for step in case["steps"]:
        method = {"": bijector.forward, "_inverse": bijector.inverse}[step["name"]]
        np.testing.assert_allclose(method(*step["args"]), step["out"], **case["tol"])


@of_kind("equality")
def test_equality(case):
    one, other = (make(case)(**case["in"][name]) for name in "ab")
    assert (one == other) is case["out"]["equal"]
    assert (hash(one) == hash(other)) is case["out"]["equal"]


@of_kind("cache")
def test_cache(case):
    bijector = make(case)(bijectors.StableTanh)()
    y = bijector.forward(case["in"]["x"])
    assert (bijector.inverse(y) is case["in"]["x"]) is case["out"]["same_object"]
    np.testing.assert_allclose(y, case["out"]["y"], **case["tol"])
    copied = bijector.inverse(tf.identity(y))
    np.testing.assert_allclose(copied, case["out"]["inv_of_clone"], **case["tol"])


@of_kind("raises")
def test_raises(case):
    with pytest.raises(ValueError, match="`high` expected numbers > `low`"):
        make(case)(*case["args"], **case["kwargs"])
