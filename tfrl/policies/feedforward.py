"""Feedforward networks of one array: dense layers, and convolutions of images.

Dense layers may have noise in their weights, for exploration.

This file also holds what networks of dense layers share: which of them NumPy computes
as Keras does, and standard deviations that are learned beside them.
"""

import contextlib
import contextvars
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import keras

from tfrl._internal import checks
from tfrl.core import initializers
from tfrl.host import networks

_SERIALIZABLE = keras.saving.register_keras_serializable(package="tfrl")

# Outputs so few, of a kernel so small, are faster differentiated one by one.
_FEW_OUTPUTS, _SMALL_KERNEL = 6, 512
_by_columns = contextvars.ContextVar("tfrl_by_columns", default=False)

# Where the channels of all observations are, whatever Keras' own setting.
_CHANNELS = "channels_last"

# Weights of a `NoisyDense` layer beside those of a dense one.
_NOISES = "kernel_noise", "bias_noise"

# Filters, width and stride.
_CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))


@_SERIALIZABLE
class NoisyDense(keras.layers.Dense):
    """A dense layer with noise of learned strength in its weights.

        y = activation(x (W + U * (f(p) f(q)^T)) + b + u * f(q))
        f(x) = sign(x) sqrt(|x|)

    The call is given the noise (p, q), standard normal numbers, one for each input and
    each output, the same for all rows. Without it the layer is dense.

    Args:
        units: number of outputs.
        noise: `U` and `u` start at `noise / sqrt(n_inputs)`.
        **kwargs: of `keras.layers.Dense`.

    Raises:
        ValueError: if `noise` is not positive.

    Example:
        >>> layer, x = NoisyDense(2), np.ones((1, 3), np.float32)
        >>> noise = tf.random.stateless_normal([3 + 2], seed=[0, 1])
        >>> layer(x, noise=noise).shape, bool(np.all(layer(x) == layer(x, noise=noise)))
        (TensorShape([1, 2]), False)

    References:
        Fortunato et al., 2018, Noisy Networks for Exploration, eq. 9-11.
    """

    def __init__(self, units: int, noise: float = 0.5, **kwargs: Any) -> None:
        checks.check_positive("NoisyDense", "noise", noise)
        super().__init__(units, **kwargs)
        self.noise = noise

    def build(self, input_shape: Any) -> None:
        """Creates the weights for inputs of `[..., n]`."""
        super().build(input_shape)
        n = input_shape[-1]
        start = keras.initializers.Constant(self.noise / math.sqrt(n))
        self.kernel_noise, self.bias_noise = (
            self.add_weight(shape=shape, initializer=start, name=name)
            for shape, name in zip(
                ((n, self.units), (self.units,)), _NOISES, strict=True
            )
        )

    def call(self, inputs: Any, noise: Any = None) -> Any:
        """Maps `[..., n]` to `[..., units]`.

        Args:
            inputs: floating.
            noise: `[n + units]`; None for none.
        """
        if noise is None:
            return super().call(inputs)
        noise = keras.ops.cast(noise, inputs.dtype)
        noise = keras.ops.sign(noise) * keras.ops.sqrt(keras.ops.abs(noise))
        before, after = noise[: -self.units], noise[-self.units :]
        outputs = keras.ops.matmul(inputs, self.kernel)
        outputs += keras.ops.matmul(inputs * before, self.kernel_noise) * after
        return self.activation(outputs + self.bias + self.bias_noise * after)

    def save_own_variables(self, store: Any) -> None:
        """Writes all weights: those of Keras' dense layer by number, ours by name."""
        super().save_own_variables(store)
        for name in _NOISES if self.built else ():
            store[name] = getattr(self, name)

    def load_own_variables(self, store: Any) -> None:
        """Reads what `save_own_variables` wrote.

        Raises:
            ValueError: if `store` holds other weights, or no strength of the noise.
        """
        super().load_own_variables(store)
        for name in _NOISES if self.built else ():
            getattr(self, name).assign(store[name])

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "noise": self.noise}


@_SERIALIZABLE
class MLP(keras.layers.Layer):
    """A stack of dense layers over flattened inputs.

        x[0] = flatten(inputs),  x[i + 1] = activation(x[i] W[i] + b[i])

    Weights start orthogonal with gain sqrt(2), biases at 0. With `n_outputs` a last
    dense layer without activation follows, of gain `output_gain` and in float32
    whatever the layer's dtype policy.

    Args:
        hidden_units: width of each hidden layer.
        activation: a Keras activation, by name or as the function.
        n_outputs: width of the linear last layer, or None for none.
        output_gain: gain of the last layer's initial weights.
        seed: of the initial weights.
        noise: of `NoisyDense` layers in place of dense ones; None for dense ones.
        **kwargs: of `keras.layers.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        TypeError: if a width or the seed is no int; at a call, if `inputs` are not one
            tensor.
        ValueError: if a width is less than 1, or `noise` is not positive.

    Example:
        >>> MLP([8, 8], n_outputs=3)(np.zeros((5, 2, 2))).shape
        TensorShape([5, 3])
    """

    def __init__(
        self,
        hidden_units: Sequence[int] = (64, 64),
        activation: Any = "tanh",
        n_outputs: int | None = None,
        output_gain: float = 1.0,
        seed: int = 0,
        noise: float | None = None,
        **kwargs: Any,
    ) -> None:
        hidden_units = checks.check_whole_numbers(
            "MLP", "hidden_units", hidden_units, low=1
        )
        checks.check_whole_number("MLP", "seed", seed)
        if n_outputs is not None:
            checks.check_whole_number("MLP", "n_outputs", n_outputs, low=1)
        check_activation("MLP", activation)
        super().__init__(**kwargs)
        self.hidden_units = hidden_units
        self.activation = activation
        if not isinstance(activation, str | None):
            self.activation = keras.activations.serialize(activation)
        self.n_outputs = n_outputs
        self.output_gain = output_gain
        self.seed = seed
        self.noise = noise
        # A name that Keras counts would make each program of XLA another one.
        self.flatten = keras.layers.Flatten(
            _CHANNELS, name="flatten", dtype=self.dtype_policy
        )
        made: list[tuple] = [
            (units, activation, math.sqrt(2.0), f"hidden_{index}", self.dtype_policy)
            for index, units in enumerate(self.hidden_units)
        ]
        if n_outputs is not None:
            made.append((n_outputs, None, output_gain, "output", "float32"))
        kind: Any = keras.layers.Dense
        if noise is not None:
            kind = functools.partial(NoisyDense, noise=noise)
        self.dense = [
            kind(
                units,
                activation=function,
                kernel_initializer=initializers.Orthogonal(gain, seed + index),
                name=name,
                dtype=dtype,
            )
            for index, (units, function, gain, name, dtype) in enumerate(made)
        ]
        for index, dense in enumerate(self.dense):
            # `tf.train.Checkpoint` skips lists.
            setattr(self, f"_layer_{index}", dense)

    def build(self, input_shape: Any) -> None:
        """Creates the weights for inputs of `[B, *shape]`."""
        checks.check_one_shape("MLP", "inputs", input_shape)
        self._n_inputs = width = _width(input_shape)
        if width is None and self.dense:
            raise ValueError(
                "`MLP`: `inputs` must have known dimensions behind the batch; got "
                f"shape {tuple(input_shape)}"
            )
        for dense in self.dense:
            dense.build((None, width))
            width = dense.units
        super().build(input_shape)

    @property
    def n_noise(self) -> int:
        """Returns how many numbers the noise in the weights is made of."""
        if self.noise is None:
            return 0
        return sum(x.kernel.shape[0] + x.units for x in self.dense)

    def call(self, inputs: Any, noise: Any = None) -> Any:
        """Maps `[B, *shape]` to `[B, last width]`.

        Args:
            inputs: `[B, *shape]`.
            noise: `[n_noise]`, of its `NoisyDense` layers one after the other; None for
                none.
        """
        if not hasattr(inputs, "shape"):  # Keras checks no more once it is built
            checks.check_one_shape("MLP", "inputs", inputs)
        outputs = self.flatten(inputs)
        few = _by_columns.get() and self._has_few_outputs()
        for dense in self.dense[: -1 if few else None]:
            if noise is None:
                outputs = dense(outputs)
            else:
                n = dense.kernel.shape[0] + dense.units
                outputs, noise = dense(outputs, noise=noise[:n]), noise[n:]
        return _columns(self.dense[-1], outputs) if few else outputs

    def _has_few_outputs(self) -> bool:
        is_plain = self.compute_dtype == "float32" and self.noise is None
        is_plain = is_plain and self.dense[-1].quantization_mode is None
        if not (is_plain and 1 < (self.n_outputs or 0) <= _FEW_OUTPUTS):
            return False
        return math.prod(self.dense[-1].kernel.shape) <= _SMALL_KERNEL

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Returns `(B, last width)`."""
        width = _width(input_shape)
        if not self.dense:
            return (input_shape[0], width)
        if self.built and width not in (None, self._n_inputs):
            raise ValueError(
                f"`MLP`: `inputs` must have {self._n_inputs} numbers a row, as those "
                f"it was built for; got shape {tuple(input_shape)}"
            )
        return (input_shape[0], self.dense[-1].units)

    def compute_output_spec(self, inputs: Any) -> keras.KerasTensor:
        """Returns shape and dtype of the outputs."""
        dtype = self.compute_dtype if self.n_outputs is None else "float32"
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "hidden_units": list(self.hidden_units),
            "activation": self.activation,
            "n_outputs": self.n_outputs,
            "output_gain": self.output_gain,
            "seed": self.seed,
            **({} if self.noise is None else {"noise": self.noise}),
        }


@contextlib.contextmanager
def differentiated() -> Iterator[None]:
    """Inside, an `MLP` computes a few outputs one after the other.

    XLA's gradients of a product [256, 64] x [64, 2] take 31 microseconds on a CPU,
    those of its two columns 6. Those of [256, 256] x [256, 6] take 100, of six columns
    400.
    """
    token = _by_columns.set(True)
    try:
        yield
    finally:
        _by_columns.reset(token)


def _columns(dense: keras.layers.Dense, inputs: Any) -> Any:
    """What a linear layer makes of `[B, n]`."""
    kernel = keras.ops.convert_to_tensor(dense.kernel)
    columns = [keras.ops.matmul(inputs, kernel[:, i]) for i in range(dense.units)]
    return keras.ops.stack(columns, axis=-1) + dense.bias


def check_activation(where: str, activation: Any) -> None:
    """Raises a ValueError unless Keras knows an activation."""
    try:
        keras.activations.get(activation)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{where}`: `activation` expected a function or a name that Keras knows; "
            f"got {activation!r:.80}; check the spelling"
        ) from error


def architecture_of(network: Any) -> str | None:
    """Returns what networks of the same computation have in common.

    Known are networks of tfrl alone, of whose parts none is another's: who can tell
    what a function or a class of somebody else computes at another time?

    Args:
        network: a layer.

    Returns:
        A text, or None.

    Example:
        >>> architecture_of(keras.layers.Dense(2)) is None
        True
    """
    if not type(network).__module__.startswith("tfrl."):
        return None
    known: str | None = getattr(network, "architecture", None)
    return known


def told(value: Any) -> str:
    """Returns what an `architecture` says of an argument that is no plain number.

    Args:
        value: a function, or what `repr` tells all of.

    Raises:
        TypeError: of a function or class that is neither of tfrl nor of Keras.

    Example:
        >>> told(keras.activations.relu)
        'keras.src.activations.activations.relu'
    """
    if not callable(value):
        return repr(value)
    module = getattr(value, "__module__", None) or ""
    if module.partition(".")[0] not in ("keras", "tfrl") or not hasattr(
        value, "__qualname__"
    ):
        raise TypeError(f"{value!r:.80} may compute something else at another time")
    return f"{module}.{value.__qualname__}"


def conv_encoder(seed: int = 0, dtype: Any = None) -> keras.Sequential:
    """Returns a small convolutional encoder of images into 512 features.

    Pixels are divided by 255; three convolutions (32 of 8x8 stride 4, 64 of 4x4 stride
    2, 64 of 3x3 stride 1, rectified) and a rectified dense layer follow.

    Args:
        seed: of the initial weights.
        dtype: a Keras dtype policy; the global one by default.

    Returns:
        A model from `[B, height, width, channels]`, 36x36 pixels at least, to
        `[B, 512]`.

    Example:
        >>> conv_encoder()(np.zeros((1, 84, 84, 4), np.uint8)).shape
        TensorShape([1, 512])

    References:
        Mnih et al., 2015, Human-level control through deep reinforcement learning,
        "Model architecture".
    """
    convolutions = [
        keras.layers.Conv2D(
            filters,
            size,
            strides=stride,
            data_format=_CHANNELS,
            activation="relu",
            kernel_initializer=initializers.Orthogonal(math.sqrt(2.0), seed + i),
            name=f"convolution_{i}",
            dtype=dtype,
        )
        for i, (filters, size, stride) in enumerate(_CONVOLUTIONS)
    ]
    return keras.Sequential(
        [
            keras.layers.Rescaling(1 / 255.0, name="rescaling", dtype=dtype),
            *convolutions,
            MLP([512], "relu", seed=seed + 3, name="features", dtype=dtype),
        ],
        name="conv_encoder",
    )


def layers_of(network: keras.layers.Layer) -> list[Any] | None:
    """Returns the dense layers that alone lead to the first output; see `plain`.

    Those of a Sequential, or of a functional model from its only input on; what leads
    to other outputs does not matter. None if there is more on the way.
    """
    layers = network.layers if type(network) is keras.Sequential else _chain(network)
    return plain([x for x in layers if not _only_flattens(x)])


def _only_flattens(layer: Any) -> bool:
    """Whether a layer leaves the order of the numbers in a row as it is."""
    return type(layer) is keras.layers.Flatten and layer.data_format == _CHANNELS


def _chain(network: Any) -> list[Any]:
    """The layers from the input of a functional model to its first output, if a row."""
    kind = type(network)
    if (kind.__module__.partition(".")[0], kind.__name__) != ("keras", "Functional"):
        return []
    if not isinstance(network.input, keras.KerasTensor):
        return []
    made = {id(x.output): x for x in network.layers[1:]}
    layers, tensor = [], network.outputs[0]
    # What joins several, is no layer, or is used in several places, is not in there.
    while id(tensor) in made:
        layers.append(made[id(tensor)])
        tensor = layers[-1].input
    return layers[::-1] if tensor is network.inputs[0] else []


def plain(layers: Sequence[Any]) -> list[Any] | None:
    """Returns built layers if NumPy computes each as Keras does, else None."""
    known = [getattr(keras.activations, name) for name in networks.ACTIVATIONS]
    exact = [
        type(x) is keras.layers.Dense
        and x.built
        and x.compute_dtype == "float32"
        and any(x.activation is function for function in known)
        and not x.lora_enabled
        for x in layers
    ]
    return list(layers) if layers and all(exact) else None


def log_std_of(network: keras.layers.Layer, n: int, initial: float) -> keras.Variable:
    """Makes the `n` log standard deviations that are learned beside a network."""
    return network.add_weight(
        shape=(n,),
        initializer=keras.initializers.Constant(initial),
        name="log_std",
        dtype="float32",
        autocast=False,
    )


def with_log_std(parameters: Any, log_std: Any) -> Any:
    """Appends log standard deviations, if there are any, to each row of parameters."""
    if log_std is None:
        return parameters
    shape = [keras.ops.shape(parameters)[0], log_std.shape[0]]
    rows = keras.ops.broadcast_to(log_std, shape)
    return keras.ops.concatenate([parameters, rows], axis=-1)


def _width(shape: Any) -> int | None:
    return None if None in shape[1:] else math.prod(shape[1:])
