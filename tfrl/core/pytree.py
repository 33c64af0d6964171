"""Immutable dataclasses that `tf.nest` and `tf.function` see through."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, dataclass_transform

import numpy as np
import tensorflow as tf

from tfrl._internal import arguments

_STATIC = "tfrl_static"


class _Static:
    """A non-tensor field's value as hashable, comparable `tf.nest` metadata."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Static):
            return NotImplemented
        return _same(self.value, other.value)

    def __hash__(self) -> int:
        try:
            return hash(self.value)
        except TypeError:
            if isinstance(self.value, Mapping):
                return hash((type(self.value), frozenset(self.value)))
            return hash(type(self.value))


def _same(mine: Any, yours: Any) -> bool:
    """Whether two static values are equal in type, too, at every depth."""
    if mine is yours:
        return True
    if type(mine) is not type(yours):
        return False
    if isinstance(mine, np.ndarray):
        return mine.dtype == yours.dtype and np.array_equal(mine, yours)
    if isinstance(mine, Mapping):
        return mine.keys() == yours.keys() and all(
            _same(value, yours[key]) for key, value in mine.items()
        )
    if isinstance(mine, list | tuple):
        return len(mine) == len(yours) and all(map(_same, mine, yours))
    return bool(mine == yours)


def nonpytree_field(**kwargs: Any) -> Any:
    """Declares a field of a `PyTreeNode` that is configuration, not data.

    `tf.nest` does not look inside it; `tf.function` traces anew when it changes.

    Args:
        **kwargs: what `dataclasses.field` takes (`default`, `default_factory`, ...).

    Returns:
        A field specifier for the class body.

    Example:
        >>> class Scaled(PyTreeNode):
        ...     weights: np.ndarray
        ...     factor: float = nonpytree_field(default=2.0)
        >>> Scaled(np.ones(2)).factor
        2.0
    """
    metadata = {**kwargs.pop("metadata", {}), _STATIC: True}
    return dataclasses.field(metadata=metadata, **kwargs)


@dataclass_transform(
    frozen_default=True, field_specifiers=(dataclasses.field, nonpytree_field)
)
class PyTreeNode:
    """Base of immutable records whose fields are nests of tensors.

    A subclass is a frozen dataclass. Its ordinary fields are flattened by `tf.nest`
    in the order of declaration; fields made by `nonpytree_field` travel as static
    metadata. Instances go in and out of `tf.function`, `tf.while_loop`, `tf.cond`,
    `tf.data` and into `strategy.run`. `strategy.run` cannot return one: return
    `tf.nest.flatten(node)` there. SavedModel signatures want dictionaries.
    `tf.function(reduce_retracing=True)` traces anew for each shape in them.

    Example:
        >>> class Point(PyTreeNode):
        ...     x: float
        ...     y: float
        >>> point = Point(1.0, 2.0).replace(y=3.0)
        >>> point
        Point(x=1.0, y=3.0)
        >>> tf.nest.flatten(point)
        [1.0, 3.0]
    """

    # Looked up once per class: flattening happens at every call of a function.
    _static_names: ClassVar[tuple[str, ...]]
    _data_names: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(frozen=True, eq=False)(cls)
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        static = [field.name for field in fields if field.metadata.get(_STATIC)]
        cls._static_names = tuple(static)
        cls._data_names = tuple(x.name for x in fields if x.name not in static)

    def replace(self, **changes: Any) -> Self:
        """Returns a copy in which the named fields have new values.

        Args:
            **changes: field names and their new values.

        Returns:
            A new node; `self` stays as it is.

        Raises:
            ValueError: if a name is not a field of the node.
        """
        names = [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]
        where = f"{type(self).__name__}.replace"
        for name in changes:
            arguments.check_one_of(where, "changes", name, names)
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    def __tf_flatten__(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        # A frozen dataclass keeps its fields there, and nowhere else.
        values = self.__dict__
        return (
            tuple([_Static(values[name]) for name in self._static_names]),
            tuple([values[name] for name in self._data_names]),
        )

    @classmethod
    def __tf_unflatten__(
        cls, metadata: tuple[Any, ...], components: tuple[Any, ...]
    ) -> Self:
        node = object.__new__(cls)
        values = node.__dict__
        for name, static in zip(cls._static_names, metadata, strict=True):
            values[name] = static.value
        values.update(zip(cls._data_names, components, strict=True))
        return node

    def __tf_tracing_type__(self, context: Any) -> "_NodeType":
        leaves: list[Any] = []
        return _NodeType(_bare(self, context, leaves), leaves)


class _NodeType(tf.types.experimental.TraceType):
    """What `tf.function` knows a node by, at 2 microseconds a leaf and call.

    TensorFlow's own type of nests takes 12: it makes an object of each leaf, compares
    it, and casts the leaf by it.

    Args:
        bare: the node without its leaves, see `_bare`.
        leaves: shape and dtype of each tensor, the type of what is none.
    """

    def __init__(self, bare: Any, leaves: list[Any]) -> None:
        self._bare, self._leaves = bare, leaves

    @functools.cached_property
    def _types(self) -> list[Any]:
        return [tf.TensorSpec(*x) if type(x) is tuple else x for x in self._leaves]

    def is_subtype_of(self, other: Any) -> bool:
        if self == other or not isinstance(other, _NodeType):
            return self == other
        return self._bare == other._bare and all(
            mine.is_subtype_of(yours)
            for mine, yours in zip(self._types, other._types, strict=True)
        )

    def most_specific_common_supertype(self, others: Sequence[Any]) -> Any:
        return self if all(self == other for other in others) else None

    def placeholder_value(self, placeholder_context: Any) -> Any:
        return self._made(lambda kind: kind.placeholder_value(placeholder_context))

    def to_tensors(self, value: Any) -> list[Any]:
        found: list[Any] = []
        for leaf, kind in zip(_leaves(self._bare, value), self._types, strict=True):
            if isinstance(leaf, tf.Tensor):
                found.append(leaf)
            else:
                found += kind.to_tensors(leaf)
        return found

    def from_tensors(self, tensors: Iterator[Any]) -> Any:
        return self._made(lambda kind: kind.from_tensors(tensors))

    def flatten(self) -> list[Any]:
        return [x for kind in self._types for x in kind.flatten()]

    def cast(self, value: Any, cast_context: Any) -> Any:
        leaves = iter(_leaves(self._bare, value))
        return self._made(lambda kind: kind.cast(next(leaves), cast_context))

    def _made(self, leaf: Callable[[Any], Any]) -> Any:
        return _packed(self._bare, map(leaf, self._types))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _NodeType)
            and self._bare == other._bare
            and self._leaves == other._leaves
        )

    def __hash__(self) -> int:
        return hash((self._bare[0], len(self._leaves)))


class _ValueType(_Static, tf.types.experimental.TraceType):
    """Of a leaf that is no tensor: `tf.function` traces anew when it changes."""

    __slots__ = ()

    def is_subtype_of(self, other: Any) -> bool:
        return self == other

    def most_specific_common_supertype(self, others: Sequence[Any]) -> Any:
        return self if all(self == other for other in others) else None

    def placeholder_value(self, placeholder_context: Any) -> Any:  # noqa: ARG002
        return self.value

    def cast(self, value: Any, cast_context: Any) -> Any:  # noqa: ARG002
        return value


def _bare(nest: Any, context: Any, leaves: list[Any]) -> Any:
    """Adds the kinds of the leaves of a nest to a list, and returns what is left of it.

    Of a node that is `(class, parts, metadata)`, of a mapping `(class, parts by key)`,
    of a list or tuple `(class, parts)`, of a leaf None.
    """
    if isinstance(nest, tf.Tensor):
        leaves.append((nest.shape, nest.dtype))
    elif hasattr(nest, "__tf_flatten__"):
        metadata, parts = nest.__tf_flatten__()
        return type(nest), [_bare(x, context, leaves) for x in parts], metadata
    elif isinstance(nest, Mapping):
        parts = {key: _bare(nest[key], context, leaves) for key in sorted(nest)}
        return type(nest), {key: parts[key] for key in nest}
    elif isinstance(nest, list | tuple):
        return type(nest), [_bare(x, context, leaves) for x in nest]
    elif hasattr(nest, "__tf_tracing_type__"):
        leaves.append(nest.__tf_tracing_type__(context))
    elif hasattr(nest, "__array__"):
        leaves.append((tf.TensorShape(nest.shape), tf.as_dtype(nest.dtype)))
    else:
        leaves.append(_ValueType(nest))
    return None


def _leaves(bare: Any, nest: Any) -> list[Any]:
    if bare is None:
        return [nest]
    if len(bare) == 3:
        nest = nest.__tf_flatten__()[1]
    parts = bare[1]
    if isinstance(parts, dict):
        order = sorted(parts)
        parts, nest = [parts[key] for key in order], [nest[key] for key in order]
    return [leaf for pair in zip(parts, nest, strict=True) for leaf in _leaves(*pair)]


def _packed(bare: Any, leaves: Iterator[Any]) -> Any:
    if bare is None:
        return next(leaves)
    kind, parts, *metadata = bare
    if isinstance(parts, dict):
        made: Any = {key: _packed(parts[key], leaves) for key in sorted(parts)}
        made = {key: made[key] for key in parts}
        return made if kind is dict else kind(made)
    made = [_packed(part, leaves) for part in parts]
    if metadata:
        return kind.__tf_unflatten__(*metadata, tuple(made))
    return kind._make(made) if hasattr(kind, "_make") else kind(made)
