"""Compiled environments as Gymnasium vectors, for everything else that plays."""

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from tfrl._internal import checks, gym_checks
from tfrl.core import compile
from tfrl.environments import _drawn_env
from tfrl.environments.compiled import _names, compiled_check, protocol
from tfrl.environments.compiled import wrappers as wrapping


class CompiledVectorEnv(VectorEnv):
    """Copies of a compiled environment as a Gymnasium vector; see `as_vector_env`.

    Where `AutoReset` is part of the environment, episodes follow each other within a
    step (`AutoresetMode.SAME_STEP`, with the true last observations in
    `info["final_obs"]`), else the caller resets (`AutoresetMode.DISABLED`), copy by
    copy with `reset(options={"reset_mask": ended})`.

    All changing state is in arrays, captured and restored by
    `tfrl.environments.capture` and `restore`.

    Args:
        env: the environment.
        n_envs: number of copies, at least 1.
        seed: of all randomness, until `reset` is given another.
        render_mode: "rgb_array" to draw, or None.

    Attributes:
        compiled: the environment, for playing it inside a graph.

    Example:
        >>> from tfrl.environments import compiled
        >>> envs = CompiledVectorEnv(compiled.TimeLimit(compiled.CartPole(), 2), 3)
        >>> envs.reset(seed=0)[0].shape, envs.step(np.array([0, 1, 0]))[1].tolist()
        ((3, 4), [1.0, 1.0, 1.0])
        >>> envs.step(np.array([0, 1, 0]))[3].tolist()
        [True, True, True]
    """

    def __init__(
        self,
        env: protocol.CompiledEnv,
        n_envs: int,
        seed: int = 0,
        render_mode: str | None = None,
    ) -> None:
        where = "as_vector_env"
        compiled_check.check_compiled(env, n_steps=0)
        checks.check_one_of(where, "render_mode", render_mode, (None, "rgb_array"))
        inner = wrapping.layers(env)[-1]
        draws = type(inner).frame is not protocol.CompiledEnv.frame
        if render_mode is not None and not draws:
            raise ValueError(
                f"`{where}`: `render_mode` expected None, as {type(inner).__name__} "
                f"draws no pictures; got {render_mode!r}; give it a `frame`"
            )
        self.num_envs = checks.check_whole_number(where, "n_envs", n_envs, low=1)
        self.compiled, self.render_mode = env, render_mode
        self._resets = wrapping.resets_itself(env)
        self.metadata = {
            **inner.metadata,
            "autoreset_mode": AutoresetMode.SAME_STEP
            if self._resets
            else AutoresetMode.DISABLED,
            "render_modes": ["rgb_array"] if draws else [],
        }
        self.single_observation_space = env.observation_space
        self.single_action_space = env.action_space
        self.observation_space = batch_space(env.observation_space, n_envs)
        self.action_space = batch_space(env.action_space, n_envs)
        # Functions and plain arrays alone, so that a snapshot has everything.
        functions = _functions_of(env, self.num_envs)
        self._begin, self._begin_anew, self._play, *functions = functions
        self._pack, self._pack_seen = functions
        self._state: list[np.ndarray] = []
        self._seen: list[np.ndarray] = []
        self._seed_anew(seed)

    def _seed_anew(self, seed: Any) -> None:
        try:
            self._seed = seed_before_reset(seed)
        except (TypeError, ValueError) as error:
            raise ValueError(
                "`CompiledVectorEnv.reset`: `seed` expected an int from 0 on, or a "
                f"list of them; got {checks.shown(seed)}"
            ) from error

    def _next_seed(self) -> np.ndarray:
        self._seed[1] += 1
        return self._seed

    @property
    def state(self) -> Any:
        """State of all copies, nest of `[N, ...]` of NumPy arrays; may be set.

        Raises:
            ValueError: before the first `reset`, and if what is set has another form.
        """
        self._check_begun("state")
        return self._pack(self._state)

    @state.setter
    def state(self, state: Any) -> None:
        self._check_begun("state")
        leaves = [np.array(x) for x in tf.nest.flatten(state)]
        forms = [[(x.shape, x.dtype) for x in nest] for nest in (self._state, leaves)]
        if forms[0] != forms[1]:
            raise ValueError(
                "`CompiledVectorEnv`: `state` expected arrays of the shapes and dtypes "
                f"of before, {forms[0]}; got {forms[1]}"
            )
        self._state = leaves

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode in every copy, or in those that a mask chooses.

        Args:
            seed: of all randomness from now on, an int or a list of them; None
                continues.
            options: `"reset_mask"`, `[N]` bool, where episodes begin anew; for
                environments that do not reset themselves.

        Returns:
            Observations of all copies, nest of `[N, *shape]`, and an empty dict.

        Raises:
            ValueError: if an argument is invalid.
        """
        if seed is not None:
            self._seed_anew(seed)
        mask = (options or {}).get("reset_mask")
        if mask is None:
            self._state, self._seen = self._begin(self._next_seed())
            return self._shown(), {}
        mask = np.asarray(mask)
        if self._resets or mask.shape != (self.num_envs,) or mask.dtype != bool:
            expected = f"{self.num_envs} bools"
            expected = "none, of copies in AutoReset" if self._resets else expected
            raise ValueError(
                "`CompiledVectorEnv.reset`: `options` expected a reset_mask of "
                f"{expected}; got {checks.shown(mask)}"
            )
        self._check_begun("reset_mask")
        self._state, self._seen = self._begin_anew(
            mask, self._state, self._seen, self._next_seed()
        )
        return self._shown(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps every copy.

        Args:
            actions: nest of `[N, *shape]`.

        Returns:
            Observations, rewards, terminated, truncated and info, as in `VectorEnv`.

        Raises:
            ValueError: if the actions do not fit the space, or before a `reset`.
        """
        self._check_begun("step")
        self._state, self._seen, last, rewards, terminated, truncated = self._play(
            self._state, self._checked(actions), self._next_seed()
        )
        info: dict[str, Any] = {}
        ended = terminated | truncated
        if self._resets and ended.any():
            nest = self._pack_seen(last)
            rows = np.full(self.num_envs, None, object)
            for i in np.flatnonzero(ended):
                rows[i] = gym_checks.mapped(operator.itemgetter(i), nest)
            info = {"final_obs": rows, "_final_obs": ended}
        return self._shown(), rewards, terminated, truncated, info

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Returns a picture of each copy, `[height, width, 3]` uint8, if it renders."""
        if self.render_mode is None:
            return None
        self._check_begun("render")
        state = self._state
        return tuple(
            self.compiled.frame(self._pack([x[i] for x in state]))
            for i in range(self.num_envs)
        )

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Returns the rewards of goals, `[n]`; see `CompiledEnv.compute_reward`.

        Args:
            achieved_goal: `[n, *goal_shape]`.
            desired_goal: `[n, *goal_shape]`.
            info: ignored.
        """
        del info
        given = map(tf.convert_to_tensor, (achieved_goal, desired_goal))
        return np.asarray(self.compiled.compute_reward(*given))

    def drawable(self) -> gym.Env:
        """Returns one such environment that draws to arrays."""
        return _drawn_env.DrawnEnv(CompiledVectorEnv(self.compiled, 1, 0, "rgb_array"))

    def _shown(self) -> Any:
        return self._pack_seen(self._seen)

    def _check_begun(self, what: str) -> None:
        if not self._seen:
            raise ValueError(
                f"`CompiledVectorEnv`: `{what}` expected a reset before; got none"
            )

    def _checked(self, actions: Any) -> Any:
        """Actions as arrays of the dtypes of their space."""
        space = self.action_space
        given = gym_checks.mapped(np.asarray, actions)
        fault = gym_checks.misfit(space, given, form_only=True)
        if fault is None:
            given = _cast(space, given)
            fault = _outside(self.single_action_space, given)
        if fault is not None:
            raise ValueError(
                f"`CompiledVectorEnv.step`: `actions`{fault.place} expected "
                f"{fault.expected}; got {fault.got}"
            )
        return given


def seed_before_reset(seed: Any) -> np.ndarray:
    """Returns int32 `[2]`, from which a vector counts up: 1 resets, steps go on from 2.

    Args:
        seed: as `CompiledVectorEnv.reset` takes it.
    """
    words = np.random.SeedSequence(seed).generate_state(1)
    return np.array([words.view(np.int32)[0], 0], np.int32)


def as_vector_env(
    env: protocol.CompiledEnv,
    n_envs: int,
    seed: int = 0,
    render_mode: str | None = None,
) -> CompiledVectorEnv:
    """Makes copies of a compiled environment a Gymnasium vector environment.

    All copies step in one call of a compiled function; NumPy arrays go in and come out.
    So `Trainer`, `evaluate`, videos and everything else for Gymnasium can play it.

    Args:
        env: the environment, preferably in `AutoReset`; see `CompiledVectorEnv`.
        n_envs: number of copies, at least 1.
        seed: of all randomness, until `reset` is given another.
        render_mode: "rgb_array" to draw by `env.frame`, or None.

    Returns:
        The vector, not yet reset. Its `compiled` is `env`, its `state` that of all
        copies.

    Raises:
        TypeError: if `env` is no `CompiledEnv`, or a number of another kind.
        ValueError: if `check_compiled` finds a fault without playing it, or an argument
            is invalid.

    Example:
        >>> from tfrl.environments import compiled
        >>> limited = compiled.TimeLimit(compiled.CartPole(), 500)
        >>> envs = as_vector_env(compiled.AutoReset(limited), 4)
        >>> envs.reset(seed=0)[0].shape, envs.metadata["autoreset_mode"].name
        ((4, 4), 'SAME_STEP')
    """
    return CompiledVectorEnv(env, n_envs, seed, render_mode)


def make_compiled(
    env_id: str | Callable[..., protocol.CompiledEnv],
    n_envs: int = 8,
    max_episode_steps: int | None = None,
    env_kwargs: dict | None = None,
    wrappers: Sequence[Callable[[protocol.CompiledEnv], protocol.CompiledEnv]] = (),
) -> CompiledVectorEnv:
    """Makes `n_envs` copies of a compiled environment by its name, as `make_vec` does.

    They are put in a `TimeLimit` as registered, then in `wrappers`, and in `AutoReset`
    if no wrapper is one.

    Args:
        env_id: a name such as "CartPole-v1" (an error for an unknown one lists all),
            one of a JAX library such as "gymnax/Breakout-MinAtar", "brax/ant" or
            "playground/CartpoleBalance", or what makes an environment: a class or
            function, itself or by the module that has it, as "my_envs:Walk". In gin
            files it is that text, or `@Walk` after
            `tfrl.configuring.register({"Walk": Walk})` in a module that they import.
        n_envs: number of copies, at least 1.
        max_episode_steps: time limit instead of the registered one; an environment
            given as a function has no other.
        env_kwargs: keyword arguments of the environment; for MuJoCo Playground, changes
            to its configuration.
        wrappers: around it, the innermost first: functions of an environment such as
            `functools.partial(FrameStack, n=4)`. Those that belong around `AutoReset`
            follow it: `[AutoReset, EpisodeStatistics]`.

    Returns:
        The vector environment, not yet reset. Its `remake` is a function of `n_envs`
        that makes such environments again, also in other processes.

    Raises:
        TypeError: if an argument is of another kind.
        ImportError: if the library of the name is missing.
        ValueError: if the name is unknown, or the environment cannot be made.

    Example:
        >>> envs = make_compiled("CartPole-v1", n_envs=2)
        >>> envs.reset(seed=0)[0].shape
        (2, 4)
    """
    where = "make_compiled"
    check_type = checks.check_type
    check_type(where, "env_kwargs", env_kwargs, dict | None, "a dict")
    check_type(where, "wrappers", wrappers, list | tuple, "a list of functions")
    expected = "the name of an environment, or a class or function that makes one"
    check_type(where, "env_id", env_id, str | Callable, expected)
    try:
        env, registered = _names.made(where, env_id, env_kwargs or {})
    except TypeError as error:
        raise ValueError(
            f"`{where}`: `env_id` {checks.shown(env_id)} expected to be made with "
            f"env_kwargs={env_kwargs}; got: {error}"
        ) from error
    limit = registered if max_episode_steps is None else max_episode_steps
    if limit is not None:
        checks.check_whole_number(where, "max_episode_steps", limit, low=1)
        env = wrapping.TimeLimit(env, limit)
    for wrap in wrappers:
        check_type(where, "wrappers", wrap, Callable, "functions of an environment")
        env = _wrapped(where, env, wrap)
    if not wrapping.resets_itself(env):
        env = wrapping.AutoReset(env)
    envs = CompiledVectorEnv(env, n_envs)
    others: dict[str, Any] = {"wrappers": [*wrappers]} if wrappers else {}
    envs.remake = functools.partial(
        make_compiled,
        env_id=env_id,
        max_episode_steps=max_episode_steps,
        env_kwargs=env_kwargs or None,
        **others,
    )
    return envs


def _wrapped(where: str, env: protocol.CompiledEnv, wrap: Any) -> Any:
    try:
        return wrap(env)
    except TypeError as error:
        if _takes(wrap, env):  # What it says of itself is its own affair.
            raise
        raise TypeError(
            f"`{where}`: `wrappers` expected functions of an environment alone; got "
            f"{checks.shown(wrap)}: {error}; give it its other arguments by "
            "`functools.partial`"
        ) from error


def _takes(function: Any, *args: Any) -> bool:
    try:
        inspect.signature(function).bind(*args)
    except (TypeError, ValueError):
        return False
    return True


def _functions_of(env: protocol.CompiledEnv, n: int) -> list[Callable[..., Any]]:
    """What begins, begins anew and steps; what packs states and observations."""

    def begin(seed: Any) -> Any:
        return [*map(tf.nest.flatten, env.reset(seed, n))]

    def begin_anew(mask: Any, state: Any, seen: Any, seed: Any) -> Any:
        return wrapping.chosen(mask, begin(seed), [state, seen])

    def step(state: Any, actions: Any, seed: Any) -> Any:
        packed = tf.nest.pack_sequence_as(form[0], state)
        made = env.step(packed, actions, env.draw(seed, [n]))
        nests = made.state, made.observations, made.final_observations
        ends = made.terminated, made.truncated
        return *map(tf.nest.flatten, nests), made.rewards, *ends

    traced = tf.function(lambda: env.reset(0, n), autograph=False)
    form = traced.get_concrete_function().structured_outputs
    jitted = [compile.jit(x, differentiable=False) for x in (begin, begin_anew, step)]
    calls: list[Any] = [functools.partial(_in_numpy, x) for x in jitted]
    return calls + [functools.partial(tf.nest.pack_sequence_as, x) for x in form]


def _in_numpy(function: Callable[..., Any], *args: Any) -> Any:
    return tf.nest.map_structure(lambda x: x.numpy(), function(*args))


def _cast(space: gym.Space, actions: Any) -> Any:
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        return tf.nest.map_structure(
            lambda x, part: np.asarray(x, part.dtype), actions, _parts(space)
        )
    return np.asarray(actions, space.dtype)


def _outside(space: gym.Space, actions: Any) -> Any:
    """The first action `[N, ...]` that is none of a space, or None."""
    for part, values in zip(
        tf.nest.flatten(_parts(space)), tf.nest.flatten(actions), strict=True
    ):
        wrong = gym_checks.outside(part, values)
        if wrong is None and values.dtype.kind == "f":
            wrong = ~np.isfinite(values)
        if wrong is not None and wrong.any():
            got = str(values[np.unravel_index(np.argmax(wrong), wrong.shape)])
            return gym_checks.Misfit("bounds", "", f"elements of {part}", got)
    return None


def _parts(space: gym.Space) -> Any:
    """A nest of spaces without parts."""
    if isinstance(space, gym.spaces.Dict):
        return {key: _parts(space[key]) for key in space.spaces}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(map(_parts, space.spaces))
    return space
