"""What passes between environments, buffers and agents."""

import enum
from typing import Any, NamedTuple


class StepType(enum.IntEnum):
    """Place of a time step in its episode.

    Example:
        >>> int(StepType.LAST)
        2
    """

    FIRST = 0
    MID = 1
    LAST = 2


class TimeStep(NamedTuple):
    """What an environment shows at one moment, before the next action.

    Attributes:
        step_types: `[...]` int32, a `StepType`.
        rewards: `[...]` float32, reward of the transition that led here; 0 at FIRST.
        discounts: `[...]` float32, gamma * (1 - terminated) of that transition.
        observations: nest of `[..., *shape]`.

    Example:
        >>> TimeStep(StepType.FIRST, 0.0, 1.0, observations=[0.5]).observations
        [0.5]
    """

    step_types: Any
    rewards: Any
    discounts: Any
    observations: Any


class Transition(NamedTuple):
    """One step of experience, as off-policy learners store it.

    Attributes:
        observations: nest of `[B, *shape]`, what was seen before the action.
        actions: nest of `[B, *shape]`.
        rewards: `[B]`, reward of the transition.
        discounts: `[B]`, gamma * (1 - terminated): 0 only at true ends, unchanged by
            time limits.
        next_observations: nest of `[B, *shape]`, what was seen after the action; at
            an episode's end the true last observation, never the reset one.

    Example:
        >>> Transition([1.0], 0, 0.5, 0.99, [2.0]).rewards
        0.5
    """

    observations: Any
    actions: Any
    rewards: Any
    discounts: Any
    next_observations: Any


class Trajectory(NamedTuple):
    """`T` steps of `N` environments side by side, as on-policy learners eat them.

    Attributes:
        observations: nest of `[T, N, *shape]`, what was seen before the action.
        actions: nest of `[T, N, *shape]`, in the form the policy produced them.
        rewards: `[T, N]` float32.
        terminated: `[T, N]` bool, the episode truly ended after the action.
        truncated: `[T, N]` bool, the episode was cut off after the action.
        next_observations: nest of `[T, N, *shape]`, the true successor: at an
            episode's end its last observation, never the reset one.
        valid: `[T, N]` bool, False for rows in which an environment only reset
            itself, or an agent waited for others; they carry no experience and must
            get no weight.
        log_probs: `[T, N]`, of the actions when they were taken; `()` where nobody
            asked for them.
        states: nest of `[T, N, ...]`, what the policy remembered before each step; `()`
            of one without memory.

    Example:
        >>> Trajectory([[1.0]], [[0]], [[1.0]], [[False]], [[True]], [[2.0]],
        ...            [[True]]).truncated
        [[True]]
    """

    observations: Any
    actions: Any
    rewards: Any
    terminated: Any
    truncated: Any
    next_observations: Any
    valid: Any
    log_probs: Any = ()
    states: Any = ()


class LossInfo(NamedTuple):
    """A loss per element and what there is to report about it.

    Attributes:
        loss: `[B]` or `[T, B]`, one value per element; the reader reduces.
        extra: nest of diagnostics.

    Example:
        >>> LossInfo(loss=[0.5], extra={"entropy": [1.0]}).extra["entropy"]
        [1.0]
    """

    loss: Any
    extra: Any
