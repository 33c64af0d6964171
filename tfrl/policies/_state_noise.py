"""Exploration by noise that is a function of the state: gSDE.

What makes an actor explore so: a network around its own, which gives standard
deviations by its last hidden features, and a mixin of policies that keep the noise.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import checks, draws
from tfrl.policies import feedforward

_LEAST = 1e-6  # of variances


@keras.saving.register_keras_serializable(package="tfrl")
class StateNoiseNetwork(keras.Model):
    """An actor whose standard deviations follow from what its means are made of.

        phi = hidden layers of the actor(observations)
        means = last layer(phi)
        log_std[d] = 1/2 log(sum_f phi[f]^2 sigma[f, d]^2 + 1e-6)
        parameters = [means, log_std]

    which are those of the action `means + phi^T E`, E[f, d] ~ N(0, sigma[f, d]^2).

    Args:
        network: a built network with an `encoder` and an `actor_network` of D outputs,
            and perhaps a `critic_network`.
        log_std: sigma is `exp(log_std) / sqrt(F)` at first, of F features.
        learns_features: whether gradients of the deviations reach the features.
        **kwargs: of `keras.Model`.

    References:
        Raffin, Kober, Stulp, 2021, Smooth Exploration for Robotic Reinforcement
        Learning, section 4.
    """

    def __init__(
        self,
        network: keras.layers.Layer,
        log_std: float = 0.0,
        learns_features: bool = False,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("name", "state_noise")
        super().__init__(autocast=False, **kwargs)
        self.network, self.learns_features = network, learns_features
        self.initial_log_std = log_std
        inner = feedforward.architecture_of(network)
        if inner is not None:
            self.architecture = f"noise {learns_features} {inner}"

    @property
    def kinds(self) -> Any:
        """Description of the observations; see `SpaceEncoder.describe`."""
        return self.network.kinds

    def build(self, input_shape: Any) -> None:
        """Creates the logarithms of sigma, `[F, D]`."""
        if not self.network.built:
            self.network.build(input_shape)
        shape = self.network.actor_network.dense[-1].kernel.shape
        initial = self.initial_log_std - 0.5 * np.log(shape[0])
        self.log_sigma = self.add_weight(
            shape=shape,
            initializer=keras.initializers.Constant(initial),
            name="log_sigma",
            dtype="float32",
            autocast=False,
        )
        super().build(input_shape)

    def call(self, observations: Any) -> Any:
        """Returns the parameters, and the values if the network gives any."""
        encoded = self.network.encoder(observations)
        parameters, _ = self._explored(encoded)
        if not hasattr(self.network, "critic_network"):
            return parameters
        values = self.network.critic_network(encoded)
        return parameters, keras.ops.squeeze(values, -1)

    def actor(self, observations: Any) -> Any:
        """Returns the parameters, `[B, 2 * D]`."""
        return self.explored(observations)[0]

    def critic(self, observations: Any) -> Any:
        """Returns the values, `[B]`."""
        return self.network.critic(observations)

    def explored(self, observations: Any) -> tuple[Any, Any]:
        """Returns the parameters, and the features `[B, F]` that noise depends on."""
        return self._explored(self.network.encoder(observations))

    def _explored(self, encoded: Any) -> tuple[Any, Any]:
        actor = self.network.actor_network
        features = actor.flatten(encoded)
        for dense in actor.dense[:-1]:
            features = dense(features)
        means = actor.dense[-1](features)
        features = keras.ops.cast(features, "float32")
        known = features
        if not self.learns_features:
            known = keras.ops.stop_gradient(features)
        variances = keras.ops.exp(2.0 * keras.ops.convert_to_tensor(self.log_sigma))
        variances = keras.ops.matmul(keras.ops.square(known), variances)
        log_std = 0.5 * keras.ops.log(variances + _LEAST)
        return keras.ops.concatenate([means, log_std], axis=-1), features

    def dense_layers(self) -> list[Any] | None:
        """Returns None: deviations are no dense layer."""
        return None

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "network": keras.saving.serialize_keras_object(self.network),
            "log_std": self.initial_log_std,
            "learns_features": self.learns_features,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "StateNoiseNetwork":
        """Makes the network that `get_config` described."""
        network = keras.saving.deserialize_keras_object(config["network"])
        return cls(**{**config, "network": network})


def around(
    network: Any, log_std: float, *, learns_features: bool = False
) -> StateNoiseNetwork:
    """Returns a built `StateNoiseNetwork` around a built network."""
    made = StateNoiseNetwork(network, log_std, learns_features)
    made.build(network.get_build_config()["input_shape"])
    return made


def check(where: str, noise_steps: Any, head: Any, network: Any) -> None:
    """Raises unless a policy can explore by noise of the state.

    Args:
        where: the asking function, for the message.
        noise_steps: for how many steps noise stays.
        head: of the actions.
        network: a user's, or None.

    Raises:
        TypeError: if `noise_steps` is no int.
        ValueError: if it is less than 1, the actions are others than a Box of floats,
            or there is a `network`.
    """
    checks.check_whole_number(where, "noise_steps", noise_steps, low=1)
    for what, fault in (
        ("a Box of floats", type(head).__name__ * (not hasattr(head, "low"))),
        ("the agent's own network", "another" * (network is not None)),
    ):
        if fault:
            raise ValueError(
                f"`{where}`: `noise_steps` expected None without {what}; got "
                f"{noise_steps} and {fault}"
            )


class StateNoise:
    """A mixin of policies of a `StateNoiseNetwork` and a `NormalHead`.

    The state of the policy are standard normal matrices `[B, F, D]`, drawn anew where
    the count of `steps` is 0, at the beginning of episodes and every `noise_steps`
    steps, and the features that were seen last.
    """

    noise_steps: int

    def initial_state(self: Any, batch_size: Any) -> dict[str, tf.Tensor]:
        """Returns zeros: the noise is drawn in the first step."""
        n_features, n_actions = self.state.model_def.log_sigma.shape
        return {
            "features": tf.zeros([batch_size, n_features]),
            "matrix": tf.zeros([batch_size, n_features, n_actions]),
            "steps": tf.zeros([batch_size], tf.int32),
        }

    def check_state(self: Any, observations: Any, state: Any) -> None:
        """Raises a ValueError unless `state` is one for these observations, or `()`."""
        if type(state) is tuple and not state:
            return
        expected, rows = (
            self.initial_state(1),
            tf.nest.flatten(observations)[0].shape[0],
        )
        try:
            tf.nest.assert_same_structure(expected, state)
            shapes = tf.nest.map_structure(lambda x: tf.TensorShape(x.shape), state)
            fits = all(
                shapes[name].is_compatible_with([rows, *x.shape[1:]])
                for name, x in expected.items()
            )
        except (AttributeError, TypeError, ValueError):
            fits = False
        if not fits:
            raise ValueError(
                "`act`: `state` expected what `initial_state` or the call before "
                f"returned, of {rows} rows; got {state!r:.80}"
            )

    def _outputs(self: Any, observations: Any, state: Any) -> tuple[Any, Any]:
        normalized = self.normalize(observations)
        parameters, features = self.state(normalized, method="explored")
        if type(state) is tuple:
            state = self.initial_state(tf.shape(parameters)[0])
        return parameters, {**state, "features": features}

    def sampled(self: Any, shaped: Any, state: Any, seed: Any) -> tuple[Any, Any]:
        """Returns raw actions and the state after; see `NetworkPolicy.sampled`."""
        fresh = draws.normal(tf.shape(state["matrix"]), seed, tf.float32)
        is_due = tf.equal(state["steps"], 0)[:, None, None]
        matrix = tf.where(is_due, fresh, state["matrix"])
        sigma = tf.exp(self.state.params[self.state.model_def.log_sigma.path])
        scaled = state["features"][:, :, None] * sigma
        noise = tf.reduce_sum(scaled * matrix, 1)
        noise *= tf.math.rsqrt(tf.reduce_sum(tf.square(scaled), 1) + _LEAST)
        loc, log_std = tf.split(shaped, 2, axis=-1)
        return loc + tf.exp(log_std) * noise, self._later(state, matrix)

    def host_sampled(self: Any, shaped: Any, state: Any, rng: Any) -> tuple[Any, Any]:
        """Returns what `sampled` does, in NumPy."""
        matrix, is_due = state["matrix"], state["steps"] == 0
        if is_due.any():
            matrix = np.array(matrix)
            shape = (np.count_nonzero(is_due), *matrix.shape[1:])
            matrix[is_due] = rng.standard_normal(shape, np.float32)
        sigma = np.exp(self.state.params[self.state.model_def.log_sigma.path])
        scaled = state["features"][:, :, None] * sigma
        noise = np.sum(scaled * matrix, axis=1)
        noise /= np.sqrt(np.sum(np.square(scaled), axis=1) + np.float32(_LEAST))
        loc, log_std = np.split(shaped, 2, axis=-1)
        return loc + np.exp(log_std) * noise, self._later(state, matrix)

    def _later(self, state: Any, matrix: Any) -> dict[str, Any]:
        steps = (state["steps"] + 1) % self.noise_steps
        return {**state, "matrix": matrix, "steps": steps}
