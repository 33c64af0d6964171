"""Policies as SavedModels that need nothing but TensorFlow."""

import os
import pathlib
import tempfile
from typing import Any

import gymnasium as gym
import tensorflow as tf

from tfrl.agents import agent as agents
from tfrl.training import _durable


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
    dictionary. An observation that is one array is the input `observations`; the parts
    of a Dict are inputs under their own names.

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
        observation_space: of one environment; Box, Discrete, MultiBinary,
            MultiDiscrete, or a Dict of those.
        action_space: of one environment.
        overwrite: replace an existing folder.

    Raises:
        ValueError: if the folder exists and `overwrite` is False, or the observations
            are a nested or Tuple space, whose parts have no names, or have a part
            whose name no input can take.

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
    inputs = _input_specs(observation_space)
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
        inputs,
        tf.TensorSpec([None, *action_space.shape], policy.head.dtype, name="actions"),
        named=isinstance(observation_space, gym.spaces.Dict),
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".export-") as folder:
        fresh = pathlib.Path(folder) / "new"
        tf.saved_model.save(module, str(fresh), signatures)
        _durable.flush_to_disk(fresh, *fresh.rglob("*"))
        _swap(fresh, target, pathlib.Path(folder) / "old")
    _durable.flush_to_disk(target.parent)


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


def _input_specs(space: gym.Space) -> dict[str, tf.TensorSpec]:
    parts = space.spaces if isinstance(space, gym.spaces.Dict) else None
    named = {"observations": space} if parts is None else dict(parts)
    for name, part in named.items():
        if part.shape is None or isinstance(part, gym.spaces.Dict | gym.spaces.Tuple):
            raise ValueError(
                "`export_policy`: `observation_space` expected arrays, or a Dict of "
                f"arrays; got {part} at {name!r}; flatten the space by a wrapper"
            )
        if name in ("actions", "seed") or not name.isidentifier():
            raise ValueError(
                "`export_policy`: `observation_space` expected names that are Python "
                "identifiers, other than 'actions' and 'seed'; got "
                f"{name!r}; rename it by a wrapper"
            )
    return {
        name: tf.TensorSpec([None, *part.shape], part.dtype, name=name)
        for name, part in named.items()
    }


def _signatures(
    policy: Any,
    leaves: list[tf.Variable],
    inputs: dict[str, tf.TensorSpec],
    actions: tf.TensorSpec,
    named: bool,
) -> dict[str, Any]:
    head = policy.head
    seed = tf.TensorSpec([2], tf.int32, name="seed")

    def parameters(given: dict[str, tf.Tensor]) -> tf.Tensor:
        current = tf.nest.pack_sequence_as(
            policy, [leaf.read_value() for leaf in leaves]
        )
        observations = {name: given[name] for name in inputs}
        return current.parameters(
            observations if named else observations["observations"]
        )

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
