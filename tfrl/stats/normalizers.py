"""Normalizers of nests of tensors by the running moments of what they saw.

Each is a `tf.Module`: it checkpoints, exports, and updates eagerly, in `tf.function`,
under XLA and in the replicas of a strategy, where all take in the global batch.
`tfrl.layers.RunningNormalization` is their Keras form.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import modes
from tfrl.host import normalizer as host_normalizer
from tfrl.stats import averagers, moment_streams


class Normalizer(averagers.Running):
    """What all normalizers do; `EMNormalizer` and the others say how to weigh.

    With weights w[i] of all values x[i] seen, which add up to 1,

        mean = sum(w[i] * x[i])
        var  = sum(w[i] * (x[i] - mean)^2)
        y    = (x - mean) / sqrt(var + variance_epsilon)
        y    = x / sqrt(var + mean^2 + variance_epsilon)       without `zero_mean`
        y    = (x - mean) / sqrt(1 + variance_epsilon)         with `unit_std`

    A batch is one update, whatever its size; the spread within it counts. Moments are
    centred and float64: a mean of 1e6 leaves a variance of 1 intact. A batch that holds
    NaN or an infinity, in any leaf, is normalized and not learned from.

    Before the first update a call with `training=False`, and what `numpy` returns, take
    mean and variance for 0 and 1 and leave values as they are. `normalize` without
    `auto_update` is as in the library it is named after: it takes both for 0, and gives
    x / sqrt(variance_epsilon), 100,000 x by default, which float16 cannot hold.

    Args:
        tensor_spec: nest of floating specs of one value.
        auto_update: whether `normalize` updates first.
        zero_mean: whether to subtract the mean.
        unit_std: whether to take the standard deviation for 1.
        variance_epsilon: added to the variance.
        debug_summaries: whether each update writes mean and variance with
            `tf.summary.scalar`, as `<name>/<leaf>/mean/<element>`; not under XLA.
        max_dims_to_summarize: how many elements of each leaf are written.
        name: name of the module.
        rule: how batches are weighed, see `advance_moment_stream`; subclasses say it.
        setting: the number that belongs to the rule.

    Attributes:
        training: whether calling the normalizer updates it; None (the start) for:
            unless the execution mode is evaluation.

    Raises:
        TypeError: if a spec is not floating, or there is no `rule`.
        ValueError: if `zero_mean` is off and `unit_std` on, or a number is outside its
            range.

    Example:
        >>> normalizer = AdaptiveNormalizer(tf.TensorSpec([1]), auto_update=False)
        >>> isinstance(normalizer, Normalizer)
        True
        >>> normalizer.update(tf.constant([[1.0], [5.0]]))
        >>> normalizer.normalize(tf.constant([[5.0], [99.0]]), clip_value=3.0).numpy()
        array([[1.],
               [3.]], dtype=float32)
    """

    def __init__(
        self,
        tensor_spec: Any,
        auto_update: bool = True,
        zero_mean: bool = True,
        unit_std: bool = False,
        variance_epsilon: float = 1e-10,
        debug_summaries: bool = False,
        max_dims_to_summarize: int = 10,
        name: str = "Normalizer",
        *,
        rule: moment_streams.Rule | None = None,
        setting: Any = None,
    ) -> None:
        where = type(self).__name__
        if rule is None:
            raise TypeError(
                f"`{where}`: `rule` expected how to weigh batches; got None; use "
                "EMNormalizer, AdaptiveNormalizer or WindowNormalizer"
            )
        if unit_std and not zero_mean:
            raise ValueError(
                f"`{where}`: `zero_mean` expected to be True where `unit_std` is; got "
                "False; nothing would be normalized"
            )
        checks.check_within(where, "variance_epsilon", variance_epsilon, 0, np.inf)
        super().__init__(tensor_spec, rule, setting, with_variance=True, name=name)
        self.training: bool | None = None
        self._auto_update = auto_update
        self._options = (zero_mean, unit_std)
        self._variance_epsilon = variance_epsilon
        self._summarized = max_dims_to_summarize if debug_summaries else 0

    def normalize(self, tensor: Any, clip_value: float | None = -1.0) -> Any:
        """Updates if `auto_update`, and normalizes by the moments after that.

        Args:
            tensor: nest of `[..., *spec.shape]`, floating.
            clip_value: bound on the absolute result if positive; None for none.

        Returns:
            The nest, with the shapes and dtypes of `tensor`. Gradients flow to `tensor`
            as if the moments were constants.

        Raises:
            TypeError: if a leaf is not floating.
            ValueError: if the nest or a shape does not fit the spec.
        """
        learn = self._auto_update
        return self._normalized(tensor, clip_value, learn, start_at_zero=not learn)

    def __call__(self, tensor: Any, training: bool | None = None) -> Any:
        """Updates if in training, and normalizes; `auto_update` plays no part.

        Args:
            tensor: nest of `[..., *spec.shape]`, floating.
            training: whether to update; None for the attribute `training`. What an
                algorithm does says `tfrl.core.is_training(algorithm)`.

        Returns:
            The nest, never clipped.

        Raises:
            TypeError: if a leaf is not floating.
            ValueError: if the nest or a shape does not fit the spec.
        """
        if training is None:
            training = not modes.is_eval() if self.training is None else self.training
        return self._normalized(tensor, None, training)

    def numpy(self) -> host_normalizer.HostNormalizer:
        """Returns a copy of the present moments that normalizes NumPy arrays.

        Returns:
            A `HostNormalizer`, equal to a call without training up to rounding; it
            never updates.
        """
        zero_mean, unit_std = self._options
        means, scales = [], []
        for found in self._stream().to_normalize():
            mean, variance = map(np.asarray, found)
            square = np.ones_like(variance) if unit_std else variance
            square = square if zero_mean else square + mean**2
            means.append(mean if zero_mean else np.zeros_like(mean))
            scales.append(np.asarray(1 / np.sqrt(square + self._variance_epsilon)))
        return host_normalizer.HostNormalizer(self._nest(means), self._nest(scales))

    def _advanced(self, tensor: Any) -> moment_streams.MomentStream:
        stream = super()._advanced(tensor)
        if not self._summarized:
            return stream
        for leaf, found in enumerate(stream.moments):
            for what, value in zip(found._fields, found, strict=True):
                flat = tf.reshape(value, [-1])[: self._summarized]
                for index, element in enumerate(tf.unstack(flat)):
                    path = f"{self.name}/{leaf}/{what}/{index}"
                    tf.summary.scalar(path, element)
        return stream

    def _normalized(
        self,
        tensor: Any,
        clip_value: float | None,
        learn: bool,
        start_at_zero: bool = False,
    ) -> Any:
        stream = self._advanced(tensor) if learn else self._stream()
        zero_mean, unit_std = self._options
        leaves = stream.normalize(
            self._leaves(tensor),
            self._variance_epsilon,
            clip_value,
            zero_mean=zero_mean,
            unit_std=unit_std,
            start_at_zero=start_at_zero,
        )
        return self._nest(leaves)


class EMNormalizer(Normalizer):
    """Normalizes by exponentially weighted moments.

    Weights decay by `1 - update_rate` a batch, as in `EMAverager`.

    Args:
        tensor_spec: nest of floating specs of one value.
        update_rate: in (0, 1]; a `tf.Variable` is read at every update.
        auto_update: this and the others as of `Normalizer`.
        zero_mean: whether to subtract the mean.
        unit_std: whether to take the standard deviation for 1.
        variance_epsilon: added to the variance.
        debug_summaries: whether updates write summaries.
        name: name of the module.

    Example:
        >>> normalizer = EMNormalizer({"x": tf.TensorSpec([])}, update_rate=0.5)
        >>> normalizer.normalize({"x": tf.constant([1.0, 3.0])})["x"].numpy()
        array([-1.,  1.], dtype=float32)
    """

    def __init__(
        self,
        tensor_spec: Any,
        update_rate: Any = 1e-3,
        auto_update: bool = True,
        zero_mean: bool = True,
        unit_std: bool = False,
        variance_epsilon: float = 1e-10,
        debug_summaries: bool = False,
        name: str = "EMNormalizer",
    ) -> None:
        options = (auto_update, zero_mean, unit_std, variance_epsilon, debug_summaries)
        weighing: Any = {"rule": "exponential", "setting": update_rate}
        super().__init__(tensor_spec, *options, name=name, **weighing)


class WindowNormalizer(Normalizer):
    """Normalizes by the moments of the last batches.

    Batches in the window weigh the same, those before it nothing. The moments of each
    batch are kept, so that none leaves a trace: an update takes time and memory
    proportional to `window_size`.

    Args:
        tensor_spec: nest of floating specs of one value.
        window_size: how many batches count.
        auto_update: this and the others as of `Normalizer`.
        zero_mean: whether to subtract the mean.
        unit_std: whether to take the standard deviation for 1.
        variance_epsilon: added to the variance.
        debug_summaries: whether updates write summaries.
        name: name of the module.

    Example:
        >>> normalizer = WindowNormalizer(tf.TensorSpec([]), window_size=1)
        >>> normalizer.update(tf.constant([7.0, 9.0]))
        >>> normalizer.normalize(tf.constant([1.0, 3.0])).numpy()
        array([-1.,  1.], dtype=float32)
    """

    def __init__(
        self,
        tensor_spec: Any,
        window_size: int = 1000,
        auto_update: bool = True,
        zero_mean: bool = True,
        unit_std: bool = False,
        variance_epsilon: float = 1e-10,
        debug_summaries: bool = False,
        name: str = "WindowNormalizer",
    ) -> None:
        options = (auto_update, zero_mean, unit_std, variance_epsilon, debug_summaries)
        weighing: Any = {"rule": "window", "setting": window_size}
        super().__init__(tensor_spec, *options, name=name, **weighing)


class AdaptiveNormalizer(Normalizer):
    """Normalizes by moments to which recent batches contribute more.

    Batch t of T weighs about as `(t / T)^(speed - 1)`, as in `AdaptiveAverager`: it
    adapts fast at first, and settles without ever forgetting the length of its life.

    Args:
        tensor_spec: nest of floating specs of one value.
        speed: greater than 0; 1 weighs all batches alike.
        auto_update: this and the others as of `Normalizer`.
        zero_mean: whether to subtract the mean.
        unit_std: whether to take the standard deviation for 1.
        variance_epsilon: added to the variance.
        debug_summaries: whether updates write summaries.
        name: name of the module.

    Example:
        >>> normalizer = AdaptiveNormalizer(tf.TensorSpec([]), speed=1.0)
        >>> normalizer.update(tf.constant([1.0, 3.0]))
        >>> normalizer.normalize(tf.constant([1.0, 3.0])).numpy()
        array([-1.,  1.], dtype=float32)
    """

    def __init__(
        self,
        tensor_spec: Any,
        speed: float = 8.0,
        auto_update: bool = True,
        zero_mean: bool = True,
        unit_std: bool = False,
        variance_epsilon: float = 1e-10,
        debug_summaries: bool = False,
        name: str = "AdaptiveNormalizer",
    ) -> None:
        options = (auto_update, zero_mean, unit_std, variance_epsilon, debug_summaries)
        weighing: Any = {"rule": "adaptive", "setting": speed}
        super().__init__(tensor_spec, *options, name=name, **weighing)


class ScalarEMNormalizer(EMNormalizer):
    """`EMNormalizer` of single numbers.

    Args:
        update_rate: in (0, 1]; a `tf.Variable` is read at every update.
        auto_update: this and the others as of `Normalizer`.
        variance_epsilon: added to the variance.
        zero_mean: whether to subtract the mean.
        unit_std: whether to take the standard deviation for 1.
        debug_summaries: whether updates write summaries.
        name: name of the module.

    Example:
        >>> ScalarEMNormalizer().normalize(tf.constant([1.0, 3.0])).numpy()
        array([-1.,  1.], dtype=float32)
    """

    def __init__(
        self,
        update_rate: Any = 1e-3,
        auto_update: bool = True,
        variance_epsilon: float = 1e-10,
        zero_mean: bool = True,
        unit_std: bool = False,
        debug_summaries: bool = False,
        name: str = "ScalarEMNormalizer",
    ) -> None:
        options = (auto_update, zero_mean, unit_std, variance_epsilon, debug_summaries)
        super().__init__(tf.TensorSpec([]), update_rate, *options, name)


class ScalarWindowNormalizer(WindowNormalizer):
    """`WindowNormalizer` of single numbers.

    Args:
        window_size: how many batches count.
        auto_update: this and the others as of `Normalizer`.
        zero_mean: whether to subtract the mean.
        unit_std: whether to take the standard deviation for 1.
        variance_epsilon: added to the variance.
        debug_summaries: whether updates write summaries.
        name: name of the module.

    Example:
        >>> ScalarWindowNormalizer(5).normalize(tf.constant([1.0, 3.0])).numpy()
        array([-1.,  1.], dtype=float32)
    """

    def __init__(
        self,
        window_size: int = 1000,
        auto_update: bool = True,
        zero_mean: bool = True,
        unit_std: bool = False,
        variance_epsilon: float = 1e-10,
        debug_summaries: bool = False,
        name: str = "ScalarWindowNormalizer",
    ) -> None:
        options = (auto_update, zero_mean, unit_std, variance_epsilon, debug_summaries)
        super().__init__(tf.TensorSpec([]), window_size, *options, name)


class ScalarAdaptiveNormalizer(AdaptiveNormalizer):
    """`AdaptiveNormalizer` of single numbers.

    Args:
        speed: greater than 0; 1 weighs all batches alike.
        auto_update: this and the others as of `Normalizer`.
        zero_mean: whether to subtract the mean.
        unit_std: whether to take the standard deviation for 1.
        variance_epsilon: added to the variance.
        debug_summaries: whether updates write summaries.
        name: name of the module.

    Example:
        >>> ScalarAdaptiveNormalizer().normalize(tf.constant([1.0, 3.0])).numpy()
        array([-1.,  1.], dtype=float32)
    """

    def __init__(
        self,
        speed: float = 8.0,
        auto_update: bool = True,
        zero_mean: bool = True,
        unit_std: bool = False,
        variance_epsilon: float = 1e-10,
        debug_summaries: bool = False,
        name: str = "ScalarAdaptiveNormalizer",
    ) -> None:
        options = (auto_update, zero_mean, unit_std, variance_epsilon, debug_summaries)
        super().__init__(tf.TensorSpec([]), speed, *options, name)
