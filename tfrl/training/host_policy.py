"""A policy's parameters computed where the environments are: on the host."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.agents import actor_critic

# Beyond this many weights a compiled TensorFlow call is no slower than NumPy.
_MIRROR_WEIGHTS = 300_000

_ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0.0),
    "linear": lambda x: x,
}


def _layers(
    policy: actor_critic.ActorCriticPolicy,
) -> list[tuple[tf.Tensor, tf.Tensor, str]]:
    layers = policy.actor_layers()
    return [] if layers is None else layers


def _can_mirror(policy: actor_critic.ActorCriticPolicy) -> bool:
    layers = _layers(policy)
    network = policy.state.model_def.actor_network
    return (
        bool(layers)
        and sum(kernel.shape.num_elements() for kernel, _, _ in layers)
        <= _MIRROR_WEIGHTS
        and all(activation in _ACTIVATIONS for _, _, activation in layers)
        and network.compute_dtype == "float32"
    )


class HostPolicy:
    """Maps observations to a head's parameters, fast for a handful of rows.

    The actor of a small multilayer perceptron over flat observations is copied into
    NumPy at each `push`; acting then costs some 20 microseconds where a TensorFlow call
    costs hundreds. The copy is compared with the network itself on the observations
    given at each push. Other actors (images, nests, mixed precision, activations that
    are not copied) run as one compiled TensorFlow function.

    Args:
        policy: whose actor to run.

    Attributes:
        mirrored: whether the actor is copied into NumPy.

    Example:
        >>> space = gym.spaces.Box(-1.0, 1.0, (3,))
        >>> policy = tfrl.agents.ActorCriticPolicy.create(
        ...     space, gym.spaces.Discrete(2), tx=tfrl.agents.sgd(0.1))
        >>> host = HostPolicy(policy)
        >>> host(np.zeros((4, 3), np.float32)).shape
        (4, 2)
    """

    def __init__(self, policy: actor_critic.ActorCriticPolicy) -> None:
        self.mirrored = _can_mirror(policy)
        self._exact: Any = None
        self.push(policy)

    def push(
        self,
        policy: actor_critic.ActorCriticPolicy,
        probe: Any | None = None,
        parameters: tf.Tensor | None = None,
    ) -> None:
        """Takes over the weights and normalizers of a newer version of the policy.

        Args:
            policy: of the same architecture.
            probe: nest of `[B, *shape]` observations on which the copy is compared with
                the network, to 1e-4 of the largest output; None skips that.
            parameters: `[B, n]`, what the network says to `probe`, where that is known
                already; it spares a call.

        Raises:
            ValueError: if copy and network differ, or are not finite.
        """
        self._policy = policy
        self._leaves: list[tf.Tensor] | None = None
        if not self.mirrored:
            return
        self._layers = [
            (np.asarray(kernel), np.asarray(bias), _ACTIVATIONS[activation])
            for kernel, bias, activation in _layers(policy)
        ]
        log_std = policy.log_std()
        self._log_std = None if log_std is None else np.asarray(log_std)
        moments = policy.observation_moments
        self._moments = None
        if moments and moments[0]:
            self._moments = (
                np.asarray(moments[0].mean),
                1.0 / np.sqrt(np.asarray(moments[0].variance) + 1e-8),
            )
        if probe is not None:
            self._compare(probe, parameters)

    def _compare(self, probe: Any, parameters: tf.Tensor | None) -> None:
        # GPUs round float32 products to 11 bits: what they say is no measure.
        if parameters is None or "CPU" not in parameters.device:
            parameters = self._network(probe)
        mirrored, exact = self(probe), np.asarray(parameters)
        error = np.abs(mirrored - exact).max()
        if not error <= 1e-4 * max(1.0, np.abs(exact).max()):
            raise ValueError(
                "`HostPolicy.push`: `policy` expected to equal its NumPy copy within "
                f"1e-4; got a difference of {error}; if the weights are no longer "
                "finite, lower the learning rate"
            )

    def _network(self, observations: Any) -> np.ndarray:
        if self._leaves is None:
            self._leaves = tf.nest.flatten(self._policy.without_optimizer())
        if self._exact is None:
            self._exact = self._concrete(self._leaves, observations)
        inputs = map(tf.constant, tf.nest.flatten(observations))
        return np.asarray(self._exact(*self._leaves, *inputs))

    def _concrete(self, leaves: list[tf.Tensor], observations: Any) -> Any:
        """Returns the network as one function of flat tensors, traced once."""
        template, n_leaves = self._policy.without_optimizer(), len(leaves)
        structure = tf.nest.map_structure(lambda _: 0, observations)
        # GPUs round float32 products to 11 bits: the copy is held against the CPU.
        device = "CPU:0" if self.mirrored else None

        def network(*flat: tf.Tensor) -> tf.Tensor:
            policy = tf.nest.pack_sequence_as(template, flat[:n_leaves])
            nest = tf.nest.pack_sequence_as(structure, flat[n_leaves:])
            with tf.device(device):
                return policy.parameters(nest)

        specs = [tf.TensorSpec(leaf.shape, leaf.dtype) for leaf in leaves]
        specs += [
            tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype)
            for leaf in tf.nest.flatten(observations)
        ]
        return tf.function(network, autograph=False).get_concrete_function(*specs)

    def __call__(self, observations: Any) -> np.ndarray:
        """Returns the head's parameters `[B, n]` for a nest of `[B, *shape]`."""
        if not self.mirrored:
            return self._network(observations)
        values = observations.reshape(len(observations), -1)
        if self._moments is not None:
            mean, scale = self._moments
            values = (values - mean.ravel()) * scale.ravel()
            # As the network sees them: rounded to the dtype of the observations.
            values = np.clip(values, -10.0, 10.0).astype(observations.dtype, copy=False)
        values = values.astype(np.float32, copy=False)
        for kernel, bias, activation in self._layers:
            values = values @ kernel
            values += bias
            values = activation(values)
        if self._log_std is None:
            return values
        log_std = np.broadcast_to(self._log_std, values.shape)
        return np.concatenate([values, log_std], axis=-1)
