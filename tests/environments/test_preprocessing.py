"""Tests of `tfrl.environments.preprocessing`."""

import golden_io
import golden_spaces
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from tfrl.environments import preprocessing, sampling

CASES = golden_spaces.cases("default_preprocessor")
CHECKS = golden_spaces.cases("check_preprocessors")
# Recorded as accidental errors; here all shapes of these spaces are taken.
SHAPED = ("multibinary_nd", "multidiscrete_2d")


def numbers(nest):
    return tf.nest.map_structure(np.asarray, nest)


@pytest.mark.parametrize("case", CASES, ids=golden_io.ids(CASES))
def test_recorded(case):
    space = golden_spaces.named(case["space"])
    expected = case["outputs"]["result"]
    if any(name in case["id"] for name in SHAPED):
        assert isinstance(expected, golden_io.Raised)
        (x,) = case["inputs"]["args"]
        assert_one_hots_or_bits(preprocessing.default_preprocessor(space)(x), space, x)
    elif isinstance(expected, golden_io.Raised):
        with pytest.raises(TypeError, match="`space` expected a Box, Discrete"):
            preprocessing.default_preprocessor(space)
    else:
        # The original counts from 0 whatever the start.
        preprocess = preprocessing.default_preprocessor(space, from_start=False)
        actual = numbers(preprocess(*case["inputs"]["args"]))
        golden_spaces.assert_same(actual, expected, case["tol"])


def assert_one_hots_or_bits(actual, space, x):
    """What a loop over rows and entries gives."""
    rows = np.reshape(x, (-1, *space.shape))
    if isinstance(space, spaces.MultiBinary):
        np.testing.assert_array_equal(actual, rows.astype(np.float32))
        return
    counts = np.ravel(space.nvec)
    assert len(actual) == len(counts)
    for k, n in enumerate(counts):
        expected = np.zeros((len(rows), n), np.float32)
        for i, row in enumerate(rows):
            expected[i, np.ravel(row)[k]] = 1.0
        np.testing.assert_array_equal(actual[k], expected)


def check(case):
    """The recorded comparisons, of tensors where arrays of jax were."""
    box = spaces.Box(0.0, 1.0, (2, 3), np.float32)
    default = preprocessing.default_preprocessor(box)
    others = {
        "check_preprocessors_same_box": [default, default],
        "check_preprocessors_diffval": [default, lambda x: default(x) + 1],
        "check_preprocessors_type": [default, lambda x: default(x).numpy()],
        "check_preprocessors_garbage": [default, default, lambda x: "garbage"],
        "check_preprocessors_one": [default],
        "check_preprocessors_shape": [default, lambda x: default(x)[0]],
    }
    if case["id"] in others:
        return preprocessing.check_preprocessors(box, *others[case["id"]])
    space = golden_spaces.named(case["space"])
    same = [preprocessing.default_preprocessor(space) for _ in range(3)]
    return preprocessing.check_preprocessors(space, *same)


@pytest.mark.parametrize("case", CHECKS, ids=golden_io.ids(CHECKS))
def test_recorded_checks(case):
    expected = case["outputs"]["result"]
    if isinstance(expected, golden_io.Raised):
        with pytest.raises(ValueError, match="`preprocessors` expected at least two"):
            check(case)
    else:
        assert check(case) is expected


def test_all_recordings_are_here():
    assert (len(CASES), len(CHECKS)) == (27, 7)


def test_integers_from_start():
    single = spaces.Discrete(3, start=5)
    preprocess = preprocessing.default_preprocessor(single)
    np.testing.assert_array_equal(
        preprocess([5, 7, 4]), [[1, 0, 0], [0, 0, 1], [0] * 3]
    )
    several = spaces.Dict(a=spaces.MultiDiscrete([2, 3], start=[1, -1]))
    preprocess = preprocessing.default_preprocessor(several)
    first, second = preprocess({"a": [2, -1]})["a"]
    np.testing.assert_array_equal(first, [[0, 1]])
    np.testing.assert_array_equal(second, [[1, 0, 0]])


def test_every_sample_finds_its_place_from_start():
    space = spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[3, -3], [0, 10]])
    preprocess = preprocessing.default_preprocessor(space)
    space.seed(0)
    for sample in (space.sample, lambda: sampling.safe_sample(space)):
        for _ in range(20):
            parts = preprocess(sample())
            assert [float(tf.reduce_sum(part)) for part in parts] == [1.0] * 4


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.float16, np.float64])
def test_box_keeps_dtype_and_clips(dtype):
    space = spaces.Box(0, 2, (2,), dtype)
    x = np.array([[1, 5], [2, 0]], dtype)
    actual = preprocessing.default_preprocessor(space)(x)
    assert actual.dtype == dtype
    np.testing.assert_array_equal(actual, [[1, 2], [2, 0]])


def test_box_takes_what_is_not_of_its_dtype():
    floats = preprocessing.default_preprocessor(spaces.Box(-np.inf, 1.0, (2,)))
    np.testing.assert_array_equal(floats([-3, 7]), [[-3.0, 1.0]])
    integers = preprocessing.default_preprocessor(spaces.Box(0, 255, (2,), np.uint8))
    np.testing.assert_array_equal(integers([0.5, 300.0]), [[0.5, 255.0]])


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
def test_graph_is_eager(jit):
    space = spaces.Dict(
        a=spaces.Tuple([spaces.Discrete(3, start=1), spaces.Box(-1, 1, (2,))]),
        b=spaces.MultiDiscrete([2, 3]),
        c=spaces.MultiBinary(2),
    )
    preprocess = preprocessing.default_preprocessor(space)
    space.seed(0)
    x = space.sample()
    traced = tf.function(preprocess, autograph=False, jit_compile=jit)
    golden_spaces.assert_same(
        numbers(traced(x)), numbers(preprocess(x)), {"rtol": 0, "atol": 0}
    )


def test_batch_of_unknown_size():
    preprocess = preprocessing.default_preprocessor(spaces.Discrete(3))
    traced = tf.function(preprocess, input_signature=[tf.TensorSpec([None], tf.int32)])
    assert traced(tf.constant([0, 1, 2, 2])).shape == (4, 3)
    untold = tf.function(preprocess, input_signature=[tf.TensorSpec(None, tf.int32)])
    assert untold(tf.constant(1)).shape == (1, 3)


PAIR = spaces.Tuple([spaces.Discrete(2)] * 2)


@pytest.mark.parametrize(
    ("space", "x", "error"),
    [
        (spaces.Box(0, 1, (2,)), [1.0, 1.0, 1.0], ValueError),
        (spaces.Box(0, 1, (2,)), [[[1.0, 1.0]]], ValueError),
        (spaces.Discrete(3), 1.0, TypeError),
        (spaces.Discrete(3), [[1]], ValueError),
        (spaces.MultiBinary(3), [0, 1], ValueError),
        (spaces.Dict(a=spaces.Discrete(2)), {"b": 1}, ValueError),
        (PAIR, (1,), ValueError),
        *((space, None, TypeError) for space in PAIR),
        *((space, ["a", "b"], TypeError) for space in PAIR),
        (spaces.MultiBinary(2), [[1], [1, 0]], ValueError),
    ],
    ids=str,
)
def test_bad_elements(space, x, error):
    preprocess = preprocessing.default_preprocessor(space)
    with pytest.raises(error, match="`default_preprocessor`: `x` expected"):
        preprocess(x)


def test_unsupported():
    text = spaces.Dict(a=spaces.Text(2))
    for space in (spaces.Sequence(spaces.Discrete(2)), text, "space"):
        with pytest.raises(TypeError, match="`default_preprocessor`: `space` expected"):
            preprocessing.default_preprocessor(space)


def test_comparison_sees_structure_and_dtype():
    space = spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (2,))])
    default = preprocessing.default_preprocessor(space)
    same = preprocessing.check_preprocessors
    assert not same(space, default, lambda x: list(default(x)))
    assert not same(space, default, lambda x: default(x)[:1])
    doubles = lambda x: (default(x)[0], tf.cast(default(x)[1], tf.float64))  # noqa: E731
    assert not same(space, default, doubles)
    assert same(space, lambda x: "same", lambda x: "same")
    nan = lambda x: np.float32("nan")  # noqa: E731
    assert same(space, nan, nan)


def test_comparison_finds_a_rare_difference():
    space = spaces.Discrete(10)
    default = preprocessing.default_preprocessor(space)
    odd = lambda x: default(0 if x == 7 else x)  # noqa: E731
    same = preprocessing.check_preprocessors
    assert not same(space, default, odd, num_samples=200, random_seed=0)


def test_comparison_leaves_the_space_alone():
    space = spaces.Discrete(10)
    default = preprocessing.default_preprocessor(space)
    space.seed(3)
    before = repr(space.np_random.bit_generator.state)
    preprocessing.check_preprocessors(space, default, default)
    assert repr(space.np_random.bit_generator.state) == before


def test_bad_comparisons():
    box = spaces.Discrete(2)
    for arguments, kwargs, error, name in (
        (("box", abs, abs), {}, TypeError, "space"),
        ((box, abs, abs), {"num_samples": 0}, ValueError, "num_samples"),
        ((box, abs, None), {}, TypeError, "preprocessors"),
    ):
        with pytest.raises(error, match=f"`check_preprocessors`: `{name}` expected"):
            preprocessing.check_preprocessors(*arguments, **kwargs)


@pytest.mark.parametrize(
    ("dtype", "x"),
    [
        (np.int64, [1, 2]),
        (np.int64, np.array([1, 2], np.int8)),
        (np.uint8, np.array([1, 2], np.int8)),
        (np.uint64, [1, 2]),
        (np.int32, np.array([1, 200], np.uint8)),
    ],
    ids=["ints", "int8", "uint8", "uint64", "unsigned"],
)
def test_bounds_beyond_the_dtype_of_an_element(dtype, x):
    limits = np.iinfo(dtype)
    space = spaces.Box(limits.min, limits.max, (2,), dtype)
    found = preprocessing.default_preprocessor(space)(x)
    np.testing.assert_array_equal(found, [np.asarray(x)])
