"""Distributions of a location and a scale, cut off at two bounds.

A bounded action needs neither squashing nor clipping if its distribution ends at the
bounds. Log-densities and gradients stay finite however far off the location drifts.
"""

import operator
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfrl._internal import checks, draws
from tfrl.distributions import _families, _truncation, inverse_transform


class TruncatedDistribution(_families.Bounded):
    """A distribution of location and scale between two bounds.

    With density p and distribution function P of a standard distribution, and
    z(x) = (x - loc) / scale,

        q(x) = p(z(x)) / (scale (P(z(upper_bound)) - P(z(lower_bound)) + mass_floor))

    for x within the bounds and 0 elsewhere. The bounds' axes are the event's, over
    which log-densities are summed; what `loc` and `scale` have in front of them is the
    batch.

    Samples are reparameterised: with u uniform on (0, 1),

        x = loc + scale P^-1((1 - u) P(z(lower_bound)) + u P(z(upper_bound)))

    where the argument of P^-1 is held within [0.001, 0.999] and x within the bounds. So
    samples never leave the inner 99.8% of the distribution that is cut off; where the
    bounds lie wholly beyond, they sit on the nearer one.

    Args:
        loc: location, floating, of batch shape + event shape.
        scale: scale, positive, of batch shape + event shape.
        lower_bound: lower bounds, of event shape; -inf for none.
        upper_bound: upper bounds, above the lower ones, of event shape; inf for none.
        its: the standard distribution, an `InverseTransformSampling` class.
        mass_floor: what is added to the mass between the bounds. The default changes
            nothing as long as they hold more than some 1e-24. Where they hold less, 11
            scales away from a normal's location and farther, the density integrates to
            less than 1 and its logarithm falls with the square of the distance, which
            calls the location back. With 0 the density is normalised everywhere.
        validate_args: whether to check values while running.
        name: name of the distribution.

    Raises:
        TypeError: if a parameter is not of float32 or float64.
        ValueError: if a scale is not positive, a lower bound not below its upper one,
            or a shape does not fit.

    Example:
        >>> dist = TruncatedDistribution([[0.0, 9.0]], [[1.0, 1.0]], [-1.0, -1.0],
        ...                              [1.0, 2.0], tfrl.distributions.NormalITS)
        >>> dist.batch_shape.as_list(), dist.event_shape.as_list()
        ([1], [2])
        >>> dist.mode().numpy().tolist()
        [[0.0, 2.0]]
        >>> dist.log_prob([[0.5, 3.0]]).numpy().tolist()
        [-inf]
    """

    _bound_names = ("lower_bound", "upper_bound")
    _parameter_properties = _families.location_scale(_families.EVENT_RANK, _bound_names)

    def __init__(
        self,
        loc: Any,
        scale: Any,
        lower_bound: Any,
        upper_bound: Any,
        its: type[inverse_transform.InverseTransformSampling],
        mass_floor: float = 1e-30,
        validate_args: bool = False,
        name: str = "TruncatedDistribution",
    ) -> None:
        parameters = dict(locals())
        where = type(self).__name__
        checks.check_within(where, "mass_floor", mass_floor, 0.0, 1.0)
        super().__init__(parameters)
        bounds = {"lower_bound": self.lower_bound, "upper_bound": self.upper_bound}
        checks.check_same_shape(where, **bounds)
        if self.dtype not in (tf.float32, tf.float64):
            raise TypeError(
                f"`{where}`: `loc` and the others expected float32 or float64; got "
                f"{self.dtype.name}; cast them with tf.cast"
            )
        self._its, self._mass_floor = its, mass_floor

    lower_bound = property(operator.attrgetter("_least"), doc="Lower bounds.")
    upper_bound = property(operator.attrgetter("_greatest"), doc="Upper bounds.")

    its = property(operator.attrgetter("_its"), doc="The standard distribution.")
    mass_floor = property(
        operator.attrgetter("_mass_floor"),
        doc="What is added to the mass between the bounds.",
    )

    def _sample_n(self, n: Any, seed: Any = None) -> tf.Tensor:
        shape = [[n], self.batch_shape_tensor(), self.event_shape_tensor()]
        uniform = draws.uniform(tf.concat(shape, 0), seed, self.dtype)
        return _truncation.quantiles(uniform, self._tensors(), self._its)

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        return _truncation.log_density(
            value, self._tensors(), self._its, self._mass_floor
        )

    def _mode(self) -> tf.Tensor:
        return _truncation.nearest(*self._tensors())

    def _tensors(self) -> list[tf.Tensor]:
        given = self.loc, self.scale, self.lower_bound, self.upper_bound
        return [tf.convert_to_tensor(value) for value in given]


class _Standard(TruncatedDistribution):
    """A truncated distribution whose class names the standard distribution."""

    _standard: type[inverse_transform.InverseTransformSampling]

    def __init__(
        self,
        loc: Any,
        scale: Any,
        lower_bound: Any,
        upper_bound: Any,
        mass_floor: float = 1e-30,
        validate_args: bool = False,
        name: str | None = None,
    ) -> None:
        parameters = dict(locals())
        given = _families.arguments(parameters)
        given["name"] = name or type(self).__name__
        super().__init__(its=self._standard, **given)
        _families.keep(self, parameters)

    _parameter_properties = TruncatedDistribution._parameter_properties


class TruncatedNormal(_Standard):
    """A normal distribution between two bounds.

    `TruncatedDistribution` with `NormalITS`. Kullback-Leibler divergences between two
    with the same bounds are exact.

    Args:
        loc: mean before truncation, floating, of batch shape + event shape.
        scale: standard deviation before truncation, positive, likewise.
        lower_bound: lower bounds, of event shape; -inf for none.
        upper_bound: upper bounds, above the lower ones, of event shape; inf for none.
        mass_floor: what is added to the mass between the bounds.
        validate_args: whether to check values while running.
        name: name of the distribution; that of the class by default.

    Raises:
        TypeError: if a parameter is not of float32 or float64.
        ValueError: if a scale is not positive, a lower bound not below its upper one,
            or a shape does not fit.

    Example:
        >>> dist = TruncatedNormal([0.0, 5.0], [1.0, 0.1], -1.0, 1.0)
        >>> dist.prob(1.0).numpy().round(3)
        array([0.354, 0.   ], dtype=float32)
    """

    _standard = inverse_transform.NormalITS


class TruncatedCauchy(_Standard):
    """A Cauchy distribution between two bounds.

    `TruncatedDistribution` with `CauchyITS`, whose heavy tails keep all actions likely.

    Args:
        loc: median before truncation, floating, of batch shape + event shape.
        scale: half the width at half the height before truncation, positive, likewise.
        lower_bound: lower bounds, of event shape; -inf for none.
        upper_bound: upper bounds, above the lower ones, of event shape; inf for none.
        mass_floor: what is added to the mass between the bounds.
        validate_args: whether to check values while running.
        name: name of the distribution.

    Raises:
        TypeError: if a parameter is not of float32 or float64.
        ValueError: if a scale is not positive, a lower bound not below its upper one,
            or a shape does not fit.

    Example:
        >>> dist = TruncatedCauchy([0.0, 5.0], [1.0, 0.1], -1.0, 1.0)
        >>> dist.prob(0.0).numpy().round(3)
        array([0.637, 0.48 ], dtype=float32)
    """

    _standard = inverse_transform.CauchyITS


class TruncatedT2(_Standard):
    """Student's t distribution with 2 degrees of freedom between two bounds.

    `TruncatedDistribution` with `T2ITS`: between the normal and the Cauchy in the
    weight of its tails, and the cheapest of the three.

    Args:
        loc: median before truncation, floating, of batch shape + event shape.
        scale: scale before truncation, positive, likewise.
        lower_bound: lower bounds, of event shape; -inf for none.
        upper_bound: upper bounds, above the lower ones, of event shape; inf for none.
        mass_floor: what is added to the mass between the bounds.
        validate_args: whether to check values while running.
        name: name of the distribution.

    Raises:
        TypeError: if a parameter is not of float32 or float64.
        ValueError: if a scale is not positive, a lower bound not below its upper one,
            or a shape does not fit.

    Example:
        >>> dist = TruncatedT2([0.0, 5.0], [1.0, 0.1], -1.0, 1.0)
        >>> dist.prob(0.0).numpy().round(3)
        array([0.707, 0.461], dtype=float32)
    """

    _standard = inverse_transform.T2ITS


@tfp.distributions.RegisterKL(TruncatedNormal, TruncatedNormal)
def _kl_truncated_normals(
    a: TruncatedNormal, b: TruncatedNormal, name: str | None = None
) -> tf.Tensor:
    """The divergence of the normalised densities, whatever their `mass_floor`."""
    _families.check_same_bounds(a, b, "lower_bound", "upper_bound")
    with tf.name_scope(name or "kl_truncated_normals"):
        return _truncation.kl_divergence(a._tensors(), b._tensors())
