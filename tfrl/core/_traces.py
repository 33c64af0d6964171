"""The traces behind `compile`: how they are made, called and told apart."""

import functools
import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import kept_programs
from tfrl.core import context

_NUMBERS = (int, float, np.number)
# Below that few processes are when they first compile; so many take 10 milliseconds.
_NUMBERED = 4096
# That is of calls which make several; one call each takes 190 milliseconds.
_AT_ONCE = 16
LEAVES = (tf.Tensor, np.ndarray, *_NUMBERS)


class Cache:
    """Traces by what they were made for: kinds of arguments, and values of the context.

    Attributes:
        traces: the traces.
    """

    def __init__(self) -> None:
        self.traces: dict[Hashable, Any] = {}
        # Of each kind of arguments, what of the context its traces have read.
        self._reads: dict[Hashable, tuple[Callable[[], Any], ...]] = {}

    def get(self, kinds: Hashable, make: Callable[[], Any]) -> Any:
        """The trace for arguments of these kinds in the current context."""
        reads = self._reads.get(kinds)
        found = self.traces.get(_in_context(kinds, reads) if reads else kinds)
        if found is None:
            with context.recorded() as new:
                found = make()
            reads = self._reads[kinds] = tuple(dict.fromkeys((*(reads or ()), *new)))
            self.traces[_in_context(kinds, reads)] = found
        return found


def _in_context(kinds: Hashable, reads: Sequence[Callable[[], Any]]) -> Hashable:
    return (kinds, *[context.key(read()) for read in reads]) if reads else kinds


def binder(
    signature: inspect.Signature, defaults: bool = True
) -> Callable[..., dict[str, Any]]:
    """A function of `args` and `kwargs` that names them all, in order.

    What is left out has its default, unless `defaults` is False. It has a short way for
    calls that leave nothing out.
    """
    parameters = signature.parameters.values()
    kinds = [parameter.kind for parameter in parameters]
    names = [parameter.name for parameter in parameters]
    places = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)
    is_plain = places + kinds.count(inspect.Parameter.KEYWORD_ONLY) == len(kinds)

    def named(args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        count = len(args)
        if is_plain and count <= places and names[count:] == list(kwargs):
            return dict(zip(names, args, strict=False)) | kwargs
        bound = signature.bind(*args, **kwargs)
        if defaults:
            bound.apply_defaults()
        return bound.arguments

    return named


def of_leaves(
    function: Callable[..., Any],
    bound: inspect.BoundArguments,
    nests: Mapping[str, Any],
    arguments: Sequence[Any],
) -> Callable[..., Any]:
    """`function` as one of the flat tensors among `arguments`."""
    # The trace outlives the call: it must hold neither its tensors nor its containers.
    signature = bound.signature
    names = tuple(nests)
    template = tf.nest.map_structure(lambda _: None, list(nests.values()))
    empty = [leaf is None for leaf in arguments]
    fixed = {k: None if k in nests else v for k, v in bound.arguments.items()}

    def flat(*tensors: Any) -> Any:
        rest = iter(tensors)
        filled = [None if is_none else next(rest) for is_none in empty]
        values = zip(names, tf.nest.pack_sequence_as(template, filled), strict=True)
        # `fixed` first: it has every name in the order of the signature.
        merged: Any = fixed | dict(values)
        again = inspect.BoundArguments(signature, merged)
        return function(*again.args, **again.kwargs)

    flat.__module__ = function.__module__
    return flat


def trace(
    flat: Callable[..., Any], arguments: Sequence[Any], relaxed: bool, jit_compile: bool
) -> Any:
    """A concrete function of the flat tensors among `arguments`."""
    if jit_compile and tf.executing_eagerly() and kept_programs.are_kept():
        _count_on()
    specs = [
        tf.TensorSpec([None] * leaf.shape.rank if relaxed else leaf.shape, leaf.dtype)
        for leaf in arguments
        if leaf is not None
    ]
    return tf.function(
        flat, autograph=False, jit_compile=jit_compile or None
    ).get_concrete_function(*specs)


def _count_on() -> None:
    """Gives the next function a number that it has in other processes too.

    TensorFlow numbers functions by all tensors so far and finds kept programs by that.
    A run that goes on has made others before its first update than one that begins.
    """
    probe = tf.function(lambda: tf.constant(0), autograph=False).get_concrete_function()
    tensor = tf.constant(0)
    many, few = divmod(-int(probe.name.rpartition(b"_")[2]) % _NUMBERED, _AT_ONCE)
    for _ in range(many):
        tf.identity_n([tensor] * _AT_ONCE)
    for _ in range(few):
        tf.identity(tensor)


@functools.cache
def host_has_xla() -> bool:
    """Whether XLA compiles for this CPU; TensorFlow's wheel for TPUs lacks that."""
    probe = tf.function(lambda: tf.constant(0) + 1, autograph=False, jit_compile=True)
    with tf.init_scope(), tf.device("CPU:0"):
        try:
            probe()
        except tf.errors.NotFoundError:
            return False
    return True


def leaves(where: str, nests: Mapping[str, Any]) -> list[Any]:
    """The leaves of the arguments as tensors; `None` stays."""
    leaves = list(nests.values())
    if all([isinstance(leaf, tf.Tensor) for leaf in leaves]):
        return leaves  # as they are: mostly this is all
    leaves = tf.nest.flatten(leaves)
    dtype = None
    for index, leaf in enumerate(leaves):
        if leaf is None or isinstance(leaf, _NUMBERS):
            if isinstance(leaf, bool):
                raise TypeError(
                    f"`{where}`: expected tensors or numbers; got {leaf} in "
                    f"{sorted(nests)}; name bool parameters in `static` of `compiled`"
                )
            continue
        if not isinstance(leaf, tf.Tensor):
            leaf = leaves[index] = tf.convert_to_tensor(leaf)
        if dtype is None and leaf.dtype.is_floating:
            dtype = leaf.dtype
    if dtype is None:
        dtype = tf.float32
    return [
        tf.constant(leaf, dtype) if isinstance(leaf, _NUMBERS) else leaf
        for leaf in leaves
    ]


def structure(value: Any) -> Any:
    """What of an argument's nest is not in its leaves, as part of a cache key."""
    if value is None or isinstance(value, LEAVES):
        return None
    if isinstance(value, (list, tuple)):
        return type(value), tuple(map(structure, value))
    if isinstance(value, Mapping):
        return type(value), tuple([(k, structure(value[k])) for k in sorted(value)])
    if hasattr(value, "__tf_flatten__"):
        metadata, components = value.__tf_flatten__()
        return type(value), metadata, tuple(map(structure, components))
    return type(value)


def as_tensor(leaf: Any) -> Any:
    if leaf is None or isinstance(leaf, tf.Tensor):
        return leaf
    # Of arrays the same, in two thirds of the time.
    return (tf.constant if type(leaf) is np.ndarray else tf.convert_to_tensor)(leaf)
