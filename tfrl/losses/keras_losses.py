"""The losses of this room as Keras losses, for `model.compile(loss=...)`."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Self

import keras
import tensorflow as tf

from tfrl.core import records
from tfrl.losses import (
    actor,
    categorical,
    offline,
    policy,
    quantile,
    regression,
    temporal_difference,
)


def as_keras_loss(
    loss: Callable[..., Any],
    *,
    arguments: Mapping[str, Any] | None = None,
    reduction: str | None = "sum_over_batch_size",
    name: str | None = None,
    dtype: Any = None,
) -> keras.losses.Loss:
    """Makes a Keras loss of a loss of a prediction and its target.

        keras_loss(y_true, y_pred) = reduction of loss(y_pred, y_true, **arguments)

    Those of this room that have such a reading:

    - `element_wise_huber_loss`, `element_wise_squared_loss`, `MeanSquaredLoss`,
      `SquareLoss`, `value_loss`, `td_loss`, `expectile_loss`: targets and predictions.
    - `DiscreteRegressionLoss`, `OrderedDiscreteRegressionLoss`: scalars and logits.
    - `QuantileRegressionLoss`, `multi_quantile_huber_loss`, `quantile_td_loss`: scalars
      (or samples of each) and quantiles.
    - `categorical_td_loss`: target probabilities and logits.
    - `policy_gradient_loss`, `advantage_weighted_loss`: advantages and the
      log-probabilities of the actions taken.
    - `q_policy_gradient_loss`, `regret_matching_loss`, `regret_policy_gradient_loss`:
      values of all actions and logits.
    - `deterministic_policy_gradient_loss`: gradients of the critic and actions.

    The others take more tensors than two, or sum over the batch themselves (as
    `classification_loss` does: Keras has its own cross entropies).

    Keras casts both to `dtype`, multiplies by `sample_weight`, applies masks and
    reduces. Where the ranks tell that a last axis of one element is missing or too
    many, `y_true` is reshaped: `[B]` goes with predictions `[B, 1]`, and `[B, 1]` with
    logits or quantiles `[B, n]`. Of a `LossInfo` the loss counts, the rest is dropped.

    The result can be saved with a model. The losses listed above can be loaded again; a
    loss of your own needs `keras.saving.register_keras_serializable`, and `get_config`
    where it is an object.

    Args:
        loss: takes the prediction, then the target, and returns one loss per element:
            `[B]` or `[B, ...]`.
        arguments: further arguments of `loss` by name, such as `{"delta": 0.0}`.
        reduction: how Keras reduces: "sum_over_batch_size", "sum", "mean",
            "mean_with_sample_weight" or None.
        name: what Keras calls it; the name of `loss` by default.
        dtype: the dtype to compute in; `keras.config.floatx()` by default.

    Returns:
        The Keras loss.

    Raises:
        TypeError: if `loss` is a Keras loss already, or cannot be called like that.
        ValueError: when it is called, if `loss` returns a single number for a batch.

    Example:
        >>> huber = {"huber_delta": 1.0}
        >>> loss = as_keras_loss(temporal_difference.td_loss, arguments=huber)
        >>> float(loss(y_true=np.array([1.0, 1.0]), y_pred=np.array([[1.0], [3.0]])))
        0.75
    """
    return _KerasLoss(
        loss, dict(arguments or {}), reduction=reduction, name=name, dtype=dtype
    )


@keras.saving.register_keras_serializable(package="tfrl", name="KerasLoss")
class _KerasLoss(keras.losses.Loss):
    def __init__(
        self,
        loss: Callable[..., Any],
        arguments: dict[str, Any],
        *,
        reduction: str | None,
        name: str | None,
        dtype: Any,
    ) -> None:
        _check_loss(loss, arguments)
        if name is None:
            name = getattr(loss, "__name__", type(loss).__name__)
            name = name if name.isidentifier() else "loss"  # "<lambda>" is no scope
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self._loss = loss
        self._arguments = arguments

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        aligned = _samples if self._loss is quantile.quantile_td_loss else _aligned
        result = self._loss(y_pred, aligned(y_true, y_pred), **self._arguments)
        values = result.loss if isinstance(result, records.LossInfo) else result
        if values.shape.rank == 0 and y_pred.shape.rank != 0:
            raise ValueError(
                f"`as_keras_loss`: `loss` expected one value per element; got a single "
                f"one from `{self.name}` for predictions of shape {y_pred.shape}; use "
                "a loss that leaves the batch to Keras' `reduction`"
            )
        return values

    def get_config(self) -> dict[str, Any]:
        own = {"loss": self._loss, "arguments": self._arguments, "dtype": self.dtype}
        return super().get_config() | keras.saving.serialize_keras_object(own)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        # Not of `name`: for the name of a custom object Keras would give the object.
        own = {name: config[name] for name in ("loss", "arguments", "dtype")}
        try:
            return cls(**config | keras.saving.deserialize_keras_object(own))
        except TypeError as error:
            kind, given = config["loss"]["class_name"], config["loss"]["config"]
            name = given if kind == "function" else kind
            raise TypeError(
                "`as_keras_loss`: `loss` expected a loss that its documentation lists, "
                f"or one that Keras knows; got {name!r}; decorate it with "
                "keras.saving.register_keras_serializable(), or load with "
                "custom_objects={name: loss}"
            ) from error


def _check_loss(loss: Any, arguments: Mapping[str, Any]) -> None:
    if isinstance(loss, keras.losses.Loss) or not callable(loss):
        raise TypeError(
            "`as_keras_loss`: `loss` expected a function of a prediction and a target; "
            f"got {loss!r}; give a loss of tfrl.losses or one that takes both"
        )
    try:
        inspect.signature(loss).bind(None, None, **arguments)
    except TypeError as error:
        raise TypeError(
            "`as_keras_loss`: `loss` expected to take a prediction, a target and "
            f"{sorted(arguments)}; got {loss!r}: {error}; see `arguments`"
        ) from error


def _aligned(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    """Targets with a last axis of one element added or dropped where ranks tell so."""
    true, pred = y_true.shape, y_pred.shape
    if not (true.rank and pred.rank):
        return y_true
    if true.rank == pred.rank - 1 and pred[-1] == 1:
        return y_true[..., tf.newaxis]
    spare = true[-1] == 1 and pred[-1] not in (1, None) and true.rank == pred.rank
    if spare or (true[-1] == 1 and true.rank == pred.rank + 1):
        return tf.squeeze(y_true, axis=-1)
    return y_true


def _samples(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:  # noqa: ARG001
    """Targets `[B, ...]` with an axis of samples, which `[B]` lack."""
    return y_true[:, tf.newaxis] if y_true.shape.rank == 1 else y_true


for _loss in (
    actor.deterministic_policy_gradient_loss,
    categorical.categorical_td_loss,
    offline.advantage_weighted_loss,
    policy.policy_gradient_loss,
    policy.q_policy_gradient_loss,
    policy.regret_matching_loss,
    policy.regret_policy_gradient_loss,
    policy.value_loss,
    quantile.quantile_td_loss,
    regression.element_wise_huber_loss,
    regression.element_wise_squared_loss,
    regression.multi_quantile_huber_loss,
    temporal_difference.expectile_loss,
    temporal_difference.td_loss,
):
    keras.saving.register_keras_serializable(package="tfrl")(_loss)
