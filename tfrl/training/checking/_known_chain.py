"""A chain whose values are known: what is played of it, and what learners make of it.

`Rule` says what learners with certain bugs take for the values of its states.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from tfrl._internal import gym_checks
from tfrl.host import stepping

LENGTH = 5
SIZE = 2 * (LENGTH + 1)
TRUE_END, TIME_LIMIT = LENGTH, 2 * LENGTH + 1
MOST = 1.0 + 0.37 * (LENGTH - 1)  # reward of a step
_ROWS = 300

# From a state, where its step leads and what it brings.
Steps = Mapping[int, tuple[int, float]]

_FINAL_VALUES = {TRUE_END: 11.0, TIME_LIMIT: 7.0}
_TWICE, _MISSING = ("once more", "n times more", "twice"), ("once", "never")
_ENDS = ("nothing", "last", "next")
# Before what is bootstrapped from after m of up to n steps stands gamma to the power
# of a * m + b * n + c, for these a, b and c.
_EXPONENTS = {
    "right": (1, 0, 0),
    "once more": (1, 0, 1),
    "n times more": (1, 1, 0),
    "twice": (2, 0, 0),
    "n": (0, 1, 0),
    "once": (0, 0, 1),
    "never": (0, 0, 0),
}
_REWARDS = ("previous", "previous or 0", "next", "next or 0")


def first_after(end: int) -> int:
    """Returns the state in which the next episode begins."""
    return LENGTH + 1 if end == TRUE_END else 0


class Chain(gym.Env):
    """States 0, ..., 5 end truly, 6, ..., 11 by a time limit, by turns.

    Args:
        action_space: of actions that have no effect; two of them by default.

    Attributes:
        position: the state it shows, the one that the last step reached, and how many
            steps there were.
    """

    observation_space = gym.spaces.Box(0.0, 1.0, (SIZE,), np.float32)

    def __init__(self, action_space: gym.Space | None = None) -> None:
        two = gym.spaces.Discrete(2)
        self.action_space = two if action_space is None else action_space
        self.position = (0, 0, 0)
        self._kind, self._at = 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        if seed is not None:  # neighbours in a vector are never in one state
            self._kind = seed % 2
        self._at = 0
        self.position = (self._state(), *self.position[1:])
        return self._shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        del action
        if self._at == LENGTH:
            raise ValueError(
                "`check_learner`: `env` expected to end when the chain ends; got a "
                "step beyond; leave out the wrapper that hides ends"
            )
        reward, kind = 1.0 + 0.37 * self._at - 0.61 * self._kind, self._kind
        self._at += 1
        self.position = (self._state(), self._state(), self.position[2] + 1)
        observation, ended = self._shown(), self._at == LENGTH
        if ended:  # only a played episode makes it the other's turn
            self._kind = 1 - kind
        return observation, reward, ended and kind == 0, ended and kind == 1, {}

    def _state(self) -> int:
        return self._kind * (LENGTH + 1) + self._at

    def _shown(self) -> np.ndarray:
        observation = np.zeros(SIZE, np.float32)
        observation[self._state()] = 1.0
        return observation


class Seen:
    """Which observations stood for which states, and what their steps brought.

    Args:
        where: name of the asking function, for error messages.

    Attributes:
        steps: from a state, where its step leads and what it brings.
        newest: the arrays that the environment returned last.
        overwrites: whether it had returned some of them before.
        shapes: of the leaves of one observation.
    """

    def __init__(self, where: str) -> None:
        self.steps: dict[int, tuple[int, float]] = {}
        self.newest: list[np.ndarray] = []
        self.overwrites = False
        self.shapes: list[tuple[int, ...]] = []
        self._where = where
        self._states: dict[bytes, int] = {}
        self._rows: list[np.ndarray] = []

    def show(self, observations: Any, states: np.ndarray) -> None:
        """Learns what `[N, ...]` observations of `[N]` states look like."""
        leaves = [np.asarray(leaf) for leaf in gym_checks.leaves_of(observations)]
        self.shapes = [leaf.shape[1:] for leaf in leaves]
        flat = [leaf.reshape(len(leaf), -1).astype(np.float32) for leaf in leaves]
        rows = np.concatenate(flat, axis=1)
        for row, state in zip(rows, states.tolist(), strict=True):
            if self._states.setdefault(row.tobytes(), state) != state:
                raise ValueError(
                    f"`{self._where}`: `env` expected another observation for every "
                    "state; got one for two; leave out the wrapper that hides it"
                )
            self._rows.append(row)

    def step(self, states: np.ndarray, following: np.ndarray, rewards: Any) -> None:
        """Learns steps `[N]`."""
        rewards = np.ravel(np.asarray(rewards, np.float64))
        if not np.isfinite(rewards).all():
            raise ValueError(
                f"`{self._where}`: `env` expected finite rewards; got {rewards}"
            )
        columns = (states.tolist(), following.tolist(), rewards.tolist())
        for state, after, reward in zip(*columns, strict=True):
            known = self.steps.setdefault(state, (after, reward))
            if known[0] != after or not np.isclose(known[1], reward):
                raise ValueError(
                    f"`{self._where}`: `env` expected one state and one reward to "
                    f"follow every state; got rewards {known[1]} and {reward}, states "
                    f"{known[0]} and {after}; leave out the wrapper that normalises "
                    "or skips by chance"
                )

    def returned(self, observations: Any) -> None:
        """Learns whether the environment writes into the arrays it returns."""
        leaves = [x for x in gym_checks.leaves_of(observations) if np.ndim(x)]
        pairs = zip(self.newest, leaves, strict=False)
        self.overwrites |= any(np.may_share_memory(old, new) for old, new in pairs)
        self.newest = leaves

    def check_ends(self) -> None:
        """Raises unless episodes ended where the chain does."""
        ends = {after for after, _ in self.steps.values()} - set(self.steps)
        if ends != {TRUE_END, TIME_LIMIT}:
            raise ValueError(
                f"`{self._where}`: `env` expected episodes of {LENGTH} steps, by turns "
                f"to a true end and to a time limit; got ends in states {sorted(ends)}"
                f", not in {[TRUE_END, TIME_LIMIT]}"
            )

    def table(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the observations `[K, n]` and their states `[K]`."""
        rows = np.unique(np.stack(self._rows), axis=0)
        return rows, np.array([self._states[row.tobytes()] for row in rows])


def rows(played: Any, seen: Seen) -> Iterator[list[Any]]:
    """Plays, and returns what goes into a buffer; `seen` learns what it is."""
    if isinstance(played, stepping.Stepper):
        return _stepper_rows(played, seen)
    if isinstance(played, gym.vector.VectorEnv):
        return _vector_rows(played, seen)
    if isinstance(played, gym.Env):
        return _single_rows(played, seen)
    raise TypeError(
        "`check_learner`: `env` expected to return a Gymnasium environment, a vector "
        f"of them or a `Stepper`; got {played!r}"
    )


def _positions(played: Any) -> Callable[[], np.ndarray]:
    """What tells the positions of the chains `[N, 3]`."""

    def read() -> np.ndarray:
        if isinstance(played, gym.vector.VectorEnv):
            return np.array(played.unwrapped.get_attr("position"))
        return np.array([played.unwrapped.position])

    try:
        read()
    except AttributeError as error:
        raise ValueError(
            "`check_learner`: `env` expected to return the chain it is given the maker "
            f"of, in wrappers or a vector; got {played!r}; call the function it takes"
        ) from error
    return read


def _single_rows(env: gym.Env, seen: Seen) -> Iterator[list[Any]]:
    def row(leaf: Any) -> np.ndarray:
        return np.asarray(leaf)[np.newaxis]

    positions, count = _positions(env), 0
    while count < _ROWS:
        (shown, _), ended = env.reset(), False
        seen.show(gym_checks.mapped(row, shown), positions()[:, 0])
        while not ended:
            # It may write into the arrays it returned.
            observations = gym_checks.mapped(row, gym_checks.mapped(np.array, shown))
            action, before = env.action_space.sample(), positions()
            shown, reward, terminated, truncated, _ = env.step(action)
            following, after = gym_checks.mapped(row, shown), positions()
            seen.returned(shown)
            seen.show(following, after[:, 0])
            seen.step(before[:, 0], after[:, 1], reward)
            nests = (action, reward, terminated, truncated)
            yield [observations, *(gym_checks.mapped(row, x) for x in nests), following]
            ended, count = terminated or truncated, count + 1


def _n_steps(n_envs: int) -> int:
    return max(4 * (LENGTH + 1), 2 * _ROWS // n_envs)


def _vector_rows(envs: gym.vector.VectorEnv, seen: Seen) -> Iterator[list[Any]]:
    """Rows just as the vector returns them."""
    mode, positions = stepping.autoreset_mode(envs), _positions(envs)
    shown, _ = envs.reset(seed=0)
    seen.show(shown, positions()[:, 0])
    for _ in range(_n_steps(envs.num_envs)):
        observations = gym_checks.mapped(np.array, shown)
        actions, before = envs.action_space.sample(), positions()
        shown, rewards, terminated, truncated, info = envs.step(actions)
        after = positions()
        seen.returned(shown)
        seen.show(shown, after[:, 0])
        is_step = after[:, 2] > before[:, 2]
        seen.step(before[is_step, 0], after[is_step, 1], np.asarray(rewards)[is_step])
        finals = info.get("_final_obs", ()) if isinstance(info, dict) else ()
        for index in np.flatnonzero(finals):
            last = gym_checks.mapped(lambda x: x[np.newaxis], info["final_obs"][index])
            seen.show(last, after[[index], 1])
        yield [observations, actions, rewards, terminated, truncated, shown]
        ended = terminated | truncated
        if mode == gym.vector.AutoresetMode.DISABLED and ended.any():
            shown, _ = envs.reset(options={"reset_mask": ended})


def _stepper_rows(stepper: stepping.Stepper, seen: Seen) -> Iterator[list[Any]]:
    positions = _positions(stepper.envs)
    seen.show(stepper.observations, positions()[:, 0])
    for _ in range(_n_steps(stepper.envs.num_envs)):
        observations = gym_checks.mapped(np.array, stepper.observations)
        actions, before = stepper.envs.action_space.sample(), positions()
        outcome = stepper.step(actions)
        if not outcome.valid.all():  # the chains end together
            continue
        after = positions()
        seen.returned(outcome.next_observations)
        seen.show(outcome.next_observations, after[:, 1])
        seen.step(before[:, 0], after[:, 1], outcome.rewards)
        yield [observations, actions, *outcome[:3], outcome.next_observations]


class Rule(NamedTuple):
    """What a learner takes for a value; the defaults are right.

    Attributes:
        n_steps: the most steps whose rewards are summed.
        exponent: of gamma before what is bootstrapped from, see `_EXPONENTS`.
        at_true_end: what is bootstrapped from: nothing, the last or the next state.
        at_time_limit: the same.
        through_resets: whether the last state leads on to the next episode's first.
        through_ends: whether rewards are summed beyond an end.
        rewards: of which step they are; at an end the next episode's or 0.
    """

    n_steps: int = 1
    exponent: str = "right"
    at_true_end: str = "nothing"
    at_time_limit: str = "last"
    through_resets: bool = False
    through_ends: bool = False
    rewards: str = "own"

    def bugs(self) -> tuple[str, ...]:
        """Returns the names of its bugs."""
        leaks = self.at_true_end == "next" or self.through_ends
        found = {
            "gamma_twice": self.exponent in _TWICE,
            "gamma_missing": self.exponent in _MISSING,
            "terminal_bootstrap": self.at_true_end == "last",
            "done_only_mask": self.at_time_limit == "nothing",
            "reset_observation": self.at_time_limit == "next" and not leaks,
            "leak_across_episodes": leaks,
            "reset_rows": self.through_resets,
            "reward_off_by_one": self.rewards != "own",
            "short_windows": self.exponent == "n",
        }
        return tuple(bug for bug, is_there in found.items() if is_there)

    def shows_next(self) -> bool:
        """Tells whether it takes something from the next episode."""
        ends = (self.at_true_end, self.at_time_limit)
        return "next" in ends or self.through_resets or self.through_ends


def _rules() -> Iterator[Rule]:
    """Yields what is tried; several steps change nothing but with some bugs."""
    exponents = ("right", "twice", "never")
    yield from itertools.starmap(
        Rule, itertools.product((1,), exponents, _ENDS, _ENDS, (False, True))
    )
    right = ("nothing", "last")
    for rewards, mask in itertools.product(_REWARDS, (right, ("nothing", "nothing"))):
        yield Rule(1, "right", *mask, rewards=rewards)
    wrong_masks = (("last",) * 2, ("nothing",) * 2, ("nothing", "next"), ("next",) * 2)
    masks = (right, *wrong_masks)
    wrong = (*_TWICE, *_MISSING, "n")
    for n_steps in range(2, LENGTH + 1):
        for exponent, mask in itertools.product(wrong, masks):
            yield Rule(n_steps, exponent, *mask)
        for mask in masks:
            yield Rule(n_steps, "right", *mask, through_ends=True)
        for exponent in wrong:
            yield Rule(n_steps, exponent, *right, through_ends=True)


# Fewer bugs first: where a bug changes nothing, it is not named.
RULES = sorted(_rules(), key=lambda rule: (len(rule.bugs()), rule.n_steps))


def scale(steps: Steps) -> float:
    """Returns how much greater rewards are than the chain's own; 1 if all are 0."""
    greatest = max(abs(reward) for _, reward in steps.values())
    return greatest / MOST if greatest else 1.0


def values(
    rule: Rule, gamma: float, steps: Steps, free: Mapping[int, float] | None = None
) -> Any:
    """Returns the fixed point of a rule.

    Args:
        rule: the rule.
        gamma: the discount.
        steps: of the chain.
        free: values of states from which no step is learned from.

    Returns:
        Values `[12]`, or None where there is no fixed point.
    """
    free = {} if free is None else free
    onward = np.zeros([SIZE, SIZE])
    constant = np.zeros(SIZE)
    for state in steps.keys() - free.keys():
        constant[state], factor, target = _window(rule, gamma, steps, state)
        if target is not None:
            onward[state, target] = factor
    for end, value in _FINAL_VALUES.items():
        if rule.through_resets:
            factor = _discount(rule, gamma, 1)
            onward[end, first_after(end)] = factor
        else:
            constant[end] = value * scale(steps)
    for state, value in free.items():
        constant[state] = value
    matrix = np.eye(SIZE) - onward
    return np.linalg.solve(matrix, constant) if np.linalg.det(matrix) > 1e-9 else None


def _window(rule: Rule, gamma: float, steps: Steps, state: int) -> Any:
    """The rewards of up to n steps, and by what which state's value is multiplied."""
    total, target = 0.0, None
    for m in range(1, rule.n_steps + 1):
        total += gamma ** (m - 1) * _reward(rule, steps, state)
        target = steps[state][0]
        if target in _FINAL_VALUES:
            is_true = target == TRUE_END
            first = first_after(target)
            if m == rule.n_steps or not rule.through_ends:
                end = rule.at_true_end if is_true else rule.at_time_limit
                target = {"nothing": None, "last": target, "next": first}[end]
                break
            target = first
        state = target
    return total, _discount(rule, gamma, m), target


def _discount(rule: Rule, gamma: float, m: int) -> float:
    of_m, of_n, more = _EXPONENTS[rule.exponent]
    return gamma ** (of_m * m + of_n * rule.n_steps + more)


def _reward(rule: Rule, steps: Steps, state: int) -> float:
    if rule.rewards == "own":
        return steps[state][1]
    ends = {end: first_after(end) for end in _FINAL_VALUES}
    follower = {s: ends.get(after, after) for s, (after, _) in steps.items()}
    if rule.rewards.startswith("previous"):
        before = {after: s for s, after in follower.items()}[state]
        other, crossed = before, steps[before][0] in ends
    else:
        other, crossed = follower[state], steps[state][0] in ends
    return 0.0 if crossed and rule.rewards.endswith("0") else steps[other][1]
