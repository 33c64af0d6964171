"""Plays environments and compares their episodes, to find faults."""

import collections
import contextlib
import copy
import functools
import hashlib
import numbers
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from tfrl._internal import gym_checks
from tfrl.environments import _contracts, _shown_masks

_LONG = 64
_ACTION_SEED = 7
_FEW = 5
_MUTABLE = (list, dict, set, bytearray, np.ndarray, collections.deque)
_GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)


class Tape(NamedTuple):
    """What an environment answered.

    Attributes:
        rows: to be compared; of each step a tuple of its observation, reward and ends,
            of each reset a tuple of its observation.
        ends: of each finished episode its length, and whether it was truncated.
        raised: what the environment raised, if it did.
    """

    rows: list[Any]
    ends: list[tuple[int, bool]]
    raised: str | None = None

    def first_difference(self, other: "Tape") -> int | None:
        """Returns the number of the first observation that differs, None if none."""
        pairs = enumerate(zip(self.rows, other.rows, strict=False))
        shorter, longer = sorted([len(self.rows), len(other.rows)])
        ending = None if shorter == longer else shorter
        return next((number for number, (a, b) in pairs if a != b), ending)


def play(
    env: Any,
    seed: int | None,
    n_steps: int,
    between: Callable[[Any], Any] = lambda _: None,
) -> Tape:
    """Plays actions that are the same each time, through as many episodes as they last.

    Args:
        env: the environment.
        seed: of its first reset.
        n_steps: how many actions.
        between: called with each observation when it has been recorded.
    """
    rows: list[Any] = []
    ends: list[tuple[int, bool]] = []
    length = 0
    try:
        observation, info = env.reset(seed=seed)
        rows.append((_frozen(observation),))
        asked = env.env if isinstance(env, Watch) else env
        chance = np.random.default_rng(_ACTION_SEED)
        for drawn in _actions(env.action_space, n_steps):
            action = _shown_masks.allowed(asked, observation, info, drawn, chance)
            between(observation)
            observation, reward, terminated, truncated, info = env.step(action)
            rows.append((_frozen(observation), _frozen(reward), terminated, truncated))
            length += 1
            if terminated or truncated:
                ends.append((length, bool(truncated)))
                length = 0
                observation, info = env.reset()
                rows.append((_frozen(observation),))
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        return Tape(rows, ends, f"after {len(rows)} observations: {told}")
    return Tape(rows, ends)


class Watch:
    """Plays an environment and looks at all that it returns.

    Args:
        env: the environment.
        space: of its observations.
        action_space: of it.

    Attributes:
        env: the environment.
        faults: of each kind the first.
        n_steps: how many steps there were.
        n_different: how many different observations there were, at most 2.
    """

    def __init__(self, env: Any, space: Any, action_space: Any) -> None:
        self.faults: dict[str, str] = {}
        self.n_steps, self.n_different = 0, 0
        self.action_space = copy.deepcopy(action_space)
        self.action_space.seed(0)
        self.env, self._space = env, space
        self._chance = np.random.default_rng(0)
        self._kinds: dict[str, str] = {}
        self._shown: tuple[Any, Any] | None = None
        self._info: Any = None
        # The step after the first true end is to be looked at, too.
        self._has_ended, self._is_over = False, False

    def reset(self, **kwargs: Any) -> tuple[Any, Any]:
        """Resets the environment."""
        if self._is_over and not self._has_ended:
            self._has_ended = True
            self._look_beyond_the_end()
        observation, info = self.env.reset(**kwargs)
        self._add(*_contracts.faults_of_info(info, "`reset`"))
        self._look(observation, 0)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Steps the environment."""
        before = _frozen(action)
        answer = self.env.step(action)
        observation, reward, terminated, truncated, info = answer
        self.n_steps += 1
        outcome = (reward, terminated, truncated, info, self.n_steps)
        self._add(*_contracts.faults_of_outcome(*outcome))
        if _frozen(action) != before:
            told = f"step {self.n_steps} changed the array of its action"
            self._add(("action_changed", told))
        self._look_at_info(info)
        self._look(observation, self.n_steps)
        self._is_over = bool(terminated) and not truncated
        return answer

    def _add(self, *faults: _contracts.Fault) -> None:
        for name, told in faults:
            self.faults.setdefault(name, told)

    def _look(self, observation: Any, step: int) -> None:
        self._add(*_contracts.faults_of_observation(self._space, observation, step))
        frozen = _frozen(observation)
        before = (None, None) if self._shown is None else self._shown
        if self._shown is not None and _frozen(before[0]) != before[1]:
            told = "has been overwritten when the next was returned"
            self._add(("observation_overwritten", f"an array of observations {told}"))
        if self.n_different < 2 and frozen != before[1]:
            self.n_different += 1
        self._shown = observation, frozen

    def _look_at_info(self, info: Any) -> None:
        if not isinstance(info, Mapping):
            return
        if info and info is self._info:
            self._add(("info_reused", "one dict is returned in all steps"))
        self._info = info
        for key, value in info.items():
            kind = _kind(value)
            before = self._kinds.setdefault(key, kind)
            if kind != before:
                told = f"of step {self.n_steps} is {kind}, before {before}"
                self._add(("info_changes", f"info[{key!r}] {told}"))

    def _look_beyond_the_end(self) -> None:
        with contextlib.suppress(Exception):
            seen = None if self._shown is None else self._shown[0]
            shown, drawn = (seen, self._info), self.action_space.sample()
            action = _shown_masks.allowed(self.env, *shown, drawn, self._chance)
            *_, terminated, truncated, _ = self.env.step(action)
            if not terminated and not truncated:
                told = "the step after an end says that nothing has ended"
                self._add(("plays_on", told))


class Comparisons:
    """Episodes of further instances, held against each other.

    Args:
        make: makes an instance.
        seed: of the first reset.
        n_steps: how many actions to play.
    """

    def __init__(self, make: Callable[[], Any], seed: int, n_steps: int) -> None:
        self._make, self._seed, self._n_steps = make, seed, n_steps

    def faults_of_sharing(self) -> Iterator[_contracts.Fault]:
        """Yields what two instances have in common and one of them changes."""
        with self._opened() as one, self._opened() as other:
            shared = dict(_class_containers(one.unwrapped))
            others = vars(other.unwrapped)
            for name, value in vars(one.unwrapped).items():
                if isinstance(value, _MUTABLE) and value is others.get(name):
                    shared[name] = value
            before = {name: _frozen(value) for name, value in shared.items()}
            play(one, self._seed, self._n_steps)
            for name, value in shared.items():
                if _frozen(value) != before[name]:
                    told = "is one object for all instances, and a step changes it"
                    yield "shared_state", f"`{name}` {told}"

    def faults_of_repeating(self) -> Iterator[_contracts.Fault]:
        """Yields the first reason why a seed does not make the same episodes again."""
        alone = self._tape()
        if alone.raised is not None:
            return
        two = f"two of them, reset with seed {self._seed}, differ"
        chance = "depend on the global generator of `random` or `numpy.random`"
        otherwise = functools.partial(self._tape, randomness=2)
        for name, told, play_again in (
            ("not_reproducible", f"{two} in observation {{}}", self._tape),
            ("global_random", f"they {chance}, from observation {{}} on", otherwise),
            (
                "shared_state",
                "stepping one instance changes observation {} of another",
                self._beside_another,
            ),
        ):
            step = alone.first_difference(play_again())
            if step is not None:
                yield name, told.format(step)
                return
        used = self._tape(n_before=self._n_steps)
        step = alone.first_difference(used)
        if step is not None:
            told = f"after other episodes, seed {self._seed} gives another observation"
            yield self._kind_of_leftover(alone, used, step), f"{told} {step}"
        step = alone.first_difference(self._tape(between=_scribble))
        if step is not None:
            told = f"writing into an observation changes observation {step}"
            yield "observation_is_state", told

    def faults_of_reseeding(self) -> Iterator[_contracts.Fault]:
        """Yields that episodes are always the same, if they need not be."""
        with self._opened() as env:
            env.reset(seed=self._seed)
            one, two = (play(env, None, self._n_steps) for _ in range(2))
            if one.raised is not None or one != two:
                return
            other, drawn = self._drawn(env, self._seed + 1)
            if one.rows != other.rows:
                told = "`reset()` without a seed repeats the same episodes"
                yield "reset_reseeds", told
                return
            another, again = self._drawn(env, self._seed + 2)
        # What draws, and shows the same, is not yet at fault: its rules may ignore it.
        if another.rows == one.rows and drawn & again:
            told = "the same episodes, as its random numbers do, whatever the seed"
            yield "reset_reseeds", f"`reset(seed=...)` repeats {told}"

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Any]:
        env = self._make()
        try:
            yield env
        finally:
            with contextlib.suppress(Exception):
                env.close()

    def _tape(
        self,
        *,
        inner: bool = False,
        n_before: int = 0,
        randomness: int = 1,
        between: Callable[[Any], Any] = lambda _: None,
    ) -> Tape:
        """Plays a new instance, after other episodes if `n_before` is not 0."""
        with self._opened() as env, _global_randomness(randomness):
            played = env.unwrapped if inner else env
            if n_before:
                play(played, self._seed + 1, n_before)
            return play(played, self._seed, self._n_steps, between)

    def _beside_another(self) -> Tape:
        with self._opened() as other:
            space = copy.deepcopy(other.action_space)
            space.seed(self._seed + 1)
            chance = np.random.default_rng(self._seed)
            shown: tuple[Any, Any] = other.reset(seed=self._seed + 1)

            def step_other(_: Any) -> None:
                nonlocal shown
                action = _shown_masks.allowed(other, *shown, space.sample(), chance)
                seen, _, terminated, truncated, info = other.step(action)
                shown = other.reset() if terminated or truncated else (seen, info)

            return self._tape(between=step_other)

    def _kind_of_leftover(self, fresh: Tape, used: Tape, step: int) -> str:
        """Which fault it is that an environment differs after other episodes."""
        inner = self._tape(inner=True)
        used_inner = self._tape(inner=True, n_before=self._n_steps)
        if inner.first_difference(used_inner) is None:
            return "wrapper_state"
        if 0 < step < min(len(fresh.rows), len(used.rows)):
            # Numbers that part within an episode, and not after just any others: a
            # simulator keeps contacts or forces that it has solved for.
            a, b = fresh.rows[step], used.rows[step]
            if len(a) == len(b) and a[0] != b[0] and a[2:] == b[2:]:
                if fresh.first_difference(self._tape(n_before=_FEW)) != step:
                    return "reset_drift"
        return "reset_incomplete"

    def _drawn(self, env: Any, seed: int) -> tuple[Tape, set[Any]]:
        """A tape, and the last states of the generators that were drawn from."""
        before = _generators(env.unwrapped)
        tape = play(env, seed, self._n_steps)
        after = _generators(env.unwrapped)
        drawn = {x: pair[1] for x, pair in after.items() if pair != before.get(x)}
        return tape, set(drawn.items())


def _generators(inner: Any) -> dict[str, tuple[Any, Any]]:
    """The random generators of an environment, and their states."""
    return {
        name: (value, _state(value))
        for name, value in vars(inner).items()
        if isinstance(value, _GENERATORS)
    }


def _state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return _frozen(generator.getstate())
    is_old = isinstance(generator, np.random.RandomState)
    return _frozen(generator.get_state() if is_old else generator.bit_generator.state)


def _class_containers(env: Any) -> Iterator[tuple[str, Any]]:
    for kind in type(env).__mro__:
        module = f"{kind.__module__}."
        if module.startswith("gymnasium.") and not module.startswith("gymnasium.envs."):
            continue
        for name, value in vars(kind).items():
            is_private = name.startswith("__") or name == "metadata"
            if isinstance(value, _MUTABLE) and not is_private:
                yield f"{kind.__name__}.{name}", value


def _frozen(nest: Any) -> Any:
    """Returns a value that is equal for equal nests, and shares nothing with them."""
    if isinstance(nest, dict):
        return tuple((key, _frozen(nest[key])) for key in sorted(nest, key=str))
    if isinstance(nest, tuple | list):
        return tuple(map(_frozen, nest))
    if not isinstance(nest, np.ndarray | np.generic | int | float | bool):
        return repr(nest)
    array = np.asarray(nest)
    if array.dtype.hasobject:  # of which the bytes are addresses
        return repr(nest)
    data = array.tobytes()
    if len(data) > _LONG:
        data = hashlib.blake2b(data).digest()
    return array.dtype.str, array.shape, data


def _scribble(nest: Any) -> None:
    """Writes other numbers into all arrays of a nest that can be written to."""
    for leaf in gym_checks.leaves_of(nest):
        if isinstance(leaf, np.ndarray) and leaf.flags.writeable:
            if leaf.dtype.kind == "b":
                np.logical_not(leaf, out=leaf)
            elif leaf.dtype.kind in "iuf":
                np.add(leaf, 1, out=leaf, casting="unsafe")


@contextlib.contextmanager
def _global_randomness(seed: int) -> Iterator[None]:
    """Seeds the global generators, and puts them back as they were."""
    state, numpy_state = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)


def _actions(space: Any, n_steps: int) -> Iterator[Any]:
    """Yields the corners of a Box, then samples."""
    space = copy.deepcopy(space)
    space.seed(_ACTION_SEED)
    corners = []
    if isinstance(space, spaces.Box) and space.is_bounded("both"):
        corners = [space.low.copy(), space.high.copy()]
    yield from corners[:n_steps]
    for _ in range(n_steps - len(corners)):
        yield space.sample()


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.ndim} axes"
    is_number = isinstance(value, numbers.Real | np.generic)
    return "a number" if is_number else f"of type {type(value).__name__}"
