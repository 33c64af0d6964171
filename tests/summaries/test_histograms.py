"""Tests of histogram summaries."""

import event_files
import golden_io
import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from event_files import both, written
from refusals import bad, table

import tfrl
from tfrl.core import spaces, specs
from tfrl.summaries import _recording, histograms

tfd = tfp.distributions
BUILD = {
    "t": tf.constant,
    "spec": lambda content: specs.BoundedTensorSpec(**content),
    "obj": lambda content: getattr(
        tfd if content["cls"].startswith("td.") else tfrl.distributions,
        content["cls"].rsplit(".")[-1],
    )(*content["args"], **content["kwargs"]),
}
NAMES = [
    *["histogram_continuous", "histogram_discrete"],
    *["summarize_action", "summarize_distribution"],
]
CASES = golden_io.load("alf/summary_utils_doc", build=BUILD)
CASES = [case for case in CASES if case["symbol"].rsplit(".")[-1] in NAMES]


@event_files.eagerly_and_slow
@pytest.mark.parametrize("case", CASES, ids=golden_io.ids(CASES))
def test_golden(case, mode, tmp_path):
    function = getattr(histograms, case["symbol"].rsplit(".")[-1])
    given = case["in"]
    found = written(
        tmp_path,
        lambda: function(*given["args"], **given["kwargs"]),
        mode,
        record="summaries are off" not in case.get("note", ""),
    )
    event_files.check_calls(found, case["out"]["calls"], **case["tol"])


def test_hand_worked(tmp_path):
    def record():
        histograms.histogram_continuous("c", [0.0, 0.5, 1.0, 3.0, 9.0], 0, 2, 4)
        histograms.histogram_discrete("d", [1, 2, 2, 5, -7], 1, 3, step=5)

    with event_files.writing(tmp_path):
        record()
    [(_, continuous)], [(step, discrete)] = event_files.points(tmp_path).values()
    assert continuous.tolist() == [[0, 0.5, 1], [0.5, 1, 1], [1, 1.5, 1], [1.5, 2, 2]]
    assert discrete.tolist() == [[0.5, 1.5, 1], [1.5, 2.5, 2], [2.5, 3.5, 0]]
    assert step == 5
    assert set(event_files.plugins(tmp_path).values()) == {"histograms"}


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "bfloat16"])
def test_against_numpy(dtype, tmp_path):
    data = tf.cast(np.random.default_rng(3).normal(size=[50, 20]) * 20, dtype)

    def record():
        histograms.histogram_continuous("x", data, None, 10.0, 7)

    found = written(tmp_path, record)["x"]
    wide = np.minimum(tf.cast(data, tf.float64).numpy(), 10.0)
    counts, edges = np.histogram(wide, 7)
    assert found[:, 2].tolist() == counts.tolist()
    np.testing.assert_allclose(found[:, 0], edges[:-1], rtol=1e-12)


@both
def test_odd_data(mode, tmp_path):
    rows = {
        "empty": ([], None, None),
        "nan": ([1.0, np.nan], None, None),
        "inf": ([1.0, np.inf], None, None),
        "limited": ([1.0, -np.inf, 3.0], 0.0, [2, 1]),
        "limited nan": ([1.0, np.nan], 0.0, None),
        "equal": ([2.0, 2.0], None, [0, 2]),
        "huge": ([-1e300, 1e300], None, [1, 1]),
    }

    def record():
        for name, (data, low, _) in rows.items():
            data = tf.constant(data, tf.float64)
            histograms.histogram_continuous(name, data, low, None, 2)

    found = written(tmp_path, record, mode)
    expected = {name: counts for name, (*_, counts) in rows.items() if counts}
    assert {name: x[:, 2].tolist() for name, x in found.items()} == expected


def test_bounds_may_be_tensors_of_a_graph(tmp_path):
    @tf.function(autograph=False)
    def update(data, low, high):
        histograms.histogram_continuous("x", data, low, high, 2)

    with event_files.writing(tmp_path):
        update(tf.constant([1.0, 4.0]), tf.constant(0.0), tf.constant(4.0))
    assert event_files.last(tmp_path)["x"].tolist() == [[0, 2, 1], [2, 4, 1]]


def test_histograms_share_a_trace(tmp_path):
    before = _recording._buckets.experimental_get_tracing_count()
    with event_files.writing(tmp_path):
        for size in (3, 4):
            _recording.write_histogram("x", tf.ones([size]), count=size)
            tf.function(_recording.write_histogram)("y", tf.ones([size, 2]))
    assert _recording._buckets.experimental_get_tracing_count() - before <= 1


def test_nothing_is_computed_when_off(tmp_path):
    spec = specs.BoundedTensorSpec([2], tf.float32, -1.0, 1.0)
    tensor = event_files.Untouchable()

    class Cold(tfd.Normal):
        loc = property(lambda self: tensor.__array__() if cold else 0.0)

    cold = False
    policy = Cold(0.0, 1.0)
    cold = True

    def record():
        histograms.histogram_continuous("c", tensor)
        histograms.histogram_discrete("d", tensor, 0, 3)
        histograms.summarize_action(tensor, spec)
        histograms.summarize_distribution("p", policy)

    record()
    assert written(tmp_path, record, record=False) == {}
    for call in (
        lambda: histograms.summarize_action(tensor, spec),
        lambda: histograms.summarize_distribution("p", policy),
    ):
        with pytest.raises(AssertionError, match="was computed with"):
            written(tmp_path, call)


@both
def test_actions_of_a_gym_space(mode, tmp_path):
    space = gym.spaces.Dict(
        {
            "a": gym.spaces.Discrete(3, start=2),
            "b": gym.spaces.MultiDiscrete([2, 4]),
            "c": gym.spaces.Box(np.float32([-1, -np.inf]), np.float32([1, np.inf])),
            "d": gym.spaces.Box(-1.0, 1.0, [2, 2]),
            "e": gym.spaces.Box(-1.0, 1.0, []),
        }
    )
    actions = {
        "a": tf.constant([2, 4], tf.int64),
        "b": tf.constant([[0, 3], [1, 3]]),
        "c": tf.constant([[0.5, 7.0], [0.5, 9.0]]),
        "d": tf.zeros([2, 2, 2]),
        "e": tf.constant([0.0, 3.0]),
    }
    spec = spaces.spec_from_space(space)
    found = written(tmp_path, lambda: histograms.summarize_action(actions, spec), mode)
    assert sorted(found) == [
        "action/0",
        "action/1",
        *[f"action/2/{d}/{kind}" for d in (0, 1) for kind in ("mean", "value")],
        *["action/4/0/mean", "action/4/0/value"],
    ]
    assert found["action/0"].tolist() == [[1.5, 2.5, 1], [2.5, 3.5, 0], [3.5, 4.5, 1]]
    assert found["action/1"][:, 2].tolist() == [1, 1, 0, 2]
    unbounded = found["action/2/1/value"]
    assert (unbounded[0, 0], unbounded[-1, 1]) == (7.0, 9.0)
    assert found["action/4/0/mean"] == 1.5
    assert found["action/4/0/value"][-1].tolist() == [1 - 2 / 30, 1.0, 1.0]


def means(found):
    return {
        tag.removesuffix("/mean"): float(value)
        for tag, value in found.items()
        if tag.endswith("/mean")
    }


@event_files.eagerly_and_slow
def test_distributions(mode, tmp_path):
    normal = tfd.Normal(tf.constant([[1.0, 2.0]]), 1.0)
    beta = tfd.Independent(tfd.Beta([[2.0]], [[2.0]]), 1)
    nest = [
        tfd.TransformedDistribution(tfd.Independent(normal, 1), tfp.bijectors.Tanh()),
        beta,
        tfrl.distributions.SquashedNormal([3.0, 5.0], [np.e, np.e]),
        tf.constant([[4.0], [6.0]]),
        tfd.MultivariateNormalDiag([[7.0]], [[np.e]]),
        tfrl.distributions.Product([beta]),
        tfd.Laplace([1.0], 1.0),
        tf.constant([1, 2]),
        tfrl.distributions.TruncatedNormal([[2.0]], [[np.e]], [-1.0], [1.0]),
        tfrl.distributions.TruncatedCauchy([[3.0]], [[np.e]], [-1.0], [1.0]),
        tfrl.distributions.TruncatedT2([[4.0]], [[np.e]], [-1.0], [1.0]),
    ]
    found = written(
        tmp_path, lambda: histograms.summarize_distribution("pi", nest), mode
    )
    expected = {
        **{"pi_loc/0/0": 1.0, "pi_loc/0/1": 2.0},
        **{"pi_log_scale/0/0": 0.0, "pi_log_scale/0/1": 0.0},
        **{"pi_loc/1/0": 0.5, "pi_log_scale/1/0": 0.5 * np.log(0.05)},
        **{"pi_loc/2/0": 4.0, "pi_log_scale/2/0": 1.0},
        "pi_loc/3/0": 5.0,
        **{"pi_loc/4/0": 7.0, "pi_log_scale/4/0": 1.0},
        **{f"pi_loc/{i}/0": float(i - 6) for i in (8, 9, 10)},
        **{f"pi_log_scale/{i}/0": 1.0 for i in (8, 9, 10)},
    }
    assert means(found) == pytest.approx(expected, rel=1e-6, abs=1e-6)


WIDE = specs.BoundedTensorSpec([], tf.int64, -(2**63), 2**63 - 1)
FREE = tf.TensorSpec([], tf.int32)
INTS = tf.zeros([2], tf.int32)


@table(
    (
        histograms.histogram_continuous,
        bad(ValueError, "bucket_count", "x", [1.0], bucket_count=0),
        bad(ValueError, "bucket_count", "x", [1.0], bucket_count=2**31),
        bad(ValueError, "bucket_max", "x", [1.0], 2.0, 1.0),
    ),
    (
        histograms.histogram_discrete,
        bad(ValueError, "bucket_max", "x", [1], 0, 2**31),
        bad(TypeError, "bucket_min", "x", [1], 0.5, 2),
        bad(TypeError, "data", "x", [1.5], 0, 2),
    ),
    (
        histograms.summarize_action,
        bad(ValueError, "action_specs", INTS, WIDE),
        bad(ValueError, "action_specs", INTS, FREE),
        bad(TypeError, "action_specs", INTS, gym.spaces.Discrete(3)),
        bad(ValueError, "actions", [INTS], FREE),
    ),
)
def test_refusals(row, tmp_path):
    with event_files.writing(tmp_path):
        row()
    assert event_files.points(tmp_path) == {}


def test_unknown_dimensions_are_an_error(tmp_path):
    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, None])])
    def update(x):
        histograms.summarize_distribution("x", x)

    with (
        event_files.writing(tmp_path),
        pytest.raises(ValueError, match="expected a last axis of known size"),
    ):
        update(tf.zeros([2, 2]))
