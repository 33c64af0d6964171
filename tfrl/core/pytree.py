"""Immutable dataclasses that `tf.nest` and `tf.function` see through."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self, dataclass_transform

import numpy as np

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

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(frozen=True, eq=False)(cls)

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
        unknown = sorted(set(changes) - set(names))
        if unknown:
            raise ValueError(
                f"`{type(self).__name__}.replace`: expected field names among {names}; "
                f"got {unknown}; check the spelling"
            )
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    def __tf_flatten__(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        static, data = [], []
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.metadata.get(_STATIC):
                static.append(_Static(value))
            else:
                data.append(value)
        return tuple(static), tuple(data)

    @classmethod
    def __tf_unflatten__(
        cls, metadata: tuple[Any, ...], components: tuple[Any, ...]
    ) -> Self:
        static, data = iter(metadata), iter(components)
        node = object.__new__(cls)
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            value = next(static).value if field.metadata.get(_STATIC) else next(data)
            object.__setattr__(node, field.name, value)
        return node
