"""Data buffers by hand; recordings and the model are with the ring buffers'."""

import numpy as np
import pytest
import tensorflow as tf

from tfrl import replay

SPEC = {"x": tf.TensorSpec([2], tf.float32), "t": tf.TensorSpec([], tf.int64)}
NUMBER = tf.TensorSpec([], tf.int64)
on_devices = pytest.mark.parametrize(
    "device", ["cpu", "/CPU:1"], ids=["host", "variables"]
)


def filled(device="cpu", seed=None):
    """Capacity 3, of 0 to 3 the last three."""
    buffer = replay.DataBuffer(NUMBER, 3, device, seed=seed)
    buffer.add_batch(np.arange(2))
    buffer.add_batch(np.arange(2, 4))
    return buffer


def assert_same(found, expected):
    np.testing.assert_array_equal(found, expected)


@on_devices
def test_rows_are_appended_and_the_oldest_overwritten(device):
    buffer = replay.DataBuffer(NUMBER, 3, device)
    assert isinstance(buffer, replay.RingBuffer)
    assert buffer.num_environments == 1 and buffer.name == "DataBuffer"
    assert not buffer.is_full()
    buffer.add_batch(np.arange(2))
    assert_same(buffer.get_all(), [0, 1])
    buffer.add_batch(np.arange(2, 4))
    assert buffer.is_full()
    assert_same(buffer.get_all(), [1, 2, 3])
    assert_same(buffer.get_batch_by_indices([[0], [2]]), [[1], [3]])
    assert (int(buffer.current_size), int(buffer.current_pos)) == (3, 4)
    buffer.add_batch(np.arange(0))
    assert_same(buffer.get_all(), [1, 2, 3])
    buffer.add_batch(np.arange(10, 17))  # of which the last rows are taken
    assert_same(buffer.get_all(), [14, 15, 16])
    assert int(buffer.current_pos) == 4 + 3


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
def test_plain_arrays_are_written_as_any_others(size):
    plain, any_ = replay.DataBuffer(SPEC, 7), replay.DataBuffer(SPEC, 7)
    for start in range(0, 40, size):
        t = np.arange(start, start + size)
        batch = {"x": np.stack([t, -t], 1).astype(np.float32), "t": t}
        plain.add_batch(batch)
        any_.add_batch({"x": batch["x"].astype(np.float64), "t": t.astype(np.int32)})
        for mine, other in zip(
            tf.nest.flatten(plain.storage.get(slice(None))),
            tf.nest.flatten(any_.storage.get(slice(None))),
            strict=True,
        ):
            assert_same(mine, other)
        assert (plain.current_size, plain.current_pos) == (
            any_.current_size,
            any_.current_pos,
        )
    assert_same(plain.get_all()["t"], np.arange(start + size - 7, start + size))


@on_devices
def test_draws_are_uniform_and_repeat_with_the_seed(device):
    first, second, third = (filled(device, seed) for seed in (1, 1, 2))
    draws = np.asarray(first.get_batch(3000))
    assert_same(second.get_batch(3000), draws)
    assert (np.asarray(third.get_batch(3000)) != draws).any()
    counts = np.bincount(draws, minlength=4)
    assert counts[0] == 0
    # Chance of a false alarm 1e-6 for chi^2 with 2 degrees of freedom.
    assert np.sum((counts[1:] - 1000.0) ** 2) / 1000.0 < 27.63


@pytest.mark.parametrize("kind", [np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_any_generator_draws_and_comes_back(kind, tmp_path):
    one, other = (filled(seed=np.random.Generator(kind(seed))) for seed in (5, 6))
    one.get_batch(7)
    path = tf.train.Checkpoint(buffer=one).save(str(tmp_path / "data"))
    tf.train.Checkpoint(buffer=other).restore(path).assert_consumed()
    assert_same(other.get_batch(100), one.get_batch(100))
    with pytest.raises(ValueError, match="PCG64"):
        tf.train.Checkpoint(buffer=filled()).restore(path)


@on_devices
def test_a_checkpoint_keeps_rows_and_draws(device, tmp_path):
    buffer = filled(device, seed=1)
    buffer.get_batch(7)
    path = tf.train.Checkpoint(buffer=buffer).save(str(tmp_path / "data"))
    fresh = replay.DataBuffer(NUMBER, 3, device)
    tf.train.Checkpoint(buffer=fresh).restore(path).assert_consumed()
    assert_same(fresh.get_all(), [1, 2, 3])
    assert_same(fresh.get_batch(100), buffer.get_batch(100))


def test_rows_are_read_into_arrays():
    buffer, out = filled(), np.zeros([2, 2], np.int64)
    assert buffer.get_batch_by_indices([[0, 1], [2, 0]], out=out) is out
    assert_same(out, [[1, 2], [3, 1]])
    drawn = np.zeros([9], np.int64)
    assert buffer.get_batch(9, out=drawn) is drawn
    assert set(drawn) <= {1, 2, 3}
    with pytest.raises(ValueError, match="`out` expected None.*got ndarray"):
        filled("/CPU:0").get_batch(9, out=drawn)


def test_what_comes_out_is_a_copy():
    buffer = filled()
    for found in (buffer.get_all(), buffer.get_batch(2)):
        found[...] = 9
    assert_same(buffer.get_all(), [1, 2, 3])


def rows(size, **changes):
    x = np.zeros([size, 2], np.float32)
    return {"x": x, "t": np.zeros([size], np.int64), **changes}


WRONG = {
    "sizes": (rows(2, t=np.zeros([3], np.int64)), "one B; got shapes .*'.2, 2.'"),
    "large_sizes": (rows(8, t=np.zeros([9], np.int64)), "of one B; got shapes"),
    "no_axis": (rows(2, t=np.int64(1)), "of one B; got shapes"),
    "no_arrays": ((), r"of one B; got shapes \[\]"),
    "structure": ({"x": np.zeros([2, 2], np.float32)}, "expected"),
    "shape": (rows(2, x=np.zeros([2, 3], np.float32)), "expected"),
    "dtype": (rows(2, t=np.zeros([2])), "expected"),
}


@on_devices
@pytest.mark.parametrize("case", WRONG)
def test_bad_batch_changes_nothing(case, device):
    batch, match = WRONG[case]
    buffer = replay.DataBuffer(SPEC, 4, device)
    buffer.add_batch(rows(3, t=np.arange(3)))
    with pytest.raises((TypeError, ValueError), match=match):
        buffer.add_batch(batch)
    assert_same(buffer.get_all()["t"], [0, 1, 2])
    assert int(buffer.current_pos) == 3


@on_devices
def test_drawing_refuses(device):
    empty = replay.DataBuffer(NUMBER, 3, device)
    with pytest.raises(ValueError, match=r"expected a buffer that holds rows.*got \[0"):
        empty.get_batch(1)
    with pytest.raises(ValueError, match="less than the current size"):
        empty.get_batch_by_indices([0])
    with pytest.raises(ValueError, match="`batch_size` expected an int .*; got 0"):
        filled(device).get_batch(0)
    with pytest.raises(TypeError, match="`batch_size` expected an int of at least 1"):
        filled(device).get_batch(2.0)
    with pytest.raises(TypeError, match="`indices` expected integers; got float64"):
        filled(device).get_batch_by_indices([0.0])


@pytest.mark.parametrize(
    ("capacity", "error"), [(0, ValueError), (-1, ValueError), (2.0, TypeError)]
)
def test_capacity_is_a_count(capacity, error):
    with pytest.raises(error, match="`DataBuffer`: `capacity` expected"):
        replay.DataBuffer(NUMBER, capacity)
