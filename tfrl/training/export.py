"""Policies as SavedModels that need nothing but TensorFlow."""

import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import tensorflow as tf

from tfrl.agents import agent as agents
from tfrl.core import durable, spaces


def export_policy(
    agent: agents.Agent,
    path: str | os.PathLike[str],
    observation_space: gym.Space,
    action_space: gym.Space,
    *,
    overwrite: bool = False,
) -> None:
    """Writes an agent's policy as a SavedModel, normalizers and bounds included.

    Every signature takes named tensors with a free batch axis B and returns a
    dictionary. The inputs for the observation are those of `policy_inputs`.

    * `serving_default`: the most probable `actions`.
    * `sample`: with `seed`, int32 `[2]`: drawn `actions` and their `log_probs`.
    * `log_prob`: with `actions` of the environment: their `log_probs`.

    Log-probabilities are those that the head gives to actions of the environment: of a
    normal draw that was clipped to the bounds, its density at the bound.

    The model loads in a process that has neither tfrl nor Keras nor TensorFlow
    Probability: `model = tf.saved_model.load(path)`, then
    `model.signatures["serving_default"](observations=...)`. Keep `model` alive while
    its signatures are in use. The folder appears when it is complete; one that is
    replaced stays until then.

    Args:
        agent: whose policy to write.
        path: folder to create.
        observation_space: of one environment.
        action_space: of one environment.
        overwrite: replace an existing folder.

    Raises:
        ValueError: if the folder exists and `overwrite` is False, or an observation
            has a name that no input can take.

    Example:
        >>> import tempfile
        >>> space, actions = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2)
        >>> agent = tfrl.agents.PPO().create(
        ...     space, actions, n_envs=1, n_steps=64, n_updates=1, seed=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     export_policy(agent, folder + "/policy", space, actions)
        ...     model = tf.saved_model.load(folder + "/policy")
        ...     serve = model.signatures["serving_default"]
        ...     served = serve(observations=tf.zeros([5, 3]))
        >>> served["actions"].shape
        TensorShape([5])
    """
    target = pathlib.Path(path)
    if target.exists() and not overwrite:
        raise ValueError(
            f"`export_policy`: `path` expected a folder that does not exist; got "
            f"{str(target)!r}; choose another or pass overwrite=True"
        )
    policy_inputs(observation_space)
    module = tf.Module()
    # Optimizer state is not part of a policy.
    policy = agent.policy.without_optimizer()
    module.leaves = [
        tf.Variable(leaf, trainable=leaf.dtype.is_floating)
        for leaf in tf.nest.flatten(policy)
    ]
    signatures = _signatures(
        policy,
        module.leaves,
        observation_space,
        tf.TensorSpec([None, *action_space.shape], policy.head.dtype, name="actions"),
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".export-") as folder:
        fresh = pathlib.Path(folder) / "new"
        tf.saved_model.save(module, str(fresh), signatures)
        durable.flush_to_disk(fresh, *fresh.rglob("*"))
        _swap(fresh, target, pathlib.Path(folder) / "old")
    durable.flush_to_disk(target.parent)


def _swap(fresh: pathlib.Path, target: pathlib.Path, old: pathlib.Path) -> None:
    if not target.exists():
        os.rename(fresh, target)
        return
    os.rename(target, old)
    try:
        os.rename(fresh, target)
    except OSError:
        os.rename(old, target)
        raise


def policy_inputs(observation_space: gym.Space) -> dict[str, tf.TensorSpec]:
    """Returns the named inputs that an exported policy takes as its observation.

    One array is `observations`. The parts of a Dict go by their own names, those of a
    Tuple by their numbers, joined by underscores where spaces are nested.

    Args:
        observation_space: of one environment; arrays, or Dicts and Tuples of them.

    Returns:
        Specs `[None, *shape]` by name, in the order in which `tf.nest` flattens
        observations.

    Raises:
        ValueError: if a name is not a Python identifier, is `seed` or `actions`, or
            stands for two parts.
        TypeError: if a part is not an array.

    Example:
        >>> speed = gym.spaces.Box(-1.0, 1.0, (3,))
        >>> space = gym.spaces.Dict(eye=speed, body=gym.spaces.Tuple([speed, speed]))
        >>> list(policy_inputs(space))
        ['body_0', 'body_1', 'eye']
    """
    inputs: dict[str, tf.TensorSpec] = {}
    for name, spec in _named(spaces.spec_from_space(observation_space), ""):
        if name in ("actions", "seed", *inputs) or not name.isidentifier():
            raise ValueError(
                "`policy_inputs`: `observation_space` expected names that are distinct "
                "Python identifiers, other than 'actions' and 'seed'; got "
                f"{name!r}; rename it by a wrapper"
            )
        inputs[name] = tf.TensorSpec([None, *spec.shape], spec.dtype, name=name)
    return inputs


def _named(spec: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(spec, dict):
        for key in sorted(spec):
            yield from _named(spec[key], f"{name}_{key}" if name else str(key))
    elif isinstance(spec, tuple):
        for index, part in enumerate(spec):
            yield from _named(part, f"{name or 'observations'}_{index}")
    else:
        yield name or "observations", spec


def _signatures(
    policy: Any,
    leaves: list[tf.Variable],
    observation_space: gym.Space,
    actions: tf.TensorSpec,
) -> dict[str, Any]:
    head = policy.head
    inputs = policy_inputs(observation_space)
    structure = spaces.spec_from_space(observation_space)
    seed = tf.TensorSpec([2], tf.int32, name="seed")

    def parameters(given: dict[str, tf.Tensor]) -> tf.Tensor:
        current = tf.nest.pack_sequence_as(
            policy, [leaf.read_value() for leaf in leaves]
        )
        parts = [given[name] for name in inputs]
        return current.parameters(tf.nest.pack_sequence_as(structure, parts))

    @tf.function(autograph=False)
    def greedy(**given: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"actions": head.to_env(head.mode(parameters(given)))}

    @tf.function(autograph=False)
    def sample(**given: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = parameters(given)
        drawn = head.to_env(head.sample(outputs, given["seed"]))
        log_probs = head.log_prob(outputs, head.from_env(drawn))
        return {"actions": drawn, "log_probs": log_probs}

    @tf.function(autograph=False)
    def log_prob(**given: tf.Tensor) -> dict[str, tf.Tensor]:
        raw = head.from_env(given["actions"])
        return {"log_probs": head.log_prob(parameters(given), raw)}

    return {
        "serving_default": greedy.get_concrete_function(**inputs),
        "sample": sample.get_concrete_function(**inputs, seed=seed),
        "log_prob": log_prob.get_concrete_function(**inputs, actions=actions),
    }
