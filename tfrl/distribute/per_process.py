"""The rank of this process among those that train together, by `TF_CONFIG` or set."""

import json
import os
from typing import Any, NamedTuple

from tfrl._internal import arguments

_HELP = (
    'as in {"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, '
    '"task": {"type": "worker", "index": 0}}, or unset it'
)


class _Cluster(NamedTuple):
    """The processes that train together: their addresses, and which one this is.

    A chief comes first. `rank` is -1 in a process of the cluster that does not train,
    such as an evaluator.
    """

    workers: tuple[str, ...]
    rank: int


def read_tf_config(where: str) -> _Cluster | None:
    """Returns what `TF_CONFIG` describes; None if it is unset or names no cluster.

    Raises ValueError in the name of the function `where`, naming the key at fault.
    """
    text = os.environ.get("TF_CONFIG", "").strip()
    if not text:
        return None
    try:
        config = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise _fault(where, "", f"JSON ({error})", text) from error
    _check(where, "", config, dict, "an object")
    if not config.get("cluster"):
        return None
    cluster, task = config["cluster"], config.get("task")
    _check(where, "cluster", cluster, dict, "an object of lists by task type")
    known: set[str] = set()
    for name, addresses in cluster.items():
        _check(where, f"cluster.{name}", addresses, list, "a list of host:port texts")
        for place, address in enumerate(addresses):
            _check_address(where, f"cluster.{name}[{place}]", address, known)
            known.add(address)
    _check(where, "task", task, dict, "an object with `type` and `index`")
    kind, index = task.get("type"), task.get("index")
    if kind not in [*cluster, "evaluator"]:
        wanted = f"one of the cluster's {sorted(cluster)} or 'evaluator'"
        raise _fault(where, "task.type", wanted, kind)
    # TensorFlow takes the index as text, too.
    if isinstance(index, str) and index.isdecimal():
        index = int(index)
    size = len(cluster.get(kind, [])) or 1
    is_int = isinstance(index, int) and not isinstance(index, bool)
    if not is_int or not 0 <= index < size:
        raise _fault(where, "task.index", f"an int in [0, {size - 1}]", index)
    chiefs = [*cluster.get("chief", []), *cluster.get("master", [])]
    workers = (*chiefs, *cluster.get("worker", []))
    offsets = {"chief": 0, "master": 0, "worker": len(chiefs)}
    return _Cluster(workers, offsets[kind] + index if kind in offsets else -1)


class PerProcessContext:
    """Rank of this process among those that train together, and their number.

    Every construction gives the same object, the one of the process. It starts with
    what the environment variable `TF_CONFIG` says (the chief first, then the workers
    in their order) and without it as a process on its own: rank -1 of 1 process.
    `finalize` locks it.

    Raises:
        ValueError: at the first construction, if `TF_CONFIG` is malformed.

    Example:
        >>> context = PerProcessContext()
        >>> context is PerProcessContext()
        True
        >>> context.ddp_rank, context.num_processes, context.is_distributed
        (-1, 1, False)
    """

    _instance: "PerProcessContext | None" = None
    _rank: int
    _num_processes: int
    _read_only: bool
    _paras_queue: Any

    def __new__(cls) -> "PerProcessContext":
        """Returns the one of this process."""
        if cls._instance is None:
            cluster = read_tf_config("PerProcessContext")
            self = super().__new__(cls)
            trains = cluster is not None and cluster.rank >= 0
            self._rank = cluster.rank if cluster else -1
            self._num_processes = len(cluster.workers) if cluster and trains else 1
            self._read_only, self._paras_queue = False, None
            cls._instance = self
        return cls._instance

    def finalize(self) -> None:
        """Locks the context: from now on it can only be read."""
        self._read_only = True

    def set_distributed(self, rank: int, num_processes: int) -> None:
        """Sets which of how many processes this one is.

        Args:
            rank: its number, from 0, or -1 for a process on its own.
            num_processes: how many there are.

        Raises:
            AttributeError: if the context is finalized.
            TypeError: if one of them is not an int.
            ValueError: if `rank` is not one of that many.
        """
        where = "PerProcessContext.set_distributed"
        self._check_writable(where)
        check = arguments.check_whole_number
        count = check(where, "num_processes", num_processes, low=1)
        self._rank = check(where, "rank", rank, -1, count - 1)
        self._num_processes = count

    def set_paras_queue(self, paras_queue: Any) -> None:
        """Sets the queue by which processes compare their parameters.

        Args:
            paras_queue: a queue of `multiprocessing`.

        Raises:
            AttributeError: if the context is finalized.
        """
        self._check_writable("PerProcessContext.set_paras_queue")
        self._paras_queue = paras_queue

    @property
    def ddp_rank(self) -> int:
        """Number of this process, from 0; -1 if it is on its own."""
        return self._rank

    @property
    def num_processes(self) -> int:
        """How many processes train together."""
        return self._num_processes

    @property
    def is_distributed(self) -> bool:
        """Whether this process is one of several, or of a cluster of one."""
        return self._rank >= 0

    @property
    def paras_queue(self) -> Any:
        """The queue that was set; AttributeError if none was."""
        if self._paras_queue is None:
            raise AttributeError(
                "`PerProcessContext`: `paras_queue` expected to be set before it is "
                "read; got none"
            )
        return self._paras_queue

    def _check_writable(self, where: str) -> None:
        if self._read_only:
            raise AttributeError(
                f"`{where}`: the context expected to be written before `finalize`; got "
                "a call after it"
            )


def _check(where: str, key: str, value: Any, kind: type, wanted: str) -> None:
    if not isinstance(value, kind):
        raise _fault(where, key, wanted, value)


def _check_address(where: str, key: str, address: Any, known: set[str]) -> None:
    host, _, port = address.rpartition(":") if isinstance(address, str) else ("",) * 3
    if not (host and port.isdecimal() and 0 < int(port) < 65536):
        raise _fault(where, key, "a host:port text", address)
    if address in known:
        raise _fault(where, key, "an address of its own", address)


def _fault(where: str, key: str, wanted: str, value: Any) -> ValueError:
    name = f"the key `{key}` of `TF_CONFIG`" if key else "`TF_CONFIG`"
    return ValueError(
        f"`{where}`: {name} expected {wanted}; got {value!r:.200}; {_HELP}"
    )
