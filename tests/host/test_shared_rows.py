"""Tests of `tfrl.host.shared_rows`."""

import os
import threading
import time

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from actor_jobs import read_versions, write_rows

from tfrl._internal import process_events
from tfrl.distribute import lone_process
from tfrl.host import shared_rows

COLUMNS = [((2,), np.dtype("float32")), ((), np.dtype("int64")), ((3,), np.dtype(bool))]


def open_descriptors():
    return len(os.listdir("/proc/self/fd"))


@hypothesis.given(st.lists(st.booleans(), max_size=60), st.integers(1, 5))
def test_ring_is_a_queue(moves, slots):
    writer = shared_rows.RowRing(COLUMNS, slots)
    reader = shared_rows.RowRing(COLUMNS, slots, fd=writer.fd)
    written = read = 0
    for writes in moves:
        if writes and written - read < slots:
            slot = writer.begin()
            assert slot == written % slots
            writer.arrays[0][slot] = written, -written
            writer.arrays[1][slot] = written
            written += 1
            writer.commit()
        first, count = reader.waiting()
        assert count == min(written - read, slots - first)
        if not writes and count:
            expected = np.arange(read, read + count)
            np.testing.assert_array_equal(
                reader.arrays[1][first : first + count], expected
            )
            np.testing.assert_array_equal(
                reader.arrays[0][first : first + count, 1], -expected
            )
            reader.release(count)
            read += count


def test_writer_waits_for_space_and_ends_when_closed():
    ring = shared_rows.RowRing(COLUMNS, 1)
    assert ring.begin() == 0
    assert ring.waiting() == (0, 0), "a row that is not complete is not there"
    ring.commit()
    found = []
    thread = threading.Thread(target=lambda: found.extend([ring.begin(), ring.begin()]))
    thread.start()
    time.sleep(0.02)
    assert found == []
    ring.release(1)
    while not found:
        time.sleep(0.001)
    ring.commit()
    ring.close()
    thread.join()
    assert found == [0, 0] or found == [0, None]
    assert ring.begin() is None
    assert ring.waiting() == (0, 1), "what waits can be read"


def test_writer_is_woken_by_the_reader(monkeypatch):
    monkeypatch.setattr(shared_rows, "_PATIENCE_SECONDS", 60.0)
    event = process_events.ProcessEvent()
    writer = shared_rows.RowRing(COLUMNS, 1, released=event)
    there = process_events.ProcessEvent(event.fds)
    reader = shared_rows.RowRing(COLUMNS, 1, writer.fd, there)
    for ask, expected in ((lambda: reader.release(1), 0), (reader.close, None)):
        assert writer.begin() == 0
        writer.commit()
        found = []
        thread = threading.Thread(target=lambda to=found: to.append(writer.begin()))
        thread.start()
        time.sleep(0.02)
        assert found == []
        ask()
        thread.join(30.0)
        assert found == [expected]


def test_rows_of_another_process_are_whole():
    memory = shared_rows.new_memory()
    reader = shared_rows.RowRing(COLUMNS, 7, fd=memory)
    os.close(memory)
    total, seen = 5_000, 0
    with lone_process.LoneProcess(write_rows, reader.fd, total, fds=[reader.fd]):
        end = time.monotonic() + 60
        while seen < total and time.monotonic() < end:
            first, count = reader.waiting()
            rows = [array[first : first + count] for array in reader.arrays]
            expected = np.arange(seen, seen + count)
            np.testing.assert_array_equal(rows[1], expected)
            np.testing.assert_array_equal(rows[0], np.stack([expected] * 2, 1))
            np.testing.assert_array_equal(
                rows[2], (expected % 3 == 0)[:, None].repeat(3, 1)
            )
            reader.release(count)
            seen += count
    assert seen == total


def test_readers_get_versions_as_they_were_written():
    arrays = [np.zeros(3_000), np.zeros(3_000, np.int32)]
    shared = shared_rows.SharedArrays(arrays)
    with lone_process.LoneProcess(
        read_versions, shared.fd, 300, fds=[shared.fd]
    ) as process:
        found = None
        number = 0
        while found is None:
            number += 1
            for array in arrays:
                array[:] = number
            assert shared.write(arrays) == number
            found = process.receive(timeout=0.0)
    torn, versions = found
    assert torn == 0
    assert versions == sorted(versions) and len(set(versions)) > 10


def test_reader_copies_again_what_was_overwritten_meanwhile(monkeypatch):
    writer = shared_rows.SharedArrays([np.zeros(2)])
    reader = shared_rows.SharedArrays([np.zeros(2)], fd=writer.fd)
    writer.write([np.full(2, 1.0)])
    copyto, calls = np.copyto, []

    def slow(target, source):
        copyto(target, source)
        if not calls:
            calls.append(1)
            writer.write([np.full(2, 2.0)])
            writer._begun[0] = 3  # and version 3 is under way, in the slot of version 1

    monkeypatch.setattr(shared_rows.np, "copyto", slow)
    mine = [np.zeros(2)]
    assert reader.read(mine, known=0) == 2
    assert mine[0].tolist() == [2.0, 2.0]
    assert reader.read(mine, known=2) == 2


def test_others_are_refused():
    shared = shared_rows.SharedArrays([np.zeros(2), np.zeros(1, "f")])
    for arrays in ([np.zeros(2), np.zeros(1)], [np.zeros(2)]):
        with pytest.raises(ValueError, match="`SharedArrays.write`: `arrays` expected"):
            shared.write(arrays)
    assert shared.version == 0
    with pytest.raises(ValueError, match="`RowRing`: `slots` expected .* got 0"):
        shared_rows.RowRing(COLUMNS, 0)


def test_nothing_stays_open_and_nothing_has_a_name():
    before, names = open_descriptors(), set(os.listdir("/dev/shm"))
    ring = shared_rows.RowRing(COLUMNS, 4)
    shared = shared_rows.SharedArrays([np.zeros(2)])
    own = {name for name in set(os.listdir("/dev/shm")) - names if "tfrl" in name}
    assert open_descriptors() > before and not own
    rows = ring.arrays[1]
    del ring, shared
    assert open_descriptors() <= before + 1, "a mapping keeps a copy of its own"
    rows[:] = 1
    del rows
    assert open_descriptors() == before


def test_memory_without_memfd(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "memfd_create", raising=False)
    writer = shared_rows.RowRing(COLUMNS, 2)
    reader = shared_rows.RowRing(COLUMNS, 2, fd=writer.fd)
    writer.arrays[1][writer.begin()] = 9
    writer.commit()
    assert reader.arrays[1][reader.waiting()[0]] == 9
