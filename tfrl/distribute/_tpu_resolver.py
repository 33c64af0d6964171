"""Finding a TPU within seconds, or saying where none was found.

TensorFlow waits minutes for an address that does not answer, and as long as it takes
for Google's metadata server, which it asks about names. So every address is tried
with a plain socket first, and whatever asks about names gets a deadline.
"""

import glob
import importlib.metadata
import json
import os
import socket
import threading
import urllib.parse
from collections.abc import Callable
from concurrent import futures
from typing import Any

import tensorflow as tf

_ANSWER_SECONDS, _NAME_SECONDS = 3.0, 6.0
_DEFAULT_PORT = 8470
# Where TensorFlow looks for a name if it gets none, in this order; the last is JSON.
_NAMING = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME", "TPU_CONFIG")
# Set by Google Cloud and Colab on hosts that have a TPU.
_ANNOUNCING = ("TPU_ACCELERATOR_TYPE", "COLAB_TPU_1VM", "COLAB_TPU_ADDR")
_DEVICE_FILES = "/dev/accel[0-9]*"
# Newer TPUs have these, but so has other hardware.
_SHARED_DEVICE_FILES = "/dev/vfio/[0-9]*"
_WHEELS = ("tensorflow-tpu", "tensorflow-cpu", "tensorflow")


def evidence() -> str:
    """What speaks for a TPU here, in words; empty if nothing does."""
    for name in (*_NAMING, *_ANNOUNCING):
        if os.environ.get(name):
            return f"{name}={os.environ[name]} is set"
    files = sorted(glob.glob(_DEVICE_FILES))
    if not files and _installed().startswith("tensorflow-tpu"):
        files = sorted(glob.glob(_SHARED_DEVICE_FILES))
    return f"{files[0]} exists" if files else ""


def connect(where: str, worker: str, protocol: str | None) -> tuple[Any, bool]:
    """The resolver of an initialised TPU, and whether that is the TPU of this host."""
    if not isinstance(worker, str):
        raise TypeError(
            f"`{where}`: `worker` expected a string; got {worker!r}; '' is the TPU of "
            "this host"
        )
    if protocol is not None and not isinstance(protocol, str):
        raise TypeError(
            f"`{where}`: `protocol` expected a string or None; got {protocol!r}; None "
            "is 'grpc'"
        )
    place, origin = (worker, "") if worker else _place_in_environment(where)
    is_local = place in ("", "local")
    endpoints = _endpoints(where, place) if "://" in place else []
    try:
        if is_local:
            resolver = _local_resolver(place)
        else:
            _check_answers(endpoints)
            resolver = _within(_NAME_SECONDS, lambda: _remote_resolver(place))
            tf.config.experimental_connect_to_cluster(
                resolver, protocol="grpc" if protocol is None else protocol
            )
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (tf.errors.OpError, OSError, RuntimeError, ValueError) as error:
        raise _absent(where, repr(worker) + origin, place, error) from error
    return resolver, is_local


def _place_in_environment(where: str) -> tuple[str, str]:
    """Where a variable says the TPU is, and which one, in words; empty if none does."""
    for name in _NAMING:
        text = os.environ.get(name, "")
        if text and name == "TPU_CONFIG":
            try:
                text = str(json.loads(text)["tpu_node_name"])
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f"`{where}`: `TPU_CONFIG` expected JSON with a tpu_node_name; got "
                    f"{text!r:.80}; unset it, or pass `worker`"
                ) from error
        if text:
            return text, f" (from {name})"
    return "", ""


def _endpoints(where: str, place: str) -> list[tuple[str, int]]:
    """Hosts and ports of `grpc://host:port`, or of several parted by commas."""
    found = []
    for text in place.split(","):
        parts = urllib.parse.urlsplit(text if "://" in text else f"grpc://{text}")
        try:
            port = _DEFAULT_PORT if parts.port is None else parts.port
        except ValueError:
            port = 0
        if parts.scheme != "grpc" or not parts.hostname or not port:
            raise ValueError(
                f"`{where}`: `worker` expected '', 'local', the name of a Cloud TPU or "
                f"'grpc://host:port'; got {place!r}; correct the address"
            )
        found.append((parts.hostname, port))
    return found


def _local_resolver(place: str) -> Any:
    make = tf.distribute.cluster_resolver.TPUClusterResolver
    try:
        return make(tpu=place)
    except ValueError:
        if place:
            raise
        # TensorFlow takes an empty name, which no variable fills, for a mistake.
        return make(tpu="local")


def _remote_resolver(place: str) -> Any:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=place)
    # What stands in for a resolver may know no addresses.
    if "://" not in place and hasattr(resolver, "cluster_spec"):
        jobs = resolver.cluster_spec().as_dict()
        addresses = [address for job in jobs.values() for address in job]
        _check_answers([x for a in addresses for x in _endpoints("strategy", a)])
    return resolver


def _check_answers(endpoints: list[tuple[Any, ...]]) -> None:
    for endpoint in endpoints:

        def reach(endpoint: tuple[Any, ...] = endpoint) -> None:
            socket.create_connection(endpoint, timeout=_ANSWER_SECONDS).close()

        try:
            # The time that looking up a host takes is not part of a socket's timeout.
            _within(_ANSWER_SECONDS, reach)
        except OSError as error:
            host, port = endpoint
            raise ConnectionError(f"{host}:{port} does not answer ({error})") from error


def _within(seconds: float, function: Callable[[], Any]) -> Any:
    """What a function returns or raises, or TimeoutError; a late one is abandoned."""
    done: futures.Future[Any] = futures.Future()

    def run() -> None:
        try:
            done.set_result(function())
        except BaseException as error:  # noqa: BLE001
            done.set_exception(error)

    threading.Thread(target=run, daemon=True, name="tfrl-tpu-probe").start()
    if not futures.wait([done], seconds).done:
        raise TimeoutError(f"no answer within {seconds:g} seconds")
    return done.result()


def _absent(where: str, got: str, place: str, error: Exception) -> ValueError:
    if place in ("", "local"):
        looked = (
            f"on this host ({_DEVICE_FILES}: "
            f"{', '.join(sorted(glob.glob(_DEVICE_FILES))) or 'none'}; "
            f"{', '.join(_NAMING)}: {'not set' if not place else 'not asked'})"
        )
    elif "://" in place:
        looked = f"at {place}"
    else:
        looked = (
            f"for a Cloud TPU named {place!r}, which Google's metadata server knows "
            "inside Google Cloud only (an address begins with grpc://)"
        )
    lines = str(error).strip().splitlines()
    reason = f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
    return ValueError(
        f"`{where}`: `worker` expected a TPU; got {got}, but looked "
        f"{looked} and found none ({reason:.200}); TPUs need the wheel tensorflow-tpu, "
        "at most 2.20 (the extra `tfrl[tpu]`; see the README), and here is "
        f"{_installed()}; for a TPU runtime choose Runtime > Change runtime type > TPU "
        "in Colab, or create a TPU VM in Google Cloud and pass 'local' there; without "
        "one, rehearse: `tfrl.distribute.strategy('rehearsal:8')`"
    )


def _installed() -> str:
    for wheel in _WHEELS:
        try:
            return f"{wheel} {importlib.metadata.version(wheel)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return f"TensorFlow {tf.__version__}"
