"""The networks that all agents of one architecture are compiled with.

A trace is known by the network that it calls, not by the values of the weights. Agents
of one architecture lend a compiled function the same network, which nobody else can
reach, and take their own again afterwards.
"""

import json
import weakref
from typing import Any

import tensorflow as tf

from tfrl.agents import _stateless, networks, train_state

_networks: weakref.WeakValueDictionary[Any, networks.ActorCritic] = (
    weakref.WeakValueDictionary()
)
_architectures: weakref.WeakKeyDictionary[networks.ActorCritic, str] = (
    weakref.WeakKeyDictionary()
)


def lent(state: train_state.TrainState) -> train_state.TrainState:
    """Returns a state on the network that its architecture is compiled with.

    Args:
        state: of an `ActorCritic`; others, and those in a graph, come back as they are.

    Returns:
        The same values on another network.

    Example:
        >>> first, second = (
        ...     tfrl.agents.ActorCriticPolicy.create(
        ...         gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Discrete(2),
        ...         tx=tfrl.agents.sgd(0.1), seed=seed).state for seed in (0, 1))
        >>> first.model_def is second.model_def
        False
        >>> lent(first).model_def is lent(second).model_def
        True
    """
    network = state.model_def
    if type(network) is not networks.ActorCritic or not tf.executing_eagerly():
        return state
    # A strategy makes variables of its own.
    key = _architecture(network), tf.distribute.get_strategy()
    shared = _networks.get(key)
    if shared is None:
        shared = _networks[key] = _stateless.rebuilt(network)
    names = state.apply_fn.names  # type: ignore[attr-defined]
    return state.replace(
        model_def=shared, apply_fn=_stateless.LayerApply(shared, names)
    )


def _architecture(network: networks.ActorCritic) -> str:
    known = _architectures.get(network)
    if known is None:
        weightless = {"seed": None, "log_std": network.log_std is None}
        arguments = {**network.arguments, **weightless}
        known = json.dumps([arguments, network.dtype_policy.name])
        _architectures[network] = known
    return known


def returned(
    state: train_state.TrainState, owner: train_state.TrainState
) -> train_state.TrainState:
    """Returns a state that was `lent` a network on the one that it had.

    Args:
        state: after a compiled function.
        owner: as it was before.

    Returns:
        The same values on the owner's network.

    Example:
        >>> state = tfrl.agents.ActorCriticPolicy.create(
        ...     gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Discrete(2),
        ...     tx=tfrl.agents.sgd(0.1)).state
        >>> returned(lent(state), state).model_def is state.model_def
        True
    """
    return state.replace(model_def=owner.model_def, apply_fn=owner.apply_fn)
