"""Tests of reading scalars out of event files."""

import struct
import tracemalloc

import event_files
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
from tensorboard.util.tensor_util import make_tensor_proto

from tfrl.summaries import run_log
from tfrl.summaries.plotting import _run_scalars

TAG = "eval/return"


def read(*runs, tag=TAG):
    return _run_scalars.read_scalars("reader", runs, tag)


def write(folder, points, name="events.out.tfevents.1", version="brain.Event:2"):
    folder.mkdir(exist_ok=True)
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
    values = np.random.default_rng(0).normal(size=50).astype(np.float32)
    write(tmp_path, [(3 * i, tensor(value)) for i, value in enumerate(values)])
    wanted = event_files.points(tmp_path)[TAG]
    check(read(tmp_path)[0], *map(np.array, zip(*wanted, strict=True)))


def test_many_records_come_in_several_batches(tmp_path):
    write(tmp_path / "a", [(i, float(i)) for i in range(201)])
    write(tmp_path / "b", [(i, -float(i)) for i in range(3)])
    a, b = read(tmp_path / "a", tmp_path / "b")
    check(a, np.arange(201), np.arange(201))
    check(b, np.arange(3), -np.arange(3))


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
    write(tmp_path, [(0, 1.0)])
    (tmp_path / "events.out.tfevents.0").touch()
    check(read(tmp_path)[0], [0], [1.0])


@pytest.mark.parametrize("place", ["length", "checksum", "data"])
def test_a_changed_bit_is_seen(tmp_path, place):
    path = write(tmp_path / "b", [(i, 1.0) for i in range(9)])
    write(tmp_path / "a", [(0, 1.0)])
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
    write(tmp_path / "eval", [(0, 1.0)])
    empty = tmp_path / "empty"
    write(empty, [])
    with pytest.raises(ValueError, match=r"gone, which does not exist"):
        read(tmp_path / "gone")
    with pytest.raises(
        ValueError, match=r"which has none, but there are some in .*eva"
    ):
        read(tmp_path)
    with pytest.raises(ValueError, match=rf"scalars 'loss'; got .*\['{TAG}'\]; give"):
        read(tmp_path / "eval", tag="loss")
    with pytest.raises(ValueError, match=r"empty with nothing in it"):
        read(tmp_path / "eval", empty)


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
