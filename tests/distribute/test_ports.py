"""Tests of get_unused_port."""

import contextlib
import multiprocessing
import os
import socket
import time

import pytest

from tfrl.distribute import ports

spawned = multiprocessing.get_context("spawn")
START = 23000


def listener(port, address="127.0.0.1"):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family)
    sock.bind((address, port))
    sock.listen()
    return sock


@pytest.mark.parametrize("n", [1, 3])
def test_n_ports_in_a_row_that_can_be_bound(n):
    with (
        ports.get_unused_port(START, START + 1000, n) as found,
        contextlib.ExitStack() as s,
    ):
        assert isinstance(found, int) == (n == 1)
        found = [found] if n == 1 else found
        assert found == list(range(found[0], found[0] + n))
        assert START <= found[0] <= found[-1] < START + 1000
        for port in found:
            s.enter_context(listener(port))


def test_ports_listened_on_are_left_out():
    with ports.get_unused_port(START, n=5) as found:
        first = found[0]
    with listener(first + 1), listener(first + 3, "0.0.0.0"):
        with ports.get_unused_port(first, first + 5, n=2) as two:
            assert two == [first, first + 2], "in a row there are none"
        with ports.get_unused_port(first) as one:
            assert one == first
        with pytest.raises(OSError, match="expected 4 unused; got 3; widen the range"):
            with ports.get_unused_port(first, first + 5, 4):
                pass
        with ports.get_unused_port(first, n=2) as row:
            assert row[0] >= first + 4, "further on there are two in a row"


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_listeners_on_ipv6_count():
    with ports.get_unused_port(START) as port:
        pass
    try:
        sock = listener(port, "::1")
    except OSError:
        pytest.skip("no IPv6 address here")
    with sock, ports.get_unused_port(port) as other:
        assert other != port


def test_a_port_is_held_until_the_block_ends():
    with ports.get_unused_port(START) as one:
        with ports.get_unused_port(one) as two, ports.get_unused_port(one) as three:
            assert len({one, two, three}) == 3
        with contextlib.suppress(KeyError), ports.get_unused_port(one) as again:
            assert again == two
            raise KeyError
        with ports.get_unused_port(one) as again:
            assert again == two
    with ports.get_unused_port(one, one + 1) as again:
        assert again == one


def hold(start, end, n, found):
    with ports.get_unused_port(start, end, n) as mine:
        found.put(mine)
        time.sleep(60)


def test_processes_get_different_ports():
    with ports.get_unused_port(START, n=10) as row:
        start = row[0]
    found = spawned.SimpleQueue()
    args = (start, start + 7, 3, found)
    workers = [spawned.Process(target=hold, args=args) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        got = sorted(port for _ in workers for port in found.get())
        assert got == list(range(start, start + 6)), "none is lost, none given twice"
        with pytest.raises(OSError, match="expected 2 unused; got 1"):
            with ports.get_unused_port(start, start + 7, 2):
                pass
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
    with ports.get_unused_port(start, start + 7, 7) as freed:
        assert len(freed) == 7, "whoever is killed holds nothing"


def test_a_forked_process_holds_nothing():
    with ports.get_unused_port(START) as port:
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
            os._exit(0)
    try:
        with ports.get_unused_port(port, port + 1) as again:
            assert again == port
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


@pytest.mark.parametrize(
    ("args", "error", "name"),
    [
        ((5000, 5000), ValueError, "end"),
        ((5000, 70000), ValueError, "end"),
        ((0,), ValueError, "start"),
        ((5000, 5002, 3), ValueError, "n"),
        ((5000, 5002, 0), ValueError, "n"),
        ((5000.0,), TypeError, "start"),
    ],
)
def test_bad_ranges(args, error, name):
    with pytest.raises(error, match=f"`get_unused_port`: `{name}` expected an int"):
        with ports.get_unused_port(*args):
            pass
