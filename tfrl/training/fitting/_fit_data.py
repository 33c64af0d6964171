"""What both models do around `keras.Model.fit`: callbacks, replays as data, steps."""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import records
from tfrl.replay.sampling import dataset, prioritized, transitions
from tfrl.schedules import progress
from tfrl.training.fitting import _fit_checks

_OF_OPTIMIZERS = (
    keras.callbacks.LearningRateScheduler,
    keras.callbacks.ReduceLROnPlateau,
    keras.callbacks.SwapEMAWeights,
)


def drawn(
    where: str, replay: Any, batch_size: int | None, name: str, steps: int | None
) -> tf.data.Dataset:
    """Returns a replay as a dataset that draws each batch when a step asks for it."""
    _fit_checks.check_replay(where, replay, name, steps)
    size = 32 if batch_size is None else batch_size
    # Nothing is read ahead: what is drawn depends on what came before.
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return dataset.as_dataset(replay, size, prefetch=0).with_options(options)


def with_loss(logs: Mapping[str, float]) -> dict[str, float]:
    """Returns an agent's logs with a `loss`, which callbacks of Keras look at.

    Where the agent has none it is the sum of its losses, but for `mse_loss`, of which
    `BC` takes no gradient.

    Args:
        logs: scalars by name.

    Example:
        >>> with_loss({"critic_loss": 1.0, "policy_loss": 0.5, "entropy": 3.0})["loss"]
        1.5
    """
    losses = {k: x for k, x in logs.items() if k.endswith("_loss") and k != "mse_loss"}
    own = {"loss": sum(losses.values())} if losses else {}
    return {**own, **logs}


def read_experience(model: Any, iterator: Any, count: int) -> Iterator[tuple[Any, int]]:
    """Yields what Keras reads, and of how many batches it is; those alike are stacked.

    Args:
        model: that learns.
        iterator: of Keras.
        count: most batches.
    """
    given = []
    with contextlib.suppress(StopIteration, tf.errors.OutOfRangeError):
        for _ in range(count):
            given.append(_understood(model, next(iterator)))
    for _, group in itertools.groupby(given, _sizes):
        alike = list(group)
        if isinstance(alike[0], records.Trajectory):
            yield from ((each, 1) for each in alike)
        else:
            yield tf.nest.map_structure(lambda *x: tf.stack(x), *alike), len(alike)


def _understood(model: Any, data: Any) -> Any:
    """Returns one element of a data set as agents know it."""
    strategy = model.distribute_strategy

    def joined(value: Any) -> tf.Tensor:
        parts = strategy.experimental_local_results(value)
        return parts[0] if len(parts) == 1 else tf.concat(parts, 0)

    data = tf.nest.map_structure(joined, data)
    if type(data) is not tuple:
        return data
    x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
    if weights is not None:
        raise ValueError(
            "`AgentModel.fit`: `x` expected data without sample weights, which agents "
            "do not know; got some; leave them out"
        )
    return x if y is None else {"observations": x, "actions": y}


def _sizes(nest: Any) -> list[Any]:
    return [tuple(x.shape) for x in tf.nest.flatten(nest)]


def unpacked(data: Any) -> tuple[Any, Any]:
    """Splits what a dataset gives into the batch for the loss and its weights.

    Keras' tuples `(x,)`, `(x, y)` and `(x, y, sample_weight)` become `x` or `(x, y)`; a
    `Sample` of a replay has weights of its own; everything else is the batch itself.
    """
    if isinstance(data, transitions.Sample):
        return data, data.weights
    if type(data) is not tuple:
        return data, None
    x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
    if isinstance(x, transitions.Sample) and y is None and weights is None:
        return x, x.weights
    return (x if y is None else (x, y)), weights


def priorities(batch: Any, *told: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns indices and priorities that go from a step to a `PrioritizedReplay`."""
    for extra in told:
        found = extra.get("priorities") if isinstance(extra, Mapping) else None
        found = getattr(extra, "priorities", found)
        if found is not None:
            return batch.indices, found
    raise ValueError(
        "`FitModel.fit`: `loss_fn` expected to report `priorities` [B] for a "
        f"PrioritizedReplay; got {told[0]!r:.200}; report them, as `td_loss` does"
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
    model: Any, callbacks: Any, options: dict[str, Any], optimizers: str | None
) -> Iterator[list[keras.callbacks.Callback]]:
    """Lets callbacks restore and play before data is read, and let go of it all after.

    Args:
        model: that is to be trained.
        callbacks: as of `fit`.
        options: of `fit`, of which `initial_epoch` is set.
        optimizers: why no callback may set the model's optimizer, and what to do
            instead; None if it may.

    Yields:
        The callbacks.
    """
    found, where = listed(callbacks), f"{type(model).__name__}.fit"
    for callback in found:
        kinds = keras.callbacks.Callback, "callbacks of Keras"
        checks.check_type(where, "callbacks", callback, *kinds)
        sets = isinstance(callback, _OF_OPTIMIZERS)
        if optimizers and (sets or getattr(callback, "sets_rate", False)):
            why, remedy = optimizers.split("; ")
            raise TypeError(
                f"`{where}`: `callbacks` expected none that sets the optimizer of the "
                f"model, since {why}; got {type(callback).__name__}; {remedy}"
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


class StepCounter(keras.callbacks.Callback):
    """A callback that knows how many steps each call after a batch stands for.

    Keras calls once per execution of several steps, with the last one's number.
    """

    _epoch, _last = 0, -1
    # Steps of the epoch before, which Keras does not tell of data of unknown length.
    _before = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Counts steps anew."""
        self._before = self._last + 1 if epoch == self._epoch + 1 else 0
        self._epoch, self._last = epoch, -1

    def _progress(self, env_steps: int = 0) -> progress.Progress:
        """Returns how far the training of the model has come, in numbers."""
        if hasattr(self.model, "progress"):
            return self.model.progress()
        params = self.params or {}
        steps = params.get("steps") or self._before
        done = min((self._last + 1) / steps, 1.0) if steps else 0.0
        percent = min((self._epoch + done) / params.get("epochs", 1), 1.0)
        iterations = int(self.model.optimizer.iterations.numpy())
        return progress.Progress(percent, iterations, env_steps, env_steps)

    def _steps_passed(self, batch: int) -> int:
        """Returns how many steps were taken since the call before."""
        steps = self.params.get("steps")
        # The last execution of an epoch may be shorter than its number says.
        last = batch if steps is None else min(batch, steps - 1)
        count, self._last = last - self._last, last
        return count


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
        self._replay = replay
        shape = [model.steps_per_execution, batch_size]
        self._indices = tf.Variable(tf.zeros(shape, tf.int64), trainable=False)
        self._priorities = tf.Variable(tf.zeros(shape), trainable=False)
        self._written = tf.Variable(0, trainable=False, dtype=tf.int64)

    def write(self, indices: tf.Tensor, priorities: tf.Tensor) -> None:
        """Writes down what one step told; part of the step's graph."""
        row = [[self._written]]
        self._indices.scatter_nd_update(row, [tf.cast(indices, tf.int64)])
        self._priorities.scatter_nd_update(row, [tf.cast(priorities, tf.float32)])
        self._written.assign_add(1)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        # The oldest first: of a step that comes twice the last one counts.
        count = int(self._written)
        told = (x.numpy()[:count].ravel() for x in (self._indices, self._priorities))
        self._replay.update_priorities(*told)
        self._written.assign(0)


@dataclasses.dataclass
class Asked:
    """What a `fit` was asked for, of which a run keeps what it can."""

    x: Any
    batch_size: int | None
    epochs: int
    steps_per_epoch: int | None
    callbacks: list[keras.callbacks.Callback]


class OwnFit(keras.Model):
    """A model whose `fit` takes replays, and callbacks that restore what was saved."""

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        **options: Any,
    ) -> keras.callbacks.History:
        """Trains; see `keras.Model.fit`, of which these are the arguments.

        Args:
            x: data as Keras takes it, or as the class says.
            y: as of Keras.
            batch_size: as of Keras; of a replay too, 32 by default.
            epochs: as of Keras.
            verbose: as of Keras.
            callbacks: as of Keras. What a `RunCheckpoint` among them saved is restored
                before anything else.
            **options: as of Keras: `steps_per_epoch`, `initial_epoch` and so on.

        Returns:
            Keras' record of the logs of all epochs.

        Raises:
            TypeError: if data or a callback are not for such a model.
            ValueError: if a replay comes without `steps_per_epoch` or with nothing to
                draw, an option is off, or the model is of a strategy under which Keras
                cannot `fit`.
        """
        _fit_checks.check_strategy(self.distribute_strategy, type(self).__name__)
        counts = {"batch_size": batch_size, "epochs": epochs, **options}
        _fit_checks.check_counts(f"{type(self).__name__}.fit", counts)
        self._check_fit(y, options)
        begin: Any = keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, _: self._begin_epoch(
                epoch, epochs, begin.params["steps"] or 0
            )
        )
        steps = options.get("steps_per_epoch")
        self.asked = Asked(x, batch_size, epochs, steps, listed(callbacks))
        with (
            contextlib.ExitStack() as undo,
            prepared(self, callbacks, options, self._lone_optimizer) as found,
        ):
            undo.callback(setattr, self, "asked", None)
            read = self._reading(x, batch_size, options)
            with read as (x, batch_size, own):
                if isinstance(x, tf.data.Dataset):
                    _fit_checks.check_spec(self, x)
                    options.setdefault("shuffle", False)  # Keras warns that it does not
                every = [begin, *(each for each in own if each not in found), *found]
                return super().fit(x, y, batch_size, epochs, verbose, every, **options)

    def save(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Saves all of the model; see `keras.Model.save`.

        Args:
            filepath: as in Keras, with the suffix `.keras`.
            *args: as in Keras.
            **kwargs: as in Keras.

        Raises:
            ValueError: as `get_config`, or for an HDF5 file, before a file is touched.
        """
        if str(filepath).endswith((".h5", ".hdf5")):
            raise ValueError(
                f"`{type(self).__name__}.save`: `filepath` expected to end in .keras, "
                "as Keras' old HDF5 files do not hold all of such a model; got "
                f"{str(filepath)!r}; `save_weights` writes .weights.h5"
            )
        self.get_config()
        super().save(filepath, *args, **kwargs)

    # What `fit` was asked for, while it runs.
    asked: Asked | None = None

    # Why no callback may set the optimizer, and what to do instead; None if it may.
    _lone_optimizer: str | None = None

    def _check_fit(self, y: Any, options: Mapping[str, Any]) -> None:
        """Raises for arguments of `fit` that do not go with the model."""
        raise NotImplementedError

    def _begin_epoch(self, epoch: int, epochs: int, steps: int) -> None:
        """Takes note of how far the training is; 0 steps where they are unknown."""
        raise NotImplementedError

    def _reading(
        self, x: Any, batch_size: int | None, options: dict[str, Any]
    ) -> contextlib.AbstractContextManager[tuple[Any, int | None, list[Any]]]:
        """Returns data and batch size for Keras, and callbacks that go with them."""
        raise NotImplementedError
