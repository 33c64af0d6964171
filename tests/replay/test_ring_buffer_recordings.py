"""Recorded scripts of ring buffers and data buffers, on the host and in variables."""

import golden_io
import numpy as np
import pytest
import tensorflow as tf

from tfrl import replay

CASES = golden_io.load(
    "alf/data_buffer",
    build={"spec": lambda spec: tf.TensorSpec(spec["shape"], spec["dtype"])},
)
SCRIPTS = [case for case in CASES if case["kind"] == "object"]
FREQUENCIES = [case for case in CASES if case["kind"] == "stats"]
on_devices = pytest.mark.parametrize(
    "device", ["cpu", "/CPU:1"], ids=["host", "variables"]
)


def steps_in_storage(buffer, leaf):
    rows = buffer.storage.get(np.arange(buffer.num_environments * buffer.max_length))
    return np.reshape(rows[leaf], [buffer.num_environments, buffer.max_length])


def position_of(buffer):
    if isinstance(buffer, replay.DataBuffer):
        return buffer.current_pos
    return buffer.get_current_position()


STATE = {
    "current_size": lambda buffer: buffer.current_size,
    "current_pos": position_of,
    "buffer_t": lambda buffer: steps_in_storage(buffer, "t"),
    "all_t": lambda buffer: steps_in_storage(buffer, "t")[0],
}


def rows_held(buffer, raw):
    """Turns a recorded `get_all`, the storage as it lies, into ours.

    Ours has the rows held, the oldest first; the recorded one has rows never written
    and rows cleared too.
    """
    size, position = int(buffer.current_size), int(buffer.current_pos)
    return raw[np.arange(position - size, position) % buffer.max_length]


def assert_same(found, expected, tol):
    if expected is None:
        assert found is None
        return
    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, **tol), found, expected
    )


@on_devices
@pytest.mark.parametrize("case", SCRIPTS, ids=golden_io.ids(SCRIPTS))
def test_recorded_script(case, device):
    kind = getattr(replay, case["symbol"].rpartition(".")[2])
    args, kwargs = case["ctor"]["args"], case["ctor"]["kwargs"]
    buffer = kind(*args, **kwargs, device=device)
    for step in case["steps"]:
        method = getattr(buffer, step["name"])
        if step.get("raises"):
            with pytest.raises((TypeError, ValueError), match="expected"):
                method(*step["args"], **step["kwargs"])
        else:
            found, expected = method(*step["args"], **step["kwargs"]), step["out"]
            if step["name"] == "get_all":
                expected = {
                    key: rows_held(buffer, raw) for key, raw in expected.items()
                }
            assert_same(found, expected, case["tol"])
        for name, expected in (step.get("state") or {}).items():
            assert_same(STATE[name](buffer), expected, case["tol"])


@on_devices
@pytest.mark.parametrize("case", FREQUENCIES, ids=golden_io.ids(FREQUENCIES))
def test_recorded_frequencies(case, device):
    buffer = replay.DataBuffer(
        tf.TensorSpec([], tf.int64), case["in"]["capacity"], device=device, seed=1
    )
    for value in case["in"]["added"]:
        buffer.add_batch(np.array([value]))
    values, counts = np.unique(buffer.get_batch(60_000), return_counts=True)
    np.testing.assert_array_equal(values, case["out"]["values"])
    np.testing.assert_allclose(counts / 60_000, case["out"]["freq"], **case["tol"])


def test_every_recorded_case_runs():
    left = {case["id"] for case in CASES if case not in SCRIPTS + FREQUENCIES}
    assert left == {"data_buffer/atomic/001"}, "test_locking tests what it says"
