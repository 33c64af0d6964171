"""NumPy copies of normalizers against the normalizers themselves."""

import collections
import pickle

import numpy as np
import pytest
import tensorflow as tf

from tfrl import stats

Pair = collections.namedtuple("Pair", ["left", "right"])
SPEC = {
    "a": tf.TensorSpec([2]),
    "b": [tf.TensorSpec([]), Pair(*[tf.TensorSpec([1])] * 2)],
}


def batch(seed):
    rng = np.random.default_rng(seed)
    made = lambda *shape: (1e6 + rng.normal(size=shape)).astype(np.float32)  # noqa: E731
    return {"a": made(5, 2), "b": [made(5), Pair(made(5, 1), made(5, 1))]}


@pytest.mark.parametrize(
    "options", [{}, {"zero_mean": False}, {"unit_std": True}], ids=str
)
@pytest.mark.parametrize("clip_value", [None, -1.0, 0.5])
def test_equals_tensorflow_within_rounding(options, clip_value):
    normalizer = stats.AdaptiveNormalizer(SPEC, auto_update=False, **options)
    for seed in range(3):
        normalizer.update(batch(seed))
    host = pickle.loads(pickle.dumps(normalizer.numpy()))
    expected = normalizer.normalize(batch(3), clip_value)
    got = host(batch(3), clip_value)
    tf.nest.assert_same_structure(got, expected)
    for mine, theirs in zip(
        tf.nest.flatten(got), tf.nest.flatten(expected), strict=True
    ):
        assert isinstance(mine, np.ndarray)
        assert mine.dtype == np.float32
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)


def test_is_a_copy_of_its_moment():
    normalizer = stats.ScalarAdaptiveNormalizer()
    normalizer.update(tf.constant([1.0, 3.0]))
    host = normalizer.numpy()
    normalizer.update(tf.constant([100.0, 300.0]))
    np.testing.assert_allclose(host(np.array([1.0, 3.0])), [-1.0, 1.0])
    for options in ({}, {"zero_mean": False}, {"unit_std": True}):
        unknowing = stats.EMNormalizer(tf.TensorSpec([2]), **options).numpy()
        for dtype in (np.float16, np.float32, np.float64):
            values = np.array([[0.9, -300.0]], dtype)
            np.testing.assert_allclose(unknowing(values), values, rtol=1e-9)


def test_runs_no_tensorflow(monkeypatch):
    normalizer = stats.EMNormalizer({"a": tf.TensorSpec([2])})
    normalizer.update({"a": tf.constant([[1.0, 2.0], [3.0, 6.0]])})
    host = normalizer.numpy()
    for name in ("convert_to_tensor", "constant", "cast", "nest"):
        monkeypatch.delattr(tf, name)
    got = host({"a": np.array([[1.0, 6.0]], np.float16)})["a"]
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, [[-1.0, 1.0]])


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"a": np.array([[1, 2]]), "b": None}, "`values` expected a floating-point"),
        ({"a": np.zeros(2)}, "`values` expected a nest like dict of 2; got dict"),
        ({"a": np.zeros(2), "c": []}, "`values` expected a nest like dict of 2"),
        (np.zeros(2), "`values` expected a nest like dict of 2; got ndarray"),
        ({"a": np.zeros(2), "b": np.zeros(2)}, "expected a nest like list of 2"),
    ],
    ids=["integers", "a key less", "another key", "no nest", "an array for a list"],
)
def test_bad_values(values, match):
    host = stats.EMNormalizer(SPEC).numpy()
    with pytest.raises(TypeError, match=f"`HostNormalizer`: .*{match}|{match}"):
        host(values)
