"""Functions and modules of JAX as layers that `AsKeras` takes.

`keras.layers.JaxLayer` and `FlaxLayer` run on the TensorFlow backend as well: they fit,
compile and export. These here do the same by jax2tf, and besides keep every variable in
`tf.train.Checkpoint`, hold one state in all replicas of a strategy, and draw from a key
that is saved.

A model with one of them saves as `.keras` and clones if what it is made of can be
named: functions, classes and objects at the top of modules, which must be imported
where the model is loaded, and modules of Flax with such fields. What cannot be named
(lambdas, what is made within functions) is refused when it is tried, and `AsKeras`
warns of it as soon as it is given such a layer; it also takes a factory of the layer, a
function decorated by `keras.saving.register_keras_serializable`.
"""

import functools
import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import arguments
from tfrl.layers import _configs, _foreign, foreign


@keras.saving.register_keras_serializable("tfrl", name="JaxLayer")
class _JaxLayer(foreign.FunctionLayer):
    """A layer that one of the functions below made, and can make again."""

    warns_if_unnamed = True

    def __init__(
        self,
        init: Callable[..., Any],
        apply: Callable[..., Any],
        maker: str,
        *given: Any,
    ) -> None:
        super().__init__(init, apply)
        self._maker, self._given = maker, given

    def get_config(self) -> dict[str, Any]:
        """Returns what makes it again.

        Raises:
            ValueError: if a part of it has no name.
        """
        given = [_configs.described(self._maker, x) for x in self._given]
        return {"maker": self._maker, "given": given}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> foreign.FunctionLayer:
        """Makes the layer that `get_config` described."""
        maker = config["maker"]
        given = [_configs.made(maker, part) for part in config["given"]]
        return _MAKERS[maker](*given)


def from_jax(
    init: Callable[..., Any],
    apply: Callable[..., Any],
    platforms: Sequence[str] | None = None,
) -> foreign.FunctionLayer:
    """Returns a layer made of two functions of JAX.

    `params` and `state` are any pytrees, such as modules of Equinox. Of one that is no
    nest of dictionaries, lists and tuples, the arrays are weights and all else stays as
    `init` made it.

    Args:
        init: as of `FunctionLayer`; `rng` is a raw key, uint32 `[2]`, and `inputs`
            are arrays of JAX.
        apply: as of `FunctionLayer`, traced once for each signature of the inputs.
            Dimensions that are unknown then are symbolic in JAX.
        platforms: what it is compiled for, such as ("cpu", "cuda", "tpu"); where this
            process runs JAX if None.

    Returns:
        A layer for `AsKeras`. Gradients are JAX's, those of gradients too.

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
    jax = arguments.imported("from_jax", "jax", "jax", "jax")
    jax2tf = importlib.import_module("jax.experimental.jax2tf")
    pair = foreign.FunctionLayer(init, apply)
    converted: dict[Any, Callable[..., Any]] = {}
    forms = [_Form(jax), _Form(jax)]

    def start(rng: tf.Tensor, inputs: Any) -> tuple[Any, Any]:
        arrays = tf.nest.map_structure(lambda x: jax.numpy.asarray(x.numpy()), inputs)
        key = jax.numpy.asarray(rng.numpy().view(np.uint32))
        params, state = pair.start(key, arrays)
        return forms[0].learned(params), forms[1].learned(state)

    def called(
        params: Any, state: Any, rng: Any, inputs: Any, training: bool
    ) -> tuple[Any, Any]:
        params, state = (
            f.whole(x) for f, x in zip(forms, (params, state), strict=True)
        )
        outputs, state = pair.run(params, state, rng, inputs, training)
        return outputs, forms[1].arrays(state)

    def run(
        params: Any, state: Any, rng: tf.Tensor, inputs: Any, training: bool
    ) -> tuple[Any, Any]:
        names = _polymorphic(inputs)
        kind = (training, str(names))
        if kind not in converted:
            function = jax2tf.convert(
                functools.partial(called, training=training),
                polymorphic_shapes=[None, None, None, names],
                native_serialization_platforms=platforms,
            )
            converted[kind] = tf.function(function, autograph=False)
        key = tf.bitcast(rng, tf.uint32)
        return converted[kind](params, state, key, inputs)

    return _JaxLayer(start, run, "from_jax", init, apply, platforms)


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
    jax = arguments.imported("from_flax", "jax", "jax", "jax")

    def streams(rng: Any) -> dict[str, Any]:
        # Streams of other names follow that of "params".
        return dict(zip(("params", "dropout"), jax.random.split(rng), strict=True))

    def init(rng: Any, inputs: Any) -> tuple[Any, Any]:
        flags = _foreign.flags(training_argument, True)
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
            **_foreign.flags(training_argument, training),
        )
        return outputs, {**state, **changed}

    return _remade(from_jax(init, apply), "from_flax", module, training_argument)


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
    where = "from_nnx"
    jax = arguments.imported(where, "jax", "jax", "jax")
    nnx = arguments.imported(where, "flax.nnx", "flax", "jax")
    arguments.check_type(where, "module", module, nnx.Module, "an nnx.Module")
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

    return _remade(from_jax(init, apply), "from_nnx", module)


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
        result = transformed.init(
            rng, inputs, **_foreign.flags(training_argument, True)
        )
        return result if has_state else (result, ())

    def apply(
        params: Any, state: Any, rng: Any, inputs: Any, training: bool
    ) -> tuple[Any, Any]:
        given = (params, *([state] if has_state else []), *([rng] if has_rng else []))
        flags = _foreign.flags(training_argument, training)
        result = transformed.apply(*given, inputs, **flags)
        return result if has_state else (result, state)

    layer = from_jax(init, apply)
    return _remade(layer, "from_haiku", transformed, training_argument)


_MAKERS: dict[str, Callable[..., foreign.FunctionLayer]] = {
    "from_jax": from_jax,
    "from_flax": from_flax,
    "from_nnx": from_nnx,
    "from_haiku": from_haiku,
}


def _remade(layer: Any, maker: str, *given: Any) -> _JaxLayer:
    return _JaxLayer(layer.start, layer.run, maker, *given)


class _Form:
    """How a pytree is made of arrays: kept when it is first seen."""

    def __init__(self, jax: Any) -> None:
        self._jax, self._structure = jax, None
        self._others: list[Any] = []

    def learned(self, tree: Any) -> Any:
        """The arrays of a tree, which all others will be like."""
        if _is_nest(tree):
            return self._jax.tree.map(np.asarray, tree)
        leaves, self._structure = self._jax.tree.flatten(tree)
        self._others = [None if _is_array(leaf) else leaf for leaf in leaves]
        return tuple(np.asarray(leaf) for leaf in leaves if _is_array(leaf))

    def arrays(self, tree: Any) -> Any:
        if self._structure is None:
            return tree
        return tuple(filter(_is_array, self._jax.tree.leaves(tree)))

    def whole(self, arrays: Any) -> Any:
        if self._structure is None:
            return arrays
        rest = iter(arrays)
        leaves = [next(rest) if x is None else x for x in self._others]
        return self._jax.tree.unflatten(self._structure, leaves)


def _is_nest(tree: Any) -> bool:
    """Whether TensorFlow sees the same nest as JAX does."""
    if isinstance(tree, dict):
        return all(map(_is_nest, tree.values()))
    if isinstance(tree, list | tuple):
        return all(map(_is_nest, tree))
    return tree is None or _is_array(tree) or isinstance(tree, int | float | complex)


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


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


def _check_pair(where: str, name: str, pair: Any) -> None:
    functions = [getattr(pair, each, None) for each in ("init", "apply")]
    if isinstance(pair, type) or not all(map(callable, functions)):
        kind = "an object with `init` and `apply`, no class"
        raise arguments.wrong_type(where, name, pair, kind)
