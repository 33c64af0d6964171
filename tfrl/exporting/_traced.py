"""Endpoints as graphs of named tensors, and these as a SavedModel."""

import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

import keras
import tensorflow as tf

from tfrl.exporting import _saved_graph

# Ops that call Python: they are saved, and die when they are served.
_HOST_OPS = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}


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
    parts: Iterable[tuple[Any, Any]]
    if isinstance(nest, Mapping):
        parts = sorted(nest.items(), key=lambda pair: pair[0])
    elif isinstance(nest, tuple) and hasattr(nest, "_fields"):
        parts = zip(nest._fields, nest, strict=True)
    elif isinstance(nest, tuple | list):
        parts = enumerate(nest)
    else:
        yield name, nest
        return
    for key, part in parts:
        yield from named_leaves(part, f"{name}_{key}" if name else str(key))


def input_specs(where: str, inputs: Mapping[str, Any]) -> dict[str, tf.TensorSpec]:
    """Returns the specs of an endpoint's tensors by name, bounds kept.

    Args:
        where: name of the function that exports.
        inputs: nests of specs by argument.

    Raises:
        TypeError: if a leaf is no spec of numbers.
        ValueError: if a name is no identifier, or stands for two tensors.

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
                    f"tensor; got {spec!r:.80} for {name!r}; describe it by one"
                )
            if not name.isidentifier() or name in found:
                raise ValueError(
                    f"`{where}`: `inputs` expected names that are distinct Python "
                    f"identifiers when joined; got {name!r}; rename it"
                )
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
        where: name of the function that exports.
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
                f"{fault} to return distinct names when joined; got {name!r} twice; "
                "rename one"
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
        where: name of the function that exports.
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
    variables = map(_saved_graph.variables_of, functions.values())
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
    _saved_graph.settle(folder)
