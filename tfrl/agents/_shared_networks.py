"""The networks that all agents of one architecture are compiled with.

A trace is known by the network that it calls, not by the values of the weights. Agents
of one architecture lend a compiled function the same network, which nobody else can
reach, and take their own again afterwards.
"""

import weakref
from typing import Any

import keras
import tensorflow as tf

from tfrl.agents import _stateless

_networks: weakref.WeakValueDictionary[Any, keras.layers.Layer] = (
    weakref.WeakValueDictionary()
)
_architectures: weakref.WeakKeyDictionary[keras.layers.Layer, str] = (
    weakref.WeakKeyDictionary()
)


def lent(state: Any) -> Any:
    """Returns a state on the network that its architecture is compiled with.

    Args:
        state: `TrainState` of a network that tells its `architecture`; others, and
            those in a graph, come back as they are.

    Returns:
        The same values on another network.

    Example:
        >>> first, second = (
        ...     tfrl.agents.PPO().create(
        ...         gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Discrete(2),
        ...         seed=seed).policy.state for seed in (0, 1))
        >>> first.model_def is second.model_def
        False
        >>> lent(first).model_def is lent(second).model_def
        True
    """
    network = state.model_def
    if not hasattr(network, "architecture") or not tf.executing_eagerly():
        return state
    # A strategy makes variables of its own.
    key = _architecture(network), tf.distribute.get_strategy()
    shared = _networks.get(key)
    if shared is None:
        shared = _networks[key] = _stateless.rebuilt(network)
    names = state.apply_fn.names
    return state.replace(
        model_def=shared, apply_fn=_stateless.LayerApply(shared, names)
    )


def _architecture(network: Any) -> str:
    known = _architectures.get(network)
    if known is None:
        known = _architectures[network] = network.architecture()
    return known


def returned(state: Any, owner: Any) -> Any:
    """Returns a state that was `lent` a network on the one that it had.

    Args:
        state: after a compiled function.
        owner: as it was before.

    Returns:
        The same values on the owner's network.

    Example:
        >>> state = tfrl.agents.PPO().create(
        ...     gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Discrete(2), seed=0
        ... ).policy.state
        >>> returned(lent(state), state).model_def is state.model_def
        True
    """
    return state.replace(model_def=owner.model_def, apply_fn=owner.apply_fn)
