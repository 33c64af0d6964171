import socket
import threading

import pytest

from tfrl.distribute import _tpu_resolver


@pytest.fixture(autouse=True)
def no_variables(monkeypatch, tmp_path):
    for name in (*_tpu_resolver._NAMING, *_tpu_resolver._ANNOUNCING):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_tpu_resolver, "_DEVICE_FILES", str(tmp_path / "accel[0-9]*"))


def test_evidence_is_a_variable_or_a_device_file(monkeypatch, tmp_path):
    assert _tpu_resolver.evidence() == ""
    (tmp_path / "accel").touch()
    assert _tpu_resolver.evidence() == ""
    (tmp_path / "accel1").touch()
    (tmp_path / "accel0").touch()
    assert _tpu_resolver.evidence() == f"{tmp_path / 'accel0'} exists"
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v5litepod-1")
    assert _tpu_resolver.evidence() == "TPU_ACCELERATOR_TYPE=v5litepod-1 is set"
    monkeypatch.setenv("TPU_NAME", "mine")
    assert _tpu_resolver.evidence() == "TPU_NAME=mine is set"


def test_files_of_other_hardware_count_with_the_wheel_for_tpus(monkeypatch, tmp_path):
    (tmp_path / "0").touch()
    monkeypatch.setattr(_tpu_resolver, "_SHARED_DEVICE_FILES", str(tmp_path / "[0-9]*"))
    monkeypatch.setattr(_tpu_resolver, "_installed", lambda: "tensorflow 2.21.0")
    assert _tpu_resolver.evidence() == ""
    monkeypatch.setattr(_tpu_resolver, "_installed", lambda: "tensorflow-tpu 2.20.0")
    assert _tpu_resolver.evidence() == f"{tmp_path / '0'} exists"


ADDRESSES = {
    "grpc://10.0.0.1:9": [("10.0.0.1", 9)],
    "grpc://host": [("host", 8470)],
    "grpc://10.0.0.1:8470,grpc://10.0.0.2:1": [("10.0.0.1", 8470), ("10.0.0.2", 1)],
    "grpc://10.0.0.1:1,10.0.0.2:2": [("10.0.0.1", 1), ("10.0.0.2", 2)],
}


@pytest.mark.parametrize("place", ADDRESSES)
def test_endpoints_of_addresses(place):
    assert _tpu_resolver._endpoints("f", place) == ADDRESSES[place]


def test_what_takes_longer_is_abandoned():
    assert _tpu_resolver._within(60.0, lambda: "value") == "value"
    with pytest.raises(ZeroDivisionError):
        _tpu_resolver._within(60.0, lambda: 1 // 0)
    release = threading.Event()
    with pytest.raises(TimeoutError, match="no answer within 0.05 seconds"):
        _tpu_resolver._within(0.05, release.wait)
    release.set()


def test_a_slow_look_up_of_a_host_is_abandoned(monkeypatch):
    """It is no part of the time that a socket is given."""
    release = threading.Event()
    monkeypatch.setattr(_tpu_resolver, "_ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: release.wait())
    with pytest.raises(ConnectionError, match="host:1 does not answer .no answer with"):
        _tpu_resolver._check_answers([("host", 1)])
    release.set()


def test_deadlines_add_up_to_less_than_ten_seconds():
    assert _tpu_resolver._ANSWER_SECONDS + _tpu_resolver._NAME_SECONDS < 10.0


def test_the_wheel_at_hand_is_named(monkeypatch):
    assert _tpu_resolver._installed().startswith("tensorflow")
    monkeypatch.setattr(_tpu_resolver, "_WHEELS", ("no-such-wheel",))
    assert _tpu_resolver._installed().startswith("TensorFlow 2.")
