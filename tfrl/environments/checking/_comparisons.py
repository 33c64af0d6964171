"""Whether an environment does the same again, whatever was done before or beside it."""

import collections
import contextlib
import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from tfrl.environments.checking import _tapes

_FEW = 5
_MUTABLE = (list, dict, set, bytearray, np.ndarray, collections.deque)


@contextlib.contextmanager
def opened(make: Callable[[], Any]) -> Iterator[Any]:
    """Makes an environment for a while."""
    env = make()
    try:
        yield env
    finally:
        with contextlib.suppress(Exception):
            env.close()


def faults_of_repeating(
    make: Callable[[], Any], seed: int, n_steps: int
) -> Iterator[tuple[str, str]]:
    """Yields the first reason why a seed does not make the same episodes again."""
    one = _tape(make, seed, n_steps)
    if one.raised is not None:
        return
    step = _tapes.first_difference(one, _tape(make, seed, n_steps))
    if step is not None:
        told = f"two of them, reset with seed {seed}, differ in observation {step}"
        yield "not_reproducible", told
        return
    step = _tapes.first_difference(one, _tape(make, seed, n_steps, randomness=2))
    if step is not None:
        yield (
            "global_random",
            "its episodes depend on the global generator of `random` or `numpy.random`"
            f", from observation {step} on",
        )
        return
    yield from _faults_of_companions(make, seed, n_steps, one)
    yield from _faults_of_resets(make, seed, n_steps, one)
    tape = _tape(make, seed, n_steps, between=_tapes.scribble)
    step = _tapes.first_difference(one, tape)
    if step is not None:
        told = f"writing into an observation changes observation {step}"
        yield "observation_is_state", told


def faults_of_sharing(
    make: Callable[[], Any], seed: int, n_steps: int
) -> Iterator[tuple[str, str]]:
    """Yields what two instances have in common and one of them changes."""
    with opened(make) as one, opened(make) as other:
        shared = dict(_class_containers(one.unwrapped))
        own, others = vars(one.unwrapped), vars(other.unwrapped)
        for name, value in own.items():
            if isinstance(value, _MUTABLE) and value is others.get(name):
                shared[name] = value
        before = {name: _tapes.frozen(value) for name, value in shared.items()}
        _tapes.play(one, seed, n_steps)
        for name, value in shared.items():
            if _tapes.frozen(value) != before[name]:
                told = (
                    f"`{name}` is one object for all instances, and a step changes it"
                )
                yield "shared_state", told


def faults_of_reseeding(
    make: Callable[[], Any], seed: int, n_steps: int
) -> Iterator[tuple[str, str]]:
    """Yields that episodes are always the same, if they need not be."""
    with opened(make) as env:
        env.reset(seed=seed)
        one, two = (_tapes.play(env, None, n_steps) for _ in range(2))
        if one.raised is not None or one != two:
            return
        other, drawn = _draws(env, seed + 1, n_steps)
        if one.rows != other.rows:
            yield "reset_reseeds", "`reset()` without a seed repeats the same episodes"
            return
        another, drawn_again = _draws(env, seed + 2, n_steps)
    # What draws, and shows the same, is not yet at fault: its rules may ignore it.
    if another.rows == one.rows and set(drawn.items()) & set(drawn_again.items()):
        told = "repeats the same episodes, as its random numbers do, whatever the seed"
        yield "reset_reseeds", f"`reset(seed=...)` {told}"


def faults_of_ends(
    make: Callable[[], Any], seed: int, n_steps: int
) -> Iterator[tuple[str, str]]:
    """Yields that an episode that ended truly goes on, if it does."""
    with opened(make) as env:
        space = copy.deepcopy(env.action_space)
        space.seed(seed)
        env.reset(seed=seed)
        for _ in range(n_steps):
            _, _, terminated, truncated, _ = env.step(space.sample())
            if terminated or truncated:
                break
        if not terminated or truncated:
            return
        with contextlib.suppress(Exception):
            _, _, terminated, truncated, _ = env.step(space.sample())
            if not terminated and not truncated:
                yield "plays_on", "the step after an end says that nothing has ended"


def _draws(env: Any, seed: int, n_steps: int) -> tuple[_tapes.Tape, dict[str, Any]]:
    """Returns a tape, and the last states of the generators that were drawn from."""
    inner = env.unwrapped
    old = _generators(inner)
    env.reset(seed=seed)
    begun = _generators(inner)
    unused = dict(begun)
    if inner.np_random_seed is not None and inner.np_random_seed >= 0:
        fresh, _ = gym.utils.seeding.np_random(inner.np_random_seed)
        unused["_np_random"] = fresh, _tapes.frozen(fresh.bit_generator.state)
    tape = _tapes.play(env, seed, n_steps)
    drawn = {}
    for name, (_, state) in _generators(inner).items():
        is_own = name != "_np_random"
        is_new = is_own and name in old and begun[name][0] is not old[name][0]
        if is_new or name in unused and state != unused[name][1]:
            drawn[name] = state
    return tape, drawn


def _generators(inner: Any) -> dict[str, tuple[Any, Any]]:
    """Returns the random generators of an environment, and their states."""
    found: dict[str, tuple[Any, Any]] = {}
    for name, value in vars(inner).items():
        if isinstance(value, np.random.Generator):
            found[name] = value, _tapes.frozen(value.bit_generator.state)
        elif isinstance(value, np.random.RandomState):
            found[name] = value, _tapes.frozen(value.get_state())
        elif isinstance(value, random.Random):
            found[name] = value, _tapes.frozen(value.getstate())
    return found


def _tape(
    make: Callable[[], Any],
    seed: int,
    n_steps: int,
    randomness: int = 1,
    **options: Any,
) -> _tapes.Tape:
    with opened(make) as env, _tapes.global_randomness(randomness):
        return _tapes.play(env, seed, n_steps, **options)


def _faults_of_companions(
    make: Callable[[], Any], seed: int, n_steps: int, alone: _tapes.Tape
) -> Iterator[tuple[str, str]]:
    with opened(make) as other:
        space = copy.deepcopy(other.action_space)
        space.seed(seed + 1)
        other.reset(seed=seed + 1)

        def step_other(observation: Any) -> None:
            del observation
            _, _, terminated, truncated, _ = other.step(space.sample())
            if terminated or truncated:
                other.reset()

        tape = _tape(make, seed, n_steps, between=step_other)
    step = _tapes.first_difference(alone, tape)
    if step is not None:
        told = f"stepping one instance changes observation {step} of another"
        yield "shared_state", told


def _faults_of_resets(
    make: Callable[[], Any], seed: int, n_steps: int, fresh: _tapes.Tape
) -> Iterator[tuple[str, str]]:
    used = _used(make, seed, n_steps)
    step = _tapes.first_difference(fresh, used)
    if step is None:
        return

    def make_inner() -> Any:
        return make().unwrapped

    inner = _tape(make_inner, seed, n_steps), _used(make_inner, seed, n_steps)
    told = f"after other episodes, seed {seed} gives another observation {step}"
    if _tapes.first_difference(*inner) is None:
        yield "wrapper_state", told
    elif step and _is_drift(make, seed, fresh, used, step):
        yield "reset_drift", told
    else:
        yield "reset_incomplete", told.replace("observation", "answer")


def _used(
    make: Callable[[], Any], seed: int, n_steps: int, n_before: int | None = None
) -> _tapes.Tape:
    with opened(make) as env, _tapes.global_randomness(1):
        _tapes.play(env, seed + 1, n_steps if n_before is None else n_before)
        return _tapes.play(env, seed, n_steps)


def _is_drift(
    make: Callable[[], Any],
    seed: int,
    fresh: _tapes.Tape,
    used: _tapes.Tape,
    step: int,
) -> bool:
    """Whether numbers part within an episode, and not after just any others.

    So it is where a simulator keeps contacts or forces that it has solved for.
    """
    if step >= min(len(fresh.rows), len(used.rows)):
        return False
    a, b = fresh.rows[step], used.rows[step]
    if len(a) != len(b) or a[0] == b[0] or a[2:] != b[2:]:
        return False
    little = _used(make, seed, len(fresh.rows) - 1 - len(fresh.ends), _FEW)
    return _tapes.first_difference(fresh, little) != step


def _class_containers(env: Any) -> Iterator[tuple[str, Any]]:
    for kind in type(env).__mro__:
        if not kind.__module__.startswith("gymnasium.") or kind.__module__.startswith(
            "gymnasium.envs."
        ):
            for name, value in vars(kind).items():
                is_private = name.startswith("__") or name == "metadata"
                if isinstance(value, _MUTABLE) and not is_private:
                    yield f"{kind.__name__}.{name}", value
