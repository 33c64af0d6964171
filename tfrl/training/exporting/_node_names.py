"""Names of nodes without the numbers that a process gave them.

Keras counts its layers over the life of a process (`dense_7`), and TensorFlow takes
their names into those of nodes, captured tensors and outputs of a graph.
"""

import collections
import re
from typing import Any

_GIVEN = "_user_specified_name"
_COUNTS = re.compile(r"(_\d+)+$")
_REFERENCE = re.compile(r"(\^|loc:@|)([^:]*)(.*)", re.DOTALL)


def renumber(function: Any, *, outputs: bool = True) -> None:
    """Numbers what is named alike in a function of a graph in the order it comes in.

    Arguments with a name of their own keep it.

    Args:
        function: `FunctionDef`, changed in place.
        outputs: whether outputs are renamed, too, to which nodes refer that have the
            function for their operation.

    Example:
        >>> def make(name):
        ...     scaled = lambda x: tf.multiply(x, 2.0, name=name)
        ...     graph = tf.function(scaled).get_concrete_function(tf.TensorSpec([]))
        ...     definition = graph.function_def
        ...     renumber(definition)
        ...     return definition.node_def[1].name
        >>> make("dense_7/mul"), make("dense_12/mul")
        ('dense/mul', 'dense/mul')
    """
    signature = function.signature
    fresh, names = _Fresh(), {}
    for place, argument in enumerate(signature.input_arg):
        if _is_given(argument.name, function.arg_attr[place].attr):
            fresh(argument.name)
        else:
            names[argument.name] = ""
    names = {name: fresh("captured") for name in names} | _of_nodes(function, fresh)

    def renamed(text: str) -> str:
        """What refers to a node, an output of it, its end or its place."""
        return _REFERENCE.sub(lambda x: x[1] + names.get(x[2], x[2]) + x[3], text, 1)

    for argument in signature.input_arg:
        argument.name = renamed(argument.name)
    for node in function.node_def:
        node.name = renamed(node.name)
        node.input[:] = map(renamed, node.input)
        # Where it came from, before TensorFlow optimized the graph.
        node.ClearField("experimental_debug_info")
        if "_class" in node.attr:
            places = node.attr["_class"].list
            places.s[:] = [renamed(place.decode()).encode() for place in places.s]
    results = {}
    for place, result in enumerate(signature.output_arg):
        results[result.name] = f"output_{place}" if outputs else result.name
        result.name = results[result.name]
    _replace(function.ret, {results[k]: renamed(x) for k, x in function.ret.items()})
    ends = {renamed(k): renamed(x) for k, x in function.control_ret.items()}
    _replace(function.control_ret, ends)
    signature.control_output[:] = map(renamed, signature.control_output)


def _is_given(name: str, attributes: Any) -> bool:
    """Whether an argument has a name of its own; takes away what is none."""
    if attributes[_GIVEN].s.decode().lower() == name:
        return True
    del attributes[_GIVEN]
    return False


def _of_nodes(function: Any, fresh: "_Fresh") -> dict[str, str]:
    """New names of nodes by their old ones, in the scopes that these have."""
    scopes = {"": ""}
    for node in function.node_def:
        path = ""
        for part in node.name.split("/"):
            above, path = scopes[path], f"{path}/{part}"
            if path not in scopes:
                scopes[path] = fresh(f"{above}{_COUNTS.sub('', part)}") + "/"
    return {path[1:]: scope[:-1] for path, scope in scopes.items() if path}


def _replace(texts: Any, others: dict[str, str]) -> None:
    texts.clear()
    texts.update(others)


class _Fresh:
    """Makes names that were not there yet, by numbers in order."""

    def __init__(self) -> None:
        self._counts = collections.Counter[str]()

    def __call__(self, plain: str) -> str:
        name = plain
        while self._counts[name]:
            name = f"{plain}_{self._counts[plain]}"
            self._counts[plain] += 1
        self._counts[name] = 1
        return name
