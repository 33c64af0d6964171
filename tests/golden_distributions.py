"""Repeats recorded distributions: statistics, gradients and draws.

    @golden_distributions.cases(["Beta"])
    def test_golden(case, mode):
        golden_distributions.check(case, mode)

The cases are those recorded as calls of the classes named; gradients are those of
`sum(log_prob * ct)`.
"""

import functools

import golden_io
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfrl

STATISTICS = ("log_prob", "entropy", "mean", "stddev", "variance", "get_mode")


def load(symbols, kind="distribution"):
    """Returns the cases of some classes and of one kind, tensors as arrays."""
    return [
        case
        for case in golden_io.load("alf/dist_utils")
        if case["symbol"].rsplit(".", 1)[-1] in symbols and case["kind"] == kind
    ]


def cases(symbols):
    """Parametrizes by `case` and `mode`: all eagerly, the last in a graph, too."""
    found = load(symbols)
    modes = [(case, "eager", ()) for case in found]
    modes += [(case, "graph", pytest.mark.slow) for case in found[:-1]]
    modes += [(found[-1], "graph", ())]
    rows = [
        pytest.param(case, mode, id=f"{case['id']}-{mode}", marks=marks)
        for case, mode, marks in modes
    ]
    return pytest.mark.parametrize(("case", "mode"), rows)


def draws(symbols):
    """Parametrizes by the `case` of recorded draws."""
    found = load(symbols, "stats")
    return pytest.mark.parametrize("case", found, ids=golden_io.ids(found))


def build(value):
    """Returns a recorded argument, with its nested distributions built."""
    if isinstance(value, golden_io.Marked):
        content = value.content
        cls = getattr(tfrl.distributions, content["cls"].rsplit(".", 1)[-1])
        args = [build(part) for part in content["args"]]
        return cls(*args, **{k: build(v) for k, v in content["kwargs"].items()})
    return value


def arrays_of(value):
    """Returns the arrays a distribution is made of, in order."""
    if isinstance(value, golden_io.Marked):
        parts = [*value.content["args"], *value.content["kwargs"].values()]
        return [array for part in parts for array in arrays_of(part)]
    return [value] if isinstance(value, np.ndarray) else []


def with_arrays(value, arrays):
    """Returns the recorded argument with the next of `arrays` in their places."""
    if isinstance(value, golden_io.Marked):
        args = [with_arrays(part, arrays) for part in value.content["args"]]
        kwargs = value.content["kwargs"].items()
        kwargs = {key: with_arrays(part, arrays) for key, part in kwargs}
        content = {**value.content, "args": args, "kwargs": kwargs}
        return golden_io.Marked(value.marker, content)
    return next(arrays) if isinstance(value, np.ndarray) else value


def statistics(recorded, value, ct, *arrays):
    """Returns shapes as recorded, statistics, gradients with respect to `arrays`."""
    with tf.GradientTape() as tape:
        tape.watch(arrays)
        dist = build(with_arrays(recorded, iter(arrays)))
        log_prob = dist.log_prob(value)
        total = tf.reduce_sum(log_prob * ct)
    out = {"log_prob": log_prob, "get_mode": dist.mode()}
    for name in ("entropy", "mean", "stddev", "variance"):
        out[name] = getattr(dist, name)()
    out["batch_shape"] = dist.batch_shape_tensor()
    out["event_shape"] = dist.event_shape_tensor()
    return out, tape.gradient(total, arrays)


def check(case, mode):
    """What was recorded comes out, eagerly or in a graph of unknown sizes."""
    given, expected = case["in"], case["out"]
    recorded = given["dist"]
    arrays = [tf.constant(array) for array in arrays_of(recorded)]
    tensors = [tf.constant(given["value"]), tf.constant(given.get("ct", 1.0)), *arrays]
    if mode == "graph":
        specs = [tf.TensorSpec([None] * x.shape.rank, x.dtype) for x in tensors]
        function = tf.function(
            lambda *tensors: statistics(recorded, *tensors), input_signature=specs
        )
    else:
        function = functools.partial(statistics, recorded)
    out, gradients = function(*tensors)
    for name in ("batch_shape", "event_shape"):
        assert out[name].numpy().tolist() == expected[name], name
    for name in STATISTICS:
        np.testing.assert_allclose(
            out[name], expected[name], **case["tol"], err_msg=name
        )
    for got, gradient in zip(gradients, expected.get("dlogprob", []), strict=False):
        np.testing.assert_allclose(got, gradient, **case["tol"])
    reparameterization = build(recorded).reparameterization_type
    fully = tfp.distributions.FULLY_REPARAMETERIZED
    assert (reparameterization == fully) == expected["has_rsample"]


def check_draws(case, n_draws=200_000):
    """Draws have the recorded quantiles and, where these are finite, moments."""
    dist, expected = build(case["in"]["dist"]), case["out"]
    draws = np.asarray(dist.sample(n_draws, seed=[17, 4]), np.float64)
    golden_draws = case["n_draws"]
    for level, quantile in zip(
        case["quantile_levels"], np.asarray(expected["quantiles"]), strict=True
    ):
        share = (draws < quantile).mean(axis=0)
        spread = level * (1 - level) * (1 / n_draws + 1 / golden_draws)
        # A quantile at an atom has more below or less than its level.
        tied = (draws == quantile).mean(axis=0)
        margin = 5 * np.sqrt(spread)
        assert np.all(share <= level + margin)
        assert np.all(share + tied >= level - margin)
    if "compare quantiles" in case["desc"]:
        return
    std = np.asarray(expected["std"])
    margin = 5 * std * (n_draws**-0.5 + golden_draws**-0.5)
    assert np.all(np.abs(draws.mean(axis=0) - expected["mean"]) <= margin)
    np.testing.assert_allclose(draws.std(axis=0), std, rtol=0.02)
