"""How `AsKeras` checks and runs layers of other libraries, their keys and config."""

import builtins
import contextlib
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl.core import shapes
from tfrl.layers import _configs

_PHILOX = 1
_REMEDIES = {
    "keras": "it is a Keras layer already: use it as it is",
    "flax": "pass `tfrl.layers.from_flax(layer)`, or `from_nnx` for an nnx.Module",
    "haiku": "pass `tfrl.layers.from_haiku(layer)`",
    "sonnet": "pass `tfrl.layers.ModuleLayer(layer)`",
    "tensorflow": "pass `tfrl.layers.ModuleLayer(layer)`",
    "torch": (
        "torch computes outside TensorFlow, without its gradients, graphs and exports: "
        "build the network of Keras layers and set their weights from "
        "`layer.state_dict()`, or convert it to a function of JAX for "
        "`tfrl.layers.from_jax`"
    ),
}


def runners_of(given: Any) -> dict[bool, "Runner"]:
    """Returns the layer to be run for each value of Keras' `training`."""
    if not _is_factory(given):
        return dict.fromkeys((False, True), Runner(given))
    signature = inspect.signature(given)
    flag = {"training": True} if "training" in signature.parameters else {}
    try:
        signature.bind(**flag)
    except TypeError as error:
        raise TypeError(
            "`AsKeras`: `layer` expected a layer, or a factory without arguments but "
            f"`training`; got a function of {signature}; pass "
            "`tfrl.layers.FunctionLayer(init, apply)`, or use `keras.layers.Lambda`"
        ) from error
    if not flag:
        return dict.fromkeys((False, True), Runner(given()))
    return {flag: Runner(given(training=flag)) for flag in (False, True)}


def check_structure(what: str, expected: Any, got: Any) -> None:
    """Raises unless two nests of tensors have one structure and fitting shapes."""
    try:
        tf.nest.assert_same_structure(expected, got)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`AsKeras`: `layer` expected {what} of structure like the first: {error}"
        ) from error
    pairs = zip(tf.nest.flatten(expected), tf.nest.flatten(got), strict=True)
    for one, two in pairs:
        if one is not None and not two.shape.is_compatible_with(one.shape):
            raise ValueError(
                f"`AsKeras`: `layer` expected {what} of shape {one.shape}; "
                f"got {two.shape}"
            )


def check_dtype(name: str, dtype: Any) -> None:
    kind = tf.as_dtype(dtype)
    if not (kind.is_floating or kind.is_integer or kind.is_bool or kind.is_complex):
        raise TypeError(
            f"`AsKeras`: `{name}` expected arrays of numbers or bools; "
            f"got dtype {kind.name}"
        )


def check_batch(batch_size: int | None, shape: Any) -> None:
    """Raises unless a shape is of the only batch size, if there is one."""
    sizes = (None, batch_size)
    if batch_size is not None and len(shape) and shape[0] not in sizes:
        raise ValueError(
            f"`AsKeras`: `inputs` expected a batch of {batch_size}, "
            f"`batch_size`; got shape {tuple(shape)}"
        )


def of_batch(batch_size: int | None, tensor: tf.Tensor) -> tf.Tensor:
    """Returns a tensor whose batch is known to be of the only size."""
    if batch_size is None or tensor.shape.rank == 0:
        return tensor
    check_batch(batch_size, tensor.shape)
    # The name comes with TensorFlow's message, if it is of another size.
    return tf.ensure_shape(
        tensor,
        [batch_size, *tensor.shape[1:]],
        name=f"AsKeras_expects_batch_size_{batch_size}",
    )


@contextlib.contextmanager
def blaming_shapes(built_for: Any, inputs: Any) -> Iterator[None]:
    """Turns errors into ValueErrors where inputs are not as the layer was built for."""
    try:
        yield
    except Exception as error:
        pairs = zip(*map(tf.nest.flatten, (built_for, inputs)), strict=False)
        wrong = [
            f"{x.shape} where it was built for {tuple(known.shape)}"
            for known, x in pairs
            if not x.shape[1:].is_compatible_with(tf.TensorShape(known.shape)[1:])
        ]
        if not wrong:
            raise
        raise ValueError(
            f"`AsKeras`: `inputs` have shape {', '.join(wrong)}: {error}"
        ) from error


def as_key(name: str, key: Any) -> np.ndarray:
    """Returns a key as integers; an int, and None for 0, become a scalar int64."""
    if key is None or isinstance(key, int) and not isinstance(key, bool):
        # The same 64 bits, whatever the sign.
        return np.array((key or 0) % 2**64, np.uint64).view(np.int64)
    kind = getattr(key, "dtype", None)
    array = None if kind is None else _as_array(key)
    if array is None or array.dtype.kind not in "iu":
        got = type(key).__name__ if kind is None else f"dtype {kind}"
        raise TypeError(
            f"`AsKeras`: `{name}` expected an int or an array of integers; got {got}; "
            "of a typed key of JAX take jax.random.key_data"
        )
    return array


def next_key(key: tf.Tensor) -> tf.Tensor:
    """Returns the key that follows one of 64 bits."""
    return tf.reshape(_children(key, 1), key.shape)


def key_of_replica(key: tf.Tensor) -> tf.Tensor:
    """Returns a key of this replica's own, where there are several."""
    context = tf.distribute.get_replica_context()
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if context is None or replicas == 1:
        return key
    # The first child is the key of the next call.
    return _children(key, 1 + replicas)[1 + context.replica_id_in_sync_group]


def split_dtype(dtype: Any) -> tuple[Any, str | None]:
    """Dtype policy of the layer, and dtype of inputs that are no floats."""
    try:
        kind = tf.as_dtype(dtype)
    except TypeError:
        return dtype, None
    if kind.is_integer or kind.is_bool:
        return None, kind.name
    if not kind.is_floating:
        raise ValueError(
            "`AsKeras`: `dtype` expected a dtype of numbers or a dtype policy; "
            f"got {kind.name}"
        )
    return kind.name, None


def encoded(signature: Any) -> dict[str, Any]:
    """A signature in what JSON has; lists and tuples stay what they are."""
    return _configs.encoded(
        signature, lambda leaf: {"array": [list(leaf.shape), leaf.dtype.name]}
    )


def decoded(config: dict[str, Any]) -> Any:
    """The signature that `encoded` was given."""
    return _configs.decoded(config, lambda content: shapes.ShapeDtype(*content))


def flags(name: str | None, value: bool) -> dict[str, bool]:
    """The argument of a module that is whether it trains, if it has one."""
    return {} if name is None else {name: value}


def symbolic(signature: Any) -> Any:
    """Keras tensors of a signature."""
    return tf.nest.map_structure(
        lambda leaf: keras.KerasTensor(leaf.shape, tf.as_dtype(leaf.dtype).name),
        signature,
    )


def name_of(argument: str, function: Any) -> Any:
    """The name that a function or class is registered by, or what a layer says."""
    if hasattr(function, "get_config") and not inspect.isclass(function):
        return keras.saving.serialize_keras_object(function)
    if inspect.isclass(function) or inspect.isfunction(function):
        name = keras.saving.get_registered_name(function)
        # A module that is run again registers another function by the name.
        if keras.saving.get_registered_object(name) is not None:
            return name
    raise ValueError(
        f"`AsKeras`: `{argument}` expected a function decorated by "
        "keras.saving.register_keras_serializable, to save it by name; "
        f"got {function!r}; pass a registered factory of the layer"
    )


def found(argument: str, name: Any) -> Any:
    if isinstance(name, dict):
        return keras.saving.deserialize_keras_object(name)
    function = name and keras.saving.get_registered_object(name)
    if name and function is None:
        raise ValueError(
            f"`AsKeras`: `{argument}` expected a registered function; got {name!r}, "
            "which is not; import the module that registers it"
        )
    return function


class Runner:
    """Runs one layer of the protocol."""

    def __init__(self, layer: Any) -> None:
        libraries = _libraries(layer)
        missing = [
            name
            for name in ("init", "pure_fn")
            if not callable(getattr(layer, name, None))
        ]
        if missing:
            members = " and ".join(f"`{name}`" for name in missing)
            known = next((_REMEDIES[x] for x in libraries if x in _REMEDIES), None)
            raise TypeError(
                "`AsKeras`: `layer` expected `init(signature, rng)` and `pure_fn(x, "
                f"weights, state, rng)`; got {type(layer).__name__} without {members}; "
                f"{known or 'add them, or pass a factory of such a layer'}"
            )
        self._layer = layer
        self._is_trax = "trax" in libraries
        self._takes_training = _takes(layer.pure_fn, "training")

    def stored(self) -> tuple[Any, Any]:
        """Weights and state that the layer came with, `()` where it has none."""
        return getattr(self._layer, "weights", ()), getattr(self._layer, "state", ())

    def init(self, signature: Any, key: Any) -> tuple[Any, Any]:
        """Weights and state for inputs of a signature."""
        if self._is_trax:  # It knows the class of TensorFlow, not ours.
            signature = tf.nest.map_structure(
                lambda leaf: tf.TensorSpec(*leaf.as_tuple()), signature
            )
        with tf.init_scope():
            result = self._run("init", signature, tf.convert_to_tensor(key))
        return _pair("init", "weights, state", result)

    def call(
        self, x: Any, weights: Any, state: Any, rng: tf.Tensor, training: bool
    ) -> tuple[Any, Any]:
        """Outputs and new state."""
        options = {"training": training} if self._takes_training else {}
        result = self._run("pure_fn", x, weights, state, rng, **options)
        return _pair("pure_fn", "outputs, new_state", result)

    def next_key(self, key: tf.Tensor) -> tf.Tensor:
        """The key that follows, where the user says nothing else."""
        if not self._is_trax:
            return next_key(key)
        with self._surroundings():
            return sys.modules["trax.fastmath"].random.split(key, 1)[0]

    def _surroundings(self) -> contextlib.AbstractContextManager[Any]:
        if not self._is_trax:
            return contextlib.nullcontext()
        return sys.modules["trax.fastmath"].use_backend("tensorflow-numpy")

    def _run(self, member: str, *args: Any, **options: Any) -> Any:
        # Autograph would rewrite what is not ours, and slowly.
        function = tf.autograph.experimental.do_not_convert(
            getattr(self._layer, member)
        )
        try:
            with self._surroundings():
                return function(*args, **options)
        except Exception as error:
            kind = type(error)
            hint = _hint_of_unknown_batch(args[0])
            if kind is getattr(builtins, kind.__name__, None) and not hint:
                raise
            # Keras makes errors anew of their message; others take more than that.
            raise RuntimeError(
                f"`AsKeras`: `layer.{member}` of {type(self._layer).__name__} raised "
                f"{kind.__name__}: {error}{hint}"
            ) from error


def _is_factory(given: Any) -> bool:
    if isinstance(given, type):
        return True
    if hasattr(given, "init") or hasattr(given, "pure_fn"):
        return False
    return callable(given) and not set(_libraries(given)) & set(_REMEDIES)


def _libraries(layer: Any) -> list[str]:
    return [cls.__module__.partition(".")[0] for cls in type(layer).__mro__]


def _takes(function: Any, name: str) -> bool:
    try:
        return name in inspect.signature(function).parameters
    except ValueError:  # Written in C.
        return False


def _hint_of_unknown_batch(inputs: Any) -> str:
    for leaf in tf.nest.flatten(inputs):
        shape = tf.TensorShape(leaf.shape)
        if shape.rank is None or shape[:1] == [None]:
            return (
                f"; `inputs` have shape {shape} here: "
                "pass `batch_size` to a layer that must know it"
            )
    return ""


def _pair(member: str, names: str, result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise TypeError(
            f"`AsKeras`: `layer.{member}` expected to return ({names}); "
            f"got {type(result).__name__}; return `()` for what there is none of"
        )
    return result[0], result[1]


def _children(key: tf.Tensor, count: int) -> tf.Tensor:
    """Keys that are drawn from one, `[count, *key.shape]`."""
    if key.shape.num_elements() * key.dtype.size != 8:
        raise ValueError(
            "`AsKeras`: `rng` expected 64 bits, a scalar int64 or two int32; got "
            f"shape {key.shape.as_list()}, {key.dtype.name}; pass `rng_updater`, and "
            "fold in the replica where there are several"
        )
    # One kernel: the key of every call is made while a model trains. TensorFlow's own
    # draws from a seed scramble it first, so that these bits are in none of them.
    children = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[count],
        key=tf.reshape(tf.bitcast(key, tf.uint64), [1]),
        counter=np.zeros([2], np.uint64),
        alg=_PHILOX,
        dtype=tf.uint64,
    )
    return tf.reshape(tf.bitcast(children, key.dtype), [count, *key.shape])


def _as_array(key: Any) -> np.ndarray | None:
    try:
        return np.asarray(key)
    except TypeError:
        return None
