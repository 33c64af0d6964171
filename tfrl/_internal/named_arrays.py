"""The arrays of a nest under the names of their places, in a TensorFlow checkpoint."""

import glob
import math
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import plain_paths

_SHOWN_DIFFERENCES = 3


def name_arrays(nest: Any, root: str = "state") -> dict[str, Any]:
    """Names every leaf of a nest after its place.

    Keys, field names and indices are joined by `/`; a `/` in a key becomes `~1` and a
    `~` becomes `~0`, so that no two places share a name.

    Args:
        nest: dictionaries, lists, tuples, `PyTreeNode`s of tensors, variables, numeric
            numpy arrays, `tf.TensorSpec`s or `None`.
        root: name of the nest itself.

    Returns:
        The leaves by name, in the order of `tf.nest.flatten`.

    Raises:
        TypeError: if a leaf is no array of fixed shape, or the nest is none of these.
        ValueError: if a key holds half a character.

    Example:
        >>> list(name_arrays({"b": (np.zeros(1), None), "a": np.ones(2)}))
        ['state/a', 'state/b/0', 'state/b/1']
    """
    leaves = dict(_walk(root, nest))
    if [id(leaf) for leaf in leaves.values()] != [id(x) for x in tf.nest.flatten(nest)]:
        raise TypeError(
            f"`name_arrays`: `{root}` expected a nest of dictionaries, lists, tuples "
            "and `PyTreeNode`s; got one that `tf.nest` flattens otherwise than into "
            f"{list(leaves)}; use these containers"
        )
    for name, leaf in leaves.items():
        check_name("name_arrays", root, name)
        if leaf is not None and not _is_array(leaf):
            raise TypeError(
                f"`name_arrays`: `{root}` expected tensors, variables or numeric numpy "
                f"arrays of fixed shape; got {type(leaf).__name__} at {name}; "
                "convert it, or keep it in the metadata"
            )
    return leaves


def check_name(where: str, item: str, name: str) -> None:
    """Raises unless a name can be written to a checkpoint.

    Args:
        where: name of the function that asks.
        item: what the name is of a part of.
        name: of the part.

    Raises:
        ValueError: if it holds half a character, as texts of Python may.

    Example:
        >>> check_name("save", "net", "net/kernel")
    """
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"`{where}`: `{item}` expected names of whole characters; got {name!r}"
        ) from error


def describe_arrays(leaves: Mapping[str, Any]) -> dict[str, list[Any] | None]:
    """Tells dtype and shape of every leaf of `name_arrays`, as JSON can hold it.

    Args:
        leaves: what `name_arrays` returned.

    Returns:
        `[dtype name, sizes]`, or `None` for a `None`, by name.

    Example:
        >>> describe_arrays(name_arrays((tf.zeros([2, 3]),)))
        {'state/0': ['float32', [2, 3]]}
    """
    return {
        name: None if leaf is None else [tf.as_dtype(leaf.dtype).name, _sizes(leaf)]
        for name, leaf in leaves.items()
    }


def array_differences(
    saved: Mapping[str, Any],
    wanted: Mapping[str, Any],
    places: tuple[str, str] = ("on disk", "here"),
) -> str:
    """Tells in words how two results of `describe_arrays` differ.

    Args:
        saved: what is on the disk.
        wanted: what the reader expects.
        places: where the first and where the second is, or when.

    Returns:
        The first few differing entries, or an empty text.

    Example:
        >>> array_differences({"w": ["float32", [2]]}, {"w": ["float32", [3]]})
        'w is float32 [2] on disk but float32 [3] here'
    """
    first, second = places
    found = [
        f"{name} is {_show(saved, name)} {first} but {_show(wanted, name)} {second}"
        for name in {**saved, **wanted}
        if name not in saved or name not in wanted or saved[name] != wanted[name]
    ]
    if len(found) > _SHOWN_DIFFERENCES:
        rest = f"and {len(found) - _SHOWN_DIFFERENCES} more"
        found = [*found[:_SHOWN_DIFFERENCES], rest]
    return "; ".join(found)


def write_arrays(prefix: str, leaves: Mapping[str, Any]) -> None:
    """Writes the leaves of `name_arrays` as a TensorFlow checkpoint.

    The entries are explicit, so nothing depends on what an object tracks, and
    `tf.train.load_checkpoint(prefix)` lists them. The files are not flushed to disk.

    Args:
        prefix: path and beginning of the file names.
        leaves: what `name_arrays` returned; `None`s are left out.

    Raises:
        OSError: if the disk refuses.

    Example:
        >>> import tempfile
        >>> prefix = tempfile.mkdtemp() + "/state"
        >>> write_arrays(prefix, name_arrays({"w": tf.ones([2])}))
        >>> tf.train.load_checkpoint(prefix).get_tensor("state/w")
        array([1., 1.], dtype=float32)
    """
    # TensorFlow refuses an empty checkpoint.
    tensors = {".format": tf.constant(1, tf.int64)}
    arrays = {name: leaf for name, leaf in leaves.items() if leaf is not None}
    tensors |= {name: tf.convert_to_tensor(leaf) for name, leaf in arrays.items()}
    try:
        with tf.device("CPU:0"):
            tf.raw_ops.SaveV2(
                prefix=prefix,
                tensor_names=list(tensors),
                shape_and_slices=[""] * len(tensors),
                tensors=list(tensors.values()),
            )
    except tf.errors.OpError as error:
        raise OSError(
            f"`write_arrays`: `prefix` expected a place that can be written; got "
            f"{prefix} ({error.message})"
        ) from error


def read_arrays(prefix: str, leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Reads what `write_arrays` wrote.

    Args:
        prefix: path and beginning of the file names.
        leaves: what `name_arrays` returns for a nest of the same names, dtypes and
            shapes; its values do not matter.

    Returns:
        The values by name: numpy arrays or scalars where `leaves` has them, `None`
        where it has `None`, and tensors elsewhere.

    Raises:
        OSError: if the files cannot be read or lack an entry.

    Example:
        >>> import tempfile
        >>> prefix = tempfile.mkdtemp() + "/state"
        >>> write_arrays(prefix, name_arrays((tf.ones([2]),)))
        >>> read_arrays(prefix, name_arrays((np.zeros(2, "float32"),)))
        {'state/0': array([1., 1.], dtype=float32)}
    """
    arrays = {name: leaf for name, leaf in leaves.items() if leaf is not None}
    if not arrays:
        return dict(leaves)
    try:
        folder, start = os.path.split(prefix)
        with plain_paths.plain(folder) as plain, tf.device("CPU:0"):
            _check_sizes(plain, start, arrays)
            tensors = tf.raw_ops.RestoreV2(
                prefix=os.path.join(plain, start),
                tensor_names=list(arrays),
                shape_and_slices=[""] * len(arrays),
                dtypes=[tf.as_dtype(leaf.dtype) for leaf in arrays.values()],
            )
    except (tf.errors.OpError, ValueError, RuntimeError, SystemError) as error:
        raise OSError(
            f"`read_arrays`: `prefix` expected a TensorFlow checkpoint with these "
            f"entries; got {prefix} ({error})"
        ) from error
    values = map(_like, arrays.values(), tensors)
    return {**leaves, **dict(zip(arrays, values, strict=True))}


def _check_sizes(folder: str, start: str, arrays: Mapping[str, Any]) -> None:
    """Raises before TensorFlow takes memory for what is no array of the checkpoint."""
    prefix = os.path.join(folder, start)
    shapes = tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
    count = 0
    for name, leaf in arrays.items():
        shape = tf.TensorShape(leaf.shape)
        if name not in shapes or not shape.is_compatible_with(shapes[name]):
            found = shapes.get(name, "none")
            raise ValueError(f"{found} as the shape of {name!r} instead of {shape}")
        count += math.prod(shapes[name]) * tf.as_dtype(leaf.dtype).size
    files = pathlib.Path(folder).glob(f"{glob.escape(start)}.data-*")
    size = sum(file.stat().st_size for file in files)
    if count > size:
        raise ValueError(f"{size} bytes for arrays of {count}")


def _sizes(leaf: Any) -> list[int | None] | None:
    shape = tf.TensorShape(leaf.shape)
    return None if shape.rank is None else shape.as_list()


def _like(leaf: Any, tensor: tf.Tensor) -> Any:
    if isinstance(leaf, np.ndarray):
        return np.asarray(tensor.numpy())
    if isinstance(leaf, np.generic):
        return np.asarray(tensor.numpy())[()]
    return tensor


def _is_array(leaf: Any) -> bool:
    if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind in "OSUMm":
        return False
    if isinstance(leaf, tf.SparseTensor) or not hasattr(leaf, "dtype"):
        return False
    return tf.TensorShape(getattr(leaf, "shape", None)).is_fully_defined()


def children(name: str, nest: Any) -> list[tuple[Any, Any]] | None:
    """Returns the parts of a nest.

    Args:
        name: of the nest, for the error message.
        nest: as for `name_arrays`.

    Returns:
        Keys, indices or attributes, and parts, in the order of `tf.nest`; None for a
        leaf.

    Raises:
        TypeError: if keys cannot be sorted.

    Example:
        >>> children("state", {"b": 1, "a": 2}), children("state", 1)
        ([('a', 2), ('b', 1)], None)
    """
    if isinstance(nest, Mapping):
        try:
            return [(key, nest[key]) for key in sorted(nest)]
        except TypeError as error:
            raise TypeError(
                f"`name_arrays`: `{name}` expected keys that can be sorted; got "
                f"{list(nest)}; use texts"
            ) from error
    if isinstance(nest, tuple) and hasattr(nest, "_fields"):
        return list(zip(nest._fields, nest, strict=True))
    if isinstance(nest, list | tuple):
        return list(enumerate(nest))
    if not hasattr(nest, "__tf_flatten__"):
        return None
    # Rebuilt around markers, the node shows which attribute holds which part.
    static, parts = nest.__tf_flatten__()
    marks = tuple(object() for _ in parts)
    marked = vars(type(nest).__tf_unflatten__(static, marks))
    owners = {id(value): key for key, value in marked.items()}
    keys = [owners.get(id(mark), i) for i, mark in enumerate(marks)]
    return list(zip(keys, parts, strict=True))


def spelled(name: str, nest: Any) -> Iterator[tuple[str, Any]]:
    """Yields the leaves of a nest with the expressions that reach them.

    Args:
        name: of the nest.
        nest: as for `children`.

    Example:
        >>> [text for text, _ in spelled("x", {"b": [1, 2], "a": 3})]
        ["x['a']", "x['b'][0]", "x['b'][1]"]
    """
    parts = children(name, nest)
    if parts is None:
        yield name, nest
        return
    plain = isinstance(nest, Mapping | list | tuple) and not hasattr(nest, "_fields")
    for key, child in parts:
        yield from spelled(f"{name}[{key!r}]" if plain else f"{name}.{key}", child)


def _walk(name: str, nest: Any) -> Iterator[tuple[str, Any]]:
    parts = children(name, nest)
    if parts is None:
        yield name, nest
        return
    for key, child in parts:
        escaped = str(key).replace("~", "~0").replace("/", "~1")
        yield from _walk(f"{name}/{escaped}", child)


def _show(facts: Mapping[str, Any], name: str) -> str:
    if name not in facts:
        return "missing"
    return "None" if facts[name] is None else "{} {}".format(*facts[name])
