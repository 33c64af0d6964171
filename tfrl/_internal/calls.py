"""Eager calls of concrete functions without TensorFlow's look at each argument."""

import contextvars
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

_GRADIENT = "TfrlCall"


def handed_over(concrete: Any) -> Callable[..., Any]:
    """Returns `concrete` without TensorFlow's look at every argument.

    A concrete function binds, checks and casts its arguments one by one in Python,
    some 10 microseconds each; the op behind it takes them all at once. There are no
    gradients through that op.
    """
    run, packed = _op(_around(concrete)), _packer(concrete.structured_outputs)
    return lambda *tensors: packed(iter(run(tensors)))


def differentiable(
    function: Callable[..., Any], concrete: Any, jit_compile: bool
) -> Callable[..., Any]:
    """`handed_over` with gradients, which compute the function once more.

    Args:
        function: what was traced.
        concrete: its trace; returned as it is where it has state, as what it computed
            could not be computed again.
        jit_compile: whether XLA compiles it.
    """
    operations, outputs = concrete.graph.get_operations(), concrete.outputs
    has_state = any(operation.op_def.is_stateful for operation in operations)
    # The op refuses to return some int32 outputs, unless XLA computes them.
    has_ints = not jit_compile and any(x.dtype == tf.int32 for x in outputs)
    if concrete.captured_inputs or has_state or has_ints:
        return concrete
    # XLA heeds a call inside a function, not the op's own function.
    run = _op(_around(concrete) if jit_compile else concrete)
    packed = _packer(concrete.structured_outputs)
    context = contextvars.copy_context()

    @functools.cache
    def backward(index: int, unwanted: Sequence[int]) -> Callable[..., list[Any]]:
        given = function, concrete, jit_compile, index, unwanted
        return context.copy().run(_backward, *given)

    # One by one: the gradient of an output that nobody asks for might be 0 * inf.
    attributes = [
        (index, (backward, index))
        for index, output in enumerate(concrete.outputs)
        if output.dtype.is_floating
    ]
    record = tf.__internal__.record_gradient

    def call(*tensors: tf.Tensor) -> Any:
        try:
            outputs = run(tensors)
        except LookupError:  # of forward-mode differentiation, which asks at once
            return concrete(*tensors)
        for index, found in attributes:
            record(_GRADIENT, tensors, found, [outputs[index]])
        return packed(iter(outputs))

    return call


@tf.RegisterGradient(_GRADIENT)
def _gradient(op: Any, upstream: Any) -> list[Any]:
    backward, index = op.attrs
    unwanted = tuple(op.skip_input_indices or ())
    return backward(index, unwanted)(op.inputs, tf.convert_to_tensor(upstream))


def _backward(
    function: Callable[..., Any],
    concrete: Any,
    jit_compile: bool,
    index: int,
    unwanted: Sequence[int],
) -> Callable[..., list[Any]]:
    """Gradients of one output in the inputs, from the inputs and that in the output."""
    inputs = concrete.inputs
    given = [
        place
        for place, tensor in enumerate(inputs)
        if tensor.dtype.is_floating and place not in unwanted
    ]

    def flat(*tensors: tf.Tensor) -> list[Any]:
        *inputs, upstream = tensors
        # Not by a tape, which would look into functions with a gradient of their own.
        found = tf.gradients(
            _leaves(function(*inputs))[index],
            [inputs[place] for place in given],
            upstream,
        )
        return [x if x is None else tf.convert_to_tensor(x) for x in found]

    ends = [*inputs, concrete.outputs[index]]
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in ends]
    traced = tf.function(flat, autograph=False, jit_compile=jit_compile or None)
    call = differentiable(flat, traced.get_concrete_function(*specs), jit_compile)

    def gradients(tensors: Sequence[tf.Tensor], upstream: tf.Tensor) -> list[Any]:
        found = dict(zip(given, call(*tensors, upstream), strict=True))
        return [found.get(place) for place in range(len(tensors))]

    return gradients


def _op(concrete: Any) -> Callable[[Sequence[tf.Tensor]], list[tf.Tensor]]:
    """The op that runs a concrete function."""
    captured = list(concrete.captured_inputs)
    dtypes = [output.dtype for output in concrete.outputs]
    if not dtypes:  # The op would return itself.
        return lambda _: []
    return lambda tensors: tf.raw_ops.StatefulPartitionedCall(
        args=[*tensors, *captured], Tout=dtypes, f=concrete
    )


def _around(concrete: Any) -> Any:
    """A concrete function that does nothing but call another."""
    function = tf.function(lambda *x: _leaves(concrete(*x)), autograph=False)
    return function.get_concrete_function(*concrete.structured_input_signature[0])


def _leaves(nest: Any) -> list[Any]:
    return [leaf for leaf in tf.nest.flatten(nest) if leaf is not None]


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
