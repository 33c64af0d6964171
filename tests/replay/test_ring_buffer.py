"""Ring buffers by hand; the other files named so have recordings, a model, waiting."""

import pickle

import numpy as np
import pytest
import tensorflow as tf

from tfrl import replay

SPEC = {"x": tf.TensorSpec([2], tf.float32), "t": tf.TensorSpec([], tf.int64)}
on_devices = pytest.mark.parametrize(
    "device", ["cpu", "/CPU:1"], ids=["host", "variables"]
)


def steps(*numbers):
    t = np.array(numbers, np.int64)
    return {"x": np.stack([t, -t], axis=-1).astype(np.float32), "t": t}


def filled(device="cpu", **kwargs):
    """Three environments of two steps: 0 and 10, 1 and 11, 2 and 12."""
    buffer = replay.RingBuffer(SPEC, 3, 2, device=device, **kwargs)
    buffer.enqueue(steps(0, 1, 2))
    buffer.enqueue(steps(10, 11, 12))
    return buffer


def contents(buffer):
    rows = np.arange(buffer.num_environments * buffer.max_length)
    parts = buffer.storage.get(rows), buffer.current_size, buffer.get_current_position()
    return tf.nest.map_structure(np.array, parts)


def assert_same(found, expected):
    if isinstance(expected, list):
        expected = np.array(expected)
    tf.nest.map_structure(np.testing.assert_array_equal, found, expected)


def test_get_reads_into_arrays():
    buffer = filled()
    out = steps(0, 0)
    assert buffer.get([1, 2], [1, 0], out=out) is out
    assert_same(out, steps(11, 2))


@on_devices
def test_describes_itself(device):
    buffer = replay.RingBuffer(SPEC, 3, device=device, name="steps")
    described = buffer.num_environments, buffer.max_length, buffer.device, buffer.name
    assert described == (3, 1024, device, "steps")
    assert buffer.circular(1030) == 6
    assert_same(buffer.circular(np.array([1023, 1024])), [1023, 0])
    assert_same(buffer.check_convert_env_ids(None), [0, 1, 2])
    ids = buffer.check_convert_env_ids(np.array([2, 0], np.uint8))
    assert ids.dtype == "int64"
    assert_same(ids, [2, 0])


@on_devices
def test_tensors_go_in(device):
    buffer = replay.RingBuffer(SPEC, 2, 2, device=device)
    batch = tf.nest.map_structure(tf.constant, steps(3, 4))
    buffer.enqueue(batch, env_ids=tf.constant([1, 0]))
    assert_same(buffer.dequeue(tf.constant([0, 1]))["t"], [[4], [3]])


def test_what_comes_out_is_a_copy():
    buffer = filled()
    before = contents(buffer)
    for found in (
        buffer.get(1, 0)["x"],
        buffer.get([0, 1], [0, 0])["x"],
        buffer.current_size,
        buffer.get_current_position(),
        buffer.get_earliest_position([0]),
    ):
        found[...] = 9
    assert_same(contents(buffer), before)
    found = buffer.dequeue()
    buffer.enqueue(steps(7, 8, 9))
    assert_same(found["t"], [[0], [1], [2]])


def changed(**leaves):
    return {**steps(0, 1, 2), **leaves}


ONE = {"x": np.zeros([2], np.float32), "t": np.int64(0)}
WRONG = {
    "batch_short": (lambda b: b.enqueue(steps(0, 1)), "each of 3 env.*; got 2"),
    "batch_long": (lambda b: b.enqueue(changed(), [0, 1]), "each of 2 env.*; got 3"),
    "one_row_for_all": (lambda b: b.enqueue(ONE, [0, 1]), "of one B; got shapes"),
    "leaf_short": (
        lambda b: b.enqueue(changed(t=np.zeros([1], np.int64))),
        "of one B; got shapes",
    ),
    "structure": (lambda b: b.enqueue({"x": changed()["x"]}), "expected"),
    "shape": (lambda b: b.enqueue(changed(x=np.zeros([3, 1], "f"))), "expected"),
    "dtype": (lambda b: b.enqueue(changed(t=np.ones([3]))), "expected"),
    "id_high": (lambda b: b.enqueue(steps(0), [3]), r"in \[0, 3\); got \[3\]"),
    "id_negative": (lambda b: b.dequeue([-1]), r"in \[0, 3\); got \[-1\]"),
    "id_twice": (lambda b: b.enqueue(steps(0, 1), [1, 1]), r"each id once; got \[1, 1"),
    "ids_none": (lambda b: b.dequeue([]), r"shape \[B\], B > 0; got \[0\]"),
    "ids_matrix": (lambda b: b.clear([[0]]), r"shape \[B\], B > 0; got \[1, 1\]"),
    "ids_float": (lambda b: b.clear([0.0]), "`env_ids` expected integers; got float64"),
    "too_few": (lambda b: b.dequeue(n=2), r"`n`=2 expected .*; got \[2, 1, 2\]"),
    "n_high": (lambda b: b.dequeue(n=3), r"`n` expected numbers in \[1, 2\]; got 3"),
    "n_zero": (lambda b: b.dequeue(n=0), "`n` expected an int of at least 1; got 0"),
    "n_float": (lambda b: b.dequeue(n=1.0), "`n` expected an int of at least 1"),
    "remove_negative": (lambda b: b.remove_up_to(-1), "`n` expected .*; got -1"),
    "position_future": (lambda b: b.get(0, 2), "steps that are stored; got 2"),
    "position_past": (lambda b: b.get([0], [-1]), r"stored; got \[-1\]"),
    "earliest": (lambda b: b.get_earliest_position(7), r"in \[0, 3\); got 7"),
    "block_in": (lambda b: b.enqueue(changed(), blocking=True), "enqueue`: `blocking`"),
    "block_out": (lambda b: b.dequeue(blocking=True), "dequeue`: `blocking` expected"),
}


@on_devices
@pytest.mark.parametrize("case", WRONG)
def test_bad_input_changes_nothing(case, device):
    call, match = WRONG[case]
    buffer = filled(device)
    buffer.dequeue([1])
    before = contents(buffer)
    with pytest.raises((TypeError, ValueError), match=match):
        call(buffer)
    assert_same(contents(buffer), before)


@pytest.mark.parametrize(
    ("kwargs", "error", "match"),
    [
        ({"num_environments": 0}, ValueError, "`num_environments` expected an int"),
        ({"max_length": 0}, ValueError, "`RingBuffer`: `max_length` expected an int"),
        ({"max_length": 1.5}, TypeError, "`max_length` expected an int of at least 1"),
        ({"device": "cuda"}, ValueError, "begins with '/'; got 'cuda'"),
        ({"device": "/GPU:99"}, ValueError, "expected one of .*; got '/GPU:99'"),
        ({"device": "/some"}, ValueError, "a TensorFlow device; got '/some'"),
        ({"device": "/CPU:0", "allow_multiprocess": True}, ValueError, "`device` exp"),
        ({"data_spec": tf.TensorSpec([None])}, ValueError, "known dimensions"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_constructor_refuses(kwargs, error, match):
    given = {"data_spec": SPEC, "num_environments": 2, **kwargs}
    with pytest.raises(error, match=match):
        replay.RingBuffer(**given)


def test_host_buffer_refuses_to_run_once_while_tracing():
    buffer = filled()
    before = contents(buffer)

    def enqueue(ids):
        buffer.enqueue(steps(0, 1, 2))
        return ids

    for call, match in (
        (enqueue, "outside of tf.function"),
        (buffer.dequeue, "`env_ids` expected values.*'/CPU:0'"),
    ):
        with pytest.raises(ValueError, match=match):
            tf.function(call, autograph=False)(tf.constant([0]))
    assert_same(contents(buffer), before)


def test_host_buffer_feeds_a_dataset():
    buffer = filled()
    dataset = tf.data.Dataset.from_generator(
        lambda: (buffer.dequeue()["t"] for _ in range(2)),
        output_signature=tf.TensorSpec([3, 1], tf.int64),
    )
    taken = [batch[:, 0].tolist() for batch in dataset.as_numpy_iterator()]
    assert taken == [[0, 1, 2], [10, 11, 12]]


@on_devices
def test_checkpoint_brings_everything_back(device, tmp_path):
    buffer = filled(device)
    buffer.enqueue(steps(20), [0])
    buffer.dequeue([2])
    path = tf.train.Checkpoint(buffer=buffer).save(str(tmp_path / "ring"))
    expected = contents(buffer)
    fresh = replay.RingBuffer(SPEC, 3, 2, device=device)
    tf.train.Checkpoint(buffer=fresh).restore(path).assert_consumed()
    assert_same(contents(fresh), expected)
    checkpoint = tf.train.Checkpoint()
    checkpoint.restore(path)
    checkpoint.buffer = replay.RingBuffer(SPEC, 3, 2, device=device)
    assert_same(contents(checkpoint.buffer), expected)


@pytest.mark.parametrize(
    ("spec", "counts"),
    [(SPEC, (2, 3)), (SPEC, (3, 4)), ({"x": SPEC["x"], "s": SPEC["t"]}, (3, 2))],
    ids=["transposed", "longer", "other_spec"],
)
def test_checkpoint_of_another_layout_is_refused(spec, counts, tmp_path):
    path = tf.train.Checkpoint(buffer=filled()).save(str(tmp_path / "ring"))
    other = replay.RingBuffer(spec, *counts)
    before = contents(other)
    with pytest.raises(ValueError, match="expected 3 environments, 6 rows of .*; got"):
        tf.train.Checkpoint(buffer=other).restore(path)
    assert_same(contents(other), before)


def test_buffer_of_one_process_is_not_pickled():
    with pytest.raises(TypeError, match="`allow_multiprocess` expected True"):
        pickle.dumps(filled())
