"""What is asked of the layers of other libraries, and how they are run."""

import builtins
import contextlib
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfrl.layers import _foreign_keys

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
    if "training" not in inspect.signature(given).parameters:
        return dict.fromkeys((False, True), Runner(given()))
    return {flag: Runner(given(training=flag)) for flag in (False, True)}


def check_structure(what: str, expected: Any, got: Any) -> None:
    """Raises unless two nests of tensors have one structure and fitting shapes."""
    try:
        tf.nest.assert_same_structure(expected, got)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`AsKeras`: `layer` expected {what} of structure {_shape_text(expected)}; "
            f"got {_shape_text(got)}; both must be nested alike"
        ) from error
    pairs = zip(tf.nest.flatten(expected), tf.nest.flatten(got), strict=True)
    for one, two in pairs:
        if one is not None and not two.shape.is_compatible_with(one.shape):
            raise ValueError(
                f"`AsKeras`: `layer` expected {what} of shape {one.shape}; "
                f"got {two.shape}; a variable keeps its shape"
            )


def check_dtype(name: str, dtype: Any) -> None:
    kind = tf.as_dtype(dtype)
    if not (kind.is_floating or kind.is_integer or kind.is_bool or kind.is_complex):
        raise TypeError(
            f"`AsKeras`: `{name}` expected arrays of numbers or bools; "
            f"got dtype {kind.name}; encode what it stands for in numbers"
        )


def check_batch(batch_size: int | None, shape: Any) -> None:
    """Raises unless a shape is of the only batch size, if there is one."""
    sizes = (None, batch_size)
    if batch_size is not None and len(shape) and shape[0] not in sizes:
        raise ValueError(
            f"`AsKeras`: `inputs` expected a batch of {batch_size}, "
            f"`batch_size`; got shape {tuple(shape)}; "
            "make another layer for other batches"
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
            return _foreign_keys.next_key(key)
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


def _shape_text(nest: Any) -> str:
    return str(
        tf.nest.map_structure(
            lambda leaf: list(leaf.shape) if hasattr(leaf, "shape") else leaf, nest
        )
    )
