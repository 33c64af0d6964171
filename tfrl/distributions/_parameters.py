"""Parameters of distributions: their checks and what TFP wants to know about them.

Checks look at what is known at construction. Variables, and tensors whose values only
a run shows, pass.
"""

import numbers
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl._internal import checks

_NUMERIC = (
    tf.Tensor,
    tf.Variable,
    tfp.util.DeferredTensor,
    np.ndarray,
    numbers.Number,
)


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

    def _parameter_properties(
        cls: type,  # noqa: ARG001
        dtype: Any,
        num_classes: Any = None,  # noqa: ARG001
    ) -> dict[str, Any]:
        return annotations(dtype)

    return classmethod(_parameter_properties)


def location_scale(event_ndims: int = 0) -> Any:
    """Returns the class method of a family with arguments `loc` and `scale`."""
    loc = tfp.util.ParameterProperties(event_ndims=event_ndims)
    return annotated(
        lambda dtype: {"loc": loc, "scale": positive_property(dtype, event_ndims)}
    )


def positive_property(dtype: Any, event_ndims: Any = 0) -> Any:
    """Returns TFP's annotation of a parameter that is greater than 0."""
    low = np.finfo(tf.as_dtype(dtype).as_numpy_dtype).eps
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
        if not isinstance(value, _NUMERIC):
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


def location_scale_between(
    where: str, loc: Any, scale: Any, **bounds: Any
) -> list[Any]:
    """Checks a location, a scale and two bounds, whose shape is an event's.

    Args:
        where: name of the class that asks.
        loc: location, floating, of a shape that ends in the event's or broadcasts.
        scale: scale, positive, likewise.
        **bounds: the lower and the upper bounds, by the names of these arguments.

    Returns:
        All four, as tensors of the dtype of the first floating tensor among them, or
        else array, or else float32. Variables stay what they are, to be read when used.

    Raises:
        TypeError: if a tensor is not floating.
        ValueError: if known scales are not positive, known lower bounds not below
            their upper ones, the bounds' rank is unknown, or a shape does not fit.
    """
    check_positive(where, scale=scale)
    _check_increasing(where, bounds)
    given = {"loc": loc, "scale": scale, **bounds}
    dtype = _dtype_of(given.values())
    tensors = {
        name: _as_tensor(where, name, value, dtype) for name, value in given.items()
    }
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    lower, upper = bounds
    event = tf.broadcast_static_shape(shapes[lower], shapes[upper])
    if event.rank is None:
        raise ValueError(
            f"`{where}`: `{lower}` and `{upper}` expected a known rank, which is the "
            "event's; got an unknown one; set their shape with tf.ensure_shape"
        )
    for name in ("loc", "scale"):
        if not _ends_in(shapes[name], event):
            raise ValueError(
                f"`{where}`: `{name}` expected a shape that ends in the bounds' "
                f"{event.as_list()}; got {shapes[name].as_list()}; reshape it, or give "
                "the bounds one number per element of the event"
            )
    check_broadcastable(where, loc=tensors["loc"], scale=tensors["scale"])
    return list(tensors.values())


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


def known_value(value: Any) -> Any:
    """Returns numbers or an array, or None where only a run can tell the value."""
    if isinstance(value, tf.Tensor):
        return tf.get_static_value(value)
    if isinstance(value, list | tuple):
        leaves = tf.nest.flatten(value)
        return None if any(map(tf.is_tensor, leaves)) else value
    return value if isinstance(value, numbers.Number | np.ndarray) else None


def _shape(value: Any) -> tf.TensorShape:
    return tf.TensorShape(value.shape if hasattr(value, "shape") else np.shape(value))


def _dtype_of(values: Iterable[Any]) -> tf.DType:
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


def _check_increasing(where: str, bounds: dict[str, Any]) -> None:
    (lower, least), (upper, greatest) = bounds.items()
    known = [known_value(bound) for bound in (least, greatest)]
    if any(bound is None for bound in known) or np.all(np.less(*known)):
        return
    raise ValueError(
        f"`{where}`: `{upper}` expected numbers > `{lower}` {least!r}; got "
        f"{greatest!r}; swap or correct them"
    )


def _ends_in(shape: tf.TensorShape, event: tf.TensorShape) -> bool:
    """Whether the last axes broadcast to those of an event."""
    if shape.rank is None:
        return True
    last = shape[max(0, shape.rank - event.rank) :]
    try:
        return tf.broadcast_static_shape(last, event).is_compatible_with(event)
    except ValueError:
        return False
