"""Vectors of Gymnasium environments."""

import functools
import importlib
import multiprocessing
import signal
from collections.abc import Callable, Sequence
from multiprocessing import context
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv, async_vector_env

from tfrl._internal import arguments, end_signals
from tfrl.environments import action_masks as masks
from tfrl.environments import envpool_vector, parallel_vector

# Arguments of `gymnasium.make_vec` among those of an environment.
_OWN = ("num_envs", "vectorization_mode", "vector_kwargs", "wrappers")
_OTHERS = {
    "envpool": envpool_vector.EnvPoolVector,
    "pettingzoo": parallel_vector.ParallelEnvVector,
}
_VECTORIZATIONS = ("auto", "sync", "async", "vector_entry_point", *_OTHERS)


def make_vec(
    env_id: str,
    n_envs: int = 8,
    vectorization: str = "auto",
    max_episode_steps: int | None = None,
    env_kwargs: dict | None = None,
    wrappers: Sequence[Callable[[gym.Env], Any]] = (),
    action_masks: bool = False,
) -> VectorEnv:
    """Makes `n_envs` copies of an environment that step together.

    `"sync"` steps them one after the other in this process, `"async"` in one process
    each (worth it from about 1 ms per step), `"vector_entry_point"` uses the
    environment's own vector version, several times faster where there is one. `"auto"`
    takes the last where it exists, else `"sync"`. `"envpool"` steps environments of
    EnvPool in C++ threads, see `EnvPoolVector`; `"pettingzoo"` steps environments with
    several agents, one row each, see `ParallelEnvVector`. All but
    `"vector_entry_point"` never reset automatically (`AutoresetMode.DISABLED`), so that
    `step` always returns the true last observation of an episode.

    The processes of `"async"` are spawned: they import the main script anew, which
    must therefore do its work under `if __name__ == "__main__":`. They ignore Ctrl-C
    and SIGTERM, which terminals and schedulers send to them too: the main process ends
    them, and they end when it does.

    Args:
        env_id: a registered Gymnasium id such as `"CartPole-v1"`, after the module that
            registers it and a colon, as in `"ale_py:ALE/Pong-v5"`, if one is needed.
            For `"envpool"` its name in EnvPool; for `"pettingzoo"` a name registered
            there, such as `"classic/rps-v2"`, or a module with a function
            `parallel_env`, such as `"mpe2.simple_spread_v3"`.
        n_envs: number of copies, at least 1; for `"pettingzoo"` the number of agents in
            all copies together.
        vectorization: one of `"auto"`, `"sync"`, `"async"`, `"vector_entry_point"`,
            `"envpool"`, `"pettingzoo"`.
        max_episode_steps: time limit instead of the registered one.
        env_kwargs: keyword arguments of the environment; for the last two those of
            their vectors.
        wrappers: around each copy, the innermost first: functions of an environment
            such as `functools.partial(PartialObservation, indices=[0, 2])`; around one
            of several agents such as SuperSuit's. `"vector_entry_point"` and
            `"envpool"` accept none.
        action_masks: show what the environment allows, see `ActionMasks`.

    Returns:
        The vector environment, not yet reset. Its `remake` is a function of `n_envs`
        that makes such environments again, also in other processes.

    Raises:
        TypeError: if a count is no int, `env_id` no text or `env_kwargs` no dict.
        ValueError: if an argument is invalid, or the environment is unknown or cannot
            be made here.
        ConnectionError: if a process of `"async"` ends before it has made its
            environment.

    Example:
        >>> envs = make_vec("CartPole-v1", n_envs=2, vectorization="sync")
        >>> envs.reset(seed=0)[0].shape
        (2, 4)
        >>> envs.close()
    """
    arguments.check_whole_number("make_vec", "n_envs", n_envs, low=1)
    arguments.check_one_of("make_vec", "vectorization", vectorization, _VECTORIZATIONS)
    check_type = arguments.check_type
    expected = "the id of an environment"
    if callable(env_id) or isinstance(env_id, gym.Env | VectorEnv):
        expected += ", by which `gymnasium.register(id, entry_point=...)` knows others"
    check_type("make_vec", "env_id", env_id, str, expected)
    check_type("make_vec", "env_kwargs", env_kwargs, dict | None, "a dict")
    check_type("make_vec", "wrappers", wrappers, list | tuple, "a list of functions")
    for each in wrappers:
        expected = "functions of an environment"
        check_type("make_vec", "wrappers", each, Callable, expected)
    check_type("make_vec", "action_masks", action_masks, bool, "a bool")
    kwargs = dict(env_kwargs or {})
    if max_episode_steps is not None:
        name = "max_episode_steps"
        arguments.check_whole_number("make_vec", name, max_episode_steps, low=1)
        if vectorization == "pettingzoo":
            raise ValueError(
                f"`make_vec`: `{name}` expected None for 'pettingzoo', whose "
                "environments have names of their own for it, such as `max_cycles`; "
                f"got {max_episode_steps}; give that in `env_kwargs`"
            )
        kwargs["max_episode_steps"] = max_episode_steps
    if wrappers and vectorization in ("vector_entry_point", "envpool"):
        raise ValueError(
            f"`make_vec`: `wrappers` expected none of {vectorization!r}, which has no "
            f"copies to wrap; got {wrappers!r:.80}; take 'sync', or wrappers of "
            "`gymnasium.vector` around what this returns"
        )
    envs: Any
    by_one = False
    if vectorization in _OTHERS:
        around = {"wrappers": wrappers} if wrappers else {}
        envs = _OTHERS[vectorization](env_id, n_envs, **around, **kwargs)
        known = kwargs
    else:
        spec = _spec(env_id)
        if vectorization == "auto":
            own = spec.vector_entry_point is not None and not wrappers
            vectorization = "vector_entry_point" if own else "sync"
        by_one = action_masks and vectorization != "vector_entry_point"
        wrapped_by = [*wrappers, *([masks.ActionMasks] if by_one else [])]
        envs = _of_gymnasium(env_id, n_envs, vectorization, wrapped_by, kwargs)
        # With what the environment is registered with.
        made_with = envs.unwrapped.spec.kwargs
        known = {name: x for name, x in made_with.items() if name not in _OWN}
    others: dict = {"wrappers": [*wrappers]} if wrappers else {}
    if action_masks:
        others["action_masks"] = True
        envs = envs if by_one else masks.VectorActionMasks(envs)
    envs.remake = functools.partial(
        make_vec,
        env_id=env_id,
        vectorization=vectorization,
        max_episode_steps=known.pop("max_episode_steps", None),
        env_kwargs=known or None,
        **others,
    )
    return envs


def _of_gymnasium(
    env_id: str,
    n_envs: int,
    vectorization: str,
    wrappers: Sequence[Callable[[gym.Env], Any]],
    kwargs: dict,
) -> VectorEnv:
    vector_kwargs: dict = {}
    if vectorization in ("sync", "async"):
        vector_kwargs["autoreset_mode"] = AutoresetMode.DISABLED
    if vectorization == "async":
        # Forking a process in which TensorFlow runs its threads can deadlock.
        vector_kwargs |= {"context": "spawn", "worker": _InAProcess()}
    try:
        return gym.make_vec(
            env_id,
            num_envs=n_envs,
            vectorization_mode=vectorization,
            vector_kwargs=vector_kwargs,
            wrappers=wrappers or None,
            **kwargs,
        )
    except (gym.error.Error, ImportError, TypeError) as error:
        raise ValueError(
            f"`make_vec`: `env_id` {env_id!r} expected to be makeable with "
            f"vectorization={vectorization!r} and env_kwargs={kwargs}; got: {error}"
            f"{_extra(error)}"
        ) from error
    except (ConnectionError, EOFError) as error:
        raise ConnectionError(
            f"`make_vec`: `vectorization` expected processes of {vectorization!r} that "
            "make their environments; got the end of one, whose traceback is above; if "
            "that is of the main script, its work is to be done under `if __name__ == "
            '"__main__":`, as each process imports it'
        ) from error


class _InAProcess:
    """Does what Gymnasium's processes do, until the one that started them ends them.

    A terminal sends Ctrl-C to all, and what ends a job SIGTERM; a run ends the current
    epoch first. So whoever ends one by `terminate`, as `close(terminate=True)` does,
    and Python at its end, kills it.
    """

    def __call__(self, *given: Any) -> None:
        for number in (signal.SIGINT, *end_signals.hangups()):
            signal.signal(number, signal.SIG_IGN)
        # A handler, unlike SIG_IGN, is not handed on to what an environment starts.
        signal.signal(signal.SIGTERM, _ignore)
        try:
            async_vector_env._async_worker(*given)
        except BrokenPipeError:
            starter = multiprocessing.parent_process()
            if starter is None or starter.is_alive():  # else nobody is there to tell
                raise

    def __getstate__(self) -> dict[str, Any]:
        started: Any = context.get_spawning_popen()
        if started is not None:  # it is pickled for its start
            started.terminate = started.kill
        return {}


def _ignore(*_: Any) -> None:
    pass


def _spec(env_id: str) -> EnvSpec:
    module, _, name = env_id.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        return gym.spec(name)
    except (gym.error.Error, ImportError) as error:
        raise ValueError(
            "`make_vec`: `env_id` expected a registered Gymnasium environment, or the "
            f"module that registers it before a colon; got {env_id!r}: {error}"
            f"{_extra(error) or _place(module, error)}"
        ) from error


def _place(module: str, error: Exception) -> str:
    """Says where a module may lie, if it is the one that was not found."""
    if f"{module}.".startswith(f"{getattr(error, 'name', None)}."):
        return "; put the folder of that module on PYTHONPATH, or work in it"
    return ""


def _extra(error: Exception) -> str:
    """Names the extra of tfrl that brings what an environment lacks, if one does."""
    if getattr(error, "name", None) == "ale_py":
        return "; the extra `tfrl[atari]` brings it"
    told = {
        "gymnasium[mujoco]": "the extra `tfrl[mujoco]` brings it",
        "gymnasium[box2d]": "the extra `tfrl[box2d]` brings it",
        # Of `AtariPreprocessing`.
        "opencv-python package not": "the extra `tfrl[atari]` brings it",
        "Namespace ALE not": "write ale_py:ALE/..., with the extra `tfrl[atari]`",
    }
    return "".join(f"; {x}" for words, x in told.items() if words in str(error))
