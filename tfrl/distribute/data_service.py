"""Input pipelines that several hosts compute together."""

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfrl._internal import checks

_service = tf.data.experimental.service
_ANSWER_SECONDS = 5.0


@contextlib.contextmanager
def serve_data(
    workers: int = 1,
    dispatcher: str | None = None,
    host: str = "localhost",
    port: int = 0,
) -> Iterator[str]:
    """Runs servers of the `tf.data` service for the time of a block.

    Workers compute the elements of datasets that `tf.data.experimental.service.
    distribute` hands to them; the dispatcher tells them which. One host starts the
    dispatcher, and workers if it likes; others join it with `dispatcher`. The servers
    are threads of this process. End the iteration over such datasets before the block.

    `processing_mode` of `distribute` says who computes what of W workers:

    - `ShardingPolicy.OFF` or "parallel_epochs": every worker goes through the whole
      dataset, so an epoch has each element W times, in an order of each one's own.
      For training on shuffled or endless data.
    - `ShardingPolicy.DYNAMIC` or "distributed_epoch": parts are given out to whoever
      is free, so an epoch has each element once; those of a worker that dies are lost.
      For evaluation, or where epochs have to be exact.
    - `ShardingPolicy.FILE`, `DATA`, `FILE_OR_DATA`, `HINT`: each worker has its part
      from the beginning, for which the dispatcher must know all of them in advance.

    Consumers that give the same `job_name` share one pass over the data, first come,
    first served; without one each has a pass of its own.

    Args:
        workers: how many to start here; 0 for a dispatcher alone.
        dispatcher: address that the block of the other host gave, such as
            "grpc://10.0.0.1:5050"; None starts a dispatcher here.
        host: name or address under which the other hosts reach this one.
        port: port of the dispatcher, 0 for any that is free.

    Yields:
        The address of the dispatcher, for `service` of `distribute` and for the
        `dispatcher` of the other hosts.

    Raises:
        TypeError: if `workers` or `port` is no int.
        ValueError: if an argument is out of its range, no address or not known here.
        ConnectionError: if nobody answers at `dispatcher`.
        OSError: if another process listens on `port`.

    Example:
        >>> data = tf.data.Dataset.range(4)
        >>> with serve_data(workers=2) as address:
        ...     shared = data.apply(tf.data.experimental.service.distribute(
        ...         tf.data.experimental.service.ShardingPolicy.DYNAMIC, address))
        ...     sorted(int(x) for x in shared)
        [0, 1, 2, 3]

    References:
        Audibert et al., 2023, tf.data service: A Case for Disaggregating ML Input Data
        Processing, sections 3 and 4.
    """
    joins = dispatcher is not None
    workers = checks.check_whole_number("serve_data", "workers", workers, int(joins))
    port = checks.check_whole_number("serve_data", "port", port, 0, 65535)
    _check_host(host)
    if dispatcher is not None:
        if port:
            raise ValueError(
                "`serve_data`: `port` expected 0 where a `dispatcher` is joined, as no "
                f"other is started; got {port}"
            )
        _check_answers(dispatcher)
    with contextlib.ExitStack() as servers:
        if dispatcher is None:
            own = _dispatch_server(port)
            servers.callback(own.stop)
            dispatcher = f"grpc://{host}:{own.target.rpartition(':')[2]}"
        for _ in range(workers):
            config = _service.WorkerConfig(
                dispatcher_address=dispatcher.removeprefix("grpc://"),
                worker_address=f"{host}:%port%",
            )
            servers.callback(_service.WorkerServer(config).stop)
        yield dispatcher


def _dispatch_server(port: int) -> Any:
    try:
        return _service.DispatchServer(_service.DispatcherConfig(port=port))
    except RuntimeError as error:  # TensorFlow does not say of what
        raise OSError(
            f"`serve_data`: `port` expected one that is free; got {port} ({error}); "
            "pass 0, or see `get_unused_port`"
        ) from error


def _check_host(host: str) -> None:
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError, TypeError) as error:
        raise ValueError(
            "`serve_data`: `host` expected a name or address of this host; got "
            f"{host!r} ({error})"
        ) from error


def _check_answers(dispatcher: str) -> None:
    """Raises at once, where a worker would wait for an hour."""
    host, _, port = str(dispatcher).removeprefix("grpc://").rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 65536) or "/" in host:
        raise ValueError(
            "`serve_data`: `dispatcher` expected an address such as "
            f"'grpc://10.0.0.1:5050'; got {dispatcher!r}"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS).close()
    except OSError as error:
        raise ConnectionError(
            f"`serve_data`: `dispatcher` expected to answer; got {dispatcher!r}, where "
            f"nobody does within {_ANSWER_SECONDS:.0f} s ({error}); give it a `host` "
            "that this one can reach"
        ) from error
