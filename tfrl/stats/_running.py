"""Variables that keep the moments of what they are fed."""

from typing import Any

import tensorflow as tf

from tfrl._internal import checks, operands
from tfrl.core import specs
from tfrl.stats import moment_streams


class Running(tf.Module):
    """A `MomentStream` of the leaves of a nest, in variables.

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
        shapes = [spec.shape.as_list() for spec in tf.nest.flatten(tensor_spec)]
        stream = moment_streams.start_moment_stream(
            shapes, rule, setting, with_variance, where
        )
        self._rule = rule
        self._setting = setting
        # Behind functions: TensorFlow would wrap the containers to track them.
        self._spec = lambda: tensor_spec
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
            self._stream(), self._leaves(tensor), self._rule, self._setting
        )
        for kept, new in zip(self._kept, tf.nest.flatten(stream), strict=True):
            kept.assign(new)
        return stream

    def _leaves(self, tensor: Any) -> list[Any]:
        where = type(self).__name__
        operands.check_structure(where, "tensor", tensor, "tensor_spec", self._spec())
        # A Python float has the precision of the spec, not of float32.
        return [
            tf.constant(leaf, spec.dtype)
            if isinstance(leaf, float)
            else checks.as_tensor(where, "tensor", leaf)
            for leaf, spec in zip(
                tf.nest.flatten(tensor), tf.nest.flatten(self._spec()), strict=True
            )
        ]

    def _nest(self, leaves: list[Any]) -> Any:
        return tf.nest.pack_sequence_as(self._spec(), leaves)
