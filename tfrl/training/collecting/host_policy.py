"""A policy's parameters computed where the environments are: on the host."""

import functools
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl.agents import actor_critic
from tfrl.host import networks

# Beyond this many weights a compiled TensorFlow call is no slower than NumPy.
_MIRROR_WEIGHTS = 300_000


def numpy_copy(
    policy: actor_critic.ActorCriticPolicy | keras.Sequential,
) -> networks.NumpyNetwork | None:
    """Copies the actor of a policy into NumPy, with normalizer and deviation.

    Args:
        policy: whose actor to copy, or a built network.

    Returns:
        The copy; it shares no memory that the policy could change. None if the actor
        is more than dense layers of known activations over one flat observation, or
        computes in something else than float32.

    Raises:
        TypeError: if `policy` is neither.

    Example:
        >>> policy = tfrl.agents.ActorCriticPolicy.create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2),
        ...     tx=tfrl.agents.sgd(0.1))
        >>> numpy_copy(policy)(np.zeros((4, 3), np.float32)).shape
        (4, 2)
    """
    if isinstance(policy, keras.Sequential):
        return _sequential_copy(policy)
    if not isinstance(policy, actor_critic.ActorCriticPolicy):
        raise TypeError(
            "`numpy_copy`: `policy` expected an ActorCriticPolicy or a "
            f"keras.Sequential; got {type(policy).__name__}; pass one"
        )
    layers = policy.actor_layers()
    activations = [activation for _, _, activation in layers or ()]
    known = all(name in networks.ACTIVATIONS for name in activations)
    network = policy.state.model_def.actor_network
    if not layers or not known or network.compute_dtype != "float32":
        return None
    log_std, moments = policy.log_std(), policy.observation_moments
    kept: tuple = ()
    if moments and moments[0]:
        deviations = np.sqrt(np.asarray(moments[0].variance) + 1e-8)
        kept = np.asarray(moments[0].mean), 1.0 / deviations
    return networks.NumpyNetwork(
        [np.asarray(kernel) for kernel, _, _ in layers],
        [np.asarray(bias) for _, bias, _ in layers],
        activations,
        kept,
        None if log_std is None else np.asarray(log_std),
    )


def _sequential_copy(
    network: keras.Sequential,
) -> networks.NumpyNetwork | None:
    layers = [x for x in network.layers if not isinstance(x, keras.layers.Flatten)]
    for layer in layers:
        dense = type(layer) is keras.layers.Dense and layer.built
        if not dense or layer.compute_dtype != "float32":
            return None
    activations = [layer.activation.__name__ for layer in layers]
    if not layers or not {*activations} <= {*networks.ACTIVATIONS}:
        return None
    weights = [layer.get_weights() for layer in layers]
    kernels = [kernel for kernel, *_ in weights]
    biases = [
        bias[0] if bias else np.zeros(kernel.shape[1], "f") for kernel, *bias in weights
    ]
    return networks.NumpyNetwork(kernels, biases, activations)


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
        copy = numpy_copy(policy)
        self.mirrored = copy is not None and (
            sum(kernel.size for kernel in copy.kernels) <= _MIRROR_WEIGHTS
        )
        encoder = policy.state.model_def.encoder
        self._as_batch = functools.partial(encoder.as_batch, where="HostPolicy")
        self._row_shape = tuple(encoder.kinds[1]) if self.mirrored else None
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
        self._copy: Any = numpy_copy(policy)
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
        inputs = [tf.constant(leaf) for leaf in tf.nest.flatten(observations)]
        if inputs[0].shape[0] == 0:  # which compiled convolutions do not take
            return np.asarray(self._policy.parameters(observations))
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
        """Returns the head's parameters `[B, n]` for a nest of `[B, *shape]`.

        Args:
            observations: arrays; lists of numbers are made arrays.

        Returns:
            The parameters, float32.

        Raises:
            TypeError: if a part is no array and no list of numbers.
            ValueError: if a part is missing or of another shape, or rows differ.
        """
        if not self.mirrored:
            return self._network(self._as_batch(observations))
        # At each step of the environments: a comparison of shapes, and no more.
        if (
            type(observations) is not np.ndarray
            or observations.shape[1:] != self._row_shape
            or not observations.shape
        ):
            observations = np.asarray(self._as_batch(observations))
        return self._copy(observations)
