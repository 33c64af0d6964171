"""PopArt: targets of any size, normalised, and outputs that stay what they were."""

from collections.abc import Sequence
from typing import Any, Self

import tensorflow as tf

from tfrl._internal import checks, operands, precision
from tfrl.core import pytree
from tfrl.stats import moment_streams


class PopArt(pytree.PyTreeNode):
    """Running scale of targets, by which a network learns them normalised.

    Adaptively rescaling targets (Art) follows their moments at a given rate,

        mean' = (1 - rate) * mean + rate * E[targets]
        square' = (1 - rate) * square + rate * E[targets^2]
        std = clip(sqrt(square - mean^2), low, high)

    and preserving outputs precisely (Pop) moves the last layer of the network along, so
    that `denormalize` of its outputs is what it was:

        kernel' = kernel * std / std'
        bias'   = (std * bias + mean - mean') / std'

    The variance is kept, not the square, in float64: a mean of 1e6 leaves a deviation
    of 1 intact. It begins with mean 0 and deviation 1. A target that is NaN, infinite
    or beyond 1e150 does not count, nor do the others of its row of K.

    An update of critics then is

        after = scale.update(targets, rate)
        kernel, bias = after.preserved(kernel, bias, scale)
        loss = td_loss(network(observations), after.normalize(targets))

    Attributes:
        mean: `shape` float64.
        variance: `shape` float64, of the targets, not clipped.
        low: least deviation.
        high: greatest deviation.

    Example:
        >>> scale = PopArt.create([1])
        >>> after = scale.update([[0.0], [20.0]], rate=0.5)
        >>> after.mean.numpy().tolist(), after.variance.numpy().tolist()
        ([5.0], [75.5])
        >>> kernel, bias = tf.constant([[2.0]]), tf.constant([1.0])
        >>> kernel, bias = after.preserved(kernel, bias, scale)
        >>> after.denormalize(tf.constant([[3.0]]) @ kernel + bias).numpy().round(4)
        array([[7.]], dtype=float32)

    References:
        Van Hasselt et al., 2016, Learning values across many orders of magnitude;
        Hessel et al., 2019, Multi-task Deep Reinforcement Learning with PopArt, one
        scale for each of several outputs.
    """

    mean: tf.Tensor
    variance: tf.Tensor
    low: float = pytree.nonpytree_field(default=1e-4)
    high: float = pytree.nonpytree_field(default=1e6)

    @classmethod
    def create(
        cls, shape: Sequence[int] = (), low: float = 1e-4, high: float = 1e6
    ) -> Self:
        """Returns the scale of targets of which none is known.

        Args:
            shape: `()` where all outputs share a scale, `[K]` of K outputs each with
                its own.
            low: least deviation, positive.
            high: greatest deviation, at least `low`.

        Raises:
            ValueError: if a number is outside its range.
        """
        where = "PopArt.create"
        kinds = list | tuple | tf.TensorShape
        checks.check_type(where, "shape", shape, kinds, "a sequence of ints")
        shape = checks.check_whole_numbers(where, "shape", [*shape], low=0)
        checks.check_positive(where, "low", low)
        checks.check_within(where, "high", high, low, float("inf"))
        zeros, ones = tf.zeros(shape, tf.float64), tf.ones(shape, tf.float64)
        return cls(zeros, ones, float(low), float(high))

    @property
    def std(self) -> tf.Tensor:
        """The deviation that values are divided by, `shape` float64."""
        return tf.clip_by_value(tf.sqrt(self.variance), self.low, self.high)

    def update(self, targets: Any, rate: Any, weights: Any = None) -> Self:
        """Returns the scale after a batch of targets.

        Args:
            targets: `[..., *shape]`, at least one leading axis, of any real dtype.
            rate: share of the batch in the new moments, in [0, 1].
            weights: `[...]`, not negative, how much each target counts; 1 by default.
                A batch of which nothing counts changes nothing.

        Raises:
            ValueError: if the shapes do not fit, `rate` is outside [0, 1], or a weight
                that is known is negative or not finite.
        """
        where = "PopArt.update"
        checks.check_within(where, "rate", rate, 0.0, 1.0)
        total, batch = moment_streams.usable_moments(
            where, "targets", targets, self.mean.shape, weights
        )
        share = tf.where(total > 0, precision.number(rate, tf.float64), 0.0)
        known = moment_streams.Moments(self.mean, self.variance)
        merged = moment_streams.merge_moments(known, batch, share)
        return self.replace(
            mean=tf.stop_gradient(merged.mean),
            variance=tf.stop_gradient(merged.variance),
        )

    def normalize(self, values: Any) -> tf.Tensor:
        """Returns `(values - mean) / std`, in the dtype of `values`.

        Args:
            values: `[..., *shape]`, floating.
        """
        values = self._checked("normalize", values)
        return tf.cast(
            (tf.cast(values, tf.float64) - self.mean) / self.std, values.dtype
        )

    def denormalize(self, values: Any) -> tf.Tensor:
        """Returns `std * values + mean`, in the dtype of `values`.

        Args:
            values: `[..., *shape]`, floating: what a network says.
        """
        values = self._checked("denormalize", values)
        return tf.cast(self.std * tf.cast(values, tf.float64) + self.mean, values.dtype)

    def preserved(
        self, kernel: Any, bias: Any, before: "PopArt"
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the last layer with which denormalised outputs stay what they were.

        Args:
            kernel: `[..., K]`, of a dense layer that said what `before` denormalised.
            bias: `[K]`.
            before: the scale before the update; of shape `()` or `[K]`, as this one.

        Returns:
            Kernel and bias in their dtypes. Assign them to the layer; moments that an
            optimizer keeps of them stay as they are.

        Raises:
            ValueError: if shapes do not fit.
        """
        where = "PopArt.preserved"
        checks.check_type(where, "before", before, PopArt, "a PopArt")
        checks.check_same_shape(where, mean=self.mean, before=before.mean)
        kernel = operands.floating(where, "kernel", kernel)
        bias = operands.floating(where, "bias", bias)
        checks.check_rank(where, "bias", bias, exact=1)
        if not kernel.shape[-1:].is_compatible_with(bias.shape):
            raise ValueError(
                f"`{where}`: `kernel` expected shape [..., K] beside `bias` "
                f"{bias.shape.as_list()}; got {kernel.shape}"
            )
        for name, tensor in (("kernel", kernel), ("bias", bias)):
            operands.axes_before(where, name, tensor, self.mean.shape)
        ratio = before.std / self.std
        moved = before.std * tf.cast(bias, tf.float64) + before.mean - self.mean
        kernel = tf.cast(tf.cast(kernel, tf.float64) * ratio, kernel.dtype)
        return kernel, tf.cast(moved / self.std, bias.dtype)

    def _checked(self, method: str, values: Any) -> tf.Tensor:
        where = f"PopArt.{method}"
        values = operands.floating(where, "values", values)
        operands.axes_before(where, "values", values, self.mean.shape)
        return values
