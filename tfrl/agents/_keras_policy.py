"""A policy as a functional Keras model, its normalizer included."""

from typing import Any

import keras
import tensorflow as tf

from tfrl.agents import networks
from tfrl.stats import moments

_SERIALIZABLE = keras.saving.register_keras_serializable(package="tfrl")
_DTYPES = {"flat": "float32", "image": "uint8", "one_hot": "int64"}


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


def keras_policy(
    network: networks.ActorCritic, observation_moments: Any, name: str | None = None
) -> Any:
    """Returns a functional model from observations to `(parameters, values)`.

    Args:
        network: which the model takes over.
        observation_moments: as an `ActorCriticPolicy` has them.
        name: of the model; "policy" if None.

    Returns:
        The model; see `ActorCriticPolicy.to_keras`.

    Example:
        >>> policy = tfrl.agents.ActorCriticPolicy.create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2),
        ...     tx=tfrl.agents.sgd(0.1))
        >>> keras_policy(policy.state.to_keras(), ()).input_shape
        (None, 3)
    """
    shape = network.get_build_config()["input_shape"]
    inputs = _inputs(network.encoder.kinds, shape)
    leaves = tf.nest.flatten(inputs)
    if observation_moments:
        leaves = [
            _normalization(kept)(leaf) if kept else leaf
            for kept, leaf in zip(observation_moments, leaves, strict=True)
        ]
    outputs = network(tf.nest.pack_sequence_as(inputs, leaves))
    return keras.Model(inputs, outputs, name="policy" if name is None else name)


def _inputs(kind: Any, shape: Any, name: str = "") -> Any:
    if kind[0] not in ("dict", "tuple"):
        name = name or "observations"
        return keras.Input(shape[1:], dtype=_DTYPES[kind[0]], name=name)
    parts = {
        key: _inputs(part, shape[key], f"{name}_{key}" if name else str(key))
        for key, part in kind[1]
    }
    return parts if kind[0] == "dict" else tuple(parts.values())


def _normalization(known: moments.RunningMoments) -> ObservationNormalization:
    layer = ObservationNormalization()
    layer.build((None, *known.mean.shape))
    layer.set_weights([known.mean, known.variance, known.count])
    return layer
