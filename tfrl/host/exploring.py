"""How policies draw actions from what their network makes, in NumPy.

Each function takes a head, the outputs of a network and a generator, and is sent to
processes that act without TensorFlow.
"""

from typing import Any

import numpy as np

from tfrl.host import heads


def epsilon_greedily(
    head: heads.NumpyCategorical,
    values: np.ndarray,
    rng: np.random.Generator,
    epsilon: float,
) -> np.ndarray:
    """Draws choices by their values.

    Args:
        head: of the choices.
        values: `[N, n]`, of all options; -inf of those that are not allowed.
        rng: what draws.
        epsilon: share of random choices.

    Returns:
        Raw actions `[N]`.

    Example:
        >>> head = heads.NumpyCategorical((2,), (0,), scalar=True, dtype="int64")
        >>> values = np.array([[0.0, 1.0]])
        >>> epsilon_greedily(head, values, np.random.default_rng(0), 0.0)
        array([1], dtype=int32)
    """
    allowed = values != -np.inf
    return head.host_sample(heads.epsilon_greedy_logits(values, epsilon, allowed), rng)


def within_deviations(
    head: Any,
    bounds: tuple[float, float],
    parameters: np.ndarray,
    rng: np.random.Generator,
) -> Any:
    """Draws actions, of log standard deviations that are clipped to bounds.

    Args:
        head: whose last parameters are log standard deviations.
        bounds: least and greatest of these.
        parameters: `[N, n]`.
        rng: what draws.

    Returns:
        Nest of raw actions `[N, ...]`.

    Example:
        >>> head = heads.NumpyNormal((-1.0,), (1.0,), (1,), "float32")
        >>> parameters, rng = np.array([[0.5, -1e9]], "f"), np.random.default_rng(0)
        >>> within_deviations(head, (-20.0, 2.0), parameters, rng).round(4).tolist()
        [[0.5]]
    """
    n = head.n_outputs - head.n_log_stds
    log_std = np.clip(parameters[..., n:], *bounds)
    return head.host_sample(np.concatenate([parameters[..., :n], log_std], -1), rng)


def disturbed(
    head: heads.NumpyNormal,
    means: np.ndarray,
    rng: np.random.Generator,
    noise: float | np.ndarray,
) -> np.ndarray:
    """Draws actions around those of a deterministic network.

    Args:
        head: of the actions.
        means: `[N, D]`.
        rng: what draws.
        noise: standard deviation, `[]` or `[D]`.

    Returns:
        Raw actions `[N, D]`.

    Example:
        >>> head = heads.NumpyNormal((-1.0,), (1.0,), (1,), "float32")
        >>> disturbed(head, np.zeros((1, 1), "f"), np.random.default_rng(0), 0.0)
        array([[0.]], dtype=float32)
    """
    with np.errstate(divide="ignore"):
        log_std = np.log(np.asarray(noise, np.float32))
    log_std = np.broadcast_to(log_std, means.shape)
    return head.host_sample(np.concatenate([means, log_std], axis=-1), rng)
