"""Base classes of bijectors: their parameters, equality and bounds.

Parameters take the dtype of what is transformed. One that is a number or an array
belongs to the type of the bijector, for `tf.function` too; a tensor or variable is
data, whose changes cause no new trace.
"""

import inspect
import numbers
import weakref
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl._internal import checks, operands, precision
from tfrl.core import compile

TensorLike: TypeAlias = tf.types.experimental.TensorLike

# Arguments of constructors that are no numbers to compute with.
_OPTIONS = {"event_dim", "cache_size", "validate_args", "name", "parameters"}
# The attribute of an output that says which bijector made it of which input.
_MADE_BY = "_tfrl_made_by"


def as_parameter(value: TensorLike) -> Any:
    """Numbers and tensors as they are, lists and arrays as float64 of numpy.

    Args:
        value: a parameter as the caller gave it.

    Returns:
        What the bijector keeps.

    Example:
        >>> as_parameter(np.float32(2.0)), as_parameter([1, 2])
        (2.0, array([1., 2.]))
    """
    if isinstance(value, list | tuple):
        if any(map(tf.is_tensor, tf.nest.flatten(value))):
            return tf.convert_to_tensor(value)
    elif not isinstance(value, np.ndarray | np.generic):
        return value
    array = np.asarray(value, np.float64)
    return array if array.ndim else array.item()


def known_value(value: Any) -> Any:
    """What a check can look at: numpy of tensors whose values are known.

    Args:
        value: a parameter.

    Returns:
        A number, an array or a symbolic tensor.

    Example:
        >>> float(known_value(tf.constant(1.5)))
        1.5
    """
    if isinstance(value, numbers.Number | np.ndarray):
        return value
    tensor = tf.convert_to_tensor(value)
    static = tf.get_static_value(tensor)
    return tensor if static is None else static


@compile.compiled
def inside(y: tf.Tensor, low: TensorLike, high: TensorLike) -> tf.Tensor:
    """Numbers of an interval: those on a bound moved in by the least step, others NaN.

    Args:
        y: float32 or float64, of any shape.
        low: the lower bound, broadcast against `y`; may be infinite.
        high: the upper bound, likewise.

    Returns:
        Numbers between the bounds, without them, in the broadcast shape. The gradient
        of what was moved is 0.

    Example:
        >>> inside(tf.constant([-1.0, 0.0, 0.5, 1.0]), 0.0, 1.0).numpy()
        array([          nan, 1.1754944e-38, 5.0000000e-01, 9.9999994e-01],
              dtype=float32)
    """
    low, high = (tf.convert_to_tensor(bound, y.dtype) for bound in (low, high))
    infinity = tf.constant(np.inf, y.dtype)
    # Beside 0 the nearest numbers are subnormal, which processors may take for 0.
    tiny = tf.constant(np.finfo(y.dtype.as_numpy_dtype).tiny, y.dtype)
    least = tf.maximum(tf.math.nextafter(low, infinity), low + tiny)
    most = tf.minimum(tf.math.nextafter(high, -infinity), high - tiny)
    moved = tf.maximum(tf.minimum(y, most), least)
    nan = tf.constant(np.nan, y.dtype)
    return tf.where((y >= low) & (y <= high), moved, nan)


class Transform(tfp.bijectors.Bijector, tfp.experimental.AutoCompositeTensor):
    """A bijector that crosses `tf.function` and compares by its parameters.

    Subclasses with parameters hand over the `locals()` of their constructor; what is no
    option is a parameter of the map and becomes an attribute.

    The inverse of a tensor that `forward` returned is the very input, which the tensor
    carries along; its gradient goes to the input, none to that tensor. All else is
    computed: the cache of TensorFlow Probability, which is passed by here, returns what
    it once computed for a tensor also under another `tf.GradientTape` and with another
    value of a variable, and keeps graphs for ever.

    Not `tfb.AutoCompositeTensorBijector`: that one registers every subclass as one of
    TensorFlow Probability's, and a `Softplus` of ours would replace theirs.

    Args:
        cache_size: 1 to give back the input whose output is inverted, 0 to compute it.
        validate_args: raise where a value to invert lies beyond a bound.
        name: prefix of the ops; the name of the class by default.
        parameters: what the constructor of a subclass was called with.

    Example:
        >>> class Times(Transform):
        ...     def __init__(self, factor, cache_size=1, *, validate_args=False,
        ...                  name=None):
        ...         super().__init__(parameters=dict(locals()))
        ...     def _forward(self, x):
        ...         return self.factor * x
        >>> Times(2.0) == Times(2.0), float(Times(2.0).forward(tf.constant(3.0)))
        (True, 6.0)
    """

    event_dim = 0
    _map_parameters: tuple[str, ...] = ()
    _with_shape: tuple[str, ...] = ()  # of those pickled before there was such a thing

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        names = inspect.signature(cls).parameters
        cls._map_parameters = tuple(name for name in names if name not in _OPTIONS)
        tfp.experimental.auto_composite_tensor(
            cls, omit_kwargs=("parameters",), non_identifying_kwargs=("name",)
        )

    def __init__(
        self,
        cache_size: int = 1,
        *,
        validate_args: bool = False,
        name: str | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> None:
        options = {"validate_args": validate_args, "name": name}
        given = parameters or {"cache_size": cache_size, **options}
        where = type(self).__name__
        checks.check_one_of(where, "cache_size", given["cache_size"], (0, 1))
        kept = {name: as_parameter(given[name]) for name in self._map_parameters}
        for name, value in kept.items():
            if not (isinstance(value, numbers.Real) or hasattr(value, "dtype")):
                expected = "a number, an array or a tensor"
                raise checks.wrong_type(where, name, value, expected)
        super().__init__(
            forward_min_event_ndims=self.event_dim,
            validate_args=given["validate_args"],
            parameters=given,
            name=given["name"],
        )
        self.cache_size = given["cache_size"]
        for name, value in kept.items():
            setattr(self, name, value)
        self._with_shape = tuple(x for x in kept if hasattr(kept[x], "shape"))

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or self.event_dim != other.event_dim:
            return False
        names = self._map_parameters
        return all(_same(getattr(self, name), getattr(other, name)) for name in names)

    def __hash__(self) -> int:
        # Values of tensors stay where they are: equal ones have equal shapes.
        values = [getattr(self, name) for name in self._map_parameters]
        kinds = [v if isinstance(v, numbers.Number) else str(v.shape) for v in values]
        return hash((type(self), self.event_dim, *kinds))

    @classmethod
    def _parameter_properties(cls, dtype: tf.DType) -> dict[str, Any]:
        # Numbers for single elements: an event of n axes takes n axes of them.
        any_number = tfp.util.ParameterProperties(event_ndims=lambda _, rank: rank)
        # About the least normal number; np.finfo knows no bfloat16.
        dtype = tf.as_dtype(dtype)
        tiny = dtype.as_numpy_dtype(4.0 / float(dtype.max))
        positive = tfp.util.ParameterProperties(
            event_ndims=lambda _, rank: rank,
            default_constraining_bijector_fn=lambda: tfp.bijectors.Softplus(low=tiny),
        )
        return {
            name: positive if name == "hinge_softness" else any_number
            for name in cls._map_parameters
        }

    def forward(self, x: TensorLike, name: str = "forward", **kwargs: Any) -> tf.Tensor:
        x = operands.floating(type(self).__name__, "x", x)
        if self._with_shape:
            self._check_fits("x", x)
        with tf.name_scope(f"{self.name}_{name}"):
            y = self._forward(x, **kwargs)
        if self.cache_size:
            # A graph holds its tensors; to hold them too would keep it for ever.
            source = weakref.ref(x) if tf.is_symbolic_tensor(x) else lambda: x
            setattr(y, _MADE_BY, (self, source))
        return y

    def inverse(self, y: TensorLike, name: str = "inverse", **kwargs: Any) -> tf.Tensor:
        y = operands.floating(type(self).__name__, "y", y)
        if self._with_shape:
            self._check_fits("y", y)
        maker, source = getattr(y, _MADE_BY, (None, lambda: None))
        x = source() if self.cache_size and maker == self else None
        if x is not None:
            return x
        with tf.name_scope(f"{self.name}_{name}"):
            return self._inverse(y, **kwargs)

    def forward_log_det_jacobian(
        self,
        x: TensorLike,
        event_ndims: int | None = None,
        name: str = "forward_log_det_jacobian",
        **kwargs: Any,
    ) -> tf.Tensor:
        x = operands.floating(type(self).__name__, "x", x)
        if self._with_shape:
            self._check_fits("x", x)
        axes = self._summed_axes(x, event_ndims)
        with tf.name_scope(f"{self.name}_{name}"):
            log_slopes = self._forward_log_det_jacobian(x, **kwargs)
            return tf.reduce_sum(log_slopes, axis=axes) if len(axes) else log_slopes

    def inverse_log_det_jacobian(
        self,
        y: TensorLike,
        event_ndims: int | None = None,
        name: str = "inverse_log_det_jacobian",
        **kwargs: Any,
    ) -> tf.Tensor:
        x = self.inverse(y, **kwargs)
        return -self.forward_log_det_jacobian(x, event_ndims, name, **kwargs)

    def _check_fits(self, name: str, tensor: tf.Tensor) -> None:
        """Raises unless the shape of an argument broadcasts with the parameters'."""
        for other in self._with_shape:
            shape = tf.TensorShape(getattr(self, other).shape)
            try:
                tf.broadcast_static_shape(tensor.shape, shape)
            except ValueError:
                raise ValueError(
                    f"`{type(self).__name__}`: `{name}` expected a shape that "
                    f"broadcasts with that of `{other}` {shape}; got {tensor.shape}; "
                    "reshape one"
                ) from None

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        raise NotImplementedError(f"`{type(self).__name__}` has no log-determinant")

    def _summed_axes(self, x: tf.Tensor, event_ndims: int | None) -> list[int]:
        if event_ndims is None:
            return []
        where, known = type(self).__name__, tf.get_static_value(event_ndims)
        if known is None or known < self.event_dim:
            raise ValueError(
                f"`{where}`: `event_ndims` expected a number of axes of at least "
                f"{self.event_dim}; got {event_ndims!r}"
            )
        checks.check_rank(where, "x", x, at_least=known)
        return list(range(self.event_dim - int(known), 0))


class Elementwise(Transform):
    """A map of single numbers, computed in at least float32.

    Subclasses give `_map(x)`, `_unmap(y)` and `_log_slope(x)`, tensors of one dtype,
    and the `_range()` of y: bounds that `_unmap` need not expect, since numbers on
    them are moved in by the least step and those beyond are NaN.

    Example:
        >>> class Cube(Elementwise):
        ...     def _map(self, x):
        ...         return x**3
        >>> Cube().forward(tf.constant(2.0, tf.bfloat16)).dtype.name
        'bfloat16'
    """

    def _is_increasing(self) -> Any:
        return True

    def _range(self) -> tuple[Any, Any]:
        return -np.inf, np.inf

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        if x.dtype in (tf.float32, tf.float64):
            return self._map(x)
        return tf.cast(self._map(precision.widened(x)), x.dtype)

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        wide = precision.widened(y)
        low, high = (precision.number(bound, wide.dtype) for bound in self._range())
        if self.validate_args:
            message = f"`{type(self).__name__}`: `y` expected numbers in its range"
            tf.debugging.assert_greater_equal(wide, low, message)
            tf.debugging.assert_less_equal(wide, high, message)
        return tf.cast(self._unmap(inside(wide, low, high)), y.dtype)

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        return tf.cast(self._log_slope(precision.widened(x)), x.dtype)


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, tf.Variable) or isinstance(other, tf.Variable):
        return False
    if tf.is_tensor(one) and tf.is_tensor(other):
        one, other = map(tf.get_static_value, (one, other))
    static = isinstance(one, numbers.Number | np.ndarray | np.generic)
    return static and not tf.is_tensor(other) and np.array_equal(one, other)
