"""How loops carry agents: small networks as vectors, many on one network."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.agents import _layer_copies, _packed, _stateless, replicated, train_state


def packed(tree: Any) -> Any:
    """Returns an agent as a loop over its updates carries it fastest.

    The states of small networks within lie in vectors, as their steps want them: of
    what goes in and out of each turn XLA then compiles nothing. Several replicas have
    their own way, see `replicated.ReplicatedState`; for them it is the agent as it is.
    Nothing is differentiated through it.

    Args:
        tree: nest of agents and `TrainState`s.

    Returns:
        A nest for `unpacked`.

    Example:
        >>> state = train_state.TrainState.create(
        ...     lambda params: params[0], [tf.ones([2]), tf.ones([3])],
        ...     tfrl.agents.sgd(0.5))
        >>> packed(state).values.params.shape
        TensorShape([5])
        >>> unpacked(packed(state)).params[1].shape
        TensorShape([3])
    """
    if replicated.n_replicas() > 1:
        return tree

    def state(found: train_state.TrainState) -> Any:
        packing = _packed.Packing.of(found)
        if packing is None:
            return found
        return replicated.ReplicatedState(_quickly(packing.pack, found), packing)

    return _changed(tree, train_state.TrainState, state)


def unpacked(tree: Any) -> Any:
    """Returns the agent of which `packed` returned the tree.

    Args:
        tree: what `packed` returned, or what is like it.

    Returns:
        A nest of agents and `TrainState`s.

    Example:
        >>> unpacked({"step": 1})
        {'step': 1}
    """
    return _changed(
        tree, replicated.ReplicatedState, lambda x: _quickly(x.packing.unpack, x.values)
    )


def lent(tree: Any) -> Any:
    """Returns an agent on networks that all of its kind share, see `TrainState.lent`.

    A compiled function that has seen one agent then knows all that differ in the values
    of their weights alone. `returned` gives it its own networks again.

    Args:
        tree: nest of agents and `TrainState`s.

    Returns:
        A nest like it.

    Example:
        >>> layer = keras.layers.Dense(2)
        >>> layer.build((None, 3))
        >>> state = train_state.TrainState.create(layer)
        >>> returned(lent([state]), [state])[0].model_def is layer
        True
    """
    return _changed(tree, train_state.TrainState, lambda x: x.lent())


def returned(tree: Any, owner: Any) -> Any:
    """Returns an agent that was `lent` networks on those of its owner.

    Args:
        tree: nest of agents and `TrainState`s.
        owner: one like it, whose networks it gets.

    Returns:
        A nest like both.

    Example:
        >>> returned([1], [2])
        [1]
    """
    rest = iter(_states(owner))
    return _changed(tree, train_state.TrainState, lambda x: x.returned(next(rest)))


def named_like(tree: Any, owner: Any) -> Any:
    """Returns an agent on the networks of another, whose variables have other names.

    Keras counts the names of layers over the whole process, so two networks that one
    function made have the same variables in the same order under other names.

    Args:
        tree: nest of agents and `TrainState`s.
        owner: one like it, whose networks and names it gets.

    Returns:
        A nest like both.

    Raises:
        ValueError: if their networks differ in more than names and values of weights.

    Example:
        >>> def state():
        ...     layer = keras.layers.Dense(2)
        ...     layer.build((None, 3))
        ...     return train_state.TrainState.create(layer)
        >>> one, other = state(), state()
        >>> named_like(one, other).params.keys() == other.params.keys()
        True
    """
    states, keys = iter(_states(owner)), list[list[str]]()

    def on_its_network(state: train_state.TrainState) -> train_state.TrainState:
        other = next(states)
        if isinstance(state.apply_fn, _stateless.LayerApply):
            given = other.model_def, state.model_def, other.params
            fault = _layer_copies.difference(*given, other.extra_variables)
            if fault:
                raise ValueError(fault)
        return state.returned(other)

    def note(found: dict[str, Any]) -> dict[str, Any]:
        keys.append([*found])
        for x in found.values():
            _changed(x, dict, note)
        return found

    def renamed(found: dict[str, Any]) -> dict[str, Any]:
        pairs = zip(next(names), found.values(), strict=True)
        return {key: _changed(x, dict, renamed) for key, x in pairs}

    # Dictionaries of variables are in the order in which the layers have them.
    _changed(owner, dict, note)
    names = iter(keys)
    moved = _changed(tree, train_state.TrainState, on_its_network)
    return _changed(moved, dict, renamed)


def _states(tree: Any) -> list[train_state.TrainState]:
    """The states of a nest, in order."""
    found: list[train_state.TrainState] = []

    def note(state: train_state.TrainState) -> train_state.TrainState:
        found.append(state)
        return state

    _changed(tree, train_state.TrainState, note)
    return found


def _quickly(change: Callable[[Any], Any], state: Any) -> Any:
    """Changes a state, outside of graphs by NumPy, which has less to do for each op."""
    if not tf.executing_eagerly():
        return change(state)
    changed = change(tf.nest.map_structure(np.asarray, state))
    return tf.nest.map_structure(tf.convert_to_tensor, changed)


def _changed(tree: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """A nest of nodes in which what is of a kind is changed."""
    if isinstance(tree, kind):
        return change(tree)
    if hasattr(tree, "__tf_flatten__"):
        static, parts = tree.__tf_flatten__()
        changed = tuple([_changed(x, kind, change) for x in parts])
        return type(tree).__tf_unflatten__(static, changed)
    if type(tree) is dict:
        return {key: _changed(x, kind, change) for key, x in tree.items()}
    if isinstance(tree, list | tuple):
        made = [_changed(x, kind, change) for x in tree]
        return tree._make(made) if hasattr(tree, "_make") else type(tree)(made)
    return tree
