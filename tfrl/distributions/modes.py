"""Modes of distributions, and the base distributions within them."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.distributions import normal, product

tfd = tfp.distributions
tfb = tfp.bijectors

_WITHOUT_BASE = (
    tfd.JointDistribution,
    tfd.Mixture,
    tfd.MixtureSameFamily,
    tfd.OneHotCategorical,
    product.Product,
)


def check_distribution(where: str, name: str, value: Any) -> None:
    """Raises a TypeError unless an argument is a distribution: it can score values."""
    if not callable(getattr(value, "log_prob", None)):
        raise TypeError(
            f"`{where}`: `{name}` expected distributions; got "
            f"{type(value).__name__}, which has no `log_prob`"
        )


def check_distributions(where: str, name: str, nest: Any) -> None:
    """Raises a TypeError unless all leaves of a nest are distributions."""
    for leaf in tf.nest.flatten(nest):
        check_distribution(where, name, leaf)


def get_mode(dist: tfp.distributions.Distribution) -> Any:
    """Returns the most probable value of a distribution, or what stands for it.

    Where a transformed distribution does not know its mode, the mode of what it
    transforms is transformed, without gradient; a mixture gives the mode of its most
    probable component. Neither need be the mode.

    Args:
        dist: the distribution.

    Returns:
        `[..., *event]`, a nest if draws are nests.

    Raises:
        NotImplementedError: if there is no way to the mode.

    Example:
        >>> dist = tfd.TransformedDistribution(tfd.Normal(0.5, 1.0), tfb.Tanh())
        >>> round(float(get_mode(dist)), 4)
        0.4621
    """
    check_distribution("get_mode", "dist", dist)
    return _mode(dist, tf.stop_gradient)


def get_rmode(dist: tfp.distributions.Distribution) -> Any:
    """Returns what `get_mode` does, with gradients to the parameters.

    Args:
        dist: the distribution, continuous.

    Returns:
        `[..., *event]`, a nest if draws are nests.

    Raises:
        NotImplementedError: if there is no way to the mode, or the values are
            categories.

    Example:
        >>> loc = tf.constant(0.5)
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(loc)
        ...     dist = tfd.TransformedDistribution(tfd.Normal(loc, 1.0), tfb.Tanh())
        ...     mode = get_rmode(dist)
        >>> round(float(tape.gradient(mode, loc)), 4)
        0.7864
    """
    check_distribution("get_rmode", "dist", dist)
    for part in _innermost(dist):
        dtypes = tf.nest.flatten(part.dtype)
        is_continuous = all(dtype.is_floating for dtype in dtypes)
        if isinstance(part, tfd.OneHotCategorical) or not is_continuous:
            raise NotImplementedError(
                "`get_rmode`: `dist` expected continuous values; got "
                f"{type(part).__name__}; use `get_mode`"
            )
    return _mode(dist, tf.identity)


def get_base_dist(
    dist: tfp.distributions.Distribution,
) -> tfp.distributions.Distribution:
    """Returns what lies within `Independent` and transformed distributions.

    Args:
        dist: the distribution.

    Returns:
        The distribution of single numbers below all of them: of a multivariate normal
        of TFP with diagonal covariance a `Normal`, of others `dist` itself.

    Raises:
        NotImplementedError: if `dist` is a mixture, a product or of one-hot vectors.

    Example:
        >>> type(get_base_dist(tfd.Independent(tfd.Laplace([0.0], 1.0), 1))).__name__
        'Laplace'
    """
    check_distribution("get_base_dist", "dist", dist)
    base = _unwrapped(dist)
    if isinstance(base, tfd.MultivariateNormalDiag):
        return normal.Normal(base.mean(), base.stddev())
    if isinstance(base, _WITHOUT_BASE):
        raise NotImplementedError(
            "`get_base_dist`: `dist` expected a single distribution of numbers or "
            f"categories, maybe transformed; got {type(base).__name__}"
        )
    return base


def _mode(dist: Any, passed: Callable[[tf.Tensor], tf.Tensor]) -> Any:
    if isinstance(dist, product.Product):
        return tf.nest.map_structure(
            lambda part: _mode(part, passed), dist.distributions
        )
    if isinstance(dist, tfd.Independent):
        return _mode(dist.distribution, passed)
    if isinstance(dist, tfd.MixtureSameFamily):
        modes = _mode(dist.components_distribution, passed)
        return _of_most_probable(dist, dist.mixture_distribution, modes)
    if isinstance(dist, tfd.Mixture):
        modes = [_mode(part, passed) for part in dist.components]
        modes = tf.stack(modes, axis=-1 - dist.event_shape.rank)
        return _of_most_probable(dist, dist.cat, modes)
    is_transformed = _is_transformed(dist)
    try:
        mode = dist.mode()
    except NotImplementedError as error:
        if not is_transformed:
            raise NotImplementedError(
                "`get_mode`: `dist` expected a distribution whose mode is known; got "
                f"{type(dist).__name__}"
            ) from error
        mode = dist.bijector.forward(_mode(dist.distribution, passed))
    return passed(mode) if is_transformed else mode


def _of_most_probable(dist: Any, mixture: Any, modes: tf.Tensor) -> tf.Tensor:
    """Picks, of modes `[..., K, *event]`, those of the component with most weight."""
    outer, event = dist.batch_shape_tensor(), dist.event_shape_tensor()
    n_outer, n_parts = dist.batch_shape.rank, modes.shape[-1 - dist.event_shape.rank]
    modes = tf.broadcast_to(modes, tf.concat([outer, [n_parts], event], axis=0))
    index = tf.broadcast_to(mixture.mode(), outer)
    return tf.gather(modes, index, axis=n_outer, batch_dims=n_outer)


def _is_transformed(dist: Any) -> bool:
    # TFP's multivariate normals are written as transformed ones, but know their mode.
    return isinstance(dist, tfd.TransformedDistribution) and not isinstance(
        dist, tfd.MultivariateNormalLinearOperator
    )


def _unwrapped(dist: Any) -> Any:
    while isinstance(dist, tfd.Independent) or _is_transformed(dist):
        dist = dist.distribution
    return dist


def _innermost(dist: Any) -> list[Any]:
    """The distributions that all values come from."""
    dist = _unwrapped(dist)
    if isinstance(dist, tfd.MixtureSameFamily):
        return _innermost(dist.components_distribution)
    parts = [dist]
    if isinstance(dist, product.Product):
        parts = tf.nest.flatten(dist.distributions)
    if isinstance(dist, tfd.Mixture):
        parts = dist.components
    if parts == [dist]:
        return parts
    return [leaf for part in parts for leaf in _innermost(part)]
