"""What went wrong inside a vector environment, and in which of its environments."""

import re
import traceback
import types
from multiprocessing import connection
from typing import Any, NoReturn

import gymnasium as gym

from tfrl._internal import gym_checks

# Frames of these lie between a vector and the environments that a user wrote.
_BETWEEN = {"gymnasium", "numpy", "tfrl", "functools", "copy", "contextlib"}
_ADVICE = "see what `tfrl.environments.check_env` says of one"
_RETURNED = {
    "reset": "`reset` to return (observation, info)",
    "step": "`step` to return (observation, reward, terminated, truncated, info)",
}
_NUMBERS = "rewards that are numbers, and ends that are bools"
# Error message, what was expected (nothing: what is returned), what came instead.
_FAULTS = (
    (
        r"TypeError: (.*reset\(\) got an unexpected keyword.*)",
        "`reset` to be as `reset(self, *, seed=None, options=None)`",
        "{}",
    ),
    (r"AttributeError: (.*'items'.*)", "", "an info that is no dict: {}"),
    (r"float\(\) argument .*'([\w.]+)'$", _NUMBERS, "one that is a {}"),
    (r"setting an array element", _NUMBERS, "one that is a sequence"),
    (r"TypeError: .*unpack non-iterable ([\w.]+)", "", "an object of type {}"),
    (r"ValueError: not enough values to unpack .* (\d+)\)", "", "{} values"),
    (r"ValueError: too many values to unpack", "", "more values"),
)
_Told = tuple[int | None, str, str]  # which environment, what was expected, what came


def explain(envs: Any, error: Exception, step: int) -> None:
    """Raises an error that tells which environment broke which rule, if one did.

    What an environment itself raised is left as it is.

    Args:
        envs: the vector environment whose `reset` or `step` raised.
        error: what it raised.
        step: which step it was, from 1 on; at a reset the one before, or 0.

    Raises:
        ConnectionError: if a worker process is gone.
        ValueError: if an environment returned what it should not.
    """
    vector = envs.unwrapped
    if isinstance(error, ConnectionError | EOFError) and hasattr(vector, "processes"):
        _end_of_a_worker(vector, error, max(step - 1, 0))
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not all(_module(frame) in _BETWEEN for frame in frames):
        return
    told = _observation_fault(frames) or _tuple_fault(frames, error)
    if told is not None:
        number, expected, got = told
        number = _number(vector, frames) if number is None else number
        raise ValueError(
            f"`Stepper`: `envs` expected {expected}; got {got} from "
            f"{_name(vector, number)} at step {step}; {_ADVICE}"
        ) from error


def check_observations(envs: Any, observations: Any) -> None:
    """Raises a ValueError unless first observations are as the vector declares them."""
    space = envs.observation_space
    fault = gym_checks.misfit(space, observations, form_only=True)
    if fault is not None:
        raise ValueError(
            f"`Stepper`: `envs` expected observations{fault.place} to be "
            f"{fault.expected}, as `observation_space` says; got {fault.got} from "
            f"{_kind(envs)} at step 0; {_ADVICE}"
        )


def _end_of_a_worker(vector: Any, error: Exception, step: int) -> NoReturn:
    ended = connection.wait([x.sentinel for x in vector.processes], timeout=5.0)
    for process in vector.processes:
        if process.sentinel in ended:
            process.join(5.0)  # what ends closes its files before it has a code
    codes = enumerate([process.exitcode for process in vector.processes])
    who = ", ".join(f"{n} (exit code {code})" for n, code in codes if code is not None)
    # `close` would ask the dead one to answer.
    for process in vector.processes:
        process.terminate()
    for process in vector.processes:
        process.join()
    vector.closed = True
    raise ConnectionError(
        "`Stepper`: `envs` expected its worker processes to go on; got the end of that "
        f"of environment {who or '?'} after {step} steps; see what killed it (memory?) "
        "and resume the run"
    ) from error


def _module(frame: types.FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).split(".")[0]


def _observation_fault(frames: list[types.FrameType]) -> _Told | None:
    """Looks at what Gymnasium's `concatenate(space, items, out)` was given."""
    for frame in frames:
        space, items = (frame.f_locals.get(name) for name in ("space", "items"))
        if not isinstance(space, gym.Space) or not isinstance(items, list | tuple):
            continue
        for number, item in enumerate(items):
            fault = gym_checks.misfit(space, item, form_only=True)
            if fault is not None:
                expected = f"observations{fault.place} to be {fault.expected}"
                return number, f"{expected}, as its space says", fault.got
    return None


def _tuple_fault(frames: list[types.FrameType], error: Exception) -> _Told | None:
    """Reads off Python's own words what was returned in the place of what."""
    text = f"{type(error).__name__}: {error}"
    is_reset = any(frame.f_code.co_name == "reset" for frame in frames[1:])
    returned = _RETURNED["reset" if is_reset or "expected 2" in text else "step"]
    for pattern, expected, got in _FAULTS:
        match = re.search(pattern, text)
        if match:
            return None, expected or returned, got.format(*match.groups())
    return None


def _number(vector: Any, frames: list[types.FrameType]) -> int | None:
    """Finds the environment whose wrapper was the last to be called."""
    parts = [env.unwrapped for env in getattr(vector, "envs", ())]
    for frame in reversed(frames):
        caller = frame.f_locals.get("self")
        if isinstance(caller, gym.Env):
            found = [n for n, env in enumerate(parts) if env is caller.unwrapped]
            return found[0] if found else None
        if caller is vector and isinstance(frame.f_locals.get("i"), int):
            return int(frame.f_locals["i"])
    return None


def _name(vector: Any, number: int | None) -> str:
    if number is None:
        return _kind(vector)
    envs = getattr(vector, "envs", ())
    kind = f" ({_kind(envs[number])})" if number < len(envs) else ""
    return f"environment {number}{kind}"


def _kind(env: Any) -> str:
    spec = getattr(env.unwrapped, "spec", None)
    return getattr(spec, "id", None) or type(env.unwrapped).__name__
