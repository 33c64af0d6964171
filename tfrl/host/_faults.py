"""What goes wrong inside a vector: which environment broke which rule, at what step.

The processes of a vector that was left within a call are ended.
"""

import pathlib
import re
import traceback
import types
from multiprocessing import connection
from typing import Any, NoReturn

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv
from gymnasium.vector.async_vector_env import AsyncState

from tfrl._internal import async_vectors, gym_checks
from tfrl.host import _serial

# Frames of these lie between a vector and the environments that a user wrote.
_BETWEEN = {"gymnasium", "numpy", "tfrl", "functools", "copy", "contextlib"}
ADVICE = "see what `tfrl.environments.check_env` says of one"
_RETURNED = {
    "reset": "`reset` to return (observation, info)",
    "step": "`step` to return (observation, reward, terminated, truncated, info)",
}
_NUMBERS = "rewards that are numbers, as of `float(reward)`, and ends that are bools"
# Error message, what was expected (nothing: what is returned), what came instead.
_FAULTS = (
    (
        r"TypeError: (.*reset\(\) got an unexpected keyword.*)",
        "`reset` to be as `reset(self, *, seed=None, options=None)`",
        "{}",
    ),
    (r"AttributeError: (.*'items'.*)", "", "an info that is no dict: {}"),
    (r"observation: (.*)", "observations as `observation_space` says", "{}"),
    (
        r"info: (.*)",
        "infos whose values keep kind and shape, as 'async' stacks them",
        "{}",
    ),
    (r"float\(\) argument .*'([\w.]+)'$", _NUMBERS, "one that is a {}"),
    (r"a reward, or an end, is of type (\w+)$", _NUMBERS, "one that is a {}"),
    (r"setting an array element", _NUMBERS, "one that is a sequence"),
    (r"TypeError: .*unpack non-iterable ([\w.]+)", "", "an object of type {}"),
    (r"ValueError: not enough values to unpack .* (\d+)\)", "", "{} values"),
    (r"ValueError: too many values to unpack", "", "more values"),
)
# What vectors call the number of an environment; `i` may count something else.
_COUNTERS = "index", "env_num", "env_idx", "i"
_Told = tuple[int | None, str, str]  # which environment, what was expected, what came


def explain(envs: Any, error: BaseException, step: int) -> None:
    """Raises an error that tells which environment broke which rule, if one did.

    What an environment itself raised is left as it is. `step` counts from 1 on; at a
    reset it is that of the step before, or 0. Processes that still play, or whose
    answers are lost, are ended first.
    """
    vector = envs.unwrapped
    if isinstance(error, ConnectionError | EOFError) and hasattr(vector, "processes"):
        _end_of_a_worker(vector, error, max(step - 1, 0))
    if isinstance(vector, AsyncVectorEnv) and vector._state != AsyncState.DEFAULT:
        async_vectors.end_processes(vector)
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not isinstance(error, Exception) or not _is_between(frames):
        return
    told = _observation_fault(frames) or _tuple_fault(frames, error)
    if told is not None:
        number, expected, got = told
        number = _number(vector, frames) if number is None else number
        raise ValueError(
            f"`Stepper`: `envs` expected {expected}; got {got} from "
            f"{name_of(vector, number)} at step {step}; {ADVICE}"
        ) from error


def _end_of_a_worker(vector: Any, error: Exception, step: int) -> NoReturn:
    ended = connection.wait([x.sentinel for x in vector.processes], timeout=5.0)
    for process in vector.processes:
        if process.sentinel in ended:
            process.join(5.0)  # what ends closes its files before it has a code
    codes = enumerate([process.exitcode for process in vector.processes])
    who = ", ".join(f"{n} (exit code {code})" for n, code in codes if code is not None)
    async_vectors.end_processes(vector)
    raise ConnectionError(
        "`Stepper`: `envs` expected its worker processes to go on; got the end of that "
        f"of environment {who or '?'} after {step} steps; see what killed it (memory?) "
        "and resume the run"
    ) from error


def _is_between(frames: list[types.FrameType]) -> bool:
    """Whether an error arose outside of what a user wrote, here or in a process."""
    modules = [str(frame.f_globals.get("__name__", "")) for frame in frames]
    places = [{name.split(".")[0]} for name in modules]
    for name in re.findall(r'File "(.*)", line', _told_by_a_worker(frames)):
        path = pathlib.PurePath(name)
        places.append({path.stem, *path.parts})
    return all(_BETWEEN & place for place in places)


def _told_by_a_worker(frames: list[types.FrameType]) -> str:
    """The traceback that an error had in the process of an environment, if in one."""
    return str(frames[-1].f_locals.get("trace", ""))


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
    if "write_to_shared_memory" in _told_by_a_worker(frames):
        text = f"observation: {text}"
    elif frames[-1].f_code.co_name == "_add_info":
        text = f"info: {text}"
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
        if caller is vector or isinstance(caller, _serial.SerialSteps):
            known = (frame.f_locals.get(name) for name in _COUNTERS)
            found = [number for number in known if isinstance(number, int)]
            if found:
                return found[0]
    return None


def name_of(vector: Any, number: int | None) -> str:
    if number is None:
        return kind_of(vector)
    envs = getattr(vector, "envs", ())
    kind = kind_of(envs[number] if number < len(envs) else vector)
    return f"environment {number} ({kind})"


def kind_of(env: Any) -> str:
    spec = getattr(env.unwrapped, "spec", None)
    return getattr(spec, "id", None) or type(env.unwrapped).__name__
