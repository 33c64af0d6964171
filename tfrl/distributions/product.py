"""Independent distributions of the parts of a nest."""

import functools
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.core import random
from tfrl.distributions import _families

tfd = tfp.distributions


class Product(tfp.distributions.AutoCompositeTensorDistribution):
    """Independent parts, drawn and scored as one nest.

        p(x) = prod_i p_i(x_i)

    A draw is a nest of draws; log-probability and entropy are sums over the parts, and
    so is the divergence of two products; mode, mean, variance and standard deviation
    are nests. It serves the actions of `Dict` and `Tuple` spaces.

    Args:
        distributions: nest of distributions of equal batch shape. A part that still
            has batch axes that belong to its event needs `tfd.Independent`. Products
            among the parts become part of the nest.
        validate_args: as of every TFP distribution.
        allow_nan_stats: as of every TFP distribution.
        name: prefix of the operations' names.

    Raises:
        TypeError: if a part is no distribution of single tensors.
        ValueError: if there are no parts, or their batch shapes differ.

    Example:
        >>> policy = Product({
        ...     "fire": tfp.distributions.Bernoulli(probs=[0.9, 0.1]),
        ...     "move": tfp.distributions.Categorical(logits=tf.zeros([2, 4])),
        ... })
        >>> policy.batch_shape, policy.mode()["fire"].numpy().tolist()
        (TensorShape([2]), [1, 0])
        >>> actions = policy.sample(seed=0)
        >>> sorted(actions), policy.log_prob(actions).shape
        (['fire', 'move'], TensorShape([2]))
    """

    def __init__(
        self,
        distributions: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Product",
    ) -> None:
        parameters = dict(locals())
        distributions = tf.nest.map_structure(
            lambda part: part.distributions if isinstance(part, Product) else part,
            distributions,
        )
        parameters["distributions"] = distributions
        parts = tf.nest.flatten(distributions)
        _check_parts(parts)
        reparameterized = all(
            part.reparameterization_type == tfd.FULLY_REPARAMETERIZED for part in parts
        )
        with tf.name_scope(name) as name:
            super().__init__(
                dtype=tf.nest.map_structure(lambda part: part.dtype, distributions),
                reparameterization_type=tfd.FULLY_REPARAMETERIZED
                if reparameterized
                else tfd.NOT_REPARAMETERIZED,
                validate_args=validate_args,
                allow_nan_stats=allow_nan_stats,
                parameters=parameters,
                name=name,
            )

    _parameter_properties = _families.annotated(
        lambda dtype: {  # noqa: ARG005
            "distributions": tfp.util.BatchedComponentProperties(
                event_ndims=lambda self: self._each(lambda _: 0)
            )
        }
    )

    @property
    def distributions(self) -> Any:
        """The nest of distributions."""
        return self.parameters["distributions"]

    def _each(self, function: Any, *nests: Any) -> Any:
        return tf.nest.map_structure(
            function, self.distributions, *nests, check_types=False
        )

    def _summed(self, function: Any, *nests: Any) -> tf.Tensor:
        return functools.reduce(tf.add, tf.nest.flatten(self._each(function, *nests)))

    def _batch_shape(self) -> tf.TensorShape:
        shapes = [part.batch_shape for part in tf.nest.flatten(self.distributions)]
        return functools.reduce(tf.TensorShape.merge_with, shapes)

    def _batch_shape_tensor(self) -> tf.Tensor:
        return tf.nest.flatten(self.distributions)[0].batch_shape_tensor()

    def _event_shape(self) -> Any:
        return self._each(lambda part: part.event_shape)

    def _event_shape_tensor(self) -> Any:
        return self._each(lambda part: part.event_shape_tensor())

    def _seeds(self, seed: Any) -> Any:
        parts = tf.nest.flatten(self.distributions)
        seeds = random.split_seed(seed() if callable(seed) else seed, len(parts))
        return tf.nest.pack_sequence_as(self.distributions, seeds)

    def _call_sample_n(self, sample_shape: Any, seed: Any) -> Any:
        return self._each(
            lambda part, seed: part.sample(sample_shape, seed), self._seeds(seed)
        )

    def _sample_and_log_prob(
        self, sample_shape: Any, seed: Any
    ) -> tuple[Any, tf.Tensor]:
        parts = tf.nest.flatten(self.distributions)
        seeds = tf.nest.flatten(self._seeds(seed))
        pairs = [
            part.experimental_sample_and_log_prob(sample_shape, seed)
            for part, seed in zip(parts, seeds, strict=True)
        ]
        values, log_probs = zip(*pairs, strict=True)
        return tf.nest.pack_sequence_as(self.distributions, values), tf.add_n(log_probs)

    def _log_prob(self, value: Any) -> tf.Tensor:
        return self._summed(lambda part, value: part.log_prob(value), value)

    def _entropy(self) -> tf.Tensor:
        return self._summed(lambda part: part.entropy())

    def _mode(self) -> Any:
        return self._each(lambda part: part.mode())

    def _mean(self) -> Any:
        return self._each(lambda part: part.mean())

    def _variance(self) -> Any:
        return self._each(lambda part: part.variance())

    def _stddev(self) -> Any:
        return self._each(lambda part: part.stddev())


@tfd.RegisterKL(Product, Product)
def _kl_products(a: Product, b: Product, name: str | None = None) -> tf.Tensor:
    with tf.name_scope(name or "kl_products"):
        return a._summed(lambda one, two: one.kl_divergence(two), b.distributions)


def _check_parts(parts: list[Any]) -> None:
    if not parts:
        raise ValueError(
            "`Product`: `distributions` expected a distribution at least; got none"
        )
    for part in parts:
        if not isinstance(part, tfd.Distribution) or tf.nest.is_nested(part.dtype):
            raise TypeError(
                "`Product`: `distributions` expected a nest of distributions of single "
                f"tensors; got {part!r}"
            )
    first = parts[0].batch_shape
    for part in parts[1:]:
        if not part.batch_shape.is_compatible_with(first):
            raise ValueError(
                "`Product`: `distributions` expected equal batch shapes; got "
                f"{first} and {part.batch_shape}; wrap axes of events in "
                "tfp.distributions.Independent"
            )
