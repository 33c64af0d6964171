"""Recorded cases of `tfrl.losses.scalar_prediction` and `discrete_regression`."""

import golden_io
import numpy as np
import pytest
import tensorflow as tf

from tfrl.losses import discrete_regression, scalar_prediction
from tfrl.ops import value_transforms

LOSSES = {
    "ScalarPredictionLoss": scalar_prediction.ScalarPredictionLoss,
    "SquareLoss": scalar_prediction.SquareLoss,
    "QuantileRegressionLoss": scalar_prediction.QuantileRegressionLoss,
    "DiscreteRegressionLoss": discrete_regression.DiscreteRegressionLoss,
    "OrderedDiscreteRegressionLoss": discrete_regression.OrderedDiscreteRegressionLoss,
}


def transform_of(content):
    name = content["cls"].removeprefix("math_ops.")
    return getattr(value_transforms, name)(*content["args"], **content["kwargs"])


def loss_class(case):
    return LOSSES[case["symbol"].removeprefix("losses.")]


BUILD = {"t": tf.constant, "obj": transform_of}
CASES = [
    case
    for name in LOSSES
    for case in golden_io.load("alf/losses", build=BUILD, symbol=name)
]


def of_kind(kind):
    cases = [case for case in CASES if case["kind"] == kind]
    return pytest.mark.parametrize("case", cases, ids=golden_io.ids(cases))


def test_every_kind_is_covered():
    assert {case["kind"] for case in CASES} == {"loss", "initialize_bias", "object"}


@of_kind("loss")
def test_loss_gradient_and_expectation(case):
    given, out = case["in"], case["out"]
    loss = loss_class(case)(**given["ctor"])
    with tf.GradientTape() as tape:
        tape.watch(given["logits"])
        losses = loss(given["logits"], given["target"])
    gradient = tape.gradient(losses, given["logits"], given["ct"])
    np.testing.assert_allclose(losses, out["loss"], **case["tol"])
    np.testing.assert_allclose(gradient, out["dlogits"], **case["tol"])
    np.testing.assert_allclose(
        loss.calc_expectation(given["logits"]), out["expectation"], **case["tol"]
    )


@of_kind("initialize_bias")
def test_initialize_bias(case):
    loss = loss_class(case)(**case["in"]["ctor"])
    bias = tf.Variable(tf.fill([case["in"]["n"]], 7.0))
    loss.initialize_bias(bias)
    np.testing.assert_allclose(bias, case["out"]["bias"], **case["tol"])


@of_kind("object")
def test_steps(case):
    loss = loss_class(case)(*case["ctor"]["args"], **case["ctor"]["kwargs"])
    for step in case["steps"]:
        call = getattr(loss, step["name"]) if step["name"] else loss
        if "raises" not in step:
            np.testing.assert_allclose(
                call(*step["args"], **step["kwargs"]), step["out"], **case["tol"]
            )
        elif not works_here(loss, step):
            with pytest.raises((ValueError, NotImplementedError)):
                call(*step["args"], **step["kwargs"])


def works_here(loss, step):
    """Expectations of any rank and several samples per element, as documented."""
    samples = isinstance(loss, scalar_prediction.QuantileRegressionLoss)
    ranks = hasattr(loss, "transform") and step["name"] == "calc_expectation"
    return samples or ranks
