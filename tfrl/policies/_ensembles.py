"""Layers of several networks at once, and normalization over rows and features."""

from typing import Any

import keras
import tensorflow as tf

from tfrl.core import initializers

_SERIALIZABLE = keras.saving.register_keras_serializable(package="tfrl")


@_SERIALIZABLE
class Denses(keras.layers.Layer):
    """A dense layer of each of N networks, `[N, B, n]` to `[N, B, units]`.

        outputs[i] = inputs[i] W[i] + b[i]

    Of inputs `[B, n]` all networks get the same.

    Args:
        n: number of networks, N.
        units: of each.
        gain: of the orthogonal initial weights.
        seed: of the initial weights.
        **kwargs: of `keras.layers.Layer`.

    Example:
        >>> Denses(2, 5)(np.zeros((2, 3, 4), np.float32)).shape
        TensorShape([2, 3, 5])
    """

    def __init__(
        self, n: int, units: int, gain: float = 1.0, seed: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.n, self.units, self.gain, self.seed = n, units, gain, seed

    def build(self, input_shape: Any) -> None:
        """Creates the weights for a shape `[..., n]`."""

        def initial(shape: Any, dtype: Any = None) -> tf.Tensor:
            return tf.stack(
                [
                    initializers.Orthogonal(self.gain, self.seed + 1000 * i)(
                        shape[1:], dtype
                    )
                    for i in range(self.n)
                ]
            )

        shape = (self.n, input_shape[-1], self.units)
        self.kernel = self.add_weight(shape=shape, initializer=initial, name="kernel")
        shape = (self.n, 1, self.units)
        self.bias = self.add_weight(shape=shape, initializer="zeros", name="bias")
        super().build(input_shape)

    def call(self, inputs: Any) -> Any:
        """Maps `[N, B, n]` or `[B, n]` to `[N, B, units]`."""
        if len(inputs.shape) == 2:
            shape = [self.n, *keras.ops.shape(inputs)]
            inputs = keras.ops.broadcast_to(inputs, shape)
        return keras.ops.matmul(inputs, self.kernel) + self.bias

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Returns `(N, B, units)`."""
        return self.n, input_shape[-2], self.units

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        known = {"n": self.n, "units": self.units, "gain": self.gain}
        return {**super().get_config(), **known, "seed": self.seed}


@_SERIALIZABLE
class LayerNorms(keras.layers.Layer):
    """Layer normalization of each of N networks, `[N, B, n]`, with weights of its own.

    Args:
        n: number of networks, N.
        **kwargs: of `keras.layers.Layer`.

    Example:
        >>> LayerNorms(1)(np.array([[[1.0, 3.0]]], np.float32)).numpy().round(2)
        array([[[-1.,  1.]]], dtype=float32)

    References:
        Ba et al., 2016, Layer Normalization, eq. 4.
    """

    def __init__(self, n: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.n = n

    def build(self, input_shape: Any) -> None:
        """Creates the weights for a shape `[..., n]`."""
        shape = (self.n, 1, input_shape[-1])
        self.scale = self.add_weight(shape=shape, initializer="ones", name="scale")
        self.bias = self.add_weight(shape=shape, initializer="zeros", name="bias")
        super().build(input_shape)

    def call(self, inputs: Any) -> Any:
        """Normalizes `[N, B, n]`."""
        centred = inputs - keras.ops.mean(inputs, axis=-1, keepdims=True)
        variance = keras.ops.mean(centred * centred, axis=-1, keepdims=True)
        return centred * keras.ops.rsqrt(variance + 1e-5) * self.scale + self.bias

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "n": self.n}


@_SERIALIZABLE
class BatchRenorm(keras.layers.Layer):
    """Normalizes features over the rows of a batch, `[..., B, n]`.

        x_hat = (x - mean) / deviation * r + d,    y = x_hat * scale + bias
        r = clip(deviation / running deviation, 1 / 3, 3)
        d = clip((mean - running mean) / running deviation, -5, 5)

    in training, without gradient through r and d, which are 1 and 0 in the first
    `warmup_steps` calls; in inference with running moments in place of the batch's.
    Replicas that share a batch share its moments.

    Args:
        n: of how many networks the inputs are, `[N, B, n]`; None for `[B, n]`.
        momentum: share of the running moments that stays in a call.
        warmup_steps: calls of plain batch normalization.
        **kwargs: of `keras.layers.Layer`.

    Example:
        >>> layer = BatchRenorm()
        >>> layer(np.array([[1.0], [3.0]], np.float32), training=True).numpy().round(2)
        array([[-1.],
               [ 1.]], dtype=float32)

    References:
        Ioffe, 2017, Batch Renormalization, algorithm 1.
    """

    def __init__(
        self,
        n: int | None = None,
        momentum: float = 0.99,
        warmup_steps: int = 100_000,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.n, self.momentum, self.warmup_steps = n, momentum, warmup_steps

    def build(self, input_shape: Any) -> None:
        """Creates weights and moments for a shape `[..., n]`."""
        outer = (1,) if self.n is None else (self.n, 1)
        shape = (*outer, input_shape[-1])
        self.scale = self.add_weight(shape=shape, initializer="ones", name="scale")
        self.bias = self.add_weight(shape=shape, initializer="zeros", name="bias")
        kept = {"trainable": False, "dtype": "float32", "autocast": False}
        self.mean, self.variance, self.count = (
            self.add_weight(shape=shape, initializer=initial, name=name, **kept)
            for name, shape, initial in (
                ("mean", shape, "zeros"),
                ("variance", shape, "ones"),
                ("count", (), "zeros"),
            )
        )
        super().build(input_shape)

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Normalizes `[..., B, n]`."""
        x = tf.cast(inputs, tf.float32)
        known = tf.convert_to_tensor(self.mean), tf.convert_to_tensor(self.variance)
        if training:
            moments = _moments(x)
            r, d = self._corrections(known, moments)
            outputs = (x - moments[0]) * tf.math.rsqrt(moments[1] + 1e-3) * r + d
            for kept, old, new in zip(
                (self.mean, self.variance), known, moments, strict=True
            ):
                kept.assign(old + (1.0 - self.momentum) * (new - old))
            self.count.assign(tf.convert_to_tensor(self.count) + 1.0)
        else:
            outputs = (x - known[0]) * tf.math.rsqrt(known[1] + 1e-3)
        outputs = outputs * tf.cast(self.scale, tf.float32)
        return tf.cast(outputs + tf.cast(self.bias, tf.float32), inputs.dtype)

    def _corrections(self, known: Any, moments: Any) -> tuple[tf.Tensor, tf.Tensor]:
        slope = tf.math.rsqrt(known[1] + 1e-3)
        r = tf.clip_by_value(tf.sqrt(moments[1] + 1e-3) * slope, 1.0 / 3.0, 3.0)
        d = tf.clip_by_value((moments[0] - known[0]) * slope, -5.0, 5.0)
        warm = tf.convert_to_tensor(self.count) >= self.warmup_steps
        r, d = tf.where(warm, r, tf.ones_like(r)), tf.where(warm, d, tf.zeros_like(d))
        return tf.stop_gradient(r), tf.stop_gradient(d)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        known = {"n": self.n, "momentum": self.momentum}
        return {**super().get_config(), **known, "warmup_steps": self.warmup_steps}


def _moments(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance over the rows of all replicas."""
    context = tf.distribute.get_replica_context()
    n_replicas = 1 if context is None else context.num_replicas_in_sync

    def shared(value: tf.Tensor) -> tf.Tensor:
        value = tf.reduce_mean(value, axis=-2, keepdims=True)
        return context.all_reduce("MEAN", value) if n_replicas > 1 else value

    mean = shared(x)
    return mean, shared(tf.square(x - mean))
