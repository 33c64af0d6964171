"""Losses made of rlax's parts, for tools/benchmarks/losses.py to measure.

Each returns a mean over the batch, but for `project`, which returns distributions.
"""

import jax
import jax.numpy as jnp
import rlax


def multi_quantile_huber(quantiles, target, delta):
    count = quantiles.shape[-1]
    taus = (jnp.arange(count) + 0.5) / count
    function = jax.vmap(rlax.quantile_regression_loss, (0, None, 0, None))
    # rlax sums over the quantiles and does not divide by delta.
    return function(quantiles, taus, target, delta).mean() / (count * delta)


def discrete_regression(logits, target):
    count = logits.shape[-1]
    probs = rlax.transform_to_2hot(
        target, -((count - 1) // 2), count // 2, num_bins=count
    )
    cross_entropy = jax.vmap(rlax.categorical_cross_entropy)(probs, logits)
    negative_entropy = jax.scipy.special.xlogy(probs, probs).sum(axis=-1)
    return (cross_entropy + negative_entropy).mean()


def ppo_clip(log_probs, old_log_probs, advantages, clip):
    ratios = jnp.exp(log_probs - old_log_probs)
    return rlax.clipped_surrogate_pg_loss(ratios, advantages, clip)


def project(probs, support, target_support):
    function = jax.vmap(rlax.categorical_l2_project, (0, 0, None))
    return function(support, probs, target_support)
