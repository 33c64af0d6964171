"""Keras' `Normalization`, which computes with constants made of its variables.

Keras makes them when it adapts the layer, builds it, or loads it from a file. Whoever
gives its variables other values must have them made again: nothing else tells.
"""

import contextlib
from collections.abc import Iterator, Sequence

import keras


def adapted_layers(layer: keras.layers.Layer) -> list[keras.layers.Normalization]:
    """Returns the layers within a layer whose moments are variables.

    Args:
        layer: built or not.

    Example:
        >>> model = keras.Sequential([keras.Input([2]), keras.layers.Normalization()])
        >>> len(adapted_layers(model)), adapted_layers(keras.layers.Dense(1))
        (1, [])
    """
    return [
        each
        for each in layer._flatten_layers()
        if isinstance(each, keras.layers.Normalization)
        and each.built
        and each.input_mean is None
    ]


def renew(layer: keras.layers.Layer) -> None:
    """Makes the constants of the layers within a layer anew, outside of graphs.

    Args:
        layer: whose variables have other values now.

    Example:
        >>> layer = keras.layers.Normalization()
        >>> layer.build((None, 1))
        >>> _ = layer.adapt_mean.assign([2.0])
        >>> renew(layer)
        >>> layer(np.array([[5.0]])).numpy()
        array([[3.]], dtype=float32)
    """
    for each in adapted_layers(layer):
        each.finalize_state()


@contextlib.contextmanager
def following(layers: Sequence[keras.layers.Normalization]) -> Iterator[None]:
    """Lets layers compute with what their variables are within a `StatelessScope`.

    Args:
        layers: what `adapted_layers` returned.

    Example:
        >>> layer = keras.layers.Normalization()
        >>> layer.build((None, 1))
        >>> pair = layer.adapt_mean, tf.constant([2.0])
        >>> with keras.StatelessScope([pair]), following([layer]):
        ...     layer(np.array([[5.0]])).numpy()
        array([[3.]], dtype=float32)
        >>> layer(np.array([[5.0]])).numpy()
        array([[5.]], dtype=float32)
    """
    before = [(each, each.mean, each.variance) for each in layers]
    try:
        for each in layers:
            each.finalize_state()
        yield
    finally:
        for each, mean, variance in before:
            each.mean, each.variance = mean, variance
