"""Tests of the meeting of workers before TensorFlow waits for them."""

import concurrent.futures
import contextlib
import socket
import time

import pytest

from tfrl.distribute import _peers, ports


@pytest.fixture(name="workers")
def _workers():
    with ports.get_unused_port(24000, n=3) as three:
        yield [f"127.0.0.1:{port}" for port in three]


@pytest.fixture(name="run")
def _run():
    with concurrent.futures.ThreadPoolExecutor() as pool:
        yield pool.submit


def wait(told=None, seconds=20.0, quiet=60.0):
    return _peers.Wait([].append if told is None else told.append, seconds, quiet)


def connected(workers, said):
    """Connects to worker 0, as soon as it listens, and says something."""
    host, port = workers[0].split(":")
    deadline = time.monotonic() + 20
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            connection = socket.create_connection((host, int(port)))
            connection.sendall(said)
            return connection
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)], ids=str)
def test_all_go_on_when_the_last_one_comes(workers, run, order):
    told = []
    meetings = []
    for rank in order:
        assert not any(meeting.done() for meeting in meetings)
        meetings.append(run(_peers.meet, workers, rank, wait(told, quiet=0.0)))
        time.sleep(0.5)
    for meeting in meetings:
        meeting.result(timeout=20)
    assert any(line.startswith("waiting for worker ") for line in told)
    assert len(told) <= 3, "each tells it once"
    _peers.meet(workers[:1], 0, wait())


def test_who_left_again_and_who_is_no_worker_do_not_count(workers, run):
    told = []
    first = run(_peers.meet, workers, 0, wait(told, seconds=1.5, quiet=1.0))
    with connected(workers, b"tfrl: worker 2 of 3\n"):
        time.sleep(0.3)
    with (
        connected(workers, b"GET / HTTP/1.1\r\n\r\n"),
        connected(workers, b"tfrl: worker 1 of 3\n"),
    ):
        with pytest.raises(
            ConnectionError, match=f"nothing of worker 2 at {workers[2]};"
        ):
            first.result(timeout=20)
    assert told == [f"waiting for worker 2 at {workers[2]}"]


def test_tensorflow_at_the_address_ends_the_wait_of_all(workers, run):
    """A worker that does not come by here waits in TensorFlow already."""
    meetings = [run(_peers.meet, workers, rank, wait()) for rank in (0, 1)]
    time.sleep(0.5)
    with connected(workers, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
        for meeting in meetings:
            meeting.result(timeout=20)


def test_whoever_is_alone_is_told_so_in_the_end(workers, run):
    with pytest.raises(
        ConnectionError, match=f"^`strategy`: .* worker 0 at {workers[0]}"
    ):
        _peers.meet(workers, 2, wait(seconds=0.3))
    with pytest.raises(ConnectionError, match="nothing of worker 1 at .*, worker 2 at"):
        _peers.meet(workers, 0, wait(seconds=0.3))
    told = []
    first = run(_peers.meet, workers, 0, wait(seconds=3.0))
    with pytest.raises(ConnectionError, match="the workers that worker 0 at .* waits"):
        _peers.meet(workers, 1, wait(told, seconds=1.0, quiet=0.5))
    assert told == [f"waiting for the workers that worker 0 at {workers[0]} waits for"]
    with pytest.raises(ConnectionError):
        first.result(timeout=20)


def test_a_port_that_is_taken_is_named(workers):
    with (
        _peers._listener(workers[0]),
        pytest.raises(ValueError, match=f"free on this host; got '{workers[0]}' "),
    ):
        _peers.meet(workers, 0, wait())


@pytest.mark.parametrize("said", [b"tfrl: worker 1 of 2\n", b"tfrl: worker 0 of 3\n"])
def test_workers_of_another_cluster_are_told(workers, run, said):
    first = run(_peers.meet, workers, 0, wait())
    with (
        connected(workers, said),
        pytest.raises(ValueError, match="`TF_CONFIG` expected alike on all workers"),
    ):
        first.result(timeout=20)
