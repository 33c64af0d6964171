"""Environment steps become trajectories; what all that play policies share."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium.vector import VectorEnv

from tfrl._internal import checks, gym_checks
from tfrl.core import records
from tfrl.environments import snapshots
from tfrl.host import stepping
from tfrl.policies import policy as policies
from tfrl.training.collecting import _played_actions


class Collector:
    """Steps a vector environment and records it, including last observations.

    All three autoreset modes give the same transitions: `next_observations` is always
    the successor itself, at an episode's end the last observation of that episode. The
    rows in which a `NEXT_STEP` environment only resets are marked not `valid`.

    Args:
        envs: vector environment; the collector resets it.
        n_steps: rows per trajectory, T.
        seed: of the environments.

    Attributes:
        env_steps: steps of experience so far, over all environments.
        episode_returns: undiscounted returns of the last 100 finished episodes, or of
            the last N where there are more environments: many may end at once.
        episode_lengths: their lengths in steps.
        is_playing: whether `collect` is running, or was stopped by an error.

    Example:
        >>> envs = tfrl.environments.make_vec("CartPole-v1", 2, "sync")
        >>> collector = Collector(envs, n_steps=5, seed=0)
        >>> trajectory = collector.collect(lambda observations: np.zeros(2, np.int32))
        >>> trajectory.observations.shape, collector.env_steps
        ((5, 2, 4), 10)
    """

    def __init__(self, envs: VectorEnv, n_steps: int, seed: int) -> None:
        checks.check_whole_number("Collector", "n_steps", n_steps, low=1)
        self.envs = envs
        self.n_steps = n_steps
        self.env_steps, self.is_playing = 0, False
        count = max(100, envs.num_envs)
        self.episode_returns: deque[float] = deque(maxlen=count)
        self.episode_lengths: deque[int] = deque(maxlen=count)
        self.reset(seed)

    def reset(self, seed: int) -> None:
        """Starts new episodes everywhere; running ones are abandoned.

        Args:
            seed: of the environments.
        """
        self._begin(seed)
        self._count_anew()

    def _begin(self, seed: int) -> None:
        self._stepper = stepping.Stepper(self.envs, seed)

    def _count_anew(self) -> None:
        self._returns = np.zeros(self.envs.num_envs)
        self._lengths = np.zeros(self.envs.num_envs, np.int64)
        self._memory: Any = None

    @property
    def observations(self) -> Any:
        """Current observations of the environments, nest of `[N, *shape]`."""
        return self._stepper.observations

    @property
    def _resetting(self) -> np.ndarray:
        """Which environments only reset, or wait, in the next step, `[N]`."""
        return self._stepper.resetting

    def facts(self) -> dict[str, float]:
        """Returns numbers about actors, by name; none without actors."""
        return {}

    def parts(
        self, trajectory: records.Trajectory
    ) -> Iterator[tuple[records.Trajectory, np.ndarray | None, bool]]:
        """Yields what was collected, in the parts that a replay adds.

        Args:
            trajectory: of all workers, the last one that `collect` returned.

        Yields:
            A trajectory, the numbers of its environments in the replay (None for all
            in order), and whether these begin anew whatever they played before.
        """
        yield trajectory, None, False

    def snapshot(self) -> Any:
        """Returns the state of the environments; None if it cannot be captured.

        Nor can it where an error stopped playing: their state is unknown then.
        """
        return None if self.is_playing else snapshots.capture(self.envs)

    def restored(self, snapshot: Any) -> bool:
        """Restores what `snapshot` returned; returns whether it held a state."""
        if snapshot is not None:
            snapshots.restore(self.envs, snapshot)
        return snapshot is not None

    def uncapturable(self) -> str | None:
        """Returns why the environments' state cannot be captured, if it cannot."""
        reason = snapshots.uncapturable(self.envs)
        what = "the state of these environments cannot be captured"
        return reason and f"{what} ({reason})"

    def episodes(self) -> tuple[list[float], list[int]]:
        """Returns the returns and lengths of the last finished episodes."""
        return list(self.episode_returns), list(self.episode_lengths)

    def state(self) -> dict[str, Any]:
        """Returns everything but the environments' own state, as plain data."""
        return {
            "observations": [np.copy(x) for x in tf.nest.flatten(self.observations)],
            "env_steps": self.env_steps,
            "episode_returns": list(self.episode_returns),
            "episode_lengths": list(self.episode_lengths),
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
            "resetting": np.copy(self._resetting),
            "memory": None
            if self._memory is None
            else [np.array(x) for x in tf.nest.flatten(self._memory)],
        }

    def set_state(self, state: dict[str, Any], *, same_episodes: bool) -> None:
        """Continues from where `state` was returned.

        Args:
            state: what `state()` returned.
            same_episodes: whether the environments were restored to that moment too;
                if not, only the counters are taken and the running episodes are new.
        """
        self.env_steps = state["env_steps"]
        self.episode_returns.clear()
        self.episode_returns.extend(state["episode_returns"])
        self.episode_lengths.clear()
        self.episode_lengths.extend(state["episode_lengths"])
        if same_episodes:
            self._take_up(state)
            self._returns = np.array(state["returns"])
            self._lengths = np.array(state["lengths"])
            # Of the policy; it is packed when that is known.
            self._memory = state.get("memory")

    def _take_up(self, state: dict[str, Any]) -> None:
        """Takes up the running episodes."""
        self._stepper.observations = tf.nest.pack_sequence_as(
            self.observations, state["observations"]
        )
        self._stepper.resetting = np.array(state["resetting"])

    def collect(
        self,
        policy: Any,
        seed: np.random.Generator | None = None,
        temperature: float = 1.0,
    ) -> records.Trajectory:
        """Plays `n_steps` steps in every environment.

        Args:
            policy: a `tfrl.policies.Policy`, or a function from a nest of observations
                `[N, *shape]` to actions. Its memory is kept between calls, and cleared
                where an episode ends.
            seed: of its draws.
            temperature: as in `Policy.act`.

        Returns:
            A `Trajectory` of NumPy arrays; its actions are the raw ones. It has the
            log-probabilities if the policy returns them, and what it remembered.

        Raises:
            ValueError: if actions have another shape than their space, are not finite
                or not among its choices (checked at every step for a function, at the
                first for a `Policy`); if a reward or an observation is NaN, infinite or
                too large for float32, an integer of an observation is outside its
                space, or an environment returns what it should not.
            ConnectionError: if a worker process of the environments is gone.
        """
        policy = policies.as_policy("Collector.collect", "policy", policy)
        # What was built to act returns the same kind each time; checks are not free.
        is_function = isinstance(policy, policies.FunctionPolicy)
        initial = policy.initial_state(self.envs.num_envs)
        known = [] if self._memory is None else tf.nest.flatten(self._memory)
        memory = tf.nest.pack_sequence_as(initial, known) if known else initial
        rows = _Rows(self.n_steps, self.observations)
        self.is_playing = True
        for t in range(self.n_steps):
            acted = policy.act(
                self.observations, memory, seed=seed, temperature=temperature
            )
            if not t or is_function:
                counts = ~self._resetting
                seen = _played_actions.Seen(self.observations, t)
                actions = _played_actions.checked(
                    "Collector.collect", acted.actions, self.envs, seen, counts=counts
                )
                if is_function:
                    same = acted.raw_actions is acted.actions
                    raw = actions if same else acted.raw_actions
                    acted = acted._replace(actions=actions, raw_actions=raw)
            # Before the step, which may overwrite what an environment has shown.
            rows.write_choice(t, self.observations, acted, memory)
            outcome = self._stepper.step(acted.actions)
            rows.write_outcome(t, outcome)
            memory = remembered(acted.state, initial, outcome)
        self._memory = memory
        trajectory = rows.trajectory()
        self._check(trajectory._replace(rewards=rows.rewards))
        self._count(rows.rewards, trajectory)
        self.is_playing = False
        return trajectory

    def _check(self, trajectory: records.Trajectory) -> None:
        """Raises a ValueError unless numbers are finite, and choices are such."""
        # Rewards last: they are often the consequence.
        for name in ("next_observations", "observations", "rewards"):
            nest = getattr(trajectory, name)
            gym_checks.check_numbers("Collector.collect", name, nest, np.float32)
        space = self.envs.single_observation_space
        for name in ("next_observations", "observations"):
            nest = getattr(trajectory, name)
            gym_checks.check_choices("Collector.collect", name, space, nest)

    def _count(self, rewards: np.ndarray, trajectory: records.Trajectory) -> None:
        """Adds `[T, N]` rewards to the running episodes and closes those that ended."""
        valid = trajectory.valid
        ended = (trajectory.terminated | trajectory.truncated) & valid
        # Sums from the start of the trajectory; an episode's own begin at its carry.
        returns = np.where(valid, rewards, 0.0).cumsum(0)
        lengths = valid.cumsum(0)
        t, n = np.nonzero(ended)
        by_env = np.argsort(n, kind="stable")
        later = n[by_env[1:]] == n[by_env[:-1]]
        before, after = by_env[:-1][later], by_env[1:][later]
        for sums, carry, known in (
            (returns, self._returns, self.episode_returns),
            (lengths, self._lengths, self.episode_lengths),
        ):
            found, start = sums[t, n], carry[n]
            start[after] = -found[before]
            known.extend((start + found).tolist())
            carry[n] = -found  # the last of each environment stays
            carry += sums[-1]
        self.env_steps += int(lengths[-1].sum())


class _Rows:
    """Preallocated arrays `[T, N, ...]` of one trajectory."""

    def __init__(self, n_steps: int, observations: Any) -> None:
        self._n_steps = n_steps
        self._observations = self._empty(observations)
        self._next = self._empty(observations)
        self._log_probs: Any = ((), [])
        shape = (n_steps, len(tf.nest.flatten(observations)[0]))
        self.rewards = np.empty(shape)
        self._terminated, self._truncated, self._valid = np.empty((3, *shape), bool)

    def _empty(self, nest: Any) -> tuple[Any, list[np.ndarray]]:
        leaves = [np.asarray(leaf) for leaf in tf.nest.flatten(nest)]
        return nest, [np.empty((self._n_steps, *x.shape), x.dtype) for x in leaves]

    def write_choice(
        self, t: int, observations: Any, acted: policies.Acted, memory: Any
    ) -> None:
        if not t:
            self._actions = self._empty(acted.raw_actions)
            self._states = self._empty(memory)
            if acted.log_probs is not None:
                self._log_probs = self._empty(acted.log_probs)
        _write(self._observations, t, observations)
        _write(self._actions, t, acted.raw_actions)
        if self._log_probs[1]:
            _write(self._log_probs, t, acted.log_probs)
        if self._states[1]:
            _write(self._states, t, memory)

    def write_outcome(self, t: int, outcome: stepping.Outcome) -> None:
        self.rewards[t] = outcome.rewards
        self._terminated[t] = outcome.terminated
        self._truncated[t] = outcome.truncated
        self._valid[t] = outcome.valid
        _write(self._next, t, outcome.next_observations)

    def trajectory(self) -> records.Trajectory:
        pack = tf.nest.pack_sequence_as
        with np.errstate(over="ignore"):  # which is told by name
            rewards = self.rewards.astype(np.float32)
        return records.Trajectory(
            observations=pack(*self._observations),
            actions=pack(*self._actions),
            rewards=rewards,
            terminated=self._terminated,
            truncated=self._truncated,
            next_observations=pack(*self._next),
            valid=self._valid,
            log_probs=pack(*self._log_probs),
            states=pack(*self._states),
        )


def _write(column: tuple[Any, list[np.ndarray]], t: int, nest: Any) -> None:
    leaves = column[1]
    if isinstance(nest, np.ndarray):  # by far the most frequent nest
        leaves[0][t] = nest
        return
    for leaf, value in zip(leaves, tf.nest.flatten(nest), strict=True):
        leaf[t] = value


def remembered(state: Any, initial: Any, outcome: Any) -> Any:
    """Returns what a policy remembers after a step: nothing of episodes that ended.

    Args:
        state: nest of `[N, ...]`, that the policy returned.
        initial: at the beginning of episodes, likewise.
        outcome: of the step; `terminated`, `truncated` and `valid` are read, as what
            is seen where an environment only resets is of the episode before.

    Returns:
        Nest of `[N, ...]`.
    """
    if type(state) is tuple and not state:
        return state
    return tf.nest.map_structure(
        lambda last, first: stepping.kept(last, first, outcome), state, initial
    )


def of_one(policy: Any, seed: Any = None) -> Callable[[Any], Any]:
    """Returns a greedy policy as a function of one observation, for one episode."""
    memory = policy.initial_state(1)

    def act(observation: Any) -> Any:
        nonlocal memory
        row = tf.nest.map_structure(lambda x: np.asarray(x)[None], observation)
        acted = policy.act(row, memory, seed=seed, temperature=0.0)
        memory = acted.state
        return tf.nest.map_structure(lambda x: x[0], acted.actions)

    return act


def captured(rng: np.random.Generator, collector: Collector) -> dict:
    """Returns environments, episodes and draws as plain values, for `restore`."""
    return {
        "rng": rng.bit_generator.state,
        "collector": collector.state(),
        "environments": collector.snapshot(),
    }


def restore(
    state: dict[str, Any],
    rng: np.random.Generator,
    collector: Collector,
    seed: int,
    *,
    are_others: bool = False,
) -> str | None:
    """Goes back to where `captured` was called.

    Args:
        state: what it returned.
        rng: which then has its state.
        collector: likewise.
        seed: of new episodes, where the environments cannot be restored.
        are_others: whether the environments are others than those that were captured,
            whose state would make them these again.

    Returns:
        What the user should know.
    """
    rng.bit_generator.state = state["rng"]
    notice = None
    reason: str | None = "these are other environments"
    if not are_others:
        reason = _hindrance(collector, state["environments"])
    if reason is not None:
        collector.reset(seed)
        notice = f"resumed with new episodes: {reason}"
    collector.set_state(state["collector"], same_episodes=notice is None)
    return notice


def _hindrance(collector: Collector, snapshot: Any) -> str | None:
    """Restores environments; tells why that is not possible, if it is not."""
    try:
        if collector.restored(snapshot):
            return None
    except snapshots.StructureError as error:
        return f"these environments are built otherwise ({error})"
    played = "when the run was saved, actors were playing or an environment had failed"
    return collector.uncapturable() or played


def forewarning(collector: Collector) -> str | None:
    """Tells what resuming will bring, where not all can be captured."""
    reason = collector.uncapturable()
    return reason and f"a resumed run will begin new episodes: {reason}"
