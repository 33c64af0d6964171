"""What policies answer in graphs of named tensors, and their copies for LiteRT."""

import functools
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl._internal import dtype_policies
from tfrl.core import pytree, spaces
from tfrl.exporting import endpoints


def check_actions_of_litert(where: str, action_space: gym.Space) -> None:
    """Raises a ValueError if actions are of floats that LiteRT does not bound.

    Args:
        where: name of the function, for messages.
        action_space: of one environment.
    """
    for part in tf.nest.flatten(spaces.spec_from_space(action_space)):
        if part.dtype in (tf.float16, tf.bfloat16):
            raise ValueError(
                f"`{where}`: a .tflite file expected an `action_space` of float32; got "
                f"{part.dtype.name}, whose bounds LiteRT cannot keep; train with "
                "actions of float32, which a wrapper casts, or write a folder"
            )


def of_float32(where: str, policy: Any) -> Any:
    """Returns a policy that normalizes and computes in float32, as LiteRT must.

    Args:
        where: name of the function, for messages.
        policy: of `tfrl.policies`.

    Raises:
        ValueError: if its network computes in floats of 16 bits, and cannot be made
            anew.
    """

    def narrow(wide: Any) -> _NarrowMoments:
        mean = tf.cast(wide.mean, tf.float32)
        rest = tf.cast(wide.mean - tf.cast(mean, tf.float64), tf.float32)
        scale = tf.cast(tf.math.rsqrt(wide.variance + 1e-8), tf.float32)
        return _NarrowMoments(mean=mean, rest=rest, scale=scale)

    kept = tuple(each and narrow(each) for each in policy.observation_moments)
    state = policy.state
    name = dtype_policies.found(state.model_def)
    if name is not None:
        try:
            with dtype_policies.used(state.model_def.dtype_policy):
                known = state.to_keras()  # which is compared with the state
            state = type(state).create(dtype_policies.widened(known))
        except (NotImplementedError, TypeError, ValueError) as error:
            raise ValueError(
                f"`{where}`: a .tflite file expected a network of float32, or one that "
                f"its configuration can make anew; got one of the dtype policy {name!r}"
                f" ({' '.join(str(error).split()):.300}); train in float32, or write a "
                "folder"
            ) from error
    return policy.replace(observation_moments=kept, state=state)


class _NarrowMoments(pytree.PyTreeNode):
    """Normalizes as `tfrl.stats.RunningMoments` does.

    The mean is the sum of two numbers, so that a large one keeps its last digits.
    """

    mean: tf.Tensor
    rest: tf.Tensor
    scale: tf.Tensor

    def normalize(self, values: tf.Tensor) -> tf.Tensor:
        centred = tf.cast(values, tf.float32) - self.mean - self.rest
        return tf.clip_by_value(centred * self.scale, -10.0, 10.0)


class ServedPolicy:
    """A policy of variables, asked by named tensors.

    Args:
        where: name of the function that exports, for messages.
        policy: of `tfrl.policies`.
        observation_space: of one environment.
        names: of the inputs for its parts.
    """

    def __init__(
        self, where: str, policy: Any, observation_space: gym.Space, names: list[str]
    ) -> None:
        # Optimizer state is not part of a policy.
        self._policy, self._names = policy.without_optimizer(), names
        self._space = observation_space
        # Kept, as graphs do not keep their variables.
        self._narrow: ServedPolicy | None = None
        self._is_narrow = False
        self._structure = spaces.spec_from_space(observation_space)
        self._check_observations(where)
        self._variables = [
            tf.Variable(leaf, trainable=leaf.dtype.is_floating)
            for leaf in map(tf.convert_to_tensor, tf.nest.flatten(self._policy))
        ]

    def endpoint(self, method: str, inputs: Mapping[str, Any]) -> endpoints.Endpoint:
        """Returns the endpoint of a method, in LiteRT that of a copy in float32."""
        return endpoints.Endpoint(
            getattr(self, method),
            inputs,
            for_litert=lambda where: getattr(self._of_float32(where), method),
        )

    def _of_float32(self, where: str) -> "ServedPolicy":
        if self._narrow is None:
            policy = of_float32(where, self._policy)
            self._narrow = ServedPolicy(where, policy, self._space, self._names)
            self._narrow._is_narrow = True
        return self._narrow

    def greedy(self, **given: Any) -> dict[str, Any]:
        """Returns the best actions, by name."""
        shaped, state = self._distributed(given, 0.0)
        head = self._policy.head
        found = {"actions": head.to_env(head.mode(shaped))}
        return self._refused(given, found) | state

    def sample(self, **given: Any) -> dict[str, Any]:
        """Returns drawn actions, and their log-probabilities, by name."""
        shaped, state = self._distributed(given)
        head = self._policy.head
        found = {"actions": head.to_env(head.sample(shaped, given["seed"]))}
        if self._policy.has_log_probs:
            raw = head.from_env(found["actions"])
            found["log_probs"] = head.log_prob(shaped, raw)
        return self._refused(given, found) | state

    def log_prob(self, **given: Any) -> dict[str, Any]:
        """Returns log-probabilities of given actions, by name."""
        shaped, state = self._distributed(given)
        head = self._policy.head
        raw = head.from_env(given["actions"])
        found = {"log_probs": head.log_prob(shaped, raw)}
        return self._refused(given, found) | state

    def value(self, **given: Any) -> dict[str, Any]:
        """Returns values of observations, by name."""
        policy, observations = self._now(given)
        state = (given["state"],) if "state" in given else ()
        found = {"values": policy.values(observations, *state)}
        return self._refused(given, found)

    def _refused(
        self, given: Mapping[str, Any], found: dict[str, Any]
    ) -> dict[str, Any]:
        """NaN for rows that `act` refuses; bounds and rectifiers make them numbers."""
        parts = [given[x] for x in self._names if given[x].dtype.is_floating]
        if not parts:
            return found
        fine = [tf.cast(x, tf.float32) for x in parts]
        if self._policy.observation_moments:  # which clip infinities
            fine = [tf.logical_not(tf.math.is_nan(x)) for x in fine]
        else:  # NaN is not less than anything
            fine = [tf.abs(x) < np.float32("inf") for x in fine]
        fine = [tf.reduce_all(x, axis=list(range(1, x.shape.rank))) for x in fine]
        whole = functools.reduce(tf.logical_and, fine)

        def told(leaf: tf.Tensor) -> tf.Tensor:
            if not leaf.dtype.is_floating:
                return leaf
            rows = tf.reshape(whole, [-1, *[1] * (leaf.shape.rank - 1)])
            # LiteRT chooses among no float64, and heads make these of float32.
            kept = tf.cast(leaf, tf.float32) if self._is_narrow else leaf
            kept = tf.where(rows, kept, tf.constant(np.nan, kept.dtype))
            return tf.cast(kept, leaf.dtype)

        return tf.nest.map_structure(told, found)

    def _distributed(
        self, given: Mapping[str, Any], temperature: float = 1.0
    ) -> tuple[tf.Tensor, dict[str, Any]]:
        policy, observations = self._now(given)
        noise = policy.drawn_noise(given.get("seed"))
        found, state = policy.outputs(observations, given.get("state", ()), noise)
        mask = None if policy.is_masked else given.get("action_mask")
        shaped = policy.distributed(found, temperature, mask)
        return shaped, {"state": state} if "state" in given else {}

    def _now(self, given: Mapping[str, Any]) -> tuple[Any, Any]:
        values = [variable.read_value() for variable in self._variables]
        parts = [given[name] for name in self._names]
        pack = tf.nest.pack_sequence_as
        return pack(self._policy, values), pack(self._structure, parts)

    def _check_observations(self, where: str) -> None:
        """Raises unless the policy acts on a row of such observations."""
        row = tf.nest.map_structure(
            lambda part: tf.ones([1, *part.shape], part.dtype), self._structure
        )
        memory = self._policy.initial_state(1)
        try:
            self._policy.act(row, memory, seed=0, temperature=0.0)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"`{where}`: `observation_space` expected that of the policy; got "
                f"{self._space!s:.200} ({str(error).splitlines()[0]:.200}); give the "
                "space of the environment that it learned in"
            ) from error
