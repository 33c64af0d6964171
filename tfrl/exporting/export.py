"""Policies and other components as models that need nothing but TensorFlow."""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import tensorflow as tf

from tfrl._internal import checks
from tfrl.exporting import (
    _beside,
    _contents,
    _golden,
    _litert,
    _verified,
    _written,
    policies,
)


def export_model(
    content: Any,
    path: str | os.PathLike[str],
    inputs: Any = None,
    *,
    examples: Mapping[str, Any] | None = None,
    tolerance: float = 1e-5,
    overwrite: bool = False,
) -> None:
    """Writes a component as a SavedModel, as a file of LiteRT or as one of Keras.

    A path without a suffix becomes a folder, a SavedModel with a signature for each
    endpoint of `content`:

    * a mapping from names to `Endpoint`s, or a single one, then `serving_default`;
    * a `DistributionSpec`: the endpoints of `distribution_endpoints`;
    * a built Keras layer or model, a normalizer of `tfrl.stats`, or any function or
      `tf.Module` that takes one nest, `inputs`: `serving_default`, outside training. Of
      a dictionary the keys are the names, others are `inputs`, or `inputs_0` and so on.

    The folder loads in a process that has neither tfrl nor Keras nor TensorFlow
    Probability: `model = tf.saved_model.load(path)`, then for example
    `model.signatures["serving_default"](inputs=...)`. Keep `model` alive while its
    signatures are in use. For `keras.layers.TFSMLayer(path, call_endpoint="serve")`
    there is the attribute `serve`: it is `serving_default`, or else the first endpoint,
    and takes one nest, that which `content` takes or a dictionary of its arguments.
    Functions that were made with `jit_compile=True` are saved as plain graphs, which
    run on any platform and for any batch size; what is made of ops that only XLA knows
    (`jax2tf`) stays so, and needs it.

    With the suffix `.keras` a Keras model is written as `keras.Model.save` does, to be
    loaded where its classes are; with `.tflite` any content for LiteRT, of its own ops
    alone, to be run by any interpreter of it: it knows neither random numbers by a seed
    nor variables that a call changes, and recurrent layers with `unroll=True` alone.

    What is exported twice, here or in another process, is the same to the byte. It is
    not if Keras gave layers or variables other names, as to a model that is built
    anew; if there are lookup tables, to which TensorFlow gives random names; or if
    libraries are of other versions.

    Before the model appears it is loaded again, called with `examples`, and compared
    with what `content` says; inputs and outputs stay in it for `verify`. It appears
    under its name in one step; a process that is killed leaves nothing there.

    Args:
        content: what to write.
        path: folder or file to create.
        inputs: nest of `tf.TensorSpec` that a layer, normalizer or function takes,
            None for what is free. Functional and Sequential models know theirs.
        examples: arrays by the names of the inputs, as of `Endpoint`; of a `.keras`
            file one nest, under the name `inputs`.
        tolerance: a float output may differ from x by `tolerance * max(1, |x|)`.
        overwrite: replace a model that is there, which stays until then.

    Raises:
        ValueError: if something exists at `path` and `overwrite` is False, or `path`
            has another suffix; if a layer is not built, inputs are not known, a
            function calls Python, LiteRT lacks an op, or the written model does
            something else than `content`; if called within a graph or a replica.
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
        prepared = _written.prepare_keras(where, content, inputs, examples)
    else:
        found = _contents.endpoints_of(where, content, inputs, examples)
        prepared = _written.prepare_endpoints(where, found, litert=suffix == ".tflite")
    _write(where, path, prepared, tolerance, overwrite)


def export_policy(
    agent: Any,
    path: str | os.PathLike[str],
    observation_space: gym.Space,
    action_space: gym.Space,
    *,
    with_mask: bool = False,
    overwrite: bool = False,
) -> None:
    """Writes a policy as a SavedModel, normalizers and bounds included.

    The signatures are those of `policy_endpoints`; all else is as of `export_model`.
    A `.tflite` file has `serving_default` alone, since LiteRT cannot draw by a seed.

    Args:
        agent: a policy of `tfrl.policies`, or an agent or `AgentModel` that has one.
        path: folder to create, or a file with the suffix `.tflite`.
        observation_space: of one environment.
        action_space: of one environment.
        with_mask: whether signatures take an `action_mask`; each row must allow
            something, which a graph does not check.
        overwrite: replace a model that is there.

    Raises:
        ValueError: if something exists at `path` and `overwrite` is False, or `path`
            has another suffix; if LiteRT lacks an op, a space is not that of the
            policy, an observation has a name that no input can take, or `with_mask`
            meets actions that are no choices.
        TypeError: if `agent` neither is nor has a policy, `path` is no path, a space is
            none, or a part of an observation is no array.

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
    policy, litert = _contents.policy_of(where, agent), suffix == ".tflite"
    found = policies.policy_endpoints(
        _litert.narrowed(policy) if litert else policy,
        observation_space,
        action_space,
        with_mask=with_mask,
    )
    if litert:
        found = {_contents.DEFAULT: found[_contents.DEFAULT]}
    prepared = _written.prepare_endpoints(where, found, litert=litert)
    _write(where, path, prepared, 1e-5, overwrite)


def verify(
    path: str | os.PathLike[str], tolerance: float | None = None
) -> dict[str, float]:
    """Calls an exported model with the inputs kept in it and compares the outputs.

    That tells whether this machine and its libraries compute what the model was made
    to compute, and whether its files are whole. The variables that a call changes are
    put back after it. What is verified is run: verify only what you would execute.

    Args:
        path: what `export_model` or `export_policy` wrote.
        tolerance: a float output may differ from x by `tolerance * max(1, |x|)`; None
            for that of the export. Integers must be equal.

    Returns:
        The largest difference of each endpoint.

    Raises:
        ValueError: if `path` was not written so, a file of it is damaged, or an output
            differs; the message names the endpoint and the difference.
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
    return _verified.check(where, pathlib.Path(path), tolerance)


def _check_path(where: str, path: Any) -> None:
    inside = "a graph" if tf.inside_function() else ""
    if tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context():
        inside = "a replica"
    if inside:
        raise ValueError(
            f"`{where}`: a call expected outside of functions and replicas; got one in "
            f"{inside}; call it after training"
        )
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            f"`{where}`: `path` expected a str or a path; got {path!r:.80}; say where"
        )


def _checked_suffix(
    where: str, path: str | os.PathLike[str], known: Sequence[str], overwrite: bool
) -> str:
    """The suffix of a file, which a version at the end of a folder's name is not."""
    _check_path(where, path)
    suffix = pathlib.Path(path).suffix
    if suffix not in known and suffix[1:2].isalpha():
        raise ValueError(
            f"`{where}`: `path` expected a folder without a suffix, or a file with one "
            f"of {list(known)}; got {os.fspath(path)!r}; nothing else is written"
        )
    if not overwrite:
        _beside.check_absent(where, path)
    return suffix


def _write(
    where: str,
    path: str | os.PathLike[str],
    prepared: _written.Prepared,
    tolerance: float,
    overwrite: bool,
) -> None:
    """Writes a model and what it said, verifies it, and lets it appear."""
    goldens, write = prepared
    with _beside.made_beside(where, path, overwrite=overwrite) as fresh:
        write(fresh)
        _golden.write(fresh, goldens, tolerance)
        _verified.check(where, fresh)
