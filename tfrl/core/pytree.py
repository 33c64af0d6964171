"""Immutable dataclasses that `tf.nest` and `tf.function` see through."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self, dataclass_transform

import numpy as np

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
    Not with `tf.function(reduce_retracing=True)`: TensorFlow 2.21 fails there on nodes
    whose static fields differ.

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
