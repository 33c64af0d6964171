"""The base of families with a location and a scale between two bounds."""

import operator
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.distributions import _parameters


def annotations(*bounds: str) -> Any:
    """Returns the class method by which TFP asks what the arguments mean.

    Args:
        *bounds: names of those that are bounds.
    """
    of_event = operator.attrgetter("event_shape.rank")
    # Bounds have no batch axes: their rank is the event's.
    of_bound = tfp.util.ParameterProperties(event_ndims=None)
    return _parameters.annotated(
        lambda dtype: {
            "loc": tfp.util.ParameterProperties(of_event),
            "scale": _parameters.positive_property(dtype, of_event),
            **dict.fromkeys(bounds, of_bound),
        }
    )


class Bounded(tfp.distributions.AutoCompositeTensorDistribution):
    """A distribution whose bounds say what one event is: its shape is theirs.

    Args:
        parameters: the `locals()` of the constructor.
    """

    # The arguments that are the lower and the upper bounds.
    _bound_names: tuple[str, str] = ("low", "high")
    _parameter_properties = annotations(*_bound_names)

    def __init__(self, parameters: dict[str, Any]) -> None:
        loc, scale = parameters["loc"], parameters["scale"]
        bounds = {name: parameters[name] for name in self._bound_names}
        tensors = _parameters.location_scale_between(
            type(self).__name__, loc, scale, **bounds
        )
        self._loc, self._scale, self._least, self._greatest = tensors
        super().__init__(
            dtype=self._loc.dtype,
            reparameterization_type=tfp.distributions.FULLY_REPARAMETERIZED,
            validate_args=parameters["validate_args"],
            allow_nan_stats=parameters.get("allow_nan_stats", True),
            parameters=parameters,
            name=parameters["name"],
        )

    loc = property(operator.attrgetter("_loc"), doc="Location of the unbounded family.")
    scale = property(
        operator.attrgetter("_scale"), doc="Scale of the unbounded family."
    )

    def _event_shape(self) -> tf.TensorShape:
        return tf.broadcast_static_shape(self._least.shape, self._greatest.shape)

    def _event_shape_tensor(self) -> tf.Tensor:
        return tf.broadcast_dynamic_shape(
            tf.shape(self._least), tf.shape(self._greatest)
        )

    def _default_event_space_bijector(self) -> Any:
        return tfp.bijectors.Sigmoid(self._least, self._greatest)

    def _parameter_control_dependencies(
        self,
        is_init: bool,  # noqa: ARG002
    ) -> list[Any]:
        if not self.validate_args:
            return []
        order = "`{}` must be < `{}`".format(*self._bound_names)
        return [
            tf.debugging.assert_positive(self._scale, "`scale` must be positive"),
            tf.debugging.assert_less(self._least, self._greatest, order),
        ]

    def _sample_control_dependencies(self, value: tf.Tensor) -> list[Any]:
        if not self.validate_args:
            return []
        inside = tf.reduce_all((value >= self._least) & (value <= self._greatest))
        return [tf.debugging.Assert(inside, ["values must lie within the bounds"])]
