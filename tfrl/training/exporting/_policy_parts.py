"""A policy taken apart for export: its variables, its head, its masks."""

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import tensorflow as tf

from tfrl.agents import agent as agents
from tfrl.core import spaces
from tfrl.distributions import action_heads, masked


def checked_head(where: str, agent: agents.Agent, action_space: gym.Space) -> Any:
    """Returns the head of an agent's policy, which must be that of the space."""
    head = _policy(where, agent).head
    squash = getattr(head, "squash", False)
    bounded = isinstance(action_space, gym.spaces.Box) and action_space.is_bounded()
    if action_heads.action_head(action_space, squash=squash and bounded) != head:
        raise ValueError(
            f"`{where}`: `action_space` expected that of the policy, {head}; got "
            f"{action_space}; pass the space that the agent was made with"
        )
    return head


def reader(
    where: str, agent: agents.Agent, observation_space: gym.Space, names: list[str]
) -> Callable[[Mapping[str, tf.Tensor]], tuple[Any, Any]]:
    """A function from named inputs to the policy, of variables, and observations."""
    # Optimizer state is not part of a policy.
    policy = _policy(where, agent).without_optimizer()
    structure = spaces.spec_from_space(observation_space)
    _check_observations(where, policy, structure)
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


def check_maskable(head: Any, inputs: Mapping[str, Any]) -> None:
    """Raises if the actions are no choices, or an observation is named as the mask."""
    if not isinstance(head, action_heads.CategoricalHead):
        raise ValueError(
            "`policy_endpoints`: `with_mask` expected actions that are choices; got "
            f"{type(head).__name__}; leave it False"
        )
    if "action_mask" in inputs:
        raise ValueError(
            "`policy_endpoints`: `observation_space` expected no part 'action_mask' "
            "beside the mask; got one; rename it by a wrapper"
        )


def allowed(
    head: action_heads.CategoricalHead, logits: tf.Tensor, mask: tf.Tensor
) -> tf.Tensor:
    """Logits `[B, n]` of which those that the mask `[B, n]` forbids are out."""
    choices = zip(
        tf.split(logits, head.n_choices, axis=-1),
        tf.split(mask, head.n_choices, axis=-1),
        strict=True,
    )
    return tf.concat(
        [masked.MaskedCategorical(*choice).logits_parameter() for choice in choices],
        axis=-1,
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
