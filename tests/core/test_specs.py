"""Tests of tfrl.core.specs."""

import copy
import pickle

import numpy as np
import pytest
import refusals
import tensorflow as tf
from refusals import bad

from tfrl.core import specs

SPEC = specs.BoundedTensorSpec([2], tf.float32, [-1.0, 0.0], 2.0, name="action")


def test_bounds_broadcast_to_the_shape_and_are_read_only():
    assert SPEC.minimum.tolist() == [-1.0, 0.0]
    assert SPEC.maximum.tolist() == [2.0, 2.0]
    assert SPEC.minimum.dtype == np.float32
    with pytest.raises(ValueError, match="read-only"):
        SPEC.minimum[0] = 5.0


def test_bounds_are_copied():
    low = np.zeros(2, np.float32)
    spec = specs.BoundedTensorSpec([2], tf.float32, low, 1.0)
    low[0] = 0.5
    assert spec.minimum[0] == 0.0


def test_unknown_dimensions_have_bounds_of_size_one():
    spec = specs.BoundedTensorSpec([None, 2], tf.float32, [0.0, -1.0], 1.0)
    assert spec.minimum.shape == (1, 2)
    assert spec.shape.as_list() == [None, 2]


@refusals.table(
    (
        lambda **changes: SPEC.replace(**changes),
        bad(ValueError, "minimum", minimum=3.0),
        bad(ValueError, "minimum", minimum=np.nan),
        bad(ValueError, "minimum", minimum=[0.0, 0.0, 0.0]),
        bad(ValueError, "minimum", minimum="low"),
        bad(ValueError, "minimum", dtype=tf.uint8),
        bad(ValueError, "maximum", maximum=1e300),
        bad(ValueError, "maximum", dtype=tf.int32, maximum=2.5),
        bad(ValueError, "maximum", dtype=tf.int32, maximum=np.inf),
        bad(ValueError, "maximum", dtype=tf.int64, maximum=2**63),
        bad(TypeError, "dtype", dtype=tf.string),
        bad(ValueError, "shape", shape=tf.TensorShape(None)),
        bad(ValueError, "changes", low=0.0),
    )
)
def test_invalid_spec(row):
    row()


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (tf.int64, -(2**63), 2**63 - 1),
        (tf.uint64, 0, 2**64 - 1),
        (tf.uint8, 0, 255),
        (tf.bool, False, True),
        (tf.float32, -np.inf, np.inf),
        (tf.bfloat16, -1, 1),
    ],
)
def test_extreme_bounds(dtype, low, high):
    spec = specs.BoundedTensorSpec([2], dtype, low, high)
    assert spec.minimum.tolist() == [low, low]
    assert spec.maximum.tolist() == [high, high]


def test_replace_keeps_the_rest():
    wide = SPEC.replace(maximum=[2.0, 9.0])
    assert wide.name == "action" and wide.minimum.tolist() == [-1.0, 0.0]
    assert wide.maximum.tolist() == [2.0, 9.0]
    assert SPEC.maximum.tolist() == [2.0, 2.0]
    uniform = specs.BoundedTensorSpec([2], tf.float32, 0.0, 1.0)
    assert uniform.replace(shape=[3, 1]).minimum.shape == (3, 1)
    half = SPEC.replace(dtype=tf.float16)
    assert half.dtype == tf.float16 and half.minimum.dtype == np.float16


@pytest.mark.parametrize(
    "clone",
    [lambda s: pickle.loads(pickle.dumps(s)), copy.deepcopy, copy.copy],
    ids=["pickle", "deepcopy", "copy"],
)
def test_copies_are_equal(clone):
    spec = SPEC.replace(shape=[None, 2])
    assert clone(spec) == spec and hash(clone(spec)) == hash(spec)


@pytest.mark.parametrize(
    "other",
    [
        SPEC.replace(maximum=3.0),
        SPEC.replace(minimum=-1.0),
        SPEC.replace(name=None),
        SPEC.replace(dtype=tf.float64),
        tf.TensorSpec([2], tf.float32, name="action"),
        None,
    ],
)
def test_equality_sees(other):
    assert SPEC != other
    assert other != SPEC


def test_spec_in_tf_nest_and_tf_function():
    nest = {"a": [SPEC], "b": SPEC}
    assert tf.nest.flatten(nest) == [SPEC, SPEC]
    traces = []

    @tf.function(input_signature=[{"a": SPEC}])
    def double(inputs):
        traces.append(1)
        return inputs["a"] * 2.0

    np.testing.assert_array_equal(double({"a": tf.ones([2])}), [2.0, 2.0])
    double({"a": tf.zeros([2])})
    assert len(traces) == 1
    with pytest.raises((TypeError, ValueError)):
        double({"a": tf.zeros([3])})
    concrete = tf.function(lambda x: x + 1.0).get_concrete_function(SPEC)
    np.testing.assert_array_equal(concrete(tf.ones([2])), [2.0, 2.0])


def test_spec_in_tf_data_and_saved_model(tmp_path):
    rows = tf.data.Dataset.from_generator(
        lambda: iter([np.ones(2, np.float32)]), output_signature=SPEC
    )
    np.testing.assert_array_equal(next(iter(rows)), [1.0, 1.0])
    module = tf.Module()
    module.double = tf.function(lambda x: x * 2.0, input_signature=[SPEC])
    tf.saved_model.save(module, str(tmp_path / "model"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.double(tf.ones([2])), [2.0, 2.0])


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (tf.float32, [-1.0, 5.0], [1.0, 5.0]),
        (tf.float64, -3e307, 1.7e308),
        (tf.float32, -3e38, 3e38),
        (tf.bfloat16, -1.0, 1.0),
        (tf.int32, [-2, 7], [3, 7]),
        (tf.int64, -(2**63), 2**63 - 1),
        (tf.uint64, 2**63, 2**64 - 1),
        (tf.uint8, 0, 255),
        (tf.bool, False, True),
    ],
    ids=lambda part: getattr(part, "name", None),
)
def test_sample_stays_in_bounds_and_repeats(dtype, low, high):
    spec = specs.BoundedTensorSpec([2], dtype, low, high)
    value = spec.sample([500], seed=3)
    assert value.dtype == dtype and value.shape == [500, 2]
    found = value.numpy()
    assert np.all(found >= spec.minimum) and np.all(found <= spec.maximum)
    np.testing.assert_array_equal(spec.sample([500], seed=3), found)
    assert np.any(spec.sample([500], seed=4) != found)
    in_graph = tf.function(lambda: spec.sample([500], seed=3))
    np.testing.assert_array_equal(in_graph(), found)


def test_sample_of_integers_is_uniform():
    die = specs.BoundedTensorSpec([], tf.int32, 1, 6)
    counts = np.bincount(die.sample([6000], seed=0), minlength=7)
    assert counts[0] == 0
    # Each count has mean 1000 and standard deviation sqrt(6000 * 5 / 36) = 29.
    assert np.all(np.abs(counts[1:] - 1000) < 150)
    xla = tf.function(lambda: die.sample([100], seed=0), jit_compile=True)()
    assert set(xla.numpy()) == {1, 2, 3, 4, 5, 6}


def test_sample_spreads_over_the_whole_range():
    wide = specs.BoundedTensorSpec([], tf.int64, -(2**63), 2**63 - 1)
    draws = wide.sample([2000], seed=0).numpy() / 2.0**63
    assert abs(draws.mean()) < 0.06 and abs(draws.std() - 3**-0.5) < 0.03
    box = specs.BoundedTensorSpec([], tf.float32, 2.0, 4.0)
    draws = box.sample([2000], seed=0).numpy()
    assert abs(draws.mean() - 3.0) < 0.06 and draws.min() < 2.01 and draws.max() > 3.99


def test_sample_without_seed_varies():
    spec = specs.BoundedTensorSpec([8], tf.float32, 0.0, 1.0)
    assert np.any(spec.sample() != spec.sample())


def test_sample_rejects_infinite_bounds_and_unknown_dimensions():
    with pytest.raises(ValueError, match="`(spec.)?maximum` expected finite numbers"):
        SPEC.replace(maximum=np.inf).sample()
    with pytest.raises(ValueError, match="expected known dimensions"):
        specs.BoundedTensorSpec([None], tf.float32, 0.0, 1.0).sample()


class DistributionLikeSpec:
    """Has what a distribution's spec has."""

    input_params_spec = {"loc": tf.TensorSpec([2]), "scale": tf.TensorSpec([])}

    def build_distribution(self, params):
        return "distribution", params


def test_zeros_from_spec_of_a_distribution():
    (kind, params) = specs.zeros_from_spec([DistributionLikeSpec()], 3)[0]
    assert kind == "distribution"
    assert params["loc"].shape == [3, 2] and params["scale"].shape == [3]


@pytest.mark.parametrize("batch_size", [(4, 2), [4, 2]])
def test_zeros_from_spec_with_a_batch_shape(batch_size):
    zeros = specs.zeros_from_spec(SPEC, batch_size)
    assert zeros.shape == [4, 2, 2] and not np.any(zeros)


def test_zeros_from_spec_in_graph():
    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def start(x):
        return specs.get_initial_policy_state(tf.shape(x)[0], {"h": SPEC, "none": ()})

    state = start(tf.ones([5, 3]))
    assert state["h"].shape == [5, 2] and state["none"] == ()


@pytest.mark.parametrize("function", [specs.flattened_size, specs.zeros_from_spec])
def test_unknown_dimensions_are_rejected(function):
    args = () if function is specs.flattened_size else (1,)
    with pytest.raises(ValueError, match="expected known dimensions"):
        function(tf.TensorSpec([None, 2]), *args)


def test_flattened_size_type():
    assert isinstance(specs.flattened_size(tf.TensorSpec([2, 3])), np.int64)
    assert specs.flattened_size(tf.TensorSpec([0, 3])) == 0


@pytest.mark.parametrize(
    ("spec1", "spec2", "same"),
    [
        (SPEC, SPEC.replace(name="other"), True),
        (SPEC, SPEC.replace(maximum=2.0 + 1e-7), True),
        (SPEC, tf.TensorSpec([2]), False),
        (tf.TensorSpec([2]), SPEC, False),
        (tf.TensorSpec([2]), tf.TensorSpec([2], name="x"), True),
        (tf.TensorSpec([2]), tf.TensorSpec([None]), False),
        ([SPEC], (SPEC,), False),
        ([SPEC], [SPEC, SPEC], False),
        ({"a": SPEC}, {"a": SPEC}, True),
        ((), [], False),
        (None, None, True),
        (SPEC.replace(maximum=np.inf), SPEC.replace(maximum=np.inf), True),
    ],
)
def test_is_same_spec(spec1, spec2, same):
    assert specs.is_same_spec(spec1, spec2) is same


WIDE = specs.BoundedTensorSpec([2], tf.float32, [-1.0, 0.0], [1.0, 4.0])


@pytest.mark.parametrize("dtype", [tf.float16, tf.float32, tf.float64])
def test_dtype_of_the_value_is_kept(dtype):
    value = tf.constant([[-2.0, 0.5]], dtype)
    assert specs.clip_to_spec(value, WIDE).dtype == dtype
    np.testing.assert_array_equal(specs.clip_to_spec(value, WIDE), [[-1.0, 0.5]])
    np.testing.assert_array_equal(specs.scale_to_spec(value, WIDE), [[-2.0, 3.0]])
    assert specs.scale_to_spec(value, WIDE).dtype == dtype


def test_scale_maps_the_ends_onto_the_bounds():
    ends = specs.scale_to_spec([[-1.0, -1.0], [1.0, 1.0]], WIDE)
    np.testing.assert_allclose(ends, [WIDE.minimum, WIDE.maximum], rtol=1e-6)


@pytest.mark.parametrize(
    ("low", "high", "mean", "magnitude"),
    [
        (0, 3, 1, 1),
        (-3, 0, -1, 1),
        (-3, -1, -2, 1),
        (2**62, 2**63 - 1, 3 * 2**61 - 1, 2**61 - 1),
        (-(2**63), 2**63 - 1, 0, 2**63 - 1),
    ],
)
def test_integer_means_are_truncated_without_overflow(low, high, mean, magnitude):
    spec = specs.BoundedTensorSpec([2], tf.int64, low, high)
    found = specs.spec_means_and_magnitudes(spec)
    assert [part.dtype for part in found] == [tf.int64, tf.int64]
    assert [part.numpy().tolist() for part in found] == [[mean] * 2, [magnitude] * 2]


def test_float_means_do_not_overflow():
    spec = specs.BoundedTensorSpec([], tf.float32, 1e38, 3e38)
    mean, magnitude = specs.spec_means_and_magnitudes(spec)
    np.testing.assert_allclose(mean, 2e38, rtol=1e-6)
    np.testing.assert_allclose(magnitude, 1e38, rtol=1e-6)


@pytest.mark.parametrize(
    ("spec_dtype", "low", "high", "dtype", "expected"),
    [
        (tf.int64, -5, 2**40, tf.int32, [-5, 100]),
        (tf.int32, -5, 300, tf.uint8, [0, 100]),
        (tf.float32, -np.inf, np.inf, tf.float32, [-100.0, 100.0]),
    ],
)
def test_clip_to_spec_across_dtypes(spec_dtype, low, high, dtype, expected):
    spec = specs.BoundedTensorSpec([], spec_dtype, low, high)
    value = tf.constant([0 if dtype == tf.uint8 else -100, 100], dtype)
    np.testing.assert_array_equal(specs.clip_to_spec(value, spec), expected)


def test_gradients_of_bounded_values():
    value = tf.Variable([[-3.0, 1.0]])
    with tf.GradientTape(persistent=True) as tape:
        clipped = specs.clip_to_spec(value, WIDE)
        scaled = specs.scale_to_spec(value, WIDE)
    np.testing.assert_array_equal(tape.gradient(clipped, value), [[0.0, 1.0]])
    np.testing.assert_array_equal(tape.gradient(scaled, value), [[1.0, 2.0]])


@pytest.mark.parametrize("function", [specs.clip_to_spec, specs.scale_to_spec])
@pytest.mark.parametrize("shape", [[3], [2, 1], [], [2, 3]])
def test_wrong_trailing_shape(function, shape):
    with pytest.raises(ValueError, match=r"expected a shape ending in \[2\]"):
        function(tf.zeros(shape), WIDE)


def test_unknown_dimensions_pass_at_trace_time():
    clip = tf.function(
        lambda x: specs.clip_to_spec(x, WIDE), input_signature=[tf.TensorSpec(None)]
    )
    np.testing.assert_array_equal(clip([[9.0, 9.0]]), [[1.0, 4.0]])


@refusals.table(
    (
        specs.clip_to_spec,
        bad(TypeError, "spec", [0.0, 0.0], tf.TensorSpec([2])),
        bad(TypeError, "value", [0, 1], WIDE),
    ),
    (specs.spec_means_and_magnitudes, bad(TypeError, "spec", tf.TensorSpec([2]))),
    (
        specs.scale_to_spec,
        bad(TypeError, "tensor", [0, 1], WIDE),
        bad(ValueError, "spec.maximum", [0.0, 1.0], WIDE.replace(maximum=np.inf)),
    ),
)
def test_refusals_of_bounded_values(row):
    row()
