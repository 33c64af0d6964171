"""Entropies: exact, estimated from draws, and targets for policies."""

import math
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl._internal import checks
from tfrl.core import arrays, random, specs
from tfrl.distributions import modes, product, sampling

tfd = tfp.distributions
tfb = tfp.bijectors


def compute_entropy(distributions: Any) -> tf.Tensor:
    """Returns the entropy of a nest of independent distributions.

        H = sum_i H(p_i)

    Args:
        distributions: nest of distributions of one batch shape.

    Returns:
        `[...]`, the batch shape, in nats.

    Raises:
        NotImplementedError: if an entropy has no closed form; see
            `entropy_with_fallback`.
        ValueError: if there is no distribution, or the shapes of the entropies differ.

    Example:
        >>> pair = (tfd.Categorical(logits=[0.0, 0.0]), tfd.Uniform(0.0, 2.0))
        >>> float(compute_entropy(pair)) == float(np.float32(2 * math.log(2)))
        True
    """
    where = "compute_entropy"
    modes.check_distributions(where, "distributions", distributions)
    entropies = [leaf.entropy() for leaf in tf.nest.flatten(distributions)]
    return sampling.total(where, "entropy", entropies)


def entropy_with_fallback(
    distributions: Any, return_sum: bool = True, seed: Any = None
) -> tuple[Any, Any]:
    """Returns the entropy of a nest, estimated where there is no closed form.

    An estimate is one draw's, see `estimated_entropy`.

    Args:
        distributions: nest of distributions.
        return_sum: whether to add up the parts.
        seed: int, int32 `[2]` tensor or None, of the draws.

    Returns:
        `(entropy, entropy_for_gradient)`: the first for its value, the second for its
        gradient; the same where it is exact. Both are `[...]`, or nests of that if
        `return_sum` is False.

    Raises:
        ValueError: if `return_sum` meets no distribution, or the shapes of the
            entropies differ.

    Example:
        >>> squashed = tfd.TransformedDistribution(tfd.Normal(0.0, 1.0), tfb.Tanh())
        >>> entropies, _ = entropy_with_fallback(
        ...     [tfd.Normal(0.0, 1.0), squashed], return_sum=False, seed=0)
        >>> round(float(entropies[0]), 4)
        1.4189
    """
    where = "entropy_with_fallback"
    modes.check_distributions(where, "distributions", distributions)
    leaves = tf.nest.flatten(distributions)
    seeds = random.split_seed(seed, len(leaves)) if leaves else []
    pairs = [_entropies(*pair) for pair in zip(leaves, seeds, strict=True)]
    entropies, for_gradients = zip(*pairs, strict=True) if pairs else ((), ())
    if return_sum:
        return (
            sampling.total(where, "entropy", entropies),
            sampling.total(where, "entropy", for_gradients),
        )
    return (
        tf.nest.pack_sequence_as(distributions, entropies),
        tf.nest.pack_sequence_as(distributions, for_gradients),
    )


def estimated_entropy(
    dist: tfp.distributions.Distribution,
    num_samples: int = 1,
    check_numerics: bool = False,
    seed: Any = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Estimates an entropy from draws, without bias, and so its gradient.

        H = -E[log p(x)] ~ -mean_i log p(x_i),   x_i drawn

    Where draws are reparameterised, the gradient of that, through the draws too, is
    unbiased. Where they are not, the gradient at fixed draws would be 0 on average;
    that of

        mean_i -(log p(x_i))^2 / 2,   gradient -log p(x_i) grad log p(x_i)

    is unbiased instead.

    Args:
        dist: the distribution.
        num_samples: number of draws.
        check_numerics: whether to refuse NaN and infinity; XLA drops the check.
        seed: int, int32 `[2]` tensor or None, of the draws.

    Returns:
        `(entropy, entropy_for_gradient)`, each `[...]`, the batch shape. Of the second
        only the gradient means something, unless it is the first.

    Raises:
        ValueError: if `num_samples` is less than 1, or with `check_numerics` a
            number is not finite.

    Example:
        >>> entropy, _ = estimated_entropy(tfd.Uniform(0.0, 2.0), num_samples=3)
        >>> float(entropy) == float(np.float32(math.log(2.0)))
        True

    References:
        Williams, 1992, Simple statistical gradient-following algorithms for
        connectionist reinforcement learning, section 3 (of the second form).
    """
    where = "estimated_entropy"
    modes.check_distribution(where, "dist", dist)
    checks.check_within(where, "num_samples", num_samples, 1, math.inf)
    seed = random.checked_seed(where, seed)
    kinds = tf.nest.flatten(dist.reparameterization_type)
    if all(kind == tfd.FULLY_REPARAMETERIZED for kind in kinds):
        _, log_probs = dist.experimental_sample_and_log_prob(num_samples, seed=seed)
        entropy = for_gradient = -tf.reduce_mean(log_probs, axis=0)
    else:
        draws = dist.sample(num_samples, seed=seed)
        log_probs = dist.log_prob(tf.nest.map_structure(tf.stop_gradient, draws))
        entropy = -tf.reduce_mean(log_probs, axis=0)
        for_gradient = -0.5 * tf.reduce_mean(tf.square(log_probs), axis=0)
    if check_numerics:
        arrays.check_numerics([entropy, for_gradient])
    return entropy, for_gradient


def calc_default_target_entropy(spec: Any, min_prob: float = 0.1) -> np.float64:
    """Returns the entropy of a near-deterministic policy.

    Summed over the numbers of an action, each with bounds [m, M]:

        continuous: log(M - m) + log(min_prob), uniform over a share `min_prob`
        discrete:   min_prob (log(N - 1) - log(min_prob))
                    - (1 - min_prob) log(1 - min_prob)

    where one of N = M - m + 1 values has the probability `1 - min_prob` and the others
    share the rest; 0 for N = 1.

    Args:
        spec: `BoundedTensorSpec` of an action.
        min_prob: in (0, 1].

    Returns:
        The entropy in nats.

    Raises:
        TypeError: if `spec` has no bounds.
        ValueError: if bounds are infinite or equal for floats, or `min_prob` is out of
            range.

    Example:
        >>> spec = specs.BoundedTensorSpec([2], tf.float32, -1.0, 1.0)
        >>> round(float(calc_default_target_entropy(spec)), 4)  # 2 log 0.2
        -3.2189
    """
    where = "calc_default_target_entropy"
    checks.check_positive(where, "min_prob", min_prob)
    checks.check_within(where, "min_prob", min_prob, 0.0, 1.0)
    sizes = _sizes(where, spec)
    if spec.dtype.is_floating:
        return np.sum(np.log(sizes) + math.log(min_prob))
    others = np.log(np.maximum(sizes - 1.0, 1.0))
    entropies = min_prob * (others - math.log(min_prob))
    if min_prob < 1.0:
        entropies -= (1.0 - min_prob) * math.log1p(-min_prob)
    return np.sum(np.where(sizes > 1.0, entropies, 0.0))


def calc_default_max_entropy(spec: Any, fraction: float = 0.8) -> np.float64:
    """Returns a share of the greatest entropy a policy can have.

    Summed over the numbers of an action, with e the entropy of the uniform
    distribution (`log(M - m)`, or `log(M - m + 1)` for integers): `fraction * e`, or
    `e / fraction` where e is negative, so that it is less than e either way.

    Args:
        spec: `BoundedTensorSpec` of an action.
        fraction: in (0, 1].

    Returns:
        The entropy in nats.

    Raises:
        TypeError: if `spec` has no bounds.
        ValueError: if bounds are infinite or equal for floats, or `fraction` is out of
            range.

    Example:
        >>> spec = specs.BoundedTensorSpec([], tf.int64, 0, 4)
        >>> round(float(calc_default_max_entropy(spec)), 4)  # 0.8 log 5
        1.2876
    """
    where = "calc_default_max_entropy"
    checks.check_positive(where, "fraction", fraction)
    checks.check_within(where, "fraction", fraction, 0.0, 1.0)
    log_sizes = np.log(_sizes(where, spec))
    return np.sum(np.where(log_sizes > 0, log_sizes * fraction, log_sizes / fraction))


def calc_default_target_entropy_quantized(
    spec: Any, num_bins: int, ent_per_action_dim: float = -1.0
) -> np.float64:
    """Returns the entropy to aim at for a continuous action chosen by bins.

    With the density that has entropy `ent_per_action_dim` over [m, M] cut into
    `num_bins` bins, a number of the action has the entropy

        log(num_bins) + ent_per_action_dim - log(M - m)

    and an action the sum over its first axis, of means over others if there are.

    Args:
        spec: `BoundedTensorSpec` of floats `[D, ...]`.
        num_bins: number of bins of each action dimension.
        ent_per_action_dim: entropy to aim at without bins, per action dimension; -1 is
            usual in soft actor-critic.

    Returns:
        The entropy in nats, greater than 0.

    Raises:
        TypeError: if `spec` has no bounds.
        ValueError: if `spec` is not of floats or a scalar, bounds are infinite or
            equal, or the result is not positive.

    Example:
        >>> spec = specs.BoundedTensorSpec([3], tf.float32, -1.0, 1.0)
        >>> round(float(calc_default_target_entropy_quantized(spec, 15)), 4)
        3.0447
    """
    where = "calc_default_target_entropy_quantized"
    checks.check_within(where, "num_bins", num_bins, 1, math.inf)
    log_sizes = np.log(_sizes(where, spec))
    if not spec.dtype.is_floating or not spec.shape.rank:
        raise ValueError(
            f"`{where}`: `spec` expected floats of shape [D, ...]; got {spec}; "
            "a scalar action needs shape [1], a discrete one no bins"
        )
    entropies = math.log(num_bins) + ent_per_action_dim - log_sizes
    entropy = np.mean(entropies) * len(entropies)
    if not entropy > 0.0:
        raise ValueError(
            f"`{where}`: `num_bins` expected more bins for entropy "
            f"{ent_per_action_dim} per dimension, so that the result is greater than "
            f"0; got {num_bins} and {entropy}; raise one of the two"
        )
    return entropy


def calc_uniform_log_prob(spec: Any) -> np.float64:
    """Returns the log-probability of each action under the uniform distribution.

        - sum log(M - m),   or - sum log(M - m + 1) for integers

    Args:
        spec: `BoundedTensorSpec` of an action.

    Returns:
        The log-probability, a log-density for floats.

    Raises:
        TypeError: if `spec` has no bounds.
        ValueError: if bounds are infinite, or equal for floats.

    Example:
        >>> spec = specs.BoundedTensorSpec([2], tf.int64, 0, 1)
        >>> round(float(calc_uniform_log_prob(spec)), 4)  # -log 4
        -1.3863
    """
    return -np.sum(np.log(_sizes("calc_uniform_log_prob", spec)))


def active_action_target_entropy(
    active_action_portion: float = 0.2, min_entropy: float = 0.3, spec: Any = None
) -> float:
    """Returns the entropy of a uniform choice among a share of all discrete actions.

        max(log(N * active_action_portion), min_entropy),   N the number of actions

    Args:
        active_action_portion: in (0, 1]; has no effect below `exp(min_entropy) / N`.
        min_entropy: the least result.
        spec: `BoundedTensorSpec` of the discrete action; required.

    Returns:
        The entropy in nats.

    Raises:
        TypeError: if `spec` has no bounds.
        ValueError: if `spec` is not discrete, or the portion out of range.

    Example:
        >>> spec = specs.BoundedTensorSpec([], tf.int64, 0, 99)
        >>> round(active_action_target_entropy(0.2, spec=spec), 4)  # log 20
        2.9957
    """
    where = "active_action_target_entropy"
    checks.check_positive(where, "active_action_portion", active_action_portion)
    checks.check_within(where, "active_action_portion", active_action_portion, 0.0, 1.0)
    log_sizes = np.log(_sizes(where, spec))
    if spec.dtype.is_floating:
        raise ValueError(f"`{where}`: `spec` expected a discrete action; got {spec}")
    return max(float(log_sizes.sum()) + math.log(active_action_portion), min_entropy)


def _entropies(dist: Any, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    if isinstance(dist, product.Product):
        return entropy_with_fallback(dist.distributions, seed=seed)
    try:
        entropy = dist.entropy()
    except NotImplementedError:
        return estimated_entropy(dist, seed=seed)
    return entropy, entropy


def _sizes(where: str, spec: Any) -> np.ndarray:
    """The length of each range, or for integers their number."""
    if not isinstance(spec, specs.BoundedTensorSpec):
        raise checks.wrong_type(where, "spec", spec, "a BoundedTensorSpec")
    checks.check_known_shape(where, "spec", spec)
    checks.check_finite(where, "spec.minimum", spec.minimum)
    checks.check_finite(where, "spec.maximum", spec.maximum)
    low, high = (bound.astype(np.float64) for bound in (spec.minimum, spec.maximum))
    sizes = high - low if spec.dtype.is_floating else high - low + 1.0
    if not np.all(sizes > 0.0):
        raise ValueError(
            f"`{where}`: `spec` expected a minimum below the maximum; got {spec}"
        )
    return sizes
