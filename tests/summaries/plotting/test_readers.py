"""Tests of mean curves out of event files, of one task and of several."""

import struct
import tracemalloc

import event_files
import golden_io
import numpy as np
import pytest
import tensorflow as tf
from refusals import bad, table
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
from tensorboard.util.tensor_util import make_tensor_proto

from tfrl.summaries import run_log
from tfrl.summaries.plotting import mean_curve, readers

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


def points(folder, steps, values, tag=TAG):
    pairs = zip(steps, np.asarray(values, np.float32), strict=True)
    rows = [
        summary_pb2.Summary.Value(tag=tag, tensor=make_tensor_proto(x))
        for _, x in pairs
    ]
    write(folder, zip(map(int, steps), rows, strict=True))
    return folder


def line(folder, steps, slope=1.0):
    return points(folder, steps, slope * np.asarray(steps, np.float64))


def given(monkeypatch, runs):
    """Stands for folders with these steps and values."""
    monkeypatch.setattr(readers, "_files", lambda where, run: [])
    monkeypatch.setattr(readers, "_scalars", lambda where, run, *_: runs[int(run)])
    return [str(index) for index in range(len(runs))]


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
        points(tmp_path / str(index), out["x"], values, tag)
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


def test_steps_given_may_leave_a_rest_out_and_lines_go_on(tmp_path):
    long, short = line(tmp_path / "a", [0, 50, 100]), line(tmp_path / "b", [5, 20, 39])
    curve = readers.MeanCurveReader([long, str(short)], [0, 10, 40], tag=TAG)()
    np.testing.assert_allclose(curve.y, [0, 10, 40], rtol=1e-6, atol=1e-6)


def test_points_that_are_not_finite_are_left_out(tmp_path):
    points(tmp_path, [0, 1, 2, 3], [np.nan, 1.0, np.inf, 3.0])
    curve = readers.MeanCurveReader(tmp_path, tag=TAG)()
    np.testing.assert_allclose([curve.x, curve.y], [[1.0, 3.0]] * 2)


def test_float_smoothing_is_the_running_average(monkeypatch):
    values = np.random.default_rng(0).normal(size=20)
    runs = given(monkeypatch, [(np.arange(20), values)])
    curve = readers.MeanCurveReader(runs, range(20), smoothing=0.7, tag=TAG)()
    np.testing.assert_allclose(curve.y, mean_curve.ema_smooth(values, 0.7))


def refused(error, name, event_file="nowhere", tag=TAG, **options):
    return bad(error, name, event_file, tag=tag, **options)


@table(
    (
        readers.MeanCurveReader,
        *(refused(TypeError, "tag", tag=tag) for tag in (None, 5)),
        refused(ValueError, "event_file", []),
        *(refused(TypeError, "event_file", given) for given in (5, [None], b"runs")),
        refused(ValueError, "interval_mode", interval_mode="CI_50"),
        *(refused(ValueError, "smoothing", smoothing=given) for given in (4, 1, 1.0)),
        *(refused(TypeError, "smoothing", smoothing=given) for given in ("ema", True)),
        *(refused(ValueError, "x_steps", x_steps=x) for x in ([2, 1], [], [np.nan])),
    ),
)
def test_bad_arguments_are_named_before_reading(row):
    row()


def test_runs_that_do_not_fit_are_named(tmp_path):
    long, short = line(tmp_path / "long", [0, 50, 100]), tmp_path / "short"
    line(short, [0, 10, 60])
    single, later = line(tmp_path / "single", [5]), line(tmp_path / "z", [100, 101])
    with pytest.raises(ValueError, match="step 100, .*got .*short ending at 60"):
        readers.MeanCurveReader([long, short], [0, 100], tag=TAG)
    with pytest.raises(ValueError, match="two finite points.*got 1 of 1 in .*single"):
        readers.MeanCurveReader([long, single], tag=TAG)
    with pytest.raises(ValueError, match=r"steps in common; got .*z beginning at 100"):
        readers.MeanCurveReader([long, later], tag=TAG)
    with pytest.raises(ValueError, match="window within the 2 points of x; got 5"):
        readers.MeanCurveReader(long, smoothing=5, tag=TAG)
    with pytest.raises(ValueError, match=r"AverageReturn'; got .*\['eval/return_mean"):
        readers.EnvironmentStepsReturnReader(long)


def reader(monkeypatch, x, *runs):
    found = [(np.asarray(x), np.asarray(run, np.float64)) for run in runs]
    names = given(monkeypatch, found)
    return readers.EnvironmentStepsReturnReader(names, x, "task", None, "minmax")


def test_mean_of_tasks(monkeypatch):
    first = reader(monkeypatch, [0, 1], [0.0, 2.0], [2.0, 6.0])
    second = reader(monkeypatch, [0, 1], [10.0, 10.0])
    group = readers.MeanCurveGroupReader([first, second], name="PPO")
    curve = group()
    np.testing.assert_allclose(curve.x, [0, 1])
    np.testing.assert_allclose(curve.y, [5.5, 7.0])
    np.testing.assert_allclose(curve.min_y, [5.0, 6.0])
    np.testing.assert_allclose(curve.max_y, [6.0, 8.0])
    np.testing.assert_allclose([curve.ay, curve.min_ay, curve.max_ay], [6.25, 5.5, 7.0])
    assert (curve.name, group.name) == ("PPO", "PPO")
    assert group.x_label == "Environment Steps"
    assert group.y_label == "Average Episodic Return"


def test_ranges_normalize_and_keep_the_region_upright(monkeypatch):
    first = reader(monkeypatch, [0, 1], [0.0, 2.0], [2.0, 6.0])
    ranges = [(-2.0, 2.0)]
    group = readers.MeanCurveGroupReader([first], ranges)
    curve = group()
    assert group.y_label == "Normalized Score"
    np.testing.assert_allclose(curve.y, [0.75, 1.5])
    np.testing.assert_allclose(curve.min_y, [0.5, 1.0])
    costs = readers.MeanCurveGroupReader([first], [(2.0, -2.0)])()
    np.testing.assert_allclose(costs.y, 1.0 - curve.y)
    np.testing.assert_allclose(costs.max_y, 1.0 - curve.min_y)
    np.testing.assert_allclose(costs.min_ay, 1.0 - curve.max_ay)


def test_what_cannot_be_averaged_is_named(monkeypatch):
    first = reader(monkeypatch, [0, 1], [0.0, 2.0])
    other = reader(monkeypatch, [0, 2], [0.0, 2.0])
    longer = reader(monkeypatch, [0, 1, 2], [0.0, 2.0, 2.0])
    with pytest.raises(ValueError, match="expected a reader at least"):
        readers.MeanCurveGroupReader([])
    for odd in (first(), "run"):
        with pytest.raises(TypeError, match="expected MeanCurveReaders; got"):
            readers.MeanCurveGroupReader([first, odd])
    for odd in (other, longer):
        with pytest.raises(ValueError, match="2 points from 0 to 1; got .* same x_ste"):
            readers.MeanCurveGroupReader([first, odd])
    for ranges in ([], [(0.0, 1.0)] * 2, [(1.0, 1.0)], [(0.0, np.inf)]):
        with pytest.raises(ValueError, match="`task_performance_ranges` expected 1 pa"):
            readers.MeanCurveGroupReader([first], ranges)


def read(*runs, tag=TAG):
    """Steps and values, before runs are put together."""
    where, files = "reader", [(run, readers._files("reader", run)) for run in runs]
    return [readers._scalars(where, *pair, tag) for pair in files]


def write(folder, points, name="events.out.tfevents.1", version="brain.Event:2"):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(event_pb2.Event(file_version=version).SerializeToString())
        for step, value in points:
            if not isinstance(value, summary_pb2.Summary.Value):
                value = summary_pb2.Summary.Value(tag=TAG, simple_value=value)
            summary = summary_pb2.Summary(value=[value])
            event = event_pb2.Event(step=step, summary=summary)
            writer.write(event.SerializeToString())
    return path


def tensor(array):
    return summary_pb2.Summary.Value(tag=TAG, tensor=make_tensor_proto(array))


def check(found, steps, values):
    np.testing.assert_array_equal(found[0], steps)
    np.testing.assert_array_equal(found[1], values)
    assert (found[0].dtype, found[1].dtype) == (np.int64, np.float64)


def test_reads_what_tensorflow_and_run_log_wrote(tmp_path):
    with event_files.writing(tmp_path / "a"):
        for step in range(5):
            tf.summary.scalar("other", -1.0, step=step)
            tf.summary.histogram("h", [1.0], step=step)
            tf.summary.scalar(TAG, 0.5 * step, step=10 * step)
    with run_log.RunLog(tmp_path / "b", ["train/loss", TAG]) as log:
        log.text("configuration", "text")
        for step in (7, 9):
            log.write(step, {"train/loss": 3.0, TAG: step})
    a, b = read(tmp_path / "a", str(tmp_path / "b"))
    check(a, 10 * np.arange(5), 0.5 * np.arange(5))
    check(b, [7, 9], [7.0, 9.0])


def test_reads_every_kind_of_number(tmp_path):
    kinds = (np.float64, np.float16, np.int64, np.uint8, np.bool_)
    arrays = [np.ones([], kind) for kind in kinds]
    points = [*enumerate(map(tensor, arrays)), (9, 0.25), (10, tensor(np.float32(2)))]
    write(tmp_path, points)
    check(read(tmp_path)[0], [*range(5), 9, 10], [1, 1, 1, 1, 1, 0.25, 2])


def test_agrees_with_tensorboard(tmp_path):
    values = np.random.default_rng(0).normal(size=9).astype(np.float32)
    write(tmp_path, [(3 * i, tensor(value)) for i, value in enumerate(values)])
    wanted = event_files.points(tmp_path)[TAG]
    check(read(tmp_path)[0], *map(np.array, zip(*wanted, strict=True)))


def test_large_records_come_a_few_at_a_time(tmp_path):
    text = summary_pb2.Summary.Value(
        tag="text", tensor=make_tensor_proto("x" * 100_000)
    )
    write(tmp_path, [(i // 2, text if i % 2 else i / 2) for i in range(600)])
    tracemalloc.start()
    try:
        check(read(tmp_path)[0], np.arange(300), np.arange(300))
        assert tracemalloc.get_traced_memory()[1] < 12e6  # of 30e6 in the file
    finally:
        tracemalloc.stop()


def test_a_resumed_run_counts_once(tmp_path):
    write(tmp_path, [(0, 0.0), (10, 1.0), (20, 2.0), (30, 3.0)])
    write(tmp_path, [(20, 12.0), (25, 12.5), (25, 13.0)], "events.out.tfevents.2")
    check(read(tmp_path)[0], [0, 10, 20, 25], [0.0, 1.0, 12.0, 13.0])


@pytest.mark.parametrize("cut", [1, 5, 20, 100], ids=str)
def test_a_record_cut_off_is_left_out(tmp_path, cut):
    path = write(tmp_path, [(i, 1.0) for i in range(9)])
    whole = path.read_bytes()
    (size,) = struct.unpack_from("<Q", whole, 0)
    path.write_bytes(whole[:-cut])
    steps, _ = read(tmp_path)[0]
    each = (len(whole) - size - 16) / 9
    assert abs(len(steps) - (9 - np.ceil(cut / each))) <= 1
    np.testing.assert_array_equal(steps, np.arange(len(steps)))


def test_empty_files_are_passed_over(tmp_path):
    write(tmp_path, [(0, 1.0), (1, 1.0)])
    (tmp_path / "events.out.tfevents.0").touch()
    check(read(tmp_path)[0], [0, 1], [1.0, 1.0])


@pytest.mark.parametrize("place", ["length", "checksum", "data"])
def test_a_changed_bit_is_seen(tmp_path, place):
    path = write(tmp_path / "b", [(i, 1.0) for i in range(9)])
    write(tmp_path / "a", [(0, 1.0), (1, 1.0)])
    data = bytearray(path.read_bytes())
    (size,) = struct.unpack_from("<Q", data, 0)
    second = size + 16
    data[second + {"length": 7, "checksum": 9, "data": 14}[place]] ^= 4
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"`reader`: `event_file`.*b/events.*damaged"):
        read(tmp_path / "a", tmp_path / "b")


def foreign_text(path):
    path.write_bytes(b"step,return\n" * 100)


def foreign_records(path):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(3):
            writer.write(tf.train.Example().SerializeToString() + b"\xff\xff\xff")


def foreign_version(path):
    write(path.parent, [(0, 1.0)], path.name, "brain.Other:2")


@pytest.mark.parametrize("foreign", [foreign_text, foreign_records, foreign_version])
def test_foreign_files_are_named(tmp_path, foreign):
    path = tmp_path / "x.tfevents"
    foreign(path)
    with pytest.raises(ValueError, match=r"x\.tfevents, which is damaged or somet"):
        read(path)


def test_missing_files_and_tags_are_named(tmp_path):
    write(tmp_path / "eval", [(0, 1.0), (1, 1.0)])
    write(tmp_path / "empty", [])
    for run, tag, message in (
        (tmp_path / "gone", TAG, "gone, which does not exist"),
        (tmp_path, TAG, "which has none, but there are some in .*eva"),
        (tmp_path / "eval", "loss", rf"scalars 'loss'; got .*\['{TAG}'\]; give"),
        (tmp_path / "empty", TAG, "empty with nothing in it"),
    ):
        with pytest.raises(ValueError, match=f"`reader`: `event_file` .*{message}"):
            read(run, tag=tag)


def test_folders_far_below_are_not_looked_for(tmp_path):
    write((tmp_path / "a").absolute(), [(0, 1.0)])
    deep = tmp_path / "b" / "c" / "d"
    deep.parent.mkdir(parents=True)
    write(deep, [(0, 1.0)])
    with pytest.raises(ValueError, match="has none, but there are some in ") as error:
        read(tmp_path)
    assert str(tmp_path / "a") in str(error.value)
    assert str(deep) not in str(error.value)


def test_many_tags_are_shown_and_odd_ones_named(tmp_path):
    values = [summary_pb2.Summary.Value(tag=f"t{i}") for i in range(30)]
    path = write(tmp_path, [(0, value) for value in values])
    event = event_pb2.Event(summary=summary_pb2.Summary(value=values[:1]))
    with tf.io.TFRecordWriter(str(tmp_path / "b.tfevents")) as writer:
        writer.write(event_pb2.Event(file_version="brain.Event:2").SerializeToString())
        writer.write(event.SerializeToString().replace(b"t0", b"\xff\xfe"))
    with pytest.raises(ValueError, match=r"'t26'\] and 10 more; give one of its"):
        read(path)
    with pytest.raises(ValueError, match="b.tfevents, which is damaged"):
        read(tmp_path / "b.tfevents")


def declared(dtype, *sizes, **contents):
    shape = {"dim": [{"size": size} for size in sizes]}
    proto = tensor_pb2.TensorProto(dtype=dtype, tensor_shape=shape, **contents)
    return summary_pb2.Summary.Value(tag=TAG, tensor=proto)


@pytest.mark.parametrize(
    "value",
    [
        tensor(np.zeros([2])),
        tensor("text"),
        summary_pb2.Summary.Value(tag=TAG),
        declared(types_pb2.DT_FLOAT, 10**13, float_val=[1.0]),
        declared(types_pb2.DT_FLOAT, -1, float_val=[1.0]),
        declared(types_pb2.DT_FLOAT, tensor_content=b"123"),
        declared(types_pb2.DT_FLOAT, float_val=[1.0, 2.0]),
        declared(types_pb2.DT_COMPLEX64, scomplex_val=[1.0, 2.0]),
        declared(types_pb2.DT_VARIANT),
        declared(types_pb2.DT_INVALID),
        declared(99),
    ],
    ids=[
        *("vector", "text", "nothing", "huge", "negative", "cut", "two", "complex"),
        *("variant", "no dtype", "unknown dtype"),
    ],
)
def test_other_things_than_scalars_are_refused(tmp_path, value):
    write(tmp_path, [(0, value)])
    with pytest.raises(ValueError, match=r"`tag` expected that of real scalars; got"):
        read(tmp_path)
