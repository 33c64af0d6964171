"""What a `.keras` file of a model of `fit` keeps: parts, and an agent's `Recipe`."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import keras
import tensorflow as tf

from tfrl._internal import dtype_policies, named_arrays
from tfrl.agents import agent as agents
from tfrl.agents import gradient_transforms
from tfrl.saving import checkpoints, typed_json
from tfrl.training import _kept_arguments

_WHERE = "AgentModel"
# The only functions and classes that a file may name beside records and spaces.
_OPTIMIZERS = (
    *(gradient_transforms.adagrad, gradient_transforms.adam, gradient_transforms.adamw),
    *(gradient_transforms.lamb, gradient_transforms.lion, gradient_transforms.nadam),
    *(gradient_transforms.rmsprop, gradient_transforms.sgd),
    *(keras.optimizers.Adam, keras.optimizers.AdamW),
    *(keras.optimizers.RMSprop, keras.optimizers.SGD),
)
# Packages whose classes Keras finds by their module.
_KNOWN = ("keras", "keras_hub", "keras_cv", "keras_nlp")


def described_as(parts: Mapping[str, Any], where: str = "FitModel") -> dict[str, Any]:
    """Returns parts of a model in what JSON has.

    Args:
        parts: by the names of arguments.
        where: name of the model's class, for messages.

    Returns:
        What `keras.saving.deserialize_keras_object` takes.

    Raises:
        ValueError: if a function or class within would not be found by it.

    Example:
        >>> described_as({"reduction": "sum"})
        {'reduction': 'sum'}
    """
    for name, part in parts.items():
        each = part.values() if isinstance(part, Mapping) else [part]
        if any(getattr(x, "__name__", "") == "<lambda>" for x in each):
            _refuse_part(where, name, "a lambda")
    found: dict[str, Any] = keras.saving.serialize_keras_object(dict(parts))
    for name, config in found.items():
        _check_part(where, name, config)
    return found


def _check_part(where: str, name: str, config: Any) -> None:
    if isinstance(config, list | tuple):
        for part in config:
            _check_part(where, name, part)
    if not isinstance(config, dict):
        return
    kind = str(config.get("class_name"))
    if kind == "function":
        try:
            keras.saving.deserialize_keras_object(config)
        except (TypeError, ValueError):
            _refuse_part(where, name, f"the function {config['config']!r}")
    elif "registered_name" in config and not kind.startswith("__"):
        registered = config["registered_name"] or kind
        is_found = keras.saving.get_registered_object(registered) is not None
        if not is_found and str(config["module"]).partition(".")[0] not in _KNOWN:
            _refuse_part(where, name, f"{kind!r} of {config['module']}")
    for part in config.values():
        _check_part(where, name, part)


def _refuse_part(where: str, name: str, what: str) -> None:
    raise ValueError(
        f"`{where}`: `{name}` expected what can be loaded again, decorated by "
        f"keras.saving.register_keras_serializable, to be saved; got {what}, which is "
        "not; decorate it, save within keras.saving.custom_object_scope, or save "
        "weights alone"
    )


def updater_config(updater: Any, network: Any) -> dict[str, Any] | None:
    """Returns the arguments that make a target updater of a network again.

    Raises:
        ValueError: if it is of other models than the network.
    """
    if updater is None:
        return None
    own, given = map(tf.nest.flatten, (network, updater.models))
    if list(map(id, own)) != list(map(id, given)):
        raise ValueError(
            "`FitModel.get_config`: `target_updater` expected to be of the network, to "
            "be made again; got one of other models; save the weights alone"
        )
    return {
        "target_models": updater.target_models,
        "tau": updater.tau,
        "period": updater.period,
        "delayed_update": updater.delayed_update,
    }


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Hyper-parameters, spaces, the other arguments of `create`, and a dtype policy."""

    config: agents.AgentConfig
    observation_space: gym.Space
    action_space: gym.Space
    arguments: Mapping[str, Any]
    dtype_policy: Any = dataclasses.field(default_factory=keras.config.dtype_policy)

    def made(self) -> Any:
        """Returns a new agent."""
        arguments = dict(self.arguments)
        spaces = self.observation_space, self.action_space
        if isinstance(arguments.get("network"), keras.layers.Layer):
            arguments["network"] = as_from_a_file(arguments["network"])
        with dtype_policies.used(self.dtype_policy):
            return self.config.create(*spaces, **arguments)

    def check_envs(self, where: str, envs: Any) -> None:
        """Raises a ValueError unless the agent can play in a (vector) environment."""
        is_vector = hasattr(envs, "single_observation_space")
        name, what, front = (
            ("envs", "environments", "single_")
            if is_vector
            else ("env", "an environment", "")
        )
        given = [getattr(envs, f"{front}{x}_space") for x in ("observation", "action")]
        shapes = _shapes(self.observation_space), self.action_space
        if (_shapes(given[0]), given[1]) != shapes:
            raise ValueError(
                f"`{where}`: `{name}` expected {what} of the agent's spaces, "
                f"{self.observation_space} and {self.action_space}; got {given[0]} and "
                f"{given[1]}"
            )

    def described(self, agent: Any) -> dict[str, Any]:
        """Returns it in what JSON has.

        Args:
            agent: that has to come of it.

        Raises:
            ValueError: if a class could not be found again, or another agent comes.
        """
        given = dict(self.arguments)
        network = described_as({"network": given.pop("network", None)}, _WHERE)
        parts = {
            "config": self.config,
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "arguments": given,
        }
        kept = {name: _kept_arguments.kept(part) for name, part in parts.items()}
        for place, what in _kept_arguments.lost(kept, "").items():
            _refuse(place, what)
        for what in _marked(kept, "=name", "=partial"):
            if _kept_arguments.made({"=name": what}) not in _OPTIMIZERS:
                named = f"{what}, and of functions a file may name optimizers alone"
                _refuse("config", named, cure="")
        policy = keras.dtype_policies.serialize(self.dtype_policy)
        found = {"kept": typed_json.to_json(kept), "dtype_policy": policy, **network}
        again = understood(found).made()
        one, other = map(named_arrays.name_arrays, (agent, again))
        other = checkpoints.named_as_saved(other, one, again)
        mine, theirs = map(named_arrays.describe_arrays, (one, other))
        if mine != theirs:
            differences = named_arrays.array_differences(mine, theirs)
            _refuse("network", f"what makes another agent ({differences})")
        return found


def _shapes(space: gym.Space) -> Any:
    """Nest of the shapes of what a space holds: bounds and dtypes may differ."""
    if isinstance(space, gym.spaces.Dict):
        return {name: _shapes(part) for name, part in space.items()}
    if isinstance(space, gym.spaces.Tuple):
        return [*map(_shapes, space)]
    return space.shape


def understood(data: Mapping[str, Any], custom_objects: Any = None) -> Recipe:
    """Returns what `described` wrote down."""
    kept = typed_json.from_json(data["kept"])
    for named in _marked(kept, "=call", "=name", "=partial"):
        kind = _kept_arguments.made({"=name": named})
        is_record = isinstance(kind, type) and (
            dataclasses.is_dataclass(kind) or issubclass(kind, gym.Space)
        )
        if not (is_record or kind in _OPTIMIZERS):
            raise ValueError(
                "`AgentModel`: a file expected of records, spaces, optimizers alone; "
                f"got {named!r}; load nothing that others changed"
            )
    parts = {name: _kept_arguments.made(part) for name, part in kept.items()}
    arguments = parts.pop("arguments")
    # Keras takes what it reads out of the dictionary.
    network = keras.saving.deserialize_keras_object(
        copy.deepcopy(data["network"]), custom_objects=custom_objects
    )
    if network is not None:
        arguments["network"] = network
    # Files of old have none: that of Keras then.
    policy = keras.dtype_policies.get(copy.deepcopy(data.get("dtype_policy")))
    return Recipe(arguments=arguments, dtype_policy=policy, **parts)


def as_from_a_file(network: keras.layers.Layer) -> keras.layers.Layer:
    """Returns a network like one of a file, where names of weights may be others.

    One that cannot be made again stays as it is; saving it is refused.
    """
    try:
        config = described_as({"network": network}, _WHERE)
        again = keras.saving.deserialize_keras_object(config["network"])
        again.set_weights(network.get_weights())
    except (NotImplementedError, TypeError, ValueError):
        return network
    return again


def _marked(data: Any, *marks: str) -> list[str]:
    """Returns what is named by marks of `_kept_arguments`, anywhere within."""
    if isinstance(data, list | tuple):
        return [x for part in data for x in _marked(part, *marks)]
    if not isinstance(data, dict):
        return []
    own = [value for key, value in data.items() if key in marks]
    return own + [x for part in data.values() for x in _marked(part, *marks)]


def _refuse(
    place: str, what: str, cure: str = "define it in a module that can be imported, or "
) -> None:
    raise ValueError(
        f"`AgentModel`: `{place.lstrip('.')}` expected what can be made again from a "
        f"file; got {what}; {cure}save the weights alone"
    )
