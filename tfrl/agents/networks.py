"""Networks of Keras layers: multilayer perceptrons, encoders, actor and critic."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import keras
import numpy as np

_SERIALIZABLE = keras.saving.register_keras_serializable(package="tfrl")

# Filters, width and stride; they leave one pixel of 36 by 36.
_CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
_LEAST_PIXELS = 36


def _orthogonal(gain: float, seed: int) -> keras.initializers.Initializer:
    return keras.initializers.Orthogonal(gain=gain, seed=seed)


@_SERIALIZABLE
class MLP(keras.layers.Layer):
    """A stack of dense layers over flattened inputs.

        x[0] = flatten(inputs),  x[i + 1] = activation(x[i] W[i] + b[i])

    Weights start orthogonal with gain sqrt(2), biases at 0. With `n_outputs` a last
    dense layer without activation follows, of gain `output_gain` and in float32
    whatever the layer's dtype policy.

    Args:
        hidden_units: width of each hidden layer.
        activation: a Keras activation.
        n_outputs: width of the linear last layer, or None for none.
        output_gain: gain of the last layer's initial weights.
        seed: of the initial weights.
        **kwargs: of `keras.layers.Layer`: `name`, `dtype`, `trainable`.

    Example:
        >>> MLP([8, 8], n_outputs=3)(np.zeros((5, 2, 2))).shape
        TensorShape([5, 3])
    """

    def __init__(
        self,
        hidden_units: Sequence[int] = (64, 64),
        activation: str = "tanh",
        n_outputs: int | None = None,
        output_gain: float = 1.0,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_units = tuple(int(units) for units in hidden_units)
        self.activation = activation
        self.n_outputs = n_outputs
        self.output_gain = output_gain
        self.seed = seed
        self.flatten = keras.layers.Flatten()
        self.dense = [
            keras.layers.Dense(
                units,
                activation=activation,
                kernel_initializer=_orthogonal(math.sqrt(2.0), seed + index),
                name=f"hidden_{index}",
                dtype=self.dtype_policy,
            )
            for index, units in enumerate(self.hidden_units)
        ]
        if n_outputs is not None:
            self.dense.append(
                keras.layers.Dense(
                    n_outputs,
                    kernel_initializer=_orthogonal(output_gain, seed + len(self.dense)),
                    name="output",
                    dtype="float32",
                )
            )
        _name_in(self, self.dense)

    def build(self, input_shape: Any) -> None:
        """Creates the weights for inputs of `[B, *shape]`."""
        width = math.prod(input_shape[1:])
        for dense in self.dense:
            dense.build((None, width))
            width = dense.units
        super().build(input_shape)

    def call(self, inputs: Any) -> Any:
        """Maps `[B, *shape]` to `[B, last width]`."""
        outputs = self.flatten(inputs)
        for dense in self.dense:
            outputs = dense(outputs)
        return outputs

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Returns `(B, last width)`."""
        width = self.dense[-1].units if self.dense else math.prod(input_shape[1:])
        return (input_shape[0], width)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "hidden_units": list(self.hidden_units),
            "activation": self.activation,
            "n_outputs": self.n_outputs,
            "output_gain": self.output_gain,
            "seed": self.seed,
        }


def conv_encoder(seed: int = 0, dtype: Any = None) -> keras.Sequential:
    """Returns a small convolutional encoder of images into 512 features.

    Pixels are divided by 255; three convolutions (32 of 8x8 stride 4, 64 of 4x4 stride
    2, 64 of 3x3 stride 1, rectified) and a rectified dense layer follow.

    Args:
        seed: of the initial weights.
        dtype: a Keras dtype policy; the global one by default.

    Returns:
        A model from `[B, height, width, channels]`, 36x36 pixels at least, to
        `[B, 512]`.

    Example:
        >>> conv_encoder()(np.zeros((1, 84, 84, 4), np.uint8)).shape
        TensorShape([1, 512])

    References:
        Mnih et al., 2015, Human-level control through deep reinforcement learning,
        "Model architecture".
    """
    convolutions = [
        keras.layers.Conv2D(
            filters,
            size,
            strides=stride,
            activation="relu",
            kernel_initializer=_orthogonal(math.sqrt(2.0), seed + i),
            name=f"convolution_{i}",
            dtype=dtype,
        )
        for i, (filters, size, stride) in enumerate(_CONVOLUTIONS)
    ]
    return keras.Sequential(
        [
            keras.layers.Rescaling(1 / 255.0, dtype=dtype),
            *convolutions,
            MLP([512], "relu", seed=seed + 3, name="features", dtype=dtype),
        ],
        name="conv_encoder",
    )


@_SERIALIZABLE
class SpaceEncoder(keras.layers.Layer):
    """Turns observations of a Gymnasium space into one feature vector each.

    Box observations are flattened, images (uint8, height x width x channels) go through
    `conv_encoder`, Discrete ones become one-hot, MultiDiscrete several one-hots,
    MultiBinary floats; Dict and Tuple spaces concatenate what their parts give, in the
    space's own order. Features are float32 whatever the dtype policy.

    Args:
        kinds: nested description of the space, as `SpaceEncoder.describe` returns it.
        seed: of the initial weights of image encoders.
        **kwargs: of `keras.layers.Layer`.

    Example:
        >>> space = gym.spaces.Dict(
        ...     goal=gym.spaces.Discrete(3), place=gym.spaces.Box(-1.0, 1.0, (2,)))
        >>> encoder = SpaceEncoder(SpaceEncoder.describe(space))
        >>> encoder({"goal": np.array([2]), "place": np.zeros((1, 2))}).numpy().tolist()
        [[0.0, 0.0, 1.0, 0.0, 0.0]]
    """

    def __init__(self, kinds: Any, seed: int = 0, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.kinds = kinds
        self.seed = seed
        self.parts: list[SpaceEncoder] = []
        self.images: list[keras.Sequential] = []
        if kinds[0] in ("dict", "tuple"):
            options = [
                {"seed": seed + 10 * i, "name": f"part_{i}", "dtype": self.dtype_policy}
                for i in range(len(kinds[1]))
            ]
            pairs = zip(kinds[1], options, strict=True)
            self.parts = [SpaceEncoder(kind, **option) for (_, kind), option in pairs]
        elif kinds[0] == "image":
            self.images = [conv_encoder(seed, self.dtype_policy)]
        _name_in(self, [*self.parts, *self.images])

    @staticmethod
    def describe(space: gym.Space) -> list[Any]:
        """Returns the JSON-able description of a space.

        Args:
            space: the observation space of one environment.

        Returns:
            A nested list.

        Raises:
            TypeError: if the space is of another kind than those the class names.
            ValueError: if images are too small, or show their channels first.
        """
        spaces = gym.spaces
        if isinstance(space, spaces.Dict):
            parts = [[key, SpaceEncoder.describe(part)] for key, part in space.items()]
            return ["dict", parts]
        if isinstance(space, spaces.Tuple):
            parts = [[i, SpaceEncoder.describe(part)] for i, part in enumerate(space)]
            return ["tuple", parts]
        if isinstance(space, spaces.Discrete):
            return ["one_hot", [int(space.n)], [int(space.start)]]
        if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
            return ["one_hot", space.nvec.tolist(), space.start.tolist()]
        if isinstance(space, spaces.Box) and space.dtype == np.uint8:
            if len(space.shape) == 3:
                return ["image", _image_shape(space)]
        if isinstance(space, spaces.Box | spaces.MultiBinary):
            return ["flat", list(space.shape)]
        raise TypeError(
            "`SpaceEncoder.describe`: `space` expected Box, Discrete, MultiDiscrete of "
            "one axis, MultiBinary, or a Dict or Tuple of those; "
            f"got {space}; wrap the environment to give one"
        )

    def build(self, input_shape: Any) -> None:
        """Creates the weights of image encoders."""
        for key, part in self._named_parts():
            part.build(input_shape[key])
        for image in self.images:
            image.build((None, *self.kinds[1]))
        super().build(input_shape)

    def call(self, inputs: Any) -> Any:
        """Maps a nest of `[B, ...]` to `[B, features]` float32."""
        if self.parts:
            parts = [part(inputs[key]) for key, part in self._named_parts()]
            return keras.ops.concatenate(parts, axis=-1)
        if self.images:
            features = self.images[0](keras.ops.cast(inputs, "float32"))
            return keras.ops.cast(features, "float32")
        if self.kinds[0] == "one_hot":
            # `one_hot` takes int64 everywhere, 16 bits nowhere.
            columns = keras.ops.cast(inputs, "int64")
            columns = keras.ops.reshape(columns, (-1, len(self.kinds[1])))
            choices = enumerate(zip(*self.kinds[1:], strict=True))
            parts = [
                keras.ops.one_hot(columns[:, i] - start, size, dtype="float32")
                for i, (size, start) in choices
            ]
            return keras.ops.concatenate(parts, axis=-1)
        flat = keras.ops.cast(inputs, "float32")
        return keras.ops.reshape(flat, (-1, math.prod(self.kinds[1])))

    def _named_parts(self) -> list[tuple[Any, "SpaceEncoder"]]:
        keys = [key for key, _ in self.kinds[1]] if self.parts else []
        return list(zip(keys, self.parts, strict=True))

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, int]:
        """Returns `(None, features)`."""
        del input_shape
        if self.parts:
            widths = [part.compute_output_shape(None)[1] for part in self.parts]
            return (None, sum(widths))
        kind, sizes = self.kinds[:2]
        if kind == "image":
            return (None, 512)
        return (None, sum(sizes) if kind == "one_hot" else math.prod(sizes))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "kinds": self.kinds, "seed": self.seed}


@_SERIALIZABLE
class ActorCritic(keras.Model):
    """Policy parameters and a value from one observation, by separate networks.

        features = encoder(observations)
        parameters = actor_network(features),  values = critic_network(features)[:, 0]

    The encoder has weights, shared by both, only where there are images.
    With `log_std` a learned vector that does not depend on the observation is appended
    to the actor's outputs: `[means, log_std]`.

    Args:
        kinds: of the observation space, see `SpaceEncoder.describe`.
        n_outputs: width of the actor's last layer.
        log_std: initial log standard deviation, or None where there is none to learn.
        hidden_units: of both networks.
        activation: of both networks.
        seed: of the initial weights.
        **kwargs: of `keras.Model`.

    Example:
        >>> kinds = SpaceEncoder.describe(gym.spaces.Box(-1.0, 1.0, (4,)))
        >>> model = ActorCritic(kinds, n_outputs=2)
        >>> parameters, values = model(np.zeros((3, 4), np.float32))
        >>> parameters.shape, values.shape
        (TensorShape([3, 2]), TensorShape([3]))

    References:
        Andrychowicz et al., 2021, What Matters In On-Policy Reinforcement Learning?
        (small last policy layer, separate networks).
    """

    def __init__(
        self,
        kinds: Any,
        n_outputs: int,
        log_std: float | None = None,
        hidden_units: Sequence[int] = (64, 64),
        activation: str = "tanh",
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        # Parameters are known by paths; a name that counts models would change them.
        kwargs.setdefault("name", "actor_critic")
        # Casting is left to the parts: observations and log_std stay float32.
        super().__init__(autocast=False, **kwargs)
        self.arguments = {
            "kinds": kinds,
            "n_outputs": n_outputs,
            "log_std": log_std,
            "hidden_units": [int(units) for units in hidden_units],
            "activation": activation,
            "seed": seed,
        }
        dtype = self.dtype_policy
        self.encoder = SpaceEncoder(kinds, seed, name="encoder", dtype=dtype)
        mlp = functools.partial(MLP, hidden_units, activation, dtype=dtype)
        self.actor_network = mlp(n_outputs, 0.01, seed + 100, name="actor")
        self.critic_network = mlp(1, 1.0, seed + 200, name="critic")
        self.log_std = log_std  # a weight from `build` on

    def build(self, input_shape: Any) -> None:
        """Creates the weights for a nest of `[B, ...]` shapes."""
        self.encoder.build(input_shape)
        features = self.encoder.compute_output_shape(input_shape)
        self.actor_network.build(features)
        self.critic_network.build(features)
        if self.arguments["log_std"] is not None:
            self.log_std = self.add_weight(
                shape=(self.arguments["n_outputs"],),
                initializer=keras.initializers.Constant(self.arguments["log_std"]),
                name="log_std",
                dtype="float32",
                autocast=False,
            )
        super().build(input_shape)

    def actor(self, observations: Any) -> Any:
        """Returns the policy's parameters, `[B, n_outputs]` or `[B, 2 * n_outputs]`."""
        return self._parameters(self.encoder(observations))

    def critic(self, observations: Any) -> Any:
        """Returns the values, `[B]`."""
        return keras.ops.squeeze(self.critic_network(self.encoder(observations)), -1)

    def call(self, observations: Any) -> tuple[Any, Any]:
        """Returns `(actor(observations), critic(observations))`, encoding once."""
        features = self.encoder(observations)
        values = keras.ops.squeeze(self.critic_network(features), -1)
        return self._parameters(features), values

    def _parameters(self, features: Any) -> Any:
        outputs = self.actor_network(features)
        if self.log_std is None:
            return outputs
        log_std = keras.ops.broadcast_to(self.log_std, keras.ops.shape(outputs))
        return keras.ops.concatenate([outputs, log_std], axis=-1)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), **self.arguments}


def _name_in(owner: keras.layers.Layer, layers: list[Any]) -> None:
    for index, layer in enumerate(layers):  # `tf.train.Checkpoint` skips lists
        setattr(owner, f"_layer_{index}", layer)


def _image_shape(space: gym.spaces.Box) -> list[int]:
    if min(space.shape[:2]) < _LEAST_PIXELS:
        raise ValueError(
            "`SpaceEncoder.describe`: `space` expected images of [height, width, "
            f"channels] with {_LEAST_PIXELS}x{_LEAST_PIXELS} pixels at least; got "
            f"{list(space.shape)}; resize or transpose them by a wrapper, or give them "
            "as floats to have them flattened"
        )
    return list(space.shape)
