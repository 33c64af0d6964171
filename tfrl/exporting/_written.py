"""Models prepared to be written: as a SavedModel, for LiteRT, or by Keras.

What checks, traces and asks for golden outputs touches no disk; it returns these, by
endpoint, and the function that writes the model to a path.
"""

import collections
import functools
import json
import pathlib
import re
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import keras

from tfrl.exporting import _contents, _golden, _litert, _traced, _verified, endpoints

Prepared = tuple[dict[str, Any], Callable[[pathlib.Path], None]]


def prepare_endpoints(
    where: str, found: Mapping[str, endpoints.Endpoint], *, litert: bool = False
) -> Prepared:
    """Prepares a model with a signature for each endpoint.

    Args:
        where: name of the function that exports.
        found: endpoints by name.
        litert: whether it is a `.tflite` file rather than a SavedModel.

    Returns:
        Golden inputs and outputs by endpoint, and what writes the model.

    Raises:
        ValueError: as `export_model`.
        TypeError: as `export_model`.

    Example:
        >>> import tempfile
        >>> vector = {"x": tf.TensorSpec([None])}
        >>> path = pathlib.Path(tempfile.mkdtemp(), "model")
        >>> exp = endpoints.Endpoint(tf.exp, vector)
        >>> goldens, write = prepare_endpoints("export", {"exp": exp})
        >>> write(path)
        >>> list(goldens), list(tf.saved_model.load(path).signatures)
        (['exp'], ['exp'])
    """
    functions, goldens, serve = {}, {}, None
    default = _contents.DEFAULT if _contents.DEFAULT in found else next(iter(found), "")
    for name, (function, inputs, examples, _) in found.items():
        traced, outputs = _traced.trace(where, name, function, inputs)
        if litert:
            _litert.check_endpoint(where, name, traced)
        elif name == default:
            serve = _traced.nested(traced, inputs, outputs)
        given = _golden.examples(where, _traced.input_specs(where, inputs), examples)
        variables = traced.variables
        goldens[name] = _golden.recorded(where, name, traced, given, variables)
        functions[name] = traced
    resources = [each for endpoint in found.values() for each in endpoint.resources]

    def write(path: pathlib.Path) -> None:
        if not litert:
            _traced.save(where, functions, resources, path, serve)
            return
        with tempfile.TemporaryDirectory(dir=path.parent) as made:
            folder = pathlib.Path(made, "model")
            _traced.save(where, functions, resources, folder)
            path.write_bytes(_litert.convert(where, folder, functions))

    return goldens, write


def prepare_keras(
    where: str, content: Any, inputs: Any, examples: Mapping[str, Any] | None
) -> Prepared:
    """Prepares a Keras model as a `.keras` file.

    Args:
        where: name of the function that exports.
        content: the model.
        inputs: as of `export_model`.
        examples: a nest of arrays under the name `inputs`.

    Returns:
        Golden inputs, a nest, and outputs, and what writes the model.

    Raises:
        ValueError: as `export_model`.
        TypeError: if `content` is no Keras model.

    Example:
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "model.keras")
        >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
        >>> goldens, write = prepare_keras("export", model, None, None)
        >>> write(path)
        >>> list(goldens), keras.models.load_model(path).output_shape
        (['call'], (None, 1))
    """
    if not isinstance(content, keras.Model):
        raise TypeError(
            f"`{where}`: `content` expected a Keras model for a `.keras` file; got "
            f"{content!r:.80}; wrap a layer in a keras.Sequential, or leave the suffix "
            "of `path` away for a SavedModel"
        )
    nest = {"inputs": _contents.layer_inputs(where, content, inputs)}
    if examples is not None:
        examples = dict(_traced.named_leaves(examples, ""))
    arrays = _golden.examples(where, _traced.input_specs(where, nest), examples)
    given, answer = _traced.packed(nest, arrays), _verified.layer_answer(content)
    golden = _golden.recorded(where, "call", answer, given, content.variables)
    return {"call": golden}, functools.partial(_write_keras, content)


def _write_keras(model: keras.Model, path: pathlib.Path) -> None:
    with warnings.catch_warnings():
        # Keras asks variables for arrays in the way of NumPy 1.
        warnings.filterwarnings("ignore", "__array__", DeprecationWarning)
        model.save(path)
    settle_archive(path)


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
                    target.write(_settled(source.read().decode()).encode())
                else:
                    shutil.copyfileobj(source, target)
    fresh.replace(path)


def _settled(text: str) -> str:
    """What Keras writes of a model without time and addresses of objects."""
    counts = collections.Counter(re.findall(r'"shared_object_id":\s*(\d+)', text))
    numbers: dict[int, int] = {}

    def settle(part: dict[str, Any]) -> dict[str, Any]:
        number = part.pop("shared_object_id", None)
        # Dtype policies are values: a model that was loaded shares them no more.
        if counts[str(number)] > 1 and part.get("class_name") != "DTypePolicy":
            part["shared_object_id"] = numbers.setdefault(number, len(numbers))
        return part

    config = json.loads(text, object_hook=settle)
    config.pop("date_saved", None)
    return json.dumps(config)
