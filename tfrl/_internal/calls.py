"""Eager calls of concrete functions without TensorFlow's look at each argument."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf


def handed_over(concrete: Any) -> Callable[..., Any]:
    """Returns `concrete` without TensorFlow's look at every argument.

    A concrete function binds, checks and casts its arguments one by one in Python,
    some 10 microseconds each; the op behind it takes them all at once. There are no
    gradients through that op.
    """
    specs = concrete.structured_input_signature[0]

    def flat(*tensors: tf.Tensor) -> list[Any]:
        # XLA heeds a call inside a function, not the op's own function.
        return [x for x in tf.nest.flatten(concrete(*tensors)) if x is not None]

    inner = tf.function(flat, autograph=False).get_concrete_function(*specs)
    captured = list(inner.captured_inputs)
    dtypes = [output.dtype for output in inner.outputs]
    packed = _packer(concrete.structured_outputs)

    def call(*tensors: tf.Tensor) -> Any:
        outputs = tf.raw_ops.StatefulPartitionedCall(
            args=[*tensors, *captured], Tout=dtypes, f=inner
        )
        return packed(iter(outputs))

    return call


def _packer(template: Any) -> Callable[[Iterator[Any]], Any]:
    """What `tf.nest.pack_sequence_as` does for one template, worked out beforehand.

    The function takes an iterator over the leaves that are not None, in the order of
    `tf.nest.flatten`.
    """
    kind: Any = type(template)
    if template is None:
        return lambda _: None
    if not tf.nest.is_nested(template):
        return next
    if isinstance(template, Mapping):
        order = sorted(template)
        parts = [_packer(template[key]) for key in order]
        empty = dict.fromkeys(template)

        def mapping(leaves: Iterator[Any]) -> Any:
            values = zip(order, [part(leaves) for part in parts], strict=True)
            merged = empty | dict(values)
            return merged if kind is dict else kind(merged)

        return mapping
    if hasattr(template, "__tf_flatten__"):
        metadata, components = template.__tf_flatten__()
        unflatten = kind.__tf_unflatten__
        fields = [_packer(component) for component in components]
        return lambda leaves: unflatten(metadata, tuple([x(leaves) for x in fields]))
    items = [_packer(item) for item in template]
    if hasattr(template, "_make"):
        return lambda leaves: template._make([item(leaves) for item in items])
    return lambda leaves: kind([item(leaves) for item in items])
