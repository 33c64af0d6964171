"""Networks of nothing but plain dense layers, which NumPy computes as Keras does."""

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
