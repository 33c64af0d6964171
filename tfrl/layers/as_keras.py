"""Layers of other libraries as Keras layers.

What `AsKeras` takes is a protocol, not a base class; Trax layers follow it as they are.
For functions and for modules of other libraries, `tfrl.layers.foreign` and
`tfrl.layers.jax_modules` make layers that do.
"""

import functools
from collections.abc import Callable
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import nest
from tfrl.core import shapes as core_shapes
from tfrl.layers import _configs, _foreign

_KEYS = ("initializer_rng", "rng")


def tensor_shapes_to_shape_dtypes(shapes: Any, dtype: Any) -> Any:
    """Returns the signature of tensors of given shapes and one dtype.

    Args:
        shapes: a shape (`tf.TensorShape`, tuple or list of int and None), or a nest of
            shapes.
        dtype: of all the tensors.

    Returns:
        A `tfrl.core.ShapeDtype` in the place of each shape.

    Raises:
        TypeError: if a leaf is no shape, or `dtype` is no dtype.
        ValueError: if the rank of a shape is unknown.

    Example:
        >>> tensor_shapes_to_shape_dtypes([(2, 3), tf.TensorShape([None])], tf.int32)
        [ShapeDtype{shape:(2, 3), dtype:int32}, ShapeDtype{shape:(None,), dtype:int32}]
    """
    return keras.tree.map_shape_structure(
        lambda shape: core_shapes.ShapeDtype(shape, dtype), shapes
    )


def read_values(variables: Any) -> Any:
    """Returns what the variables of a nest hold.

    Args:
        variables: nest of `tf.Variable` and `keras.Variable`; None leaves stay.

    Returns:
        The same nest of tensors. Inside a Keras call of mixed precision, variables
        that follow the dtype policy are read in its compute dtype.

    Raises:
        TypeError: if a leaf is no variable.

    Example:
        >>> read_values({"scale": tf.Variable(2.0)})["scale"].numpy()
        np.float32(2.0)
    """

    def read(leaf: Any) -> Any:
        if not isinstance(leaf, tf.Variable | keras.Variable):
            raise checks.wrong_type("read_values", "variables", leaf, "variables")
        return tf.convert_to_tensor(
            leaf.value if isinstance(leaf, keras.Variable) else leaf
        )

    return nest.map_leaves(read, variables)


def to_tensors(args: Any) -> Any:
    """Returns a nest with every leaf turned into a tensor.

    Args:
        args: nest of arrays, numbers, tensors and variables; None leaves stay.

    Returns:
        The same nest of tensors. A Python float becomes float32, an int int32.

    Raises:
        ValueError: if a leaf is no array.
        TypeError: if a leaf is no array.

    Example:
        >>> to_tensors((1.5, [np.arange(3)]))[1][0].dtype
        tf.int64
    """
    return nest.map_leaves(tf.convert_to_tensor, args)


def to_arrays(args: Any) -> Any:
    """Returns a nest with every leaf turned into an array of TensorFlow's NumPy.

    Such an array is a tensor; numbers get the dtype that NumPy gives them.

    Args:
        args: nest of arrays, numbers, tensors and variables; None leaves stay.

    Returns:
        The same nest of tensors. A Python float becomes float64, an int int64.

    Raises:
        ValueError: if a leaf is no array.
        TypeError: if a leaf is no array.

    Example:
        >>> to_arrays((1.5, [tf.zeros([2])]))[0].dtype
        tf.float64
    """
    return nest.map_leaves(tf.experimental.numpy.asarray, args)


@keras.saving.register_keras_serializable("tfrl")
class AsKeras(keras.layers.Layer):
    """Makes a Keras layer of a layer that keeps its weights outside.

        outputs, new_state = layer.pure_fn(inputs, weights, state, rng)
        state <- new_state,  rng <- rng_updater(rng)

    `layer` has these members:

    - `init(signature, rng) -> (weights, state)`: `signature` is a
      `tfrl.core.ShapeDtype` or a nest of them, like the inputs. Weights and state are
      nests of arrays; `()` where there are none.
    - `pure_fn(x, weights, state, rng) -> (outputs, new_state)` of TensorFlow ops. If it
      has a parameter `training`, it gets Keras' flag by that name.
    - `weights` and `state`, if it may come with some: they are used if they hold any
      array, and `init` is not called.

    Or it is a factory: a function that returns such a layer. With a parameter
    `training` it is called with True and with False, and gives the layers for training
    and for inference, of the same weights and state. A model with a factory that is
    registered (`keras.saving.register_keras_serializable`) saves as `.keras`.

    Layers of Trax are such layers, as they are: they run on its TensorFlow backend. As
    they know their mode when they are made, give a factory with `training`.

    Weights train. State and rng are weights that do not, and change at every call,
    whether it trains or not. Weights are converted to the dtype policy's variable
    dtype, and handed over in its compute dtype; state is never narrower than a
    variable. Replicas of a strategy draw differently; they keep the mean of their
    floating states, and the first one's other states.

    A call goes from trace to trace: one object must not be called by several threads.

    A layer of JAX that no file could name is warned of at once.

    Args:
        layer: the layer or its factory.
        batch_size: the only batch size, for layers that must know it while they are
            traced. Without it any will do, and `init` sees a batch of 1; it sees
            other unknown dimensions as 1 as well.
        initializer_rng: key for `init`; 0 if None. A key is an int or a tensor of
            integers.
        rng: key of the first call; 0 if None.
        rng_updater: function of a key that returns the next. If None, keys of 64 bits
            are split by the Philox generator, those of Trax layers as Trax does.
        dtype: dtype or dtype policy as of `keras.layers.Layer`; an integer dtype is
            that of the inputs alone.
        **kwargs: as of `keras.layers.Layer`.

    Raises:
        TypeError: if `layer` lacks the protocol, or a key is not of integers.
        ValueError: if `batch_size` is not positive. When built or called: if weights
            or states are of another structure than expected, or inputs of another
            batch size.

    Example:
        >>> class Scale:
        ...     def init(self, signature, rng):
        ...         return np.ones(signature.shape[-1:], np.float32), np.int64(0)
        ...     def pure_fn(self, x, weights, state, rng):
        ...         return x * weights, state + 1
        >>> layer = AsKeras(Scale(), name="scale")
        >>> layer(tf.constant([[1.0, 2.0]])).numpy()
        array([[1., 2.]], dtype=float32)
        >>> [(weight.name, weight.trainable) for weight in layer.weights]
        [('weights_0', True), ('state_0', False), ('rng', False)]
        >>> int(layer.state_0.numpy())
        1
    """

    # To renew it at every call is no draw, of which agents would warn.
    has_key = True

    def __init__(
        self,
        layer: Any,
        batch_size: int | None = None,
        initializer_rng: Any = None,
        rng: Any = None,
        rng_updater: Callable[[Any], Any] | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        policy, self._inputs_dtype = _foreign.split_dtype(dtype)
        super().__init__(dtype=policy, **kwargs)
        if batch_size is not None:
            checks.check_whole_number("AsKeras", "batch_size", batch_size, low=1)
        self.batch_size = batch_size
        # Behind functions: Keras and TensorFlow would track what is inside.
        given = zip(_KEYS, (initializer_rng, rng), strict=True)
        keys = {name: _foreign.as_key(name, key) for name, key in given}
        self._first_key = keys.__getitem__
        self._given = {"layer": layer, "rng_updater": rng_updater}.__getitem__
        self._runner = _foreign.runners_of(layer).__getitem__
        self._next_key = rng_updater or self._runner(True).next_key
        _configs.warn_if_unnamed(layer)
        self._seen: Callable[[], Any] | None = None

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls the layer; the first call builds it, for the dtypes of its inputs."""
        if not self.built:
            self._see(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def build(self, input_shape: Any) -> None:
        """Creates the variables for inputs of a shape or nest of shapes."""
        if self._seen is None:
            dtype = self._inputs_dtype or self.compute_dtype
            signature = tensor_shapes_to_shape_dtypes(input_shape, dtype)
        else:
            signature, self._seen = self._seen(), None
        for leaf in tf.nest.flatten(signature):
            _foreign.check_dtype("inputs", leaf.dtype)
            _foreign.check_batch(self.batch_size, leaf.shape)
        # Values, not tensors of a graph in which the layer may be built.
        with tf.init_scope():
            weights, state = self._initial(
                tf.nest.map_structure(self._known, signature)
            )
        self._weights_nest = self._add("weights", weights, trainable=True)
        self._state_nest = self._add("state", state, trainable=False)
        self.rng = self._add_variable("rng", self._first_key("rng"), False)
        self._built_for: Callable[[], Any] = lambda: signature

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Returns what the layer makes of a nest of tensors."""
        of_batch = functools.partial(_foreign.of_batch, self.batch_size)
        inputs = tf.nest.map_structure(of_batch, inputs)
        state, rng = read_values((self._state_nest(), self.rng))
        weights = nest.map_leaves(self._computed, read_values(self._weights_nest()))
        key = _foreign.key_of_replica(rng)
        with _foreign.blaming_shapes(self._built_for(), inputs):
            outputs, new_state = self._runner(bool(training)).call(
                inputs, weights, state, key, bool(training)
            )
        new_state = to_tensors(new_state)
        _foreign.check_structure("a new state", state, new_state)
        nests = (self._state_nest(), state, new_state)
        for variable, old, new in zip(*map(tf.nest.flatten, nests), strict=True):
            if new is not old:
                variable.assign(tf.cast(new, variable.dtype))
        self.rng.assign(self._next_key(rng))
        return to_tensors(outputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Shapes of what it makes of inputs, for which it is built."""
        dtype = self._inputs_dtype or self.compute_dtype
        signature = tensor_shapes_to_shape_dtypes(input_shape, dtype)
        if self.built:
            signature = tf.nest.map_structure(
                lambda given, known: given.replace(dtype=known.dtype),
                signature,
                self._built_for(),
            )
        spec = self.compute_output_spec(_foreign.symbolic(signature))
        return tf.nest.map_structure(lambda leaf: leaf.shape, spec)

    def compute_output_spec(self, inputs: Any, training: bool | None = None) -> Any:
        """Shapes and dtypes of what it makes of inputs, for which it is built."""
        if not self.built:
            self._see(inputs)
            self.build(tf.nest.map_structure(lambda leaf: leaf.shape, inputs))
        # As a call casts them.
        seen = tf.nest.map_structure(
            lambda leaf: self._cast(core_shapes.signature(leaf)), inputs
        )
        # Not that of `Layer`: it would ask for the shape alone.
        return keras.Operation.compute_output_spec(
            self, _foreign.symbolic(seen), training=training
        )

    def get_config(self) -> dict[str, Any]:
        """Everything `from_config` needs."""
        updater = self._given("rng_updater")
        keys = [(name, self._first_key(name)) for name in _KEYS]
        return {
            **super().get_config(),
            **({"dtype": self._inputs_dtype} if self._inputs_dtype else {}),
            "layer": _foreign.name_of("layer", self._given("layer")),
            "batch_size": self.batch_size,
            **{
                name: {"dtype": key.dtype.name, "value": key.tolist()}
                for name, key in keys
            },
            "rng_updater": updater and _foreign.name_of("rng_updater", updater),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes the layer that `get_config` described."""
        made = {
            name: _foreign.found(name, config[name])
            for name in ("layer", "rng_updater")
        }
        keys = {
            name: np.array(config[name]["value"], config[name]["dtype"])
            for name in _KEYS
        }
        return cls(**{**config, **made, **keys})

    def get_build_config(self) -> dict[str, Any] | None:
        """Shapes and dtypes of the inputs that it was built for."""
        return _foreign.encoded(self._built_for()) if self.built else None

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Creates the variables for the inputs that `get_build_config` described."""
        signature = _foreign.decoded(config)
        self._seen = lambda: signature
        self.build(tf.nest.map_structure(lambda leaf: leaf.shape, signature))

    def _see(self, inputs: Any) -> None:
        signature = tf.nest.map_structure(self._cast, core_shapes.signature(inputs))
        self._seen = lambda: signature

    def _initial(self, signature: Any) -> tuple[Any, Any]:
        """Weights and state, those of the layer itself where it has some."""
        runner, other = self._runner(True), self._runner(False)
        stored = runner.stored()
        if any(leaf is not None for leaf in tf.nest.flatten(stored)):
            return to_tensors(stored)
        key = self._first_key("initializer_rng")
        initial = to_tensors(runner.init(signature, key))
        if other is not runner:
            # Some layers must have been initialized to run.
            found = to_tensors(other.init(signature, key))
            what = "weights and state for inference as for training,"
            _foreign.check_structure(what, initial, found)
        return initial

    def _add(self, kind: str, values: Any, trainable: bool) -> Callable[[], Any]:
        """Adds a variable for each tensor; returns what gives the nest of them."""
        variables = [
            None if leaf is None else self._add_variable(f"{kind}_{i}", leaf, trainable)
            for i, leaf in enumerate(tf.nest.flatten(values))
        ]
        structure = nest.map_leaves(lambda _: 0, values)
        return functools.partial(tf.nest.pack_sequence_as, structure, variables)

    def _add_variable(self, name: str, value: Any, trainable: bool) -> keras.Variable:
        with tf.init_scope():
            value = tf.convert_to_tensor(value)
        _foreign.check_dtype("layer", value.dtype.as_numpy_dtype)
        floating, dtype = value.dtype.is_floating, value.dtype
        if floating and (
            trainable or dtype.size < tf.as_dtype(self.variable_dtype).size
        ):
            dtype = tf.as_dtype(self.variable_dtype)
        with tf.init_scope():
            value = tf.cast(value, dtype)
        options: dict[str, Any] = {}
        if not trainable:
            how = "mean" if floating else "only_first_replica"
            options = {"autocast": False, "aggregation": how}
        variable = self.add_weight(
            shape=value.shape,
            initializer=lambda shape, dtype: value,  # noqa: ARG005
            dtype=dtype.name,
            trainable=trainable and floating,
            name=name,
            **options,
        )
        # `tf.train.Checkpoint` finds no others than those in attributes.
        setattr(self, name, variable)
        return variable

    def _cast(self, leaf: core_shapes.ShapeDtype) -> core_shapes.ShapeDtype:
        floating = tf.as_dtype(leaf.dtype).is_floating
        if floating and self.autocast:
            return leaf.replace(dtype=self.compute_dtype)
        return leaf

    def _computed(self, weight: tf.Tensor) -> tf.Tensor:
        """A weight in the compute dtype, as Keras gives it inside a call alone."""
        if weight.dtype.is_floating and self.autocast:
            return tf.cast(weight, self.compute_dtype)
        return weight

    def _known(self, leaf: core_shapes.ShapeDtype) -> core_shapes.ShapeDtype:
        batch = self.batch_size or 1
        dims = [batch if i == 0 else 1 for i in range(len(leaf.shape))]
        pairs = zip(leaf.shape, dims, strict=True)
        return leaf.replace(shape=[b if a is None else a for a, b in pairs])
