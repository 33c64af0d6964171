"""Tests of tfrl.core.specs."""

import copy
import pickle

import golden_io
import numpy as np
import pytest
import tensorflow as tf

from tfrl.core import specs


def made_spec(content):
    kind = specs.BoundedTensorSpec if "minimum" in content else tf.TensorSpec
    return kind(**content)


BUILD = {"spec": made_spec}
SPEC = specs.BoundedTensorSpec([2], tf.float32, [-1.0, 0.0], 2.0, name="action")


def golden(stem, *symbols):
    cases = [c for name in symbols for c in golden_io.load(stem, BUILD, name)]
    return pytest.mark.parametrize("case", cases, ids=golden_io.ids(cases))


@golden("alf/spec_utils", "zeros_from_spec", "is_same_spec")
def test_spec_utils_golden(case):
    function = getattr(specs, case["symbol"].split(".")[-1])
    found = function(*case["args"], **case["kwargs"])
    if isinstance(case["out"], bool):
        assert found is case["out"]
        return
    tf.nest.assert_same_structure(found, case["out"])
    for one, two in zip(
        tf.nest.flatten(found), tf.nest.flatten(case["out"]), strict=True
    ):
        assert one.dtype == two.dtype and one.shape == two.shape
        np.testing.assert_array_equal(one, two)


@golden("alf/common", "flattened_size", "get_initial_policy_state")
def test_common_golden(case):
    function = getattr(specs, case["symbol"].split(".")[-1])
    found = function(*case["args"], **case["kwargs"])
    tf.nest.map_structure(np.testing.assert_array_equal, found, case["out"])


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


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"minimum": 3.0}, ValueError, "`minimum` expected at most `maximum`"),
        ({"minimum": np.nan}, ValueError, "`minimum` expected numbers that float32"),
        ({"maximum": 1e300}, ValueError, "`maximum` expected numbers that float32"),
        ({"minimum": [0.0, 0.0, 0.0]}, ValueError, r"broadcasts to shape \(2,\)"),
        ({"dtype": tf.string}, TypeError, "`dtype` expected floating-point"),
        ({"shape": tf.TensorShape(None)}, ValueError, "`shape` expected a known rank"),
        ({"dtype": tf.uint8}, ValueError, "`minimum` expected numbers that uint8"),
        ({"dtype": tf.int32, "maximum": 2.5}, ValueError, "`maximum` expected numbers"),
        ({"dtype": tf.int32, "maximum": np.inf}, ValueError, "that int32 can hold"),
        ({"dtype": tf.int64, "maximum": 2**63}, ValueError, "that int64 can hold"),
        ({"minimum": "low"}, ValueError, "`minimum` expected numbers"),
        ({"low": 0.0}, ValueError, r"`changes` expected one of .*got 'low'"),
    ],
)
def test_invalid_spec(changes, error, match):
    with pytest.raises(error, match=match):
        SPEC.replace(**changes)


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
