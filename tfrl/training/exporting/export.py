"""Policies and other components as models that need nothing but TensorFlow."""

import functools
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import tensorflow as tf

from tfrl.agents import agent as agents
from tfrl.core import checks, spaces
from tfrl.training.exporting import (
    _beside,
    _policy_parts,
    _traced,
    _verified,
    _written,
    endpoints,
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
    """Writes a component as a SavedModel, or a Keras model as one file.

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
    loaded where its classes are; with `.tflite` a Keras model or endpoints for LiteRT,
    of its own ops alone, to be run by any interpreter of it: it knows neither random
    numbers by a seed nor variables that a call changes, and recurrent layers with
    `unroll=True` alone.

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
    _check_place(where)
    checks.check_within(where, "tolerance", tolerance, 0, 1)
    suffix = _checked_suffix(where, path, (".keras", ".tflite"))
    if not overwrite:
        _beside.check_absent(where, path)
    writer = _written.WRITERS.get(suffix, _written.saved_model_writer)
    _place(where, path, writer(where, content, inputs, examples, tolerance), overwrite)


def export_policy(
    agent: agents.Agent,
    path: str | os.PathLike[str],
    observation_space: gym.Space,
    action_space: gym.Space,
    *,
    with_mask: bool = False,
    overwrite: bool = False,
) -> None:
    """Writes an agent's policy as a SavedModel, normalizers and bounds included.

    The signatures are those of `policy_endpoints`; all else is as of `export_model`.
    A `.tflite` file has `serving_default` alone, since LiteRT cannot draw by a seed.

    Args:
        agent: whose policy to write.
        path: folder to create, or a file with the suffix `.tflite`.
        observation_space: of one environment.
        action_space: of one environment.
        with_mask: whether signatures take an `action_mask`.
        overwrite: replace a model that is there.

    Raises:
        ValueError: if something exists at `path` and `overwrite` is False, or `path`
            has another suffix; if LiteRT lacks an op, a space is not that of the
            policy, an observation has a name that no input can take, or `with_mask`
            meets actions that are no choices.
        TypeError: if `agent` has no policy, `path` is no path, a space is none, or a
            part of an observation is no array.

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
    _check_place(where)
    suffix = _checked_suffix(where, path, (".tflite",))
    if not overwrite:
        _beside.check_absent(where, path)
    make = functools.partial(
        _policy_parts.endpoints_of,
        agent,
        observation_space,
        action_space,
        policy_inputs(observation_space),
        with_mask=with_mask,
    )
    if suffix == ".tflite":
        narrow, wide = (make(narrow=x)["serving_default"] for x in (True, False))
        writer = _written.litert_writer(where, narrow, wanted=wide)
    else:
        found = make()  # Graphs do not keep their variables.
        writer = _written.saved_model_writer(where, found)
    _place(where, path, writer, overwrite)


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
    _check_place(where)
    _check_path(where, path)
    if tolerance is not None:
        checks.check_within(where, "tolerance", tolerance, 0, 1)
    return _verified.check(where, pathlib.Path(path), tolerance)


def policy_inputs(observation_space: gym.Space) -> dict[str, tf.TensorSpec]:
    """Returns the named inputs that an exported policy takes as its observation.

    One array is `observations`. The parts of a Dict go by their own names, those of a
    Tuple by their numbers, joined by underscores where spaces are nested.

    Args:
        observation_space: of one environment; arrays, or Dicts and Tuples of them.

    Returns:
        Bounded specs `[None, *shape]` by name, in the order in which `tf.nest` flattens
        observations.

    Raises:
        ValueError: if a name is not a Python identifier, is `seed` or `actions`, or
            stands for two parts.
        TypeError: if it is no space, or a part is not an array.

    Example:
        >>> speed = gym.spaces.Box(-1.0, 1.0, (3,))
        >>> space = gym.spaces.Dict(eye=speed, body=gym.spaces.Tuple([speed, speed]))
        >>> list(policy_inputs(space))
        ['body_0', 'body_1', 'eye']
    """
    _policy_parts.check_space("policy_inputs", "observation_space", observation_space)
    inputs: dict[str, tf.TensorSpec] = {}
    structure = spaces.spec_from_space(observation_space)
    root = "" if isinstance(structure, dict) else "observations"
    for name, part in _traced.named_leaves(structure, root):
        if name in ("actions", "seed", *inputs) or not name.isidentifier():
            raise ValueError(
                "`policy_inputs`: `observation_space` expected names that are distinct "
                "Python identifiers, other than 'actions' and 'seed'; got "
                f"{name!r}; rename it by a wrapper"
            )
        inputs[name] = part.replace(shape=[None, *part.shape])
    return inputs


def policy_endpoints(
    agent: agents.Agent,
    observation_space: gym.Space,
    action_space: gym.Space,
    *,
    with_mask: bool = False,
) -> dict[str, endpoints.Endpoint]:
    """Returns endpoints for what an agent's policy does, for `export_model`.

    Every endpoint takes named tensors with a free batch axis B and returns a
    dictionary. The inputs for the observation are those of `policy_inputs`.

    * `serving_default`: the most probable `actions`.
    * `sample`: with `seed`, int32 `[2]`: drawn `actions` and their `log_probs`.
    * `log_prob`: with `actions` of the environment: their `log_probs`.
    * `initial_state`: with `batch_size`, int32: the `state` at the beginning of
      episodes, of a policy with a memory. The others take and return `state` then.

    Of action values the first is the best action, and the others explore as the policy
    does. A deterministic policy has no log-probabilities, and no `log_prob`. Actions
    that are a Dict or a Tuple are named as observations are: `actions_0`, and so on.

    Log-probabilities are those that the head gives to actions of the environment: of a
    normal draw that was clipped to the bounds, its density at the bound.
    With a mask they take `action_mask` too, bool `[B, n]`: which of the options are
    allowed, those of several choices one choice after the other. A row that allows none
    of the options of a choice counts as one where all are alike.

    Args:
        agent: whose policy; its weights are copied.
        observation_space: of one environment.
        action_space: of one environment.
        with_mask: whether to take an `action_mask`.

    Returns:
        The endpoints by name.

    Raises:
        ValueError: if a space is not that of the policy, an observation has a name that
            no input can take, or `with_mask` meets actions that are no choices.
        TypeError: if `agent` has no policy of `tfrl.policies`, or a part of an
            observation is no array.

    Example:
        >>> space, actions = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2)
        >>> agent = tfrl.agents.PPO().create(
        ...     space, actions, n_envs=1, n_steps=64, seed=0)
        >>> found = policy_endpoints(agent, space, actions, with_mask=True)
        >>> list(found["sample"].inputs)
        ['observations', 'action_mask', 'seed']
    """
    inputs = policy_inputs(observation_space)
    return _policy_parts.endpoints_of(
        agent, observation_space, action_space, inputs, with_mask=with_mask
    )


def value_endpoint(
    agent: agents.Agent, observation_space: gym.Space
) -> endpoints.Endpoint:
    """Returns the endpoint for what an agent expects of its observations.

    It takes the inputs of `policy_inputs` and returns their `values`, `[B]`.

    Args:
        agent: whose value function; its weights are copied.
        observation_space: of one environment.

    Returns:
        The endpoint.

    Raises:
        ValueError: if the space is not that of the policy, or an observation has a name
            that no input can take.
        TypeError: if `agent` has no policy that values states, or a part of an
            observation is no array.

    Example:
        >>> space, actions = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2)
        >>> agent = tfrl.agents.PPO().create(
        ...     space, actions, n_envs=1, n_steps=64, seed=0)
        >>> endpoint = value_endpoint(agent, space)
        >>> endpoint.function(observations=tf.zeros([5, 3]))["values"].shape
        TensorShape([5])
    """
    inputs = policy_inputs(observation_space)
    current = _policy_parts.reader(
        "value_endpoint", agent, observation_space, list(inputs)
    )
    _policy_parts.check_valuing("value_endpoint", agent)

    def value(**given: tf.Tensor) -> dict[str, tf.Tensor]:
        policy, observations = current(given)
        return {"values": policy.values(observations)}

    return endpoints.Endpoint(value, inputs)


def _check_place(where: str) -> None:
    inside = "a graph" if tf.inside_function() else ""
    if tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context():
        inside = "a replica"
    if inside:
        raise ValueError(
            f"`{where}`: a call expected outside of functions and replicas; got one in "
            f"{inside}; call it after training"
        )


def _check_path(where: str, path: Any) -> None:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            f"`{where}`: `path` expected a str or a path; got {path!r:.80}; say where"
        )


def _checked_suffix(
    where: str, path: str | os.PathLike[str], known: Sequence[str]
) -> str:
    """The suffix of a file, which a version at the end of a folder's name is not."""
    _check_path(where, path)
    suffix = pathlib.Path(path).suffix
    if suffix in known or not suffix[1:2].isalpha():
        return suffix
    raise ValueError(
        f"`{where}`: `path` expected a folder without a suffix, or a file with one of "
        f"{list(known)}; got {os.fspath(path)!r}; nothing else is written"
    )


def _place(
    where: str,
    path: str | os.PathLike[str],
    write: Callable[[pathlib.Path], None],
    overwrite: bool,
) -> None:
    with _beside.made_beside(where, path, overwrite=overwrite) as fresh:
        write(fresh)
        _verified.check(where, fresh)
