"""Batch renormalization: moments of batches, held near those of all that was seen."""

from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="tfrl")
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
