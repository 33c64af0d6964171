"""What ops of sequences share: arguments checked, time first, compiled, any length."""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tfrl._internal import arguments, operands, precision
from tfrl.core import compile
from tfrl.ops import _recurrence, value_transforms

TensorLike: TypeAlias = operands.TensorLike

# As many numbers as XLA takes in less time than a call.
_SMALL = 2**16


def over_time(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a compiled op of a function of aligned sequences with time first.

    The op takes the tensors in the order of the function's parameters, the leading one
    first, and `time_major`; a `count` of the function's is a keyword of the op too.
    Axes that a sequence lacks at the end become axes of one element; scalars stay;
    float16 and bfloat16 are computed in float32. Results get the leading tensor's dtype
    and order of axes, and depend on no earlier step.
    """

    @compile.compiled(static=("time_major", "count"), jit_compile=True)
    def op(
        tensors: Sequence[tf.Tensor], time_major: bool, count: int | None = None
    ) -> Any:
        dtype, rank = tensors[0].dtype, tensors[0].shape.rank
        arranged = []
        for tensor in tensors:
            if tensor.shape.rank > 0:
                tensor = tensor if time_major else _swapped(tensor)
                for _ in range(rank - tensor.shape.rank):
                    tensor = tensor[..., tf.newaxis]
            arranged.append(precision.widened(tensor))

        def restored(result: tf.Tensor) -> tf.Tensor:
            return tf.cast(result if time_major else _swapped(result), dtype)

        counted = () if count is None else (count,)
        return tf.nest.map_structure(restored, function(*arranged, *counted))

    return _for_any_length(op)


def _for_any_length(op: Callable[..., Any]) -> Callable[..., Any]:
    """An op of sequences whose eager calls put rows of zeros before the first step.

    XLA compiles each shape anew, longer than 1,000 calls take. So lengths that differ
    little share a shape, as long as rows cost next to nothing. What comes before the
    first step must not change the results.
    """

    @compile.compiled(static=("time_major", "count"))
    def padded(
        tensors: Sequence[tf.Tensor],
        missing: tf.Tensor,
        time_major: bool,
        count: int | None,
    ) -> Any:
        def longer(tensor: tf.Tensor) -> tf.Tensor:
            axes = range(tensor.shape.rank)
            before = [[missing if axis == time else 0, 0] for axis in axes]
            return tf.pad(tensor, before) if before else tensor

        time = 0 if time_major else 1
        results = op([*map(longer, tensors)], time_major, count)
        behind = (slice(None),) * time + (slice(missing, None),)
        return tf.nest.map_structure(lambda result: result[behind], results)

    def call(*tensors: tf.Tensor, time_major: bool, count: int | None = None) -> Any:
        if tf.executing_eagerly():
            missing = _missing_rows(tensors[0].shape, 0 if time_major else 1)
            if missing:
                return padded(tensors, tf.constant(missing), time_major, count)
        return op(tensors, time_major, count)

    return call


def _missing_rows(shape: Sequence[int], axis: int) -> int:
    """How many rows there are to the next length that is compiled.

    Lengths are round numbers of transitions, or one more, as in the step form.
    """
    steps = shape[axis] - 1
    unit = max(16, 1 << max(0, steps.bit_length() - 3))
    missing = -steps % unit
    # A round number of steps, one before the next length, has its own trace.
    return 0 if missing == 1 or math.prod(shape) > _SMALL else missing


def _swapped(tensor: tf.Tensor) -> tf.Tensor:
    return tf.transpose(tensor, [1, 0, *range(2, tensor.shape.rank)])


def leading(
    where: str, name: str, value: TensorLike, time_major: bool, shortest: int = 1
) -> tf.Tensor:
    """The sequence that sets shape and dtype for the others, checked."""
    axis = 0 if time_major else 1
    tensor = operands.leading(where, name, value, axes=axis + 1)
    steps = tensor.shape[axis]
    if steps is not None and steps < shortest:
        raise ValueError(
            f"`{where}`: `{name}` expected at least {shortest} steps along axis "
            f"{axis}; got shape {tensor.shape.as_list()}"
        )
    return tensor


def following(
    where: str, leader: str, values: tf.Tensor, time_major: bool, **named: TensorLike
) -> list[tf.Tensor]:
    """The other sequences as tensors that fit the leading one, checked."""
    axes = 1 if time_major else 2
    return [
        operands.beginning(where, name, value, leader, values, axes)
        for name, value in named.items()
    ]


def weights(
    where: str,
    name: str,
    value: TensorLike,
    leader: str,
    values: tf.Tensor,
    time_major: bool,
) -> tf.Tensor:
    """A scalar in [0, 1], or a sequence that fits the leading one, checked."""
    if type(value) in (int, float):
        arguments.check_number(where, name, value, 0, 1)
    tensor = operands.alike(where, name, value, leader, values)
    if tensor.shape.rank != 0:
        axes = 1 if time_major else 2
        operands.check_beginning(where, name, tensor, leader, values, axes)
    return tensor


def shifted(sequence: tf.Tensor, end: tf.Tensor, steps: int = 1) -> tf.Tensor:
    """The sequence some steps later, `end` after its last one; time comes first."""
    length = _recurrence.length(sequence)
    missing = (
        min(steps, length) if isinstance(length, int) else tf.minimum(steps, length)
    )
    ends = tf.repeat(end[tf.newaxis], missing, axis=0)
    return tf.concat([sequence[steps:], ends], axis=0)


def by_transform(
    transform: value_transforms.InvertibleTransform | None,
    returns: Callable[..., tf.Tensor],
    *values: tf.Tensor,
) -> tf.Tensor:
    """Returns of values that are learned in the image of a transform.

    result = transform(returns(inverse_transform(values), ...))
    """
    if transform is None:
        return returns(*values)
    restored = [transform.inverse_transform(precision.widened(v)) for v in values]
    return tf.cast(transform.transform(returns(*restored)), values[0].dtype)
