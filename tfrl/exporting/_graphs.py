"""Endpoints as graphs of named tensors, these as a SavedModel, and that for LiteRT.

A SavedModel is edited so that it depends on its content alone. TensorFlow numbers
functions over the life of a process, and Keras its layers (`dense_7`), whose names go
into those of nodes. TensorFlow takes the variables of a graph in the order of their
addresses, and gives every model a random identifier. Two exports of the same weights
would differ in all of it.

`where` is the name of the function that exports, for messages.
"""

import collections
import copy
import itertools
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

import keras
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tfrl.exporting import endpoints

# Ops that call Python: they are saved, and die when they are served.
_HOST_OPS = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
_LITERT_LACKS = {
    "draws": re.compile("Random|Multinomial|StatefulUniform|StatefulTruncated"),
    "keeps a state, variables that a call changes": re.compile("^Assign|^Rng"),
}
_GIVEN_NAME = "_user_specified_name"
_COUNTS = re.compile(r"(_\d+)+(?=/|$)")
_REFERENCE = re.compile(r"(\^|loc:@|)([^:]*)(.*)", re.DOTALL)
_GRADIENT = re.compile(r"(CustomGradient|(Stateful)?PartitionedCall)-\d+")
_NUMBER = re.compile(r"\d*$")
_LONGEST_NAME = 1000


def named_leaves(nest: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yields the leaves of a nest under joined names, in the order of `tf.nest`.

    Args:
        nest: of dictionaries, tuples and lists.
        name: of the nest itself; empty for a dictionary whose keys are the names.

    Yields:
        Names and leaves.

    Example:
        >>> list(named_leaves({"b": (1, 2), "a": 3}, "x"))
        [('x_a', 3), ('x_b_0', 1), ('x_b_1', 2)]
    """
    keys: Iterable[Any]
    if isinstance(nest, Mapping):
        keys = sorted(nest)
        nest = [nest[key] for key in keys]
    elif isinstance(nest, tuple | list):
        keys = getattr(nest, "_fields", range(len(nest)))
    else:
        yield name, nest
        return
    for key, part in zip(keys, nest, strict=True):
        yield from named_leaves(part, f"{name}_{key}" if name else str(key))


def input_specs(
    where: str, inputs: Mapping[str, Any], *, of_graph: bool = True
) -> dict[str, tf.TensorSpec]:
    """Returns the specs of an endpoint's tensors by name, bounds kept.

    Args:
        where: name of the function, for messages.
        inputs: nests of specs by argument.
        of_graph: whether names become those of a graph's inputs.

    Raises:
        TypeError: if a leaf is no spec of numbers.
        ValueError: if a name is none for a graph, or stands for two tensors.

    Example:
        >>> list(input_specs("export", {"x": (tf.TensorSpec([]), tf.TensorSpec([]))}))
        ['x_0', 'x_1']
    """
    found: dict[str, tf.TensorSpec] = {}
    for argument, nest in inputs.items():
        for name, spec in named_leaves(nest, argument):
            if not isinstance(spec, tf.TensorSpec) or not _is_numeric(spec.dtype):
                raise TypeError(
                    f"`{where}`: `inputs` expected a tf.TensorSpec of numbers for each "
                    f"tensor; got {spec!r:.80} for {name!r}"
                )
            if of_graph or name in found:
                endpoints.check_name(f"`{where}`: `inputs`", name, found)
            found[name] = spec
    return found


def _is_numeric(dtype: tf.DType) -> bool:
    return dtype.is_floating or dtype.is_integer or dtype.is_bool


def packed(inputs: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns leaves by joined name as the nests of the arguments, like `inputs`.

    Example:
        >>> packed({"x": (0, 0)}, {"x_0": 3, "x_1": 4})
        {'x': (3, 4)}
    """
    return {
        argument: tf.nest.pack_sequence_as(
            nest, [given[name] for name, _ in named_leaves(nest, argument)]
        )
        for argument, nest in inputs.items()
    }


def output_leaves(outputs: Any) -> list[tuple[str, Any]]:
    """Returns the leaves of what a function returned under the names of outputs.

    Args:
        outputs: a dictionary, whose keys are names, or another nest.

    Example:
        >>> output_leaves((1, {"a": 2})), output_leaves({"a": 2})
        ([('output_0', 1), ('output_1_a', 2)], [('a', 2)])
    """
    if isinstance(outputs, Mapping) or hasattr(outputs, "_fields"):
        return list(named_leaves(outputs, ""))
    nest = outputs if isinstance(outputs, tuple | list) else (outputs,)
    return list(named_leaves(nest, "output"))


def trace(
    where: str, name: str, function: Callable[..., Any], inputs: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Returns an endpoint as a concrete function of flat named tensors.

    Args:
        where: name of the function, for messages.
        name: of the endpoint.
        function: takes `inputs` by their names.
        inputs: nests of specs by argument.

    Returns:
        A concrete function that returns a dictionary of tensors, and a nest like that
        which the endpoint returned.

    Raises:
        TypeError: if an output is no tensor, or as `input_specs`.
        ValueError: if the function makes variables or calls Python when it runs, or as
            `input_specs`.

    Example:
        >>> traced, _ = trace("export", "exp", tf.exp, {"x": tf.TensorSpec([None])})
        >>> traced(x=tf.zeros([2]))["output_0"].numpy()
        array([1., 1.], dtype=float32)
    """
    fault, structure = f"`{where}`: endpoint {name!r} expected", None
    specs = input_specs(where, inputs)

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise ValueError(
            f"{fault} a function whose layers and modules are built; got one that "
            "makes variables when it is called; call it once before"
        )

    @tf.function(autograph=False)
    def serve(**given: tf.Tensor) -> dict[str, tf.Tensor]:
        nonlocal structure
        with tf.variable_creator_scope(refuse):
            outputs = function(**packed(inputs, given))
        tensors = _tensors(fault, outputs)
        structure = tf.nest.map_structure(lambda _: 0, outputs)
        return tensors

    # Keras makes variables outside the graph.
    with tf.variable_creator_scope(refuse):
        traced = serve.get_concrete_function(
            **{x: tf.TensorSpec(s.shape, s.dtype, x) for x, s in specs.items()}
        )
    calls = sorted(_HOST_OPS & ops_of(traced))
    if calls:
        raise ValueError(
            f"{fault} TensorFlow ops alone; got {calls}, which call Python where there "
            "will be none; write it without tf.numpy_function and tf.py_function"
        )
    return traced, structure


def ops_of(traced: Any) -> set[str]:
    """Returns the types of the operations in a concrete function and all it calls."""
    graph = traced.graph.as_graph_def()
    bodies = [graph.node, *(function.node_def for function in graph.library.function)]
    return {node.op for nodes in bodies for node in nodes}


def nested(traced: Any, inputs: Mapping[str, Any], outputs: Any) -> Any:
    """Returns an endpoint as a traced `tf.function` of one nest, as Keras calls layers.

    Args:
        traced: the endpoint as `trace` returned it.
        inputs: nests of specs by argument; of a single one the function takes that
            nest as well as the dictionary.
        outputs: nest like what the endpoint returns.

    Example:
        >>> inputs = {"x": (tf.TensorSpec([]), tf.TensorSpec([]))}
        >>> traced, outputs = trace("export", "sum", lambda x: sum(x), inputs)
        >>> serve = nested(traced, inputs, outputs)
        >>> serve((1.0, 2.0)).numpy(), serve({"x": (1.0, 2.0)}).numpy()
        (np.float32(3.0), np.float32(3.0))
    """
    names = [name for name, _ in output_leaves(outputs)]

    def serve(inputs: Any) -> Any:
        whole = isinstance(inputs, Mapping) and set(inputs) == set(specs)
        given = inputs if whole else dict.fromkeys(specs, inputs)
        leaves = [pair for key in specs for pair in named_leaves(given[key], key)]
        found = traced(**dict(leaves))
        return tf.nest.pack_sequence_as(outputs, [found[name] for name in names])

    specs = {
        key: tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), nest)
        for key, nest in inputs.items()
    }
    function = tf.function(serve, autograph=False)
    function.get_concrete_function(specs)
    for lone in specs.values() if len(specs) == 1 else ():
        if not (isinstance(lone, Mapping) and set(lone) == set(specs)):
            function.get_concrete_function(lone)
    return function


def _tensors(fault: str, outputs: Any) -> dict[str, tf.Tensor]:
    found: dict[str, tf.Tensor] = {}
    for name, leaf in output_leaves(outputs):
        if isinstance(leaf, tf.Variable | keras.Variable):
            leaf = tf.convert_to_tensor(leaf)
        if not isinstance(leaf, tf.Tensor) or not _is_numeric(leaf.dtype):
            raise TypeError(
                f"{fault} to return dense tensors of numbers; got "
                f"{type(leaf).__name__} as {name!r}; return the tensors it is made of"
            )
        if name in found:
            raise ValueError(
                f"{fault} to return distinct names when joined; got {name!r} twice"
            )
        found[name] = leaf
    return found


def save(
    where: str,
    functions: Mapping[str, Any],
    resources: list[Any],
    folder: pathlib.Path,
    serve: Any = None,
) -> None:
    """Writes concrete functions as a SavedModel with a signature for each.

    All variables that they use are saved with it.

    Args:
        where: name of the function, for messages.
        functions: by the names of the signatures.
        resources: what they use besides variables.
        folder: to create.
        serve: a `tf.function` of `nested`, the attribute of that name.

    Raises:
        ValueError: if a function uses something else that has a state.

    Example:
        >>> import tempfile
        >>> traced, _ = trace("export", "exp", tf.exp, {"x": tf.TensorSpec([None])})
        >>> folder = pathlib.Path(tempfile.mkdtemp(), "model")
        >>> save("export", {"exp": traced}, [], folder)
        >>> list(tf.saved_model.load(folder).signatures)
        ['exp']
    """
    module = tf.Module()
    variables = map(variables_of, functions.values())
    used = {id(x): x for x in itertools.chain.from_iterable(variables)}
    module.kept = list(used.values())
    module.resources = list(resources)
    if serve is not None:
        module.serve = serve
    try:
        tf.saved_model.save(module, str(folder), functions)
    except AssertionError as error:
        raise ValueError(
            f"`{where}`: `resources` expected all that endpoints use besides variables;"
            f" got {resources!r:.80}; add what holds it: {error}"
        ) from error
    settle(folder)


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
        # The nodes that have a function for their operation refer to its outputs.
        names = {
            x.signature.name: rename_nodes(x, outputs=x.signature.name not in ops)
            for x in functions
        }
        for node in meta.object_graph_def.nodes:
            if node.HasField("captured_tensor"):  # That a gradient reads.
                seen = node.captured_tensor
                found, place = seen.name.split(":")
                seen.name = f"{names[seen.concrete_function][found]}:{place}"
        _rename_functions(meta)
    path.write_bytes(model.SerializeToString(deterministic=True))
    (folder / "fingerprint.pb").unlink(missing_ok=True)


def rename_nodes(function: Any, *, outputs: bool = True) -> dict[str, str]:
    """Numbers what is named alike in a function of a graph in the order it comes in.

    Arguments with a name of their own keep it.

    Args:
        function: `FunctionDef`, changed in place.
        outputs: whether outputs are renamed, too.

    Returns:
        The new name of each argument and node.

    Example:
        >>> def make(name):
        ...     scaled = lambda x: tf.multiply(x, 2.0, name=name)
        ...     graph = tf.function(scaled).get_concrete_function(tf.TensorSpec([]))
        ...     definition = graph.function_def
        ...     _ = rename_nodes(definition)
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
    return names


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


def check_litert(where: str, name: str, traced: Any) -> None:
    """Raises if an endpoint keeps something between calls, or draws.

    Args:
        where: name of the function, for messages.
        name: of the endpoint.
        traced: its concrete function.

    Raises:
        ValueError: if it does.

    Example:
        >>> traced = tf.function(tf.exp).get_concrete_function(tf.TensorSpec([]))
        >>> check_litert("export", "exp", traced)
    """
    for what, pattern in _LITERT_LACKS.items():
        found = sorted(filter(pattern.search, ops_of(traced)))
        if found:
            raise ValueError(
                f"`{where}`: a .tflite file expected endpoints without state and "
                f"random numbers, which LiteRT cannot hold; got {name!r}, which "
                f"{what} ({', '.join(found)}); leave it out, or write a folder"
            )


def converted(where: str, folder: str | pathlib.Path, names: Iterable[str]) -> bytes:
    """Returns a SavedModel as a model of LiteRT.

    Args:
        where: name of the function, for messages.
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
        >>> converted("export", folder, ["exp"])[4:8]
        b'TFL3'
    """
    converter = tf.lite.TFLiteConverter.from_saved_model(
        str(folder), signature_keys=list(names)
    )
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    try:
        return converter.convert()
    except Exception as error:
        # The converter's own class of errors is not public, and of others it may be.
        text = str(error)
        lacking = sorted(set(re.findall(r"'tf\.(\w+)' op", text)))
        fault = f"with {', '.join(lacking)}" if lacking else f"({text:.300})"
        remedy = "write it otherwise, or as a folder"
        if kind := re.search(r"\btf\.\w+\(.*?[<x](b?f16|f64)>", text):
            fault += f" of {kind[1].replace('f', 'float')}"
            remedy = (
                "compute in float32 (layers by their dtype policy; export a policy by "
                "its endpoints, not by `to_keras`), or write a folder"
            )
        if any(op.startswith("TensorList") for op in lacking):
            remedy = "make its recurrent layers with `unroll=True`, or write a folder"
        raise ValueError(
            f"`{where}`: a .tflite file expected a model of LiteRT's own ops; got one "
            f"that it cannot convert, {fault}; {remedy}"
        ) from error
