"""Vectors of PettingZoo's parallel environments, a row for each agent."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import (
    batch_space,
    concatenate,
    create_empty_array,
    iterate,
)

from tfrl._internal import arguments, gym_checks
from tfrl.environments import _parallel_games

_WHERE = _parallel_games.WHERE


class ParallelEnvVector(VectorEnv):
    """Copies of an environment with several agents, a row for each agent of each copy.

    With K agents, row `k + K * i` is agent `env.possible_agents[k]` in copy i: a
    trainer for Gymnasium vectors trains one policy that all agents share.

    Nothing resets automatically (`AutoresetMode.DISABLED`): for an agent that ends,
    `step` returns its true last observation. A copy begins anew with
    `reset(options={"reset_mask": ended})` once none of its agents plays any more. The
    rows of agents that ended while others play on, and of those that have not joined
    yet, are `waiting`: they show zeros, their actions are ignored, and nothing is
    learned from them.

    Turn-based games (AEC) are played one turn per step. An agent whose mask allows
    nothing is not on turn: its row plays on with a mask that allows only the first
    option of each choice, which the game ignores. Rewards that others' moves bring it
    belong to that step. Without masks such a row may do anything.

    An agent that never joins has no episode, so that an evaluation, which counts
    episodes of every row, would not end.

    Args:
        env: a name registered in PettingZoo, such as "classic/rps-v2"; or a module in
            which `parallel_env` is called, such as "mpe2.simple_spread_v3", or another
            function that is named after a colon; or that function itself. It makes one
            `pettingzoo.ParallelEnv`, or any object with its methods, or a turn-based
            game, a `pettingzoo.AECEnv`.
        n_envs: number of rows N, a multiple of K.
        wrappers: around each copy as `env` makes it, the innermost first: functions of
            the environment.
        own_spaces: for agents with unequal spaces: observations and actions of a row
            are a Dict with a part for each agent, of which the part of the row's agent
            counts; see `tfrl.agents.Independent`.
        **options: of the function, such as `max_cycles`.

    Attributes:
        agents: names of the K agents.

    Raises:
        ImportError: without PettingZoo, for a name registered there.
        TypeError: if an argument is of another type, or `env` makes no parallel
            environment.
        ValueError: if `env` cannot be made, N is no multiple of K, or agents have
            unequal spaces without `own_spaces`; by `step` and `reset`, if the
            environment returns what it should not.

    Example:
        >>> envs = ParallelEnvVector(tfrl.environments.MatrixGame, 4)
        >>> seen, _ = envs.reset(seed=0)
        >>> envs.step(np.array([0, 1, 0, 2]))[1].tolist()
        [-1.0, 1.0, 1.0, -1.0]
    """

    def __init__(
        self,
        env: str | Callable[..., Any],
        n_envs: int,
        *,
        wrappers: Sequence[Callable[[Any], Any]] = (),
        own_spaces: bool = False,
        **options: Any,
    ) -> None:
        expected = "a function that makes an environment, or the name of its module"
        arguments.check_type(_WHERE, "env", env, str | Callable, expected)
        self.num_envs = arguments.check_whole_number(_WHERE, "n_envs", n_envs, low=1)
        arguments.check_type(_WHERE, "own_spaces", own_spaces, bool, "a bool")
        make = _parallel_games.maker(env, wrappers, options)
        first = make()
        names = list(first.possible_agents)
        self.agents, self._names = tuple(map(str, names)), names
        if not names or n_envs % len(names):
            least = max(len(names), 1)
            near = -(-n_envs // least) * least
            raise ValueError(
                f"`{_WHERE}`: `n_envs` expected a multiple of {len(names)}, a row for "
                f"each of {self.agents}, also in `Intervals.eval_episodes`; got "
                f"{n_envs}; take {near}"
            )
        found = [(first.observation_space(x), first.action_space(x)) for x in names]
        self._has_own = own_spaces
        seen, acted = self._spaces(found)
        self.single_observation_space, self.single_action_space = seen, acted
        self.observation_space = batch_space(seen, self.num_envs)
        self.action_space = batch_space(acted, self.num_envs)
        others = range(n_envs // len(names) - 1)
        copies = [first, *(make() for _ in others)]
        self._games = [_Game(each) for each in copies]
        self.render_mode = getattr(first, "render_mode", None)
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED, "render_modes": []}
        self._absent = _zeros(seen)
        self._shown: list[Any] = [self._absent] * n_envs
        self._plays, self._has_ended = np.zeros((2, n_envs), bool)
        self._has_begun = False

    def _spaces(self, found: list[tuple[Any, Any]]) -> tuple[spaces.Space, ...]:
        """What rows see and do."""
        if self._has_own:
            both = zip(*found, strict=True)
            pairs = [list(zip(self.agents, part, strict=True)) for part in both]
            return tuple(map(spaces.Dict, pairs))
        for name, pair in zip(self.agents, found, strict=True):
            if pair != found[0]:
                raise ValueError(
                    f"`{_WHERE}`: `env` expected agents of equal spaces, to share a "
                    f"policy; got {found[0]} of {self.agents[0]!r}, {pair} of "
                    f"{name!r}; make the spaces equal by wrappers, or take "
                    "`own_spaces=True` and a policy for each"
                )
        return found[0]

    @property
    def waiting(self) -> np.ndarray:
        """Rows whose agent is not playing, `[N]` bool."""
        return ~self._plays

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins all copies anew, or those whose playing agents a mask covers.

        Args:
            seed: of all chance from now on: an int, with which copy i has seed + i;
                None continues.
            options: `"reset_mask"`, `[N]` bool, rows whose agents are to begin anew: a
                copy does if it covers every agent that plays. Other options are passed
                to the copies.

        Returns:
            Observations of all rows, `[N, *shape]`, and the agents' infos.

        Raises:
            ValueError: if an argument is invalid, or a copy returns what it should not.
        """
        rest = dict(options or {})
        mask = rest.pop("reset_mask", None)
        chosen = np.ones(self.num_envs, bool) if mask is None else np.asarray(mask)
        fits = chosen.shape == (self.num_envs,) and chosen.dtype == bool
        if not fits or (mask is not None and (seed is not None or not self._has_begun)):
            raise ValueError(
                f"`{_WHERE}.reset`: `options` expected a reset_mask of {self.num_envs} "
                "bools, after a reset of all, and no seed; got "
                f"{arguments.shown(mask)}, seed={seed}"
            )
        if seed is not None:
            where = f"{_WHERE}.reset"
            seed = arguments.check_whole_number(where, "seed", seed, low=0)
        infos: dict[str, Any] = {}
        self._forget()
        shape = -1, len(self.agents)
        asked, plays = chosen.reshape(shape), self._plays.reshape(shape)
        begins = asked.any(1) & ~(plays & ~asked).any(1)
        for i in np.flatnonzero(begins).tolist():
            rows = self._rows(i)
            if self._is_awaited(i) and not asked[i].all():
                continue
            self._plays[rows] = self._has_ended[rows] = False
            seen, told = self._games[i].reset(
                seed=None if seed is None else seed + i, options=rest or None
            )
            self._check_new(i, self._names)
            self._join(i, seen, told, infos)
        self._has_begun = True
        return self._seen(), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps every copy.

        Args:
            actions: `[N, *shape]`.

        Returns:
            Observations, rewards, terminated, truncated and info, as in `VectorEnv`.

        Raises:
            ValueError: if a copy has ended and was not reset, or returns what it should
                not.
        """
        given = self._given(actions)
        rewards = np.zeros(self.num_envs)
        ends = np.zeros((2, self.num_envs), bool)
        infos: dict[str, Any] = {}
        self._forget()
        outcomes = []
        for i, game in enumerate(self._games):
            acting = [row for row in self._rows(i) if self._plays[row]]
            if not acting and (not self._has_begun or not game.env.agents):
                raise ValueError(
                    f"`{_WHERE}.step`: `actions` expected copies that were begun by "
                    f"`reset`, with agents that play; got none in copy {i}"
                )
            names = {row: self._name(row) for row in acting}
            chosen = {names[row]: self._action(row, given[row]) for row in acting}
            before = [*game.env.agents]
            seen, rewarded, terminated, truncated, told = game.step(chosen)
            self._check_new(i, before)
            outcomes.append((seen, told))
            for row, name in names.items():
                self._shown[row] = self._around(row, seen[name])
                numbers = rewarded[name], terminated[name], truncated[name]
                try:
                    rewards[row], ends[0, row], ends[1, row] = numbers
                except (TypeError, ValueError) as error:
                    raise ValueError(
                        f"`{_WHERE}`: `env` expected a reward that is a number, and "
                        f"two ends that are bools; got {numbers} of {name!r} of copy "
                        f"{i}"
                    ) from error
                self._add_info(infos, told.get(name, {}), row)
                is_over = terminated[name] or truncated[name]
                if not is_over and name not in game.env.agents:
                    raise ValueError(
                        f"`{_WHERE}`: `env` expected agents to be terminated or "
                        f"truncated where they leave; got {name!r} of copy {i} gone "
                        "without"
                    )
        self._has_ended |= ends.any(0)
        self._plays &= ~self._has_ended
        absent = (~self._plays & ~self._has_ended).reshape(-1, len(self.agents))
        for i in np.flatnonzero(absent.any(1)).tolist():
            self._join(i, *outcomes[i], infos)
        return self._seen(), rewards, ends[0], ends[1], infos

    def render(self) -> tuple[Any, ...] | None:
        """Returns a picture of each copy, if they render."""
        if self.render_mode is None:
            return None
        return tuple(game.env.render() for game in self._games)

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002
        """Closes the copies that can be closed."""
        for game in self._games:
            if hasattr(game.env, "close"):
                game.env.close()

    def _rows(self, i: int) -> list[int]:
        return [*range(i * len(self.agents), (i + 1) * len(self.agents))]

    def _name(self, row: int) -> Any:
        return self._names[row % len(self._names)]

    def _action(self, row: int, action: Any) -> Any:
        return action[self.agents[row % len(self.agents)]] if self._has_own else action

    def _given(self, actions: Any) -> list[Any]:
        """Actions by row."""
        arrays = gym_checks.mapped(np.asarray, actions)
        fault = gym_checks.misfit(self.action_space, arrays, form_only=True)
        if fault is not None and fault.kind != "dtype":  # whole floats are choices too
            raise ValueError(
                f"`{_WHERE}.step`: `actions{fault.place}` expected {fault.expected}; "
                f"got {fault.got}; return one for each row"
            )
        return list(iterate(self.action_space, arrays))

    def _check_new(self, i: int, known: Sequence[Any]) -> None:
        """Raises unless agents that came to a copy are its own, and never ended."""
        new = {*self._games[i].env.agents}.difference(known)
        if not new:
            return
        rows = self._rows(i)
        odd = new.difference(self._name(x) for x in rows if not self._has_ended[x])
        if odd:
            raise ValueError(
                f"`{_WHERE}`: `env` expected agents of `possible_agents`, "
                f"{self._names}, that do not come back where they ended; got "
                f"{sorted(odd, key=str)} in copy {i}"
            )

    def _around(self, row: int, seen: Any) -> Any:
        """What an agent sees, as its row shows it."""
        if not self._has_own:
            return seen
        return {**self._absent, self.agents[row % len(self.agents)]: seen}

    def _forget(self) -> None:
        """Lets rows show nothing of agents that do not play."""
        for row in np.flatnonzero(~self._plays).tolist():
            self._shown[row] = self._absent

    def _is_awaited(self, i: int) -> bool:
        """Whether an agent of a copy is there that has not been shown anything yet."""
        there = self._games[i].env.agents if self._has_begun else ()
        return any(
            self._name(row) in there
            for row in self._rows(i)
            if not self._plays[row] and not self._has_ended[row]
        )

    def _join(self, i: int, seen: Any, told: Any, infos: dict[str, Any]) -> None:
        """Lets agents play that are there and have not ended yet."""
        for row in self._rows(i):
            name = self._name(row)
            is_new = not (self._plays[row] or self._has_ended[row])
            if is_new and name in self._games[i].env.agents and name in seen:
                self._plays[row] = True
                self._shown[row] = self._around(row, seen[name])
                self._add_info(infos, told.get(name, {}), row)

    def _seen(self) -> Any:
        """What all rows show."""
        space = self.single_observation_space
        out = create_empty_array(space, self.num_envs)
        try:
            return concatenate(space, self._shown, out)
        except Exception as error:
            for row, seen in enumerate(self._shown):
                fault = gym_checks.misfit(space, seen, form_only=True)
                if fault is not None:
                    raise ValueError(
                        f"`{_WHERE}`: `env` expected observations{fault.place} to be "
                        f"{fault.expected}, as its space says; got {fault.got} from "
                        f"{self._name(row)!r} of copy {row // len(self.agents)}"
                    ) from error
            raise


class _Game(gym.Env):
    """One copy; an environment of Gymnasium, as snapshots look for such."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> Any:
        given = {} if options is None else {"options": options}
        return self._checked("reset", self.env.reset(seed=seed, **given), 2, ())

    def step(self, action: Any) -> Any:
        return self._checked("step", self.env.step(action), 5, action)

    def _checked(self, method: str, told: Any, count: int, names: Any) -> Any:
        """Raises unless a method returned so many dicts, all but the info's of all."""
        got = None
        is_tuple = isinstance(told, tuple) and len(told) == count
        if not is_tuple or not all(isinstance(part, dict) for part in told):
            got = gym_checks.described(told)
        elif any(name not in part for part in told[:-1] for name in names):
            got = f"{[list(part) for part in told[:-1]]} where {list(names)} act"
        if got is not None:
            raise ValueError(
                f"`{_WHERE}`: `env` expected `{method}` to return {count} dicts with "
                f"the names of all agents that act; got {got}"
            )
        passing = _parallel_games.passing
        seen, infos = passing(self.env, told[0]), passing(self.env, told[-1])
        return seen, *told[1:-1], infos


def _zeros(space: spaces.Space) -> Any:
    """Returns the element of a space that is nearest to zeros; masks allow all."""
    match space:
        case spaces.Dict():
            return {
                key: np.ones_like(_zeros(part))
                if key == gym_checks.MASK
                else _zeros(part)
                for key, part in space.spaces.items()
            }
        case spaces.Tuple():
            return tuple(map(_zeros, space.spaces))
        case spaces.Discrete():
            return space.start
        case spaces.MultiDiscrete():
            return np.array(space.start, space.dtype)
        case spaces.Box():
            return np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
        case spaces.MultiBinary():
            return np.zeros(space.shape, space.dtype)
    raise TypeError(
        f"`{_WHERE}`: `env` expected spaces that are Box, Discrete, MultiDiscrete, "
        f"MultiBinary, Dict or Tuple; got {space}"
    )
