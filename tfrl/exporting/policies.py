"""Endpoints for what policies do: act, draw, return log-probabilities and values."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import spaces, specs
from tfrl.distributions import action_heads, heads_of_spaces
from tfrl.exporting import _graphs, _served, endpoints
from tfrl.policies import host_policy, network_policy

_ONE_BY_ONE = (
    "export its players one by one: `with tfrl.rl_trainer.open_run(RUN) as run:` "
    "`tfrl.exporting.export_policy(run.agent.agents[{0!r}], PATH, "
    "run.spaces[0][{0!r}], run.spaces[1][{0!r}])`"
)


def policy_inputs(
    observation_space: gym.Space, taken: Sequence[str] = ("actions", "seed")
) -> dict[str, tf.TensorSpec]:
    """Returns the named inputs that an exported policy takes as its observation.

    One array is `observations`. The parts of a Dict keep their names, those of a Tuple
    are numbered; names are joined by underscores where spaces are nested.

    Args:
        observation_space: of one environment; arrays, or Dicts and Tuples of them.
        taken: names of the other inputs.

    Returns:
        Bounded specs `[None, *shape]` by name, in the order in which `tf.nest` flattens
        observations.

    Raises:
        ValueError: if a name is none that TensorFlow takes, is taken, or is that of two
            parts.
        TypeError: if it is not a space, or a part is not an array.

    Example:
        >>> speed = gym.spaces.Box(-1.0, 1.0, (3,))
        >>> space = gym.spaces.Dict(eye=speed, body=gym.spaces.Tuple([speed, speed]))
        >>> list(policy_inputs(space))
        ['body_0', 'body_1', 'eye']
    """
    _check_space("policy_inputs", "observation_space", observation_space)
    inputs: dict[str, tf.TensorSpec] = {}
    structure = spaces.spec_from_space(observation_space)
    root = "" if isinstance(structure, dict) else "observations"
    for name, part in _graphs.named_leaves(structure, root):
        place = "`policy_inputs`: `observation_space`"
        endpoints.check_name(place, name, (*taken, *inputs))
        inputs[name] = _batched(part)
    return inputs


def taken(agent: Any, action_space: gym.Space) -> list[str]:
    """Returns the names of the inputs beside observations, and of what is in them.

    Args:
        agent: or its policy, whose memory may have taken some.
        action_space: of one environment.

    Example:
        >>> taken(None, gym.spaces.Discrete(2))
        ['actions', 'seed']
    """
    policy, beside = getattr(agent, "policy", agent), {"actions": 0, "seed": 0}
    if isinstance(policy, network_policy.NetworkPolicy):
        beside |= {"actions": spaces.spec_from_space(action_space)}
        beside |= _state_input(policy)
    return sorted({*beside, *(name for name, _ in _graphs.named_leaves(beside, ""))})


def policy_endpoints(
    agent: Any,
    observation_space: gym.Space,
    action_space: gym.Space,
    *,
    with_mask: bool = False,
) -> dict[str, endpoints.Endpoint]:
    """Returns endpoints for what a policy does, for `export_model`.

    Every endpoint takes named tensors with a free batch axis B and returns a
    dictionary. The inputs for the observation are those of `policy_inputs`.

    * `serving_default`: the most probable `actions`.
    * `sample`: with `seed`, int32 `[2]`: drawn `actions` and their `log_probs`.
    * `log_prob`: with `actions` of the environment: their `log_probs`.
    * `initial_state`: with `batch_size`, int32: the `state` at the beginning of
      episodes, for a policy with a memory. The others then take and return `state`.

    For action values the first is the best action, and the others explore as the policy
    does. A deterministic policy has no log-probabilities, and no `log_prob`. Actions
    that are a Dict or a Tuple are named as observations are: `actions_0`, and so on.

    Log-probabilities are those that the head gives to actions of the environment: for a
    normal draw that was clipped to the bounds, the density at the bound. With a mask,
    endpoints take `action_mask` too, bool `[B, n]`: which options are allowed, those of
    several choices one choice after the other. If a row allows no option of a choice,
    all count alike.

    Args:
        agent: a policy of `tfrl.policies`, or an agent or `AgentModel` that has one;
            its weights are copied.
        observation_space: of one environment.
        action_space: of one environment.
        with_mask: whether to take an `action_mask`.

    Returns:
        The endpoints by name.

    Raises:
        ValueError: if weights are not finite, a space is not that of the policy, an
            observation has a name that no input can have, or `with_mask` is set for
            actions that are not choices or observations that bring masks.
        TypeError: if `agent` neither is nor has a policy of `tfrl.policies`, or a part
            of an observation is no array.

    Example:
        >>> space, actions = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2)
        >>> agent = tfrl.agents.PPO().create(
        ...     space, actions, n_envs=1, n_steps=64, seed=0)
        >>> found = policy_endpoints(agent, space, actions, with_mask=True)
        >>> list(found["sample"].inputs)
        ['observations', 'action_mask', 'seed']
    """
    where = "policy_endpoints"
    policy = policy_of(where, agent)
    more = _state_input(policy)
    if with_mask:
        if policy.is_masked:
            raise ValueError(
                f"`{where}`: `with_mask` expected False for observations that bring "
                "their mask, 'action_mask'; got True; leave it False"
            )
        n_options = policy.head.n_options
        more = {"action_mask": tf.TensorSpec([None, n_options], tf.bool), **more}
    _check_space(where, "observation_space", observation_space)
    _check_space(where, "action_space", action_space)
    names = {*taken(policy, action_space), *more}
    inputs: dict[str, Any] = {**policy_inputs(observation_space, sorted(names))}
    head = policy.head
    if heads_of_spaces.action_head(action_space) != _plain(head):
        raise ValueError(
            f"`{where}`: `action_space` expected that of the policy, "
            f"{heads_of_spaces.space_of(head)}; got {action_space}; give the space of "
            "the environment that it learned in"
        )
    served = _served.ServedPolicy(where, policy, observation_space, list(inputs))
    if with_mask and not head.n_options:
        raise ValueError(
            f"`{where}`: `with_mask` expected actions that are choices; got "
            f"{type(head).__name__}; leave it False"
        )
    inputs |= more
    seed = tf.TensorSpec([2], tf.int32)
    found = {
        "serving_default": served.endpoint("greedy", inputs),
        "sample": served.endpoint("sample", {**inputs, "seed": seed}),
    }
    if policy.has_log_probs:
        row = spaces.spec_from_space(action_space)
        actions = {"actions": tf.nest.map_structure(_batched, row)}
        found["log_prob"] = served.endpoint("log_prob", inputs | actions)
    if "state" in more:
        found["initial_state"] = endpoints.Endpoint(
            lambda batch_size: {"state": policy.initial_state(batch_size)},
            {"batch_size": specs.BoundedTensorSpec([], tf.int32, 1, 8)},
        )
    return found


def value_endpoint(agent: Any, observation_space: gym.Space) -> endpoints.Endpoint:
    """Returns the endpoint for an agent's values of observations.

    It takes the inputs of `policy_inputs`, for a policy with a memory also `state`, and
    returns their `values`, `[B]`.

    Args:
        agent: as in `policy_endpoints`.
        observation_space: of one environment.

    Returns:
        The endpoint.

    Raises:
        ValueError: if weights are not finite, the space is not that of the policy, or
            an observation has a name that no input can have.
        TypeError: if `agent` has no policy that values states, or a part of an
            observation is no array.

    Example:
        >>> space, actions = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2)
        >>> agent = tfrl.agents.PPO().create(
        ...     space, actions, n_envs=1, n_steps=64, seed=0)
        >>> endpoint = value_endpoint(agent, space)
        >>> endpoint.function(observations=tf.zeros([5, 3]))["values"].shape
        TensorShape([5])
    """
    where = "value_endpoint"
    policy = policy_of(where, agent)
    more = _state_input(policy)
    names = {*more, *(name for name, _ in _graphs.named_leaves(more, ""))}
    inputs: dict[str, Any] = {**policy_inputs(observation_space, sorted(names))}
    served = _served.ServedPolicy(where, policy, observation_space, list(inputs))
    if not getattr(policy, "has_values", hasattr(policy, "values")):
        raise TypeError(
            f"`{where}`: `agent` expected one whose policy values states, such as a "
            f"PPOAgent; got a {type(agent).__name__} with a {type(policy).__name__}"
        )
    return served.endpoint("value", inputs | more)


def policy_of(where: str, agent: Any) -> network_policy.NetworkPolicy:
    """Returns the policy of an agent or `AgentModel`, or the policy that was given.

    For a league, such as that of `tfrl.agents.SelfPlay`, it is the current one.

    Args:
        where: name of the function, for messages.
        agent: which of them it is.

    Raises:
        TypeError: if there is none of `tfrl.policies`.
        ValueError: if its weights are not finite.

    Example:
        >>> policy_of("export", None)
        Traceback (most recent call last):
        ...
        TypeError: `export`: `agent` expected a policy of `tfrl.policies`, or ...
    """
    policy = getattr(getattr(agent, "agent", agent), "policy", agent)
    policy = getattr(policy, "current", policy)
    if not isinstance(policy, network_policy.NetworkPolicy):
        got = f"{agent!r:.80}"
        if policy is not agent:
            got = f"{type(agent).__name__} with {type(policy).__name__}"
        raise TypeError(
            f"`{where}`: `agent` expected a policy of `tfrl.policies`, or an agent "
            f"with one, such as a PPOAgent; got {got}; "
            + (
                _ONE_BY_ONE.format(policy.players[0])
                if hasattr(policy, "players")
                else "for other components there is `export_model`"
            )
        )
    host_policy.check_finite(where, "agent", policy.state)
    return policy.independent()


def _state_input(policy: Any) -> dict[str, Any]:
    """The spec of what a policy remembers, by name; nothing without memory."""
    memory = tf.nest.map_structure(
        lambda x: tf.TensorSpec([None, *x.shape[1:]], x.dtype), policy.initial_state(1)
    )
    return {"state": memory} if tf.nest.flatten(memory) else {}


def _plain(head: Any) -> Any:
    """The head that a space has where nothing is said about its deviations."""
    if isinstance(head, action_heads.CompositeHead):
        return dataclasses.replace(head, parts=tuple(map(_plain, head.parts)))
    if isinstance(head, action_heads.NormalHead):
        parts = head.low, head.high, head.shape, head.dtype
        return action_heads.NormalHead(*parts, squash=False)
    return head


def _batched(part: tf.TensorSpec) -> tf.TensorSpec:
    return part.replace(shape=[None, *part.shape])


def _check_space(where: str, name: str, space: Any) -> None:
    checks.check_type(where, name, space, gym.Space, "a Gymnasium space")
