"""Devices, replicas, hosts and processes: what a program runs on.

Here are the start of a TPU, a strategy for the devices at hand, values on its replicas,
methods whose gradients are averaged over them, processes that end together, and the
input service of several hosts. Names whose files need TensorFlow load it when first
touched, so that the others start without. What acts without it, and memory that
processes share, is in `tfrl.host`, the agents' updates on replicas in `tfrl.agents`,
the loop around them in `tfrl.training`.
"""

from typing import TYPE_CHECKING

from tfrl._internal import lazy_doors
from tfrl.distribute.per_process import PerProcessContext
from tfrl.distribute.ports import get_unused_port
from tfrl.distribute.processes import Coordinator, Process

if TYPE_CHECKING:
    from tfrl.distribute.data_parallel import (
        data_distributed,
        data_distributed_when,
        make_ddp_performer,
    )
    from tfrl.distribute.data_service import serve_data
    from tfrl.distribute.replicas import mean, replicate, shard_batch, unreplicate
    from tfrl.distribute.strategies import strategy
    from tfrl.distribute.tpu import tf_init_tpu

__all__ = [
    "Coordinator",
    "PerProcessContext",
    "Process",
    "data_distributed",
    "data_distributed_when",
    "get_unused_port",
    "make_ddp_performer",
    "mean",
    "replicate",
    "serve_data",
    "shard_batch",
    "strategy",
    "tf_init_tpu",
    "unreplicate",
]
_LAZY = ("data_parallel", "data_service", "replicas", "strategies", "tpu")
__getattr__, __dir__ = lazy_doors.door(__name__, __all__, _LAZY)
