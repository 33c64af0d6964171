import event_files
import golden_io
import numpy as np
import pytest
import tensorflow as tf

from tfrl.summaries.plotting import _run_scalars, mean_curve, readers

FIELDS = ("y", "min_y", "max_y", "ay", "min_ay", "max_ay")
NAMES = (
    "EnvironmentStepsReturnReader",
    "EnvironmentStepsSuccessReader",
    "IterationsReturnReader",
    "IterationsSuccessReader",
)
CASES = [
    case for name in NAMES for case in golden_io.load("alf/plot_tb_curves", symbol=name)
]
PLAIN = [case for case in CASES if "smoothing" not in case["in"]]
AT_STEPS = [case for case in PLAIN if "x_steps" in case["in"]]
[SMOOTHED] = [case for case in CASES if "smoothing" in case["in"]]
[REFUSED] = golden_io.load("alf/plot_tb_curves", symbol="MeanCurveReader")
TAG = "eval/return_mean"


def three_runs(out):
    """Three runs with the mean and the spread recorded, of points and of runs.

    At each point they are y + sqrt(2) s cos(a + 2 pi k / 3), of which mean and spread
    are y and s whatever the angle; +a and -a in turns, found by bisection, give their
    means the spread recorded.
    """
    spread = out["max_y"] - out["y"]
    signs = np.where(np.arange(len(spread)) % 2, 1.0, -1.0)

    def gap(angle):
        return abs(np.mean(spread * np.exp(1j * angle * signs))) - wanted

    wanted = out["max_ay"] - out["ay"]
    low, high = 0.0, np.pi / 2
    assert gap(low) >= 0 >= gap(high)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if gap(middle) > 0 else (low, middle)
    turns = 2 * np.pi * np.arange(3)[:, None] / 3
    return out["y"] + np.sqrt(2) * spread * np.cos(low * signs + turns)


def write(folder, tag, steps, values):
    with event_files.writing(folder):
        for step, value in zip(steps, values, strict=True):
            tf.summary.scalar(tag, value, step=int(step))
    return folder


def line(folder, steps, slope=1.0, tag=TAG):
    return write(folder, tag, steps, slope * np.asarray(steps, np.float64))


def given(monkeypatch, runs):
    monkeypatch.setattr(_run_scalars, "read_scalars", lambda *_: runs)
    return [f"run{index}" for index in range(len(runs))]


@pytest.mark.parametrize("case", PLAIN, ids=golden_io.ids(PLAIN))
def test_golden_curves(case, monkeypatch):
    out, name = case["out"], case["symbol"].rsplit(".", 1)[-1]
    runs = [(np.asarray(out["x"], np.float64), values) for values in three_runs(out)]
    reader = getattr(readers, name)(given(monkeypatch, runs), out["x"], "m")
    curve = reader()
    for field in FIELDS:
        np.testing.assert_allclose(getattr(curve, field), out[field], **case["tol"])
    np.testing.assert_array_equal(curve.x, out["x"])
    assert curve.name == reader.name == out["name"]
    assert (reader.x_label, reader.y_label) == (out["x_label"], out["y_label"])


@pytest.mark.parametrize("case", AT_STEPS, ids=golden_io.ids(AT_STEPS))
def test_golden_out_of_files(case, tmp_path):
    out, tag = case["out"], case["note"].split("tag ")[1].split(";")[0]
    folders = [
        write(tmp_path / str(index), tag, out["x"], values)
        for index, values in enumerate(three_runs(out))
    ]
    curve = readers.EnvironmentStepsReturnReader(folders, case["in"]["x_steps"])()
    for field in FIELDS:
        np.testing.assert_allclose(
            getattr(curve, field), out[field], rtol=1e-5, atol=1e-6
        )


def test_golden_common_steps(monkeypatch):
    # What the steps recorded say of the runs: 154 and 4000 are the inner ends, and the
    # run with the most points has one every 100 steps.
    steps = [np.arange(100, 4001, 100), np.append([154], np.arange(300, 4001, 100))]
    runs = [(s.astype(np.int64), np.zeros(len(s))) for s in steps]
    curve = readers.IterationsReturnReader(given(monkeypatch, runs))()
    np.testing.assert_allclose(curve.x, CASES[0]["out"]["x"], **CASES[0]["tol"])


def test_golden_smoothing(monkeypatch):
    # Smoothing is linear, so that the mean of smooth runs is the smooth mean.
    plain, smooth = PLAIN[0]["out"], SMOOTHED["out"]
    runs = [(plain["x"], plain["y"])]
    width = SMOOTHED["in"]["smoothing"]
    found = readers.EnvironmentStepsReturnReader(
        given(monkeypatch, runs), plain["x"], smoothing=width
    )
    np.testing.assert_allclose(found().y, smooth["y"], **SMOOTHED["tol"])
    np.testing.assert_allclose(found().ay, smooth["ay"], **SMOOTHED["tol"])


def test_golden_refusal(monkeypatch):
    steps = np.arange(100, 4001, 100)
    runs = [(steps, np.zeros(len(steps)))] * len(REFUSED["in"]["dirs"])
    with pytest.raises(ValueError, match="within 5 per cent of step 9000"):
        readers.MeanCurveReader(
            given(monkeypatch, runs), REFUSED["in"]["x_steps"], tag=TAG
        )


def test_runs_meet_in_common_steps(tmp_path):
    first = line(tmp_path / "a", [10, 30, 100])
    second = line(tmp_path / "b", [0, 20, 90, 104], slope=3.0)
    reader = readers.MeanCurveReader([first, second], name="x", tag=TAG)
    curve = reader()
    # (104 - 0) // (104 - 90) = 7, but no run has more than 4 points.
    np.testing.assert_allclose(curve.x, [10, 40, 70, 100])
    np.testing.assert_allclose(reader.ys, [curve.x, 3 * curve.x], rtol=1e-6)
    np.testing.assert_allclose(curve.y, 2 * curve.x, rtol=1e-6)
    assert (reader.name, reader.x_label, reader.y_label) == ("x", "Steps", TAG)


def test_runs_of_unequal_length_are_shown_where_all_of_them_are(tmp_path):
    runs = [
        line(tmp_path / name, range(first, last + 1))
        for name, first, last in (("a", 1, 9), ("b", 0, 10), ("c", 0, 8))
    ]
    curve = readers.MeanCurveReader(runs, tag=TAG)()
    assert (curve.x[0], curve.x[-1], len(curve.x)) == (1, 8, 10)
    np.testing.assert_allclose(curve.y, curve.x, rtol=1e-6)
    np.testing.assert_allclose(curve.max_y, curve.min_y)


def test_steps_given_may_leave_the_rest_of_a_run_out(tmp_path):
    long, short = line(tmp_path / "a", [0, 50, 100]), line(tmp_path / "b", [0, 20, 39])
    curve = readers.MeanCurveReader([long, short], [0, 10, 40], tag=TAG)()
    np.testing.assert_allclose(curve.y, [0, 10, 40], rtol=1e-6)


def test_lines_go_on_at_both_ends(tmp_path):
    folder = line(tmp_path, [10, 20, 100], slope=2.0)
    curve = readers.MeanCurveReader(str(folder), [0, 50, 104], tag=TAG)()
    np.testing.assert_allclose(curve.y, [0, 100, 208], rtol=1e-6)


def test_points_that_are_not_finite_are_left_out(tmp_path):
    write(tmp_path, TAG, [0, 1, 2, 3], [np.nan, 1.0, np.inf, 3.0])
    curve = readers.MeanCurveReader(tmp_path, tag=TAG)()
    np.testing.assert_allclose(curve.x, [1.0, 3.0])
    np.testing.assert_allclose(curve.y, [1.0, 3.0])


def test_float_smoothing_is_the_running_average(tmp_path):
    values = np.random.default_rng(0).normal(size=20)
    write(tmp_path, TAG, range(20), values)
    curve = readers.MeanCurveReader(tmp_path, range(20), smoothing=0.7, tag=TAG)()
    wanted = mean_curve.ema_smooth(values, 0.7)
    np.testing.assert_allclose(curve.y, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"tag": None}, ValueError, "`tag` expected the name of scalars"),
        ({"tag": 5}, TypeError, "`tag` expected the name of scalars; got 5"),
        ({"event_file": []}, ValueError, "`event_file` expected a run at least"),
        ({"event_file": 5}, TypeError, "`event_file` expected a path.*got 5; give"),
        ({"event_file": [None]}, TypeError, r"`event_file` expected a path.*\[None\]"),
        ({"event_file": b"runs"}, TypeError, "`event_file` expected a path.*b'runs'"),
        ({"interval_mode": "CI_50"}, ValueError, "`interval_mode` expected one of"),
        ({"smoothing": 4}, ValueError, "`smoothing` expected an odd width.*got 4"),
        ({"smoothing": 1}, ValueError, "`smoothing` expected an int of at least 3"),
        ({"smoothing": 1.0}, ValueError, r"`smoothing` expected a weight in \[0, 1\)"),
        ({"smoothing": "ema"}, TypeError, "`smoothing` expected an int.*got 'ema'"),
        ({"smoothing": True}, TypeError, "`smoothing` expected an int"),
        ({"x_steps": [2, 1]}, ValueError, "`x_steps` expected increasing steps"),
        ({"x_steps": []}, ValueError, "`x_steps` expected increasing steps"),
        ({"x_steps": [np.nan]}, ValueError, "`x_steps` expected finite"),
    ],
    ids=lambda value: None if isinstance(value, type | str) else str(value),
)
def test_bad_arguments_are_named_before_reading(options, kind, message):
    arguments = {"event_file": "nowhere", "tag": TAG, **options}
    with pytest.raises(kind, match=f"`MeanCurveReader`: {message}"):
        readers.MeanCurveReader(**arguments)


def test_runs_that_do_not_fit_are_named(tmp_path):
    long, short = line(tmp_path / "long", [0, 50, 100]), tmp_path / "short"
    line(short, [0, 10, 60])
    single, later = line(tmp_path / "single", [5]), line(tmp_path / "z", [100, 101])
    with pytest.raises(ValueError, match="step 100, .*got .*short ending at 60; leave"):
        readers.MeanCurveReader([long, short], [0, 100], tag=TAG)
    with pytest.raises(ValueError, match="two finite points.*got 1 of 1 in .*single"):
        readers.MeanCurveReader([long, single], tag=TAG)
    with pytest.raises(ValueError, match=r"steps in common; got .*z beginning at 100"):
        readers.MeanCurveReader([long, later], tag=TAG)
    with pytest.raises(ValueError, match="window within the 2 points of x; got 5"):
        readers.MeanCurveReader(long, smoothing=5, tag=TAG)
    with pytest.raises(ValueError, match=r"AverageReturn'; got .*\['eval/return_mean"):
        readers.EnvironmentStepsReturnReader(long)
