import golden_io
import numpy as np
import pytest

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


@pytest.mark.parametrize(
    ("x", "ys", "message"),
    [
        (
            [0, 1],
            [[1.0, 2.0], [1.0]],
            r"as long as `x`.*got shapes \[\(2,\), \(1,\)\] and \(2,\)",
        ),
        ([0, 1], [[1.0]], r"as long as `x`.*got shapes \[\(1,\)\] and \(2,\)"),
        ([0, 1], [], "leave empty runs out"),
        ([], [[]], "leave empty runs out"),
        ([0], [[[1.0]]], r"expected curves of one axis.*\(1, 1\)"),
    ],
    ids=["unequal", "short", "none", "empty", "matrix"],
)
def test_unequal_curves_are_refused(x, ys, message):
    with pytest.raises(ValueError, match=f"`ys` {message}|`ys`.*{message}"):
        mean_curve.MeanCurve.from_curves(x, ys)


def test_final_y_needs_points_and_a_region():
    curve = mean_curve.MeanCurve.from_curves([0, 1], [[1.0, 2.0]])
    with pytest.raises(ValueError, match=r"`N` expected an int in \[1, 2\]; got 3"):
        curve.final_y(3)
    with pytest.raises(ValueError, match="min_y and max_y; got one without"):
        mean_curve.MeanCurve([0, 1], [1.0, 2.0]).final_y()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "backward"}, "`mode` expected one of"),
        ({"weight": 1.0}, r"`weight` expected a number in \[0, 1\); got 1.0"),
        ({"weight": float("nan")}, "got nan"),
        ({"adaptive": True, "speed": 0.0}, "`speed` expected numbers > 0"),
    ],
    ids=["mode", "weight", "nan", "speed"],
)
def test_unknown_smoothing_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        mean_curve.ema_smooth([1.0], **options)


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


@pytest.mark.parametrize("width", [0, 2, 5, -1], ids=str)
def test_line_smooth_refuses_other_widths(width):
    with pytest.raises(ValueError, match=r"`width` expected an .*int .*got"):
        mean_curve.line_smooth(np.zeros(4), width)


def test_line_smooth_refuses_fractions_and_more_axes():
    with pytest.raises(TypeError, match="`width` expected an int of at least 1; got 3"):
        mean_curve.line_smooth(np.zeros(4), 3.0)
    with pytest.raises(ValueError, match="`values` expected rank 1"):
        mean_curve.line_smooth(np.zeros([4, 4]), 3)


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


@pytest.mark.parametrize(
    ("scores", "options", "message"),
    [
        (np.zeros(3), {}, "`scores` expected rank of at least 2"),
        (np.zeros([0, 3]), {}, "`scores` expected a run and a task"),
        (np.full([2, 2], np.nan), {}, "`scores` expected finite"),
        (np.zeros([2, 2]), {"confidence": 95}, r"`confidence` expected a float in"),
        (np.zeros([2, 2]), {"resamples": 0}, "`resamples` expected an int"),
    ],
    ids=["rank", "empty", "nan", "percent", "resamples"],
)
def test_interquartile_mean_refuses(scores, options, message):
    with pytest.raises(ValueError, match=message):
        mean_curve.interquartile_mean(scores, **options)
