"""Edits of saved graphs, so that a SavedModel depends on its content alone.

TensorFlow numbers functions over the life of a process, and Keras its layers
(`dense_7`), whose names go into those of nodes. TensorFlow takes the variables of a
graph in the order of their addresses, and gives every model a random identifier. Two
exports of the same weights would differ in all of it.
"""

import collections
import copy
import itertools
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

_GIVEN_NAME = "_user_specified_name"
_COUNTS = re.compile(r"(_\d+)+(?=/|$)")
_REFERENCE = re.compile(r"(\^|loc:@|)([^:]*)(.*)", re.DOTALL)
_GRADIENT = re.compile(r"(CustomGradient|(Stateful)?PartitionedCall)-\d+")
_NUMBER = re.compile(r"\d*$")
_LONGEST_NAME = 1000


def variables_of(traced: Any) -> list[tf.Variable]:
    """Returns the variables of a concrete function in the order of their use.

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
    places = {id(tensor): i for i, tensor in enumerate(traced.captured_inputs)}
    last = len(places)
    return sorted(traced.variables, key=lambda x: places.get(id(x.handle), last))


def settle(folder: pathlib.Path) -> None:
    """Rewrites the graphs of a SavedModel so that they depend on its content alone.

    Functions are numbered in the order in which they are needed, nodes that are named
    alike in the order in which they come. Functions that asked for XLA
    (`jit_compile=True`) no longer do: the graphs run wherever TensorFlow runs, for all
    sizes alike, and whoever serves them may compile them again. The fingerprint, which
    would be that of the graphs before, and is random in part, goes.

    Args:
        folder: the SavedModel.

    Example:
        >>> import tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp(), "model")
        >>> exp = tf.function(tf.exp).get_concrete_function(tf.TensorSpec([None]))
        >>> tf.saved_model.save(tf.Module(), str(folder), exp)
        >>> settle(folder)
        >>> (folder / "fingerprint.pb").exists()
        False
    """
    path = folder / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for meta in model.meta_graphs:
        functions = meta.graph_def.library.function
        bodies = [meta.graph_def.node, *(x.node_def for x in functions)]
        ops = {node.op for nodes in bodies for node in nodes}
        for part in [*functions, *itertools.chain(*bodies)]:
            part.attr.pop("_XlaMustCompile", None)
            if "config_proto" in part.attr:  # The devices of this process.
                part.attr["config_proto"].s = b""
        for function in functions:
            # The nodes that have a function for their operation refer to its outputs.
            rename_nodes(function, outputs=function.signature.name not in ops)
        _rename_functions(meta)
    path.write_bytes(model.SerializeToString(deterministic=True))
    (folder / "fingerprint.pb").unlink(missing_ok=True)


def rename_nodes(function: Any, *, outputs: bool = True) -> None:
    """Numbers what is named alike in a function of a graph in the order it comes in.

    Arguments with a name of their own keep it.

    Args:
        function: `FunctionDef`, changed in place.
        outputs: whether outputs are renamed, too.

    Example:
        >>> def make(name):
        ...     scaled = lambda x: tf.multiply(x, 2.0, name=name)
        ...     graph = tf.function(scaled).get_concrete_function(tf.TensorSpec([]))
        ...     definition = graph.function_def
        ...     rename_nodes(definition)
        ...     return definition.node_def[1].name
        >>> make("dense_7/mul"), make("dense_12/mul")
        ('dense/mul', 'dense/mul')
    """
    signature, plain = function.signature, {}
    names: dict[str, str] = {}
    for place, argument in enumerate(signature.input_arg):
        attributes = function.arg_attr[place].attr
        if attributes[_GIVEN_NAME].s.decode().lower() == argument.name:
            names[argument.name] = argument.name
        else:
            del attributes[_GIVEN_NAME]
            plain[argument.name] = "captured"
    plain |= {node.name: _COUNTS.sub("", node.name) for node in function.node_def}
    taken, counts = set(names), collections.Counter[str]()
    for old, name in plain.items():
        fresh = name
        while fresh in taken:
            counts[name] += 1
            fresh = f"{name}_{counts[name]}"
        taken.add(fresh)
        names[old] = fresh

    def renamed(text: str) -> str:
        """What refers to a node, an output of it, its end or its place."""
        return _REFERENCE.sub(lambda x: x[1] + names.get(x[2], x[2]) + x[3], text, 1)

    for argument in signature.input_arg:
        argument.name = names[argument.name]
    for node in function.node_def:
        node.name = names[node.name]
        node.input[:] = map(renamed, node.input)
        # Where it came from, before TensorFlow optimized the graph.
        node.ClearField("experimental_debug_info")
        if "_class" in node.attr:
            places = node.attr["_class"].list
            places.s[:] = [renamed(place.decode()).encode() for place in places.s]
    results = {
        result.name: f"output_{place}" if outputs else result.name
        for place, result in enumerate(signature.output_arg)
    }
    for result in signature.output_arg:
        result.name = results[result.name]
    _replace(function.ret, {results[k]: renamed(x) for k, x in function.ret.items()})
    ends = {renamed(k): renamed(x) for k, x in function.control_ret.items()}
    _replace(function.control_ret, ends)
    signature.control_output[:] = map(renamed, signature.control_output)


def _replace(texts: Any, others: dict[str, str]) -> None:
    texts.clear()
    texts.update(others)


def _rename_functions(meta: Any) -> None:
    """Numbers functions, and gradients written in Python, as they are needed."""
    library, saved = meta.graph_def.library, meta.object_graph_def
    needed = {x.signature.name: x for x in library.function}
    needed |= {x.registered_op_type: x for x in library.registered_gradients}
    names: dict[str, str] = {}

    def renamed(text: str) -> str:
        if text not in names and (text in needed or _GRADIENT.fullmatch(text)):
            names[text] = f"{_NUMBER.sub('', text)}{len(names)}"
            if text in needed:
                _rename(needed[text], renamed)
        return names.get(text, text)

    _rename(meta.graph_def.node, renamed)
    _rename(saved.nodes, renamed)
    for name in sorted(needed, key=lambda name: (len(name), name)):
        renamed(name)
    _rename(library.gradient, renamed)
    kept = {renamed(x): copy.deepcopy(f) for x, f in saved.concrete_functions.items()}
    saved.concrete_functions.clear()
    for name, function in kept.items():
        saved.concrete_functions[name].CopyFrom(function)
    places = {name: place for place, name in enumerate(names.values())}
    library.function.sort(key=lambda x: places[x.signature.name])
    library.registered_gradients.sort(key=lambda x: places[x.registered_op_type])


def _rename(part: Any, renamed: Callable[[str], str]) -> None:
    """Puts new names into a message, a list or the values of a map."""
    if hasattr(part, "ListFields"):
        for field, value in part.ListFields():
            if isinstance(value, str | bytes):
                setattr(part, field.name, _renamed(value, renamed))
            elif not isinstance(value, int | float):
                _rename(value, renamed)
        return
    for key in sorted(part) if isinstance(part, Mapping) else range(len(part)):
        if isinstance(part[key], str | bytes):
            part[key] = _renamed(part[key], renamed)
        elif hasattr(part[key], "ListFields") or isinstance(part[key], Mapping):
            _rename(part[key], renamed)
        else:
            return  # All are numbers.


def _renamed(text: Any, renamed: Callable[[str], str]) -> Any:
    if isinstance(text, str):
        return renamed(text)
    if len(text) > _LONGEST_NAME:
        return text
    return renamed(text.decode("latin-1")).encode("latin-1")
