"""Losses in plain PyTorch, for tools/benchmarks/losses.py to measure.

Each returns a mean over the batch, but for `project`, which returns distributions.
"""

import torch
from torch.nn import functional


def multi_quantile_huber(quantiles, target, delta):
    count = quantiles.shape[-1]
    taus = (torch.arange(count) + 0.5) / count
    errors = target[:, None, :] - quantiles[:, :, None]
    huber = functional.huber_loss(
        quantiles[:, :, None].expand_as(errors),
        target[:, None, :].expand_as(errors),
        reduction="none",
        delta=delta,
    )
    weights = (taus[:, None] - (errors.detach() < 0).float()).abs()
    return (weights * huber / delta).mean()


def split(target, count):
    """Index of the grid value below each target, and the share of the next one."""
    low, high = -((count - 1) // 2), count // 2
    position = target.clamp(low, high) - low
    below = position.floor()
    return below.long(), position - below


def negative_entropy(share):
    return torch.special.xlogy(share, share) + torch.special.xlogy(1 - share, 1 - share)


def discrete_regression(logits, target):
    count = logits.shape[-1]
    below, share = split(target, count)
    log_probs = functional.log_softmax(logits, dim=-1)
    above = (below + 1).clamp(max=count - 1)
    left = log_probs.gather(-1, below[:, None])[:, 0]
    right = log_probs.gather(-1, above[:, None])[:, 0]
    cross_entropy = -(1 - share) * left - share * right
    return functional.relu(cross_entropy + negative_entropy(share)).mean()


def ordered_discrete_regression(logits, target):
    count = logits.shape[-1]
    below, share = split(target, count)
    steps = below[:, None] + 1 - torch.arange(count)
    probs = (steps + share[:, None]).clamp(0, 1)
    cross_entropy = functional.binary_cross_entropy_with_logits(
        logits, probs, reduction="none"
    ).sum(dim=-1)
    return functional.relu(cross_entropy + negative_entropy(share)).mean()


def ppo_clip(log_probs, old_log_probs, advantages, clip):
    ratios = (log_probs - old_log_probs).exp()
    bounded = ratios.clamp(1 - clip, 1 + clip)
    return -torch.min(ratios * advantages, bounded * advantages).mean()


def project(probs, support, target_support):
    """C51's projection by scattering, as single-file programs do it."""
    low, high = target_support[0], target_support[-1]
    gap = target_support[1] - target_support[0]
    position = ((support.clamp(low, high) - low) / gap).clamp(
        max=len(target_support) - 1
    )
    below, above = position.floor(), position.ceil()
    # Where both are one, all of the probability goes there.
    left = (above - position + (below == above)) * probs
    right = (position - below) * probs
    out = torch.zeros_like(probs)
    out.scatter_add_(-1, below.long(), left)
    out.scatter_add_(-1, above.long(), right)
    return out


def with_gradient(function):
    """Of a loss: its value and its gradient in the first argument."""

    def both(first, *rest):
        leaf = first.detach().requires_grad_()
        loss = function(leaf, *rest)
        loss.backward()
        return loss.detach(), leaf.grad

    return both
