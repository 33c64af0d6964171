"""Tests of serve_data, with all servers in this process."""

import collections
import socket
import subprocess
import sys

import pytest
import tensorflow as tf

from tfrl.distribute import data_service, ports

service = tf.data.experimental.service
DATA = tf.data.Dataset.range(6)


def counts(address, mode, **options):
    data = DATA.apply(service.distribute(mode, address, **options))
    return collections.Counter(int(x) for x in data)


def test_modes_do_what_is_said():
    with data_service.serve_data(2) as address:
        for off in (service.ShardingPolicy.OFF, "parallel_epochs"):
            assert counts(address, off) == dict.fromkeys(range(6), 2)
        for dynamic in (service.ShardingPolicy.DYNAMIC, "distributed_epoch"):
            assert counts(address, dynamic) == dict.fromkeys(range(6), 1)


def test_consumers_of_one_job_share_a_pass():
    with data_service.serve_data() as address:
        share = service.distribute("distributed_epoch", address, "job")
        first, second = iter(DATA.apply(share)), iter(DATA.apply(share))
        found = [int(x) for x in first] + [int(x) for x in second]
        assert sorted(found) == list(range(6))
        del first, second


def test_workers_join_a_dispatcher():
    with ports.get_unused_port(24000) as port:
        with data_service.serve_data(0, host="127.0.0.1", port=port) as address:
            assert address == f"grpc://127.0.0.1:{port}"
            with data_service.serve_data(2, address) as same:
                assert same == address
                with data_service.serve_data(1, dispatcher=f"127.0.0.1:{port}"):
                    found = counts(address, "parallel_epochs")
        assert found == dict.fromkeys(range(6), 3)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 1)


def test_nobody_at_the_dispatcher_is_noticed_at_once():
    with ports.get_unused_port(24000) as port:
        with pytest.raises(
            ConnectionError, match=f":{port}', where nobody does within"
        ):
            with data_service.serve_data(dispatcher=f"grpc://localhost:{port}"):
                pass


def test_a_port_in_use_is_named():
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            OSError, match=f"`port` expected one that is free; got {port}"
        ):
            with data_service.serve_data(port=port):
                pass


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"workers": -1},
            ValueError,
            "`workers` expected an int of at least 0; got -1",
        ),
        ({"workers": 1.5}, TypeError, "`workers` expected an int"),
        (
            {"workers": 0, "dispatcher": "a:1"},
            ValueError,
            "`workers` .* least 1; got 0",
        ),
        ({"port": 70000}, ValueError, "`port` expected an int in"),
        ({"port": 5, "dispatcher": "a:1"}, ValueError, "`port` expected 0 where"),
        ({"dispatcher": "main"}, ValueError, "`dispatcher` expected an address"),
        ({"dispatcher": "http://a:1"}, ValueError, "`dispatcher` expected an address"),
        ({"host": "no such host"}, ValueError, "`host` expected a name or address"),
        ({"host": None, "workers": "1"}, TypeError, "`workers` expected an int"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else None,
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=f"`serve_data`: {message}"):
        with data_service.serve_data(**arguments):
            pass


OTHER_HOST = """
import sys, signal
import tfrl
with tfrl.distribute.serve_data(2, sys.argv[1]):
    print("joined", flush=True)
    signal.pause()
"""


@pytest.mark.slow
def test_another_process_joins():
    with data_service.serve_data(1) as address:
        other = subprocess.Popen(
            [sys.executable, "-c", OTHER_HOST, address], stdout=subprocess.PIPE
        )
        try:
            assert other.stdout.readline() == b"joined\n"
            assert counts(address, "distributed_epoch") == dict.fromkeys(range(6), 1)
            assert counts(address, "parallel_epochs") == dict.fromkeys(range(6), 3)
        finally:
            other.kill()
            other.communicate()
