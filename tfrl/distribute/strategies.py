"""Chooses a `tf.distribute` strategy by name.

What comes back is TensorFlow's own object: `with strategy.scope(): ...`.
"""

import functools
import logging

import tensorflow as tf

from tfrl._internal import arguments, end_signals
from tfrl.distribute import _peers, per_process, tpu

_LOG = logging.getLogger(__name__)
_EXPECTED = (
    "'auto', 'tpu', 'tpu:WORKER', 'multi_worker', 'mirrored', 'gpu', 'cpu' or "
    "'rehearsal:N'"
)


def strategy(name: str = "auto") -> tf.distribute.Strategy:
    """Finds the devices to run on, and says in one line what it chose and why.

    | name | replicas |
    | --- | --- |
    | `auto` | of what is there: TPU, several workers, several GPUs, GPU, CPU |
    | `tpu`, `tpu:WORKER` | the cores of a TPU, see `tf_init_tpu` for WORKER |
    | `multi_worker` | the GPUs or the CPU of every host that TF_CONFIG lists |
    | `mirrored` | all GPUs of this host |
    | `gpu`, `cpu` | one |
    | `rehearsal:N` | N on this CPU, each a logical device of its own |

    A rehearsal computes what N devices would, on one CPU and slowly. Logical devices
    are made before TensorFlow first computes anything: ask for it, as for several
    workers, at the start of the program. `auto` takes a TPU for there if a variable
    like TPU_NAME or a device file says so, and then fails rather than do without.

    A program makes one of several devices, and shares it: TensorFlow mixes up what two
    of the same devices reduce, unless they are rehearsals.

    Several workers wait for each other for up to an hour, and say for whom.

    Args:
        name: a word of the table.

    Returns:
        The strategy. The line is logged as a warning, so that it is seen in notebooks
        and programs that configure no logging.

    Raises:
        ValueError: if `name` is another word; if the devices are not there, or it is
            too late to make them; if TF_CONFIG is malformed, which also names the
            key, or not the same on all workers; if called under the scope of another
            strategy.
        ConnectionError: if other workers do not come.
        TypeError: if `name` is no string.

    Example:
        >>> rehearsal = strategy("rehearsal:2")
        >>> rehearsal.num_replicas_in_sync
        2
        >>> strategy("rehearsal:0")
        Traceback (most recent call last):
        ...
        ValueError: `strategy`: `name` expected 'auto', 'tpu', 'tpu:WORKER',
        'multi_worker', 'mirrored', 'gpu', 'cpu' or 'rehearsal:N' with N >= 1; got
        'rehearsal:0'; check the spelling
    """
    arguments.check_type("strategy", "name", name, str, f"one of {_EXPECTED}")
    if tf.distribute.has_strategy():
        raise ValueError(
            "`strategy`: `name` expected outside of other strategies; got "
            f"{name!r} under {type(tf.distribute.get_strategy()).__name__}"
        )
    kind, colon, argument = name.partition(":")
    why = "asked for"
    if name == "auto":
        kind, why = _found()
    if kind == "rehearsal":
        chosen = _rehearsal(name, argument)
    elif kind == "tpu" and bool(colon) == bool(argument):
        resolver, _ = tpu.connect("strategy", argument)
        chosen = tf.distribute.TPUStrategy(resolver)
    elif kind in ("cpu", "gpu", "mirrored", "multi_worker") and not colon:
        chosen = _multi_worker() if kind == "multi_worker" else _of_this_host(kind)
    else:
        raise _unknown(name)
    n_replicas = chosen.num_replicas_in_sync
    replicas = "1 replica" if n_replicas == 1 else f"{n_replicas} replicas"
    _LOG.warning("tfrl: strategy %r, %s: %s", kind, replicas, why)
    return chosen


def _found() -> tuple[str, str]:
    sign = tpu.evidence()
    if sign:
        return "tpu", f"{sign}, so there is a TPU"
    cluster = per_process.read_tf_config("strategy")
    if cluster is not None and cluster.rank >= 0 and len(cluster.workers) > 1:
        place = f"worker {cluster.rank} of {len(cluster.workers)}"
        return "multi_worker", f"TF_CONFIG makes this {place}, and there is no TPU"
    n_gpus = len(tf.config.get_visible_devices("GPU"))
    if n_gpus > 1:
        return "mirrored", f"there are {n_gpus} GPUs, no TPU and no other worker"
    if n_gpus == 1:
        return "gpu", "there is a GPU, no TPU and no other worker"
    return "cpu", "there is no TPU, no other worker and no GPU"


def _of_this_host(kind: str) -> tf.distribute.Strategy:
    if kind != "cpu" and not tf.config.get_visible_devices("GPU"):
        raise ValueError(
            f"`strategy`: `name` expected devices that are there; got {kind!r}, and "
            "TensorFlow sees no GPU; use 'cpu', or 'rehearsal:N' for N replicas"
        )
    if kind == "mirrored":
        return tf.distribute.MirroredStrategy()
    return tf.distribute.OneDeviceStrategy(f"/{kind}:0")


def _multi_worker() -> tf.distribute.Strategy:
    kind, cluster = "multi_worker", per_process.read_tf_config("strategy")
    if cluster is None or cluster.rank < 0:
        found = "says that this process does not train" if cluster else "is not set"
        raise ValueError(
            "`strategy`: `name` expected one of several workers; got 'multi_worker', "
            f"and TF_CONFIG {found}; set it on each host, such as "
            '{"cluster": {"worker": ["host0:12345", "host1:12345"]}, '
            '"task": {"type": "worker", "index": 0}}'
        )
    if not _has_begun():  # else there is an error to come, or a strategy already
        place = f"worker {cluster.rank} of {len(cluster.workers)}"
        tell = functools.partial(_LOG.warning, "tfrl: strategy %r, %s: %s", kind, place)
        _peers.meet(cluster.workers, cluster.rank, _peers.Wait(tell))
    try:
        # TensorFlow takes SIGTERM to notice preemptions, and ends nothing by it.
        with end_signals.kept_sigterm():
            return tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        raise _too_late(kind, str(error)) from error


def _has_begun() -> bool:
    """Whether TensorFlow has taken its devices: some settings are fixed then."""
    threading_of = tf.config.threading
    number = threading_of.get_inter_op_parallelism_threads()
    try:
        threading_of.set_inter_op_parallelism_threads(number + 1)
    except RuntimeError:
        return True
    threading_of.set_inter_op_parallelism_threads(number)
    return False


def _rehearsal(name: str, argument: str) -> tf.distribute.Strategy:
    n_replicas = int(argument) if argument.isascii() and argument.isdigit() else 0
    if n_replicas < 1:
        raise _unknown(name)
    cpu = tf.config.list_physical_devices("CPU")[0]
    n_cpus = len(tf.config.get_logical_device_configuration(cpu) or [None])
    if n_cpus < n_replicas:
        parts = [tf.config.LogicalDeviceConfiguration()] * n_replicas
        try:
            tf.config.set_logical_device_configuration(cpu, parts)
        except RuntimeError as error:
            why = f"the CPU is {n_cpus} logical device(s) already"
            raise _too_late(name, why) from error
    # What TensorFlow reduces with by default hangs or crashes on logical CPUs.
    return tf.distribute.MirroredStrategy(
        [f"CPU:{number}" for number in range(n_replicas)],
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )


def _too_late(name: str, why: str) -> ValueError:
    return ValueError(
        f"`strategy`: `name` expected before TensorFlow first computes; got {name!r} "
        f"too late ({why}); call it first in the program (in a notebook, restart the "
        "runtime)"
    )


def _unknown(name: str) -> ValueError:
    return ValueError(
        f"`strategy`: `name` expected {_EXPECTED} with N >= 1; got {name!r}; check the "
        "spelling"
    )
