"""Action masks in observations: networks that leave forbidden options out."""

from typing import Any

import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import gym_checks
from tfrl.distributions import action_heads
from tfrl.policies import _observation_kinds, feedforward

MASK = gym_checks.MASK


@keras.saving.register_keras_serializable(package="tfrl")
class MaskedNetwork(keras.Model):
    """A network for observations that say which options are allowed.

        parameters[i] = network(rest)[i]    where the mask allows option i
                        -inf                where it does not

    The observation is a dict with a part `"action_mask"`, `[B, n_options]` of zeros and
    ones, and the rest, which the network sees: the other part itself if there is one,
    else the dict of the others. What is computed from the outputs, draws, modes,
    log-probabilities, entropies, the greatest of action values, is that of the allowed
    options, and the others get no gradient.

    Of a choice of which a row allows no option, all count as allowed. Environments show
    such masks in the last observation of an episode, on which nobody acts, and where a
    time limit cut it off, targets are bootstrapped from it: from

        max_b Q(s', b), or the expectation over pi(. | s'), of all options b

    whose values were learned where they were allowed. `NetworkPolicy.act` refuses such
    masks eagerly.

    Args:
        network: a built network, whose first or only output are parameters of a head.
        kinds: description of the whole observation.
        pieces: pairs of a number of parameters, in their order, and whether they are
            the options of a choice.
        **kwargs: of `keras.Model`.

    Example:
        >>> inner = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
        >>> parts = [["action_mask", ["flat", [2]]], ["observation", ["flat", [3]]]]
        >>> network = MaskedNetwork(inner, ["dict", parts], [[2, True]])
        >>> seen = {"action_mask": np.array([[0, 1]]), "observation": np.ones((1, 3))}
        >>> np.isneginf(network(seen)).tolist()
        [[True, False]]

    References:
        Huang and Ontañón, 2022, A Closer Look at Invalid Action Masking in Policy
        Gradient Algorithms, section 3.
    """

    def __init__(
        self,
        network: keras.layers.Layer,
        kinds: Any,
        pieces: list[Any],
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("name", "masked")
        super().__init__(autocast=False, **kwargs)
        self.network, self.kinds, self.pieces = network, kinds, pieces
        inner = feedforward.architecture_of(network)
        if inner is not None:
            self.architecture = f"masked {kinds} {pieces} {inner}"

    @property
    def n_noise(self) -> int:
        """Returns how many numbers the noise in the weights is made of."""
        return getattr(self.network, "n_noise", 0)

    @property
    def support(self) -> Any:
        """The atoms of a network of distributions over them."""
        return getattr(self.network, "support", None)

    @property
    def log_std(self) -> Any:
        """The log standard deviations of the network that are learned beside it."""
        return getattr(self.network, "log_std", None)

    def build(self, input_shape: Any) -> None:
        """Builds the network, if it is not, for the shapes of observations."""
        if not self.network.built:
            self.network.build(self._inner(input_shape)[0])
        super().build(input_shape)

    def call(self, inputs: Any, noise: Any = None) -> Any:
        """Returns what the network does, without what is forbidden."""
        given = {} if noise is None else {"noise": noise}
        return self._masked(self.network, inputs, **given)

    def actor(self, observations: Any) -> Any:
        """Returns the parameters, `[B, n]`, without what is forbidden."""
        return self._masked(self.network.actor, observations)

    def critic(self, observations: Any) -> Any:
        """Returns the values, `[B]`."""
        return self.network.critic(self.parted(observations)[0])

    def sequences(self, inputs: Any) -> Any:
        """Returns what a network with a memory does with sequences, likewise."""
        return self._masked(self.network.sequences, inputs)

    def distributions(self, observations: Any, *args: Any, **kwargs: Any) -> Any:
        """Returns distributions of values of all choices, forbidden ones too."""
        rest, _ = self.parted(observations)
        return self.network.distributions(rest, *args, **kwargs)

    def of_space(self, inputs: Any) -> Any:
        """Returns what the same of `GivenNetwork` does, with a memory or without."""
        if isinstance(inputs, dict):
            return _observation_kinds.choices(self.kinds, inputs)
        return _observation_kinds.choices(self.kinds, inputs[0]), *inputs[1:]

    def parted(self, observations: Any) -> tuple[Any, Any]:
        """Returns what the network sees, and the mask."""
        rest = {key: part for key, part in observations.items() if key != MASK}
        return only(rest), observations[MASK]

    def _inner(self, inputs: Any) -> tuple[Any, Any]:
        # Of a network with a memory the observations are the first of a pair.
        if isinstance(inputs, dict):
            return self.parted(inputs)
        rest, mask = self.parted(inputs[0])
        return (rest, *inputs[1:]), mask

    def _masked(self, function: Any, inputs: Any, **given: Any) -> Any:
        rest, mask = self._inner(inputs)
        outputs = function(rest, **given)
        # LiteRT splits no bools.
        allowed = tf.cast(_allowed(mask), tf.int32)
        if isinstance(outputs, tuple | list):
            return (self._without(outputs[0], allowed), *outputs[1:])
        return self._without(outputs, allowed)

    def _without(self, parameters: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        sizes, choices = zip(*self.pieces, strict=True)
        counts = [n for n, is_choice in self.pieces if is_choice]
        masks = iter(tf.split(mask, counts, axis=-1))
        given = tf.split(parameters, sizes, axis=-1)
        parts = [
            _head_of(n).masked(part, _some(next(masks))) if is_choice else part
            for part, n, is_choice in zip(given, sizes, choices, strict=True)
        ]
        return tf.concat(parts, axis=-1)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "network": keras.saving.serialize_keras_object(self.network),
            "kinds": self.kinds,
            "pieces": self.pieces,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "MaskedNetwork":
        """Makes the network that `get_config` described."""
        network = keras.saving.deserialize_keras_object(config["network"])
        return cls(**{**config, "network": network})


def _head_of(n_choices: int) -> action_heads.CategoricalHead:
    return action_heads.CategoricalHead((n_choices,), (0,), True, "int64")


def _allowed(mask: tf.Tensor) -> tf.Tensor:
    # LiteRT compares no int8, of which masks are.
    return tf.not_equal(tf.cast(mask, tf.float32), 0.0)


def _some(allowed: tf.Tensor) -> tf.Tensor:
    """All options where none is allowed, of one choice, of ones and zeros."""
    return tf.maximum(allowed, 1 - tf.reduce_max(allowed, axis=-1, keepdims=True))


def only(parts: dict[str, Any]) -> Any:
    """Returns the part of a dict of one, else the dict."""
    return next(iter(parts.values())) if len(parts) == 1 else parts


def parted(network: Any, observations: Any) -> tuple[Any, Any]:
    """Returns what a network sees of observations, and the mask in them as bools.

    Args:
        network: the network.
        observations: nest of arrays or tensors `[B, *shape]`.

    Returns:
        The observations without the mask; and that, None where the network has none.
    """
    if not isinstance(network, MaskedNetwork):
        return observations, None
    rest, mask = network.parted(observations)
    if tf.is_tensor(mask):
        return rest, _allowed(mask)
    return rest, np.not_equal(mask, 0)


def parted_space(
    where: str, observation_space: gym.Space, head: Any
) -> tuple[gym.Space, gym.spaces.Dict | None]:
    """Returns the space of what a network is to see.

    Args:
        where: the asking function, for the message.
        observation_space: of one environment.
        head: of the actions.

    Returns:
        The space without its part `"action_mask"`; and the whole, with the mask as a
        MultiBinary, None where there is no such part.

    Raises:
        ValueError: if the mask has another shape or other numbers than one of zeros and
            ones for each option of the head, or there is nothing else to see.
    """
    space = observation_space
    if not isinstance(space, gym.spaces.Dict) or MASK not in space.spaces:
        return space, None
    place, n_options = f"`{where}`: `observation_space[{MASK!r}]`", head.n_options
    mask = space[MASK]
    if not n_options:
        raise ValueError(
            f"{place} expected actions that are choices, of which it allows some; got "
            f"{type(head).__name__}; name the part otherwise"
        )
    if mask.shape != (n_options,) or not _is_binary(mask):
        raise ValueError(
            f"{place} expected zeros and ones, one for each of the {n_options} options "
            f"of the action space, such as MultiBinary({n_options}); got {mask}"
        )
    rest = {key: part for key, part in space.spaces.items() if key != MASK}
    if not rest:
        raise ValueError(f"{place} expected another part beside it; got none")
    binary = gym.spaces.MultiBinary(n_options)
    seen = only(rest) if len(rest) == 1 else gym.spaces.Dict(rest)
    return seen, gym.spaces.Dict({**space.spaces, MASK: binary})


def _is_binary(space: gym.Space) -> bool:
    if isinstance(space, gym.spaces.Box):
        return bool((space.low >= 0).all() and (space.high <= 1).all())
    if isinstance(space, gym.spaces.MultiDiscrete):
        return bool((space.nvec == 2).all() and (space.start == 0).all())
    return isinstance(space, gym.spaces.MultiBinary)


def around(network: Any, space: gym.spaces.Dict, head: Any) -> MaskedNetwork:
    """Returns a built network with the masks of a space around another.

    Args:
        network: a built one.
        space: of observations with a mask.
        head: that its parameters are for.
    """
    place = "`MaskedNetwork`: `observation_space`"
    kinds = _observation_kinds.description(space, images=False, place=place)
    made = MaskedNetwork(network, kinds, sum(_pieces(head), []))
    shape = network.get_build_config()["input_shape"]
    memory = None
    if isinstance(shape, tuple) and shape and not isinstance(shape[0], int | None):
        shape, memory = shape
    keys = [key for key in space.spaces if key != MASK]
    shapes = dict(shape) if len(keys) > 1 else {keys[0]: shape}
    shapes[MASK] = (None, head.n_options)
    made.build(shapes if memory is None else (shapes, memory))
    return made


def _pieces(head: Any) -> tuple[list[Any], list[Any]]:
    """Pieces of the parameters, and those that composite heads put at the end."""
    if hasattr(head, "parts"):
        first, last = zip(*map(_pieces, head.parts), strict=True)
        return sum(first, []), sum(last, [])
    if head.n_options:
        return [[n, True] for n in head.n_choices], []
    size = head.n_outputs - head.n_log_stds
    return [[size, False]], [[head.n_log_stds, False]]
