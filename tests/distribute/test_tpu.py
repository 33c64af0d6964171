"""No TPU is at hand: what tfrl calls is replaced, and what it says is real."""

import contextlib
import socket
import subprocess
import sys
import threading
import time

import pytest
import tensorflow as tf

from tfrl.distribute import tpu


class Resolver:
    """What a resolver of TensorFlow tells about a cluster, and no more."""

    def __init__(self, tpu=None, workers=()):
        self.tpu, self.workers = tpu, list(workers)

    def cluster_spec(self):
        return tf.train.ClusterSpec({"worker": self.workers} if self.workers else {})


@pytest.fixture(autouse=True)
def bare_host(monkeypatch, tmp_path):
    for name in (*tpu._NAMING, *tpu._ANNOUNCING):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tpu, "_DEVICE_FILES", str(tmp_path / "accel[0-9]*"))


@pytest.fixture
def calls(monkeypatch):
    """Replaces what would touch a TPU; the calls made, in order."""
    made = []

    def connect(resolver, protocol):
        made.append(("connect", resolver.tpu, protocol))

    replace_resolver(monkeypatch, made, Resolver)
    monkeypatch.setattr(tpu, "_check_host", lambda: None)
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", connect)
    monkeypatch.setattr(
        tf.tpu.experimental,
        "initialize_tpu_system",
        lambda resolver: made.append(("initialize", resolver.tpu)),
    )
    return made


def replace_resolver(monkeypatch, made, make):
    def resolver(tpu):
        made.append(("resolver", tpu))
        return make(tpu)

    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", resolver)


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def refused(match, worker="", error=ValueError, protocol=None):
    with pytest.raises(error, match=f"`tf_init_tpu`: .*{match}") as raised:
        tpu.tf_init_tpu(worker, protocol)
    return raised.value


@pytest.mark.parametrize("worker", ["", "local"])
def test_the_tpu_of_this_host_is_not_connected_to(calls, worker):
    assert tpu.tf_init_tpu(worker) == ""
    assert calls == [("resolver", worker), ("initialize", worker)]


def test_local_is_the_default_and_asked_for_if_an_empty_name_fails(calls, monkeypatch):
    def picky(tpu):
        if not tpu:
            raise ValueError("Please provide a TPU Name to connect to.")
        return Resolver(tpu)

    replace_resolver(monkeypatch, calls, picky)
    assert tpu.tf_init_tpu() == ""
    assert calls == [("resolver", ""), ("resolver", "local"), ("initialize", "local")]


@pytest.mark.parametrize("protocol", [None, "grpc+loas"])
def test_an_address_that_answers_is_connected_to(calls, listening, protocol):
    worker = f"grpc://127.0.0.1:{listening}"
    assert tpu.tf_init_tpu(worker, protocol) == "/job:worker"
    assert calls == [
        ("resolver", worker),
        ("connect", worker, protocol or "grpc"),
        ("initialize", worker),
    ]


def test_a_name_is_connected_to_after_its_addresses_answered(
    calls, listening, monkeypatch
):
    workers = [f"127.0.0.1:{listening}", f"localhost:{listening}"]
    replace_resolver(monkeypatch, [], lambda tpu: Resolver(tpu, workers))
    assert tpu.tf_init_tpu("my-tpu") == "/job:worker"
    assert calls == [("connect", "my-tpu", "grpc"), ("initialize", "my-tpu")]
    calls.clear()
    workers.append(f"127.0.0.1:{closed_port()}")
    refused("named 'my-tpu'.* does not answer", "my-tpu")
    assert not calls


def test_an_empty_worker_is_what_the_variables_name(calls, listening, monkeypatch):
    monkeypatch.setenv("TPU_NAME", f"grpc://127.0.0.1:{listening}")
    assert tpu.tf_init_tpu() == "/job:worker"
    assert calls[0] == ("resolver", f"grpc://127.0.0.1:{listening}")
    calls.clear()
    # TensorFlow would ask Google's metadata server about a TPU named "local".
    monkeypatch.setenv("TPU_NAME", "local")
    assert tpu.tf_init_tpu() == ""
    assert calls[0] == ("resolver", "local")
    monkeypatch.delenv("TPU_NAME")
    monkeypatch.setenv("TPU_CONFIG", '{"tpu_node_name": "local"}')
    assert tpu.tf_init_tpu() == ""
    monkeypatch.setenv("TPU_CONFIG", "{}")
    refused("`TPU_CONFIG` expected JSON")


def test_an_address_that_does_not_answer_never_reaches_tensorflow(calls, listening):
    dead = f"127.0.0.1:{closed_port()}"
    for worker in (f"grpc://{dead}", f"grpc://127.0.0.1:{listening},grpc://{dead}"):
        refused(f"{dead} does not answer", worker)
    assert not calls


def test_a_silent_metadata_server_is_given_up(monkeypatch):
    """A name is looked up over HTTP, here from somebody who accepts and is silent."""
    monkeypatch.setattr(tpu, "_NAME_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{server.getsockname()[1]}")
        refused("TimeoutError: no answer within 0.2 sec", "my-tpu")


def test_the_error_says_where_which_wheel_and_how(calls, listening, monkeypatch):
    def absent(resolver):
        raise tf.errors.NotFoundError(None, None, "TPUs not found\nin the cluster")

    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", absent)
    error = refused("`worker` expected a TPU; got '', but looked on this host")
    for part in (
        "TPU_NAME, TPU_CONFIG: not set",
        "NotFoundError: TPUs not found)",
        "tensorflow-tpu, at most 2.20 (the extra `tfrl[tpu]`; see tools/site/",
        "Change runtime type > TPU in Colab",
        "TPU VM in Google Cloud",
        "strategy('rehearsal:8')",
    ):
        assert part in str(error)
    assert isinstance(error.__cause__, tf.errors.NotFoundError)
    assert "anew" not in str(error)
    # TensorFlow takes what it has connected to for a part of itself.
    error = refused("got 'grpc://.*NotFoundError", f"grpc://127.0.0.1:{listening}")
    assert "rehearse, in a process started anew, as" in str(error)
    monkeypatch.setenv("TPU_NAME", "no-such-tpu")
    refused("got '' .from TPU_NAME., but looked for a")


def test_bad_arguments(calls):
    for worker in ("grpc://a:b", "grpc://a:99999", "grpc://:8470", "grpc://a:1,b:x"):
        refused("`worker` expected .*'grpc://host:port'; got", worker)
    refused("`worker` expected .*'grpc://host:port'; got", "http://a:1")
    refused("`worker` expected a string", None, TypeError)
    refused("`protocol` expected a string or None", "", TypeError, protocol=1)
    assert not calls


@pytest.mark.skipif(bool(tpu.evidence()), reason="there may be a TPU")
@pytest.mark.parametrize(
    "worker",
    [
        *["", "local", "bogus-tpu", "grpc://127.0.0.1:1"],
    ],
)
def test_tensorflow_itself_finds_no_tpu_within_seconds(worker):
    start = time.monotonic()
    refused("`worker` expected a TPU; got", worker)
    # TensorFlow alone waits for more than 200 seconds at the last of these.
    assert time.monotonic() - start < 60.0


def test_evidence_is_a_variable_or_a_device_file(monkeypatch, tmp_path):
    assert tpu.evidence() == ""
    (tmp_path / "accel").touch()
    assert tpu.evidence() == ""
    (tmp_path / "accel1").touch()
    (tmp_path / "accel0").touch()
    assert tpu.evidence() == f"{tmp_path / 'accel0'} exists"
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v5litepod-1")
    assert tpu.evidence() == "TPU_ACCELERATOR_TYPE=v5litepod-1 is set"
    monkeypatch.setenv("TPU_NAME", "mine")
    assert tpu.evidence() == "TPU_NAME=mine is set"


def test_files_of_other_hardware_count_with_the_wheel_for_tpus(monkeypatch, tmp_path):
    (tmp_path / "0").touch()
    monkeypatch.setattr(tpu, "_SHARED_DEVICE_FILES", str(tmp_path / "[0-9]*"))
    monkeypatch.setattr(tpu, "_installed", lambda: "tensorflow 2.21.0")
    assert tpu.evidence() == ""
    monkeypatch.setattr(tpu, "_installed", lambda: "tensorflow-tpu 2.20.0")
    assert tpu.evidence() == f"{tmp_path / '0'} exists"


@pytest.mark.parametrize(
    ("place", "endpoints"),
    [
        ("grpc://10.0.0.1:9", [("10.0.0.1", 9)]),
        ("grpc://host", [("host", 8470)]),
        ("grpc://10.0.0.1:1,10.0.0.2:2", [("10.0.0.1", 1), ("10.0.0.2", 2)]),
    ],
)
def test_endpoints_of_addresses(place, endpoints):
    assert tpu._endpoints("f", place) == endpoints


def test_a_slow_look_up_of_a_host_is_abandoned(calls, monkeypatch):
    """It is no part of the time that a socket is given."""
    release = threading.Event()
    assert tpu._ANSWER_SECONDS + tpu._NAME_SECONDS < 10.0
    monkeypatch.setattr(tpu, "_ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: release.wait())
    refused("host:1 does not answer .no answer within 0.05 seconds", "grpc://host:1")
    release.set()


def test_the_wheel_at_hand_is_named(monkeypatch):
    assert tpu._installed().startswith("tensorflow")
    monkeypatch.setattr(tpu, "_WHEELS", ("no-such-wheel",))
    assert tpu._installed().startswith("TensorFlow 2.")


SERVER = """
import sys, time
import tensorflow as tf
address = sys.argv[1]
server = tf.distribute.Server({"worker": [address]}, protocol="grpc")
print("ready", flush=True)
sys.stdin.read()
"""
CLIENT = """
import sys
from tfrl.distribute import tpu
tpu.tf_init_tpu("grpc://" + sys.argv[1])
"""


@pytest.mark.slow
def test_a_host_without_a_tpu_that_answers_is_told_apart():
    address, pipe = f"127.0.0.1:{closed_port()}", subprocess.PIPE
    with contextlib.ExitStack() as stack:
        command = [sys.executable, "-c", SERVER, address]
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        server = stack.enter_context(process)
        stack.callback(server.kill)
        assert server.stdout.readline() == "ready\n"
        command = [sys.executable, "-c", CLIENT, address]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert f"looked at grpc://{address} and found none (" in result.stderr
