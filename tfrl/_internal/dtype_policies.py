"""Dtype policies of Keras, by which layers are made: set, found and widened."""

import contextlib
import contextvars
import types
from collections.abc import Collection, Iterator
from typing import Any

import keras
import tensorflow as tf

from tfrl._internal import checks

# Of Keras.
DEFAULT = "float32"
_asked: contextvars.ContextVar[bool] = contextvars.ContextVar("asked", default=False)
HALVES = ("float16", "bfloat16")
_EXPECTED = "a name of a dtype policy of Keras, such as 'mixed_bfloat16', or None"


def check(where: str, policy: Any) -> None:
    """Raises unless `dtype_policy` is the name of one that Keras knows, or None.

    Args:
        where: the asking function, for the message.
        policy: what it was given.

    Example:
        >>> check("train_rl", "mixed_bfloat16")
    """
    checks.check_type(where, "dtype_policy", policy, str | None, _EXPECTED)
    try:
        dtype = keras.dtype_policies.get(policy).compute_dtype
        if not tf.as_dtype(dtype).is_floating:
            raise ValueError(f"{dtype} is no floating dtype")
    except ValueError as error:
        raise ValueError(
            f"`{where}`: `dtype_policy` expected {_EXPECTED}; got {policy!r}"
        ) from error


@contextlib.contextmanager
def used(policy: Any) -> Iterator[None]:
    """Has Keras make layers by a dtype policy for the while.

    Args:
        policy: its name, or the policy; None leaves the one in force.

    Raises:
        ValueError: if Keras knows no such policy.

    Example:
        >>> with used("mixed_bfloat16"):
        ...     made = keras.layers.Dense(1)
        >>> made.compute_dtype, keras.config.dtype_policy().name
        ('bfloat16', 'float32')
    """
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(before if policy is None else policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


@contextlib.contextmanager
def asked(policy: str | None) -> Iterator[None]:
    """Does what `used` does, and tells that somebody asked for the policy.

    Args:
        policy: its name; None asks for nothing.

    Example:
        >>> with asked("float32"):
        ...     is_asked()
        True
    """
    token = _asked.set(policy is not None)
    try:
        with used(policy):
            yield
    finally:
        _asked.reset(token)


def is_asked() -> bool:
    """Whether the policy in force is one that somebody asked for.

    Keras' own, float32, may also be there because nobody did.

    Example:
        >>> is_asked()
        False
    """
    return _asked.get() or keras.config.dtype_policy().name != DEFAULT


def found(layer: keras.layers.Layer, dtypes: Collection[str] = HALVES) -> str | None:
    """Returns the name of a dtype policy of a layer, or of one in it.

    Args:
        layer: where to look.
        dtypes: that the policy is to compute in.

    Returns:
        The first; None if nothing computes in such a dtype.

    Example:
        >>> found(keras.layers.Dense(1, dtype="mixed_bfloat16"))
        'mixed_bfloat16'
    """
    parts = layer._flatten_layers()
    return next((x.dtype_policy.name for x in parts if x.compute_dtype in dtypes), None)


def unknown_objects(layer: keras.layers.Layer) -> dict[str, Any]:
    """Returns classes and activations in a layer that are not Keras' own, by name."""
    layers = layer._flatten_layers()
    found: list[Any] = [*map(type, layers)]
    given = [getattr(x, "activation", None) for x in layers]
    found += [x for x in given if isinstance(x, types.FunctionType)]
    return {x.__name__: x for x in found if not x.__module__.startswith("keras.")}


def quantized_layers(layer: keras.layers.Layer) -> list[str]:
    """Returns the names of the layers in one whose kernels are integers.

    Args:
        layer: a layer.

    Example:
        >>> quantized_layers(keras.layers.Dense(2))
        []
    """
    inner = layer._flatten_layers()
    return [x.name for x in inner if getattr(x, "quantization_mode", None)]


def widened(layer: keras.layers.Layer) -> keras.layers.Layer:
    """Returns a layer made anew of float32, where it computes in floats of 16 bits.

    Args:
        layer: a built layer, whose configuration describes all of it.

    Returns:
        A layer with weights of the same values.

    Raises:
        ValueError: if it cannot be made; Keras may raise others.

    Example:
        >>> layer = keras.layers.Dense(1, dtype="bfloat16")
        >>> layer.build((None, 2))
        >>> made = widened(layer)
        >>> made.compute_dtype, np.array_equal(made.kernel, layer.kernel)
        ('float32', True)
    """
    config = _in_float32(keras.saving.serialize_keras_object(layer))
    with used("float32"):
        made = keras.saving.deserialize_keras_object(
            config, unknown_objects(layer), safe_mode=False
        )
    for variable, known in zip(made.variables, layer.variables, strict=True):
        variable.assign(keras.ops.cast(known, variable.dtype))
    return made


def _in_float32(config: Any) -> Any:
    """The configuration of a layer with other dtype policies, however deep within."""
    if isinstance(config, list | tuple):
        return [_in_float32(part) for part in config]
    if not isinstance(config, dict):
        return config
    if config.get("class_name") == "DTypePolicy":
        policy = keras.dtype_policies.deserialize(config)
        if policy.compute_dtype in HALVES:
            return keras.dtype_policies.serialize(keras.DTypePolicy("float32"))
    return {key: _in_float32(part) for key, part in config.items()}
