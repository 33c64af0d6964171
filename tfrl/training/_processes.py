"""The processes of a run: signals that wait, workers that train one agent together."""

import contextlib
import gc
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from tfrl._internal import arguments, end_signals
from tfrl.core import records
from tfrl.saving import typed_json
from tfrl.training import _kept_arguments

_Played = TypeVar("_Played")

# What TensorFlow says of a peer that is gone, according to where it notices.
_LOST = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.UnavailableError,
)


class Interrupted(KeyboardInterrupt):
    """Raised where a call was broken off, whose result is lost."""


def finished(played: _Played | None, name: str, reached: str) -> _Played:
    """Returns the final evaluation of a run.

    Args:
        played: the evaluation; None where the run was asked to end before it.
        name: of the trainer.
        reached: how far the run has come.

    Raises:
        KeyboardInterrupt: if there is none.
    """
    if played is None:
        raise KeyboardInterrupt(
            f"`{name}.run`: asked to end; saved after {reached}; `resume=True` goes on"
        )
    return played


class Interruption:
    """Whether the process was asked to end, and what may be broken off for it.

    Example:
        >>> interruption = Interruption()
        >>> interruption.call(abs, -1), interruption()
        (1, False)
    """

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._calling = False

    def __call__(self) -> bool:
        """Whether it was asked to end."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Asks the process to end; a signal handler calls it.

        Raises:
            Interrupted: within `call`.
        """
        self._asked.set()
        self._break_off()

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function, which changes nothing but what it returns.

        Args:
            function: hands control back to Python now and then.
            *args: its arguments.

        Returns:
            What it returns.

        Raises:
            Interrupted: if the process was, or meanwhile is, asked to end.
        """
        self._calling = True
        try:
            if self():
                self._break_off()
            found = function(*args)
            if self._calling:
                return found
        except Exception:
            if self._calling:
                raise
        finally:
            self._calling = False
        # Keras passes over what is raised where it builds a layer.
        raise Interrupted

    @contextlib.contextmanager
    def saving_if_it_fails(
        self, save: Callable[[], None], is_whole: Callable[[], bool]
    ) -> Iterator[None]:
        """Keeps what a run has learned where an error, or `sys.exit`, ends it.

        A second signal, which ends it at once, keeps nothing.

        Args:
            save: what keeps it.
            is_whole: whether there is something to keep: not in the middle of an
                update. Where a process of the environments is lost, there always is.
        """
        try:
            yield
        except BaseException as error:
            is_at_once = self() and not isinstance(error, Exception)
            if not is_at_once and (isinstance(error, ConnectionError) or is_whole()):
                try:
                    save()
                except Exception as another:  # which is not to hide the first
                    error.add_note(f"nor could the epochs before be saved: {another}")
            raise

    def _break_off(self) -> None:
        if self._calling:
            self._calling = False  # once: what cleans up goes on
            raise Interrupted


class Until:
    """A policy that raises Interrupted instead of acting, once it is asked to end.

    Args:
        asked_to_end: says whether it is.
        policy: what acts.

    Attributes:
        policy: the same.
    """

    def __init__(self, asked_to_end: Callable[[], bool], policy: Any) -> None:
        self._asked_to_end, self.policy = asked_to_end, policy
        self.initial_state = policy.initial_state

    def act(self, observations: Any, state: Any = (), **options: Any) -> Any:
        """Acts as the policy does."""
        self.check()
        return self.policy.act(observations, state, **options)

    def check(self) -> None:
        """Raises Interrupted once it is asked to end."""
        if self._asked_to_end():
            raise Interrupted


@contextlib.contextmanager
def interruptible() -> Iterator[Interruption]:
    """Yields what tells whether SIGINT or SIGTERM came once; a second one acts.

    So does SIGHUP, of a terminal that is closed, unless it is ignored (`nohup`); that
    comes twice by itself, from the shell and from the system, and never acts.

    Outside the main thread signals cannot be caught; there none ever comes.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before: dict[int, Any] = {}

    def ask(number: int, _: Any) -> None:
        if number not in closing:
            signal.signal(number, before[number])
        interruption.ask()

    closing = end_signals.hangups()
    for number in (signal.SIGINT, signal.SIGTERM, *closing):
        before[number] = signal.signal(number, ask)
    try:
        yield interruption
    finally:
        for caught, handler in before.items():
            signal.signal(caught, handler)


@contextlib.contextmanager
def settled() -> Iterator[None]:
    """Spares the garbage collector what is alive now.

    TensorFlow and Keras make a great many objects that stay; looking through them again
    and again costs a fast training loop a tenth of its time and more.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class Workers:
    """All workers of a strategy, seen from one of them.

    They do everything alike, in the same order: whatever one of them gathers, all
    gather, and nobody goes on before all have given. With any but a
    `MultiWorkerMirroredStrategy` there is one worker, who gathers its own.

    Args:
        strategy: on whose replicas to learn; None for that in scope, if any.

    Attributes:
        count: number of workers.
        rank: of this one, from 0; 0 is the chief, who writes the files.

    Raises:
        TypeError: if `strategy` is something else.
        ValueError: if it is not the one in scope, or one that nobody can learn under.
    """

    def __init__(self, strategy: tf.distribute.Strategy | None = None) -> None:
        ambient = tf.distribute.get_strategy() if tf.distribute.has_strategy() else None
        kinds, expected = tf.distribute.Strategy | None, "a tf.distribute.Strategy"
        arguments.check_type("Trainer", "strategy", strategy, kinds, expected)
        if strategy is not None and ambient not in (None, strategy):
            raise ValueError(
                "`Trainer`: `strategy` expected that in scope, since strategies do not "
                f"mix; got {type(strategy).__name__} within {type(ambient).__name__}"
            )
        self._strategy = ambient if strategy is None else strategy
        if isinstance(self._strategy, tf.distribute.ParameterServerStrategy):
            raise ValueError(
                "`Trainer`: `strategy` expected replicas that learn in step; got a "
                "ParameterServerStrategy; use MultiWorkerMirroredStrategy"
            )
        self.count, self.rank = _place(self._strategy)
        self._asked: Callable[[], bool] = lambda: False
        self._stopped = False
        self._gather = tf.function(
            self._gathered, autograph=False, reduce_retracing=True
        )

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes the files."""
        return self.rank == 0

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the strategy's scope, or what does nothing without one."""
        if self._strategy is None:
            return contextlib.nullcontext()
        return self._strategy.scope()

    def stop_when(self, asked: Callable[[], bool]) -> None:
        """Says who knows whether this worker is asked to stop."""
        self._asked, self._stopped = asked, False

    @property
    def stopped(self) -> bool:
        """Whether to stop: any worker was asked to, when trajectories met last."""
        return self._asked() if self.count == 1 else self._stopped

    def gather(self, data: bytes) -> list[bytes]:
        """Returns what each worker gave, by rank."""
        if self.count == 1:
            return [data]
        strategy: Any = self._strategy
        devices = strategy.extended.worker_devices
        # The replicas of a worker share the words of its block; its length comes first.
        share = 8 * len(devices)
        size = -(-(16 + len(data)) // share) * share
        block = np.array([len(data), size], np.int64).tobytes() + data
        words = np.frombuffer(block.ljust(size, b"\0"), np.int32)
        parts = np.split(words, len(devices))
        values = strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(
                parts[context.replica_id_in_sync_group % len(parts)]
            )
        )
        with self.scope():
            rest = self._gather(values).numpy().tobytes()
        given = []
        while rest:
            length, size = np.frombuffer(rest[:16], np.int64)
            given.append(rest[16 : 16 + length])
            rest = rest[size:]
        return given

    def _gathered(self, values: Any) -> tf.Tensor:
        return self._strategy.gather(values, axis=0)  # type: ignore[union-attr]

    def gather_values(self, values: Any) -> list[Any]:
        """Returns the plain values (see `typed_json`) each worker gave, by rank."""
        if self.count == 1:
            return [values]
        text = typed_json.to_json(values).encode("ascii")
        return [typed_json.from_json(each) for each in self.gather(text)]

    def own_of(self, saved: Sequence[Any], directory: str) -> Any:
        """Returns what this worker saved, by rank; raises if others saved the run."""
        if len(saved) != self.count:
            raise ValueError(
                f"`Trainer`: `strategy` expected the {len(saved)} worker(s) that saved "
                f"the run in {directory!r}; got {self.count}; start as many"
            )
        return saved[self.rank]

    def unless_broken_off(self, function: Callable[[], Any]) -> Any:
        """Returns what a function does, on all workers or on none.

        Raises:
            Interrupted: on all, if it did so on any.
        """
        try:
            found, broken_off = function(), False
        except Interrupted:
            found, broken_off = None, True
        if any(self.gather_values(broken_off)):
            raise Interrupted
        return found

    def join(self, own: records.Trajectory) -> records.Trajectory:
        """Returns the trajectories of all workers side by side; see `stopped` too."""
        if self.count == 1:
            return own
        leaves = [np.ascontiguousarray(leaf) for leaf in tf.nest.flatten(own)]
        data = [bytes([self._asked()]), *(leaf.tobytes() for leaf in leaves)]
        given = self.gather(b"".join(data))
        self._stopped = any(each[0] for each in given)
        joined, start = [], 1
        for leaf in leaves:
            stop = start + leaf.nbytes
            parts = [np.frombuffer(each[start:stop], leaf.dtype) for each in given]
            joined.append(
                np.concatenate([part.reshape(leaf.shape) for part in parts], axis=1)
            )
            start = stop
        return tf.nest.pack_sequence_as(own, joined)

    def check_alike(self, facts: Mapping[str, Any]) -> None:
        """Raises if the workers do not agree on `facts`, plain values by name."""
        first, *rest = self.gather_values(dict(facts))
        for rank, others in enumerate(rest, 1):
            unlike = _kept_arguments.differences(first, others)
            if unlike:
                told = (
                    f"{name}: {one} on worker 0, {other} on worker {rank}"
                    for name, (one, other) in unlike.items()
                )
                raise ValueError(
                    "`Trainer`: arguments expected alike on all workers; got "
                    f"{'; '.join(told)}; start all with the same arguments and folder"
                )

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Says in plain words that a worker is gone.

        Raises:
            ConnectionError: instead of TensorFlow's errors about lost peers.
        """
        try:
            yield
        except tf.errors.OpError as error:
            lost = isinstance(error, _LOST) or "Collective ops is aborted" in str(error)
            if self.count == 1 or not lost:
                raise
            raise ConnectionError(
                f"`Trainer`: expected all {self.count} workers to stay; got at least "
                f"one that is gone, as worker {self.rank} sees it; what was trained "
                "since the last checkpoint, if anything, is lost: start all workers "
                "again, and resume what is saved (`resume=True`, `--resume`)"
            ) from error


def _place(strategy: tf.distribute.Strategy | None) -> tuple[int, int]:
    """The number of workers, and the rank of this one."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 1, 0
    resolver = strategy.cluster_resolver
    cluster = resolver.cluster_spec().as_dict()
    tasks = [
        (kind, index)
        for kind in ("chief", "worker")
        for index in range(len(cluster.get(kind, ())))
    ]
    if not tasks:
        return 1, 0
    return len(tasks), tasks.index((resolver.task_type, resolver.task_id))
