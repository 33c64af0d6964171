"""The environments of a run: made, and checked whether it can train and evaluate."""

import contextlib
import functools
import inspect
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from tfrl._internal import async_vectors, gym_checks
from tfrl.environments import attributes
from tfrl.environments.compiled import wrappers

# What wrappers normalize: where those of Gymnasium keep its moments, those around
# vectors, and those in graphs.
_LEARNING: dict[str, tuple[str, Any, Any]] = {
    "observations": (
        *("obs_rms", gym.wrappers.vector.NormalizeObservation),
        wrappers.NormalizeObservations,
    ),
    "rewards": (
        *("return_rms", gym.wrappers.vector.NormalizeReward),
        wrappers.NormalizeRewards,
    ),
}


def made_envs(
    make_envs: Any,
    counts: Sequence[int],
    undo: contextlib.ExitStack,
    is_new: bool = True,
) -> list[VectorEnv]:
    """Makes vector environments, of so many each; `undo` closes them.

    Those of a run that is not new are taken as they were.
    """
    _check_maker(make_envs)
    found = []
    for count in counts:
        found.append(make_envs(n_envs=count))
        if is_new:
            _check_apart(found)
        gym_checks.check_vector("Trainer", "make_envs", found[-1], count)
        undo.callback(async_vectors.close, found[-1])
    if is_new:
        check_learns_nothing("Trainer", "make_envs", found[-1])
    return found


def _check_apart(vectors: Sequence[Any]) -> None:
    """Raises a ValueError if an environment stands in more than one place."""
    seen: set[int] = set()
    for envs in vectors:
        whole = getattr(envs, "unwrapped", envs)
        copies = whole.envs if isinstance(whole, SyncVectorEnv) else ()
        for env in (whole, *copies):
            inner = env.unwrapped if isinstance(env, gym.Env) else env
            if id(inner) in seen:
                raise ValueError(
                    "`Trainer`: `make_envs` expected to make a new environment for "
                    "each place, in training and in evaluation; got the same "
                    f"{inner} twice, which would be reset within its episodes; make "
                    "them in the function"
                )
            seen.add(id(inner))


def check_learns_nothing(where: str, name: str, envs: VectorEnv) -> None:
    """Raises a ValueError if wrappers of environments normalize by what they have seen.

    They keep that for themselves: environments to evaluate in would begin anew, and the
    agent would be saved without it.

    Args:
        where: the asking function, for the message.
        name: of its argument.
        envs: the environments.
    """
    compiled = attributes.get_env_attr(envs, "compiled", None)
    layers = [] if compiled is None else wrappers.layers(compiled)
    for what, (moments, around, in_graph) in _LEARNING.items():
        if any(isinstance(x, in_graph) for x in layers) or _keeps(
            envs, moments, around
        ):
            raise ValueError(
                f"`{where}`: `{name}` expected environments without running moments of "
                f"{what}, which an evaluation would begin anew and a saved agent would "
                "lack; got a wrapper that keeps them; let the agent normalize, as "
                f"PPO(normalize_{what}=True) does"
            )


def _keeps(envs: VectorEnv, moments: str, kind: Any) -> bool:
    """Whether Gymnasium's wrappers of a vector, or of its copies, learn moments."""
    around: Any = envs
    while around is not None:
        if isinstance(around, kind):
            return around.update_running_mean
        around = getattr(around, "env", None)
    whole, names = getattr(envs, "unwrapped", envs), (moments, "update_running_mean")
    if isinstance(whole, AsyncVectorEnv):
        has = (whole.call("has_wrapper_attr", name) for name in names)
        return all(map(any, has)) and any(whole.call("get_wrapper_attr", names[1]))
    copies = whole.envs if isinstance(whole, SyncVectorEnv) else ()
    return any(
        all(env.has_wrapper_attr(name) for name in names)
        and env.get_wrapper_attr(names[1])
        for env in copies
    )


def _check_maker(make_envs: Any) -> None:
    """Raises a TypeError unless it is a function that can be given `n_envs=` alone."""
    got = None
    if not callable(make_envs) or isinstance(make_envs, gym.Env | VectorEnv):
        got = repr(make_envs)
    elif isinstance(make_envs, type) and issubclass(make_envs, gym.Env):
        got = f"the environment class {make_envs.__name__}"
    else:
        with contextlib.suppress(ValueError):  # some know no signature
            got = _unlike_makers(make_envs)
    if got is not None:
        raise TypeError(
            "`Trainer`: `make_envs` expected a function that makes a vector "
            f"environment when called with `n_envs=`; got {got}; pass a function of "
            "`n_envs`, such as functools.partial(tfrl.environments.make_vec, "
            "'CartPole-v1'), or of `tfrl.environments.compiled.make_compiled` for "
            "collector 'compiled'"
        )


def _unlike_makers(function: Any) -> str | None:
    """Tells what a function asks for besides `n_envs=`, or that it takes no such."""
    signature = inspect.signature(function)
    try:
        signature.bind_partial(n_envs=1)
    except TypeError:
        return f"a function of {signature}"
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    # Wrappers, such as gin's, know arguments that what they wrap asks for.
    if not hasattr(inner, "__wrapped__"):
        try:
            signature.bind(n_envs=1)
        except TypeError as error:
            name = getattr(inner, "__name__", type(inner).__name__)
            return f"{name!r}, {error}"
    return None
