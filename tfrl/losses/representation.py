"""Losses that shape representations without labels."""

import math
from typing import Any

import keras
import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import initializers

_SERIALIZABLE = keras.saving.register_keras_serializable(package="tfrl")
_WHERE = "AsymmetricSimSiamLoss"


@_SERIALIZABLE
class AsymmetricSimSiamLoss(keras.layers.Layer):
    """One minus the cosine between a predicted and a target representation.

        z    = stop_gradient(proj_net(target))
        p    = pred_net(proj_net(pred))
        loss = 1 - <p, z> / (max(|p|, eps) max(|z|, eps))

    Asymmetric: only `pred` gets gradients. Being a Keras layer, it brings its networks'
    weights to whatever model holds it: call it in a model and hand the mean to
    `add_loss`, or train `trainable_variables` in a loop of your own. As with any Keras
    layer, batch normalization uses and learns batch statistics under `training=True`
    only: pass it, or call the layer in a model whose own `call` takes `training`, which
    `model.fit` then sets. A training call learns from the targets first and from the
    predictions after; under a strategy each replica learns from its own part.

    The networks by default, on flattened inputs (dense layers that a normalization
    follows have no bias; momentum 0.9, epsilon 1e-5, and the running variance is
    corrected for the size of the batch, n / (n - 1)):

        proj_net  dense, batch norm, relu, dense, batch norm, relu, dense[, batch norm]
        pred_net  dense, batch norm, relu, dense

    Args:
        proj_net: Keras layer or model from `[B, ...]` to `[B, D]`.
        pred_net: Keras layer or model from `[B, D]` to `[B, D]`.
        input_size: how many numbers a representation has; needed without `proj_net`.
        proj_hidden_size: width of the hidden layers of the default `proj_net`.
        pred_hidden_size: width of the hidden layer of the default `pred_net`.
        output_size: D of the default networks.
        proj_last_use_bn: whether the default `proj_net` ends in batch normalization.
        eps: least length that vectors are divided by.
        fixed_weight_norm: whether the matrices of default networks keep the Frobenius
            norm of their (orthogonal) initial values: a Keras constraint, which Keras
            optimizers apply after each step.
        lr: learning rate meant for these weights, or None for that of the rest. Keras
            optimizers have one rate: the layer only keeps it as `lr`, for whoever
            gives `trainable_variables` an optimizer of their own.
        debug_summaries: whether to write, under the name of the layer, `loss` and the
            spread of the unit vectors `p` and `z` (`prediction_std`, `target_std`:
            about 1 / sqrt(D) when healthy, 0 when collapsed) by `tf.summary`, where a
            default writer and step are set. XLA cannot compile that.
        name: of the layer.
        seed: of the initial weights of default networks.
        **kwargs: of `keras.layers.Layer`: `dtype`, `trainable`.

    Raises:
        ValueError: if neither `proj_net` nor `input_size` is given, or a size, `eps`
            or `lr` is not positive.
        TypeError: if a network is not a Keras layer.

    Example:
        >>> loss_fn = AsymmetricSimSiamLoss(input_size=6, output_size=3)
        >>> pred, target = tf.ones([4, 2, 6]), tf.random.normal([4, 2, 6])
        >>> loss_fn(pred, target, training=True).shape
        TensorShape([4, 2])
        >>> len(loss_fn.trainable_variables)
        13

    References:
        Chen and He, 2021, Exploring Simple Siamese Representation Learning, eq. 1.
    """

    def __init__(
        self,
        proj_net: keras.layers.Layer | None = None,
        pred_net: keras.layers.Layer | None = None,
        input_size: int | None = None,
        proj_hidden_size: int = 256,
        pred_hidden_size: int = 128,
        output_size: int = 256,
        proj_last_use_bn: bool = False,
        eps: float = 1e-5,
        fixed_weight_norm: bool = False,
        lr: float | None = None,
        debug_summaries: bool = True,
        name: str = "SimSiamLoss",
        *,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        _check_networks(proj_net, pred_net, input_size)
        positive = {
            "input_size": input_size,
            "proj_hidden_size": proj_hidden_size,
            "pred_hidden_size": pred_hidden_size,
            "output_size": output_size,
            "eps": eps,
            "lr": lr,
        }
        for argument, value in positive.items():
            if value is not None or argument not in ("input_size", "lr"):
                checks.check_positive(_WHERE, argument, value)
        super().__init__(name=name, **kwargs)
        self._config = {
            **positive,
            "proj_last_use_bn": proj_last_use_bn,
            "fixed_weight_norm": fixed_weight_norm,
            "debug_summaries": debug_summaries,
            "seed": seed,
        }
        self._default_nets = {
            "proj_net": proj_net is None,
            "pred_net": pred_net is None,
        }
        self.eps = eps
        self.lr = lr
        self.debug_summaries = debug_summaries
        self._input_size = input_size if proj_net is None else None
        hidden = [proj_hidden_size, proj_hidden_size]
        style = {"fixed_norm": fixed_weight_norm, "dtype": self.dtype_policy}
        if proj_net is None:
            widths = [input_size, *hidden, output_size]
            proj_net = _perceptron(
                widths, proj_last_use_bn, name="proj_net", seed=seed, **style
            )
        if pred_net is None:
            widths = [output_size, pred_hidden_size, output_size]
            pred_net = _perceptron(
                widths, False, name="pred_net", seed=seed + 3, **style
            )
        self.proj_net = proj_net
        self.pred_net = pred_net

    def build(self, pred_shape: Any, target_shape: Any) -> None:
        """Creates the weights of networks that have none yet."""
        _check_shapes(pred_shape, target_shape)
        inputs = (None, *self._features(pred_shape))
        if not self.proj_net.built:
            self.proj_net.build(inputs)
        projected = self.proj_net.compute_output_shape(inputs)
        if not self.pred_net.built:
            self.pred_net.build(projected)
        predicted = self.pred_net.compute_output_shape(projected)
        if tuple(predicted) != tuple(projected) or len(projected) != 2:
            raise ValueError(
                f"`{_WHERE}`: `pred_net` expected to map [B, D] to [B, D]; got "
                f"{list(projected)} to {list(predicted)}"
            )
        super().build((pred_shape, target_shape))

    def call(self, pred: Any, target: Any, training: bool | None = None) -> Any:
        """Computes the loss of each pair.

        Args:
            pred: `[B, T, ...]`, predicted representations.
            target: `[B, T, ...]`, what they should have been.
            training: whether batch normalization uses and learns batch statistics.

        Returns:
            `[B, T]` in [0, 2], in float32, or float64 where the layer computes in it.

        Raises:
            ValueError: if the shapes differ, or in training a batch has one row only,
                which has no variance.
        """
        _check_shapes(pred.shape, target.shape)
        if training and tuple(pred.shape[:2]) == (1, 1):
            raise ValueError(
                f"`{_WHERE}`: `pred` expected at least 2 rows in training; got shape "
                f"{list(pred.shape)}; give a larger batch or training=False"
            )
        rows = (-1, *self._features(pred.shape))
        # The order decides which batch statistics are learned first.
        goals = self.proj_net(keras.ops.reshape(target, rows), training=training)
        goals = keras.ops.stop_gradient(goals)
        features = self.proj_net(keras.ops.reshape(pred, rows), training=training)
        predictions = self.pred_net(features, training=training)
        goals, predictions = _unit(goals, self.eps), _unit(predictions, self.eps)
        losses = 1 - keras.ops.sum(predictions * goals, axis=-1)
        if self.debug_summaries and tf.summary.experimental.get_step() is not None:
            # Keras calls a layer in the scope of its name.
            tf.summary.scalar("loss", tf.reduce_mean(losses))
            for tag, x in (("prediction_std", predictions), ("target_std", goals)):
                spread = tf.reduce_mean(tf.math.reduce_std(x, axis=0))
                tf.summary.scalar(tag, spread)
        return keras.ops.reshape(losses, keras.ops.shape(pred)[:2])

    def _features(self, shape: Any) -> tuple[int, ...]:
        """The shape of one row for `proj_net`: flat for the default network."""
        features = tuple(shape[2:])
        if self._input_size is None:
            return features
        if math.prod(features) != self._input_size:
            raise ValueError(
                f"`{_WHERE}`: `pred` expected [B, T, ...] with `input_size` "
                f"{self._input_size} numbers each; got {list(shape)}"
            )
        return (self._input_size,)

    def compute_output_shape(
        self, pred_shape: Any, target_shape: Any
    ) -> tuple[int | None, ...]:
        """Returns `(B, T)`."""
        _check_shapes(pred_shape, target_shape)
        self._features(pred_shape)
        return tuple(pred_shape[:2])

    def compute_output_spec(
        self, pred: Any, target: Any, training: bool | None = None
    ) -> keras.KerasTensor:
        """Returns shape and dtype of the losses."""
        del training
        shape = self.compute_output_shape(pred.shape, target.shape)
        return keras.KerasTensor(shape, _wide(self.compute_dtype))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments; networks given by their own configs."""
        networks = {
            key: None if default else keras.saving.serialize_keras_object(net)
            for (key, default), net in zip(
                self._default_nets.items(), (self.proj_net, self.pred_net), strict=True
            )
        }
        return {**super().get_config(), **networks, **self._config}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "AsymmetricSimSiamLoss":
        """Makes a layer from what `get_config` returned."""
        config = dict(config)
        for key in ("proj_net", "pred_net"):
            if config.get(key) is not None:
                config[key] = keras.saving.deserialize_keras_object(config[key])
        return cls(**config)


@_SERIALIZABLE
class _SampleBatchNormalization(keras.layers.BatchNormalization):
    """Batch normalization whose running variance has no bias by the batch's size."""

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        kept = keras.ops.convert_to_tensor(self.moving_variance) * self.momentum
        outputs = super().call(inputs, training=training, mask=mask)
        if training and self.trainable:
            rows = keras.ops.cast(keras.ops.shape(inputs)[0], kept.dtype)
            correction = rows / keras.ops.maximum(rows - 1, 1)
            learned = self.moving_variance - kept
            self.moving_variance.assign(kept + learned * correction)
        return outputs


def _perceptron(
    widths: list[Any],
    last_norm: bool,
    fixed_norm: bool,
    dtype: Any,
    name: str,
    seed: int,
) -> keras.Sequential:
    """Dense layers, those before the last with batch normalization and relu."""
    layers: list[keras.layers.Layer] = []
    last = len(widths) - 2
    for index, (size, units) in enumerate(zip(widths, widths[1:], strict=False)):
        gain = 1.0 if index == last else math.sqrt(2.0)
        # The norm of a matrix with orthonormal rows or columns times the gain.
        norm = gain * math.sqrt(min(size, units))
        normalized = last_norm or index < last
        kept = keras.constraints.MinMaxNorm(norm, norm, axis=None)
        layers.append(
            keras.layers.Dense(
                units,
                use_bias=not normalized,
                kernel_initializer=initializers.Orthogonal(gain, seed + index),
                kernel_constraint=kept if fixed_norm else None,
                dtype=dtype,
                name=f"dense_{index}",
            )
        )
        if normalized:
            options = {"momentum": 0.9, "epsilon": 1e-5, "dtype": dtype}
            norm_layer = _SampleBatchNormalization(name=f"norm_{index}", **options)
            layers.append(norm_layer)
        if index < last:
            layers.append(keras.layers.ReLU(dtype=dtype, name=f"relu_{index}"))
    network = keras.Sequential(layers, name=name)
    network.build((None, widths[0]))
    return network


def _wide(dtype: Any) -> str:
    return keras.backend.result_type(dtype, "float32")


def _unit(vectors: Any, eps: float) -> Any:
    """`x / max(|x|, eps)` over the last axis, in float32 at least."""
    vectors = keras.ops.cast(vectors, _wide(vectors.dtype))
    # Squares of what has been divided by its largest entry cannot overflow.
    largest = keras.ops.max(keras.ops.abs(vectors), axis=-1, keepdims=True)
    scale = keras.ops.stop_gradient(keras.ops.maximum(largest, eps))
    scaled = vectors / scale
    squares = keras.ops.sum(scaled * scaled, axis=-1, keepdims=True)
    return scaled * keras.ops.rsqrt(keras.ops.maximum(squares, (eps / scale) ** 2))


def _check_networks(proj_net: Any, pred_net: Any, input_size: int | None) -> None:
    for name, net in (("proj_net", proj_net), ("pred_net", pred_net)):
        kinds = (keras.layers.Layer, type(None))
        checks.check_type(_WHERE, name, net, kinds, "a Keras layer or model")
    if proj_net is None and input_size is None:
        raise ValueError(
            f"`{_WHERE}`: `input_size` expected where `proj_net` is None; got None"
        )


def _check_shapes(pred_shape: Any, target_shape: Any) -> None:
    pred, target = tf.TensorShape(pred_shape), tf.TensorShape(target_shape)
    if pred.rank is None or pred.rank < 3 or not pred.is_compatible_with(target):
        raise ValueError(
            f"`{_WHERE}`: `pred` and `target` expected one shape [B, T, ...]; "
            f"got {pred} and {target}"
        )
