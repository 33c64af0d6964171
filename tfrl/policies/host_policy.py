"""A policy next to the environments: on the host, in NumPy if it is small."""

import copy
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import arguments, calls, dtype_policies
from tfrl.core import compile
from tfrl.host import networks as host_networks
from tfrl.policies import _masks, _observation_kinds, feedforward
from tfrl.policies import policy as policies

# Rows times weights beyond which a compiled TensorFlow call is no slower than NumPy:
# where both meet on one core, for layers of 64 to 1024 (`tools/bench acting`). A trial
# at every start would make runs of one seed differ in their last bits.
_NUMPY_WORK = 5_000_000


def numpy_rows(network: host_networks.NumpyNetwork) -> int:
    """Returns the most rows for which NumPy is as fast as a compiled call."""
    return _NUMPY_WORK // max(sum(kernel.size for kernel in network.kernels), 1)


def numpy_copy(
    policy: Any, weights: Mapping[str, Any] | None = None
) -> host_networks.NumpyNetwork | None:
    """Copies the network of a policy into NumPy, with normalizer and deviation.

    Of a distribution of returns that dense layers make, such as that of `QRDQN`, the
    copy returns the means.

    Args:
        policy: a policy of this room, or a built `keras.Sequential` or functional
            `keras.Model`, whose first output is copied.
        weights: of the model, by the paths of its variables, such as the `params` of a
            `TrainState`; None for its own.

    Returns:
        The copy; it shares no memory that the policy could change. None if the network
        is more than dense layers with known activations over one flat observation, or
        does not compute in float32, or observations have masks of actions.

    Raises:
        TypeError: if `policy` is neither.

    Example:
        >>> network = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
        >>> numpy_copy(network)(np.zeros((4, 3), np.float32)).shape
        (4, 2)
    """
    is_masked = getattr(policy, "is_masked", False)
    return None if is_masked else unmasked_copy(policy, weights)


def unmasked_copy(
    policy: Any, weights: Mapping[str, Any] | None = None
) -> host_networks.NumpyNetwork | None:
    """Does what `numpy_copy` does, where there are masks for what sees the rest.

    Args:
        policy: as there; whoever calls the copy applies the masks.
        weights: as there.
    """
    kept: tuple = ()
    log_std = None
    if isinstance(policy, keras.Model):
        own = weights or {x.path: x.numpy() for x in policy.variables}
        layers = [
            (
                np.array(own[x.kernel.path]),
                np.array(own[x.bias.path]) if x.use_bias else np.zeros(x.units, "f"),
                x.activation.__name__,
            )
            for x in feedforward.layers_of(policy) or []
        ]
    elif hasattr(policy, "dense_layers"):
        layers = policy.dense_layers()
        log_std = policy.log_std()
        # There is but one observation beside a mask, where there are dense layers.
        for moments in filter(None, policy.observation_moments):
            deviations = np.sqrt(np.asarray(moments.variance) + 1e-8)
            kept = np.asarray(moments.mean), 1.0 / deviations
    else:
        raise TypeError(
            "`numpy_copy`: `policy` expected a policy of `tfrl.policies` or a "
            f"keras.Model; got {type(policy).__name__}"
        )
    if not layers:
        return None
    kernels, biases, activations = zip(*layers, strict=True)
    return host_networks.NumpyNetwork(
        list(map(np.asarray, kernels)),
        list(map(np.asarray, biases)),
        list(activations),
        kept,
        None if log_std is None else np.asarray(log_std),
    )


class HostPolicy:
    """Acts on NumPy observations, fast for a handful of rows.

    The network of a multilayer perceptron over flat observations is copied into NumPy
    at each `push`; acting then costs some 20 microseconds where a TensorFlow call costs
    hundreds. The copy is compared with the network itself on the observations given at
    a push. Batches of a wide network so large that computing outweighs the call, and
    other networks (images, nests, memory, mixed precision, activations that are not
    copied), run as one compiled TensorFlow function; a policy without a network acts by
    its own `act`. Each of the `parts` of a policy made of several, such as that of
    `tfrl.agents.SelfPlay`, has its own such host.

    Args:
        policy: a policy of this room, or any `Policy`.
        log_probs: whether `act` always computes them.

    Attributes:
        policy: the one pushed last.
        mirrored: whether the network is copied into NumPy.

    Example:
        >>> space = gym.spaces.Box(-1.0, 1.0, (3,))
        >>> agent = tfrl.agents.PPO().create(space, gym.spaces.Discrete(2), seed=0)
        >>> host = HostPolicy(agent.policy)
        >>> zeros, rng = np.zeros((4, 3), np.float32), np.random.default_rng(0)
        >>> host.act(zeros, seed=rng).actions.shape
        (4,)
    """

    def __init__(self, policy: Any, log_probs: bool = False) -> None:
        policy = policies.as_policy("HostPolicy", "policy", policy)
        self._log_probs = log_probs
        self._is_network = hasattr(policy, "dense_layers")
        if self._is_network:
            _check_head(policy.head)
        mirror = unmasked_copy(policy) if self._is_network else None
        self.mirrored, self._numpy_rows = mirror is not None, 0
        self._is_masked = getattr(policy, "is_masked", False)
        if mirror is not None:
            self._numpy_rows = numpy_rows(mirror)
        flat = self.mirrored and policy.kinds[0] == "flat"
        self._row_shape = tuple(policy.kinds[1]) if flat else None
        self._traced: dict[Any, Any] = {}
        if self._is_network:
            self._model, self._shapes = policy.state.model_def, _shapes(policy.state)
        self._hosts = self._hosts_of(policy)
        self.push(policy)

    def _hosts_of(self, policy: Any) -> "list[HostPolicy]":
        """Returns what acts for each part of a policy that is made of several."""
        parts: Any = getattr(policy, "parts", ()) if hasattr(policy, "act_by") else ()
        if not getattr(policy, "parts_are_alike", False):
            return [HostPolicy(part, self._log_probs) for part in parts]
        first = HostPolicy(parts[0], self._log_probs)
        # Copies share the functions that are compiled.
        return [first, *(copy.copy(first) for _ in parts[1:])]

    def push(self, policy: Any, probe: Any | None = None) -> None:
        """Takes over the weights and normalizers of a newer version of the policy.

        Args:
            policy: of the same architecture.
            probe: nest of `[B, *shape]` observations on which the copy is compared with
                the network, to 1e-4 of the largest output; None skips that.

        Raises:
            ValueError: if it is of another architecture; if its weights are not finite;
                if copy and network differ.
        """
        if self._is_network:
            self._check_alike(policy.state)
            check_finite("HostPolicy.push", "policy", policy.state, self.mirrored)
        self.policy = policy
        self._leaves: list[tf.Tensor] | None = None
        if self._hosts:
            self._push_parts(policy, probe)
        if not self.mirrored:
            return
        self._copy: Any = unmasked_copy(policy)
        if probe is None or len(tf.nest.flatten(probe)[0]) > self._numpy_rows:
            return
        # GPUs round float32 products to 11 bits.
        mirrored, exact = self(probe), self._network(probe, (), "CPU:0")[0]
        allowed = ~np.isneginf(mirrored) | ~np.isneginf(exact)
        mirrored, exact = (np.where(allowed, x, 0.0) for x in (mirrored, exact))
        if not np.isfinite(exact).all():
            raise ValueError(
                "`HostPolicy.push`: `policy` expected outputs that are finite; got NaN "
                "or infinite ones, though its weights are finite; lower the learning "
                "rate, or clip gradients"
            )
        error = np.abs(mirrored - exact).max()
        if not error <= 1e-4 * max(1.0, np.abs(exact).max()):
            raise ValueError(
                "`HostPolicy.push`: `policy` expected to equal its NumPy copy within "
                f"1e-4; got a difference of {error}"
            )

    def _check_alike(self, state: Any) -> None:
        if state.model_def is not self._model:
            shapes = _shapes(state)
            if shapes != self._shapes:
                raise ValueError(
                    "`HostPolicy.push`: `policy` expected the network of before, with "
                    f"parameters of shapes {self._shapes}; got {shapes}; make a new "
                    "host, or trainer, for another network"
                )
            self._model = state.model_def

    def _push_parts(self, policy: Any, probe: Any) -> None:
        parts = policy.parts
        shown = [None] * len(parts)
        if probe is not None:
            shown = policy.seen_by_parts(probe)
        for host, part, seen in zip(self._hosts, parts, shown, strict=True):
            if host.policy is not part:
                host.push(part, probe=seen)

    def act(
        self,
        observations: Any,
        state: Any = (),
        *,
        seed: Any = None,
        temperature: float = 1.0,
        mask: Any = None,
        log_probs: bool = False,
    ) -> policies.Acted:
        """Chooses actions.

        Args:
            observations: nest of arrays `[B, *shape]`; lists become arrays.
            state: as in `Policy.act`.
            seed: a `numpy.random.Generator`, or as in `Policy.act`.
            temperature: as in `Policy.act`.
            mask: as in `Policy.act`.
            log_probs: whether to compute them.

        Returns:
            NumPy arrays; log-probabilities are None unless asked for.

        Raises:
            TypeError: if a part is neither an array nor a list of numbers.
            ValueError: if a part is missing or of another shape, or rows differ.
        """
        policy = self.policy
        if not isinstance(temperature, int | float):
            arguments.check_number("act", "temperature", temperature, 0, np.inf)
        if self._hosts:
            actors = [host.act for host in self._hosts]
            return policy.act_by(actors, observations, state, seed, temperature, mask)
        if not self._is_network:
            if isinstance(seed, np.random.Generator):
                seed = seed.integers(0, 2**31 - 1, size=2, dtype=np.int32)
            acted = policy.act(
                observations, state, seed=seed, temperature=temperature, mask=mask
            )
            return policies.Acted(*tf.nest.map_structure(_array, tuple(acted)))
        return self.decided(
            *(self._batch(observations), state, seed, temperature, mask),
            log_probs=log_probs or self._log_probs,
        )

    def decided(
        self,
        observations: Any,
        state: Any,
        seed: Any,
        temperature: float,
        mask: Any,
        log_probs: bool,
    ) -> policies.Acted:
        """Returns the result of `act` for a network, from checked observations."""
        policy, head = self.policy, self.policy.head
        chance = policies.generator("act", seed) if temperature else None
        noise = None
        if chance is not None and policy.n_noise:
            noise = chance.standard_normal(policy.n_noise, np.float32)
        parameters, state = self._outputs(observations, state, noise)
        shaped = policy.host_distributed(parameters, temperature, mask)
        if chance is None:
            raw = head.host_mode(shaped)
        else:
            raw, state = policy.host_sampled(shaped, state, chance)
        known = head.host_log_prob(shaped, raw) if log_probs else None
        return policies.Acted(head.host_to_env(raw), raw, known, state)

    def initial_state(self, batch_size: int) -> Any:
        """Returns the state at the beginning of episodes, in NumPy."""
        return tf.nest.map_structure(_array, self.policy.initial_state(batch_size))

    def _batch(self, observations: Any) -> Any:
        is_array = type(observations) is np.ndarray and observations.ndim > 0
        if is_array and observations.shape[1:] == self._row_shape:
            return observations  # by far the most frequent case
        return _observation_kinds.as_batch(
            "HostPolicy", self.policy.kinds, observations
        )

    def _outputs(
        self, observations: Any, state: Any, noise: Any = None
    ) -> tuple[np.ndarray, Any]:
        rest, mask = observations, None
        if self._is_masked:
            rest, mask = _masks.parted(self.policy.state.model_def, observations)
        if self.mirrored and len(rest) <= self._numpy_rows:
            parameters = self._copy(np.asarray(rest))
        else:
            parameters, state = self._network(observations, state, noise=noise)
        if mask is not None:
            parameters = self.policy.head.host_masked(parameters, mask)
        return parameters, state

    def _network(
        self,
        observations: Any,
        state: Any,
        device: str | None = None,
        noise: np.ndarray | None = None,
    ) -> tuple[np.ndarray, Any]:
        self.policy.check_state(observations, state)
        if self._leaves is None:
            self._leaves = tf.nest.flatten(self.policy.without_optimizer())
        arrays = [np.asarray(leaf) for leaf in tf.nest.flatten((observations, state))]
        kind = device, noise is None, *[leaf.dtype for leaf in arrays]
        if kind not in self._traced:
            nest = tf.nest.pack_sequence_as((observations, state), arrays)
            self._traced[kind] = self._concrete(self._leaves, nest, noise, device)
        network, given = self._traced[kind], [tf.constant(leaf) for leaf in arrays]
        if given[0].shape[0] == 0:  # which compiled convolutions do not take
            outputs = self.policy.outputs(observations, state)
        else:
            given += [] if noise is None else [tf.constant(noise)]
            outputs = network(*self._leaves, *given)
        parameters, state = outputs
        if type(state) is not tuple or state:
            state = tf.nest.map_structure(np.asarray, state)
        return np.asarray(parameters), state

    def _concrete(
        self, leaves: list[tf.Tensor], nest: Any, noise: Any, device: Any
    ) -> Any:
        """Returns the network as one function of flat tensors."""
        template, n_leaves = self.policy.without_optimizer(), len(leaves)
        given = nest if noise is None else (*nest, noise)
        structure = tf.nest.map_structure(lambda _: 0, given)

        def network(*flat: tf.Tensor) -> tuple[tf.Tensor, Any]:
            policy = tf.nest.pack_sequence_as(template, flat[:n_leaves])
            with tf.device(device):
                return policy.outputs(
                    *tf.nest.pack_sequence_as(structure, flat[n_leaves:])
                )

        specs = [tf.TensorSpec(leaf.shape, leaf.dtype) for leaf in leaves]
        specs += [
            tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype)
            for leaf in tf.nest.flatten(nest)
        ]
        specs += [] if noise is None else [tf.TensorSpec(noise.shape, tf.float32)]
        traced = tf.function(network, autograph=False).get_concrete_function(*specs)
        return calls.handed_over(traced)

    def __call__(self, observations: Any) -> np.ndarray:
        """Returns the head's parameters `[B, n]` for a nest of `[B, *shape]`.

        Args:
            observations: arrays; lists of numbers are made arrays.

        Returns:
            The parameters, float32, as the network makes them.

        Raises:
            TypeError: if a part is neither an array nor a list of numbers.
            ValueError: if a part is missing or of another shape, or rows differ.
        """
        return self._outputs(self._batch(observations), ())[0]


def _check_head(head: Any) -> None:
    """Raises a TypeError if a head cannot act on the host."""
    for part in (head, *getattr(head, "parts", ())):
        if not hasattr(part, "host_sample"):
            raise TypeError(
                "`HostPolicy`: `policy` expected a head of `tfrl.distributions`, or of "
                f"a class derived from one; got {type(part).__name__}; derive it from "
                "NormalHead, CategoricalHead or CompositeHead"
            )


def check_finite(where: str, name: str, state: Any, are_few: bool = False) -> None:
    """Raises a ValueError if parameters are NaN or infinite.

    Args:
        where: the asking function, for the message.
        name: of what has them, likewise.
        state: a `TrainState`.
        are_few: whether NumPy is faster than a compiled call.
    """
    params = state.params
    if are_few:  # for which a call would take longer
        fine = all(np.isfinite(x).all() for x in params.values())
    else:
        fine = bool(_are_finite([*params.values()]))
    if fine:
        return
    lost = [name for name, x in params.items() if not np.isfinite(x).all()]
    remedy = "lower the learning rate, or clip gradients"
    policy = dtype_policies.found(state.model_def, ["float16"])
    if policy is not None:
        other = policy.replace("float16", "bfloat16")
        remedy = (
            f"instead of the dtype policy {policy!r} take {other!r}, whose range is "
        )
        remedy += "that of float32"
    raise ValueError(
        f"`{where}`: `{name}` expected weights that are finite; got NaN or infinite "
        f"ones in {len(lost)} of {len(params)} parameters, {lost[:3]}; {remedy}"
    )


def _finite(leaves: list[tf.Tensor]) -> tf.Tensor:
    fine = [tf.reduce_all(tf.math.is_finite(leaf)) for leaf in leaves]
    return tf.reduce_all(tf.stack([tf.constant(True), *fine]))


# Of a whole network in one call.
_are_finite = compile.jit(_finite, differentiable=False, xla=False)


def _array(leaf: Any) -> Any:
    return None if leaf is None else np.asarray(leaf)


def _shapes(state: Any) -> list[list[int]]:
    return [[*x.shape] for x in tf.nest.flatten(state.params)]
