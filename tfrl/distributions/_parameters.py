"""Parameters of distributions: their checks and what TFP wants to know about them.

Checks look at what is known at construction. Variables, and tensors whose values only
a run shows, pass.
"""

import numbers
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.core import checks


def keep(distribution: Any, names: dict[str, Any]) -> None:
    """Stores the `locals()` of a constructor as arguments, where TFP looks for them.

    Plain assignment would wrap them for checkpoints, which TFP undoes and which takes
    as long as the rest of the constructor.
    """
    hidden = ("self", "__class__")
    arguments = {name: value for name, value in names.items() if name not in hidden}
    object.__setattr__(distribution, "_parameters", arguments)


def location_scale_properties(dtype: Any, event_ndims: int = 0) -> dict[str, Any]:
    """Returns TFP's annotations of `loc` and `scale`."""
    return {
        "loc": tfp.util.ParameterProperties(event_ndims=event_ndims),
        "scale": positive_property(dtype, event_ndims),
    }


def positive_property(dtype: Any, event_ndims: int = 0) -> Any:
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
    """Raises ValueError unless the known shapes broadcast with the first."""
    (first, reference), *others = parameters.items()
    for name, value in others:
        try:
            tf.broadcast_static_shape(_shape(reference), _shape(value))
        except ValueError:
            raise ValueError(
                f"`{where}`: `{name}` expected a shape that broadcasts with that of "
                f"`{first}` {_shape(reference)}; got {_shape(value)}; reshape one"
            ) from None


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
