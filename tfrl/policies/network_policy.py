"""The base of policies that are a network with an action head."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, Self

import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import checks, draws
from tfrl.core import pytree, random
from tfrl.policies import (
    _keras_models,
    _masks,
    _observation_kinds,
    _policy_models,
    host_policy,
    policy,
)


class NetworkPolicy(pytree.PyTreeNode):
    """A network, an action head, and moments that normalize observations.

        parameters = network(normalize(observations))
        actions = head.to_env(head.sample(parameters))

    The base of this room's policies; see `ActorCriticPolicy` and `ActionValuePolicy`
    for the networks they take.

    A Dict observation with a part `"action_mask"`, ones and zeros (a MultiBinary, or
    a Box or MultiDiscrete of them) for the `n_options` of the head, says what is
    allowed, as in environments of PettingZoo and `tfrl.environments.ActionMasks`. The
    network sees the rest: the other part itself if there is only one, else the dict of
    the others. Parameters of forbidden options are -inf, without gradient, so that
    draws, modes, log-probabilities, entropies, greatest action values and their
    exploration are those of the allowed options, in acting and in learning. If a choice
    has no allowed option, acting is an error; in a graph, and for the last observation
    of an episode, all its options then count alike.

    Attributes:
        state: the network with its weights, such as a `tfrl.agents.TrainState`: called
            as `state(observations, params=None, method=None)`.
        observation_moments: one `RunningMoments` per float observation in `tf.nest`
            order, `()` for the others; `()` altogether without normalization.
        head: from parameters to actions, of `tfrl.distributions.action_head`.

    Example:
        >>> policy = tfrl.agents.DQN().create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2)).policy
        >>> isinstance(policy, NetworkPolicy), policy.to_keras().output_shape
        (True, (None, 2))
    """

    state: Any
    observation_moments: Any
    head: Any = pytree.nonpytree_field()

    @classmethod
    def _made(
        cls,
        learner: Callable[[Any], Any],
        own: Callable[[gym.Space], Any],
        network: Any,
        spaces: tuple[gym.Space, gym.Space],
        head: Any,
        normalize_observations: bool,
        given: Mapping[str, Any],
        **fields: Any,
    ) -> Self:
        """A policy of a user's `network`, or of the one that `own` makes for a space.

        Observations that have a mask get it back around what sees the rest.
        """
        where = f"{cls.__name__}.create"
        expected = "a function of the built network, such as `TrainState.create`"
        checks.check_type(where, "learner", learner, Callable, expected)
        seen, whole = _masks.parted_space(cls.__name__, spaces[0], head)
        if network is None:
            built = own(seen)
        else:
            built = _keras_models.given(network, seen, spaces[1], head, **given)
            if normalize_observations:
                _policy_models.check_takes_raw(cls.__name__, built)
        if whole is not None:
            built = _masks.around(built, whole, head)
        moments = _observation_kinds.moments_of(
            spaces[0] if whole is None else whole, normalize_observations
        )
        return cls(
            state=learner(built), observation_moments=moments, head=head, **fields
        )

    @property
    def kinds(self) -> Any:
        """Description of the observations; see `SpaceEncoder.describe`."""
        return self.state.model_def.kinds

    @property
    def is_masked(self) -> bool:
        """Whether observations have a part that says which options are allowed."""
        return isinstance(self.state.model_def, _masks.MaskedNetwork)

    @property
    def n_noise(self) -> int:
        """How many numbers the noise in the weights is made of; 0 without noise."""
        return getattr(self.state.model_def, "n_noise", 0)

    @property
    def has_log_probs(self) -> bool:
        """Whether actions have log-probabilities."""
        return True

    def initial_state(self, batch_size: int) -> Any:  # noqa: ARG002
        """Returns `()`: the policy remembers nothing."""
        return ()

    def check_state(self, observations: Any, state: Any) -> None:
        """Raises a ValueError unless `state` is one for these observations."""

    def check_observations(
        self, where: str, name: str, observations: Any, n_axes: int
    ) -> None:
        """Raises a ValueError unless a nest is `[..., *shape]` of the policy's space.

        Args:
            where: name of the asking function, for the error message.
            name: of the nest, likewise.
            observations: nest of arrays.
            n_axes: how many axes are in front.
        """
        _observation_kinds.checked_rows(
            where, self.kinds, observations, lambda x: x.shape[n_axes - 1 :], name
        )

    def drawn_noise(self, seed: Any) -> tf.Tensor | None:
        """Returns noise in the weights, `[n_noise]`; None without noise or seed.

        Args:
            seed: int32 `[2]`, from which actions may be drawn too.
        """
        if seed is None or not self.n_noise:
            return None
        seed = tf.random.fold_in(seed, 1, alg="philox")
        with draws.part(0, 1):  # one network for all rows
            return draws.normal([self.n_noise], seed, tf.float32)

    def outputs(
        self, observations: Any, state: Any = (), noise: Any = None
    ) -> tuple[Any, Any]:
        """Returns the head's parameters `[B, n]` and the new state, of tensors.

        Compiled when called eagerly, once per batch size.

        Args:
            observations: nest of `[B, *shape]`.
            state: as in `act`.
            noise: in the weights, `[n_noise]`, standard normal; None for none.
        """
        self.check_state(observations, state)
        given = (observations, state) if noise is None else (observations, state, noise)
        if tf.inside_function():
            return self._outputs(*given)
        light = self.without_optimizer().lent()
        return _compiled_outputs(light, *given)

    def parameters(self, observations: Any) -> tf.Tensor:
        """Returns the head's parameters `[B, n]` for a nest of `[B, *shape]`."""
        return self.outputs(observations)[0]

    def act(
        self,
        observations: Any,
        state: Any = (),
        *,
        seed: Any = None,
        temperature: float = 1.0,
        mask: Any = None,
    ) -> policy.Acted:
        """Chooses actions, as `Policy.act` says.

        NumPy observations, and lists of numbers, give NumPy arrays: for a small
        multilayer perceptron its copy computes them, without TensorFlow.

        Args:
            observations: nest of `[B, *shape]`.
            state: as in `Policy.act`.
            seed: int, int32 `[2]`; None draws one from TensorFlow's generator, or from
                Python's for NumPy observations. For these it may also be a
                `numpy.random.Generator`. The same seed gives different draws for NumPy
                and for tensors.
            temperature: divides logits, multiplies standard deviations and the
                exploration; 0 takes the most probable action.
            mask: `[B, n]` bool, the allowed choices; None for all. Those that a mask in
                the observations forbids are forbidden too.

        Returns:
            Actions, and what they were made from.

        Raises:
            TypeError: if an observation is neither an array nor a list of numbers.
            ValueError: if an observation is of another shape or, eagerly, NaN, or
                infinite without normalization; if `temperature` is negative or not
                finite; eagerly, if a choice has no allowed option.
        """
        where = "act"
        observations = _observation_kinds.as_batch(where, self.kinds, observations)
        _observation_kinds.check_finite(
            where, observations, clipped=bool(self.observation_moments)
        )
        is_number = isinstance(temperature, int | float)
        if not (is_number and 0.0 <= temperature < np.inf):
            if not is_number:
                checks.check_rank(where, "temperature", temperature, exact=0)
            checks.check_within(where, "temperature", temperature, 0.0, np.inf)
            checks.check_finite(where, "temperature", temperature)
        if _observation_kinds.on_host(observations):
            return self._acted_on_host(observations, state, seed, temperature, mask)
        drawn = None if temperature == 0.0 else random.checked_seed(where, seed)
        parameters, state = self.outputs(observations, state, self.drawn_noise(drawn))
        if self.is_masked and not tf.inside_function():
            _, own = _masks.parted(self.state.model_def, observations)
            parameters = self.head.masked(parameters, own)
        shaped = self.distributed(parameters, temperature, mask)
        if drawn is None:
            raw = self.head.mode(shaped)
        else:
            raw, state = self.sampled(shaped, state, drawn)
        log_probs = self.head.log_prob(shaped, raw) if self.has_log_probs else None
        return policy.Acted(self.head.to_env(raw), raw, log_probs, state)

    def distributed(self, parameters: Any, temperature: float, mask: Any) -> tf.Tensor:
        """Returns the parameters of the distribution of actions.

        Args:
            parameters: `[B, n]`, of the network.
            temperature: as in `act`; at 0 only the mode counts.
            mask: as in `act`.
        """
        if mask is not None:
            parameters = self.head.masked(parameters, mask)
        if temperature not in (0.0, 1.0):
            parameters = self.head.tempered(parameters, temperature)
        return parameters

    def host_distributed(
        self, parameters: np.ndarray, temperature: float, mask: Any
    ) -> np.ndarray:
        """Returns what `distributed` does, in NumPy."""
        if mask is not None:
            parameters = self.head.host_masked(parameters, mask)
        if temperature not in (0.0, 1.0):
            parameters = self.head.host_tempered(parameters, temperature)
        return parameters

    def sampled(
        self, shaped: tf.Tensor, state: Any, seed: tf.Tensor
    ) -> tuple[Any, Any]:
        """Returns drawn raw actions, and the state for the next call.

        Args:
            shaped: `[B, n]`, what `distributed` returned.
            state: what `outputs` returned.
            seed: int32 `[2]`.
        """
        return self.head.sample(shaped, seed), state

    def host_sampled(
        self, shaped: np.ndarray, state: Any, rng: np.random.Generator
    ) -> tuple[Any, Any]:
        """Returns what `sampled` does, in NumPy."""
        return self.head.host_sample(shaped, rng), state

    def host_draw(self) -> tuple[Callable[..., Any], dict[str, Any]]:
        """Returns what draws raw actions without TensorFlow, and its settings.

        That is a function of the outputs `[N, n]`, a `np.random.Generator` and the
        settings by name, for a policy whose network `dense_layers` knows.
        """
        return self.head.plain().host_sample, {}

    def independent(self) -> "NetworkPolicy":
        """Returns the policy with draws that do not depend on those before."""
        return self

    def dense_layers(self) -> list[tuple[Any, Any, str]] | None:
        """Returns (kernel, bias, activation) of the layers that make the parameters.

        None where the network is more than dense layers over one flat observation.
        """
        network = self.state.model_def
        seen = network.network if self.is_masked else network
        layers = seen.dense_layers()
        if layers is None or seen.kinds[0] != "flat":
            return None
        # Layers that are not trained are among the extra variables.
        known = {**self.state.extra_variables, **self.state.params}
        found = [
            (known[x.kernel.path], known[x.bias.path], x.activation.__name__)
            for x in layers
        ]
        return seen.folded(found) if hasattr(seen, "folded") else found

    def log_std(self) -> tf.Tensor | None:
        """Returns the learned log standard deviations, or None where there are none."""
        variable = getattr(self.state.model_def, "log_std", None)
        return None if variable is None else self.state.params[variable.path]

    def to_keras(
        self, name: str | None = None, *, as_network: bool = False
    ) -> keras.Model:
        """Returns a functional Keras model of the network, with its trained weights.

        It takes raw observations, a nest of `[B, *shape]` as the space has it, images
        as uint8, choices as int64 and numbers as float32; the normalizer, if there is
        one, is part of it and stays as it is. It returns the outputs of the network.
        For a policy with a memory it takes and returns the memory as a second part.

        The model is independent of the policy: train it, save it as `.keras`, or give
        it to `export_model`. `import tfrl.policies` before loading such a file.

        Args:
            name: of the model, for instance where several go into one; "policy" if
                None.
            as_network: return what an agent takes as `network=`. It differs where the
                agent adds something itself: masks of actions, which the model then
                neither takes nor applies, and the means of `C51`, `QRDQN` and
                `Rainbow`, instead of which it returns logits or quantiles.

        Returns:
            The model.

        Raises:
            TypeError: if `name` is no text.
            ValueError: in a graph, where no variables can be made; if `as_network` is
                set for `IQN`, whose quantiles have their own layers.
        """
        # The network keeps its name, by which its weights go.
        checks.check_type("to_keras", "name", name, str | None, "a str or None")
        return _policy_models.keras_policy(
            self.state.to_keras(),
            self.kinds,
            self.observation_moments,
            name,
            getattr(self, "units", None),
            as_network,
        )

    def normalize(self, observations: Any) -> Any:
        """Returns observations `[..., *shape]`, normalized where moments are kept."""
        if not self.observation_moments:
            return observations
        leaves = [
            kept.normalize(leaf) if kept else leaf
            for kept, leaf in zip(
                self.observation_moments, tf.nest.flatten(observations), strict=True
            )
        ]
        return tf.nest.pack_sequence_as(observations, leaves)

    def update_moments(self, observations: Any, valid: tf.Tensor) -> Self:
        """Returns the policy with moments that include the `valid` observations."""
        updated = tuple(
            kept.update(leaf, tf.cast(valid, tf.float64)) if kept else kept
            for kept, leaf in zip(
                self.observation_moments, tf.nest.flatten(observations), strict=True
            )
        )
        return self.replace(observation_moments=updated)

    def without_optimizer(self) -> Self:
        """Returns the policy without its optimizer state: cheaper to pass around."""
        return self.replace(state=self.state.replace(opt_state=()))

    def lent(self) -> Self:
        """Returns the policy on the network that compiled functions know it by."""
        return self.replace(state=self.state.lent())

    def returned(self, owner: Self) -> Self:
        """Returns a policy that was `lent` a network on that of `owner`."""
        policy = self.replace(state=self.state.returned(owner.state))
        # Beside the fields, for `act` with NumPy.
        policy.__dict__["_host"] = owner.__dict__.get("_host")
        return policy

    def _outputs(self, observations: Any, state: Any) -> tuple[Any, Any]:
        return self.state(self.normalize(observations)), state

    def _acted_on_host(
        self, observations: Any, state: Any, seed: Any, temperature: float, mask: Any
    ) -> policy.Acted:
        host = self.__dict__.get("_host")
        if host is None:
            host = host_policy.HostPolicy(self)
        elif host.policy is not self:
            host = copy.copy(host)  # what was traced is shared
            host.push(self)
        self.__dict__["_host"] = host
        return host.decided(
            observations, state, seed, temperature, mask, self.has_log_probs
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: x for name, x in self.__dict__.items() if name != "_host"}


def _outputs(acting: NetworkPolicy, *given: Any) -> tuple[Any, Any]:
    return acting._outputs(*given)


_compiled_outputs = tf.function(_outputs, autograph=False)
