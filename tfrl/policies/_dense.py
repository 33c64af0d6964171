"""Dense layers that NumPy computes as Keras does, and deviations beside a network."""

from collections.abc import Sequence
from typing import Any

import keras

from tfrl.host import networks


def layers_of(network: keras.layers.Layer) -> list[Any] | None:
    """Returns the dense layers that a Sequential is, first to last.

    Args:
        network: a Keras layer or model.

    Returns:
        The layers; None if it is something else or more, be it a subclass.

    Example:
        >>> network = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
        >>> len(layers_of(network))
        1
    """
    if type(network) is not keras.Sequential:
        return None
    return plain([x for x in network.layers if type(x) is not keras.layers.Flatten])


def plain(layers: Sequence[Any]) -> list[Any] | None:
    """Returns built layers if each is what its class and activation say, else None.

    Args:
        layers: of a network, first to last.

    Example:
        >>> layer = keras.layers.Dense(2, activation=keras.layers.LeakyReLU(0.3))
        >>> layer.build((None, 3))
        >>> plain([layer]) is None
        True
    """
    known = [getattr(keras.activations, name) for name in networks.ACTIVATIONS]
    exact = [
        type(x) is keras.layers.Dense
        and x.built
        and x.compute_dtype == "float32"
        and any(x.activation is function for function in known)
        and not x.lora_enabled
        for x in layers
    ]
    return list(layers) if layers and all(exact) else None


def log_std_of(network: keras.layers.Layer, n: int, initial: float) -> keras.Variable:
    """Makes the log standard deviations that are learned beside a network.

    Args:
        network: a layer that is being built.
        n: how many.
        initial: their value.

    Returns:
        A float32 weight of the layer.

    Example:
        >>> layer = keras.layers.Layer()
        >>> log_std_of(layer, 2, initial=-1.0).numpy().tolist()
        [-1.0, -1.0]
    """
    return network.add_weight(
        shape=(n,),
        initializer=keras.initializers.Constant(initial),
        name="log_std",
        dtype="float32",
        autocast=False,
    )


def with_log_std(parameters: Any, log_std: Any) -> Any:
    """Appends log standard deviations to each row of parameters.

    Args:
        parameters: `[B, n]`.
        log_std: `[m]`; None for none.

    Returns:
        `[B, n + m]`.

    Example:
        >>> with_log_std(keras.ops.zeros([1, 1]), keras.ops.ones([2])).numpy().tolist()
        [[0.0, 1.0, 1.0]]
    """
    if log_std is None:
        return parameters
    shape = [keras.ops.shape(parameters)[0], log_std.shape[0]]
    rows = keras.ops.broadcast_to(log_std, shape)
    return keras.ops.concatenate([parameters, rows], axis=-1)
