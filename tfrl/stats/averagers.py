"""Moving averages of nests of tensors, kept in variables.

Each is a `tf.Module`: it checkpoints, exports, and updates eagerly, in `tf.function`,
under XLA and in the replicas of a strategy, where all take in the global batch. A batch
that holds NaN or an infinity, in any leaf, is passed over: the average stays as it was,
and goes on with the next.
"""

from typing import Any

import tensorflow as tf

from tfrl._internal import checks, operands
from tfrl.core import specs
from tfrl.stats import moment_streams


def average_outer_dims(tensor: Any, spec: Any) -> tf.Tensor:
    """Returns the mean over the axes that a tensor has in front of its spec's.

    Args:
        tensor: `[..., *spec.shape]`, floating.
        spec: anything with a `shape`.

    Returns:
        `spec.shape`, dtype of `tensor`; without leading axes the tensor itself.

    Raises:
        TypeError: if `tensor` is not floating, or `spec` has no shape.
        ValueError: if its shape does not end in that of the spec.

    Example:
        >>> average_outer_dims(tf.constant([[1.0], [2.0]]), tf.TensorSpec([1])).numpy()
        array([1.5], dtype=float32)
    """
    tensor = operands.floating("average_outer_dims", "tensor", tensor)
    if not hasattr(spec, "shape"):
        raise TypeError(
            "`average_outer_dims`: `spec` expected something with a `shape`; got "
            f"{type(spec).__name__}"
        )
    outer = operands.axes_before("average_outer_dims", "tensor", tensor, spec.shape)
    wide = tf.cast(tensor, tf.float64)  # float16 sums overflow
    return tf.cast(tf.reduce_mean(wide, list(range(outer))), tensor.dtype)


class Running(tf.Module):
    """What averagers and normalizers share: a `MomentStream` of a nest, in variables.

    In a replica of `tf.distribute` an update takes in the global batch, so that all
    replicas stay equal.
    """

    def __init__(
        self,
        tensor_spec: Any,
        rule: moment_streams.Rule,
        setting: Any,
        *,
        with_variance: bool,
        name: str,
    ) -> None:
        super().__init__(name=name)
        where = type(self).__name__
        for spec in tf.nest.flatten(tensor_spec):
            specs.check_spec(where, "tensor_spec", spec)
            checks.check_known_shape(where, "tensor_spec", spec)
            checks.check_floating(where, "tensor_spec", spec)
        shapes = [list(spec.shape) for spec in tf.nest.flatten(tensor_spec)]
        self._rule = rule
        self._setting = setting
        # Behind functions: TensorFlow would wrap the containers to track them.
        self._spec = lambda: tensor_spec
        self._start = lambda: moment_streams.start_moment_stream(
            shapes, rule, setting, with_variance, where
        )
        stream = self._start()
        template = tf.nest.map_structure(lambda _: 0, stream)
        self._pack = lambda leaves: tf.nest.pack_sequence_as(template, leaves)
        self._kept = [
            tf.Variable(
                leaf,
                trainable=False,
                # Replicas compute the same: nothing is left to agree upon.
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            for leaf in tf.nest.flatten(stream)
        ]

    def _stream(self) -> moment_streams.MomentStream:
        return self._pack([tf.convert_to_tensor(kept) for kept in self._kept])

    def reset(self) -> None:
        """Forgets all batches: what follows is as after the constructor."""
        for kept, new in zip(self._kept, tf.nest.flatten(self._start()), strict=True):
            kept.assign(new)

    def update(self, tensor: Any) -> None:
        """Takes in one more batch; no gradient flows back.

        Args:
            tensor: nest of `[..., *spec.shape]`, floating. However many leading axes
                there are, it counts as one batch.

        Raises:
            TypeError: if a leaf is not floating.
            ValueError: if the nest or a shape does not fit the spec.
        """
        self._advanced(tensor)

    def _advanced(self, tensor: Any) -> moment_streams.MomentStream:
        """Updates, and returns the stream after that without reading it again."""
        stream = moment_streams.advance_moment_stream(
            *(self._stream(), self._leaves(tensor), self._rule, self._setting),
            where=type(self).__name__,
        )
        for kept, new in zip(self._kept, tf.nest.flatten(stream), strict=True):
            kept.assign(new)
        return stream

    def _leaves(self, tensor: Any) -> list[Any]:
        where = type(self).__name__
        operands.check_structure(where, "tensor", tensor, "tensor_spec", self._spec())
        leaves = []
        for leaf, spec in zip(
            tf.nest.flatten(tensor), tf.nest.flatten(self._spec()), strict=True
        ):
            # A Python float has the precision of the spec, not of float32.
            given = tf.constant(leaf, spec.dtype) if isinstance(leaf, float) else leaf
            leaves.append(operands.floating(where, "tensor", given))
            operands.axes_before(where, "tensor", leaves[-1], spec.shape)
        return leaves

    def _nest(self, leaves: list[Any]) -> Any:
        return tf.nest.pack_sequence_as(self._spec(), leaves)


class _Averager(Running):
    def __init__(self, tensor_spec: Any, rule: Any, setting: Any, name: str) -> None:
        super().__init__(tensor_spec, rule, setting, with_variance=False, name=name)

    def get(self) -> Any:
        """Returns the average: a nest of `spec.shape` in the dtypes of the spec.

        Zeros before the first update.
        """
        specs, found = tf.nest.flatten(self._spec()), self._stream().moments
        pairs = zip(found, specs, strict=True)
        return self._nest([tf.cast(own.mean, spec.dtype) for own, spec in pairs])

    def average(self, tensor: Any) -> Any:
        """Updates with `tensor` and returns the average: `update`, then `get`."""
        self.update(tensor)
        return self.get()


class WindowAverager(_Averager):
    """Average of the last `window_size` updates.

        get() = mean of mean(x[k]) over the last window_size updates k

    A batch counts as one update, whatever its size.

    Args:
        tensor_spec: nest of floating specs of what is averaged.
        window_size: how many updates count.
        name: name of the module.

    Raises:
        TypeError: if a spec is not floating.
        ValueError: if `window_size` is not a positive integer.

    Example:
        >>> averager = WindowAverager(tf.TensorSpec([]), window_size=2)
        >>> [float(averager.average(x)) for x in (1.0, 2.0, 4.0)]
        [1.0, 1.5, 3.0]
    """

    def __init__(
        self, tensor_spec: Any, window_size: int, name: str = "WindowAverager"
    ) -> None:
        super().__init__(tensor_spec, "window", window_size, name)


class ScalarWindowAverager(WindowAverager):
    """`WindowAverager` of one number.

    Args:
        window_size: how many updates count.
        dtype: floating dtype of the average.
        name: name of the module.

    Example:
        >>> float(ScalarWindowAverager(3).average(tf.constant([1.0, 2.0])))
        1.5
    """

    def __init__(
        self,
        window_size: int,
        dtype: Any = tf.float32,
        name: str = "ScalarWindowAverager",
    ) -> None:
        super().__init__(_scalar(self, dtype), window_size, name)


class EMAverager(_Averager):
    """Exponential moving average, free of the bias towards its start at 0.

        a[t] = (1 - update_rate) * a[t-1] + update_rate * mean(x[t])
        w[t] = (1 - update_rate) * w[t-1] + update_rate
        get() = a[t] / w[t]

    Args:
        tensor_spec: nest of floating specs of what is averaged.
        update_rate: in (0, 1]; a `tf.Variable` is read at every update.
        name: name of the module.

    Raises:
        TypeError: if a spec is not floating.
        ValueError: if `update_rate` is outside (0, 1].

    Example:
        >>> averager = EMAverager({"loss": tf.TensorSpec([])}, update_rate=0.5)
        >>> averager.update({"loss": 1.0})
        >>> round(float(averager.average({"loss": 4.0})["loss"]), 4)
        3.0
    """

    def __init__(
        self, tensor_spec: Any, update_rate: Any, name: str = "EMAverager"
    ) -> None:
        super().__init__(tensor_spec, "exponential", update_rate, name)


class ScalarEMAverager(EMAverager):
    """`EMAverager` of one number.

    Args:
        update_rate: in (0, 1]; a `tf.Variable` is read at every update.
        dtype: floating dtype of the average.
        name: name of the module.

    Example:
        >>> float(ScalarEMAverager(0.1).average(2.0))
        2.0
    """

    def __init__(
        self,
        update_rate: Any,
        dtype: Any = tf.float32,
        name: str = "ScalarEMAverager",
    ) -> None:
        super().__init__(_scalar(self, dtype), update_rate, name)


class AdaptiveAverager(_Averager):
    """Average that forgets the early updates, and slows down as it grows old.

    An `EMAverager` whose rate at update t = 0, 1, 2, ... is

        speed / (max(floor(speed), 1) + t)

    so that of T updates the one at t weighs about as `(t / T)^(speed - 1)`: 1 is the
    plain average, more looks at the recent ones. The first update counts in full,
    whatever the speed.

    Args:
        tensor_spec: nest of floating specs of what is averaged.
        speed: greater than 0.
        name: name of the module.

    Raises:
        TypeError: if a spec is not floating.
        ValueError: if `speed` is not positive.

    Example:
        >>> averager = AdaptiveAverager(tf.TensorSpec([]), speed=1)
        >>> [round(float(averager.average(x)), 4) for x in (1.0, 2.0, 6.0)]
        [1.0, 1.5, 3.0]
    """

    def __init__(
        self, tensor_spec: Any, speed: float = 10.0, name: str = "AdaptiveAverager"
    ) -> None:
        super().__init__(tensor_spec, "adaptive", speed, name)


class ScalarAdaptiveAverager(AdaptiveAverager):
    """`AdaptiveAverager` of one number.

    Args:
        speed: greater than 0.
        dtype: floating dtype of the average.
        name: name of the module.

    Example:
        >>> float(ScalarAdaptiveAverager().average(2.0))
        2.0
    """

    def __init__(
        self,
        speed: float = 10,
        dtype: Any = tf.float32,
        name: str = "ScalarAdaptiveAverager",
    ) -> None:
        super().__init__(_scalar(self, dtype), speed, name)


def _scalar(averager: Running, dtype: Any) -> tf.TensorSpec:
    return tf.TensorSpec([], operands.floating_dtype(type(averager).__name__, dtype))
