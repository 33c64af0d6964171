"""Sampling and scoring in PyTorch, for tools/benchmarks/distributions.py to measure.

Each returns actions and the log-densities of their rows.
"""

import math

import torch
from torch import distributions


def squashed_normal(loc, scale):
    normal = distributions.Normal(loc, scale, validate_args=False)
    squash = distributions.transforms.TanhTransform(cache_size=1)
    return scored(
        distributions.TransformedDistribution(normal, squash, validate_args=False)
    )


def truncated_normal(loc, scale):
    """PyTorch has none: what programs write, right for locations near the bounds."""
    root = math.sqrt(2.0)
    low, high = (
        0.5 * (1 + torch.erf((bound - loc) / scale / root)) for bound in (-1.0, 1.0)
    )
    share = low + (high - low) * torch.rand_like(loc)
    z = root * torch.erfinv(2 * share - 1)
    log_probs = -0.5 * z**2 - 0.5 * math.log(2 * math.pi)
    log_probs = log_probs - torch.log(scale * (high - low))
    return torch.clamp(loc + scale * z, -1.0, 1.0), log_probs.sum(-1)


def beta(one, other):
    return scored(distributions.Beta(one, other, validate_args=False))


def scored(each):
    independent = distributions.Independent(each, 1, validate_args=False)
    actions = independent.rsample()
    return actions, independent.log_prob(actions)
