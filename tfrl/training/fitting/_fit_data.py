"""How replays become data for `keras.Model.fit`, and what is done after its steps."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl.replay.sampling import dataset, prioritized, uniform

Replay = uniform.UniformReplay | prioritized.PrioritizedReplay


def drawn(
    where: str, replay: Any, batch_size: int | None, name: str, steps: int | None
) -> tf.data.Dataset:
    """Returns a replay as a dataset that draws each batch when a step asks for it."""
    if steps is None:
        raise ValueError(
            f"`{where}`: `{name}` expected a number beside a replay, which has no end; "
            "got None; say how many batches"
        )
    if not replay.size:
        remedy = "give `Collect(warm_up_steps=...)` at least a batch, or "
        raise ValueError(
            f"`{where}`: a replay expected something to draw before the first step; "
            f"got nothing; {remedy if where == 'FitModel.fit' else ''}add steps to the "
            "store"
        )
    size = 32 if batch_size is None else batch_size
    return in_step(dataset.as_dataset(replay, size, prefetch=0))


def understood(
    model: Any, x: Any, batch_size: int | None, options: dict[str, Any]
) -> tuple[Any, int | None, dict[str, Any]]:
    """Returns data, batch size and further arguments of `fit` as Keras takes them."""
    where, options = "FitModel.fit", dict(options)
    if isinstance(x, Replay):
        steps = options.get("steps_per_epoch")
        x, batch_size = drawn(where, x, batch_size, "steps_per_epoch", steps), None
    elif hasattr(x, "minibatches"):
        x = x.minibatches(model)
    validation = options.get("validation_data")
    if isinstance(validation, Replay):
        size = options.pop("validation_batch_size", None)
        steps = options.get("validation_steps")
        validation = drawn(where, validation, size, "validation_steps", steps)
        options["validation_data"] = validation
    if isinstance(x, tf.data.Dataset):
        check_spec(model, x)
        options.setdefault("shuffle", False)  # Keras warns that it does not
    return x, batch_size, options


def in_step(data: tf.data.Dataset) -> tf.data.Dataset:
    """Keeps a dataset from reading ahead: what is drawn depends on what came before."""
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return data.with_options(options)


def check_weights(where: str, y: Any, options: Mapping[str, Any]) -> None:
    """Raises for sample weights that Keras would pass over, as there is no `y`."""
    if options.get("sample_weight") is not None and y is None:
        raise ValueError(
            f"`{where}`: `sample_weight` expected None without `y`, beside which alone "
            "Keras hands weights on; got some; give a dataset of (x, y, weights)"
        )


def check_strategy(strategy: tf.distribute.Strategy, where: str = "FitModel") -> None:
    """Raises if Keras cannot `fit` a model of a strategy."""
    for name in ("MultiWorkerMirroredStrategy", "ParameterServerStrategy"):
        if isinstance(strategy, getattr(tf.distribute, name)):
            raise ValueError(
                f"`{where}`: expected a strategy of one process; got {name}, under "
                "which `fit` of Keras 3 fails; use MirroredStrategy, or the loop of "
                "`tfrl.training.Trainer`, which takes several workers"
            )


def check_spec(model: keras.Model, data: tf.data.Dataset) -> None:
    """Raises if Keras cannot split what a dataset gives among replicas."""
    count = model.distribute_strategy.num_replicas_in_sync
    for spec in tf.nest.flatten(data.element_spec) if count > 1 else []:
        if spec.dtype == tf.bool:
            raise ValueError(
                "`FitModel.fit`: `x` expected no bool beside a strategy, since Keras "
                f"averages a batch over replicas to look at it; got {spec}; cast it"
            )
        size = spec.shape[0] if spec.shape.rank else None
        if size is not None and size % count:
            raise ValueError(
                f"`FitModel.fit`: `x` expected batches of a multiple of {count}, the "
                f"number of replicas; got {size}; change the batch size"
            )


def listed(callbacks: Any) -> list[keras.callbacks.Callback]:
    """Returns what `fit` was given as callbacks, as a list."""
    if callbacks is None:
        return []
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return list(callbacks.callbacks)
    return list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks]


@contextlib.contextmanager
def prepared(
    model: Any, callbacks: Any, options: dict[str, Any]
) -> Iterator[list[keras.callbacks.Callback]]:
    """Lets callbacks restore and play before data is read, and let go of it all after.

    Args:
        model: that is to be trained.
        callbacks: as of `fit`.
        options: of `fit`, of which `initial_epoch` is set.

    Yields:
        The callbacks.
    """
    found = listed(callbacks)
    for callback in found:
        if not isinstance(callback, keras.callbacks.Callback):
            raise TypeError(
                f"`{type(model).__name__}.fit`: `callbacks` expected callbacks of "
                f"Keras; got {callback!r:.80}"
            )
    try:
        for callback in found:
            before = getattr(callback, "before_fit", None)
            first = (None if before is None else before(model)) or 0
            options["initial_epoch"] = max(first, options.get("initial_epoch", 0))
        yield found
    finally:
        for callback in found:
            getattr(callback, "after_fit", lambda: None)()


class StepCounter:
    """Tells how many steps a batch hook of a callback stands for.

    Keras calls the hooks once per execution of several steps, with the last one's
    number.
    """

    def __init__(self) -> None:
        self._last = -1

    def begin_epoch(self) -> None:
        """An epoch begins."""
        self._last = -1

    def passed(self, batch: int, params: dict[str, Any] | None) -> int:
        """Returns how many steps were taken since the hook was called before.

        Args:
            batch: the number Keras gives the hook.
            params: of the callback.
        """
        steps = (params or {}).get("steps")
        # The last execution of an epoch may be shorter than its number says.
        last = batch if steps is None else min(batch, steps - 1)
        count, self._last = last - self._last, last
        return count


class EpochBeginning(keras.callbacks.Callback):
    """Tells how far an epoch is in the training.

    Args:
        begin: called with the number of an epoch, that of all epochs, and the steps in
            each, 0 where that is unknown.
    """

    def __init__(self, begin: Callable[[int, int, int], None]) -> None:
        super().__init__()
        self._begin = begin

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        steps = self.params["steps"]
        self._begin(epoch, self.params["epochs"], 0 if steps is None else steps)


class PriorityLedger(keras.callbacks.Callback):
    """Carries priorities out of compiled steps to a `PrioritizedReplay`.

    A row of its variables holds what one step of an execution of several told.

    Args:
        model: which `fit` trains.
        replay: where the batches come from.
        batch_size: of these.
    """

    def __init__(
        self,
        model: keras.Model,
        replay: prioritized.PrioritizedReplay,
        batch_size: int,
    ) -> None:
        super().__init__()
        if model.distribute_strategy.num_replicas_in_sync > 1:
            raise ValueError(
                "`FitModel.fit`: `x` expected to be no PrioritizedReplay on several "
                "replicas; got one; use UniformReplay, or a loop of your own"
            )
        self._replay, self._steps = replay, StepCounter()
        shape = [model.steps_per_execution, batch_size]
        self._indices = tf.Variable(tf.zeros(shape, tf.int64), trainable=False)
        self._priorities = tf.Variable(tf.zeros(shape), trainable=False)
        self._written = tf.Variable(0, trainable=False, dtype=tf.int64)

    def write(self, indices: tf.Tensor, priorities: tf.Tensor) -> None:
        """Writes down what one step told; part of the step's graph."""
        row = [[self._written % self._indices.shape[0]]]
        self._indices.scatter_nd_update(row, [tf.cast(indices, tf.int64)])
        self._priorities.scatter_nd_update(row, [tf.cast(priorities, tf.float32)])
        self._written.assign_add(1)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        self._steps.begin_epoch()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        indices, priorities = self._indices.numpy(), self._priorities.numpy()
        written, count = int(self._written), self._steps.passed(batch, self.params)
        # The oldest first: of a step that comes twice the last one counts.
        rows = np.arange(written - count, written) % len(indices)
        self._replay.update_priorities(indices[rows].ravel(), priorities[rows].ravel())
