"""Components written as models: a SavedModel, a Keras file, a LiteRT file.

A writer checks, traces and asks for golden outputs; what it returns writes the model
and puts these into it.
"""

import functools
import pathlib
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl.distributions import spec
from tfrl.stats import normalizers
from tfrl.training.exporting import (
    _golden,
    _litert,
    _reproducible,
    _traced,
    _verified,
    endpoints,
)

_Writer = Callable[[pathlib.Path], None]
_DEFAULT = "serving_default"


def saved_model_writer(
    where: str,
    content: Any,
    inputs: Any = None,
    examples: Mapping[str, Any] | None = None,
    tolerance: float = 1e-5,
) -> _Writer:
    """Prepares a SavedModel with a signature for each endpoint of `content`.

    Args:
        where: name of the function that exports.
        content: as of `export_model`.
        inputs: as of `export_model`.
        examples: as of `export_model`.
        tolerance: as of `export_model`.

    Returns:
        A function that writes it to a path.

    Raises:
        ValueError: as `export_model`.
        TypeError: as `export_model`.

    Example:
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "model")
        >>> saved_model_writer("export", tf.exp, tf.TensorSpec([None]))(path)
        >>> _verified.check("verify", path)
        {'serving_default': 0.0}
    """
    functions, goldens, resources, serve = _prepared(where, content, inputs, examples)

    def write(path: pathlib.Path) -> None:
        xla_ops = _traced.save(where, functions, resources, path, serve)
        _golden.write(path, goldens, tolerance, xla_ops)

    return write


def keras_writer(
    where: str,
    content: Any,
    inputs: Any = None,
    examples: Mapping[str, Any] | None = None,
    tolerance: float = 1e-5,
) -> _Writer:
    """Prepares a Keras model as a `.keras` file.

    Args:
        where: name of the function that exports.
        content: the model.
        inputs: as of `export_model`.
        examples: a nest of arrays under the name `inputs`.
        tolerance: as of `export_model`.

    Returns:
        A function that writes it to a path.

    Raises:
        ValueError: as `export_model`.
        TypeError: if `content` is no Keras model.

    Example:
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "model.keras")
        >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
        >>> keras_writer("export", model)(path)
        >>> _verified.check("verify", path)
        {'call': 0.0}
    """
    _check_model(where, content)
    nest = layer_inputs(where, content, inputs)
    given = _nest_examples(where, nest, examples)
    answer = _verified.layer_answer(content)
    inputs_of = {"inputs": given}
    golden = _golden_of(where, "call", answer, inputs_of, content.variables)
    goldens = {"call": golden}

    def write(path: pathlib.Path) -> None:
        with warnings.catch_warnings():
            # Keras asks variables for arrays in the way of NumPy 1.
            warnings.filterwarnings("ignore", "__array__", DeprecationWarning)
            content.save(path)
        _reproducible.settle_archive(path)
        _golden.write(path, goldens, tolerance)

    return write


def litert_writer(
    where: str,
    content: Any,
    inputs: Any = None,
    examples: Mapping[str, Any] | None = None,
    tolerance: float = 1e-5,
    *,
    wanted: endpoints.Endpoint | None = None,
) -> _Writer:
    """Prepares a Keras model or endpoints as a `.tflite` file of LiteRT's own ops.

    Args:
        where: name of the function that exports.
        content: the model, an `Endpoint` or several by name.
        inputs: as of `export_model`.
        examples: arrays by the names of the inputs.
        tolerance: as of `export_model`.
        wanted: the endpoint that tells what a single one must answer; itself if None.

    Returns:
        A function that writes it to a path.

    Raises:
        ValueError: as `export_model`; if an endpoint draws or keeps a state; from the
            function, if LiteRT lacks an op.
        TypeError: if `content` is something else.

    Example:
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "model.tflite")
        >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
        >>> litert_writer("export", model)(path)
        >>> list(_verified.check("verify", path))
        ['serving_default']
    """
    if isinstance(content, Mapping | endpoints.Endpoint):
        functions, goldens, resources, _ = _prepared(where, content, inputs, examples)
        if wanted is not None:
            goldens = _prepared(where, wanted)[1]
        _litert.check_endpoints(where, functions)
        return functools.partial(
            _write_litert, where, functions, goldens, resources, tolerance
        )
    _check_model(where, content)
    nest = layer_inputs(where, content, inputs)
    names = dict(_traced.named_leaves(nest, _root(nest)))
    flat = _traced.input_specs(where, names)
    given = _golden.examples(where, flat, examples)

    def answer(**arrays: tf.Tensor) -> dict[str, Any]:
        leaves = [arrays[name] for name in flat]
        packed = tf.nest.pack_sequence_as(nest, leaves)
        return _verified.layer_answer(content)(packed)

    golden = _golden_of(where, _DEFAULT, answer, given, content.variables)
    goldens = {_DEFAULT: golden}
    _litert.check_endpoints(
        where, {_DEFAULT: _traced.trace(where, _DEFAULT, answer, flat)}
    )
    signature = tf.nest.pack_sequence_as(
        nest, [tf.TensorSpec(x.shape, x.dtype, name) for name, x in flat.items()]
    )

    def write(path: pathlib.Path) -> None:
        export = functools.partial(
            content.export,
            path,
            format="litert",
            verbose=False,
            input_signature=[signature],
            target_spec={"supported_ops": _litert.OWN_OPS},
        )
        _litert.converted(where, export)
        _golden.write(path, goldens, tolerance)

    return write


def _write_litert(
    where: str,
    functions: Mapping[str, Any],
    goldens: Mapping[str, Any],
    resources: list[Any],
    tolerance: float,
    path: pathlib.Path,
) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as made:
        folder = pathlib.Path(made, "model")
        _traced.save(where, functions, resources, folder)
        path.write_bytes(_litert.bytes_of(where, folder, functions))
    _golden.write(path, goldens, tolerance)


WRITERS = {".keras": keras_writer, ".tflite": litert_writer}


def layer_inputs(where: str, content: Any, inputs: Any) -> Any:
    """Returns the nest of specs that a layer or function is called with.

    Args:
        where: name of the function that exports.
        content: layer or function.
        inputs: nest of specs; None for those that a model knows itself.

    Returns:
        The nest of `tf.TensorSpec`.

    Raises:
        ValueError: if they are not known, or the layer is not built.

    Example:
        >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
        >>> layer_inputs("export", model, None).shape
        TensorShape([None, 3])
    """
    if isinstance(content, keras.layers.Layer) and not content.built:
        raise ValueError(
            f"`{where}`: `content` expected a built layer; got {content.name!r}, which "
            "has no weights yet; call it once, or its `build`"
        )
    if inputs is not None:
        return inputs
    # A `FitModel` is called as its network is.
    model = getattr(content, "network", content)
    if isinstance(model, keras.Sequential):
        inputs = model.inputs[0]
    elif isinstance(model, keras.Model) and getattr(model, "inputs", None):
        inputs = model.input
    else:
        raise ValueError(
            f"`{where}`: `inputs` expected the specs of what `content` is called with; "
            "got None; give for example tf.TensorSpec([None, 3])"
        )
    return tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), inputs)


def _root(nest: Any) -> str:
    return "" if isinstance(nest, Mapping) else "inputs"


def _check_model(where: str, content: Any) -> None:
    if not isinstance(content, keras.Model):
        raise TypeError(
            f"`{where}`: `content` expected a Keras model for a file, or endpoints for "
            f"`.tflite`; got {content!r:.80}; wrap a layer in a keras.Sequential, or "
            "leave the suffix of `path` away for a SavedModel"
        )


def _nest_examples(where: str, nest: Any, examples: Mapping[str, Any] | None) -> Any:
    flat = dict(_traced.named_leaves(nest, _root(nest)))
    given: Mapping[str, Any] | None = None
    if examples is not None:
        given = dict(_traced.named_leaves(examples.get("inputs", {}), _root(nest)))
    arrays = _golden.examples(where, _traced.input_specs(where, flat), given)
    return tf.nest.pack_sequence_as(nest, [arrays[name] for name in flat])


def _golden_of(
    where: str,
    name: str,
    answer: Callable[..., Any],
    given: Any,
    variables: Sequence[Any],
) -> dict[str, Any]:
    try:
        outputs = _golden.answers(answer, given, variables)
    except tf.errors.OpError as error:
        # The last lines of the message tell what happened, and in which node.
        lines = error.message.split("\t [[")[0].split("\n\n")
        raise ValueError(
            f"`{where}`: `examples` expected inputs that endpoint {name!r} can answer; "
            f"got {' '.join(lines[-1].split())[:300]}; give others, and look whether "
            "all weights are finite"
        ) from error
    for output, value in outputs.items():
        if value.size and np.all(value != value):
            raise ValueError(
                f"`{where}`: `examples` expected inputs to which endpoint {name!r} has "
                f"an answer; got NaN alone as {output!r}; give others"
            )
    return {"inputs": given, "outputs": outputs}


def _prepared(
    where: str,
    content: Any,
    inputs: Any = None,
    examples: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], dict[str, Any], list[Any], Any]:
    """Traced endpoints, what they say, their resources, and the default of a nest."""
    functions, goldens, serves = {}, {}, {}
    resources: list[Any] = []
    for name, endpoint in _endpoints_of(where, content, inputs, examples).items():
        traced, serves[name] = _traced_twice(where, name, endpoint)
        given = _golden.examples(
            where, _traced.input_specs(where, endpoint.inputs), endpoint.examples
        )
        goldens[name] = _golden_of(where, name, traced, given, traced.variables)
        functions[name] = traced
        resources.extend(endpoint.resources)
    serve = serves.get(_DEFAULT, next(iter(serves.values()), None))
    return functions, goldens, resources, serve


def _endpoints_of(
    where: str, content: Any, inputs: Any, examples: Mapping[str, Any] | None
) -> dict[str, endpoints.Endpoint]:
    if isinstance(content, endpoints.Endpoint):
        content = {_DEFAULT: content}
    elif isinstance(content, spec.DistributionSpec):
        content = endpoints.distribution_endpoints(content)
    if isinstance(content, Mapping):
        if inputs is not None or examples is not None:
            raise ValueError(
                f"`{where}`: `inputs` and `examples` expected None beside endpoints; "
                "got others; give them with each `Endpoint`"
            )
        for name, endpoint in content.items():
            if not (isinstance(name, str) and isinstance(endpoint, endpoints.Endpoint)):
                raise TypeError(
                    f"`{where}`: `content` expected an `Endpoint` for each name; got "
                    f"{endpoint!r:.80} for {name!r}; make one of it"
                )
        return dict(content)
    if not callable(content):
        raise TypeError(
            f"`{where}`: `content` expected endpoints, a DistributionSpec, a layer, a "
            f"normalizer or a function; got {content!r:.80}; wrap it in an `Endpoint`"
        )
    call: Callable[..., Any] = content
    if isinstance(content, keras.layers.Layer | normalizers.Normalizer):
        call = functools.partial(content, training=False)
    nest = layer_inputs(where, content, inputs)
    if isinstance(nest, Mapping):
        return {_DEFAULT: endpoints.Endpoint(lambda **x: call(x), nest, examples)}
    return {
        _DEFAULT: endpoints.Endpoint(
            lambda inputs: call(inputs), {"inputs": nest}, examples
        )
    }


def _traced_twice(
    where: str, name: str, endpoint: endpoints.Endpoint
) -> tuple[Any, Any]:
    """An endpoint as a concrete function of named tensors, and as one of a nest."""
    outputs: Any = None

    def called(**given: Any) -> Any:
        nonlocal outputs
        outputs = endpoint.function(**given)
        return outputs

    traced = _traced.trace(where, name, called, endpoint.inputs)
    structure = tf.nest.map_structure(lambda _: 0, outputs)
    return traced, _traced.nested(traced, endpoint.inputs, structure)
