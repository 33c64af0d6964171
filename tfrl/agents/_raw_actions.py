"""Checks of the raw actions that agents are given to learn from."""

from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.host import heads


def check(where: str, name: str, head: Any, actions: Any) -> None:
    """Raises unless raw actions are choices that there are.

    Others would count as none of them, or as another one, and leave NaN where they are
    rows that do not count. Tensors in graphs, and those on a device, are not looked
    into.

    Args:
        where: the asking function, for the message.
        name: of the argument that holds them.
        head: of the actions.
        actions: nest of `[..., *shape]`.

    Raises:
        TypeError: if choices are no integers.
        ValueError: if one is not in [0, n), or the parts are not those of the head.
    """
    if isinstance(head, heads.NumpyComposite):
        for part, each in zip(head.parts, head._unpacked(actions), strict=True):
            check(where, name, part, each)
        return
    if isinstance(head, heads.NumpyCategorical):
        _check_choices(where, name, head, actions)


def _check_choices(where: str, name: str, head: Any, actions: Any) -> None:
    # Checks of arrays come first, as those of tensors take longer than all the others.
    if not isinstance(actions, np.ndarray) and not tf.is_tensor(actions):
        actions = np.asarray(actions)
    kind = np.dtype(getattr(actions.dtype, "as_numpy_dtype", actions.dtype))
    if kind.kind not in "biu":
        raise TypeError(
            f"`{where}`: `{name}` expected actions that are integers, as they are "
            f"choices; got {kind.name}; cast them"
        )
    is_array = isinstance(actions, np.ndarray)
    if not is_array and (tf.is_symbolic_tensor(actions) or "CPU" not in actions.device):
        return
    values = np.asarray(actions)
    n_outer = values.ndim - len(head.shape)
    if values.shape[n_outer:] != head.shape:  # which who learns will tell
        return
    counts = np.reshape(head.n_choices, head.shape)
    wrong = (values < 0) | (values >= counts)
    for place in np.argwhere(wrong)[:1] if wrong.any() else ():
        count = counts[tuple(place[n_outer:])]
        raise ValueError(
            f"`{where}`: `{name}` expected raw actions, choices in [0, {count - 1}]; "
            f"got {values[tuple(place)]} in row {place[:n_outer].tolist()}; turn those "
            "of an environment into raw ones by `agent.policy.head.from_env(actions)`"
        )
