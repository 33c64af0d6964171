"""Which compiler makes the fastest code of an update: XLA, or TensorFlow's own."""

import math
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

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
        >>> by_xla(tfrl.agents.TrainState.create(image))
        False
    """
    models = [x for x in _models(args) if isinstance(x, keras.layers.Layer)]
    return not _on_cpu() or not any(math.isinf(row_work(x)) for x in models)


def _models(nest: Any) -> list[Any]:
    if hasattr(nest, "model_def"):
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


def row_work(layer: keras.layers.Layer) -> float:
    """Returns multiplications per row, forwards; of convolutions infinity.

    Args:
        layer: a built layer.

    Example:
        >>> row_work(keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]))
        10.0
    """
    known = _known.get(layer)
    if known is None:
        # Convolutions of every kind have one.
        convolutional = any(hasattr(x, "kernel_size") for x in _layers(layer))
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
