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


@pytest.mark.slow
def test_workers_join_a_dispatcher():
    with ports.get_unused_port(24000) as port:
        with data_service.serve_data(0, host="127.0.0.1", port=port) as address:
            assert address == f"grpc://127.0.0.1:{port}"
            with data_service.serve_data(1, address) as same:
                assert same == address
                with data_service.serve_data(1, dispatcher=f"127.0.0.1:{port}"):
                    found = counts(address, "parallel_epochs")
        assert found == dict.fromkeys(range(6), 2)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 1)


def refused(error, message, **arguments):
    with pytest.raises(error, match=f"`serve_data`: {message}"):
        with data_service.serve_data(**arguments):
            pass


def test_what_is_not_there_or_taken_is_noticed_at_once():
    with ports.get_unused_port(24000) as port:
        address = f"grpc://localhost:{port}"
        message = f"`dispatcher` expected .*:{port}', where nobody does within"
        refused(ConnectionError, message, dispatcher=address)
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        refused(OSError, f"`port` expected one that is free; got {port}", port=port)


@pytest.mark.parametrize(
    ("name", "error", "arguments"),
    [
        ("workers", ValueError, {"workers": -1}),
        ("workers", TypeError, {"workers": 1.5}),
        ("workers", ValueError, {"workers": 0, "dispatcher": "a:1"}),
        ("port", ValueError, {"port": 70000}),
        ("port", ValueError, {"port": 5, "dispatcher": "a:1"}),
        ("dispatcher", ValueError, {"dispatcher": "main"}),
        ("dispatcher", ValueError, {"dispatcher": "http://a:1"}),
        ("host", ValueError, {"host": "no such host"}),
        ("host", ValueError, {"host": 5}),
    ],
    ids=str,
)
def test_bad_arguments(name, error, arguments):
    refused(error, f"`{name}` expected", **arguments)


@pytest.mark.slow
def test_modes_do_what_is_said():
    with data_service.serve_data(2) as address:
        for off in (service.ShardingPolicy.OFF, "parallel_epochs"):
            assert counts(address, off) == dict.fromkeys(range(6), 2)
        for dynamic in (service.ShardingPolicy.DYNAMIC, "distributed_epoch"):
            assert counts(address, dynamic) == dict.fromkeys(range(6), 1)


@pytest.mark.slow
def test_consumers_of_one_job_share_a_pass():
    with data_service.serve_data() as address:
        share = service.distribute("distributed_epoch", address, "job")
        first, second = iter(DATA.apply(share)), iter(DATA.apply(share))
        found = [int(x) for x in first] + [int(x) for x in second]
        assert sorted(found) == list(range(6))
        del first, second


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
