"""Finds and initialises a TPU, or says within seconds where none was found.

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

from tfrl._internal import arguments

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


def tf_init_tpu(worker: str = "", protocol: str | None = None) -> str:
    """Connects to a TPU and initialises it, once, before anything is computed.

    A TPU of this host (Colab, a TPU VM) is `'local'`, or `''` unless one of the
    variables KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, TPU_NAME and TPU_CONFIG names another,
    as Google Cloud sets them. A remote TPU is the name of a Cloud TPU or
    `grpc://host:port` (port 8470 unless given); it is asked for an answer before
    TensorFlow, which would wait for minutes, connects. If what answers is no TPU,
    TensorFlow is of no use in this process any more.

    Where no TPU is, the error comes within seconds. A repeated call empties a TPU:
    what lay on it is lost. tfrl has been tried on stand-ins for a TPU only.

    Args:
        worker: which TPU: `''`, `'local'`, a name or an address.
        protocol: to speak with a remote TPU; 'grpc' by default.

    Returns:
        Device name of the CPU beside the TPU: `''` on this host, else `'/job:worker'`.

    Raises:
        ValueError: if there is no TPU, with where it was looked for, and what it
            takes to get one.
        TypeError: if an argument is no string.

    Example:
        >>> tf_init_tpu("grpc://localhost:1")
        Traceback (most recent call last):
        ...
        ValueError: `tf_init_tpu`: `worker` expected a TPU; got 'grpc://localhost:1',
        but looked at grpc://localhost:1 and found none (ConnectionError: localhost:1
        does not answer ...); TPUs need the wheel tensorflow-tpu, at most 2.20 ...
    """
    _, is_local = connect("tf_init_tpu", worker, protocol)
    return "" if is_local else "/job:worker"


def evidence() -> str:
    """What speaks for a TPU here, in words; empty if nothing does."""
    for name in (*_NAMING, *_ANNOUNCING):
        if os.environ.get(name):
            return f"{name}={os.environ[name]} is set"
    files = sorted(glob.glob(_DEVICE_FILES))
    if not files and _installed().startswith("tensorflow-tpu"):
        files = sorted(glob.glob(_SHARED_DEVICE_FILES))
    return f"{files[0]} exists" if files else ""


def connect(
    where: str, worker: str, protocol: str | None = None
) -> tuple[tf.distribute.cluster_resolver.ClusterResolver, bool]:
    """The resolver of an initialised TPU, and whether that is the TPU of this host."""
    arguments.check_type(where, "worker", worker, str, "a string")
    arguments.check_type(where, "protocol", protocol, str | None, "a string or None")
    place, origin = (worker, "") if worker else _place_in_environment(where)
    is_local = place in ("", "local")
    endpoints, is_bound = _endpoints(where, place) if "://" in place else [], False
    try:
        if is_local:
            _check_host()
            resolver = _local_resolver(place)
        else:
            _check_answers(endpoints)
            resolver = _within(_NAME_SECONDS, lambda: _remote_resolver(where, place))
            is_bound = True
            tf.config.experimental_connect_to_cluster(
                resolver, protocol="grpc" if protocol is None else protocol
            )
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (tf.errors.OpError, OSError, RuntimeError, ValueError) as error:
        got = repr(worker) + origin
        raise _absent(where, got, place, error, is_bound) from error
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
                f"'grpc://host:port'; got {place!r}"
            )
        found.append((parts.hostname, port))
    return found


def _check_host() -> None:
    """Raises where no TPU can be, before TensorFlow makes its devices for good."""
    kinds = [device.device_type for device in tf.config.list_physical_devices()]
    is_of_tpus = _installed().startswith("tensorflow-tpu") or evidence()
    if not is_of_tpus and not any(kind.startswith("TPU") for kind in kinds):
        raise ConnectionError(f"TensorFlow knows {sorted({*kinds})} here")


def _local_resolver(place: str) -> Any:
    make = tf.distribute.cluster_resolver.TPUClusterResolver
    try:
        return make(tpu=place)
    except ValueError:
        if place:
            raise
        # TensorFlow takes an empty name, which no variable fills, for a mistake.
        return make(tpu="local")


def _remote_resolver(where: str, place: str) -> Any:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=place)
    # What stands in for a resolver may know no addresses.
    if "://" not in place and hasattr(resolver, "cluster_spec"):
        jobs = resolver.cluster_spec().as_dict().values()
        for address in (address for job in jobs for address in job):
            _check_answers(_endpoints(where, address))
    return resolver


def _check_answers(endpoints: list[tuple[str, int]]) -> None:
    for host, port in endpoints:

        def reach(host: str = host, port: int = port) -> None:
            socket.create_connection((host, port), timeout=_ANSWER_SECONDS).close()

        try:
            # The time that looking up a host takes is not part of a socket's timeout.
            _within(_ANSWER_SECONDS, reach)
        except OSError as error:
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


def _absent(
    where: str, got: str, place: str, error: Exception, is_bound: bool
) -> ValueError:
    """Says where none was found; `is_bound` if TensorFlow connected to what is none."""
    if place in ("", "local"):
        files = ", ".join(sorted(glob.glob(_DEVICE_FILES))) or "none"
        variables = f"{', '.join(_NAMING)}: {'not asked' if place else 'not set'}"
        looked = f"on this host ({_DEVICE_FILES}: {files}; {variables})"
    elif "://" in place:
        looked = f"at {place}"
    else:
        looked = (
            f"for a Cloud TPU named {place!r}, which Google's metadata server knows "
            "inside Google Cloud only (an address begins with grpc://)"
        )
    # It takes devices of there for its own from then on, and knows no way back.
    anew = ", in a process started anew, as TensorFlow is of no use in this one"
    reason = f"{type(error).__name__}: {str(error).strip() or 'no message'}"
    return ValueError(
        f"`{where}`: `worker` expected a TPU; got {got}, but looked "
        f"{looked} and found none ({reason.splitlines()[0]:.200}); TPUs need the wheel "
        "tensorflow-tpu, at most 2.20 (the extra `tfrl[tpu]`; see "
        f"tools/site/install.md), and here is {_installed()}; for a TPU runtime "
        "choose Runtime > Change runtime type > TPU in Colab, or create a TPU VM in "
        "Google Cloud and pass 'local' there; without one, rehearse"
        f"{anew if is_bound else ''}: `tfrl.distribute.strategy('rehearsal:8')`"
    )


def _installed() -> str:
    for wheel in _WHEELS:
        try:
            return f"{wheel} {importlib.metadata.version(wheel)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return f"TensorFlow {tf.__version__}"
