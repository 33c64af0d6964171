"""Running mean and variance as immutable records, safe for large offsets."""

from collections.abc import Iterator, Sequence
from typing import Any, Self

import tensorflow as tf

from tfrl._internal import checks, operands
from tfrl.core import pytree
from tfrl.stats import moment_streams


class RunningMoments(pytree.PyTreeNode):
    """Mean and variance of all values seen so far.

    A batch with weights w, mean b and centred second moment v is merged by

        n' = n + sum(w)
        mean' = mean + (b - mean) * sum(w) / n'
        variance' = (n * variance + sum(w) * v
                     + (b - mean)^2 * n * sum(w) / n') / n'

    which never subtracts two large squares: a mean of 1e6 leaves a variance of 1
    intact. Everything is float64. Before the first update the mean is 0 and the
    variance 1, so that normalising changes nothing.

    A value of which any element is NaN, infinite or beyond 1e150 does not count, as if
    its weight were 0: one such value would leave NaN for ever.

    Attributes:
        count: `[]` float64, sum of the weights seen.
        mean: `shape` float64.
        variance: `shape` float64, divided by `count`, not by `count - 1`.

    Example:
        >>> moments = RunningMoments.create([1]).update([[1.0], [3.0]])
        >>> moments.mean.numpy().tolist(), moments.variance.numpy().tolist()
        ([2.0], [1.0])
        >>> moments.normalize(tf.constant([[3.0]])).numpy().round(3).tolist()
        [[1.0]]

    References:
        Chan, Golub and LeVeque, 1983, Algorithms for Computing the Sample Variance:
        Analysis and Recommendations.
    """

    count: tf.Tensor
    mean: tf.Tensor
    variance: tf.Tensor

    @classmethod
    def create(cls, shape: Sequence[int]) -> Self:
        """Returns moments of nothing yet, for values of `[..., *shape]`."""
        where = "RunningMoments.create"
        kinds = list | tuple | tf.TensorShape
        checks.check_type(where, "shape", shape, kinds, "a sequence of ints")
        shape = checks.check_whole_numbers(where, "shape", [*shape], low=0)
        return cls(
            count=tf.zeros([], tf.float64),
            mean=tf.zeros(shape, tf.float64),
            variance=tf.ones(shape, tf.float64),
        )

    def reset(self) -> Self:
        """Returns moments of nothing yet, for values of the same shape."""
        return type(self).create(self.mean.shape)

    def update(self, values: tf.Tensor, weights: tf.Tensor | None = None) -> Self:
        """Returns the moments after also seeing `values`.

        Args:
            values: `[..., *shape]`, at least one leading axis.
            weights: `[...]`, not negative, how often each value counts; 1 by default.
                A value of weight 0 is not looked at, nor is one that is not finite.

        Returns:
            The merged moments.

        Raises:
            ValueError: if the shapes do not fit, or a weight that is known is negative
                or not finite.
        """
        place = "RunningMoments.update", "values"
        total, batch = moment_streams.usable_moments(
            *place, values, self.mean.shape, weights
        )
        count = self.count + total
        known = moment_streams.Moments(self.mean, self.variance)
        share = tf.math.divide_no_nan(total, count)
        merged = moment_streams.merge_moments(known, batch, share)
        return self.replace(count=count, mean=merged.mean, variance=merged.variance)

    def normalize(
        self, values: tf.Tensor, clip: float | None = 10.0, epsilon: float = 1e-8
    ) -> tf.Tensor:
        """Returns `clip((values - mean) / sqrt(variance + epsilon))`.

        Args:
            values: `[..., *shape]` of any real dtype.
            clip: bound on the absolute result; None for none.
            epsilon: added to the variance.

        Returns:
            `[..., *shape]`, dtype of `values`, or float32 where that is an integer.
        """
        where = "RunningMoments.normalize"
        values = checks.as_tensor(where, "values", values)
        if values.shape.rank is not None:
            operands.axes_before(where, "values", values, self.mean.shape)
        if not isinstance(clip, int | float | None):
            clip = checks.as_tensor(where, "clip", clip, dtype_hint=tf.float64)
        wide, epsilon = _wide(where, values=values, epsilon=epsilon)
        dtype = values.dtype if values.dtype.is_floating else tf.float32
        normalized = moment_streams.standardize(
            wide, self.mean, self.variance, epsilon, clip
        )
        return tf.cast(normalized, dtype)


class ReturnScale(pytree.PyTreeNode):
    """Scales rewards by the spread of the discounted returns they add up to.

        R[t] = rewards[t] + gamma * (1 - ended[t - 1]) * R[t - 1]
        scaled[t] = clip(rewards[t] / sqrt(Var[R] + epsilon))

    Rewards are divided, not centred: shifting them would change what an episode of
    given length is worth. A reward that is NaN or infinite is passed over like an
    invalid row: it is scaled, and nothing is learned from it.

    Attributes:
        moments: `RunningMoments` of all R seen, shape `[]`.
        running_returns: `[N]` float64, R after the last step of each environment.

    Example:
        >>> scale = ReturnScale.create(1)
        >>> ended = tf.constant([[False], [True]])
        >>> valid = tf.constant([[True], [True]])
        >>> scale, scaled = scale(tf.constant([[1.0], [1.0]]), ended, valid, gamma=0.5)
        >>> scaled.numpy().round(3).tolist()
        [[4.0], [4.0]]
        >>> scale.running_returns.numpy().tolist()
        [0.0]

    References:
        Engstrom et al., 2020, Implementation Matters in Deep Policy Gradients,
        section 2, "reward scaling".
    """

    moments: RunningMoments
    running_returns: tf.Tensor

    @classmethod
    def create(cls, n_envs: int) -> Self:
        """Returns the scale of `n_envs` environments that gave no reward yet."""
        checks.check_whole_number("ReturnScale.create", "n_envs", n_envs, low=1)
        return cls(RunningMoments.create([]), tf.zeros([n_envs], tf.float64))

    def reset(self) -> Self:
        """Returns the scale of as many environments that gave no reward yet."""
        return type(self).create(self.running_returns.shape[0])

    def __call__(
        self,
        rewards: tf.Tensor,
        ended: tf.Tensor,
        valid: tf.Tensor,
        *,
        gamma: float,
        clip: float | None = 10.0,
        epsilon: float = 1e-8,
    ) -> tuple[Self, tf.Tensor]:
        """Learns from `rewards` and scales them.

        Args:
            rewards: `[T, N]`.
            ended: `[T, N]` bool, the episode ended with that reward.
            valid: `[T, N]` bool, False rows are passed over, whatever they hold.
            gamma: discount of the returns.
            clip: bound on the absolute scaled reward; None for none.
            epsilon: added to the variance.

        Returns:
            The new scale, and the scaled rewards `[T, N]` in the dtype of `rewards`, or
            float32 where that is an integer.

        Raises:
            ValueError: if the shapes do not fit.
        """
        where = "ReturnScale"
        rewards = checks.as_tensor(where, "rewards", rewards)
        ended = checks.as_tensor(where, "ended", ended, tf.bool)
        valid = checks.as_tensor(where, "valid", valid, tf.bool)
        gamma, epsilon = _wide(where, gamma=gamma, epsilon=epsilon)
        if clip is not None:
            (clip,) = _wide(where, clip=clip)
        expected = [None, *self.running_returns.shape]
        if not rewards.shape.is_compatible_with(expected):
            raise ValueError(
                f"`{where}`: `rewards` expected shape {expected}; got "
                f"{rewards.shape}; a column for each environment of `create`"
            )
        checks.check_same_shape(where, rewards=rewards, ended=ended, valid=valid)

        def step(carry: tuple, row: tuple) -> tuple:
            reward, end, real = row
            returns = tf.where(real, gamma * carry[0] + reward, carry[0])
            return tf.where(end, tf.zeros_like(returns), returns), returns

        wide = tf.cast(rewards, tf.float64)
        known = valid & tf.math.is_finite(wide)
        start = (self.running_returns, tf.zeros_like(self.running_returns))
        carried, returns = tf.scan(step, (wide, ended & valid, known), start)
        moments = self.moments.update(returns, tf.cast(known, tf.float64))
        scaled = wide * tf.math.rsqrt(moments.variance + epsilon)
        if clip is not None:
            scaled = tf.clip_by_value(scaled, -clip, clip)
        dtype = rewards.dtype if rewards.dtype.is_floating else tf.float32
        scaled = tf.cast(scaled, dtype)
        return self.replace(moments=moments, running_returns=carried[-1]), scaled


def _wide(where: str, **given: Any) -> Iterator[tf.Tensor]:
    for name, value in given.items():
        tensor = checks.as_tensor(where, name, value, dtype_hint=tf.float64)
        yield tf.cast(tensor, tf.float64)
