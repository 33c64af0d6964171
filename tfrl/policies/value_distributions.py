"""Action values as the means of distributions: over atoms, of quantiles, implicit.

Settings for an `ActionValuePolicy` (`Categorical`, `Quantiles`, `Implicit`), and the
networks that they put around another: a call returns the mean of each choice, for
acting; the distributions themselves are for learning.
"""

import dataclasses
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl.core import initializers
from tfrl.policies import _observation_kinds, feedforward

_SERIALIZABLE = keras.saving.register_keras_serializable(package="tfrl")


@dataclasses.dataclass(frozen=True)
class Categorical:
    """Probabilities of atoms that lie evenly from `low` to `high`.

    Attributes:
        n_atoms: of each choice, at least 2.
        low: the least atom.
        high: the greatest atom.

    Example:
        >>> Categorical(3, -1.0, 1.0).n_outputs(n_choices=2)
        6
    """

    n_atoms: int
    low: float
    high: float

    def n_outputs(self, n_choices: int) -> int:
        """Returns how many outputs the network needs."""
        return n_choices * self.n_atoms

    def around(self, network: Any, n_choices: int) -> "DistributedValues":  # noqa: ARG002
        """Returns the network of values around a built one."""
        return _built(DistributedValues(network, self.n_atoms, [self.low, self.high]))


@dataclasses.dataclass(frozen=True)
class Quantiles:
    """Quantiles at the midpoints of `n_atoms` equal parts of probability.

    Attributes:
        n_atoms: quantiles of each choice.

    Example:
        >>> Quantiles(5).n_outputs(n_choices=2)
        10
    """

    n_atoms: int

    def n_outputs(self, n_choices: int) -> int:
        """Returns how many outputs the network needs."""
        return n_choices * self.n_atoms

    def around(self, network: Any, n_choices: int) -> "DistributedValues":  # noqa: ARG002
        """Returns the network of values around a built one."""
        return _built(DistributedValues(network, self.n_atoms))


@dataclasses.dataclass(frozen=True)
class Implicit:
    """Quantiles at any fractions, which a network gets along with the observation.

    Attributes:
        n_features: of the observation.
        n_fractions: over which values are averaged.
        n_cosines: number of cosines that encode a fraction.
        activation: of the layers.
        seed: of the initial weights.

    Example:
        >>> Implicit(n_features=8).n_outputs(n_choices=2)
        8
    """

    n_features: int
    n_fractions: int = 32
    n_cosines: int = 64
    activation: str = "relu"
    seed: int = 0

    @property
    def n_atoms(self) -> int:
        """Outputs of the network that belong together: each stands alone."""
        return 1

    def n_outputs(self, n_choices: int) -> int:  # noqa: ARG002
        """Returns how many outputs the network needs."""
        return self.n_features

    def around(self, network: Any, n_choices: int) -> "ImplicitQuantiles":
        """Returns the network of values around a built one."""
        settings = dataclasses.asdict(self)
        return _built(ImplicitQuantiles(network, n_choices, **settings))


class _Around(keras.Model):
    """A network of values around another, with its observations."""

    def __init__(self, network: keras.layers.Layer, config: dict, **kwargs: Any):
        super().__init__(autocast=False, **kwargs)
        self.network, self.config = network, config
        inner = feedforward.architecture_of(network)
        if inner is not None:
            told = sorted((k, x) for k, x in config.items() if k != "seed")
            self.architecture = f"{type(self).__name__} {told} {inner}"

    @property
    def kinds(self) -> Any:
        """Description of the observations; see `SpaceEncoder.describe`."""
        return self.network.kinds

    @property
    def n_noise(self) -> int:
        """Returns how many numbers the noise in the weights is made of."""
        return getattr(self.network, "n_noise", 0)

    def of_space(self, inputs: Any) -> Any:
        """Returns what the same of a network of the user's does; see `GivenNetwork`."""
        return _observation_kinds.choices(self.kinds, inputs)

    def dense_layers(self) -> list[Any] | None:
        """Returns the layers, if they are dense ones of float32 and nothing else."""
        return None

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        network = keras.saving.serialize_keras_object(self.network)
        return {**super().get_config(), "network": network, **self.config}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Makes the network that `get_config` described."""
        network = keras.saving.deserialize_keras_object(config["network"])
        return cls(**{**config, "network": network})


@_SERIALIZABLE
class DistributedValues(_Around):
    """Values as means of distributions over atoms, or of quantiles.

        d[a] = network(observations)[a * n_atoms : (a + 1) * n_atoms]
        values[a] = sum_i softmax(d[a])[i] * atom[i]               with `bounds`
        values[a] = mean d[a]                                      without

    Args:
        network: a network with `[B, n_choices * n_atoms]` outputs.
        n_atoms: of each choice.
        bounds: the least and the greatest atom; None for quantiles.
        **kwargs: of `keras.Model`.

    Example:
        >>> inner = keras.Sequential([keras.Input([3]), keras.layers.Dense(8)])
        >>> model = DistributedValues(inner, 4)
        >>> seen = np.zeros((5, 3), np.float32)
        >>> model(seen).shape, model.distributions(seen).shape
        (TensorShape([5, 2]), TensorShape([5, 2, 4]))

    References:
        Bellemare et al., 2017, A Distributional Perspective on Reinforcement Learning,
        section 4. Dabney et al., 2018, Distributional Reinforcement Learning with
        Quantile Regression, section 4.
    """

    def __init__(
        self,
        network: keras.layers.Layer,
        n_atoms: int,
        bounds: list[float] | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("name", "distributed_values")
        config = {"n_atoms": n_atoms, "bounds": bounds}
        super().__init__(network, config, **kwargs)
        self.n_atoms = n_atoms
        self.support: np.ndarray | None = None
        if bounds is not None:
            low, high = bounds
            self.support = np.linspace(low, high, n_atoms, dtype=np.float32)

    def build(self, input_shape: Any) -> None:
        """Builds the network, if it is not, for a nest of `[B, ...]` shapes."""
        if not self.network.built:
            self.network.build(input_shape)
        super().build(input_shape)

    def distributions(self, observations: Any, noise: Any = None) -> tf.Tensor:
        """Returns logits or quantiles of all choices, `[B, n_choices, n_atoms]`.

        Args:
            observations: nest of `[B, *shape]`.
            noise: `[n_noise]`, standard normal, in the weights; None for none.
        """
        given = {"noise": noise} if noise is not None and self.n_noise else {}
        outputs = self.network(observations, **given)
        n_choices = outputs.shape[-1] // self.n_atoms
        return tf.reshape(outputs, [tf.shape(outputs)[0], n_choices, self.n_atoms])

    def call(self, observations: Any, noise: Any = None) -> tf.Tensor:
        """Returns the values of all choices, `[B, n_choices]`."""
        found = self.distributions(observations, noise)
        if self.support is None:
            return tf.reduce_mean(found, axis=-1)
        return tf.reduce_sum(tf.nn.softmax(found) * self.support, axis=-1)

    def dense_layers(self) -> list[Any] | None:
        """Returns the layers of the network, of quantiles; see `folded`."""
        return self.network.dense_layers() if self.support is None else None

    def folded(self, layers: list[tuple[Any, Any, str]]) -> list[tuple[Any, Any, str]]:
        """Returns layers that make the values: the last makes means of quantiles."""
        kernel, bias, activation = layers[-1]

        def mean(x: Any) -> Any:
            shape = [*x.shape[:-1], x.shape[-1] // self.n_atoms, self.n_atoms]
            return tf.reduce_mean(tf.reshape(x, shape), axis=-1)

        return [*layers[:-1], (mean(kernel), mean(bias), activation)]


@_SERIALIZABLE
class ImplicitQuantiles(_Around):
    """Quantiles at fractions tau, of a network that gets both; values are their means.

        phi(tau) = activation(W cos(pi i tau) + b)             i = 0 .. n_cosines - 1
        quantiles(tau) = outputs(hidden(activation(network(observations)) * phi(tau)))
        values = mean_k quantiles((k + 1/2) / n_fractions)

    where `hidden` is a dense layer of `n_features` and the activation.

    Args:
        network: a network with `[B, n_features]` outputs.
        n_choices: of the action.
        n_features: of the observation.
        n_fractions: over which values are averaged.
        n_cosines: number of cosines that encode a fraction.
        activation: of the layers.
        seed: of the initial weights.
        **kwargs: of `keras.Model`.

    Example:
        >>> inner = keras.Sequential([keras.Input([3]), keras.layers.Dense(8)])
        >>> model = ImplicitQuantiles(inner, n_choices=2, n_features=8)
        >>> seen, fractions = np.zeros((5, 3), np.float32), np.full((5, 7), 0.5, "f")
        >>> model(seen).shape, model.distributions(seen, fractions).shape
        (TensorShape([5, 2]), TensorShape([5, 2, 7]))

    References:
        Dabney, Ostrovski, Silver, Munos, 2018, Implicit Quantile Networks for
        Distributional Reinforcement Learning, eq. 4.
    """

    def __init__(
        self,
        network: keras.layers.Layer,
        n_choices: int,
        n_features: int,
        n_fractions: int = 32,
        n_cosines: int = 64,
        activation: str = "relu",
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("name", "implicit_quantiles")
        config: dict[str, Any] = {"n_choices": n_choices, "n_features": n_features}
        config |= {"n_fractions": n_fractions, "n_cosines": n_cosines}
        config |= {"activation": activation, "seed": seed}
        super().__init__(network, config, **kwargs)
        self.activation = keras.activations.get(activation)
        self.midpoints = ((np.arange(n_fractions) + 0.5) / n_fractions).astype("f")
        self.angles = np.pi * np.arange(n_cosines, dtype=np.float32)
        layers = (
            ("fractions", n_features, activation),
            ("hidden", n_features, activation),
        )
        self.fractions, self.hidden, self.output_layer = (
            keras.layers.Dense(
                units,
                activation=function,
                kernel_initializer=initializers.Orthogonal(gain, seed + 400 + i),
                name=name,
                dtype="float32",
            )
            for i, (name, units, function, gain) in enumerate(
                [(*x, np.sqrt(2.0)) for x in layers]
                + [("output", n_choices, None, 1.0)]
            )
        )

    def build(self, input_shape: Any) -> None:
        """Builds the network, if it is not, for a nest of `[B, ...]` shapes."""
        if not self.network.built:
            self.network.build(input_shape)
        n_features = self.config["n_features"]
        self.fractions.build((None, self.config["n_cosines"]))
        self.hidden.build((None, n_features))
        self.output_layer.build((None, n_features))
        super().build(input_shape)

    def distributions(self, observations: Any, fractions: Any) -> tf.Tensor:
        """Returns quantiles of all choices, `[B, n_choices, n]`.

        Args:
            observations: nest of `[B, *shape]`.
            fractions: `[B, n]` or `[n]`, in [0, 1].
        """
        cosines = tf.cos(tf.expand_dims(fractions, -1) * self.angles)
        features = self.activation(self.network(observations))[:, tf.newaxis]
        found = self.output_layer(self.hidden(features * self.fractions(cosines)))
        return tf.transpose(found, [0, 2, 1])

    def call(self, observations: Any) -> tf.Tensor:
        """Returns the values of all choices, `[B, n_choices]`."""
        found = self.distributions(observations, tf.constant(self.midpoints))
        return tf.reduce_mean(found, axis=-1)


def _built(network: _Around) -> Any:
    network.build(network.network.get_build_config()["input_shape"])
    return network
