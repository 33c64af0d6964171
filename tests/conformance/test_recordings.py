"""What was recorded of the functions and classes of `core`, `ops` and `losses`.

A recording names what it called, which the doors of these rooms have by that name: the
calls are repeated and results, dtypes, gradients and refusals compared. Recordings that
want more knowledge of what they recorded are in the tests of the rooms.
"""

import contextlib

import golden_calls
import golden_io
import numpy as np
import pytest
import tensorflow as tf

from tfrl import core, losses, ops

DOORS = (core, ops, losses)
NAMES = {"math_ops.argmin": "first_argmin"} | dict.fromkeys(
    (f"math_ops.{name}" for name in ("Softsign.apply", "Softsign_.apply", "softsign_")),
    "softsign",
)
FUNCTIONS = {
    "plus1_minus1": lambda x, y: (x + 1, y - 1),
    "square": lambda x: x * x,
    "identity": lambda x: x,
    "double_kw": lambda x, y: x + y,
    "returns_empty": lambda *_: (),
}


def transform_of(content):
    make = getattr(ops, content["cls"].removeprefix("math_ops."), None)
    return make and make(*content["args"], **content["kwargs"])


def spec_of(content):
    kind = core.BoundedTensorSpec if "minimum" in content else tf.TensorSpec
    return kind(**content)


def recorded_by(case):
    """What the doors have by the name in a recording, if they do."""
    name = NAMES.get(case["symbol"], name_of(case))
    return next((getattr(d, name) for d in DOORS if name in d.__all__), None)


BUILD = {"fn": FUNCTIONS.get, "obj": transform_of, "spec": spec_of}
STEMS = [
    *("common", "conditional_ops", "losses", "math_ops", "sl_utils", "spec_utils"),
    *("tensor_utils", "value_ops"),
]
# What is recorded is not the result of one call, or of another option than given: the
# room's own test has it.
ELSEWHERE = {
    *("argmax", "argmin", "quantiles_uniform", "unvectorize", "isscalar"),
    *("action_importance_ratio", "AsymmetricSimSiamLoss", "scale_gradient"),
    "diff_transform_dtype_ignored",
}
# What was refused and works here.
WIDER = {
    *("tensor_utils/explained_variance/011", "losses/DiscreteRegressionLoss/113"),
    *("value_ops/generalized_advantage_estimation/025",),
    *("losses/QuantileRegressionLoss/129",),
}
# Of sizes that a graph does not know, and of another dtype where all are selected.
KNOWN = {
    *("tensor_utils/cov/003", "conditional_ops/conditional_update/013"),
    *("diff_transform_4", "diff_transform_2x5x5x4", "check_array_shape_ok"),
}
# Recorded without 64 bits.
NARROW = {"single_to_batch", "tree_ravel", "diff_transform_matrix"}


def name_of(case):
    return case["symbol"].rsplit(".", 1)[-1]


def expected_of(case):
    """What a call should return, where it is not just what was recorded."""
    name, out = name_of(case), case["out"]
    if name == "clip_by_norms":  # made a list of what came without one
        return out[0]
    if name == "spec_means_and_magnitudes":  # one number where bounds are uniform
        return [np.broadcast_to(x, case["args"][0].shape) for x in out]
    if isinstance(out, dict) and set(out) & {"ret", "input_after"}:
        return out.get("ret", out.get("out"))
    return out


def all_cases():
    """All that a door knows, in one form."""
    found = [golden_calls.load(f"alf/{stem}", None, BUILD) for stem in STEMS]
    found.append(map(in_one_form, golden_io.load("coax/array")))
    for case in (case for cases in found for case in cases):
        if recorded_by(case) and not {name_of(case), case["id"]} & ELSEWHERE:
            yield case


def in_one_form(case):
    """A case of coax in the form of the others, with tensors for arrays of JAX."""
    args, out = case["inputs"].get("args", ()), case["outputs"].get("result")
    arrays = () if "_np" in case["id"] else np.ndarray
    args = [tf.constant(x) if isinstance(x, arrays) else x for x in args]
    kind = "raises" if isinstance(out, golden_io.Raised) else "call"
    return {**case, "kind": kind, "args": args, "out": out}


CASES = list(all_cases())


def of_kind(*kinds):
    cases = [case for case in CASES if case["kind"] in kinds]
    return pytest.mark.parametrize("case", cases, ids=golden_io.ids(cases))


@pytest.mark.parametrize(
    "mode", ["eager", pytest.param("graph", marks=pytest.mark.slow)]
)
@of_kind("call")
def test_calls(case, mode):
    if mode == "graph" and case["id"] in KNOWN:
        pytest.skip("what it goes by must be known")
    case = case | {"out": expected_of(case), "any_dtype": name_of(case) in NARROW}
    golden_calls.check(case, recorded_by(case), mode)


@of_kind("raises")
def test_refusals(case):
    given = case if "args" in case else case["ctor"]
    refused = pytest.raises(
        (TypeError, ValueError), match="expected|structure|not supp"
    )
    with contextlib.nullcontext() if case["id"] in WIDER else refused:
        recorded_by(case)(*given["args"], **given["kwargs"])


@of_kind("object")
def test_objects(case):
    made = recorded_by(case)(*case["ctor"]["args"], **case["ctor"]["kwargs"])
    for step in case["steps"]:
        name = "__call__" if step["name"] in ("forward", "", None) else step["name"]
        method = getattr(made, name)
        if "raises" in step:
            if case["id"] in WIDER:
                continue
            with pytest.raises((TypeError, ValueError, NotImplementedError)):
                method(*step["args"], **step["kwargs"])
            continue
        got = method(*step["args"], **step["kwargs"])
        golden_calls.compare_all(case, got, step["out"])


@of_kind("loss")
def test_losses(case):
    given, out = case["in"], case["out"]
    loss = recorded_by(case)(**given["ctor"])
    with tf.GradientTape() as tape:
        tape.watch(given["logits"])
        losses = loss(given["logits"], given["target"])
    gradient = tape.gradient(losses, given["logits"], given["ct"])
    expectation = loss.calc_expectation(given["logits"])
    expected = out["loss"], out["dlogits"], out["expectation"]
    golden_calls.compare_all(case, (losses, gradient, expectation), expected)


@of_kind("initialize_bias")
def test_initial_biases(case):
    loss = recorded_by(case)(**case["in"]["ctor"])
    bias = tf.Variable(tf.fill([case["in"]["n"]], 7.0))
    loss.initialize_bias(bias)
    golden_calls.compare(case, bias, case["out"]["bias"])
