"""Calls that wait, among threads."""

from concurrent import futures

import numpy as np
import pytest
import tensorflow as tf

from tfrl import replay

PATIENCE = 30.0  # for threads that do not end, a failure; never reached otherwise


def make(num_environments=1, max_length=2):
    return replay.RingBuffer(
        tf.TensorSpec([], tf.int64),
        num_environments,
        max_length,
        allow_multiprocess=True,
    )


@pytest.fixture
def pool():
    with futures.ThreadPoolExecutor(16) as executor:
        yield executor


def put(buffer, number, blocking=True):
    return buffer.enqueue(np.array([number]), [0], blocking=blocking)


def test_a_reader_waits_until_all_its_environments_have_data(pool):
    buffer = make(num_environments=3)
    waiting = pool.submit(buffer.dequeue, [2, 0], 2, True)
    for number in range(2):
        buffer.enqueue(np.array([number, 10 + number]), [0, 1])
    buffer.enqueue(np.array([20]), [2])
    with pytest.raises(futures.TimeoutError):
        waiting.result(0.3)
    buffer.enqueue(np.array([21]), [2])
    np.testing.assert_array_equal(waiting.result(PATIENCE), [[20, 21], [0, 1]])


def test_a_writer_waits_until_there_is_space(pool):
    buffer = make()
    assert put(buffer, 0) and put(buffer, 1)
    waiting = pool.submit(put, buffer, 2)
    with pytest.raises(futures.TimeoutError):
        waiting.result(0.3)
    np.testing.assert_array_equal(buffer.dequeue(), [[0]])
    assert waiting.result(PATIENCE) is True
    np.testing.assert_array_equal(buffer.dequeue(n=2), [[1, 2]])


@pytest.mark.parametrize("free", ["clear", "remove_up_to"])
def test_taking_off_unread_wakes_a_writer(free, pool):
    buffer = make(max_length=1)
    put(buffer, 0)
    waiting = pool.submit(put, buffer, 1)
    buffer.clear() if free == "clear" else buffer.remove_up_to(1)
    assert waiting.result(PATIENCE) is True
    np.testing.assert_array_equal(buffer.dequeue(), [[1]])


@pytest.mark.parametrize("threads", [1, 4])
def test_everything_gets_through_a_short_buffer(threads, pool):
    buffer, each = make(max_length=3), 150

    def produce(start):
        return [put(buffer, start + number) for number in range(each)]

    def consume():
        return [int(buffer.dequeue(blocking=True)[0, 0]) for _ in range(each)]

    readers = [pool.submit(consume) for _ in range(threads)]
    writers = [pool.submit(produce, each * index) for index in range(threads)]
    assert all(all(writer.result(PATIENCE)) for writer in writers)
    read = [reader.result(PATIENCE) for reader in readers]
    assert sorted(sum(read, [])) == list(range(each * threads))
    if threads == 1:
        assert read[0] == sorted(read[0]), "first in, first out"
    for numbers in read:
        for index in range(threads):
            mine = [n for n in numbers if n // each == index]
            assert mine == sorted(mine), "each writer's in order"


def test_stop_ends_waiting_and_revive_brings_it_back(pool):
    buffer = make()
    readers = [pool.submit(buffer.dequeue, blocking=True) for _ in range(3)]
    with pytest.raises(futures.TimeoutError):
        readers[0].result(0.2)
    buffer.stop()
    assert [reader.result(PATIENCE) for reader in readers] == [None] * 3
    assert put(buffer, 0) is False, "skipped although there is space"
    assert put(buffer, 1, blocking=False) is True
    assert put(buffer, 2, blocking=False) is True
    assert buffer.dequeue(blocking=True) is None
    np.testing.assert_array_equal(buffer.current_size, [2])
    buffer.revive()
    writer = pool.submit(put, buffer, 3)
    np.testing.assert_array_equal(buffer.dequeue(blocking=True), [[1]])
    assert writer.result(PATIENCE) is True
    writer = pool.submit(put, buffer, 4)
    buffer.stop()
    assert writer.result(PATIENCE) is False
    np.testing.assert_array_equal(buffer.dequeue(n=2), [[2, 3]])


def test_bad_input_does_not_wait():
    buffer = make()
    with pytest.raises(ValueError, match="each id once"):
        buffer.dequeue([0, 0], blocking=True)
    with pytest.raises(ValueError, match=r"`n` expected numbers in \[1, 2\]"):
        buffer.dequeue(n=3, blocking=True)
    with pytest.raises(TypeError, match="`env_ids` expected integers"):
        buffer.enqueue(np.array([0]), ["a"], blocking=True)
    assert put(buffer, 0) and put(buffer, 1)
    with pytest.raises(ValueError, match="one row for each of 1 environments; got 2"):
        buffer.enqueue(np.array([0, 1]), blocking=True)
    np.testing.assert_array_equal(buffer.get_current_position(), [2])


def test_calls_of_many_threads_do_not_mix(pool):
    buffer = replay.RingBuffer(tf.TensorSpec([], tf.int64), 1, 1000)

    def add():
        for number in range(500):
            put(buffer, number, blocking=False)

    for added in [pool.submit(add) for _ in range(4)]:
        added.result(PATIENCE)
    np.testing.assert_array_equal(buffer.get_current_position(), [2000])
    np.testing.assert_array_equal(buffer.current_size, [1000])
