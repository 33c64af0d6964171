"""Checks of what an environment declares and returns; the remedy of each fault."""

import copy
import inspect
import math
import numbers
from collections.abc import Iterator, Mapping, Sized
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from tfrl._internal import gym_checks
from tfrl.environments import _shown_masks

Fault = tuple[str, str]
_IMAGE_SIDE = 16
_LIMIT = "register it with `max_episode_steps`, or wrap it in `TimeLimit`"
_NUMBERS = "look for a division by 0 or an overflow"
# What to do about each fault.
_REMEDIES = {
    "error": {
        "no_space": "set it in `__init__`",
        "bounds": "give it a lower bound below the upper, and a shape without 0",
        "reset_arguments": "write `def reset(self, *, seed=None, options=None)`",
        "reset_return": "return `observation, info`, info a dict",
        "step_return": "return `observation, reward, terminated, truncated, info`",
        "raises": "the actions were samples of its space, and the corners of a Box",
        "observation_form": "return what the space says, or change the space",
        "observation_dtype": "cast it, or declare its dtype",
        "observation_not_finite": _NUMBERS,
        "observation_choice": "of another the one-hot would be zeros",
        "reset_bounds": "clip it, or widen the space",
        "reward_type": "return a float",
        "reward_not_finite": _NUMBERS,
        "end_type": "return a bool",
        "info_type": "return a dict, an empty one if there is nothing to say",
        "action_changed": "copy the action before changing it",
        "observation_overwritten": "return a copy: a replay keeps the array",
        "space_changes": "make another environment for other spaces",
        "not_reproducible": "draw all random numbers from `self.np_random`, and depend "
        "on no clock, no set order and no other process",
        "global_random": "draw from `self.np_random`, seeded by `super().reset(seed)`",
        "shared_state": "make it in `__init__`, not in the class or a default",
        "reset_incomplete": "set all that changes anew in `reset`",
    },
    "warning": {
        "observation_is_state": "return a copy of the state",
        "observation_bounds": "clip it, or widen the space; networks may scale by it",
        "time_limit": f"a time limit is `truncated`, not `terminated`: {_LIMIT}",
        "endless": _LIMIT,
        "plays_on": "raise, or keep saying that the episode is over",
        "reset_reseeds": "seed only where `reset` is given a seed, and by that seed",
        "reset_drift": "see that nothing is left over, as forces in a simulator may be",
        "wrapper_state": "where a wrapper is not to learn, set it anew in `reset`",
        "info_changes": "return the same keys with the same types: vectors stack them",
        "info_reused": "return a new dict in each step",
        "observation_constant": "nothing can be told from it",
        "bounds_equal": "leave out what never changes",
        "action_unbounded": "give it bounds, best -1 and 1",
        "action_scale": "exploration noise has one scale everywhere: wrap it in "
        "`gymnasium.wrappers.RescaleAction(env, -1.0, 1.0)`",
        "space_kind": "policies of `tfrl` take Box, Discrete, MultiDiscrete, "
        "MultiBinary, Dict and Tuple: turn it into one by a wrapper",
        "seed_default": "take None for no seed, or all episodes are the same",
        "seed_not_kept": "call `super().reset(seed=seed)`",
        "start": "`tfrl` counts from there; other libraries may not",
        "image": "return uint8 in [0, 255], which networks convolve and divide by 255",
        "render_modes": "write `metadata = {'render_modes': [...], 'render_fps': 30}`",
        "render": "return an array [H, W, 3] of uint8 for 'rgb_array'",
        "close_fails": "let `close` be called twice",
        "not_capturable": "a resumed run begins new episodes; all else is saved",
        "not_sendable": "make it by a function of a module, for other processes",
        "slow": "step several in processes of their own: `vectorization='async'`",
    },
}


def findings_of(faults: Mapping[str, str]) -> "tuple[EnvFinding, ...]":
    """Returns the faults, errors first, each with what to do about it."""
    return tuple(
        EnvFinding(level, name, faults[name], remedy)
        for level, remedies in _REMEDIES.items()
        for name, remedy in remedies.items()
        if name in faults
    )


def faults_of_spaces(env: Any) -> Iterator[Fault]:
    """Yields names and descriptions of what is wrong with both spaces."""
    for name in ("observation_space", "action_space"):
        space = getattr(env, name, None)
        if not isinstance(space, gym.Space):
            told = "there is none" if space is None else f"it is {space!r}"
            yield "no_space", f"`{name}` is no gymnasium.Space: {told}"
            continue
        for part, place in _leaves(space, name):
            yield from _faults_of_part(part, place, name == "action_space")


def faults_of_signature(env: Any) -> Iterator[Fault]:
    """Yields what `reset` does not take."""
    given = inspect.signature(env.unwrapped.reset)
    taken = given.parameters
    default = taken["seed"].default if "seed" in taken else None
    if default not in (None, inspect.Parameter.empty):
        yield "seed_default", f"`reset{given}` takes {default!r} for no seed"
    missing = sorted({"seed", "options"} - set(taken))
    has_rest = any(each.kind is each.VAR_KEYWORD for each in taken.values())
    if missing and not has_rest:
        lacking = " and ".join(f"`{name}`" for name in missing)
        yield "reset_arguments", f"`reset{given}` takes no {lacking}"


def faults_of_metadata(env: Any) -> Iterator[Fault]:
    """Yields what is missing in `metadata`."""
    metadata = env.unwrapped.metadata
    modes = metadata.get("render_modes") if isinstance(metadata, Mapping) else None
    mode = getattr(env, "render_mode", None)
    if modes is None:
        yield "render_modes", f"`metadata` names no 'render_modes': {metadata!r}"
    elif modes and not isinstance(metadata.get("render_fps"), numbers.Real):
        yield "render_modes", f"`metadata` names no 'render_fps' beside modes {modes}"
    elif mode is not None and mode not in modes:
        yield "render_modes", f"`render_mode` {mode!r} is none of {list(modes)}"


def faults_of_returns(env: Any, seed: int) -> Iterator[Fault]:
    """Yields what the innermost environment returns instead of the usual tuples."""
    inner = env.unwrapped
    found = inner.reset(seed=seed)
    if not isinstance(found, tuple) or len(found) != 2:
        told = gym_checks.described(found)
        yield "reset_return", f"`reset` returned {told}, not (observation, info)"
        return
    yield from faults_of_info(found[1], "`reset`")
    if inner.np_random_seed != seed:
        told = f"after `reset(seed={seed})` that of `np_random` is another"
        yield "seed_not_kept", told
    space = copy.deepcopy(inner.action_space)
    space.seed(seed)
    chance = np.random.default_rng(seed)
    found = inner.step(_shown_masks.allowed(inner, *found, space.sample(), chance))
    if not isinstance(found, tuple) or len(found) != 5:
        told = gym_checks.described(found)
        expected = "(observation, reward, terminated, truncated, info)"
        yield "step_return", f"`step` returned {told}, not {expected}"


def faults_of_info(info: Any, source: str) -> Iterator[Fault]:
    """Yields that an info is no dict."""
    if not isinstance(info, Mapping):
        told = gym_checks.described(info)
        yield "info_type", f"the info of {source} is no dict: {told}"


def faults_of_observation(space: gym.Space, seen: Any, step: int) -> Iterator[Fault]:
    """Yields what is wrong with an observation; `step` is 0 for one of `reset`."""
    fault = gym_checks.misfit(space, seen)
    if fault is None:
        return
    name = {
        "numbers": "observation_not_finite",
        "dtype": "observation_dtype",
        "bounds": "observation_bounds" if step else "reset_bounds",
    }.get(fault.kind, "observation_form")
    if fault.kind == "bounds" and not fault.expected.startswith("a number"):
        name = "observation_choice"
    source = f"step {step}" if step else "`reset`"
    told = f"the observation{fault.place} of {source} is {fault.got}, not"
    yield name, f"{told} {fault.expected} as `observation_space` says"


def faults_of_outcome(
    reward: Any, terminated: Any, truncated: Any, info: Any, step: int
) -> Iterator[Fault]:
    """Yields what is wrong with the rest of what `step` returned."""
    if not isinstance(reward, numbers.Real | np.bool_):
        told = gym_checks.described(reward)
        yield "reward_type", f"the reward of step {step} is no number: {told}"
    elif not np.isfinite(float(reward)):
        yield "reward_not_finite", f"the reward of step {step} is {reward}"
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, bool | np.bool_):
            told = gym_checks.described(flag)
            yield "end_type", f"`{name}` of step {step} is no bool: {told}"
    yield from faults_of_info(info, f"step {step}")


def _leaves(space: gym.Space, place: str) -> Iterator[tuple[gym.Space, str]]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        keyed = isinstance(space, spaces.Dict)
        for key in space.spaces if keyed else range(len(space.spaces)):
            yield from _leaves(space[key], f"{place}[{key!r}]")
    else:
        yield space, place


def _faults_of_part(space: gym.Space, place: str, is_action: bool) -> Iterator[Fault]:
    start = getattr(space, "start", 0)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) and np.any(start):
        yield "start", f"`{place}` counts from {start}, not from 0"
    if not isinstance(space, gym_checks.ARRAYS):
        yield "space_kind", f"`{place}` is a {type(space).__name__}"
    if isinstance(space, spaces.Box):
        yield from _faults_of_box(space, place, is_action)


def _faults_of_box(space: spaces.Box, place: str, is_action: bool) -> Iterator[Fault]:
    if np.any(space.low > space.high) or np.isnan([space.low, space.high]).any():
        yield "bounds", f"`{place}` has bounds that hold nothing: {space}"
    elif np.any(space.low == space.high):
        yield "bounds_equal", f"`{place}` has parts that hold one number only: {space}"
    if 0 in space.shape:
        yield "bounds", f"`{place}` holds no number: {space}"
    if is_action and not space.is_bounded("both"):
        yield "action_unbounded", f"`{place}` has no bounds: {space}"
    elif is_action and (np.any(space.low != -1) or np.any(space.high != 1)):
        yield "action_scale", f"`{place}` is not scaled to -1 and 1: {space}"
    if not is_action and len(space.shape) == 3 and space.dtype != np.uint8:
        if min(sorted(space.shape)[1:]) >= _IMAGE_SIDE:
            yield "image", f"`{place}` looks like an image and is {space.dtype}"


class EnvFinding(NamedTuple):
    """One thing wrong with an environment.

    Attributes:
        level: "error" where learning goes wrong or breaks off, else "warning".
        name: of the fault.
        what: was seen.
        remedy: what to do.
    """

    level: str
    name: str
    what: str
    remedy: str


class EnvReport(NamedTuple):
    """What `check_env` found.

    Attributes:
        env: name of the environment.
        findings: errors first.
        skipped: what was not looked at, and why.
        steps_per_second: of one environment, with random actions.
    """

    env: str
    findings: tuple[EnvFinding, ...]
    skipped: tuple[str, ...]
    steps_per_second: float

    @property
    def errors(self) -> tuple[EnvFinding, ...]:
        """Findings where learning goes wrong or breaks off."""
        return tuple(found for found in self.findings if found.level == "error")

    @property
    def warnings(self) -> tuple[EnvFinding, ...]:
        """All other findings."""
        return tuple(found for found in self.findings if found.level == "warning")

    def __str__(self) -> str:
        lines = [
            f"{self.env}: {_counted(self.errors, 'error')}, "
            f"{_counted(self.warnings, 'warning')}"
        ]
        if math.isfinite(self.steps_per_second):
            speed = float(f"{self.steps_per_second:.2g}")
            lines[0] += f"; about {speed:,.0f} steps a second"
        lines += [f"  {x.level} {x.name}: {x.what}; {x.remedy}" for x in self.findings]
        lines += [f"  not looked at: {reason}" for reason in self.skipped]
        return "\n".join(lines)


def _counted(found: Sized, kind: str) -> str:
    return f"{len(found)} {kind}{'s' * (len(found) != 1)}"
