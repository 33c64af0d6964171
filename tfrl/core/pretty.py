"""Structures as text that people can read."""

import importlib
import io
import pprint
from collections.abc import Collection, Mapping
from typing import IO, Any

import numpy as np
import tensorflow as tf

_WITHOUT_ALL_VALUES = tf.RaggedTensor | tf.SparseTensor | tf.IndexedSlices


def pformat_pycolor(obj: Any) -> str:
    """Returns an object as Python code, coloured for a terminal.

    Args:
        obj: any object.

    Returns:
        What `PrettyPrinter(indent=2)` makes of it; with ANSI colours and a newline
        at the end where pygments is installed.

    Example:
        >>> "1" in pformat_pycolor((1, 2))
        True
    """
    text = PrettyPrinter(indent=2).pformat(obj)
    try:
        pygments = importlib.import_module("pygments")
        lexers = importlib.import_module("pygments.lexers")
        formatters = importlib.import_module("pygments.formatters")
    except ModuleNotFoundError:
        return text
    return pygments.highlight(
        text, lexers.PythonLexer(), formatters.Terminal256Formatter()
    )


def pretty_print(obj: Any) -> None:
    """Prints `pretty_repr(obj)`.

    Args:
        obj: any object.

    Example:
        >>> pretty_print({"obs": np.arange(3)})
        {
          'obs': array(shape=(3,), dtype=int64, min=0, median=1, max=2)}
    """
    print(pretty_repr(obj))


def pretty_repr(o: Any, d: int = 0) -> str:
    """Returns a structure one element per line, arrays as a summary of theirs.

    Args:
        o: any object.
        d: depth at which it stands; each level indents by two more spaces.

    Returns:
        The text. Numeric arrays and tensors with values show shape, dtype, least,
        median and greatest element; ragged and sparse ones shape and dtype only. A
        container within itself is `...` there.

    Example:
        >>> print(pretty_repr([1, (np.array([0.25, 0.5]), None)]))
        [
          1,
          (
            array(shape=(2,), dtype=float64, min=0.25, median=0.375, max=0.5),
            None)]
    """
    return _shown(o, d, ())


class PrettyPrinter(pprint.PrettyPrinter):
    """A `pprint.PrettyPrinter` that also breaks named tuples over lines.

    A named tuple that fits the width stays on one line, a longer one gets a line per
    field. The constructor is that of `pprint.PrettyPrinter`.

    Example:
        >>> from tfrl.core.records import LossInfo
        >>> PrettyPrinter(indent=2, width=30).pprint(LossInfo("a" * 12, "b" * 12))
        LossInfo(
          loss='aaaaaaaaaaaa',
          extra='bbbbbbbbbbbb')
    """

    # What `pprint.PrettyPrinter` keeps of its constructor's arguments.
    _width: int
    _indent_per_level: int

    def format_namedtuple(
        self,
        object: Any,
        stream: IO[str],
        indent: int,
        allowance: int,
        context: dict[int, int],
        level: int,
    ) -> None:
        """Writes a named tuple, on one line if it fits.

        Args:
            object: the named tuple.
            stream: where to write.
            indent: columns already used on the line.
            allowance: columns to leave free after it.
            context: ids of the objects being written, against recursion.
            level: depth of nesting.

        Example:
            >>> out = io.StringIO()
            >>> named = tfrl.core.LossInfo(1, 2)
            >>> PrettyPrinter().format_namedtuple(named, out, 0, 0, {}, 1)
            >>> out.getvalue()
            'LossInfo(loss=1, extra=2)'
        """
        items = object._asdict().items()
        line = io.StringIO()
        self.format_namedtuple_items(
            items, line, indent, allowance + 1, context, level, inline=True
        )
        stream.write(f"{type(object).__name__}(")
        if len(line.getvalue()) <= self._width - indent - allowance:
            stream.write(line.getvalue())
        else:
            self.format_namedtuple_items(
                items, stream, indent, allowance + 1, context, level
            )
        stream.write(")")

    def format_namedtuple_items(
        self,
        items: Collection[tuple[str, Any]],
        stream: IO[str],
        indent: int,
        allowance: int,
        context: dict[int, int],
        level: int,
        inline: bool = False,
    ) -> None:
        """Writes the fields of a named tuple.

        Args:
            items: pairs of field name and value.
            stream: where to write.
            indent: columns already used on the line.
            allowance: columns to leave free after them.
            context: ids of the objects being written, against recursion.
            level: depth of nesting.
            inline: whether to keep them on one line.

        Example:
            >>> out = io.StringIO()
            >>> PrettyPrinter().format_namedtuple_items(
            ...     [("a", 1), ("b", 2)], out, 0, 0, {}, 1, inline=True)
            >>> out.getvalue()
            'a=1, b=2'
        """
        indent += self._indent_per_level
        new_line = "\n" + " " * indent
        stream.write("" if inline else new_line)
        for number, (key, value) in enumerate(items, start=1):
            last = number == len(items)
            stream.write(f"{key}=")
            column, room = indent + len(key) + 2, allowance if last else 1
            self._format(value, stream, column, room, context, level)
            if not last:
                stream.write(", " if inline else f",{new_line}")

    # `pprint` has no public place to add a container type.
    def _format(self, object: Any, stream: Any, *place: Any) -> None:
        indent, allowance, context, level = place
        is_named = isinstance(object, tuple) and hasattr(object, "_asdict")
        if is_named and id(object) not in context:
            if len(repr(object)) > self._width - indent - allowance:
                inside = context | {id(object): 1}
                self.format_namedtuple(
                    object, stream, indent, allowance, inside, level + 1
                )
                return
        super()._format(object, stream, *place)


def _shown(o: Any, d: int, around: tuple[int, ...]) -> str:
    """As `pretty_repr`, inside of containers with these ids."""
    if id(o) in around:
        return "..."

    def inner(part: Any) -> str:
        return _shown(part, d + 1, (*around, id(o)))

    if isinstance(o, tuple) and hasattr(o, "_asdict"):
        fields = [f"{key}={inner(v)}" for key, v in o._asdict().items()]
        return _lines(f"{type(o).__name__}(", fields, ")", d, separator="")
    if isinstance(o, tuple):
        return _lines("(", [inner(v) for v in o], ")", d)
    if isinstance(o, list):
        return _lines("[", [inner(v) for v in o], "]", d)
    if isinstance(o, Mapping):
        return _lines("{", [f"{key!r}: {inner(v)}" for key, v in o.items()], "}", d)
    if isinstance(o, np.ndarray) or tf.is_tensor(o):
        return _array_summary(o)
    if isinstance(o, np.number | np.bool_):
        return str(o)
    return repr(o)


def _lines(
    opening: str, items: list[str], closing: str, depth: int, separator: str = ","
) -> str:
    new_line = "\n" + "  " * (depth + 1)
    return opening + new_line + (separator + new_line).join(items) + closing


def _array_summary(array: Any) -> str:
    name = array.dtype.name if isinstance(array.dtype, tf.DType) else array.dtype
    is_known = getattr(array.shape, "rank", 0) is not None
    shape = tuple(array.shape) if is_known else "unknown"
    head = f"array(shape={shape}, dtype={name}"
    hidden = isinstance(array, _WITHOUT_ALL_VALUES) or tf.is_symbolic_tensor(array)
    if hidden or 0 in array.shape:
        return f"{head})"
    values = np.asarray(array)
    if values.dtype.kind in "bV":  # "V" is bfloat16 and its like
        values = values.astype(np.float64)
    if values.dtype.kind not in "iufc":
        return f"{head})"
    with np.errstate(invalid="ignore"):
        low, middle, high = np.min(values), np.median(values), np.max(values)
    return f"{head}, min={low:.3g}, median={middle:.3g}, max={high:.3g})"
