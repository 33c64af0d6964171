"""Checks and annotations of parameters, and two base classes, for all families.

Checks look at what is known at construction. Variables, and tensors whose values only
a run shows, pass.
"""

import functools
import numbers
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl._internal import checks

# How many axes of a location or scale are the event's, where bounds say it.
EVENT_RANK = operator.attrgetter("event_shape.rank")


def keep(distribution: Any, names: dict[str, Any]) -> None:
    """Stores the `locals()` of a constructor as arguments, where TFP looks for them.

    Plain assignment would wrap them for checkpoints, which TFP undoes and which takes
    as long as the rest of the constructor.
    """
    object.__setattr__(distribution, "_parameters", arguments(names))


def arguments(names: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments among the `locals()` of a constructor."""
    hidden = ("self", "__class__")
    return {name: value for name, value in names.items() if name not in hidden}


def annotated(annotations: Callable[[Any], dict[str, Any]]) -> Any:
    """Returns the class method by which TFP asks what arguments mean.

    Args:
        annotations: function of the dtype that returns TFP's annotations by name.
    """
    return classmethod(lambda _cls, dtype, **_: annotations(dtype))


def location_scale(event_ndims: Any = 0, bounds: tuple[str, ...] = ()) -> Any:
    """Returns the class method of a family with `loc`, `scale` and maybe bounds."""
    loc = tfp.util.ParameterProperties(event_ndims)
    # Bounds have no batch axes: their rank is the event's.
    of_bounds = dict.fromkeys(bounds, tfp.util.ParameterProperties(event_ndims=None))
    return annotated(
        lambda dtype: {
            "loc": loc,
            "scale": positive_property(dtype, event_ndims),
            **of_bounds,
        }
    )


@functools.cache
def positive_property(dtype: Any, event_ndims: Any = 0) -> Any:
    """Returns TFP's annotation of a parameter that is greater than 0."""
    low = np.spacing(tf.as_dtype(dtype).as_numpy_dtype(1))
    return tfp.util.ParameterProperties(
        event_ndims=event_ndims,
        default_constraining_bijector_fn=lambda: tfp.bijectors.Softplus(low=low),
    )


def check_positive(where: str, **parameters: Any) -> None:
    """Raises ValueError unless every known number is greater than 0."""
    for name, value in parameters.items():
        known = known_value(value)
        if known is not None:
            checks.check_positive(where, name, known)


def check_broadcastable(where: str, **parameters: Any) -> None:
    """Raises ValueError unless the known shapes broadcast with the first.

    What has no shape, because it is no number, tensor or array, is a TypeError.
    """
    for name, value in parameters.items():
        if not (hasattr(value, "shape") or isinstance(value, numbers.Number)):
            checks.as_tensor(where, name, value)
    (first, reference), *others = parameters.items()
    for name, value in others:
        try:
            tf.broadcast_static_shape(_shape(reference), _shape(value))
        except ValueError:
            raise ValueError(
                f"`{where}`: `{name}` expected a shape that broadcasts with that of "
                f"`{first}` {_shape(reference)}; got {_shape(value)}; reshape one"
            ) from None


def check_same_bounds(a: Any, b: Any, *names: str) -> None:
    """Raises ValueError if bounds of two distributions are known to differ.

    Args:
        a: the first argument of `kl_divergence`.
        b: the second one.
        *names: of the bounds, properties of both.
    """
    bounds = [[known_value(getattr(d, name)) for name in names] for d in (a, b)]
    fit = a.event_shape.is_compatible_with(b.event_shape)
    for mine, others in zip(*bounds, strict=True):
        known = mine is not None and others is not None
        if not fit or (known and not np.all(np.equal(mine, others))):
            raise ValueError(
                "`kl_divergence`: `distribution_b` expected the bounds of "
                f"`distribution_a` {bounds[0]}; got {bounds[1]}; between others the "
                "divergence has no closed form"
            )


def as_values(distribution: Any, value: tf.Tensor) -> tf.Tensor:
    """Returns floats of any dtype in that of a distribution; others are a TypeError."""
    checks.check_floating(type(distribution).__name__, "value", value)
    return tf.cast(value, distribution.dtype)


def known_value(value: Any) -> Any:
    """Returns numbers or an array, or None where only a run can tell the value."""
    if isinstance(value, tf.Tensor):
        return tf.get_static_value(value)
    if isinstance(value, list | tuple):
        leaves = tf.nest.flatten(value)
        return None if any(map(tf.is_tensor, leaves)) else value
    return value if isinstance(value, numbers.Number | np.ndarray) else None


def rows(values: tf.Tensor, *parameters: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Returns parameters as rows `[1, n]`, and values of theirs as `[m, n]`.

    For elementwise arithmetic: on a CPU XLA makes vectors of the code along one axis
    only, and the last one of an action is short.

    Args:
        values: for each element of the parameters, or many, on axes in front of theirs.
        *parameters: of shapes that broadcast.

    Returns:
        The values' shape, broadcast with the parameters': what to reshape a result to.
        Then the values and the parameters.
    """
    shape = functools.reduce(tf.broadcast_dynamic_shape, map(tf.shape, parameters))
    full = tf.broadcast_dynamic_shape(tf.shape(values), shape)
    length = tf.reduce_prod(shape)
    count = tf.math.floordiv(tf.reduce_prod(full), tf.maximum(length, 1))
    each = (tf.reshape(tf.broadcast_to(p, shape), [1, length]) for p in parameters)
    return full, tf.reshape(tf.broadcast_to(values, full), [count, length]), *each


class Diagonal(tfp.distributions.Independent):
    """Independent distributions of one family along the last axis.

    Args:
        family: the class of the distribution of each number.
        parameters: the `locals()` of the constructor: all but `name` are what the
            family takes, the first one with an axis at least.
    """

    def __init__(self, family: Any, parameters: dict[str, Any]) -> None:
        given = arguments(parameters)
        name = given.pop("name")
        first, value = next(iter(given.items()))
        checks.check_rank(type(self).__name__, first, value, at_least=1)
        super().__init__(
            family(**given),
            reinterpreted_batch_ndims=1,
            validate_args=given["validate_args"],
            name=name,
        )
        keep(self, parameters)

    _parameter_properties = tfp.distributions.Independent.parameter_properties


class Bounded(tfp.distributions.AutoCompositeTensorDistribution):
    """A location and a scale between two bounds, whose shape is that of one event.

    Args:
        parameters: the `locals()` of the constructor. Tensors get the dtype of the
            first floating tensor among the four, or else array, or else float32;
            variables stay what they are, to be read when used.

    Raises:
        TypeError: if a tensor is not floating.
        ValueError: if known scales are not positive, known lower bounds not below
            their upper ones, the bounds' rank is unknown, or a shape does not fit.
    """

    # The arguments that are the lower and the upper bounds.
    _bound_names: tuple[str, str]

    def __init__(self, parameters: dict[str, Any]) -> None:
        where = type(self).__name__
        names = ("loc", "scale", *self._bound_names)
        given = {name: parameters[name] for name in names}
        check_positive(where, scale=given["scale"])
        _check_increasing(where, *list(given.items())[2:])
        dtype = _dtype_of(list(given.values()))
        tensors = {
            name: _as_tensor(where, name, value, dtype) for name, value in given.items()
        }
        _check_shapes(where, tensors)
        self._loc, self._scale, self._least, self._greatest = tensors.values()
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
        value = as_values(self, value)
        inside = tf.reduce_all((value >= self._least) & (value <= self._greatest))
        return [tf.debugging.Assert(inside, ["values must lie within the bounds"])]


def _shape(value: Any) -> tf.TensorShape:
    return tf.TensorShape(value.shape if hasattr(value, "shape") else np.shape(value))


def _dtype_of(values: list[Any]) -> tf.DType:
    given = [value for value in values if hasattr(value, "dtype")]
    given.sort(key=lambda value: not tf.is_tensor(value))
    dtypes = (tf.as_dtype(value.dtype) for value in given)
    return next((dtype for dtype in dtypes if dtype.is_floating), tf.float32)


def _as_tensor(where: str, name: str, value: Any, dtype: tf.DType) -> Any:
    if isinstance(value, tf.Variable | tfp.util.DeferredTensor):
        return value
    if tf.is_tensor(value):
        checks.check_floating(where, name, value)
    return checks.as_tensor(where, name, value, dtype)


def _check_increasing(where: str, lower: Any, upper: Any) -> None:
    known = [known_value(bound) for _, bound in (lower, upper)]
    if any(bound is None for bound in known) or np.all(np.less(*known)):
        return
    raise ValueError(
        f"`{where}`: `{upper[0]}` expected numbers > `{lower[0]}` "
        f"{checks.shown(lower[1])}; got {checks.shown(upper[1])}"
    )


def _check_shapes(where: str, tensors: dict[str, Any]) -> None:
    """Raises unless those of location and scale fit the event and each other."""
    shapes = [tensor.shape for tensor in tensors.values()]
    *names, lower, upper = tensors
    event = tf.broadcast_static_shape(*shapes[2:])
    if event.rank is None:
        raise ValueError(
            f"`{where}`: `{lower}` and `{upper}` expected a known rank, which is the "
            "event's; got an unknown one; set their shape with tf.ensure_shape"
        )
    for name, shape in zip(names, shapes[:2], strict=True):
        if not _ends_in(shape, event):
            raise ValueError(
                f"`{where}`: `{name}` expected a shape that ends in the bounds' "
                f"{event.as_list()}; got {shape.as_list()}; reshape it, or give "
                "the bounds one number per element of the event"
            )
    check_broadcastable(where, **{name: tensors[name] for name in names})


def _ends_in(shape: tf.TensorShape, event: tf.TensorShape) -> bool:
    """Whether the last axes broadcast to those of an event."""
    if shape.rank is None:
        return True
    last = shape[max(0, shape.rank - event.rank) :]
    try:
        return tf.broadcast_static_shape(last, event).is_compatible_with(event)
    except ValueError:
        return False
