"""What the environment variable `TF_CONFIG` says of this process and of the others."""

import json
import os
from typing import Any, NamedTuple

_HELP = (
    'correct it, as in {"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, '
    '"task": {"type": "worker", "index": 0}}, or unset it'
)


class Cluster(NamedTuple):
    """The processes that train together: their addresses, and which one this is.

    A chief comes first. `rank` is -1 in a process of the cluster that does not train,
    such as an evaluator.
    """

    workers: tuple[str, ...]
    rank: int


def read_tf_config(where: str) -> Cluster | None:
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
    for name, addresses in cluster.items():
        _check(where, f"cluster.{name}", addresses, list, "a list of host:port texts")
        for place, address in enumerate(addresses):
            _check_address(where, f"cluster.{name}[{place}]", address)
    _check(where, "task", task, dict, "an object with `type` and `index`")
    kind, index = task.get("type"), task.get("index")
    if kind not in cluster and kind != "evaluator":
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
    return Cluster(workers, offsets[kind] + index if kind in offsets else -1)


def _check(where: str, key: str, value: Any, kind: type, wanted: str) -> None:
    if not isinstance(value, kind):
        raise _fault(where, key, wanted, value)


def _check_address(where: str, key: str, address: Any) -> None:
    host, _, port = address.rpartition(":") if isinstance(address, str) else ("",) * 3
    is_port = port.isdecimal() and 0 < int(port) < 65536
    if not host or not is_port:
        raise _fault(where, key, "a host:port text", address)


def _fault(where: str, key: str, wanted: str, value: Any) -> ValueError:
    name = f"the key `{key}` of `TF_CONFIG`" if key else "`TF_CONFIG`"
    return ValueError(
        f"`{where}`: {name} expected {wanted}; got {value!r:.200}; {_HELP}"
    )
