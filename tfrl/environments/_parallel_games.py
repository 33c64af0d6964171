"""Parallel environments of PettingZoo: found by name, made and wrapped."""

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfrl._internal import arguments, gym_checks

WHERE = "ParallelEnvVector"
_MASK = gym_checks.MASK
_NEEDED = ("possible_agents", "observation_space", "action_space", "reset", "step")


def maker(
    env: Any, wrappers: Sequence[Callable[[Any], Any]], options: dict[str, Any]
) -> Callable[[], Any]:
    """Returns what makes one copy after the other.

    Args:
        env: a function that makes an environment, or a text that names one.
        wrappers: around each, the innermost first.
        options: of the function.
    """
    make = _named(env) if isinstance(env, str) else env
    return functools.partial(_made, env, make, wrappers, options)


def passing(env: Any, shown: dict[Any, Any]) -> dict[Any, Any]:
    """Lets agents pass that are not on turn: their masks allow nothing.

    They get to choose the first option of each choice, and nothing else, so that it
    makes no difference what they do, and their steps are like any others: rewards and
    ends that come by the moves of others are theirs.

    Args:
        env: whose agents they are.
        shown: observations, or infos, by agent.

    Returns:
        The same, with the masks of those.

    Raises:
        ValueError: if nobody is on turn.
    """
    idle = [
        name
        for name, part in shown.items()
        if type(part) is dict and _MASK in part and not np.count_nonzero(part[_MASK])
    ]
    if not idle:
        return shown
    waits = {}
    for name in idle:
        mask = np.asarray(shown[name][_MASK])
        counts = gym_checks.option_counts(env.action_space(name))
        first = [np.arange(n) == 0 for n in counts]
        if mask.shape == (sum(counts),):  # else it is none of what there is to choose
            own = np.concatenate(first).astype(mask.dtype)
            waits[name] = {**shown[name], _MASK: own}
    if env.agents and all(name in waits for name in env.agents):
        raise ValueError(
            f"`{WHERE}`: `env` expected an {_MASK} that allows something to an agent; "
            f"got none: nobody of {env.agents} is on turn"
        )
    return {**shown, **waits}


def _named(env: str) -> Callable[..., Any]:
    """Returns the function that a text names."""
    if "/" in env:
        library = arguments.imported(WHERE, "pettingzoo", "PettingZoo", "multi_agent")
        # Games by turns are registered as such alone.
        kinds = dict.fromkeys(library.aec_registry, "aec")
        kinds |= dict.fromkeys(library.parallel_registry, "parallel")
        listed = "`pettingzoo.parallel_registry` or `pettingzoo.aec_registry`"
        arguments.check_listed(WHERE, "env", env, kinds, listed)
        return functools.partial(library.make, kinds[env], env)
    module, _, name = env.partition(":")
    try:
        return getattr(importlib.import_module(module), name or "parallel_env")
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"`{WHERE}`: `env` expected an id of PettingZoo such as 'classic/rps-v2', "
            "or a module with a function `parallel_env`, or with another after a "
            f"colon; got {env!r}: {error}"
        ) from error


def _made(env: Any, make: Any, wrappers: Any, options: dict[str, Any]) -> Any:
    """Returns one copy, wrapped."""
    try:
        made = make(**options)
        for wrap in wrappers:
            made = wrap(made)
    except (TypeError, ImportError) as error:
        raise ValueError(
            f"`{WHERE}`: `env` {env!r:.80} expected to be makeable with {options}; "
            f"got: {error}"
        ) from error
    if hasattr(made, "agent_iter"):
        made = _of_turns(made)
    missing = [name for name in _NEEDED if not hasattr(made, name)]
    if missing:
        raise TypeError(
            f"`{WHERE}`: `env` expected to make a pettingzoo.ParallelEnv; got "
            f"{made!r:.80} without {missing}"
        )
    return made


def _of_turns(env: Any) -> Any:
    """Returns a game by turns as a parallel environment, a step of which is a turn."""
    if env.metadata.get("is_parallelizable"):
        raise TypeError(
            f"`{WHERE}`: `env` expected a parallel environment, as its agents act at "
            f"once; got {env}, in which they do one after the other (AEC); take its "
            "`parallel_env`, or `pettingzoo.utils.aec_to_parallel`"
        )
    library = arguments.imported(WHERE, "pettingzoo.utils", "PettingZoo", "multi_agent")
    game = library.turn_based_aec_to_parallel(env)
    game.step = functools.partial(_turn, game, game.step)
    return game


def _turn(game: Any, step: Callable[[Any], tuple], actions: Any) -> tuple:
    """A turn, after which all see who is on turn then.

    PettingZoo asks for observations before those that ended leave the game.
    """
    seen, rewards, terminations, truncations, infos = step(actions)
    if any(terminations.values()) or any(truncations.values()):
        seen |= {name: game.aec_env.observe(name) for name in game.agents}
    return seen, rewards, terminations, truncations, infos
