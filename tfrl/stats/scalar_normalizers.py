"""Normalizers of single numbers, such as rewards."""

from typing import Any

import tensorflow as tf

from tfrl.stats import normalizers


class ScalarEMNormalizer(normalizers.EMNormalizer):
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
        super().__init__(
            tf.TensorSpec([]),
            update_rate,
            auto_update,
            zero_mean,
            unit_std,
            variance_epsilon,
            debug_summaries,
            name,
        )


class ScalarWindowNormalizer(normalizers.WindowNormalizer):
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
        super().__init__(
            tf.TensorSpec([]),
            window_size,
            auto_update,
            zero_mean,
            unit_std,
            variance_epsilon,
            debug_summaries,
            name,
        )


class ScalarAdaptiveNormalizer(normalizers.AdaptiveNormalizer):
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
        super().__init__(
            tf.TensorSpec([]),
            speed,
            auto_update,
            zero_mean,
            unit_std,
            variance_epsilon,
            debug_summaries,
            name,
        )
