"""Networks for observation spaces: encoder, actor and critic, action values."""

import contextlib
import json
import math
from collections.abc import Sequence
from typing import Any, Self

import gymnasium as gym
import keras
import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import spaces
from tfrl.policies import _observation_kinds, feedforward

_SERIALIZABLE = keras.saving.register_keras_serializable(package="tfrl")


def check_space(where: str, space: gym.Space) -> None:
    """Raises unless networks of this module are made for observations of a space.

    Args:
        where: the asking function, for messages.
        space: its argument `observation_space`.

    Raises:
        TypeError: if the space is of a kind that `SpaceEncoder` does not name.
        ValueError: if a part is empty, or no image that it takes.
    """
    _observation_kinds.description(space, place=f"`{where}`: `observation_space`")


@_SERIALIZABLE
class SpaceEncoder(keras.layers.Layer):
    """Turns observations of a Gymnasium space into one feature vector each.

    Box observations are flattened, images go through `conv_encoder`, Discrete ones
    become one-hot, MultiDiscrete several one-hots, MultiBinary floats; Dict and Tuple
    spaces concatenate the features of their parts, in the space's own order. Features
    are float32 whatever the dtype policy.

    A Box of uint8 with 3 or 4 axes, whatever its bounds, shows images. Height and width
    are the two neighbouring axes that are longer than all others, and have 36 pixels
    at least; the other axes are the channels:

        [H, W, C]                         as it is
        [frames, H, W]                 -> [H, W, frames]
        [frames, H, W, C]              -> [H, W, frames * C], frame after frame
        [frames, C, H, W]              -> [H, W, frames * C], frame after frame

    So `gymnasium.wrappers.FrameStackObservation`, with or without an axis of channels,
    gives the features of `tfrl.environments.StackChannels`. Other shapes of 3 and 4
    axes are refused; uint8 of fewer or more axes is flattened like floats.

    Args:
        kinds: nested description of the space, as `SpaceEncoder.describe` returns it.
        seed: of the initial weights of image encoders.
        **kwargs: of `keras.layers.Layer`.

    Raises:
        TypeError: if `kinds` is a space itself.

    Example:
        >>> space = gym.spaces.Dict(
        ...     goal=gym.spaces.Discrete(3), place=gym.spaces.Box(-1.0, 1.0, (2,)))
        >>> encoder = SpaceEncoder(SpaceEncoder.describe(space))
        >>> encoder({"goal": np.array([2]), "place": np.zeros((1, 2))}).numpy().tolist()
        [[0.0, 0.0, 1.0, 0.0, 0.0]]
    """

    def __init__(self, kinds: Any, seed: int = 0, **kwargs: Any) -> None:
        if isinstance(kinds, gym.Space):
            expected = "what `SpaceEncoder.describe(space)` returns"
            raise checks.wrong_type("SpaceEncoder", "kinds", kinds, expected)
        super().__init__(autocast=False, **kwargs)
        self.kinds = kinds
        self.seed = seed
        self.parts: list[SpaceEncoder] = []
        self.images: list[keras.Sequential] = []
        if kinds[0] in ("dict", "tuple"):
            self.parts = [
                SpaceEncoder(
                    part, seed + 10 * i, name=f"part_{i}", dtype=self.dtype_policy
                )
                for i, (_, part) in enumerate(kinds[1])
            ]
        elif kinds[0] == "image":
            self.images = [feedforward.conv_encoder(seed, self.dtype_policy)]
        for index, layer in enumerate([*self.parts, *self.images]):
            # `tf.train.Checkpoint` skips lists.
            setattr(self, f"_layer_{index}", layer)

    @staticmethod
    def describe(space: gym.Space) -> list[Any]:
        """Returns the JSON-able description of a space.

        Args:
            space: the observation space of one environment.

        Returns:
            A nested list.

        Raises:
            TypeError: if the space is of a kind that the class does not name.
            ValueError: if images are too small, or do not show which axes are height
                and width.
        """
        return _observation_kinds.description(space)

    def build(self, input_shape: Any) -> None:
        """Creates the weights of image encoders."""
        _observation_kinds.checked_rows("SpaceEncoder", self.kinds, input_shape)
        for key, part in self._named_parts():
            part.build(input_shape[key])
        for image in self.images:
            image.build((None, *_observation_kinds.image_shape(self.kinds)))
        super().build(input_shape)

    def call(self, inputs: Any) -> Any:
        """Maps a nest of `[B, ...]` to `[B, features]` float32."""
        where = "SpaceEncoder"
        _observation_kinds.checked_rows(where, self.kinds, inputs, lambda x: x.shape)
        if self.parts:
            parts = [part(inputs[key]) for key, part in self._named_parts()]
            return tf.concat(parts, axis=-1)
        inputs = _observation_kinds.ensured(where, self.kinds, inputs)
        if self.images:
            if inputs.shape[0] == 0:  # which convolutions do not take
                return tf.zeros([0, 512])
            images, rows = self._upright(inputs), tf.shape(inputs)[0]
            if inputs.shape[0] is None:  # it may be 0 when it runs
                one = tf.zeros([tf.cast(rows < 1, tf.int32), *images.shape[1:]])
                images = tf.concat([images, one], axis=0)
            features = tf.cast(self.images[0](images), tf.float32)
            return features if inputs.shape[0] is not None else features[:rows]
        if self.kinds[0] == "one_hot":
            # `one_hot` takes int64 everywhere, 16 bits nowhere.
            columns = _rows_of(tf.cast(inputs, tf.int64), [len(self.kinds[1])])
            choices = enumerate(zip(*self.kinds[1:], strict=True))
            parts = [
                tf.one_hot(columns[:, i] - start, size) for i, (size, start) in choices
            ]
            return tf.concat(parts, axis=-1)
        return _rows_of(tf.cast(inputs, tf.float32), [math.prod(self.kinds[1])])

    def _upright(self, images: tf.Tensor) -> tf.Tensor:
        """Images `[B, height, width, channels]`, float32."""
        axes = _observation_kinds.image_axes(self.kinds)
        if axes != [0, 1, 2]:
            images = tf.transpose(images, [0, *(axis + 1 for axis in axes)])
            images = _rows_of(images, _observation_kinds.image_shape(self.kinds))
        return tf.cast(images, tf.float32)

    def _named_parts(self) -> list[tuple[Any, "SpaceEncoder"]]:
        keys = [key for key, _ in self.kinds[1]] if self.parts else []
        return list(zip(keys, self.parts, strict=True))

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, int]:
        """Returns `(B, features)`, with an unknown B where `input_shape` is None."""
        rows = None
        if input_shape is not None:
            rows = _observation_kinds.checked_rows(
                "SpaceEncoder", self.kinds, input_shape
            )
        if self.parts:
            widths = [part.compute_output_shape(None)[1] for part in self.parts]
            return (rows, sum(widths))
        kind, sizes = self.kinds[:2]
        if kind == "image":
            return (rows, 512)
        return (rows, sum(sizes) if kind == "one_hot" else math.prod(sizes))

    def compute_output_spec(self, inputs: Any) -> keras.KerasTensor:
        """Returns shape and dtype of the features."""
        return keras.KerasTensor(self.compute_output_shape(_shapes(inputs)), "float32")

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "kinds": self.kinds, "seed": self.seed}


class _SpaceNetwork(keras.Model):
    """A network of ours for a space: an encoder, and parts made of its arguments."""

    def __init__(
        self, arguments: dict[str, Any], hidden_units: Sequence[int], **kwargs: Any
    ) -> None:
        where = type(self).__name__
        units = checks.check_whole_numbers(where, "hidden_units", hidden_units, low=1)
        seed = checks.check_whole_number(where, "seed", arguments["seed"])
        feedforward.check_activation(where, arguments["activation"])
        # Casting is left to the parts: observations and log_std stay float32.
        super().__init__(autocast=False, **kwargs)
        self.arguments = {**arguments, "hidden_units": list(units), "seed": seed}
        self.encoder = SpaceEncoder(
            arguments["kinds"], seed, name="encoder", dtype=self.dtype_policy
        )
        learned = arguments.get("log_std") is not None
        same = {**self.arguments, "seed": None, "log_std": learned}
        told = [type(self).__name__, same, self.dtype_policy.name]
        with contextlib.suppress(TypeError):  # of an activation of the user's own
            self.architecture = json.dumps(told, default=feedforward.told)

    @classmethod
    def for_space(cls, observation_space: gym.Space, *args: Any, **kwargs: Any) -> Self:
        """Returns a built network; the arguments are those of the class but `kinds`."""
        place = f"`{cls.__name__}`: `observation_space`"
        kinds: Any = _observation_kinds.description(observation_space, place=place)
        network = cls(kinds, *args, **kwargs)
        specs = spaces.spec_from_space(observation_space)
        shapes = tf.nest.map_structure(lambda x: (None, *x.shape), specs)
        size = network.memory_size
        network.build(shapes if size is None else (shapes, (None, size)))
        return network

    @property
    def kinds(self) -> Any:
        """Description of the observations; see `SpaceEncoder.describe`."""
        return self.arguments["kinds"]

    @property
    def memory_size(self) -> int | None:
        """How many numbers are remembered of each episode; None without memory."""
        return None

    def _mlp(self, n_outputs: int | None, gain: float, seed: int, name: str) -> Any:
        return feedforward.MLP(
            self.arguments["hidden_units"],
            self.arguments["activation"],
            n_outputs,
            gain,
            self.arguments["seed"] + seed,
            self.arguments.get("noise"),
            name=name,
            dtype=self.dtype_policy,
        )

    def _build_parts(self, input_shape: Any, *parts: Any) -> None:
        """Builds the encoder, and parts of what it gives."""
        self.encoder.build(input_shape)
        features = self.encoder.compute_output_shape(input_shape)
        for part in parts:
            part.build(features)

    def compute_output_spec(self, inputs: Any) -> Any:
        """Returns shapes and dtypes of the outputs."""
        shapes = self.compute_output_shape(_shapes(inputs))
        return keras.tree.map_shape_structure(
            lambda shape: keras.KerasTensor(shape, "float32"), shapes
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), **self.arguments}

    def dense_layers(self) -> list[Any] | None:
        """Returns the layers, if they are dense ones of float32 and nothing else."""
        return None


@_SERIALIZABLE
class ActorCritic(_SpaceNetwork):
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
        n_log_stds: length of that vector; None for `n_outputs`.
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
        n_log_stds: int | None = None,
        **kwargs: Any,
    ) -> None:
        # Parameters are known by paths; a name that counts models would change them.
        kwargs.setdefault("name", "actor_critic")
        arguments = {"kinds": kinds, "n_outputs": n_outputs, "log_std": log_std}
        arguments |= {"activation": activation, "seed": seed}
        if n_log_stds not in (None, n_outputs):
            arguments["n_log_stds"] = n_log_stds
        super().__init__(arguments, hidden_units, **kwargs)
        self.actor_network = self._mlp(n_outputs, 0.01, 100, "actor")
        self.critic_network = self._mlp(1, 1.0, 200, "critic")
        self.log_std = log_std  # a weight from `build` on
        self._n_log_stds = n_outputs if n_log_stds is None else n_log_stds

    def build(self, input_shape: Any) -> None:
        """Creates the weights for a nest of `[B, ...]` shapes."""
        self._build_parts(input_shape, self.actor_network, self.critic_network)
        initial = self.arguments["log_std"]
        if initial is not None:
            self.log_std = feedforward.log_std_of(self, self._n_log_stds, initial)
        super().build(input_shape)

    def actor(self, observations: Any) -> Any:
        """Returns the policy's parameters, `[B, n_outputs]`, or more with `log_std`."""
        return self._parameters(self.encoder(observations))

    def critic(self, observations: Any) -> Any:
        """Returns the values, `[B]`."""
        return keras.ops.squeeze(self.critic_network(self.encoder(observations)), -1)

    def call(self, observations: Any) -> tuple[Any, Any]:
        """Returns `(actor(observations), critic(observations))`, encoding once."""
        features = self.encoder(observations)
        values = keras.ops.squeeze(self.critic_network(features), -1)
        return self._parameters(features), values

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, Any]:
        """Returns the shapes of parameters and values."""
        rows, _ = self.encoder.compute_output_shape(input_shape)
        n_outputs = self.arguments["n_outputs"]
        n_beside = 0 if self.arguments["log_std"] is None else self._n_log_stds
        return (rows, n_outputs + n_beside), (rows,)

    def _parameters(self, features: Any) -> Any:
        return feedforward.with_log_std(self.actor_network(features), self.log_std)

    def dense_layers(self) -> list[Any] | None:
        """Returns the layers of the actor, where they compute in float32."""
        return feedforward.plain(self.actor_network.dense)


@_SERIALIZABLE
class ActionValues(_SpaceNetwork):
    """The value of each choice in a state, from one observation.

        features = encoder(observations)
        Q = values_network(features)
        Q = V(features) + A(features) - mean A(features)           with `dueling`

    With `n_atoms` each choice has as many outputs, `n_outputs` in all, choice after
    choice; the mean is over choices, atom by atom.

    Args:
        kinds: of the observation space, see `SpaceEncoder.describe`.
        n_outputs: number of choices.
        dueling: learn values of states and advantages of choices apart.
        hidden_units: of each network.
        activation: of each network.
        seed: of the initial weights.
        n_atoms: outputs of each choice.
        noise: as in `MLP`.
        **kwargs: of `keras.Model`.

    Example:
        >>> kinds = SpaceEncoder.describe(gym.spaces.Box(-1.0, 1.0, (4,)))
        >>> ActionValues(kinds, n_outputs=2)(np.zeros((3, 4), np.float32)).shape
        TensorShape([3, 2])

    References:
        Wang et al., 2016, Dueling Network Architectures for Deep Reinforcement
        Learning, eq. 9.
    """

    def __init__(
        self,
        kinds: Any,
        n_outputs: int,
        dueling: bool = False,
        hidden_units: Sequence[int] = (64, 64),
        activation: str = "relu",
        seed: int = 0,
        n_atoms: int = 1,
        noise: float | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("name", "action_values")
        arguments = {"kinds": kinds, "n_outputs": n_outputs, "dueling": dueling}
        arguments |= {"activation": activation, "seed": seed}
        arguments |= {"n_atoms": n_atoms} if n_atoms > 1 else {}
        arguments |= {} if noise is None else {"noise": noise}
        super().__init__(arguments, hidden_units, **kwargs)
        self.values_network = self._mlp(n_outputs, 1.0, 100, "values")
        self.state_network = self._mlp(n_atoms, 1.0, 200, "state") if dueling else None

    def build(self, input_shape: Any) -> None:
        """Creates the weights for a nest of `[B, ...]` shapes."""
        parts = [self.values_network, self.state_network]
        self._build_parts(input_shape, *filter(None, parts))
        super().build(input_shape)

    @property
    def n_noise(self) -> int:
        """Returns how many numbers the noise in the weights is made of."""
        parts = [self.values_network, self.state_network]
        return sum(part.n_noise for part in parts if part)

    def call(self, observations: Any, noise: Any = None) -> Any:
        """Returns the values of all choices, `[B, n_outputs]`.

        Args:
            observations: nest of `[B, *shape]`.
            noise: `[n_noise]`, standard normal, in the weights; None for none.
        """
        features = self.encoder(observations)
        first, second = ({}, {})
        if noise is not None:
            n = self.values_network.n_noise
            first, second = {"noise": noise[:n]}, {"noise": noise[n:]}
        values = self.values_network(features, **first)
        if self.state_network is None:
            return values
        n_atoms = self.state_network.n_outputs
        if n_atoms == 1:
            values -= keras.ops.mean(values, axis=-1, keepdims=True)
            return self.state_network(features, **second) + values
        atoms = keras.ops.reshape(values, (-1, values.shape[-1] // n_atoms, n_atoms))
        atoms -= keras.ops.mean(atoms, axis=1, keepdims=True)
        atoms += self.state_network(features, **second)[:, None]
        return keras.ops.reshape(atoms, (-1, values.shape[-1]))

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, int]:
        """Returns the shape of the values."""
        rows, _ = self.encoder.compute_output_shape(input_shape)
        return rows, self.arguments["n_outputs"]

    def dense_layers(self) -> list[Any] | None:
        """Returns the layers, where they are all, and compute in float32."""
        return (
            None if self.state_network else feedforward.plain(self.values_network.dense)
        )


def _shapes(nest: Any) -> Any:
    return tf.nest.map_structure(lambda leaf: leaf.shape, nest)


def _rows_of(tensor: tf.Tensor, shape: list[int]) -> tf.Tensor:
    """Reshapes each row; never -1, which would mix rows of another width."""
    rows = tensor.shape[0] if tensor.shape.rank else None
    return tf.reshape(tensor, [tf.shape(tensor)[0] if rows is None else rows, *shape])
