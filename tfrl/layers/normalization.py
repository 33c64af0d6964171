"""Normalization by running moments, as a Keras layer."""

import functools
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import arguments, checks, operands
from tfrl.stats import moment_streams

_RULES: dict[str, moment_streams.Rule] = {
    "update_rate": "exponential",
    "speed": "adaptive",
    "window_size": "window",
}
_NAMES = ("count", "mass", "mean", "variance", "window_mean", "window_variance")


@keras.saving.register_keras_serializable("tfrl")
class RunningNormalization(keras.layers.Layer):
    """Normalizes by the moments of the batches seen in training.

        y = (x - mean) / sqrt(variance + variance_epsilon)

    Called with `training=True` (in `fit` too) it learns from the batch first, and
    normalizes by what it knows then; otherwise, and with `trainable=False` as of
    `keras.layers.BatchNormalization`, it only normalizes. The mathematics is
    that of `tfrl.stats.EMNormalizer`, `AdaptiveNormalizer` and `WindowNormalizer`: the
    same moments, centred and in float64, from the same batches. They are weights that
    do not train: saved, exported, and equal on all replicas of a strategy, which learn
    from the global batch.

    Until the first batch mean and variance are taken for 0 and 1: the layer returns
    what it is given. (`tfrl.stats.Normalizer.normalize`, as the library it comes from,
    divides by sqrt(variance_epsilon) then.) A batch that holds NaN or an infinity is
    normalized, and not learned from.

    A Keras mask says which rows, such as steps of padded sequences, count: what it
    leaves out is normalized, passed on with the mask, and neither learned from nor
    looked at, as by `keras.layers.BatchNormalization`. A batch that it leaves out
    altogether changes nothing.

    Inputs keep their precision up to the difference from the mean, whatever the dtype
    policy; the result has the compute dtype.

    Args:
        update_rate: weigh batches exponentially, by this share in (0, 1].
        speed: weigh batch t of T by about `(t / T)^(speed - 1)`; 8.0 if neither this
            nor the others are given, 1.0 for the plain average.
        window_size: use that many last batches alone.
        feature_axes: number of trailing axes whose elements have moments of their own;
            the axes before them are batch axes.
        zero_mean: whether to subtract the mean.
        unit_std: whether to take the standard deviation for 1.
        variance_epsilon: added to the variance.
        clip_value: bound on the absolute result if positive; None for none.
        **kwargs: as of `keras.layers.Layer`.

    Raises:
        ValueError: if more than one of `update_rate`, `speed` and `window_size` is
            given, a number is outside its range, or `unit_std` is on without
            `zero_mean`; at a call, if the shape does not fit, or a mask has axes that
            are not batch axes.
        TypeError: if a number is none; at a call, if `inputs` are not one floating
            tensor.

    Example:
        >>> layer = RunningNormalization(speed=1.0)
        >>> layer(np.array([[1.0], [3.0]], np.float32), training=True).numpy()
        array([[-1.],
               [ 1.]], dtype=float32)
        >>> [weight.name for weight in layer.weights]
        ['count', 'mass', 'mean', 'variance']
    """

    def __init__(
        self,
        update_rate: float | None = None,
        speed: float | None = None,
        window_size: int | None = None,
        feature_axes: int = 1,
        zero_mean: bool = True,
        unit_std: bool = False,
        variance_epsilon: float = 1e-10,
        clip_value: float | None = -1.0,
        **kwargs: Any,
    ) -> None:
        # The difference from the mean must not be taken in float16.
        super().__init__(autocast=False, **kwargs)
        settings = {
            "update_rate": update_rate,
            "speed": speed,
            "window_size": window_size,
        }
        given = {name: value for name, value in settings.items() if value is not None}
        if len(given) > 1:
            raise ValueError(
                "`RunningNormalization`: `update_rate`, `speed` and `window_size` "
                f"expected one of them at most; got {given}"
            )
        if unit_std and not zero_mean:
            raise ValueError(
                "`RunningNormalization`: `zero_mean` expected to be True where "
                "`unit_std` is; got False"
            )
        where = "RunningNormalization"
        numbers = {**given, "variance_epsilon": variance_epsilon}
        numbers |= {} if clip_value is None else {"clip_value": clip_value}
        for name, number in numbers.items():
            arguments.check_number(where, name, number, -np.inf, np.inf)
        checks.check_whole_number(where, "feature_axes", feature_axes, low=0)
        checks.check_within(where, "variance_epsilon", variance_epsilon, 0, np.inf)
        ((name, setting),) = (given or {"speed": 8.0}).items()
        self._rule, self._setting = _RULES[name], setting
        self._start(shape=[])  # checks the setting
        self.update_rate = update_rate
        self.speed = setting if name == "speed" else None
        self.window_size = window_size
        self.feature_axes = feature_axes
        self.zero_mean = zero_mean
        self.unit_std = unit_std
        self.variance_epsilon = variance_epsilon
        self.clip_value = clip_value
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        """Creates the weights for inputs of `input_shape`."""
        checks.check_one_shape("RunningNormalization", "inputs", input_shape)
        rank = len(input_shape)
        if rank < self.feature_axes:
            raise ValueError(
                "`RunningNormalization`: `inputs` expected rank of at least "
                f"{self.feature_axes}; got shape {input_shape}; lower `feature_axes`"
            )
        shape = list(input_shape[rank - self.feature_axes :])
        if None in shape:
            raise ValueError(
                "`RunningNormalization`: `inputs` expected known feature dimensions; "
                f"got shape {input_shape}"
            )
        axes = dict(zip(range(-len(shape), 0), shape, strict=True))
        self.input_spec = keras.InputSpec(min_ndim=len(shape), axes=axes)
        stream = self._start(shape)
        # Behind a function: Keras would wrap the containers to track them.
        template = tf.nest.map_structure(lambda _: 0, stream)
        self._pack = functools.partial(tf.nest.pack_sequence_as, template)
        for leaf, name in zip(tf.nest.flatten(stream), _NAMES, strict=False):
            weight = self.add_weight(
                shape=leaf.shape,
                dtype=leaf.dtype.name,
                initializer="zeros",
                trainable=False,
                autocast=False,
                # Replicas compute the same: nothing is left to agree upon.
                aggregation="only_first_replica",
                name=name,
            )
            # `tf.train.Checkpoint` finds no others than those in attributes.
            setattr(self, name, weight)

    def call(
        self, inputs: Any, training: bool | None = None, mask: Any = None
    ) -> tf.Tensor:
        """Learns from `[..., *features]` in training, and normalizes it.

        Args:
            inputs: floating.
            training: whether to learn.
            mask: bools of the first batch axes of `inputs`, False for what does not
                count; None where all does.

        Returns:
            The shape of `inputs`.
        """
        where = "RunningNormalization"
        inputs = operands.floating(where, "inputs", inputs)
        inputs = self._ensured(inputs)
        stream = self._pack([tf.convert_to_tensor(w.value) for w in self.weights])
        if training and self.trainable:
            rows = self._row_weights(mask, inputs)
            stream = moment_streams.advance_moment_stream(
                stream, [inputs], self._rule, self._setting, rows, where
            )
            for weight, new in zip(self.weights, tf.nest.flatten(stream), strict=True):
                weight.assign(new)
        (outputs,) = stream.normalize(
            [inputs],
            self.variance_epsilon,
            self.clip_value,
            zero_mean=self.zero_mean,
            unit_std=self.unit_std,
        )
        return tf.cast(outputs, self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of the inputs."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Everything `from_config` needs."""
        own: tuple[str, ...] = (
            "update_rate",
            "speed",
            "window_size",
            "feature_axes",
            "zero_mean",
        )
        own += ("unit_std", "variance_epsilon", "clip_value")
        return super().get_config() | {name: getattr(self, name) for name in own}

    def _ensured(self, inputs: tf.Tensor) -> tf.Tensor:
        """The inputs, of which the run checks the features that are not known yet."""
        features = self.mean.shape
        known = inputs.shape
        if known.rank is None or known[known.rank - len(features) :] == features:
            return inputs
        shape = [*known[: known.rank - len(features)], *features]
        return tf.ensure_shape(inputs, shape, name="RunningNormalization_inputs")

    def _row_weights(self, mask: Any, inputs: tf.Tensor) -> tf.Tensor | None:
        if mask is None:
            return None
        mask = checks.as_tensor("RunningNormalization", "mask", mask)
        n_rows = inputs.shape.rank - self.feature_axes
        rows = inputs.shape[:n_rows]
        if mask.shape.rank is None or mask.shape.rank > n_rows:
            raise ValueError(
                "`RunningNormalization`: `mask` expected the first of the batch axes "
                f"{rows} of `inputs`; got {mask.shape}; lower `feature_axes`"
            )
        shape = tf.concat([tf.shape(mask), [1] * (n_rows - mask.shape.rank)], axis=0)
        mask = tf.reshape(mask, shape)
        return tf.broadcast_to(mask, tf.shape(inputs)[:n_rows])

    def _start(self, shape: list[int]) -> moment_streams.MomentStream:
        return moment_streams.start_moment_stream(
            [shape], self._rule, self._setting, where="RunningNormalization"
        )
