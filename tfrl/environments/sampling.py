"""Random elements of spaces and random transitions, for shapes and for tests."""

import copy
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from tfrl._internal import arguments, gym_checks

_BOUND = 1e9
_MAX_SEED = np.iinfo(np.int32).max


class TransitionBatch(NamedTuple):
    """`B` transitions with everything that learners usually need.

    Attributes:
        observations: nest of `[B, *shape]`, what was seen before the action.
        actions: nest of `[B, *shape]`.
        log_probs: `[B]`, of the actions under the policy that took them.
        rewards: `[B]`, summed over the steps of the transition.
        discounts: `[B]`, 0 where the episode ended, else the discount of what follows.
        next_observations: nest of `[B, *shape]`, what was seen after the action.
        next_actions: nest of `[B, *shape]`.
        next_log_probs: `[B]`, of the next actions.
        weights: `[B]`, of the transitions in a loss.
        indices: `[B]` int32, of the transitions where they were stored.
        extra_info: anything else, or None.

    Example:
        >>> batch = get_transition_batch(gym.make("CartPole-v1"), batch_size=3)
        >>> batch.observations.shape, batch.indices.tolist()
        ((3, 4), [0, 1, 2])
    """

    observations: Any
    actions: Any
    log_probs: np.ndarray
    rewards: np.ndarray
    discounts: np.ndarray
    next_observations: Any
    next_actions: Any
    next_log_probs: np.ndarray
    weights: np.ndarray
    indices: np.ndarray
    extra_info: Any = None


def safe_sample(
    space: spaces.Space, seed: Any = None, *, from_start: bool = True
) -> Any:
    """Returns a made-up element of a space whose numbers are of moderate size.

    Gymnasium samples an unbounded Box from a normal distribution and a Box of huge
    bounds from all of it. Here every Box is sampled uniformly, between its bounds or
    within 1e9 of 0 where they are further away, of `a` where it is further from 0
    itself, and then compressed on a logarithmic scale:

        z = a + sign(x - a) * log(1 + |x - a|),   a = the number nearest to 0 in the Box

    so that no number is further than 20.8 from `a`, and all lie within the bounds.

    Numbers of a Box are float64 whatever its dtype. Integers of a Discrete or
    MultiDiscrete count from its `start`, as `default_preprocessor` takes them; coax
    draws them from 0 whatever the `start`, as `from_start=False` does too. For an
    element with the dtype of a Box use its own `sample`.

    Args:
        space: a Gymnasium space. Dict keys are drawn in sorted order. Spaces without a
            rule (Text, Sequence, Graph, ...) are sampled by their own `sample`, on a
            copy, so that the space keeps its generator as it is.
        seed: int, a `np.random.RandomState` to draw from, or None for a fresh one.
        from_start: whether integers count from the `start` of their space, or from 0.

    Returns:
        The sample: int for Discrete, numpy for the other fundamental spaces, a dict or
        tuple for Dict and Tuple.

    Raises:
        TypeError: if `space` is no Gymnasium space, or `seed` none of the above.
        ValueError: if an int `seed` is negative or has more than 32 bits.

    Example:
        >>> safe_sample(gym.spaces.Box(-np.inf, np.inf, (2,)), seed=0).round(1).tolist()
        [18.4, 19.9]
    """
    where, kind = "safe_sample", spaces.Space
    arguments.check_type(where, "space", space, kind, "a gymnasium.Space")
    given = isinstance(seed, np.random.RandomState)
    rng = seed if given else _generator(where, "seed", seed)
    return _sample(space, rng, from_start)


def get_transition_batch(
    env: gym.Env, batch_size: int = 1, gamma: float = 0.9, random_seed: Any = None
) -> TransitionBatch:
    """Returns transitions made up from an environment's spaces.

    They have the shapes of true ones and nothing else in common; the environment is
    neither stepped nor reset. This is enough to build networks, trace functions and
    test losses.

    Args:
        env: environment; for a vector environment the single spaces are used.
        batch_size: number of transitions, B.
        gamma: `discounts` are 0 or this with equal probability; in [0, 1].
        random_seed: of the draws; None for fresh ones.

    Returns:
        The batch, drawn by `safe_sample`. `log_probs` lie in [log 0.01, log 0.99],
        `rewards` are standard normal numbers within +-5, `weights` ratios of uniform
        ones within [0.01, 100].

    Raises:
        TypeError: if `env` has no spaces, `batch_size` or `random_seed` is no int or
            `gamma` no number.
        ValueError: if one of the numbers is out of its bounds.

    Example:
        >>> batch = get_transition_batch(gym.make("CartPole-v1"), 2, random_seed=0)
        >>> batch.actions.shape, batch.rewards.shape, batch.extra_info
        ((2,), (2,), None)
    """
    where = "get_transition_batch"
    if not hasattr(env, "observation_space") or not hasattr(env, "action_space"):
        raise arguments.wrong_type(where, "env", env, "an environment with spaces")
    arguments.check_whole_number(where, "batch_size", batch_size, low=1)
    arguments.check_number(where, "gamma", gamma, low=0, high=1)
    rng = _generator(where, "random_seed", random_seed)
    kind = "single_" if hasattr(env, "single_action_space") else ""
    seen = getattr(env, f"{kind}observation_space")
    done = getattr(env, f"{kind}action_space")
    # The order of the fields is the order of the draws.
    return TransitionBatch(
        observations=_batch(seen, batch_size, rng),
        actions=_batch(done, batch_size, rng),
        log_probs=np.log(np.clip(rng.rand(batch_size), 0.01, 0.99)),
        rewards=np.clip(rng.randn(batch_size), -5.0, 5.0),
        discounts=rng.choice((0.0, float(gamma)), batch_size),
        next_observations=_batch(seen, batch_size, rng),
        next_actions=_batch(done, batch_size, rng),
        next_log_probs=np.log(np.clip(rng.rand(batch_size), 0.01, 0.99)),
        weights=np.clip(rng.rand(batch_size) / rng.rand(batch_size), 0.01, 100.0),
        indices=np.arange(batch_size, dtype=np.int32),
    )


def _generator(where: str, name: str, seed: Any) -> np.random.RandomState:
    if seed is not None:
        arguments.check_whole_number(where, name, seed, low=0, high=2**32 - 1)
    return np.random.RandomState(seed)


def _sample(space: spaces.Space, rng: np.random.RandomState, from_start: bool) -> Any:
    match space:
        case spaces.Dict():
            keys = sorted(space.spaces)
            return {key: _sample(space[key], rng, from_start) for key in keys}
        case spaces.Tuple():
            return tuple(_sample(part, rng, from_start) for part in space)
        case spaces.Discrete():
            return (int(space.start) if from_start else 0) + rng.randint(space.n)
        case spaces.MultiDiscrete():
            drawn = [rng.randint(n) for n in np.ravel(space.nvec)]
            shaped = np.array(drawn).reshape(space.shape)
            return shaped + space.start if from_start else shaped
        case spaces.MultiBinary():
            return rng.randint(2, size=space.n)
        case spaces.Box():
            return _sample_box(space, rng)
    other = copy.deepcopy(space)
    other.seed(rng.randint(_MAX_SEED))
    return other.sample()


def _sample_box(space: spaces.Box, rng: np.random.RandomState) -> Any:
    dtype = np.result_type(space.dtype, np.float32)
    low, high = space.low.astype(dtype), space.high.astype(dtype)
    origin = np.clip(np.zeros_like(low), low, high)
    # A Box that begins beyond the bound has one of its own.
    far = np.abs(origin)
    bound = _BOUND + np.where(far > _BOUND, far, 0.0)
    low, high = np.maximum(low, -bound), np.minimum(high, bound)
    offset = low + np.asarray(rng.rand(*space.shape)) * (high - low) - origin
    return origin + np.sign(offset) * np.log(1.0 + np.abs(offset))


def _batch(space: spaces.Space, size: int, rng: np.random.RandomState) -> Any:
    drawn = [safe_sample(space, rng.randint(_MAX_SEED)) for _ in range(size)]
    return _stacked(space, drawn)


def _stacked(space: spaces.Space, drawn: list[Any]) -> Any:
    match space:
        case spaces.Dict():
            columns = {key: [one[key] for one in drawn] for key in drawn[0]}
            return {key: _stacked(space[key], x) for key, x in columns.items()}
        case spaces.Tuple():
            rows = zip(*drawn, strict=True)
            return tuple(map(_stacked, space, map(list, rows)))
    return np.stack(drawn) if isinstance(space, gym_checks.ARRAYS) else tuple(drawn)
