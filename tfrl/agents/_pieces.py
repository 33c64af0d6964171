"""How updates are compiled, and cut into calls that return within about a second.

TensorFlow hands nothing back to Python, neither Ctrl-C nor SIGTERM, while a call of a
compiled function lasts. A brief update is therefore one call; a long one is several,
of which each takes as many gradient steps as fit into a fraction of a second. The steps
are those of one compiled loop however they are cut, so that the results are the same to
the bit.
"""

import math
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfrl.agents import _replicated, train_state

# Floating-point operations that no processor takes a second for, and what a step costs
# besides those of its network.
_BRIEF_WORK = 3e9
_STEP_WORK = 1e6
_PIECE_SECONDS = 0.3
# The fewest rows of a call that only looks; so many images take some 50 milliseconds.
_FORWARD_ROWS = 128
_CONVOLUTIONS = (
    keras.layers.Conv1D,
    keras.layers.Conv2D,
    keras.layers.Conv3D,
    keras.layers.Conv1DTranspose,
    keras.layers.Conv2DTranspose,
    keras.layers.Conv3DTranspose,
    keras.layers.DepthwiseConv1D,
    keras.layers.DepthwiseConv2D,
    keras.layers.SeparableConv1D,
    keras.layers.SeparableConv2D,
)
# Looking through the layers takes longer than many an update should wait.
_known: weakref.WeakKeyDictionary[keras.layers.Layer, float] = (
    weakref.WeakKeyDictionary()
)


def by_xla(*args: Any) -> bool:
    """Whether XLA makes the fastest code of a function of `TrainState`s.

    It does of dense layers, and of everything on GPUs and TPUs. Its convolutions on a
    CPU take five to ten times as long as those of a plain graph.

    Args:
        *args: of the function; the states are looked for in them.

    Returns:
        False for a network with a convolution on a CPU.

    Example:
        >>> image = keras.Sequential(
        ...     [keras.Input((4, 4, 1)), keras.layers.Conv2D(2, 2)])
        >>> by_xla(train_state.TrainState.create(image))
        False
    """
    return not _on_cpu() or not any(map(_is_convolutional, _models(args)))


def _models(nest: Any) -> list[Any]:
    if isinstance(nest, train_state.TrainState):
        return [nest.model_def]
    if hasattr(nest, "__tf_flatten__"):
        nest = nest.__tf_flatten__()[1]
    elif isinstance(nest, Mapping):
        nest = list(nest.values())
    elif not isinstance(nest, list | tuple):
        return []
    return [model for part in nest for model in _models(part)]


def _on_cpu() -> bool:
    if tf.distribute.has_strategy():
        devices = tf.distribute.get_strategy().extended.worker_devices
        return tf.DeviceSpec.from_string(devices[0]).device_type == "CPU"
    return all(x.device_type == "CPU" for x in tf.config.list_logical_devices())


def _is_convolutional(model: Any) -> bool:
    return isinstance(model, keras.layers.Layer) and math.isinf(_row_work(model))


def _row_work(layer: keras.layers.Layer) -> float:
    """Multiplications per row, forwards; with convolutions infinity: nobody counts."""
    known = _known.get(layer)
    if known is None:
        convolutional = any(isinstance(x, _CONVOLUTIONS) for x in _layers(layer))
        known = math.inf if convolutional else float(layer.count_params())
        _known[layer] = known
    return known


def _layers(model: Any) -> Iterator[keras.layers.Layer]:
    """All layers of a model, itself included."""
    rest, seen = [model], set()
    while rest:
        item = rest.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, keras.layers.Layer):
            yield item
            rest.extend(vars(item).values())
        elif isinstance(item, Mapping):
            rest.extend(item.values())
        elif isinstance(item, list | tuple):
            rest.extend(item)


class Work(NamedTuple):
    """What an update costs, from sizes alone: every worker finds the same.

    Attributes:
        state: `TrainState` of the network.
        n_steps: gradient steps.
        n_rows: of each.

    Example:
        >>> dense = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        >>> Work(train_state.TrainState.create(dense), 100, 64).is_brief
        True
    """

    state: train_state.TrainState
    n_steps: int
    n_rows: int

    @property
    def is_brief(self) -> bool:
        """Whether the update is over in much less than a second, in one call."""
        return self.n_steps <= self.n_brief_steps

    @property
    def n_brief_steps(self) -> int:
        """The most steps that are; 0 where there are convolutions."""
        return int(_BRIEF_WORK / (6 * self._row_work * self.n_rows + _STEP_WORK))

    @property
    def n_forward_rows(self) -> int:
        """Rows of which the outputs are computed in much less than a second."""
        return max(_FORWARD_ROWS, int(_BRIEF_WORK / (2 * self._row_work + 1)))

    @property
    def _row_work(self) -> float:
        model = self.state.model_def
        if isinstance(model, keras.layers.Layer):
            return _row_work(model)
        return float(
            sum(math.prod(x.shape) for x in tf.nest.flatten(self.state.params))
        )


def in_pieces(
    work: Work, advance: Callable[[Any, tf.Tensor], Any], progress: Any
) -> Any:
    """Takes the steps of an update in calls of a fraction of a second each.

    How many steps a call takes is measured. Replicas may have to meet in every step, so
    that all workers must cut alike: there it follows from the sizes.

    Args:
        work: what the update costs.
        advance: from `progress` and a number of steps to the progress after as many
            steps, counted from the first, or when it has come to its end before.
        progress: record with `step`, the number of steps taken, and `stop`, whether no
            more are to be taken.

    Returns:
        The last progress.

    Example:
        >>> class Count(NamedTuple):
        ...     step: tf.Tensor
        ...     stop: tf.Tensor
        >>> dense = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        >>> work = Work(train_state.TrainState.create(dense), 100, 64)
        >>> int(in_pieces(work, lambda count, until: count._replace(step=until),
        ...               Count(tf.constant(0), tf.constant(False))).step)
        100
    """
    measured = _replicated.n_replicas() == 1
    size = 1 if measured else max(1, work.n_brief_steps)
    done = int(progress.step)
    while done < work.n_steps and not bool(progress.stop):
        start = time.perf_counter()
        progress = advance(progress, tf.constant(min(done + size, work.n_steps)))
        before, done = done, int(progress.step)
        if measured:
            seconds = (time.perf_counter() - start) / max(1, done - before)
            size = max(1, min(4 * size, int(_PIECE_SECONDS / seconds)))
    return progress
