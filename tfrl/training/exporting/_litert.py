"""What LiteRT takes: graphs of its own ops, without state and random numbers."""

import pathlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

OWN_OPS = [tf.lite.OpsSet.TFLITE_BUILTINS]
_STATE = re.compile("^Assign|^Rng")
_CHANCE = re.compile("Random|Multinomial|StatefulUniform|StatefulTruncated")


def check_endpoints(where: str, functions: Mapping[str, Any]) -> None:
    """Raises if an endpoint keeps something between calls, or draws.

    Args:
        where: name of the function that exports.
        functions: concrete functions by the names of the endpoints.

    Raises:
        ValueError: if there is one.

    Example:
        >>> function = tf.function(tf.exp).get_concrete_function(tf.TensorSpec([]))
        >>> check_endpoints("export", {"exp": function})
    """
    for name, function in functions.items():
        graph = function.graph.as_graph_def()
        bodies = [graph.node, *(x.node_def for x in graph.library.function)]
        ops = {node.op for nodes in bodies for node in nodes}
        for pattern, what in (
            (_CHANCE, "draws"),
            (_STATE, "keeps a state, variables that a call changes"),
        ):
            found = sorted(op for op in ops if pattern.search(op))
            if found:
                raise ValueError(
                    f"`{where}`: a .tflite file expected endpoints without state and "
                    f"random numbers, which LiteRT cannot hold; got {name!r}, which "
                    f"{what} ({', '.join(found)}); leave it out, or write a folder"
                )


def converted(where: str, convert: Callable[[], Any]) -> Any:
    """Returns what a conversion does, or raises with the ops that LiteRT lacks.

    Args:
        where: name of the function that exports.
        convert: the conversion.

    Returns:
        What it returns.

    Raises:
        ValueError: if it fails.

    Example:
        >>> converted("export", lambda: 3)
        3
    """
    try:
        return convert()
    except Exception as error:
        # The converter's own class of errors is not public, and of others it may be.
        text = str(error)
        lacking = sorted(set(re.findall(r"'tf\.(\w+)' op", text)))
        fault = f"with {', '.join(lacking)}" if lacking else f"({text:.300})"
        fault += " of float64" if re.search(r"\btf\.\w+\(.*f64>", text) else ""
        remedy = "write it otherwise, or as a folder"
        if any(op.startswith("TensorList") for op in lacking):
            remedy = "make its recurrent layers with `unroll=True`, or write a folder"
        raise ValueError(
            f"`{where}`: a .tflite file expected a model of LiteRT's own ops; got one "
            f"that it cannot convert, {fault}; {remedy}"
        ) from error


def bytes_of(where: str, folder: pathlib.Path, names: Iterable[str]) -> bytes:
    """Returns a SavedModel as a model of LiteRT.

    Args:
        where: name of the function that exports.
        folder: the SavedModel.
        names: of its signatures.

    Returns:
        What goes into a `.tflite` file.

    Raises:
        ValueError: if LiteRT lacks an op.

    Example:
        >>> import tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp(), "model")
        >>> exp = tf.function(tf.exp, [tf.TensorSpec([None], name="x")])
        >>> tf.saved_model.save(tf.Module(), str(folder), {"exp": exp})
        >>> bytes_of("export", folder, ["exp"])[4:8]
        b'TFL3'
    """
    converter = tf.lite.TFLiteConverter.from_saved_model(
        str(folder), signature_keys=list(names)
    )
    converter.target_spec.supported_ops = OWN_OPS
    return converted(where, converter.convert)
