"""Quantized actions against recordings, hand-worked levels and a plain loop."""

import default_rows
import golden_io
import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from tfrl.core import specs
from tfrl.exploration import quantizer


def spec_of(content):
    return specs.BoundedTensorSpec(
        content["shape"], content["dtype"], content["minimum"], content["maximum"]
    )


CASES = golden_io.load("alf/action_quantizer", build={"spec": spec_of})
KINDS = [(m, r) for m in ("uniform", "log") for r in ("center", "boundary")]
every_kind = pytest.mark.parametrize(
    ("method", "rep_mode"), KINDS, ids=["-".join(kind) for kind in KINDS]
)
BOUNDS = {
    "symmetric": (-1.0, 1.0),
    "from_zero": (0.0, 5.0),
    "to_zero": (-0.3, 0.0),
    "lopsided": (-2.0, 0.5),
    "positive": (1e-3, 1e3),
    "negative": (-7.0, -0.1),
    "offset": (100.0, 101.0),
    "huge": (-3e38, 3e38),
    "tiny": (-1e-30, 2e-30),
}


def quantizer_of(low, high, *args, shape=(3,), dtype=tf.float32):
    return quantizer.ActionQuantizer(
        specs.BoundedTensorSpec(shape, dtype, low, high), *args
    )


@pytest.mark.parametrize("case", CASES, ids=golden_io.ids(CASES))
def test_golden(case):
    args, kwargs = case["ctor"]["args"], case["ctor"]["kwargs"]
    if case["kind"] == "raises":
        with pytest.raises(ValueError, match=r"`action_(spec|bins)` expected"):
            quantizer.ActionQuantizer(*args, **kwargs)
        return
    made = quantizer.ActionQuantizer(*args, **kwargs)
    for step in case["steps"]:
        expected = step["out"]
        if step["name"] == "_LUT_BA":
            got = made.levels
        elif step["op"] == "get":
            got = getattr(made, step["name"])
        else:
            got = getattr(made, step["name"])(*map(tf.constant, step["args"]))
        if step["name"] == "action_to_ind":
            assert got.dtype == tf.int64
            # The recorded indices leave the range where actions do.
            expected = np.clip(expected, 0, made.action_bins - 1)
        np.testing.assert_allclose(got, expected, **case["tol"])


def test_levels_and_bins_by_hand():
    centres = quantizer_of(-1.0, 1.0, "uniform", 4, "center")
    np.testing.assert_array_equal(centres.levels, [-0.75, -0.25, 0.25, 0.75])
    actions = [-9.0, -1.0, -0.5, -0.499, 0.0, 0.4999, 0.5, 1.0, np.inf]
    np.testing.assert_array_equal(
        centres.action_to_ind(actions), [0, 0, 1, 1, 2, 2, 3, 3, 3]
    )
    starts = quantizer_of(0.0, 3.0, "uniform", 4, "boundary")
    np.testing.assert_array_equal(starts.levels, [0.0, 1.0, 2.0, 3.0])
    actions = [-np.inf, 0.0, 0.999, 1.0, 2.999, 3.0, 8.0]
    np.testing.assert_array_equal(starts.action_to_ind(actions), [0, 0, 0, 1, 2, 3, 3])


def test_logarithmic_levels_by_hand():
    decades = quantizer_of(0.01, 100.0, "log", 5, "boundary")
    np.testing.assert_allclose(decades.levels, [0.01, 0.1, 1, 10, 100], rtol=1e-6)
    middles = quantizer_of(-100.0, -0.01, "log", 2, "center")
    np.testing.assert_allclose(middles.levels, [-10.0, -0.1], rtol=1e-6)
    np.testing.assert_array_equal(middles.action_to_ind([-1.01, -0.99]), [0, 1])
    # Around zero y = sign(a) log(1 + 100 |a|), from -log 101 to log 101.
    around = quantizer_of(-1.0, 1.0, "log", 5, "boundary")
    half = (101.0**0.5 - 1.0) / 100.0
    np.testing.assert_allclose(around.levels, [-1, -half, 0, half, 1], rtol=1e-6)
    bins = np.diff(quantizer_of(0.0, 1.0, "log", 1000, "boundary").levels)
    np.testing.assert_allclose(bins[-1] / bins[0], 100.0, rtol=0.02)


@every_kind
def test_the_unit_of_the_action_does_not_matter(method, rep_mode):
    one = quantizer_of(-2.0, 0.5, method, 9, rep_mode)
    for scale in (1e-6, 3.0, 1e12):
        other = quantizer_of(-2.0 * scale, 0.5 * scale, method, 9, rep_mode)
        np.testing.assert_allclose(other.levels, scale * one.levels, rtol=1e-6, atol=0)


@every_kind
@pytest.mark.parametrize(
    "bounds",
    default_rows.params(
        {name: (bounds,) for name, bounds in BOUNDS.items()},
        ["lopsided", "huge", "tiny"],
    ),
)
def test_round_trip_is_exact_for_every_number_of_bins(method, rep_mode, bounds):
    for bins in (*range(2, 70), *range(70, 1001, 31)):
        made = quantizer_of(*bounds, method, bins, rep_mode, shape=(1,))
        indices = np.arange(bins)
        # What a compiled op does, without its half millisecond a call.
        found = np.searchsorted(made._edges[0], made.levels, side="right")
        np.testing.assert_array_equal(found, indices, err_msg=f"{bins} bins")
        if bins in (2, 7, 1000):
            actions = made.ind_to_action(indices)
            np.testing.assert_array_equal(made.action_to_ind(actions), indices)
            double = tf.cast(actions, tf.float64)
            np.testing.assert_array_equal(made.action_to_ind(double), indices)


@every_kind
@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
def test_indices_against_a_plain_loop(method, rep_mode, bounds):
    low, high = np.float64(bounds[0]), np.float64(bounds[1])
    bins = 6
    made = quantizer_of(low, high, method, bins, rep_mode, dtype=tf.float64)

    def y(a):
        if low * high > 0:
            return np.sign(a) * np.log(abs(a))
        return np.sign(a) * np.log1p(100 * abs(a) / max(abs(low), abs(high)))

    to_space = y if method == "log" else lambda a: a
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, [200])
    actions = 0.5 * low + 0.5 * high + actions * (0.6 * high - 0.6 * low)
    if low * high > 0:
        actions = np.clip(actions, low, high)
    first, last = to_space(low), to_space(high)
    count = bins if rep_mode == "center" else bins - 1
    expected = [
        min(max(int(np.floor((to_space(a) - first) / (last - first) * count)), 0), 5)
        for a in actions
    ]
    np.testing.assert_array_equal(made.action_to_ind(actions), expected)


def test_bounds_of_each_element():
    low, high = [[-1.0, 0.0], [2.0, -3.0]], [[1.0, 10.0], [3.0, -1.0]]
    made = quantizer_of(low, high, "uniform", 4, "center", shape=(2, 2))
    assert made.levels.shape == (4, 2, 2)
    indices = np.random.default_rng(0).integers(0, 4, [5, 3, 2, 2])
    actions = made.ind_to_action(indices).numpy()
    assert actions.shape == indices.shape and actions.dtype == np.float32
    for place in np.ndindex(*indices.shape):
        element = place[-2:]
        assert actions[place] == made.levels[(indices[place], *element)]
        alone = quantizer_of(np.array(low)[element], np.array(high)[element], "uniform")
        assert alone.action_bins == 7
    np.testing.assert_array_equal(made.action_to_ind(actions), indices)
    with pytest.raises(
        ValueError, match=r"`action` expected shape \[..., \*\[2, 2\]\]"
    ):
        made.action_to_ind(tf.zeros([4, 3, 2]))
    with pytest.raises(ValueError, match=r"`action_ind` expected shape"):
        made.ind_to_action([1, 2])


def test_dtype_of_the_spec_is_kept():
    for dtype in (tf.float16, tf.bfloat16, tf.float64):
        made = quantizer_of(-2.0, 1.0, "log", 30, "center", dtype=dtype)
        actions = made.ind_to_action(tf.range(30))
        assert actions.dtype == dtype
        np.testing.assert_array_equal(made.action_to_ind(actions), np.arange(30))


def test_graph_of_unknown_shape_xla_and_saved_model(tmp_path):
    made = quantizer_of([-1.0, 0.0], [1.0, 5.0], "log", 8, shape=(2,))
    actions = tf.random.stateless_uniform([7, 2], [1, 2], -2.0, 6.0)
    expected = made.action_to_ind(actions)
    module = tf.Module()
    module.index = tf.function(
        made.action_to_ind, input_signature=[tf.TensorSpec(None, tf.float32)]
    )
    module.action = tf.function(
        made.ind_to_action, input_signature=[tf.TensorSpec([None, 2], tf.int64)]
    )
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    xla = tf.function(made.action_to_ind, jit_compile=True)
    for index in (module.index, loaded.index, xla):
        np.testing.assert_array_equal(index(actions), expected)
    levels = made.ind_to_action(expected)
    np.testing.assert_array_equal(loaded.action(expected), levels)
    compiled = tf.function(made.ind_to_action, jit_compile=True)
    np.testing.assert_array_equal(compiled(expected), levels)


def test_a_box_will_do():
    box = gym.spaces.Box(-1.0, np.array([1.0, 3.0]), dtype=np.float64)
    made = quantizer.ActionQuantizer(box, action_bins=3, rep_mode="boundary")
    np.testing.assert_array_equal(made.levels, [[-1.0, -1.0], [0.0, 1.0], [1.0, 3.0]])
    assert made.ind_to_action([[0, 2]]).dtype == tf.float64


SPEC = specs.BoundedTensorSpec([2], tf.float32, -1.0, 1.0)
FAR = SPEC.replace(minimum=1e6, maximum=1e6 + 1)
BAD = {
    "method": (ValueError, (SPEC, "cubic"), "`sampling_method` expected one of"),
    "mode": (ValueError, (SPEC, "log", 5, "edge"), "`rep_mode` expected one of"),
    "one": (ValueError, (SPEC, "log", 1), "`action_bins` expected an int of at least"),
    "float": (TypeError, (SPEC, "log", 7.0), "`action_bins` expected an int"),
    "many": (ValueError, (FAR, "uniform", 99), "that float32 tells apart between"),
    "empty": (ValueError, (SPEC.replace(minimum=1.0),), "tells apart between"),
    "scalar": (ValueError, (SPEC.replace(shape=[]),), "rank of at least 1"),
    "infinite": (ValueError, (SPEC.replace(maximum=np.inf),), "finite numbers"),
    "unknown": (ValueError, (SPEC.replace(shape=[None]),), "known dimensions"),
    "unbounded": (TypeError, (tf.TensorSpec([2]),), "BoundedTensorSpec or a Box"),
    "nest": (TypeError, ({"a": SPEC},), "BoundedTensorSpec or a Box"),
    "integer": (TypeError, (SPEC.replace(dtype=tf.int32),), "floating-point"),
    "discrete": (TypeError, (gym.spaces.Discrete(3),), "floating-point"),
}


@pytest.mark.parametrize(("error", "args", "match"), BAD.values(), ids=BAD)
def test_bad_arguments(error, args, match):
    with pytest.raises(error, match=f"`ActionQuantizer`: .*{match}"):
        quantizer.ActionQuantizer(*args)


def test_bad_values():
    made = quantizer.ActionQuantizer(SPEC)
    with pytest.raises(ValueError, match=r"`action_ind` expected numbers in \[0, 6\]"):
        made.ind_to_action([[0, 7]])
    with pytest.raises(TypeError, match=r"`action_ind` expected integers; got float32"):
        made.ind_to_action([[0.0, 1.0]])
    with pytest.raises(TypeError, match=r"`action` expected a floating-point dtype"):
        made.action_to_ind(tf.constant([[0, 1]]))


def test_nan_is_in_no_bin():
    made = quantizer_of(-1.0, 1.0, "uniform", 4, shape=(2,))
    with pytest.raises(ValueError, match="`action` expected numbers in"):
        made.action_to_ind([[np.nan, 0.1]])
    found = tf.function(made.action_to_ind, jit_compile=True)(
        tf.constant([[np.nan, 0.1], [np.inf, -np.inf]])
    )
    np.testing.assert_array_equal(found, [[-1, 2], [3, 0]])
