"""NumPy methods of user-defined action heads, computed by TensorFlow."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

_LIBRARY = __name__.partition(".")[0]
_MIRRORED = ("sample", "mode", "log_prob", "masked", "tempered", "to_env")


def bridge(cls: Any) -> None:
    """Replaces the NumPy methods that a subclass of a head has made untrue.

    A head of this library computes its methods `host_...` in NumPy. Where a subclass
    overrides anything of the head, they call its TensorFlow methods instead, except
    those `host_...` that the subclass defines itself.

    Args:
        cls: the subclass, changed in place.
    """
    theirs, own = set[str](), set[str]()
    for kind in cls.__mro__[:-1]:
        is_own = kind.__module__.partition(".")[0] != _LIBRARY
        (own if is_own else theirs).update(vars(kind))
    # What is in a field is no method: `plain()` and NumPy know it.
    methods = own - set(getattr(cls, "__dataclass_fields__", ()))
    if not any(name in theirs and not name.startswith("__") for name in methods):
        return
    cls.is_mirrored, cls.plain = False, _refused
    for name in _MIRRORED:
        if f"host_{name}" not in own:
            setattr(cls, f"host_{name}", _through_tensorflow(name))


def _refused(head: Any) -> Any:
    raise TypeError(
        "`host_draw`: `head` expected one of `tfrl.distributions`, which draws without "
        f"TensorFlow; got {type(head).__name__}, a class of its own; play in this "
        "process, by a Collector"
    )


def _through_tensorflow(name: str) -> Callable[..., Any]:
    def host(self: Any, *given: Any) -> Any:
        found = _computed(self, name, *tf.nest.map_structure(_as_tensor, given))
        return tf.nest.map_structure(np.asarray, found)

    return host


def _called(head: Any, name: str, *given: Any) -> Any:
    return getattr(head, name)(*given)


# In one call, as eager draws of many families take milliseconds.
_computed = tf.function(_called, autograph=False, reduce_retracing=True)


def _as_tensor(leaf: Any) -> Any:
    """Arrays as tensors, and what draws numbers as a seed."""
    if isinstance(leaf, np.random.Generator):
        leaf = leaf.integers(0, 2**31 - 1, size=2, dtype=np.int32)
    return tf.constant(leaf) if isinstance(leaf, np.ndarray) else leaf
