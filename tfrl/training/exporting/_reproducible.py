"""Models that say nothing of the process that wrote them, nor of the time.

TensorFlow numbers functions over the life of a process, takes the variables of a graph
in the order of their addresses and gives every model a random identifier. Two exports
of the same weights would differ in all of it.
"""

import collections
import copy
import itertools
import json
import pathlib
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tfrl.training.exporting import _node_names

_GRADIENT = re.compile(r"(CustomGradient|(Stateful)?PartitionedCall)-\d+")
_NUMBER = re.compile(r"\d*$")
_LONGEST_NAME = 1000
_NUMBERS = (bool, int, float)


def variables_of(traced: Any) -> list[tf.Variable]:
    """Returns the variables of a concrete function in the order of their first use.

    Args:
        traced: the concrete function.

    Returns:
        The variables.

    Example:
        >>> one, two = tf.Variable(1.0), tf.Variable(2.0)
        >>> graph = tf.function(lambda: two - one).get_concrete_function()
        >>> [float(variable) for variable in variables_of(graph)]
        [2.0, 1.0]
    """
    places: dict[int, int] = {}
    for place, tensor in enumerate(traced.captured_inputs):
        places.setdefault(id(tensor), place)

    def first_use(variable: tf.Variable) -> tuple[int, str]:
        return places.get(id(variable.handle), len(places)), variable.name

    return sorted(traced.variables, key=first_use)


def settle(folder: pathlib.Path) -> list[str]:
    """Rewrites the graphs of a SavedModel so that they depend on its content alone.

    Functions are numbered in the order in which they are needed. Those that asked for
    XLA (`jit_compile=True`) no longer do: the graphs run wherever TensorFlow runs, for
    all sizes alike, and whoever serves them may compile them again. The fingerprint,
    which would be that of the graphs before, and is random in part, goes.

    Args:
        folder: the SavedModel.

    Returns:
        The ops in it that only XLA knows, whose makers have no other form of them.

    Example:
        >>> import tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp(), "model")
        >>> exp = tf.function(tf.exp).get_concrete_function(tf.TensorSpec([None]))
        >>> tf.saved_model.save(tf.Module(), str(folder), exp)
        >>> settle(folder)
        []
    """
    path = folder / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    xla_ops: set[str] = set()
    for meta in model.meta_graphs:
        functions = meta.graph_def.library.function
        bodies = [meta.graph_def.node, *(x.node_def for x in functions)]
        ops = {node.op for nodes in bodies for node in nodes}
        xla_ops |= {op for op in ops if op.startswith("Xla")}
        for attributes in (x.attr for x in [*functions, *itertools.chain(*bodies)]):
            attributes.pop("_XlaMustCompile", None)
            if "config_proto" in attributes:  # The devices of this process.
                attributes["config_proto"].s = b""
        for function in functions:
            is_op = function.signature.name in ops
            _node_names.renumber(function, outputs=not is_op)
        _renumber(meta)
    path.write_bytes(model.SerializeToString(deterministic=True))
    (folder / "fingerprint.pb").unlink(missing_ok=True)
    return sorted(xla_ops)


def settle_archive(path: pathlib.Path) -> None:
    """Rewrites a `.keras` file without the time at which it was saved.

    Args:
        path: the file.

    Example:
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "model.keras")
        >>> keras.Sequential([keras.Input([3]), keras.layers.ReLU()]).save(path)
        >>> settle_archive(path)
        >>> zipfile.ZipFile(path).getinfo("model.weights.h5").date_time
        (1980, 1, 1, 0, 0, 0)
    """
    fresh = path.with_suffix(".settled")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(fresh, "w") as new:
        for member in old.infolist():
            plain = zipfile.ZipInfo(member.filename)
            plain.compress_type = member.compress_type
            plain.file_size = member.file_size
            with old.open(member) as source, new.open(plain, "w") as target:
                if member.filename.endswith(".json"):
                    target.write(json.dumps(_settled(json.load(source))).encode())
                else:
                    shutil.copyfileobj(source, target)
    fresh.replace(path)


def _settled(config: Any) -> Any:
    """What Keras writes of a model without time and addresses of objects."""
    config.pop("date_saved", None)
    places = collections.defaultdict(list)

    def visit(part: Any) -> None:
        if isinstance(part, dict) and "shared_object_id" in part:
            places[part["shared_object_id"]].append(part)
        for each in part.values() if isinstance(part, dict) else part:
            if isinstance(each, dict | list):
                visit(each)

    visit(config)
    for number, parts in enumerate(places.values()):
        # Dtype policies are values: a model that was loaded shares them no more.
        alone = len(parts) == 1 or parts[0].get("class_name") == "DTypePolicy"
        for part in parts:
            part["shared_object_id"] = number
            if alone:
                del part["shared_object_id"]
    return config


def _renumber(meta: Any) -> None:
    """Numbers functions, and gradients written in Python, as they are needed."""
    library = meta.graph_def.library
    needed: dict[str, Any] = {x.signature.name: x for x in library.function}
    needed |= {
        x.registered_op_type: x.gradient_func for x in library.registered_gradients
    }
    names: dict[str, str] = {}

    def visit(part: Any) -> None:
        for text in _texts(part):
            if text not in names and (text in needed or _GRADIENT.fullmatch(text)):
                names[text] = f"{_NUMBER.sub('', text)}{len(names)}"
                visit(needed.get(text, ""))

    visit(meta.graph_def.node)
    visit(meta.object_graph_def.nodes)
    visit(sorted(needed, key=lambda name: (len(name), name)))
    _rename(meta, names | {a.encode(): b.encode() for a, b in names.items()})
    places = {name: place for place, name in enumerate(names.values())}
    library.function.sort(key=lambda x: places[x.signature.name])
    library.registered_gradients.sort(key=lambda x: places[x.registered_op_type])


def _texts(part: Any) -> Iterator[str]:
    """The texts within a message, but for the keys of maps."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, bytes):
        if len(part) < _LONGEST_NAME:
            yield part.decode("latin-1")
    elif hasattr(part, "ListFields"):
        for _, value in part.ListFields():
            yield from _texts(value)
    elif isinstance(part, Mapping):
        for key in sorted(part):
            yield from _texts(part[key])
    else:
        for place in _places(part):
            yield from _texts(part[place])


def _rename(part: Any, names: Mapping[Any, Any]) -> None:
    """Replaces names within a message or a part of one, also as keys of maps."""
    if hasattr(part, "ListFields"):
        for field, value in part.ListFields():
            if isinstance(value, str | bytes):
                setattr(part, field.name, names.get(value, value))
            else:
                _rename(value, names)
        return
    if isinstance(part, MutableMapping) and any(key in names for key in part):
        kept = {names.get(key, key): copy.deepcopy(part[key]) for key in part}
        part.clear()
        for key, value in kept.items():
            part[key].CopyFrom(value)
    for key in part if isinstance(part, Mapping) else _places(part):
        if isinstance(part[key], str | bytes):
            part[key] = names.get(part[key], part[key])
        else:
            _rename(part[key], names)


def _places(part: Any) -> Sequence[int]:
    """Places in a repeated field, none of one of numbers."""
    is_list = isinstance(part, Sequence) and len(part)
    return range(len(part) if is_list and not isinstance(part[0], _NUMBERS) else 0)
