"""No TPU is at hand: what tfrl calls is replaced, and what it says is real."""

import contextlib
import socket
import subprocess
import sys
import time

import pytest
import tensorflow as tf

from tfrl.distribute import _tpu_resolver, tpu

NAMING = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME", "TPU_CONFIG")


class Resolver:
    """What a resolver of TensorFlow tells about a cluster, and no more."""

    def __init__(self, tpu=None, workers=()):
        self.tpu, self.workers = tpu, list(workers)

    def cluster_spec(self):
        return tf.train.ClusterSpec({"worker": self.workers} if self.workers else {})


@pytest.fixture
def calls(monkeypatch):
    """Replaces what would touch a TPU; the calls made, in order."""
    for name in NAMING:
        monkeypatch.delenv(name, raising=False)
    made = []

    def resolver(**kwargs):
        made.append(("resolver", kwargs))
        return Resolver(**kwargs)

    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", resolver)
    monkeypatch.setattr(
        tf.config,
        "experimental_connect_to_cluster",
        lambda resolver, protocol: made.append(("connect", resolver.tpu, protocol)),
    )
    monkeypatch.setattr(
        tf.tpu.experimental,
        "initialize_tpu_system",
        lambda resolver: made.append(("initialize", resolver.tpu)),
    )
    return made


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.parametrize("worker", ["", "local"])
def test_the_tpu_of_this_host_is_not_connected_to(calls, worker):
    assert tpu.tf_init_tpu(worker) == ""
    assert calls == [("resolver", {"tpu": worker}), ("initialize", worker)]


def test_local_is_the_default_and_asked_for_if_an_empty_name_fails(calls, monkeypatch):
    def picky(tpu):
        calls.append(("resolver", tpu))
        if not tpu:
            raise ValueError("Please provide a TPU Name to connect to.")
        return Resolver(tpu)

    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", picky)
    assert tpu.tf_init_tpu() == ""
    assert calls == [("resolver", ""), ("resolver", "local"), ("initialize", "local")]


@pytest.mark.parametrize("protocol", [None, "grpc", "grpc+loas"])
def test_an_address_that_answers_is_connected_to(calls, listening, protocol):
    worker = f"grpc://127.0.0.1:{listening}"
    assert tpu.tf_init_tpu(worker, protocol) == "/job:worker"
    assert calls == [
        ("resolver", {"tpu": worker}),
        ("connect", worker, protocol or "grpc"),
        ("initialize", worker),
    ]


def test_a_name_is_connected_to_after_its_addresses_answered(
    calls, listening, monkeypatch
):
    def known(tpu):
        return Resolver(tpu, [f"127.0.0.1:{listening}", f"localhost:{listening}"])

    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", known)
    assert tpu.tf_init_tpu("my-tpu") == "/job:worker"
    assert calls == [("connect", "my-tpu", "grpc"), ("initialize", "my-tpu")]
    del calls[:]
    monkeypatch.setattr(
        tf.distribute.cluster_resolver,
        "TPUClusterResolver",
        lambda tpu: Resolver(tpu, [f"127.0.0.1:{closed_port()}"]),
    )
    with pytest.raises(ValueError, match="named 'my-tpu'.* does not answer"):
        tpu.tf_init_tpu("my-tpu")
    assert not calls


def test_an_empty_worker_is_what_the_variables_name(calls, listening, monkeypatch):
    monkeypatch.setenv("TPU_NAME", f"grpc://127.0.0.1:{listening}")
    assert tpu.tf_init_tpu() == "/job:worker"
    assert calls[0] == ("resolver", {"tpu": f"grpc://127.0.0.1:{listening}"})
    del calls[:]
    # TensorFlow would ask Google's metadata server about a TPU named "local".
    monkeypatch.setenv("TPU_NAME", "local")
    assert tpu.tf_init_tpu() == ""
    assert calls[0] == ("resolver", {"tpu": "local"})
    monkeypatch.delenv("TPU_NAME")
    monkeypatch.setenv("TPU_CONFIG", '{"tpu_node_name": "local"}')
    assert tpu.tf_init_tpu() == ""
    monkeypatch.setenv("TPU_CONFIG", "{}")
    with pytest.raises(ValueError, match="`TPU_CONFIG` expected JSON"):
        tpu.tf_init_tpu()


def test_an_address_that_does_not_answer_never_reaches_tensorflow(calls, listening):
    dead = f"127.0.0.1:{closed_port()}"
    for worker in (f"grpc://{dead}", f"grpc://127.0.0.1:{listening},grpc://{dead}"):
        with pytest.raises(ValueError, match=f"{dead} does not answer"):
            tpu.tf_init_tpu(worker)
    assert not calls


def test_a_silent_metadata_server_is_given_up(calls, monkeypatch):
    """A name is looked up over HTTP, here from somebody who accepts and is silent."""
    monkeypatch.undo()
    monkeypatch.setattr("tfrl.distribute._tpu_resolver._NAME_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(ValueError, match="TimeoutError: no answer within 0.3 sec"):
            tpu.tf_init_tpu("my-tpu")


def test_the_error_says_where_which_wheel_and_how(calls, monkeypatch):
    def absent(resolver):
        raise tf.errors.NotFoundError(None, None, "TPUs not found\nin the cluster")

    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", absent)
    with pytest.raises(ValueError) as raised:
        tpu.tf_init_tpu()
    message = str(raised.value)
    for part in (
        "`tf_init_tpu`: `worker` expected a TPU; got ''",
        "on this host (/dev/accel",
        "TPU_NAME, TPU_CONFIG: not set",
        "NotFoundError: TPUs not found)",
        "tensorflow-tpu, at most 2.20 (the extra `tfrl[tpu]`; see the README)",
        "Change runtime type > TPU in Colab",
        "TPU VM in Google Cloud",
        "strategy('rehearsal:8')",
    ):
        assert part in message
    assert isinstance(raised.value.__cause__, tf.errors.NotFoundError)
    monkeypatch.setenv("TPU_NAME", "no-such-tpu")
    with pytest.raises(ValueError, match="got '' .from TPU_NAME., but looked for a"):
        tpu.tf_init_tpu()


@pytest.mark.parametrize(
    "worker",
    ["grpc://a:b", "grpc://a:99999", "grpc://:8470", "http://a:1", "grpc://a:1,b:x"],
)
def test_malformed_addresses(calls, worker):
    with pytest.raises(ValueError, match="'grpc://host:port'; got .*correct the addr"):
        tpu.tf_init_tpu(worker)
    assert not calls


def test_arguments_are_strings(calls):
    with pytest.raises(TypeError, match="`worker` expected a string; got None"):
        tpu.tf_init_tpu(None)
    with pytest.raises(TypeError, match="`protocol` expected a string or None; got 1"):
        tpu.tf_init_tpu("", 1)


@pytest.mark.skipif(bool(_tpu_resolver.evidence()), reason="there may be a TPU")
@pytest.mark.parametrize("worker", ["", "local", "bogus-tpu", "grpc://127.0.0.1:1"])
def test_tensorflow_itself_finds_no_tpu_within_seconds(worker):
    start = time.monotonic()
    with pytest.raises(
        ValueError, match="^`tf_init_tpu`: `worker` expected a TPU; got"
    ):
        tpu.tf_init_tpu(worker)
    # TensorFlow alone waits for more than 200 seconds at the last of these.
    assert time.monotonic() - start < 60.0


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
    address = f"127.0.0.1:{closed_port()}"
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", SERVER, address],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(server.kill)
        assert server.stdout.readline() == "ready\n"
        result = subprocess.run(
            [sys.executable, "-c", CLIENT, address],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert f"looked at grpc://{address} and found none (" in result.stderr
