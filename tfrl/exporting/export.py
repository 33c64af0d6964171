"""Policies and other components as models that need nothing but TensorFlow."""

import collections
import functools
import importlib
import json
import os
import pathlib
import re
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import keras
import tensorflow as tf

from tfrl._internal import checks, plain_paths
from tfrl.exporting import _beside, _golden, _graphs, _served, endpoints, policies
from tfrl.stats import normalizers

_DEFAULT = "serving_default"
# Golden inputs and outputs by endpoint, and what writes the model to a path.
_Prepared = tuple[dict[str, Any], Callable[[pathlib.Path], None]]


def export_model(
    content: Any,
    path: str | os.PathLike[str],
    inputs: Any = None,
    *,
    examples: Mapping[str, Any] | None = None,
    tolerance: float = 1e-5,
    overwrite: bool = False,
) -> None:
    """Writes a component as a SavedModel, as a LiteRT file or as a Keras file.

    A path without a suffix becomes a folder, a SavedModel with a signature for each
    endpoint of `content`:

    * a mapping from names to `Endpoint`s, or a single one, then `serving_default`;
    * a `DistributionSpec`: the endpoints of `distribution_endpoints`;
    * a built Keras layer or model, a normalizer of `tfrl.stats`, or any function or
      `tf.Module` that takes one nest, `inputs`: `serving_default`, in inference mode.
      The keys of a dictionary are the names; other inputs are `inputs`, or `inputs_0`
      and so on.

    The folder loads in a process that has neither tfrl nor Keras nor TensorFlow
    Probability: `model = tf.saved_model.load(path)`, then for example
    `model.signatures["serving_default"](inputs=...)`. Keep `model` alive while its
    signatures are in use. For `keras.layers.TFSMLayer(path, call_endpoint="serve")`
    there is the attribute `serve`: it is `serving_default`, or else the first endpoint,
    and takes one nest: the one that `content` takes, or a dictionary of its arguments.
    Functions made with `jit_compile=True` are saved as plain graphs, which run on any
    platform and for any batch size; those made of ops that only XLA knows (`jax2tf`)
    still need XLA.

    With the suffix `.keras` a Keras model is written as `keras.Model.save` does, to be
    loaded where its classes are; with `.tflite` any content for LiteRT, from its
    built-in ops only, to be run by any LiteRT interpreter: it supports neither random
    numbers by a seed nor variables that a call changes, and recurrent layers only with
    `unroll=True`.

    TensorFlow itself loads no SavedModel from a path with `[` or a backslash; move it,
    or link to it.

    Two exports of the same content, here or in another process, are the same to the
    byte, unless Keras gave layers or variables other names, as in a rebuilt model;
    there are lookup tables, to which TensorFlow gives random names; or library versions
    differ.

    Before the model appears it is loaded again, called with `examples`, and compared
    with the outputs of `content`; inputs and outputs stay in it for `verify`. It
    appears under its name in one step; a killed process leaves nothing there.

    Args:
        content: what to write.
        path: folder or file to create.
        inputs: nest of `tf.TensorSpec` that a layer, normalizer or function takes, None
            for free sizes. Functional and Sequential models know theirs.
        examples: arrays by the names of the inputs, as in `Endpoint`; for a `.keras`
            file one nest, under the name `inputs`.
        tolerance: a float output may differ by `tolerance * max(1, |x|)`, where x is
            the largest number in its place of all rows.
        overwrite: replace an existing model, which stays until then.

    Raises:
        ValueError: if something exists at `path` and `overwrite` is False, or `path`
            has another suffix; if a layer is not built, inputs are not known, a
            function calls Python, LiteRT lacks an op, or the written model differs from
            `content`; if called within a graph or a replica.
        TypeError: if `content` is of another kind, `path` no path, or an output no
            tensor.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/value"
        >>> value = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
        >>> export_model(value, path)
        >>> model = tf.saved_model.load(path)
        >>> model.signatures["serving_default"](inputs=tf.zeros([5, 3]))
        {'output_0': <tf.Tensor: shape=(5, 1), ...>}
        >>> verify(path)
        {'serving_default': 0.0}
    """
    where = "export_model"
    suffix = _checked_suffix(where, path, (".keras", ".tflite"), overwrite)
    checks.check_within(where, "tolerance", tolerance, 0, 1)
    if suffix == ".keras":
        prepared = _prepare_keras(where, content, inputs, examples)
    else:
        found = _endpoints_of(where, content, inputs, examples)
        prepared = _prepare_endpoints(where, found, litert=suffix == ".tflite")
    _write(where, path, prepared, tolerance, overwrite)


def export_policy(
    agent: Any,
    path: str | os.PathLike[str],
    observation_space: gym.Space,
    action_space: gym.Space,
    *,
    with_mask: bool = False,
    tolerance: float = 1e-5,
    overwrite: bool = False,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Writes a policy as a SavedModel, normalizers and bounds included.

    The signatures are those of `policy_endpoints`; everything else is as in
    `export_model`. A `.tflite` file has only `serving_default`, since LiteRT cannot
    draw by a seed; for it a network of `bfloat16` or `float16` is made anew in float32,
    with the same weights.

    Args:
        agent: a policy of `tfrl.policies`, or an agent or `AgentModel` that has one.
        path: folder to create, or a file with the suffix `.tflite`.
        observation_space: of one environment.
        action_space: of one environment.
        with_mask: whether signatures take an `action_mask`; each row must allow an
            action, which a graph does not check.
        tolerance: as in `export_model`; for large weights, more may be needed.
        overwrite: replace an existing model.
        metadata: numbers and texts to be kept beside the classes and spaces, such as
            the name of a run and the step of a checkpoint.

    Raises:
        ValueError: if something exists at `path` and `overwrite` is False, or `path`
            has another suffix; if weights are not finite; if LiteRT lacks an op, a
            space is not that of the policy, an observation has a name that no input can
            have, or `with_mask` is set for actions that are not choices or observations
            that bring masks; if a `.tflite` file is to return actions of 16-bit floats.
        TypeError: if `agent` neither is nor has a policy, `path` is no path, a space is
            none, a part of an observation is no array, or `metadata` is another nest.

    Example:
        >>> import tempfile
        >>> space, actions = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2)
        >>> agent = tfrl.agents.PPO().create(
        ...     space, actions, n_envs=1, n_steps=64, seed=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     export_policy(agent, folder + "/policy", space, actions)
        ...     model = tf.saved_model.load(folder + "/policy")
        ...     serve = model.signatures["serving_default"]
        ...     served = serve(observations=tf.zeros([5, 3]))
        >>> served["actions"].shape
        TensorShape([5])
    """
    where = "export_policy"
    suffix = _checked_suffix(where, path, (".tflite",), overwrite)
    checks.check_within(where, "tolerance", tolerance, 0, 1)
    checks.check_type(where, "metadata", metadata, Mapping | None, "a dictionary")
    policy, litert = policies.policy_of(where, agent), suffix == ".tflite"
    about = {
        "agent": type(getattr(agent, "agent", agent)).__name__,
        "policy": type(policy).__name__,
        "observation_space": str(observation_space),
        "action_space": str(action_space),
        "metadata": dict(metadata or {}),
    }
    found = policies.policy_endpoints(
        policy, observation_space, action_space, with_mask=with_mask
    )
    if litert:
        _served.check_actions_of_litert(where, action_space)
        found = {_DEFAULT: found[_DEFAULT]}
    prepared = _prepare_endpoints(where, found, litert=litert)
    _write(where, path, prepared, tolerance, overwrite, about)


def verify(
    path: str | os.PathLike[str], tolerance: float | None = None
) -> dict[str, float]:
    """Calls an exported model with the inputs kept in it and compares the outputs.

    That shows whether this machine and its libraries compute what the model was made to
    compute, and whether its files are intact. Variables that a call changes are
    restored after it. Verifying runs the model: verify only what you would execute.

    Args:
        path: what `export_model` or `export_policy` wrote.
        tolerance: as in `export_model`; None for the export's own. Integers must be
            equal.

    Returns:
        The largest difference of each endpoint.

    Raises:
        ValueError: if `path` was not written by them, a file of it is damaged, or an
            output differs; the message names the endpoint and the difference.
        TypeError: if `path` is no path.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/exp"
        >>> export_model(tf.exp, path, tf.TensorSpec([None]))
        >>> verify(path)
        {'serving_default': 0.0}
    """
    where = "verify"
    _check_path(where, path)
    if tolerance is not None:
        checks.check_within(where, "tolerance", tolerance, 0, 1)
    folder, got = pathlib.Path(path), "nothing there"
    if (folder / "checkpoints").is_dir():
        got = "the folder of a run; export its policy before, by `tfrl export`"
    versions = sorted(folder.glob("*/assets.extra"))
    if versions and not (folder / "assets.extra").exists():
        got = f"a folder of models; give one, such as {str(versions[-1].parent)!r}"
    if got.startswith(("the", "a")) or not folder.exists():
        raise ValueError(
            f"`{where}`: `path` expected what `export_model` or `export_policy` wrote; "
            f"got {os.fspath(path)!r}, {got}"
        )
    return _golden.check(where, folder, tolerance)


def _check_path(where: str, path: Any) -> None:
    inside = "a graph" if tf.inside_function() else ""
    if tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context():
        inside = "a replica"
    if inside:
        raise ValueError(
            f"`{where}`: a call expected outside of functions and replicas; got one in "
            f"{inside}; call it after training"
        )
    checks.check_type(where, "path", path, str | os.PathLike, "a str or a path")


def _checked_suffix(
    where: str, path: str | os.PathLike[str], known: Sequence[str], overwrite: bool
) -> str:
    """The suffix of a file, which a version at the end of a folder's name is not."""
    _check_path(where, path)
    suffix = pathlib.Path(path).suffix
    if suffix not in known and suffix[1:2].isalpha():
        raise ValueError(
            f"`{where}`: `path` expected a folder without a suffix, or a file with one "
            f"of {list(known)}; got {os.fspath(path)!r}"
        )
    if not overwrite:
        _beside.check_absent(where, path)
    return suffix


def _write(
    where: str,
    path: str | os.PathLike[str],
    prepared: _Prepared,
    tolerance: float,
    overwrite: bool,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Writes a model and what it said, verifies it, and lets it appear."""
    goldens, write = prepared
    with _beside.made_beside(where, path, overwrite=overwrite) as fresh:
        write(fresh)
        _golden.write(fresh, goldens, tolerance, about)
        _golden.check(where, fresh)


def _endpoints_of(
    where: str, content: Any, inputs: Any, examples: Mapping[str, Any] | None
) -> dict[str, endpoints.Endpoint]:
    """Returns the endpoints of what is to be exported.

    Args:
        where: name of the function, for messages.
        content: as in `export_model`.
        inputs: as in `export_model`.
        examples: as in `export_model`.

    Raises:
        ValueError: if inputs are not known, or given beside endpoints.
        TypeError: if `content` is of another kind.

    Example:
        >>> list(_endpoints_of("export", tf.exp, tf.TensorSpec([None]), None))
        ['serving_default']
    """
    if isinstance(content, endpoints.Endpoint):
        content = {_DEFAULT: content}
    elif hasattr(content, "build_distribution"):
        # Loads TensorFlow Probability, which no policy needs.
        file = importlib.import_module("tfrl.exporting.of_distributions")
        content = file.distribution_endpoints(content)
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
                    f"{endpoint!r:.80} for {name!r}"
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
    nest = _layer_inputs(where, content, inputs)
    if isinstance(nest, Mapping):
        return {_DEFAULT: endpoints.Endpoint(lambda **x: call(x), nest, examples)}
    named = {"inputs": nest}
    return {_DEFAULT: endpoints.Endpoint(lambda inputs: call(inputs), named, examples)}


def _layer_inputs(where: str, content: Any, inputs: Any) -> Any:
    """Returns the nest of specs that a layer or function is called with.

    Args:
        where: name of the function, for messages.
        content: layer or function.
        inputs: nest of specs; None for those that a model knows itself.

    Raises:
        ValueError: if they are not known, or the layer is not built.

    Example:
        >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
        >>> _layer_inputs("export", model, None).shape
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


def _prepare_endpoints(
    where: str, found: Mapping[str, endpoints.Endpoint], *, litert: bool = False
) -> _Prepared:
    """Prepares a model with a signature for each endpoint.

    Args:
        where: name of the function, for messages.
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
        >>> goldens, write = _prepare_endpoints("export", {"exp": exp})
        >>> write(path)
        >>> list(goldens), list(tf.saved_model.load(path).signatures)
        (['exp'], ['exp'])
    """
    functions, goldens, serve = {}, {}, None
    default = _DEFAULT if _DEFAULT in found else next(iter(found), "")
    for name, (function, inputs, examples, _, for_litert) in found.items():
        if litert and for_litert is not None:
            function = for_litert(where)
        traced, outputs = _graphs.trace(where, name, function, inputs)
        if litert:
            _graphs.check_litert(where, name, traced)
        elif name == default:
            serve = _graphs.nested(traced, inputs, outputs)
        given = _golden.examples(where, _graphs.input_specs(where, inputs), examples)
        variables = traced.variables
        goldens[name] = _golden.recorded(where, name, traced, given, variables)
        functions[name] = traced
    resources = [each for endpoint in found.values() for each in endpoint.resources]

    def write(path: pathlib.Path) -> None:
        if not litert:
            _graphs.save(where, functions, resources, path, serve)
            return
        with tempfile.TemporaryDirectory(dir=path.parent) as made:
            folder = pathlib.Path(made, "model")
            _graphs.save(where, functions, resources, folder)
            with plain_paths.plain(folder) as plain:
                path.write_bytes(_graphs.converted(where, plain, functions))

    return goldens, write


def _prepare_keras(
    where: str, content: Any, inputs: Any, examples: Mapping[str, Any] | None
) -> _Prepared:
    """Prepares a Keras model as a `.keras` file.

    Args:
        where: name of the function, for messages.
        content: the model.
        inputs: as in `export_model`.
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
        >>> goldens, write = _prepare_keras("export", model, None, None)
        >>> write(path)
        >>> list(goldens), keras.models.load_model(path).output_shape
        (['call'], (None, 1))
    """
    wanted = "a Keras model for a `.keras` file, such as a keras.Sequential of a layer"
    checks.check_type(where, "content", content, keras.Model, wanted)
    nest = {"inputs": _layer_inputs(where, content, inputs)}
    if examples is not None:
        examples = dict(_graphs.named_leaves(examples, ""))
    inputs = _graphs.input_specs(where, nest, of_graph=False)
    arrays = _golden.examples(where, inputs, examples)
    given, answer = _graphs.packed(nest, arrays), _golden.layer_answer(content)
    golden = _golden.recorded(where, "call", answer, given, content.variables)
    return {"call": golden}, functools.partial(_write_keras, content)


def _write_keras(model: keras.Model, path: pathlib.Path) -> None:
    with warnings.catch_warnings():
        # Keras asks variables for arrays in the way of NumPy 1.
        warnings.filterwarnings("ignore", "__array__", DeprecationWarning)
        model.save(path)
    _settle_archive(path)


def _settle_archive(path: pathlib.Path) -> None:
    """Rewrites a `.keras` file without the time at which it was saved.

    Args:
        path: the file.

    Example:
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "model.keras")
        >>> keras.Sequential([keras.Input([3]), keras.layers.ReLU()]).save(path)
        >>> _settle_archive(path)
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
