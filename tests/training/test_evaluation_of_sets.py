"""Tests of `tfrl.training.evaluation`: predictions of sets, and scores."""

import golden_io
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.training import evaluation

SCORES = golden_io.load("alf/sl_utils", symbol="auc_score")
PREDICTIONS = golden_io.load("alf/sl_utils", symbol="predict_dataset")


@pytest.mark.parametrize("case", SCORES, ids=golden_io.ids(SCORES))
def test_recorded_scores(case):
    actual = evaluation.auc_score(*case["args"], **case["kwargs"])
    np.testing.assert_allclose(actual, case["out"], **case["tol"])


@pytest.mark.parametrize("case", PREDICTIONS, ids=golden_io.ids(PREDICTIONS))
def test_recorded_predictions(case):
    given, out, tol = case["in"], case["out"], case["tol"]
    labels = np.zeros(len(given["x"]))
    data = tf.data.Dataset.from_tensor_slices((given["x"], labels))
    batches = data.batch(given["batch_size"])

    def ensemble(x):
        return tf.einsum("bi,nio->bno", x, given["w"]), ()

    def single(x):
        return x @ given["w"][0], ()

    for model, name in ((ensemble, "ensemble"), (single, "single")):
        actual = evaluation.predict_dataset(model, batches)
        np.testing.assert_allclose(actual, out[name], **tol)


def test_all_recordings_are_here():
    assert (len(SCORES), len(PREDICTIONS)) == (3, 1)


def test_a_keras_model_and_bare_inputs():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    x = np.random.default_rng(0).normal(size=[7, 3]).astype(np.float32)
    for batches in (tf.data.Dataset.from_tensor_slices(x).batch(3), [x[:3], x[3:]]):
        actual = evaluation.predict_dataset(model, batches)
        assert actual.shape == (1, 7, 2)
        np.testing.assert_allclose(actual[0], model(x), rtol=1e-6)


def test_predictions_keep_their_dtype():
    actual = evaluation.predict_dataset(lambda x: x, [np.ones([2, 1])])
    assert actual.dtype == tf.float64


@pytest.mark.parametrize(
    ("model", "batches", "message"),
    [
        (lambda x: x, [], "`testset` expected batches; got none"),
        (lambda x: x[:, 0], [np.ones([2, 1])], r"return \[B, D\] or \[B, N, D\]; got"),
        (
            lambda x: x,
            [np.ones([2, 1]), np.ones([2, 3])],
            r"as before, .*; got \(2, 1, 3\)",
        ),
    ],
    ids=["nothing", "flat", "changing"],
)
def test_bad_predictions(model, batches, message):
    with pytest.raises(ValueError, match=f"`predict_dataset`: .*{message}"):
        evaluation.predict_dataset(model, batches)


def slow_auc(inliers, outliers):
    """Every pair, counted."""
    pairs = [(i, o) for i in inliers for o in outliers]
    return sum((o > i) + 0.5 * (o == i) for i, o in pairs) / len(pairs)


@pytest.mark.parametrize("seed", range(5))
def test_score_counts_pairs(seed):
    rng = np.random.default_rng(seed)
    inliers, outliers = (rng.integers(0, 8, rng.integers(1, 30)) for _ in range(2))
    actual = evaluation.auc_score(inliers, outliers)
    np.testing.assert_allclose(actual, slow_auc(inliers, outliers), rtol=1e-12)
    turned = evaluation.auc_score(outliers, inliers)
    np.testing.assert_allclose(actual + turned, 1.0, rtol=1e-12)


def test_score_takes_tensors_of_any_shape():
    inliers = tf.constant([[0.0, 1.0], [2.0, np.inf]], tf.bfloat16)
    assert evaluation.auc_score(inliers, tf.constant(1.0)) == 0.375
    assert isinstance(evaluation.auc_score([0], [1]), float)


@pytest.mark.parametrize(
    ("inliers", "outliers", "error", "message"),
    [
        ([], [1.0], ValueError, "`inliers` expected scores, none of them NaN"),
        ([1.0], [], ValueError, "`outliers` expected scores, none of them NaN"),
        ([1.0, np.nan], [1.0], ValueError, "`inliers` expected scores"),
        (
            ["a"],
            [1.0],
            TypeError,
            "`inliers` expected a tensor, an array or numbers; got",
        ),
        ([1.0], [None], TypeError, "`outliers` expected a tensor, an array or numb"),
    ],
    ids=["no_inliers", "no_outliers", "nan", "text", "none"],
)
def test_bad_scores(inliers, outliers, error, message):
    with pytest.raises(error, match=f"`auc_score`: {message}"):
        evaluation.auc_score(inliers, outliers)


@pytest.mark.parametrize(
    ("model", "batches", "error", "message"),
    [
        (None, [np.ones([2, 3])], TypeError, "`model` expected a function"),
        (abs, None, TypeError, "`testset` expected batches; got None"),
        (abs, [()], ValueError, r"`testset` expected parts; got \(\)"),
        (lambda x: (), [np.ones([2, 3])], ValueError, "`model` expected parts"),
        (
            lambda x: None,
            [np.ones([2, 3])],
            TypeError,
            "`model` expected a tensor, an array or numbers; got None",
        ),
        (
            abs,
            [np.ones([2, 3]), np.ones([2, 3], np.float32)],
            ValueError,
            r"expected to return \(2, 1, 3\) float64 as before",
        ),
    ],
    ids=["model", "set", "empty_batch", "empty_output", "none", "dtype"],
)
def test_bad_predictors(model, batches, error, message):
    with pytest.raises(error, match=f"`predict_dataset`: .*{message}"):
        evaluation.predict_dataset(model, batches)


def test_scores_that_are_no_array():
    with pytest.raises(
        TypeError, match="`auc_score`: `inliers` expected a tensor, an arr"
    ):
        evaluation.auc_score([[1.0], [1.0, 2.0]], [3.0])
