"""Arguments of a call as plain data: kept in a file, made again, compared.

Data stay as they are (see `typed_json`). Everything else becomes a dictionary whose
one key that begins with "=" says what it stands for:

    {"=call": "tfrl.agents:PPO", "gamma": 0.99, ...}     an object
    {"=partial": "tfrl.environments.vector:make_vec", ...}   a function, its arguments
    {"=name": "my_environments:make"}                        a function or class
    {"=keras": ...}                                          a schedule or network
    {"=lost": "function <lambda> of __main__"}               what cannot be kept
    {"=lost": "an object of __main__.Own", "gamma": 0.99}    the same, to be compared

Arguments left to their defaults are kept too, so that a default that changes later
changes no run. Functions and classes are kept by the module they are imported from,
never by their code: making them again imports that module, and runs what is in it.
"""

import copy
import dataclasses
import enum
import functools
import hashlib
import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import keras
import numpy as np

from tfrl.configuring import gin_calls
from tfrl.saving import typed_json

_MARK = "="
_CALL, _PARTIAL, _NAME, _LOST = "=call", "=partial", "=name", "=lost"
_KERAS = "=keras"
_OF_KERAS = keras.optimizers.schedules.LearningRateSchedule, keras.layers.Layer
_DATA = (type(None), bool, int, float, str, bytes, np.ndarray, np.generic)
_ABSENT = object()
# The text of what only one of two values has.
NOTHING = "(nothing)"
_NESTED = (dict, list, tuple, np.ndarray)
# Packages of which Keras finds the classes wherever a run is opened.
_FOUND = {"keras", "tfrl"}


def kept(value: Any) -> Any:
    """Returns a value as data.

    Args:
        value: nest of plain values, of instances of dataclasses, Gymnasium spaces,
            functions and classes that can be imported, Keras networks, and partials. A
            function that gin configures is taken with what is bound to it now.

    Returns:
        Data that `typed_json` can write.
    """
    if isinstance(value, _DATA) and type(value).__module__ in ("builtins", "numpy"):
        return value
    if type(value) in (list, tuple):
        return type(value)(map(kept, value))
    if type(value) is dict and not any(_is_marked(key) for key in value):
        return {key: kept(item) for key, item in value.items()}
    if isinstance(value, functools.partial):
        return _kept_partial(value.func, value.args, value.keywords)
    if type(value) in _SPACES:
        space = f"gymnasium.spaces:{type(value).__name__}"
        return {_CALL: space, **_SPACES[type(value)](value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _kept_instance(value)
    if isinstance(value, _OF_KERAS):
        return _kept_of_keras(value)
    if isinstance(value, enum.Enum) and importable(type(value)):
        return {_NAME: f"{importable(type(value))}.{value.name}"}
    function, bindings = gin_calls.bound_call(value) or (value, {})
    if bindings:
        return _kept_partial(function, (), bindings)
    named = importable(function)
    return {_LOST: _described(value)} if named is None else {_NAME: named}


def _kept_instance(value: Any) -> Any:
    named = importable(type(value))
    mark = {_LOST: _described(value)} if named is None else {_CALL: named}
    fields = [field.name for field in dataclasses.fields(value) if field.init]
    return {**mark, **{name: kept(getattr(value, name)) for name in fields}}


def _kept_of_keras(value: Any) -> Any:
    """The configuration of a schedule or network, from which Keras makes it again."""
    if isinstance(value, keras.layers.Layer):
        return _kept_network(value)
    of_keras = type(value).__module__.partition(".")[0] == "keras"
    if not of_keras and importable(type(value)) is None:
        return {_LOST: _described(value)}
    return {_KERAS: json.dumps(keras.saving.serialize_keras_object(value))}


def _kept_network(network: keras.layers.Layer) -> Any:
    """The same for a network: names that Keras counted (`dense_7`) are counted anew.

    Of one that another process could not make a digest is kept: others have another.
    """
    kind = f"{type(network).__module__}.{type(network).__qualname__}"
    names: dict[str, str] = {}
    packages: set[str] = set()
    try:
        found = keras.saving.serialize_keras_object(network)
        _look(found, names, packages)
    except (NotImplementedError, TypeError, ValueError):
        found, packages = {"weights": [[*x.shape] for x in network.weights]}, {kind}
    found = _renamed(found, names)
    if packages <= _FOUND:
        return {_KERAS: found}
    text = json.dumps(found, sort_keys=True, default=lambda x: type(x).__name__)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {_LOST: f"an object of {kind}, digest {digest[:12]}"}


def _look(part: Any, names: dict[str, str], packages: set[str]) -> None:
    """Collects counted names, with what they become, and packages of classes."""
    if isinstance(part, list | tuple):
        for inner in part:
            _look(inner, names, packages)
    if not isinstance(part, dict):
        return
    if part.get("module"):
        packages.add(str(part["module"]).partition(".")[0])
    config = part.get("config")
    name = config.get("name") if isinstance(config, dict) else None
    if isinstance(name, str):
        base = re.sub(r"_\d+$", "", name)
        is_counted = base.replace("_", "") == str(part.get("class_name")).lower()
        if is_counted and name not in names:
            count = sum(re.sub(r"_\d+$", "", x) == base for x in names)
            names[name] = f"{base}_{count}" if count else base
    for inner in part.values():
        _look(inner, names, packages)


def _renamed(part: Any, names: dict[str, str]) -> Any:
    if isinstance(part, list | tuple):
        is_place = [type(x) for x in part] == [str, int, int]  # layer, node, output
        first = [names.get(part[0], part[0])] if is_place else []
        return [*first, *(_renamed(x, names) for x in part[len(first) :])]
    if not isinstance(part, dict):
        return part
    # What was built before it is put together gets other names for its weights.
    return {
        key: names.get(x, x)
        if key == "name" and isinstance(x, str)
        else _renamed(x, names)
        for key, x in part.items()
        if key != "build_config"
    }


def plain(value: Any, place: str) -> Iterator[tuple[str, bool | int | float | str]]:
    """Yields what people call hyper-parameters: plain values by their place.

    Args:
        value: data that `kept` returned.
        place: of it, "" for the outermost.
    """
    if isinstance(value, dict):
        for key, item in value.items():
            if not _is_marked(key):
                yield from plain(item, f"{place}.{key}" if place else str(key))
            elif isinstance(item, str):
                yield place, item.rpartition(":")[2]
    elif isinstance(value, bool | int | float | str):
        yield place, value
    elif isinstance(value, np.generic) and value.dtype.kind in "biuf":
        yield place, value.item()
    elif isinstance(value, list | tuple):
        yield place, f"{value!r:.80}"


def _is_marked(key: Any) -> bool:
    return isinstance(key, str) and key.startswith(_MARK)


def _kept_partial(function: Any, args: Any, keywords: Any) -> Any:
    function, bindings = gin_calls.bound_call(function) or (function, {})
    keywords = {**bindings, **keywords}
    named = importable(function)
    if named is None:
        return {_LOST: _described(function)}
    bound = inspect.signature(function).bind_partial(*args, **keywords)
    bound.apply_defaults()
    given: dict[str, Any] = {}
    for name, parameter in bound.signature.parameters.items():
        value = bound.arguments.get(name, inspect.Parameter.empty)
        if parameter.kind is parameter.VAR_KEYWORD:
            given.update(value)
        elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            if value not in ((), inspect.Parameter.empty):
                return {_LOST: f"{_described(function)} with arguments without names"}
        elif value is not inspect.Parameter.empty:
            given[name] = value
    return {_PARTIAL: named, **{name: kept(item) for name, item in given.items()}}


def _bounds(space: gym.spaces.Box) -> dict[str, Any]:
    """Low, high and shape: numbers where all are alike, as of pictures."""
    low, high = space.low, space.high
    if low.size and (low == low.flat[0]).all() and (high == high.flat[0]).all():
        low, high = low.flat[0].item(), high.flat[0].item()
        if isinstance(low, bool):  # which Gymnasium takes for no number
            low, high = int(low), int(high)
    return {"low": low, "high": high, "shape": tuple(space.shape)}


# Of each kind of space, the arguments that make it again.
_SPACES: dict[type, Callable[[Any], dict[str, Any]]] = {
    gym.spaces.Box: lambda x: {**_bounds(x), "dtype": x.dtype.name},
    gym.spaces.Discrete: lambda x: {"n": int(x.n), "start": int(x.start)},
    gym.spaces.MultiDiscrete: lambda x: {
        "nvec": x.nvec,
        "dtype": np.dtype(x.dtype).name,
        "start": x.start,
    },
    gym.spaces.MultiBinary: lambda x: {
        "n": x.n if isinstance(x.n, int) else tuple(map(int, x.n))
    },
    # A dictionary is sorted by some versions, pairs are not.
    gym.spaces.Dict: lambda x: {"spaces": [(k, kept(v)) for k, v in x.spaces.items()]},
    gym.spaces.Tuple: lambda x: {"spaces": tuple(map(kept, x.spaces))},
}


def importable(value: Any) -> str | None:
    """Returns "module:name" of what another process can import, else None.

    What a room of ours shows is named by the room, and likewise what a part of Keras
    does: its files may move.
    """
    module, name = (getattr(value, x, None) for x in ("__module__", "__qualname__"))
    if module in (None, "__main__") or module not in sys.modules or name is None:
        return None
    for place in dict.fromkeys((_room(module), _folder(module), module)):
        found: Any = sys.modules.get(place)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is not None and (found is value or inspect.unwrap(found) is value):
            return f"{place}:{name}"
    return None


def _room(module: str) -> str:
    """Returns the room of a module of ours or of Keras, any other module itself."""
    module = module.replace("keras.src.", "keras.", 1)
    is_in_one = module.startswith(("tfrl.", "keras."))
    return ".".join(module.split(".")[:2]) if is_in_one else module


def _folder(module: str) -> str:
    """Returns the folder of a module of ours or of Keras, which may be a door too."""
    if not module.startswith(("tfrl.", "keras.src.")):
        return module
    return module.rpartition(".")[0].replace("keras.src.", "keras.", 1)


def _described(value: Any) -> str:
    """Says what something is, in words that are the same in every process."""
    name = getattr(value, "__qualname__", None)
    if name is None:
        return f"an object of {type(value).__module__}.{type(value).__qualname__}"
    kind = "class" if isinstance(value, type) else "function"
    return f"{kind} {name} of {getattr(value, '__module__', None)}"


def lost(data: Any, name: str) -> dict[str, str]:
    """Returns what `kept` could not keep.

    Args:
        data: what it returned.
        name: how messages call the value.

    Returns:
        What it was, by its place.
    """
    return {path: what[_LOST] for path, what in _leaves(data, name) if _is_lost(what)}


def closed(data: Any, name: str) -> dict[str, str]:
    """Returns those of `lost` of which nothing tells what is inside."""
    places = [path for path, _ in _leaves(data, name)]
    return {
        path: what
        for path, what in lost(data, name).items()
        if not any(x.startswith(f"{path}.") for x in places) and "digest" not in what
    }


def unkept(what: str) -> dict[str, str]:
    """Returns what `kept` returns of what it cannot keep, described in words."""
    return {_LOST: what}


def _is_lost(data: Any) -> bool:
    return isinstance(data, dict) and _LOST in data


def made(data: Any) -> Any:
    """Makes again what `kept` was given.

    Args:
        data: what it returned, with nothing `lost`.

    Returns:
        An equal value.

    Raises:
        ValueError: if something cannot be imported or made.
    """
    if isinstance(data, list | tuple):
        return type(data)(map(made, data))
    if not isinstance(data, dict):
        return data
    marks = [key for key in data if _is_marked(key)]
    arguments = {key: made(item) for key, item in data.items() if key not in marks}
    if not marks:
        return arguments
    if marks == [_KERAS]:
        config = data[_KERAS]
        # Keras takes what it reads out of the dictionary.
        own = json.loads(config) if isinstance(config, str) else copy.deepcopy(config)
        try:
            return keras.saving.deserialize_keras_object(own)
        except TypeError as error:
            raise ValueError(
                "`open_run`: `directory` expected a run of classes that Keras can load "
                f"here; got one of {own['class_name']!r} that it cannot; import first "
                f"what registers its classes: {error}"
            ) from error
    target = _imported(data[marks[0]])
    if marks == [_NAME]:
        return target
    if marks == [_PARTIAL]:
        return functools.partial(target, **arguments)
    try:
        return target(*_positional(target, arguments), **arguments)
    except TypeError as error:
        raise ValueError(
            f"`open_run`: `directory` expected a run of this tfrl; got one for which "
            f"{data[marks[0]]} is to be called otherwise ({error}); use the versions "
            "that made it"
        ) from error


def _positional(target: Any, arguments: dict[str, Any]) -> Any:
    """Takes out those that a class, as `StepwiseLinearFunction`, takes one by one."""
    for name, parameter in inspect.signature(target).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            return arguments.pop(name, ())
    return ()


def _imported(named: str) -> Any:
    module, _, name = named.partition(":")
    try:
        try:
            found: Any = importlib.import_module(module)
        except ModuleNotFoundError:  # of another version, where the file lay elsewhere
            found = importlib.import_module(_room(module))
        for part in name.split(".") if name else ():
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"`open_run`: `directory` expected a run of what can be imported here; got "
            f"one that needs `{named}` ({error}); put the folder of that module on "
            "PYTHONPATH, or work in it"
        ) from error
    return found


def completed(data: Any) -> Any:
    """Adds arguments that have been given a default since, where that can be.

    Args:
        data: what `kept` returned, of this version or an earlier one.

    Returns:
        What it returns today.
    """
    try:
        return kept(made(data))
    except ValueError:
        return data


def differences(old: Any, new: Any, name: str = "") -> dict[str, tuple[str, str]]:
    """Compares two values as data.

    Args:
        old: what `kept` returned.
        new: likewise.
        name: how messages call the value.

    Returns:
        Texts of the old and the new value by place, where they differ.
    """
    before, after = dict(_leaves(old, name)), dict(_leaves(new, name))
    found, dark = {}, tuple(f"{place}." for place in closed(old, name))
    for place in {**before, **after}:
        if place not in before and place.startswith(dark):
            continue  # earlier versions kept nothing of it
        pair = before.get(place, _ABSENT), after.get(place, _ABSENT)
        if not _alike(*pair):
            found[place] = (_text(pair[0]), _text(pair[1]))
    return found


def _alike(one: Any, two: Any) -> bool:
    """Whether two leaves mean the same, as 1 and 1.0, or a list and a tuple, do."""
    if _text(one) == _text(two):
        return True
    if isinstance(one, list | tuple) and isinstance(two, list | tuple):
        return tuple(one) == tuple(two)
    numbers = int | float | np.generic
    return isinstance(one, numbers) and isinstance(two, numbers) and bool(one == two)


def _text(leaf: Any) -> str:
    if leaf is _ABSENT:
        return NOTHING
    if _is_lost(leaf):
        return str(leaf[_LOST])
    return typed_json.to_json(leaf) if isinstance(leaf, np.ndarray) else repr(leaf)


def _leaves(data: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yields what is no nest, by its place: `agent.gamma`, `make_envs.env_kwargs.g`."""
    if isinstance(data, dict) and data and data.keys() != {_LOST}:
        for key, item in data.items():
            item = {_LOST: item} if key == _LOST else item
            place = name if _is_marked(key) else f"{name}.{key}".lstrip(".")
            yield from _leaves(item, place)
    elif isinstance(data, list | tuple) and any(isinstance(x, _NESTED) for x in data):
        for index, item in enumerate(data):
            yield from _leaves(item, f"{name}[{index}]")
    else:
        yield name, data
