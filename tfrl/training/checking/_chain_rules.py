"""What learners with certain bugs take for the values of a known chain."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from tfrl.training.checking import _known_chain

# From a state, where its step leads and what it brings.
Steps = Mapping[int, tuple[int, float]]

_FINAL_VALUES = {_known_chain.TRUE_END: 11.0, _known_chain.TIME_LIMIT: 7.0}
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
    for n_steps in range(2, _known_chain.LENGTH + 1):
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
    return greatest / _known_chain.MOST if greatest else 1.0


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
    onward = np.zeros([_known_chain.SIZE, _known_chain.SIZE])
    constant = np.zeros(_known_chain.SIZE)
    for state in steps.keys() - free.keys():
        constant[state], factor, target = _window(rule, gamma, steps, state)
        if target is not None:
            onward[state, target] = factor
    for end, value in _FINAL_VALUES.items():
        if rule.through_resets:
            factor = _discount(rule, gamma, 1)
            onward[end, _known_chain.first_after(end)] = factor
        else:
            constant[end] = value * scale(steps)
    for state, value in free.items():
        constant[state] = value
    matrix = np.eye(_known_chain.SIZE) - onward
    return np.linalg.solve(matrix, constant) if np.linalg.det(matrix) > 1e-9 else None


def _window(rule: Rule, gamma: float, steps: Steps, state: int) -> Any:
    """The rewards of up to n steps, and by what which state's value is multiplied."""
    total, target = 0.0, None
    for m in range(1, rule.n_steps + 1):
        total += gamma ** (m - 1) * _reward(rule, steps, state)
        target = steps[state][0]
        if target in _FINAL_VALUES:
            is_true = target == _known_chain.TRUE_END
            first = _known_chain.first_after(target)
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
    ends = {end: _known_chain.first_after(end) for end in _FINAL_VALUES}
    follower = {s: ends.get(after, after) for s, (after, _) in steps.items()}
    if rule.rewards.startswith("previous"):
        before = {after: s for s, after in follower.items()}[state]
        other, crossed = before, steps[before][0] in ends
    else:
        other, crossed = follower[state], steps[state][0] in ends
    return 0.0 if crossed and rule.rewards.endswith("0") else steps[other][1]
