"""What a trainer's agent learns from: trajectories, a replay, or a data set."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tfrl._internal import checks

_SAMPLERS = ("uniform", "prioritized")


@dataclasses.dataclass(frozen=True)
class Trajectories:
    """On-policy: each update learns from what was just collected, and once.

    Attributes:
        n_steps: steps per environment and epoch, T.

    Example:
        >>> Trajectories(n_steps=32).n_steps
        32
    """

    n_steps: int = 128

    def __post_init__(self) -> None:
        checks.check_whole_number("Trajectories", "n_steps", self.n_steps, low=1)


@dataclasses.dataclass(frozen=True)
class Replayed:
    """Off-policy: each update draws minibatches of steps that were ever collected.

    An epoch plays `n_steps` steps in each of N environments, and then, once there are
    `learning_starts` of them, takes

        K = round(updates_per_step * n_steps * N)

    gradient steps, on minibatches that are drawn at once: the agent's `update` gets a
    `tfrl.replay.Sample` of `tfrl.core.Transition`s `[K, batch_size, ...]`. Actions are
    the raw ones of the policy's head.

    The replay is saved with the run, of it only what changed, and a resumed run has the
    same one, with priorities and generator.

    Attributes:
        capacity: steps that are kept, of all environments together.
        batch_size: transitions per gradient step, B.
        n_steps: steps per environment and epoch.
        updates_per_step: gradient steps per environment step.
        learning_starts: steps before the first update.
        gamma: discount factor per step.
        n_step_returns: most steps of a transition, m in `tfrl.replay.Transitions`.
        sampler: "uniform" or "prioritized".
        alpha: of the latter: how much priorities count.
        beta: of the latter: how far weights make up for them.

    Example:
        >>> replayed = Replayed(capacity=10_000, n_steps=4, updates_per_step=0.5)
        >>> replayed.n_gradient_steps(n_envs=8)
        16

    References:
        Lin, 1992, Self-Improving Reactive Agents Based On Reinforcement Learning,
        Planning and Teaching. Schaul et al., 2016, Prioritized Experience Replay.
    """

    capacity: int = 100_000
    batch_size: int = 64
    n_steps: int = 16
    updates_per_step: float = 0.25
    learning_starts: int = 1_000
    gamma: float = 0.99
    n_step_returns: int = 1
    sampler: str = "uniform"
    alpha: float = 0.6
    beta: float = 0.4

    def __post_init__(self) -> None:
        where = "Replayed"
        for name in ("capacity", "batch_size", "n_steps", "n_step_returns"):
            checks.check_whole_number(where, name, getattr(self, name), low=1)
        checks.check_whole_number(where, "learning_starts", self.learning_starts, low=0)
        checks.check_positive(where, "updates_per_step", self.updates_per_step)
        for name in ("gamma", "alpha", "beta"):
            checks.check_within(where, name, getattr(self, name), 0.0, 1.0)
        checks.check_one_of(where, "sampler", self.sampler, _SAMPLERS)
        least = max(self.learning_starts, self.batch_size)
        if self.capacity < least:
            raise ValueError(
                f"`{where}`: `capacity` expected at least `learning_starts` and "
                f"`batch_size`, {least}; got {self.capacity}"
            )

    def n_gradient_steps(self, n_envs: int) -> int:
        """Returns K.

        Args:
            n_envs: environments of all workers, N.

        Raises:
            ValueError: if that is none.
        """
        count = round(self.updates_per_step * self.n_steps * n_envs)
        if not count:
            raise ValueError(
                "`Replayed`: `updates_per_step` expected a gradient step per epoch at "
                f"least; got {self.updates_per_step} of {self.n_steps * n_envs} steps; "
                f"raise it, or `n_steps` ({self.n_steps})"
            )
        return count


@dataclasses.dataclass(frozen=True)
class FromDataset:
    """Offline: each update learns from batches that were recorded.

    An epoch takes `n_batches` batches, and the agent's `update` gets them stacked,
    `[n_batches, batch_size, ...]`. Environments are only made to evaluate in. What
    counts as environment steps of the run are the rows that it learned from.

    Attributes:
        data: a function without arguments that returns a mapping of arrays
            `[rows, ...]`, or the mapping itself, such as observations and actions. Each
            pass over the rows is shuffled anew; rows that fill no batch wait for the
            next pass. Actions are as environments take them: those of a `Trajectory`
            are raw, and `policy.head.to_env(trajectory.actions)` makes them so.
        batch_size: rows per gradient step.
        n_batches: gradient steps per epoch.

    Example:
        >>> data = {"observations": np.zeros((9, 4), "f"), "actions": np.zeros(9, int)}
        >>> FromDataset(data, batch_size=3).n_batches
        100
    """

    data: Any = None
    batch_size: int = 256
    n_batches: int = 100

    def __post_init__(self) -> None:
        for name in ("batch_size", "n_batches"):
            checks.check_whole_number("FromDataset", name, getattr(self, name), low=1)
        if not callable(self.data) and not isinstance(self.data, Mapping):
            raise TypeError(
                "`FromDataset`: `data` expected a mapping of arrays, or a function "
                f"that returns one; got {self.data!r:.80}"
            )
