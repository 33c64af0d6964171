"""A policy taken apart for export: its variables, its head, its masks."""

from collections.abc import Callable, Mapping
from typing import Any, Self

import gymnasium as gym
import tensorflow as tf

from tfrl.agents import agent as agents
from tfrl.core import pytree, spaces
from tfrl.distributions import action_heads
from tfrl.training.exporting import endpoints


def check_space(where: str, name: str, space: Any) -> None:
    """Raises unless an argument is a space."""
    if not isinstance(space, gym.Space):
        raise TypeError(
            f"`{where}`: `{name}` expected a Gymnasium space; got {space!r:.80}; pass "
            "that which the agent was made with"
        )


def checked_head(where: str, agent: agents.Agent, action_space: gym.Space) -> Any:
    """Returns the head of an agent's policy, which must be that of the space."""
    head = _policy(where, agent).head
    check_space(where, "action_space", action_space)
    squash = getattr(head, "squash", False)
    bounded = isinstance(action_space, gym.spaces.Box) and action_space.is_bounded()
    if action_heads.action_head(action_space, squash=squash and bounded) != head:
        raise ValueError(
            f"`{where}`: `action_space` expected that of the policy, {head}; got "
            f"{action_space}; pass the space that the agent was made with"
        )
    return head


class NarrowMoments(pytree.PyTreeNode):
    """Normalizes as `tfrl.stats.RunningMoments` does, in float32, as LiteRT must.

    The mean is the sum of two numbers, so that a large one keeps its last digits.
    """

    mean: tf.Tensor
    rest: tf.Tensor
    scale: tf.Tensor

    @classmethod
    def create(cls, wide: Any) -> Self:
        mean = tf.cast(wide.mean, tf.float32)
        rest = tf.cast(wide.mean - tf.cast(mean, tf.float64), tf.float32)
        scale = tf.cast(tf.math.rsqrt(wide.variance + 1e-8), tf.float32)
        return cls(mean=mean, rest=rest, scale=scale)

    def normalize(self, values: tf.Tensor) -> tf.Tensor:
        centred = tf.cast(values, tf.float32) - self.mean - self.rest
        return tf.clip_by_value(centred * self.scale, -10.0, 10.0)


def reader(
    where: str,
    agent: agents.Agent,
    observation_space: gym.Space,
    names: list[str],
    *,
    narrow: bool = False,
) -> Callable[[Mapping[str, tf.Tensor]], tuple[Any, Any]]:
    """A function from named inputs to the policy, of variables, and observations."""
    # Optimizer state is not part of a policy.
    policy = _policy(where, agent).without_optimizer()
    structure = spaces.spec_from_space(observation_space)
    _check_observations(where, policy, structure)
    if narrow:
        wide = policy.observation_moments
        kept = tuple(each and NarrowMoments.create(each) for each in wide)
        policy = policy.replace(observation_moments=kept)
    leaves = [
        tf.Variable(leaf, trainable=leaf.dtype.is_floating)
        for leaf in tf.nest.flatten(policy)
    ]
    pack = tf.nest.pack_sequence_as

    def read(given: Mapping[str, tf.Tensor]) -> tuple[Any, Any]:
        values = [leaf.read_value() for leaf in leaves]
        parts = [given[name] for name in names]
        return pack(policy, values), pack(structure, parts)

    return read


def endpoints_of(
    agent: agents.Agent,
    observation_space: gym.Space,
    action_space: gym.Space,
    inputs: Mapping[str, tf.TensorSpec],
    *,
    with_mask: bool,
    narrow: bool = False,
) -> dict[str, endpoints.Endpoint]:
    """The endpoints of a policy, `narrow` ones without float64 between in and out."""
    where, inputs = "policy_endpoints", dict(inputs)
    head = checked_head(where, agent, action_space)
    current = reader(where, agent, observation_space, list(inputs), narrow=narrow)
    if with_mask:
        check_maskable(head, inputs)
        inputs["action_mask"] = tf.TensorSpec([None, head.n_options], tf.bool)

    def parameters(given: dict[str, tf.Tensor]) -> tf.Tensor:
        policy, observations = current(given)
        found = policy.parameters(observations)
        if not with_mask:
            return found
        return head.masked(found, given["action_mask"])

    def greedy(**given: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"actions": head.to_env(head.mode(parameters(given)))}

    def sample(**given: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = parameters(given)
        drawn = head.to_env(head.sample(outputs, given["seed"]))
        log_probs = head.log_prob(outputs, head.from_env(drawn))
        return {"actions": drawn, "log_probs": log_probs}

    def log_prob(**given: tf.Tensor) -> dict[str, tf.Tensor]:
        raw = head.from_env(given["actions"])
        return {"log_probs": head.log_prob(parameters(given), raw)}

    seed = tf.TensorSpec([2], tf.int32)
    row = spaces.spec_from_space(action_space)
    actions = row.replace(shape=[None, *row.shape], dtype=head.dtype)
    return {
        "serving_default": endpoints.Endpoint(greedy, inputs),
        "sample": endpoints.Endpoint(sample, {**inputs, "seed": seed}),
        "log_prob": endpoints.Endpoint(log_prob, {**inputs, "actions": actions}),
    }


def check_maskable(head: Any, inputs: Mapping[str, Any]) -> None:
    """Raises if the actions are no choices, or an observation is named as the mask."""
    if not head.n_options:
        raise ValueError(
            "`policy_endpoints`: `with_mask` expected actions that are choices; got "
            f"{type(head).__name__}; leave it False"
        )
    if "action_mask" in inputs:
        raise ValueError(
            "`policy_endpoints`: `observation_space` expected no part 'action_mask' "
            "beside the mask; got one; rename it by a wrapper"
        )


def _policy(where: str, agent: Any) -> Any:
    policy = getattr(agent, "policy", None)
    if not hasattr(policy, "without_optimizer"):
        raise TypeError(
            f"`{where}`: `agent` expected an agent with a policy, such as a PPOAgent; "
            f"got {agent!r:.80}; for other components there is `export_model`"
        )
    return policy


def _check_observations(where: str, policy: Any, structure: Any) -> None:
    """Raises if the network cannot be traced with one row of the observations."""
    row = tf.nest.map_structure(
        lambda part: tf.TensorSpec([1, *part.shape], part.dtype), structure
    )
    trace = tf.function(policy.parameters, autograph=False).get_concrete_function
    try:
        n_rows = trace(row).output_shapes[0]
        fault = f"{n_rows} rows of outputs for one" if n_rows != 1 else ""
    except (KeyError, TypeError, ValueError) as error:
        fault = str(error).strip().splitlines()[0]
    if fault:
        parts = tf.nest.map_structure(lambda part: part.shape.as_list(), structure)
        raise ValueError(
            f"`{where}`: `observation_space` expected that of the policy; got {parts} "
            f"({fault:.120}); pass the space that the agent was made with"
        )
