"""Tests of `tfrl.losses.importance`."""

import math

import event_files
import golden_io
import numpy as np
import pytest
import refusals
import tensorflow as tf
import tensorflow_probability as tfp
from default_rows import slow
from refusals import bad

from tfrl import losses

tfd = tfp.distributions

CASES = golden_io.load("alf/value_ops", symbol="action_importance_ratio")
ARRAYS = np.load(golden_io.ROOT / "alf/value_ops.npz")
DISTRIBUTIONS = {
    "dist_utils.DiagMultivariateNormal": lambda loc, scale: tfd.MultivariateNormalDiag(
        loc, scale
    ),
    "td.Normal": lambda loc, scale: tfd.Normal(loc, scale),
}


class Given:
    """A distribution of any action, with the log-probabilities it is told."""

    def __init__(self, log_probs):
        self.log_probs = log_probs

    def log_prob(self, action):
        del action
        return self.log_probs


def ratios(log_probs, rollout, mode="double_sided", clipping=0.2, bound=0.0, **more):
    """The ratios of one leaf."""
    defaults = {"scope": None, "check_numerics": False, "debug_summaries": False}
    return losses.action_importance_ratio(
        Given(log_probs),
        None,
        tf.zeros(1),
        mode,
        importance_ratio_clipping=clipping,
        log_prob_clipping=bound,
        rollout_log_prob=rollout,
        **(defaults | more),
    )


def ratios_slowly(log_probs, rollout, mode, clipping, bound):
    """One action at a time, in Python."""
    results = []
    for now, then in zip(log_probs, rollout, strict=True):
        if bound > 0:
            now = max(-bound, min(bound, now))
        ratio = math.exp(now - then)
        clipped = min(ratio, 1 + clipping)
        if mode == "double_sided":
            clipped = max(clipped, 1 - clipping)
        results.append((ratio, clipped))
    return np.array(results).T


def made(case, watch):
    """The arguments of a golden case; tensors by the key of their array."""
    arguments, tensors = dict(case["kwargs"]), {}
    for name, value in arguments.items():
        if isinstance(value, golden_io.Marked):
            parameters = {}
            for key, array in value.content["kwargs"].items():
                tensor = tf.constant(array)
                watch(tensor)
                parameters[key] = tensors[f"{case['id']}/{name}.{key}"] = tensor
            arguments[name] = DISTRIBUTIONS[value.content["cls"]](**parameters)
    return arguments, tensors


@pytest.mark.parametrize(
    "wrap", [lambda f: f, *slow(tf.function)], ids=["eager", "graph"]
)
@pytest.mark.parametrize("case", CASES, ids=golden_io.ids(CASES))
def test_golden(case, wrap):
    with tf.GradientTape() as tape:
        arguments, tensors = made(case, tape.watch)
        run = wrap(lambda: losses.action_importance_ratio(**arguments))
        if case["kind"] == "raises":
            errors = (ValueError, tf.errors.InvalidArgumentError)
            with pytest.raises(
                errors, match=r"expected one of|expected finite|nested\[2\]"
            ):
                run()
            return
        results = run()
    for result, expected in zip(results, case["out"], strict=True):
        np.testing.assert_allclose(result, expected, **case["tol"])
    weights = [tf.constant(ARRAYS[key]) for key in case["grad"]["ct"]]
    wrt = [tensors[key] for key in case["grad"]["wrt"]]
    gradients = tape.gradient(results, wrt, weights)
    for gradient, expected in zip(gradients, case["grad"]["grads"], strict=True):
        if expected is None:
            assert gradient is None
        else:
            np.testing.assert_allclose(gradient, ARRAYS[expected], **case["tol"])


@pytest.mark.parametrize("mode", ["double_sided", "capping"])
@pytest.mark.parametrize("bound", [0.0, 1.5])
@pytest.mark.parametrize("clipping", [0.0, 0.2, 2.0])
@pytest.mark.parametrize("kind", ["eager", *slow("graph", "xla")])
def test_case_by_case(mode, bound, clipping, kind):
    log_probs = np.array([-0.5, -3.0, 2.0, -1.0, 0.0, -1.5])
    rollout = np.array([-1.0, -0.5, 0.5, -1.0, -3.0, -9.0])

    def run(now, then):
        return tuple(ratios(now, then, mode, clipping, bound))

    if kind != "eager":
        unknown = [tf.TensorSpec([None], tf.float64)] * 2
        run = tf.function(run, jit_compile=kind == "xla", input_signature=unknown)
    results = run(tf.constant(log_probs), tf.constant(rollout))
    expected = ratios_slowly(log_probs, rollout, mode, clipping, bound)
    np.testing.assert_allclose(results, expected, rtol=1e-12)


def test_only_the_current_log_prob_is_clipped():
    ratio, _ = ratios(tf.constant([-5.0]), tf.constant([-5.0]), bound=2.0)
    np.testing.assert_allclose(ratio, [math.exp(3.0)], rtol=1e-6)


@pytest.mark.parametrize("given", ["distribution", "nested log-probs", "log-prob"])
def test_nests_are_summed(given):
    now = {
        "move": tfd.Normal([0.0, 1.0], 1.0),
        "jump": (tfd.Bernoulli(probs=[0.3, 0.6]),),
    }
    then = {
        "move": tfd.Normal([0.5, 1.0], 2.0),
        "jump": (tfd.Bernoulli(probs=[0.5, 0.5]),),
    }
    action = {"move": tf.constant([0.2, 0.4]), "jump": (tf.constant([1, 0]),)}
    parts = {
        "move": then["move"].log_prob(action["move"]),
        "jump": (then["jump"][0].log_prob(action["jump"][0]),),
    }
    total = parts["move"] + parts["jump"][0]
    rollout = {"distribution": None, "nested log-probs": parts, "log-prob": total}[
        given
    ]
    ratio, _ = losses.action_importance_ratio(
        now,
        then if rollout is None else None,
        action,
        "capping",
        None,
        0.2,
        0.0,
        check_numerics=True,
        debug_summaries=False,
        rollout_log_prob=rollout,
    )

    def normal(x, mean, deviation):
        return math.exp(-0.5 * ((x - mean) / deviation) ** 2) / deviation

    expected = [
        normal(0.2, 0, 1) / normal(0.2, 0.5, 2) * 0.3 / 0.5,
        normal(0.4, 1, 1) / normal(0.4, 1, 2) * 0.4 / 0.5,
    ]
    np.testing.assert_allclose(ratio, expected, rtol=1e-5)


def test_nan_stays_seen():
    ratio, clipped = ratios(tf.constant([math.nan, 0.0]), tf.zeros(2), bound=1.0)
    np.testing.assert_array_equal(np.isnan(ratio), [True, False])
    np.testing.assert_array_equal(np.isnan(clipped), [True, False])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dtype_is_kept(dtype):
    results = ratios(tf.constant([0.5], dtype), tf.constant([0.0], dtype), bound=0.25)
    assert [result.dtype for result in results] == [dtype] * 2
    numbers = [float(tf.cast(result[0], tf.float64)) for result in results]
    np.testing.assert_allclose(numbers, [math.exp(0.25), 1.2], rtol=1e-2)


def test_check_numerics():
    call = (tf.constant([0.0, 100.0]), tf.constant([0.0, -100.0]))
    assert np.isinf(ratios(*call).importance_ratio[1])
    with pytest.raises(ValueError, match="expected finite values"):
        ratios(*call, check_numerics=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="check_numerics"):
        tf.function(ratios)(*call, check_numerics=True)


def test_debug_summaries(tmp_path):
    call = (tf.math.log([0.5, 0.9]), tf.math.log([0.5, 0.3]))
    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default():
        ratios(*call, debug_summaries=True)  # no step: nothing to write at
    with writer.as_default(step=3):
        ratios(*call)  # not asked for
        ratios(*call, debug_summaries=True, scope=tf.name_scope("ppo"))
        ratios(*call, debug_summaries=True)
    writer.close()
    found = event_files.last(tmp_path)
    assert sorted(found) == [
        "importance_ratio_clip_fraction",
        "importance_ratio_mean",
        "ppo/importance_ratio_clip_fraction",
        "ppo/importance_ratio_mean",
    ]
    np.testing.assert_allclose(found["ppo/importance_ratio_mean"], [2.0], rtol=1e-6)
    np.testing.assert_allclose(found["importance_ratio_clip_fraction"], [0.5])


def refused(**changes):
    arguments = {
        "action_distribution": Given(tf.zeros(2)),
        "rollout_action_distribution": None,
        "action": tf.zeros(2),
        "clipping_mode": "capping",
        "scope": None,
        "importance_ratio_clipping": 0.2,
        "log_prob_clipping": 0.0,
        "check_numerics": False,
        "debug_summaries": False,
        "rollout_log_prob": tf.zeros(2),
    }
    losses.action_importance_ratio(**(arguments | changes))


TWO = [tf.zeros(2), tf.zeros(2)]
UNLIKE = [Given(tf.zeros(2)), Given(tf.zeros([2, 1]))]


@refusals.table(
    (
        lambda **changes: refused(**changes),
        bad(ValueError, "clipping_mode", clipping_mode="other"),
        bad(ValueError, "importance_ratio_clipping", importance_ratio_clipping=-0.1),
        bad(ValueError, "log_prob_clipping", log_prob_clipping=-1.0),
        bad(ValueError, "rollout_log_prob", rollout_log_prob=None),
        bad(ValueError, "rollout_log_prob", rollout_log_prob=tf.zeros(3)),
        bad(ValueError, "rollout_log_prob", rollout_log_prob=()),
        bad(ValueError, "action", action=tuple(TWO)),
        bad(ValueError, "log_prob of leaf 1", action_distribution=UNLIKE, action=TWO),
    )
)
def test_errors(row):
    row()


def test_unknown_mode_is_refused_before_any_work():
    class Untouchable:
        def log_prob(self, action):
            raise AssertionError(action)

    with pytest.raises(ValueError, match="`clipping_mode` expected one of"):
        losses.action_importance_ratio(
            Untouchable(), Untouchable(), 0.0, "both", None, 0.2, 0.0, False, False
        )
