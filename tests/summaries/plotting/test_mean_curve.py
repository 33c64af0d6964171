"""Tests of mean curves, smoothing and intervals."""

import golden_io
import numpy as np
import pytest
from refusals import bad, table

from tfrl.summaries.plotting import mean_curve

EMA = golden_io.load("alf/plot_tb_curves", symbol="ema_smooth")
CURVES = golden_io.load("alf/plot_tb_curves", symbol="MeanCurve")
FIELDS = ("x", "y", "min_y", "max_y", "ay", "min_ay", "max_ay")


@pytest.mark.parametrize("case", EMA, ids=golden_io.ids(EMA))
def test_ema_smooth_golden(case):
    found = mean_curve.ema_smooth(*case["args"], **case["kwargs"])
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, case["out"], **case["tol"])


@pytest.mark.parametrize("case", CURVES, ids=golden_io.ids(CURVES))
def test_mean_curve_golden(case):
    given, wanted = case["in"], case["out"]
    if case["kind"] == "raises":
        with pytest.raises(ValueError, match=r"`interval_mode` expected one of"):
            mean_curve.MeanCurve.from_curves([0], [[1.0]], **given)
        return
    curve = mean_curve.MeanCurve.from_curves(
        given["x"], given["ys"], given["interval_mode"], "n"
    )
    for field in FIELDS:
        np.testing.assert_allclose(getattr(curve, field), wanted[field], **case["tol"])
    assert curve.name == wanted["name"]
    np.testing.assert_allclose(curve.final_y(), wanted["final_y_1"], **case["tol"])
    np.testing.assert_allclose(curve.final_y(5), wanted["final_y_5"], **case["tol"])


def test_regions_by_hand():
    ys = [[0.0, 2.0], [4.0, 6.0]]
    curve = mean_curve.MeanCurve.from_curves([0, 1], ys, "minmax")
    np.testing.assert_array_equal(curve.y, [2.0, 4.0])
    np.testing.assert_array_equal(curve.min_y, [0.0, 2.0])
    np.testing.assert_array_equal(curve.max_y, [4.0, 6.0])
    assert (curve.ay, curve.min_ay, curve.max_ay) == (3.0, 1.0, 5.0)
    for mode, errors in (("CI_85", 1.440), ("CI_95", 1.960)):
        curve = mean_curve.MeanCurve.from_curves([0, 1], ys, mode)
        np.testing.assert_allclose(curve.max_y - curve.y, errors * 2 / np.sqrt(2))


PLAIN = mean_curve.MeanCurve([0, 1], [1.0, 2.0])


@table(
    (
        mean_curve.MeanCurve.from_curves,
        bad(ValueError, "ys", [0, 1], [[1.0, 2.0], [1.0]]),
        bad(ValueError, "ys", [0, 1], [[1.0]]),
        bad(ValueError, "ys", [0, 1], []),
        bad(ValueError, "ys", [], [[]]),
        bad(ValueError, "ys", [0], [[[1.0]]]),
    ),
    (
        mean_curve.MeanCurve.from_curves([0, 1], [[1.0, 2.0]]).final_y,
        bad(ValueError, "N", 3),
    ),
    (
        mean_curve.ema_smooth,
        bad(ValueError, "mode", [1.0], mode="backward"),
        bad(ValueError, "weight", [1.0], weight=1.0),
        bad(ValueError, "weight", [1.0], weight=float("nan")),
        bad(ValueError, "speed", [1.0], adaptive=True, speed=0.0),
    ),
    (
        mean_curve.line_smooth,
        *(bad(ValueError, "width", np.zeros(4), width) for width in (0, 2, 5, -1)),
        bad(TypeError, "width", np.zeros(4), 3.0),
        bad(ValueError, "values", np.zeros([4, 4]), 3),
    ),
    (
        mean_curve.interquartile_mean,
        bad(ValueError, "scores", np.zeros(3)),
        bad(ValueError, "scores", np.zeros([0, 3])),
        bad(ValueError, "scores", np.full([2, 2], np.nan)),
        bad(ValueError, "confidence", np.zeros([2, 2]), confidence=95),
        bad(ValueError, "resamples", np.zeros([2, 2]), resamples=0),
    ),
)
def test_refusals(row):
    row()


def test_final_y_needs_a_region():
    with pytest.raises(ValueError, match="`MeanCurve.final_y`: .* min_y and max_y"):
        PLAIN.final_y()


@pytest.mark.parametrize("width", [1, 3, 7, 13], ids=str)
def test_line_smooth_against_fits(width):
    values = np.random.default_rng(0).normal(1e6, 1.0, 13)
    reach, slow = width // 2, []
    for index in range(13):
        start = min(max(index - reach, 0), 13 - width)
        places = np.arange(start, start + width)
        fit = np.polyfit(places - index, values[places] - 1e6, min(1, width - 1))
        slow.append(1e6 + fit[-1])
    found = mean_curve.line_smooth(values, width)
    np.testing.assert_allclose(found, slow, rtol=1e-13)


def slow_middle_mean(scores):
    ordered = sorted(float(x) for row in scores for x in row)
    cut = len(ordered) // 4
    kept = ordered[cut : len(ordered) - cut]
    return sum(kept) / len(kept)


@pytest.mark.parametrize("shape", [(3, 1), (4, 1), (5, 3), (10, 6)], ids=str)
def test_interquartile_mean_against_sorting(shape):
    scores = np.random.default_rng(1).normal(size=shape)
    middle, low, high = mean_curve.interquartile_mean(scores, resamples=50, seed=0)
    np.testing.assert_allclose(middle, slow_middle_mean(scores), rtol=1e-13)
    assert low <= middle <= high


def test_bootstrap_draws_runs_within_tasks():
    # All runs of a task agree, so only mixing tasks could move a resample.
    scores = np.tile([[0.0, 5.0, 7.0]], [4, 1])
    found = mean_curve.interquartile_mean(scores, resamples=100, seed=0)
    np.testing.assert_array_equal(found, np.full(3, slow_middle_mean(scores)))
    # Runs drawn for both tasks together would cancel in every resample.
    x = np.random.default_rng(4).normal(size=[10, 1])
    _, low, high = mean_curve.interquartile_mean(
        np.hstack([x, -x]), resamples=50, seed=0
    )
    assert low < -1e-3 < 1e-3 < high


def test_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(2)
    hits = 0
    for trial in range(200):
        scores = rng.normal(3.0, 1.0, [20, 3])
        _, low, high = mean_curve.interquartile_mean(scores, 0.9, 300, trial)
        hits += low <= 3.0 <= high
    assert 160 <= hits <= 195  # 180 expected, standard deviation 4.2


def test_interquartile_mean_keeps_points_and_repeats():
    scores = np.random.default_rng(3).normal(size=[5, 2, 7])
    first = mean_curve.interquartile_mean(scores, resamples=64, seed=3)
    again = mean_curve.interquartile_mean(scores, resamples=64, seed=3)
    for one, other in zip(first, again, strict=True):
        assert one.shape == (7,)
        np.testing.assert_array_equal(one, other)
    single = mean_curve.interquartile_mean(scores[..., 4], resamples=64, seed=3)
    np.testing.assert_allclose([part[4] for part in first], single, rtol=1e-13)
