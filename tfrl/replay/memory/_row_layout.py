"""Which rows a storage has, and which nests of values they take."""

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import shapes
from tfrl.replay import _indices

# Numbers go into their own kind and into those after it.
_NUMBERS = ("bool", "integers", "floating-point numbers", "complex numbers")
_KINDS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
_ARRAY = np.ndarray
# What a leaf that is plain is known by.
_PLAIN = operator.attrgetter("__class__", "shape", "dtype")
# For how many shapes of rows those of the leaves are remembered.
_REMEMBERED = 64


class RowLayout:
    """Rows of a nest: how many there are, and shape and dtype of each leaf.

    Attributes:
        data_spec: the nest of specs of one row.
        capacity: number of rows.
        leaves: `ShapeDtype` of each leaf, in the order of `tf.nest`.
        contents: all this as a line of text; equal texts mean equal layouts.
    """

    def __init__(self, data_spec: Any, capacity: int) -> None:
        self.capacity = checks.check_whole_number(
            "NumpyStorage", "capacity", capacity, low=1
        )
        self.data_spec = tf.nest.map_structure(lambda spec: spec, data_spec)
        specs = tf.nest.flatten(data_spec)
        self.leaves = [_leaf(spec) for spec in specs]
        texts = tf.nest.pack_sequence_as(
            data_spec,
            [f"{_name(leaf.dtype)}{list(leaf.shape)}" for leaf in self.leaves],
        )
        self._spec = _text(texts)
        self.contents = f"{self.capacity} rows of {self._spec}"
        self._structure = _structure_of(self.data_spec)
        # What `_PLAIN` finds in leaves of rows of some shape, for the last so many.
        leaves = self.leaves
        self._plain = functools.lru_cache(_REMEMBERED)(
            lambda outer: [(_ARRAY, outer + leaf.shape, leaf.dtype) for leaf in leaves]
        )

    def __reduce__(self) -> tuple:
        return RowLayout, (self.data_spec, self.capacity)

    def rows(self, where: str, idx: Any) -> tuple[Any, tuple[int, ...]]:
        """Returns which rows `idx` names, ready to index arrays, and their shape.

        Args:
            where: name of the function that asks.
            idx: int, slice, or list or array of ints or of one bool per row.

        Returns:
            An int, a slice or an array of ints >= 0; and what comes before the shape
            of a row in the values of these rows.
        """
        _indices.check_eager(where, "wrap it in tf.numpy_function")
        if isinstance(idx, slice):
            return idx, (len(range(*idx.indices(self.capacity))),)
        rows = self._integers(where, idx)
        if rows.size:
            first, last = rows.min(), rows.max()
            if first < -self.capacity or last >= self.capacity:
                raise IndexError(
                    f"`{where}`: `idx` expected rows in [{-self.capacity}, "
                    f"{self.capacity}); got {last if last >= 0 else first}; "
                    "take it modulo the capacity or make a larger storage"
                )
            if first < 0:
                rows = np.where(rows < 0, rows + self.capacity, rows)
        if rows.ndim == 0:
            return int(rows), ()
        return rows.astype(np.intp, copy=False), rows.shape

    def fitting(
        self, value: Any, outer: tuple[int, ...] | None = None
    ) -> list[np.ndarray] | None:
        """Returns the leaves of `value` if they fit as they are, and that is plain.

        Args:
            value: nest of rows.
            outer: shape of the rows; None for `[n]`, whatever n is.

        Returns:
            Arrays `[*outer, *shape]` of the leaves' dtypes. None if anything is
            otherwise: `values` and `targets` look closer.
        """
        arrays = self._structure.split(value)
        if not arrays:
            return arrays
        if outer is None:
            first = arrays[0]
            if type(first) is not _ARRAY or not first.ndim:
                return None
            outer = first.shape[:1]
        # One comparison of lists takes less time than a loop over the leaves.
        try:
            is_plain = [*map(_PLAIN, arrays)] == self._plain(outer)
        except AttributeError:  # of a number or a list
            return None
        return arrays if is_plain else None

    def values(
        self,
        value: Any,
        outer: tuple[int, ...],
        where: str = "NumpyStorage.set",
        name: str = "value",
        one_for_all: bool = True,
    ) -> list[np.ndarray]:
        """Returns the leaves of `value` as arrays of the leaves' dtypes.

        Args:
            value: nest of rows `[*outer, ...]`, or of one row for all.
            outer: shape of the rows to be set.
            where: name of the function that asks.
            name: name of its argument.
            one_for_all: whether one row for all fits, too.

        Returns:
            Arrays that can be assigned to these rows.
        """
        fitting = self.fitting(value, outer)
        if fitting is not None:
            return fitting
        arrays = [_array(where, leaf) for leaf in self._flat(where, name, value)]
        for k, (array, leaf) in enumerate(zip(arrays, self.leaves, strict=True)):
            wanted = outer + leaf.shape
            fits = array.shape == wanted or one_for_all and array.shape == leaf.shape
            if not fits:
                raise ValueError(
                    f"`{where}`: `{name}` expected shape {list(wanted)} in "
                    f"{self._place(k)}; got {list(array.shape)}; reshape it"
                )
            if array.dtype != leaf.dtype:
                arrays[k] = self._cast(array, k, f"`{where}`: `{name}` expected")
        return arrays

    def targets(
        self, out: Any, outer: tuple[int, ...], where: str = "NumpyStorage.get"
    ) -> list[np.ndarray]:
        """Returns the leaves of `out`, arrays to copy rows `[*outer, ...]` into."""
        arrays = self.fitting(out, outer)
        if arrays is not None and all([array.flags.writeable for array in arrays]):
            return arrays
        arrays = self._flat(where, "out", out)
        for k, (array, leaf) in enumerate(zip(arrays, self.leaves, strict=True)):
            if not isinstance(array, np.ndarray) or not array.flags.writeable:
                raise TypeError(
                    f"`{where}`: `out` expected a writeable numpy array in "
                    f"{self._place(k)}; got {type(array).__name__}; use np.empty"
                )
            if array.shape != outer + leaf.shape or array.dtype != leaf.dtype:
                raise ValueError(
                    f"`{where}`: `out` expected {leaf.dtype} of shape "
                    f"{list(outer + leaf.shape)} in {self._place(k)}; got "
                    f"{array.dtype} of {list(array.shape)}; make one to measure"
                )
        return arrays

    def pack(self, leaves: list[Any]) -> Any:
        """Returns leaves in the structure of `data_spec`."""
        return self._structure.pack(iter(leaves))

    def _integers(self, where: str, idx: Any) -> np.ndarray:
        array = idx
        # A tuple would be an index into several axes.
        if not isinstance(idx, tuple) and not isinstance(idx, np.ndarray):
            array = _array(where, idx)
            if array.shape == (0,):
                array = array.astype(np.intp)
        kind = array.dtype.kind if isinstance(array, np.ndarray) else ""
        if kind == "b" and array.shape == (self.capacity,):
            return np.flatnonzero(array)
        if kind not in ("i", "u"):
            got = repr(idx) if not kind else f"{array.dtype} of shape {array.shape}"
            raise IndexError(
                f"`{where}`: `idx` expected an int, a slice, ints, or {self.capacity} "
                f"bools; got {got}; convert it with np.asarray"
            )
        return array

    def _flat(self, where: str, name: str, nest: Any) -> list[Any]:
        try:
            tf.nest.assert_same_structure(self.data_spec, nest)
        except (TypeError, ValueError):
            raise ValueError(
                f"`{where}`: `{name}` expected the structure {self._spec}; got "
                f"{_outline(nest)}; make leaves arrays and rename or reorder them"
            ) from None
        return tf.nest.flatten(nest)

    def _cast(self, array: np.ndarray, k: int, expected: str) -> np.ndarray:
        dtype = self.leaves[k].dtype
        source, target = _kind(array.dtype), _kind(dtype)
        numeric = min(source, target) >= 0
        if numeric:
            fits = source <= target
        else:
            same = array.dtype.kind == dtype.kind
            fits = same and np.can_cast(array.dtype, dtype, "same_kind")
        if not fits:
            raise TypeError(
                f"{expected} {dtype} in {self._place(k)}; got {array.dtype}, which "
                "loses more than precision; convert it first"
            )
        with np.errstate(over="ignore", invalid="ignore"):
            cast = array.astype(dtype)
        if numeric and not _same_numbers(array, cast):
            raise ValueError(
                f"{expected} {_NUMBERS[target]} in the range of "
                f"{dtype} in {self._place(k)}; got {array.min()} to {array.max()}; "
                "clip them or choose a wider dtype"
            )
        return cast

    def _place(self, k: int) -> str:
        return f"leaf {k} of {self._spec}"


def _leaf(spec: Any) -> shapes.ShapeDtype:
    where = "`NumpyStorage`: `data_spec` expected"
    if not hasattr(spec, "shape") or not hasattr(spec, "dtype"):
        raise ValueError(
            f"{where} a nest of specs with `shape` and `dtype`; got "
            f"{checks.shown(spec)}; pass for example tf.TensorSpec([4], tf.float32)"
        )
    checks.check_known_shape("NumpyStorage", "data_spec", spec)
    leaf = shapes.ShapeDtype(tuple(spec.shape), spec.dtype)
    dtype = leaf.dtype
    if _kind(dtype) < 0 and (dtype.kind not in "SUMm" or not dtype.itemsize):
        raise ValueError(
            f"{where} dtypes of a fixed size; got {spec.dtype}; pass for example "
            "tfrl.core.ShapeDtype((), np.dtype('S10')) for texts of up to 10 bytes"
        )
    native = dtype.newbyteorder("=")
    # The object that arrays have, where there is one: it is found by its identity.
    common = np.dtype(native.str)
    return leaf.replace(dtype=common if common == native else native)


def _kind(dtype: np.dtype) -> int:
    """Returns the place of a dtype in `_NUMBERS`, -1 if it is not numeric."""
    if dtype.kind != "V":
        return _KINDS.get(dtype.kind, -1)
    try:  # bfloat16 and the like, which numpy takes for structures
        return 2 if tf.as_dtype(dtype).is_floating else -1
    except TypeError:
        return -1


def _same_numbers(array: np.ndarray, cast: np.ndarray) -> bool:
    """Whether a cast changed nothing but the precision of fractions."""
    if array.size == 0 or array.dtype.kind == "b":
        return True
    if cast.dtype.kind in "iu":
        limits = np.iinfo(cast.dtype)
        return int(array.min()) >= limits.min and int(array.max()) <= limits.max
    return bool(np.all(np.isfinite(cast) | ~np.isfinite(array)))


def _array(where: str, leaf: Any) -> np.ndarray:
    if isinstance(leaf, np.ndarray):
        return leaf
    try:
        return np.asarray(leaf)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise TypeError(
            f"`{where}`: expected arrays; got {leaf!r:.80}; convert it ({error})"
        ) from None


def _name(dtype: np.dtype) -> str:
    return dtype.str[1:] if dtype.kind in "SUMm" else dtype.name


def _outline(nest: Any) -> str:
    leaves = [
        f"{leaf.dtype}{list(leaf.shape)}" if hasattr(leaf, "shape") else repr(leaf)
        for leaf in tf.nest.flatten(nest)
    ]
    return _text(tf.nest.pack_sequence_as(nest, leaves))


def _text(nest: Any) -> str:
    """Writes a nest of texts; dicts that `tf.nest` takes for equal look equal."""
    if isinstance(nest, Mapping):
        items = (f"{key!r}: {_text(nest[key])}" for key in sorted(nest))
        return f"{{{', '.join(items)}}}"
    if isinstance(nest, tuple) and hasattr(nest, "_asdict"):
        items = (f"{key}={_text(part)}" for key, part in nest._asdict().items())
        return f"{type(nest).__name__}({', '.join(items)})"
    if isinstance(nest, list):
        return f"[{', '.join(map(_text, nest))}]"
    if isinstance(nest, tuple):
        return f"({''.join(f'{_text(part)}, ' for part in nest).rstrip()})"
    if tf.nest.is_nested(nest):
        return f"{type(nest).__name__}({', '.join(tf.nest.flatten(nest))})"
    return nest


class _Leaf:
    """What is no nest."""

    def split(self, nest: Any) -> list[Any] | None:
        """Returns the leaves of a nest of just these types, in the order of `tf.nest`.

        None says that this takes a closer look: the types may differ and still fit.
        Leaves may be nests of more, which whoever asks sees by their types.
        """
        return [nest]

    def pack(self, leaves: Iterator[Any]) -> Any:
        """Returns as many leaves as there are as a nest."""
        return next(leaves)


class _Other(_Leaf):
    """A nest of a type that only `tf.nest` knows."""

    def __init__(self, nest: Any) -> None:
        self._nest, self._count = nest, len(tf.nest.flatten(nest))

    def split(self, nest: Any) -> None:
        """Returns None."""
        del nest

    def pack(self, leaves: Iterator[Any]) -> Any:
        """Returns as many leaves as there are as a nest."""
        flat = list(itertools.islice(leaves, self._count))
        return tf.nest.pack_sequence_as(self._nest, flat)


class _Container(_Leaf):
    """A dict, list, tuple or NamedTuple, and what is in it."""

    def __init__(self, nest: Any, make: Callable[[Any], Any]) -> None:
        self._type, self._make = type(nest), make
        self._keys = sorted(nest) if self._type is dict else None
        values = nest if self._keys is None else [nest[key] for key in self._keys]
        parts = [_structure_of(value) for value in values]
        # None for leaves: to ask each of them would take most of the time.
        self._parts = [None if type(part) is _Leaf else part for part in parts]
        self._count, self._is_flat = len(parts), not any(self._parts)
        # Where the leaves are, if all other parts are (): taken at once then.
        self._hollow = [k for k, part in enumerate(self._parts) if part is not None]
        self._picked = None
        chosen = [k for k, part in enumerate(self._parts) if part is None]
        if self._keys is None and all(values[k] == () for k in self._hollow):
            self._picked = operator.itemgetter(*chosen) if len(chosen) > 1 else None
        # Dicts come back in the order of the one that they are made like.
        ordered = self._keys is None or self._keys == list(nest)
        self._order = {} if ordered else dict.fromkeys(nest)

    def split(self, nest: Any) -> list[Any] | None:
        """Returns the leaves of a nest of just these types, else None."""
        if type(nest) is not self._type or len(nest) != self._count:
            return None
        try:
            values = nest if self._keys is None else [nest[key] for key in self._keys]
        except KeyError:
            return None
        if self._is_flat:
            return list(values)
        if self._picked is not None:
            for k in self._hollow:
                if type(values[k]) is not tuple or values[k]:
                    return None
            return [*self._picked(values)]
        found: list[Any] = []
        for part, value in zip(self._parts, values):  # noqa: B905, as many
            if part is None:
                found.append(value)
                continue
            leaves = part.split(value)
            if leaves is None:
                return None
            found += leaves
        return found

    def pack(self, leaves: Iterator[Any]) -> Any:
        """Returns as many leaves as there are as a nest."""
        values: Any = leaves
        if not self._is_flat:
            values = [
                next(leaves) if part is None else part.pack(leaves)
                for part in self._parts
            ]
        if self._keys is None:
            return self._make(itertools.islice(values, self._count))
        found = dict(zip(self._keys, values))  # noqa: B905, of the leaves as many
        return {**self._order, **found} if self._order else found


def _structure_of(nest: Any) -> _Leaf:
    """Returns what takes nests like this one apart and puts them together."""
    kind = type(nest)
    if not tf.nest.is_nested(nest):
        return _Leaf()
    if kind in (dict, list, tuple):
        return _Container(nest, kind)
    if isinstance(nest, tuple) and hasattr(kind, "_make"):
        return _Container(nest, kind._make)
    return _Other(nest)
