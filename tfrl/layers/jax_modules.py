"""Functions and modules of JAX as layers that `AsKeras` takes.

`keras.layers.JaxLayer` and `FlaxLayer` run on the TensorFlow backend as well: they fit,
compile and export. These here do the same by jax2tf, and besides keep every variable in
`tf.train.Checkpoint`, hold one state in all replicas of a strategy, and draw from a key
that is saved.
"""

import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.layers import foreign


def from_jax(
    init: Callable[..., Any],
    apply: Callable[..., Any],
    platforms: Sequence[str] | None = None,
) -> foreign.FunctionLayer:
    """Returns a layer made of two functions of JAX.

    Args:
        init: as of `FunctionLayer`; `rng` is a raw key, uint32 `[2]`, and `inputs`
            are arrays of JAX.
        apply: as of `FunctionLayer`, traced once for each signature of the inputs.
            Dimensions that are unknown then are symbolic in JAX.
        platforms: what it is compiled for, such as ("cpu", "cuda", "tpu"); where this
            process runs JAX if None.

    Returns:
        A layer for `AsKeras`. Gradients are JAX's, of first order.

    Raises:
        TypeError: as `FunctionLayer`.
        ImportError: if JAX is missing; `tfrl[jax]` installs it.

    Example:
        >>> import jax.numpy as jnp  # doctest: +SKIP
        >>> layer = tfrl.layers.AsKeras(from_jax(
        ...     lambda inputs: jnp.ones(inputs.shape[-1]),
        ...     lambda params, inputs: jnp.tanh(inputs * params),
        ... ))  # doctest: +SKIP
    """
    jax = _imported("from_jax", "jax")
    jax2tf = importlib.import_module("jax.experimental.jax2tf")
    pair = foreign.FunctionLayer(init, apply)
    converted: dict[Any, Callable[..., Any]] = {}

    def start(rng: tf.Tensor, inputs: Any) -> tuple[Any, Any]:
        arrays = tf.nest.map_structure(lambda x: jax.numpy.asarray(x.numpy()), inputs)
        key = jax.numpy.asarray(rng.numpy().view(np.uint32))
        return jax.tree.map(np.asarray, pair.start(key, arrays))

    def run(
        params: Any, state: Any, rng: tf.Tensor, inputs: Any, training: bool
    ) -> tuple[Any, Any]:
        names = _polymorphic(inputs)
        kind = (training, str(names))
        if kind not in converted:
            function = jax2tf.convert(
                lambda params, state, rng, inputs: pair.run(
                    params, state, rng, inputs, training
                ),
                polymorphic_shapes=[None, None, None, names],
                native_serialization_platforms=platforms,
            )
            converted[kind] = tf.function(function, autograph=False)
        key = tf.bitcast(rng, tf.uint32)
        return converted[kind](params, state, key, inputs)

    return foreign.FunctionLayer(start, run)


def from_flax(
    module: Any, training_argument: str | None = None
) -> foreign.FunctionLayer:
    """Returns a layer made of a `flax.linen.Module`.

    The collection `params` is the weights, all others that `init` makes are the state.
    Streams of random numbers begin anew from the key at each call.

    Args:
        module: called with one argument, a nest of arrays.
        training_argument: name of the argument of its `__call__` that is whether it
            trains, if there is one.

    Returns:
        A layer for `AsKeras`.

    Raises:
        ImportError: if JAX is missing; `tfrl[jax]` installs it.
        TypeError: if `module` has no `init` and `apply`.

    Example:
        >>> from flax import linen  # doctest: +SKIP
        >>> dense = from_flax(linen.Dense(3))  # doctest: +SKIP
        >>> tfrl.layers.AsKeras(dense)(tf.zeros([1, 2])).shape  # doctest: +SKIP
        TensorShape([1, 3])
    """
    _check_pair("from_flax", "module", module)
    jax = _imported("from_flax", "jax")

    def streams(rng: Any) -> dict[str, Any]:
        # Streams of other names follow that of "params".
        return dict(zip(("params", "dropout"), jax.random.split(rng), strict=True))

    def init(rng: Any, inputs: Any) -> tuple[Any, Any]:
        flags = _flags(training_argument, True)
        state = dict(module.init(streams(rng), inputs, **flags))
        return state.pop("params", {}), state

    def apply(
        params: Any, state: Any, rng: Any, inputs: Any, training: bool
    ) -> tuple[Any, Any]:
        outputs, changed = module.apply(
            {"params": params, **state},
            inputs,
            rngs=streams(rng),
            mutable=list(state),
            **_flags(training_argument, training),
        )
        return outputs, {**state, **changed}

    return from_jax(init, apply)


def from_nnx(module: Any) -> foreign.FunctionLayer:
    """Returns a layer made of a `flax.nnx.Module`.

    Its `nnx.Param`s are the weights and its other variables the state, with the values
    that they have. `module.train()` or `module.eval()` goes before each call, and its
    streams of random numbers begin anew from the key. The module itself does not
    change.

    Args:
        module: called with one argument, a nest of arrays.

    Returns:
        A layer for `AsKeras`.

    Raises:
        ImportError: if Flax is missing; `tfrl[jax]` installs it.
        TypeError: if `module` is something else.

    Example:
        >>> from flax import nnx  # doctest: +SKIP
        >>> dense = from_nnx(nnx.Linear(2, 3, rngs=nnx.Rngs(0)))  # doctest: +SKIP
        >>> tfrl.layers.AsKeras(dense)(tf.zeros([1, 2])).shape  # doctest: +SKIP
        TensorShape([1, 3])
    """
    jax, nnx = _imported("from_nnx", "jax"), _imported("from_nnx", "flax.nnx")
    if not isinstance(module, nnx.Module):
        raise TypeError(
            f"`from_nnx`: `module` expected an nnx.Module; got {module!r:.80}; make one"
        )
    graph, weights, streams, rest = nnx.split(module, nnx.Param, nnx.RngState, ...)
    tags = sorted({leaf.tag for _, leaf in nnx.to_flat_state(streams)})

    def init(inputs: Any) -> tuple[Any, Any]:  # noqa: ARG001
        return nnx.to_pure_dict(weights), nnx.to_pure_dict(rest)

    def apply(
        params: Any, state: Any, rng: Any, inputs: Any, training: bool
    ) -> tuple[Any, Any]:
        # A variable belongs to one trace: each call has its own.
        parts = [jax.tree.map(lambda leaf: leaf, x) for x in (weights, rest, streams)]
        for part, values in zip(parts, (params, state), strict=False):
            nnx.replace_by_pure_dict(part, values)
        model = nnx.merge(graph, *parts)
        model.train() if training else model.eval()
        keys = jax.random.split(rng, len(tags)) if tags else []
        nnx.reseed(model, **dict(zip(tags, keys, strict=True)))
        outputs = model(inputs)
        *_, after = nnx.split(model, nnx.Param, nnx.RngState, ...)
        return outputs, nnx.to_pure_dict(after)

    return from_jax(init, apply)


def from_haiku(
    transformed: Any, training_argument: str | None = None
) -> foreign.FunctionLayer:
    """Returns a layer made of a pair that `haiku.transform` gives.

    Args:
        transformed: what `haiku.transform` or `transform_with_state` returns for a
            function of one argument, a nest of arrays.
        training_argument: name of the argument of that function that is whether it
            trains, if there is one.

    Returns:
        A layer for `AsKeras`.

    Raises:
        ImportError: if JAX is missing; `tfrl[jax]` installs it.
        TypeError: if `transformed` has no `init` and `apply`.

    Example:
        >>> import haiku  # doctest: +SKIP
        >>> pair = haiku.transform(lambda x: haiku.Linear(3)(x))  # doctest: +SKIP
        >>> layer = from_haiku(pair)  # doctest: +SKIP
        >>> tfrl.layers.AsKeras(layer)(tf.zeros([1, 2])).shape  # doctest: +SKIP
        TensorShape([1, 3])
    """
    _check_pair("from_haiku", "transformed", transformed)
    names = inspect.signature(transformed.apply).parameters
    has_state, has_rng = "state" in names, "rng" in names

    def init(rng: Any, inputs: Any) -> tuple[Any, Any]:
        result = transformed.init(rng, inputs, **_flags(training_argument, True))
        return result if has_state else (result, ())

    def apply(
        params: Any, state: Any, rng: Any, inputs: Any, training: bool
    ) -> tuple[Any, Any]:
        given = (params, *([state] if has_state else []), *([rng] if has_rng else []))
        flags = _flags(training_argument, training)
        result = transformed.apply(*given, inputs, **flags)
        return result if has_state else (result, state)

    return from_jax(init, apply)


def _flags(name: str | None, value: bool) -> dict[str, bool]:
    return {} if name is None else {name: value}


def _polymorphic(inputs: Any) -> Any:
    """What jax2tf takes for shapes: unknown batches are one size, others differ."""
    leaves = tf.nest.flatten(inputs)
    if all(leaf.shape.is_fully_defined() for leaf in leaves):
        return None
    names = [
        ",".join(
            str(size) if size is not None else f"d{i}_{axis}" if axis else "batch"
            for axis, size in enumerate(leaf.shape)
        )
        for i, leaf in enumerate(leaves)
    ]
    return tf.nest.pack_sequence_as(inputs, [f"({name})" for name in names])


def _imported(where: str, package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(
            f"`{where}`: expected the package {package}; found none; run: "
            "pip install jax flax dm-haiku (the extra `tfrl[jax]`)"
        ) from error


def _check_pair(where: str, name: str, pair: Any) -> None:
    functions = [getattr(pair, each, None) for each in ("init", "apply")]
    if isinstance(pair, type) or not all(map(callable, functions)):
        raise TypeError(
            f"`{where}`: `{name}` expected an object with `init` and `apply`; got "
            f"{pair!r:.80}; a class is to be called first"
        )
