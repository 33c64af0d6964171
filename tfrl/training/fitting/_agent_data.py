"""Data sets of Keras as experience of an `AgentModel`."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from tfrl.core import records

_NOT_OF_AGENTS = "validation_data", "validation_split", "class_weight", "sample_weight"


def check_options(options: Mapping[str, Any]) -> None:
    """Raises if `fit` is asked for what agents decide."""
    for name in _NOT_OF_AGENTS:
        value = options.get(name)
        if value is not None and not (isinstance(value, float) and value == 0.0):
            raise ValueError(
                f"`AgentModel.fit`: `{name}` expected nothing, as agents say what they "
                "learn, and nothing of other data; got some; leave it out (to judge "
                "the agent, add `tfrl.training.Evaluate` to the callbacks)"
            )


def read(model: Any, iterator: Any, count: int) -> Iterator[tuple[Any, int]]:
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
