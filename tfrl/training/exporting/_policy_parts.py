"""A policy taken apart for export: its variables, its head, its masks."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Self

import gymnasium as gym
import tensorflow as tf

from tfrl.agents import agent as agents
from tfrl.core import pytree, spaces, specs
from tfrl.distributions import action_heads
from tfrl.policies import network_policy
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
    if action_heads.action_head(action_space) != _plain(head):
        raise ValueError(
            f"`{where}`: `action_space` expected that of the policy, {head}; got "
            f"{action_space}; pass the space that the agent was made with"
        )
    return head


def _plain(head: Any) -> Any:
    """The head that a space has where nothing is said about its deviations."""
    if isinstance(head, action_heads.CompositeHead):
        return dataclasses.replace(head, parts=tuple(map(_plain, head.parts)))
    if isinstance(head, action_heads.NormalHead):
        parts = head.low, head.high, head.shape, head.dtype
        return action_heads.NormalHead(*parts, squash=False)
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
    where, given_in = "policy_endpoints", dict[str, Any](inputs)
    head = checked_head(where, agent, action_space)
    current = reader(where, agent, observation_space, list(inputs), narrow=narrow)
    policy = _policy(where, agent)
    memory, has_log_probs = _memory(policy), policy.has_log_probs
    if with_mask:
        check_maskable(head)
        _check_free("action_mask", inputs)
        given_in["action_mask"] = tf.TensorSpec([None, head.n_options], tf.bool)
    if tf.nest.flatten(memory):
        _check_free("state", inputs)
        given_in["state"] = memory

    def outputs(
        given: dict[str, Any], temperature: float = 1.0
    ) -> tuple[tf.Tensor, dict[str, Any]]:
        policy, observations = current(given)
        found, state = policy.outputs(observations, given.get("state", ()))
        shaped = policy.distributed(found, temperature, given.get("action_mask"))
        return shaped, {"state": state} if "state" in given else {}

    def greedy(**given: Any) -> dict[str, Any]:
        shaped, state = outputs(given, 0.0)
        return {"actions": head.to_env(head.mode(shaped)), **state}

    def sample(**given: Any) -> dict[str, Any]:
        shaped, state = outputs(given)
        drawn = head.to_env(head.sample(shaped, given["seed"]))
        if not has_log_probs:
            return {"actions": drawn, **state}
        log_probs = head.log_prob(shaped, head.from_env(drawn))
        return {"actions": drawn, "log_probs": log_probs, **state}

    def log_prob(**given: Any) -> dict[str, Any]:
        raw = head.from_env(given["actions"])
        shaped, state = outputs(given)
        return {"log_probs": head.log_prob(shaped, raw), **state}

    seed = tf.TensorSpec([2], tf.int32)
    found = {
        "serving_default": endpoints.Endpoint(greedy, given_in),
        "sample": endpoints.Endpoint(sample, {**given_in, "seed": seed}),
    }
    if has_log_probs:
        actions = _batched(spaces.spec_from_space(action_space))
        found["log_prob"] = endpoints.Endpoint(
            log_prob, {**given_in, "actions": actions}
        )
    if "state" in given_in:
        count = specs.BoundedTensorSpec([], tf.int32, 1, 8)
        found["initial_state"] = endpoints.Endpoint(
            lambda batch_size: {"state": policy.initial_state(batch_size)},
            {"batch_size": count},
        )
    return found


def _batched(row: Any) -> Any:
    return tf.nest.map_structure(
        lambda part: part.replace(shape=[None, *part.shape]), row
    )


def _memory(policy: Any) -> Any:
    """Specs of what a policy remembers, `[B, ...]`."""
    return tf.nest.map_structure(
        lambda x: tf.TensorSpec([None, *x.shape[1:]], x.dtype), policy.initial_state(1)
    )


def check_maskable(head: Any) -> None:
    """Raises if no part of the actions is a choice."""
    if not head.n_options:
        raise ValueError(
            "`policy_endpoints`: `with_mask` expected actions that are choices; got "
            f"{type(head).__name__}; leave it False"
        )


def check_valuing(where: str, agent: agents.Agent) -> None:
    """Raises unless the policy says what it expects of observations."""
    policy = _policy(where, agent)
    if not hasattr(policy, "values"):
        raise TypeError(
            f"`{where}`: `agent` expected one whose policy values states, such as a "
            f"PPOAgent; got a {type(agent).__name__} with a {type(policy).__name__}"
        )


def _check_free(name: str, inputs: Mapping[str, Any]) -> None:
    """Raises if an observation is named as another input."""
    if name in inputs:
        raise ValueError(
            f"`policy_endpoints`: `observation_space` expected no part {name!r} beside "
            "the input of that name; got one; rename it by a wrapper"
        )


def _policy(where: str, agent: Any) -> network_policy.NetworkPolicy:
    policy = getattr(agent, "policy", None)
    if not isinstance(policy, network_policy.NetworkPolicy):
        got = f"{agent!r:.80}"
        if policy is not None:
            got = f"a {type(agent).__name__} with a {type(policy).__name__}"
        raise TypeError(
            f"`{where}`: `agent` expected an agent with a policy of `tfrl.policies`, "
            f"such as a PPOAgent; got {got}; for other components there is "
            "`export_model`"
        )
    return policy


def _check_observations(where: str, policy: Any, structure: Any) -> None:
    """Raises if the network cannot be traced with one row of the observations."""
    row = tf.nest.map_structure(
        lambda part: tf.TensorSpec([1, *part.shape], part.dtype), structure
    )
    memory = tf.nest.map_structure(
        lambda part: tf.TensorSpec([1, *part.shape[1:]], part.dtype), _memory(policy)
    )
    trace = tf.function(policy.outputs, autograph=False).get_concrete_function
    try:
        n_rows = trace(row, memory).output_shapes[0][0]
        fault = f"{n_rows} rows of outputs for one" if n_rows != 1 else ""
    except (KeyError, TypeError, ValueError) as error:
        fault = str(error).strip().splitlines()[0]
    if fault:
        parts = tf.nest.map_structure(lambda part: part.shape.as_list(), structure)
        raise ValueError(
            f"`{where}`: `observation_space` expected that of the policy; got {parts} "
            f"({fault:.120}); pass the space that the agent was made with"
        )
