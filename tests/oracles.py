"""Slow formulations of what the package computes, straight from the definitions.

Plain Python and numpy in float64, importing nothing of tfrl.
"""

import numpy as np

LAST = 2


def _columns(*arrays):
    """Index of every column of `[T, ...]` arrays, and the arrays in float64."""
    arrays = [np.asarray(array, np.float64) for array in arrays]
    shape = np.broadcast_shapes(*(array.shape[1:] for array in arrays))
    arrays = [np.broadcast_to(a, (len(a), *shape)) for a in arrays]
    return arrays, list(np.ndindex(shape))


def discounted_return(rewards, values, step_types, discounts):
    """Walks forward from each step until a LAST step or the end of the data."""
    (r, v, k, d), columns = _columns(rewards, values, step_types, discounts)
    out = np.zeros_like(v[:-1])
    for column in columns:
        for start in range(len(v) - 1):
            total, weight, t = 0.0, 1.0, start
            at = (t, *column)
            while t < len(v) - 1 and k[at] != LAST:
                t += 1
                at = (t, *column)
                total += weight * r[at]
                weight *= d[at]
            out[(start, *column)] = total + weight * v[at]
    return out


def one_step_discounted_return(rewards, values, step_types, discounts):
    """One transition at a time."""
    (r, v, k, d), columns = _columns(rewards, values, step_types, discounts)
    out = np.zeros_like(v[:-1])
    for column in columns:
        for t in range(len(v) - 1):
            now, after = (t, *column), (t + 1, *column)
            ended = k[now] == LAST
            out[now] = d[now] * v[now] if ended else r[after] + d[after] * v[after]
    return out


def advantages(rewards, values, step_types, discounts, td_lambda):
    """The sum of (gamma lambda)^l delta[t + l], each delta written out."""
    (r, v, k, d), columns = _columns(rewards, values, step_types, discounts)
    out = np.zeros_like(v[:-1])
    for column in columns:
        for start in range(len(v) - 1):
            weight = 1.0
            for t in range(start, len(v) - 1):
                now, after = (t, *column), (t + 1, *column)
                if k[now] == LAST:
                    break
                delta = r[after] + d[after] * v[after] - v[now]
                out[(start, *column)] += weight * delta
                weight *= d[after] * td_lambda
    return out


def td_lambda_return(rewards, discounts, next_values, lambda_):
    """Forward view: the n-step returns, each weighted by the lambdas it passed."""
    lambda_ = (
        np.broadcast_to(lambda_, np.shape(rewards)[:1])
        if np.ndim(lambda_) == 0
        else lambda_
    )
    lambda_ = np.reshape(
        lambda_, np.shape(lambda_) + (1,) * (np.ndim(rewards) - np.ndim(lambda_))
    )
    (r, d, v, w), columns = _columns(rewards, discounts, next_values, lambda_)
    out = np.zeros_like(v)
    steps = len(v)
    for column in columns:
        for start in range(steps):
            reached, summed, discounted = 1.0, 0.0, 1.0
            for t in range(start, steps):
                at = (t, *column)
                summed += discounted * r[at]
                discounted *= d[at]
                stays = 0.0 if t == steps - 1 else w[at]
                out[(start, *column)] += (
                    reached * (1.0 - stays) * (summed + discounted * v[at])
                )
                reached *= stays
    return out


def vtrace_targets(values, next_values, rewards, discounts, rhos, lambda_, clip_rho):
    """Espeholt et al. (2018), equation 1: the sum of products, written out."""
    arrays = (values, next_values, rewards, discounts, rhos, lambda_)
    (v, n, r, d, p, w), columns = _columns(*arrays)
    out = np.array(v)
    for column in columns:
        for s in range(len(v)):
            product = 1.0
            for t in range(s, len(v)):
                at = (t, *column)
                delta = min(clip_rho, p[at]) * (r[at] + d[at] * n[at] - v[at])
                out[(s, *column)] += product * delta
                product *= d[at] * w[at] * min(1.0, p[at])
    return out
