"""Whether an environment does the same again, whatever was done before or beside it."""

import collections
import contextlib
import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tfrl.environments.checking import _tapes

Fault = tuple[str, str]
_FEW = 5
_MUTABLE = (list, dict, set, bytearray, np.ndarray, collections.deque)
_GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)


class Comparisons:
    """Episodes of further instances, held against each other.

    Args:
        make: makes an instance.
        seed: of the first reset.
        n_steps: how many actions to play.
    """

    def __init__(self, make: Callable[[], Any], seed: int, n_steps: int) -> None:
        self._make, self._seed, self._n_steps = make, seed, n_steps

    def faults_of_sharing(self) -> Iterator[Fault]:
        """Yields what two instances have in common and one of them changes."""
        with self._opened() as one, self._opened() as other:
            shared = dict(_class_containers(one.unwrapped))
            others = vars(other.unwrapped)
            for name, value in vars(one.unwrapped).items():
                if isinstance(value, _MUTABLE) and value is others.get(name):
                    shared[name] = value
            before = {name: _tapes.frozen(value) for name, value in shared.items()}
            _tapes.play(one, self._seed, self._n_steps)
            for name, value in shared.items():
                if _tapes.frozen(value) != before[name]:
                    told = "is one object for all instances, and a step changes it"
                    yield "shared_state", f"`{name}` {told}"

    def faults_of_repeating(self) -> Iterator[Fault]:
        """Yields the first reason why a seed does not make the same episodes again."""
        alone = self._tape()
        if alone.raised is not None:
            return
        step = _tapes.first_difference(alone, self._tape())
        if step is not None:
            told = f"two of them, reset with seed {self._seed}, differ"
            yield "not_reproducible", f"{told} in observation {step}"
            return
        step = _tapes.first_difference(alone, self._tape(randomness=2))
        if step is not None:
            told = "depend on the global generator of `random` or `numpy.random`"
            yield "global_random", f"its episodes {told}, from observation {step} on"
            return
        step = _tapes.first_difference(alone, self._beside_another())
        if step is not None:
            told = f"stepping one instance changes observation {step} of another"
            yield "shared_state", told
        used = self._tape(n_before=self._n_steps)
        step = _tapes.first_difference(alone, used)
        if step is not None:
            told = f"after other episodes, seed {self._seed} gives another observation"
            yield self._kind_of_leftover(alone, used, step), f"{told} {step}"
        step = _tapes.first_difference(alone, self._tape(between=_tapes.scribble))
        if step is not None:
            told = f"writing into an observation changes observation {step}"
            yield "observation_is_state", told

    def faults_of_reseeding(self) -> Iterator[Fault]:
        """Yields that episodes are always the same, if they need not be."""
        with self._opened() as env:
            env.reset(seed=self._seed)
            one, two = (_tapes.play(env, None, self._n_steps) for _ in range(2))
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
    ) -> _tapes.Tape:
        """Plays a new instance, after other episodes if `n_before` is not 0."""
        with self._opened() as env, _tapes.global_randomness(randomness):
            played = env.unwrapped if inner else env
            if n_before:
                _tapes.play(played, self._seed + 1, n_before)
            return _tapes.play(played, self._seed, self._n_steps, between)

    def _beside_another(self) -> _tapes.Tape:
        with self._opened() as other:
            space = copy.deepcopy(other.action_space)
            space.seed(self._seed + 1)
            other.reset(seed=self._seed + 1)

            def step_other(_: Any) -> None:
                *_, terminated, truncated, _ = other.step(space.sample())
                if terminated or truncated:
                    other.reset()

            return self._tape(between=step_other)

    def _kind_of_leftover(
        self, fresh: _tapes.Tape, used: _tapes.Tape, step: int
    ) -> str:
        """Which fault it is that an environment differs after other episodes."""
        inner = self._tape(inner=True)
        used_inner = self._tape(inner=True, n_before=self._n_steps)
        if _tapes.first_difference(inner, used_inner) is None:
            return "wrapper_state"
        is_within = 0 < step < min(len(fresh.rows), len(used.rows))
        if is_within:
            # Numbers that part within an episode, and not after just any others: a
            # simulator keeps contacts or forces that it has solved for.
            a, b = fresh.rows[step], used.rows[step]
            if len(a) == len(b) and a[0] != b[0] and a[2:] == b[2:]:
                little = self._tape(n_before=_FEW)
                if _tapes.first_difference(fresh, little) != step:
                    return "reset_drift"
        return "reset_incomplete"

    def _drawn(self, env: Any, seed: int) -> tuple[_tapes.Tape, set[Any]]:
        """A tape, and the last states of the generators that were drawn from."""
        before = _generators(env.unwrapped)
        tape = _tapes.play(env, seed, self._n_steps)
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
    if isinstance(generator, np.random.Generator):
        return _tapes.frozen(generator.bit_generator.state)
    is_python = isinstance(generator, random.Random)
    return _tapes.frozen(generator.getstate() if is_python else generator.get_state())


def _class_containers(env: Any) -> Iterator[tuple[str, Any]]:
    for kind in type(env).__mro__:
        module = f"{kind.__module__}."
        if module.startswith("gymnasium.") and not module.startswith("gymnasium.envs."):
            continue
        for name, value in vars(kind).items():
            is_private = name.startswith("__") or name == "metadata"
            if isinstance(value, _MUTABLE) and not is_private:
                yield f"{kind.__name__}.{name}", value
