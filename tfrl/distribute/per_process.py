"""The rank of this process among those that train together."""

from typing import Any

from tfrl._internal import arguments
from tfrl.distribute import _tf_config


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
            cluster = _tf_config.read_tf_config("PerProcessContext")
            self = super().__new__(cls)
            trains = cluster is not None and cluster.rank >= 0
            self._rank = cluster.rank if cluster is not None and trains else -1
            self._num_processes = len(cluster.workers) if cluster and trains else 1
            self._read_only = False
            self._paras_queue = None
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
                "read; got none; call set_paras_queue first"
            )
        return self._paras_queue

    def _check_writable(self, where: str) -> None:
        if self._read_only:
            raise AttributeError(
                f"`{where}`: the context expected to be written before `finalize`; got "
                "a call after it; set it where the process starts"
            )
