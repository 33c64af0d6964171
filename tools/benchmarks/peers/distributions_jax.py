"""Sampling and scoring in distrax and JAX, for tools/benchmarks/distributions.py.

Each returns actions and the log-densities of their rows.
"""

import distrax
import jax


def squashed_normal(loc, scale, key):
    normal = distrax.MultivariateNormalDiag(loc, scale)
    squash = distrax.Block(distrax.Tanh(), 1)
    return distrax.Transformed(normal, squash).sample_and_log_prob(seed=key)


def truncated_normal(loc, scale, key):
    """distrax has none."""
    low, high = (-1.0 - loc) / scale, (1.0 - loc) / scale
    actions = loc + scale * jax.random.truncated_normal(key, low, high, loc.shape)
    each = jax.scipy.stats.truncnorm.logpdf(actions, low, high, loc, scale)
    return actions, each.sum(-1)


def beta(one, other, key):
    each = distrax.Independent(distrax.Beta(one, other), 1)
    return each.sample_and_log_prob(seed=key)
