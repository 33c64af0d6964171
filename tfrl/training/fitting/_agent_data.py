"""Where the experience comes from that an `AgentModel` learns from in a step."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl.core import records
from tfrl.replay.sampling import prioritized, transitions
from tfrl.training.fitting import _fit_data, fit_callbacks, rollouts

_OF_OPTIMIZERS = (
    keras.callbacks.LearningRateScheduler,
    keras.callbacks.ReduceLROnPlateau,
    keras.callbacks.SwapEMAWeights,
)


class Replayed:
    """Minibatches drawn from a replay when the step begins, K at a time.

    Args:
        replay: that callbacks fill.
        batch_size: of a minibatch.
    """

    def __init__(self, replay: _fit_data.Replay, batch_size: int | None) -> None:
        if not replay.size:
            raise ValueError(
                "`AgentModel.fit`: `x` expected a replay with something to draw before "
                "the first step; got nothing; give `Collect(warm_up_steps=...)` at "
                "least a batch, or add steps to the store"
            )
        self._replay, self._size = replay, 32 if batch_size is None else batch_size
        self._indices: Any = None

    def taken(self, model: Any, count: int) -> Iterator[tuple[Any, int]]:  # noqa: ARG002
        """Yields what the agent is to learn from, and of how many batches it is."""
        sample = self._replay.sample(count * self._size)
        self._indices = sample.indices
        yield (
            tf.nest.map_structure(
                lambda x: np.reshape(x, (count, self._size, *x.shape[1:])), sample
            ),
            count,
        )

    def learned(self, priorities: Any) -> None:
        """Takes the priorities that the agent gave to what was taken last."""
        if not isinstance(self._replay, prioritized.PrioritizedReplay):
            return
        if priorities is None:
            raise ValueError(
                "`AgentModel.fit`: `x` expected an agent whose info has `priorities` "
                "[K, B] beside a PrioritizedReplay; got none; take a UniformReplay"
            )
        self._replay.update_priorities(self._indices, np.ravel(np.asarray(priorities)))


class Played:
    """A new trajectory for each step.

    Args:
        source: the `Rollouts`.
    """

    def __init__(self, source: rollouts.Rollouts) -> None:
        self._source = source

    def taken(self, model: Any, count: int) -> Iterator[tuple[Any, int]]:
        """Yields as `Replayed.taken`."""
        for _ in range(count):
            yield self._source.trajectory(model), 1

    def learned(self, priorities: Any) -> None:
        """Does nothing."""


class Read:
    """What Keras reads from a data set; batches of one size are stacked.

    Args:
        iterator: of Keras.
    """

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def taken(self, model: Any, count: int) -> Iterator[tuple[Any, int]]:
        """Yields as `Replayed.taken`.

        Raises:
            StopIteration: if there is nothing left.
        """
        read = []
        for _ in range(count):
            try:
                read.append(_understood(model, next(self._iterator)))
            except (StopIteration, tf.errors.OutOfRangeError):
                break
        while read:
            alike = [read.pop(0)]
            is_trajectory = isinstance(alike[0], records.Trajectory)
            while read and not is_trajectory and _sizes(read[0]) == _sizes(alike[0]):
                alike.append(read.pop(0))
            if is_trajectory:
                yield alike[0], 1
            else:
                yield tf.nest.map_structure(lambda *x: tf.stack(x), *alike), len(alike)

    def learned(self, priorities: Any) -> None:
        """Does nothing."""


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


def check_options(options: dict[str, Any]) -> None:
    """Raises if `fit` is asked for what agents decide."""
    names = ("validation_data", "validation_split", "class_weight", "sample_weight")
    for name in names:
        if name in options and not _is_nothing(options[name]):
            raise ValueError(
                f"`AgentModel.fit`: `{name}` expected nothing, as agents say what they "
                "learn, and nothing of other data; got some; leave it out (to judge "
                "the agent, add `tfrl.training.Evaluate` to the callbacks)"
            )


def check_callbacks(callbacks: list[Any]) -> None:
    """Raises if a callback is for a model with an optimizer of Keras."""
    for each in callbacks:
        follows = isinstance(each, fit_callbacks.FollowSchedule) and each.sets_rate
        if follows or isinstance(each, _OF_OPTIMIZERS):
            raise TypeError(
                "`AgentModel.fit`: `callbacks` expected such as do without an "
                f"optimizer of Keras, since the agent has its own; got "
                f"{type(each).__name__}; give the agent's hyper-parameters schedules"
            )


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value == 0.0)


def source_of(
    model: Any, x: Any, batch_size: int | None, options: dict[str, Any]
) -> tuple[Any, Any, int | None, dict[str, Any]]:
    """Returns a source, or None for Keras' own, and what Keras is to be given."""
    if isinstance(x, _fit_data.Replay | rollouts.Rollouts):
        if options.get("steps_per_epoch") is None:
            raise ValueError(
                "`AgentModel.fit`: `steps_per_epoch` expected a number beside "
                f"{type(x).__name__}, which has no end; got None; say how many steps"
            )
        is_replay = isinstance(x, _fit_data.Replay)
        source = Replayed(x, batch_size) if is_replay else Played(x)
        # Keras counts steps by it, and reads none of it.
        n_replicas = model.distribute_strategy.num_replicas_in_sync
        nothing = tf.data.Dataset.from_tensors(tf.zeros([n_replicas])).repeat()
        return source, nothing, None, {**options, "shuffle": False}
    if isinstance(x, tf.data.Dataset):
        _fit_data.check_spec(model, x)
        options = {"shuffle": False, **options}
    if isinstance(x, transitions.Sample | records.Trajectory):
        raise TypeError(
            "`AgentModel.fit`: `x` expected data of several steps; got one "
            f"{type(x).__name__}; take `model.agent.update`, or put it into a "
            "tf.data.Dataset"
        )
    return None, x, batch_size, options
