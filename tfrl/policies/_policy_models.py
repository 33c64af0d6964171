"""Functional Keras models of what policies learned, with their normalization."""

from typing import Any

import keras
import tensorflow as tf

from tfrl.policies import (
    _keras_models,
    _masks,
    _observation_kinds,
    value_distributions,
)
from tfrl.stats import moments

_SERIALIZABLE = keras.saving.register_keras_serializable(package="tfrl")


@_SERIALIZABLE
class ObservationNormalization(keras.layers.Layer):
    """Normalizes as `RunningMoments` do, by moments that do not change any more.

    Args:
        **kwargs: of `keras.layers.Layer`.

    Example:
        >>> layer = ObservationNormalization()
        >>> layer.build((None, 1))
        >>> layer.set_weights([np.array([2.0]), np.array([4.0]), np.array(9.0)])
        >>> layer(np.array([[6.0]], np.float32)).numpy().round(3)
        array([[2.]], dtype=float32)
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)

    def build(self, input_shape: Any) -> None:
        """Creates the moments for inputs of `[B, *shape]`."""
        self.mean, self.variance, self.count = (
            self.add_weight(
                shape=shape,
                initializer="zeros",
                trainable=False,
                dtype="float64",
                autocast=False,
                name=name,
            )
            for name, shape in (
                ("mean", input_shape[1:]),
                ("variance", input_shape[1:]),
                ("count", ()),
            )
        )

    def call(self, inputs: Any) -> tf.Tensor:
        """Normalizes `[B, *shape]`."""
        known = moments.RunningMoments(
            *(tf.convert_to_tensor(x) for x in (self.count, self.mean, self.variance))
        )
        return known.normalize(inputs)

    def compute_output_spec(self, inputs: Any) -> keras.KerasTensor:
        """The shape and dtype of the inputs."""
        return keras.KerasTensor(inputs.shape, inputs.dtype)


def check_takes_raw(where: str, network: keras.layers.Layer) -> None:
    """Raises a ValueError if a network normalizes observations by itself.

    Args:
        where: the asking class, for the message.
        network: of a policy that is to normalize them.
    """
    if _keras_models.has_layer(network, ObservationNormalization):
        raise ValueError(
            f"`{where}`: `normalize_observations` expected False where `network` "
            "normalizes them by itself, as what `to_keras` returns does; got True; "
            "leave it out, and the moments stay those of the network"
        )


def keras_policy(
    network: keras.Model,
    kinds: Any,
    observation_moments: Any,
    name: str | None = None,
    units: int | None = None,
    as_network: bool = False,
) -> keras.Model:
    """Returns a functional model from observations to what a network makes of them.

    Args:
        network: which the model takes over.
        kinds: description of its observations.
        observation_moments: as a policy has them.
        name: of the model; "policy" if None.
        units: size of the memory that the network takes beside the observations.
        as_network: without masks, and what means are made of in their place.

    Returns:
        The model; see `NetworkPolicy.to_keras`.

    Raises:
        ValueError: if it is asked for `as_network` of implicit quantiles.

    Example:
        >>> network = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
        >>> keras_policy(network, ["flat", [3]], ()).input_shape
        (None, 3)
    """
    shape = network.get_build_config()["input_shape"]
    memory = () if units is None else (keras.Input((units,), name="memory"),)
    inputs = _observation_kinds.inputs(kinds, shape[0] if memory else shape)
    leaves = tf.nest.flatten(inputs)
    if observation_moments:
        leaves = [
            _normalization(kept)(leaf) if kept else leaf
            for kept, leaf in zip(observation_moments, leaves, strict=True)
        ]
    taken = tf.nest.pack_sequence_as(inputs, leaves)
    if as_network and isinstance(network, _masks.MaskedNetwork):
        (taken, _), (inputs, _) = network.parted(taken), network.parted(inputs)
        network = network.network
    if as_network and isinstance(network, value_distributions._Around):
        network = _within(network)
    outputs = network((taken, *memory) if memory else taken)
    inputs = (inputs, *memory) if memory else inputs
    return keras.Model(inputs, outputs, name="policy" if name is None else name)


def _within(network: Any) -> keras.layers.Layer:
    """The network that others make distributions of, if it has all the weights."""
    if isinstance(network, value_distributions.ImplicitQuantiles):
        raise ValueError(
            "`to_keras`: `as_network` expected False of implicit quantiles, as layers "
            "behind the features are no part of a `network=`; got True; go on with "
            "the agent as it is, such as by `trainer.agent = agent`"
        )
    return network.network


def _normalization(known: moments.RunningMoments) -> ObservationNormalization:
    layer = ObservationNormalization()
    layer.build((None, *known.mean.shape))
    layer.set_weights([known.mean, known.variance, known.count])
    return layer
