"""How far normals with independent dimensions are from each other."""

import tensorflow as tf

from tfrl._internal import checks, operands, precision
from tfrl.core import compile


def normal_divergence(
    loc: operands.TensorLike,
    scale: operands.TensorLike,
    other_loc: operands.TensorLike,
    other_scale: operands.TensorLike,
) -> tf.Tensor:
    """Computes the Kullback-Leibler divergence of normals, dimension by dimension.

        KL(N(m, s^2) || N(m', s'^2)) = log(s'/s) + (s^2 + (m - m')^2) / (2 s'^2) - 1/2

    The sum over the last axis is that of the factorised normals. MPO bounds changes of
    means and scales apart: with `(target_loc, target_scale)` first, pass
    `(loc, target_scale)` for those of the means, and `(target_loc, scale)` for those of
    the scales.

    Args:
        loc: m `[..., D]`, floating.
        scale: s `[..., D]`, positive.
        other_loc: m' `[..., D]`.
        other_scale: s' `[..., D]`, positive.

    Returns:
        `[..., D]`, dtype of `loc`.

    Raises:
        ValueError: if the shapes differ, or a scale is known not to be positive.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> normal_divergence([0.0, 0.0], [1.0, 1.0], [2.0, 0.0], [1.0, 1.0]).numpy()
        array([2., 0.], dtype=float32)

    References:
        Abdolmaleki et al., 2018, Relative Entropy Regularized Policy Iteration,
        appendix, "decoupled" updates of mean and covariance.
    """
    where = "normal_divergence"
    loc = operands.leading(where, "loc", loc)
    named = {"scale": scale, "other_loc": other_loc, "other_scale": other_scale}
    others = [operands.equal(where, k, v, "loc", loc) for k, v in named.items()]
    for name in ("scale", "other_scale"):
        checks.check_positive(where, name, named[name])
    return _divergence(loc, *others)


@compile.compiled
def _divergence(
    loc: tf.Tensor, scale: tf.Tensor, other_loc: tf.Tensor, other_scale: tf.Tensor
) -> tf.Tensor:
    tensors = map(precision.widened, (loc, scale, other_loc, other_scale))
    mean, spread, other_mean, other_spread = tensors
    log_ratio = tf.math.log(spread) - tf.math.log(other_spread)
    # Of equal scales nothing is subtracted that does not cancel exactly.
    gain = tf.math.expm1(2.0 * log_ratio) - 2.0 * log_ratio
    gap = precision.quotient(mean - other_mean, other_spread)
    return tf.cast(0.5 * (gain + tf.square(gap)), loc.dtype)
