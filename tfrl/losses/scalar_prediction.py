"""Losses for the prediction of a scalar, such as a value, by one or more outputs.

A loss of this kind says what the outputs mean: `loss(pred, target)` trains them,
`loss.calc_expectation(pred)` reads the predicted scalar off them, and `InitialBias`
gives the last layer a bias whose first predictions are sensible:

    keras.layers.Dense(n, kernel_initializer="zeros",
                       bias_initializer=InitialBias(loss))

A `transform` squeezes targets of a large range: the outputs then predict in its image,
while targets and expectations stay in the domain. Here are the base, the square loss
and quantile regression; losses over a grid of values are in `discrete_regression`.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Self, TypeAlias

import keras
import tensorflow as tf

from tfrl._internal import checks, operands, precision
from tfrl.losses import regression
from tfrl.ops import value_transforms

TensorLike: TypeAlias = operands.TensorLike

_OWN = {
    cls.__name__: cls
    for cls in (
        value_transforms.Log1pTransform,
        value_transforms.Sqrt1pTransform,
        value_transforms.SqrtLinearTransform,
    )
}


class ScalarPredictionLoss:
    """Base of the losses for predicting a scalar.

    Subclasses are frozen dataclasses: equal configurations are equal losses. They say
    what `pred` means in `__call__` and `calc_expectation`.

    Example:
        >>> isinstance(SquareLoss(), ScalarPredictionLoss)
        True
    """

    def __call__(self, pred: TensorLike, target: TensorLike) -> tf.Tensor:
        """Returns one loss per element of the batch.

        Args:
            pred: what the model puts out; its meaning is the subclass's.
            target: the scalars to predict, in the untransformed domain.

        Returns:
            `[...]`, the batch shape.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define a loss")

    def calc_expectation(self, pred: TensorLike) -> tf.Tensor:
        """Returns the predicted scalars in the untransformed domain.

        Args:
            pred: what the model puts out.

        Returns:
            `[...]`, the batch shape.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not define an expectation"
        )

    def initial_bias(self, size: int, dtype: Any) -> tf.Tensor:
        """Returns the bias that the layer which puts out `pred` should start from.

        Args:
            size: how many outputs the layer has.
            dtype: a floating dtype.

        Returns:
            `[size]`: zeros, unless the subclass says otherwise.
        """
        return tf.zeros([size], dtype)

    def initialize_bias(self, bias: Any) -> None:
        """Assigns `initial_bias` to a variable.

        The layer's kernel should start from zeros. To do this while the layer is
        built, give the layer `InitialBias(loss)`.

        Args:
            bias: `[n]`, a `tf.Variable` or `keras.Variable`.

        Raises:
            ValueError: if it has another rank.
        """
        where = f"{type(self).__name__}.initialize_bias"
        checks.check_rank(where, "bias", bias, exact=1)
        bias.assign(self.initial_bias(bias.shape[0], bias.dtype))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, for `keras.saving`."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return {field.name: _serialized(getattr(self, field.name)) for field in fields}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Returns the loss of a configuration that `get_config` returned."""
        return cls(**{k: _deserialized(v) for k, v in config.items()})


@keras.saving.register_keras_serializable(package="tfrl")
class InitialBias(keras.initializers.Initializer):
    """Keras initializer of the bias in front of a scalar prediction loss.

    Args:
        loss: the loss that will read the layer's outputs.

    Example:
        >>> loss = SquareLoss()
        >>> layer = keras.layers.Dense(
        ...     1, kernel_initializer="zeros", bias_initializer=InitialBias(loss))
        >>> layer(np.ones([1, 3])).numpy()
        array([[0.]], dtype=float32)
    """

    def __init__(self, loss: ScalarPredictionLoss) -> None:
        expected = "a ScalarPredictionLoss, such as DiscreteRegressionLoss()"
        checks.check_type("InitialBias", "loss", loss, ScalarPredictionLoss, expected)
        self.loss = loss

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> tf.Tensor:
        """Returns the bias.

        Args:
            shape: `(n,)`.
            dtype: a floating dtype; that of `keras.config.floatx()` by default.

        Returns:
            `[n]`.

        Raises:
            ValueError: if `shape` is not of rank 1.
        """
        if len(shape) != 1:
            raise ValueError(
                f"`InitialBias`: `shape` expected rank 1; got {tuple(shape)}"
            )
        if dtype is None:
            dtype = keras.config.floatx()
        return self.loss.initial_bias(shape[0], dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, for `keras.saving`."""
        return {"loss": keras.saving.serialize_keras_object(self.loss)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Returns the initializer of a configuration that `get_config` returned."""
        return cls(keras.saving.deserialize_keras_object(config["loss"]))


@dataclasses.dataclass(frozen=True)
class TransformedLoss(ScalarPredictionLoss):
    """Base of the losses whose outputs predict in the image of a transform.

    Args:
        transform: applied to the target; None leaves it as it is.

    Raises:
        TypeError: if `transform` does not transform in both directions.

    Example:
        >>> TransformedLoss(tf.math.log1p)
        Traceback (most recent call last):
        ...
        TypeError: `TransformedLoss`: `transform` expected an InvertibleTransform or
        None; got <...log1p...>
    """

    transform: value_transforms.InvertibleTransform | None = None

    def __post_init__(self) -> None:
        value_transforms.check_transform(type(self).__name__, self.transform)

    def transformed(self, target: tf.Tensor) -> tf.Tensor:
        """Returns targets in the domain of the prediction, in at least float32."""
        target = precision.widened(target)
        return target if self.transform is None else self.transform.transform(target)

    def restored(self, values: tf.Tensor) -> tf.Tensor:
        """Returns predictions in the domain of the target."""
        if self.transform is None:
            return values
        return self.transform.inverse_transform(values)


@keras.saving.register_keras_serializable(package="tfrl")
@dataclasses.dataclass(frozen=True)
class SquareLoss(TransformedLoss):
    """Squared error of a scalar that the model puts out directly.

        loss = (pred - transform(target))^2
        expectation = inverse_transform(pred)

    Args:
        transform: applied to the target; None leaves it as it is.

    Example:
        >>> SquareLoss()([1.0, 2.0], [3.0, 2.0]).numpy()
        array([4., 0.], dtype=float32)
    """

    def __call__(self, pred: TensorLike, target: TensorLike) -> tf.Tensor:
        """Returns one loss per element.

        Args:
            pred: `[...]`, floating, in the transformed domain.
            target: the shape of `pred`, in the untransformed domain. Gradients flow to
                it as well.

        Returns:
            The shape of `pred`.

        Raises:
            ValueError: if the shapes differ.
            TypeError: if `pred` is not floating, or the dtypes differ.
        """
        pred = operands.leading("SquareLoss", "pred", pred)
        target = operands.equal("SquareLoss", "target", target, "pred", pred)
        errors = precision.widened(pred) - self.transformed(target)
        return tf.cast(tf.square(errors), pred.dtype)

    def calc_expectation(self, pred: TensorLike) -> tf.Tensor:
        """Returns the predicted scalars in the untransformed domain.

        Args:
            pred: `[...]`, floating, in the transformed domain.

        Returns:
            The shape of `pred`.

        Raises:
            TypeError: if `pred` is not floating.
        """
        pred = operands.leading("SquareLoss.calc_expectation", "pred", pred)
        return tf.cast(self.restored(precision.widened(pred)), pred.dtype)


@keras.saving.register_keras_serializable(package="tfrl")
@dataclasses.dataclass(frozen=True)
class QuantileRegressionLoss(TransformedLoss):
    """Huber loss of several quantiles of a scalar.

        loss = multi_quantile_huber_loss(quantiles, transform(target), delta)
        expectation = mean over k of inverse_transform(quantiles[k])

    Gradients flow to the target as well, unlike in the losses over a grid: wrap a
    bootstrapped one in `tf.stop_gradient`.

    Args:
        transform: applied to the target; None leaves it as it is.
        inverse_after_mean: whether the expectation is taken in the transformed domain:
            `inverse_transform(mean over k of quantiles[k])`. That is biased (towards
            0, where the inverse is convex) and less noisy.
        delta: where the parabola of the Huber function ends. 0 gives the exact pinball
            loss, a larger one draws the quantiles towards the mean.

    Raises:
        ValueError: if `delta` is negative.
        TypeError: if `transform` is not one.

    Example:
        >>> loss = QuantileRegressionLoss()
        >>> loss([[0.0, 4.0]], [2.0]).numpy()
        array([0.5], dtype=float32)
        >>> loss.calc_expectation([[0.0, 4.0]]).numpy()
        array([2.], dtype=float32)

    References:
        Dabney, Rowland, Bellemare, Munos (2018), "Distributional Reinforcement Learning
        with Quantile Regression", equation 10.
    """

    inverse_after_mean: bool = False
    delta: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        where = "QuantileRegressionLoss"
        checks.check_within(where, "delta", self.delta, 0.0, math.inf)

    def __call__(self, pred: TensorLike, target: TensorLike) -> tf.Tensor:
        """Returns one loss per element of the batch.

        Args:
            pred: `[..., n]`, floating; element `k` is the quantile at (k + 0.5) / n in
                the transformed domain.
            target: `[...]`, one sample each, or `[..., m]`, m samples each, in the
                untransformed domain.

        Returns:
            `[...]`.

        Raises:
            ValueError: if the shapes do not fit.
            TypeError: if `pred` is not floating, or the dtypes differ.
        """
        pred = operands.leading("QuantileRegressionLoss", "pred", pred, axes=1)
        target = operands.alike(
            "QuantileRegressionLoss", "target", target, "pred", pred
        )
        loss = regression.multi_quantile_huber_loss(
            precision.widened(pred), self.transformed(target), self.delta
        )
        return tf.cast(loss, pred.dtype)

    def calc_expectation(self, quantiles: TensorLike) -> tf.Tensor:
        """Returns the mean of the predicted distributions in the untransformed domain.

        Args:
            quantiles: `[..., n]`, floating, in the transformed domain.

        Returns:
            `[...]`.

        Raises:
            ValueError: if `quantiles` has no axis.
            TypeError: if it is not floating.
        """
        where = "QuantileRegressionLoss.calc_expectation"
        quantiles = operands.leading(where, "quantiles", quantiles, axes=1)
        values = precision.widened(quantiles)
        if self.inverse_after_mean:
            mean = self.restored(tf.reduce_mean(values, axis=-1))
        else:
            mean = tf.reduce_mean(self.restored(values), axis=-1)
        return tf.cast(mean, quantiles.dtype)


def _serialized(value: Any) -> Any:
    """An argument of a loss as data for `keras.saving`."""
    name = type(value).__name__
    if type(value) is _OWN.get(name):
        return {"tfrl_transform": name, **vars(value)}
    return keras.saving.serialize_keras_object(value)


def _deserialized(config: Any) -> Any:
    if isinstance(config, dict) and config.get("tfrl_transform") in _OWN:
        arguments = {k: v for k, v in config.items() if k != "tfrl_transform"}
        return _OWN[config["tfrl_transform"]](**arguments)
    return keras.saving.deserialize_keras_object(config)
