"""Tasks of the DeepMind Control Suite as Gymnasium environments.

Each has a name for `make_vec` and `gym.make`, `"dmc/<domain>-<task>-v0"`, such as
`"dmc/cartpole-swingup-v0"`. Needs the extra `dmc` (`dm_control`, and a compatible
`mujoco` before 4).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from tfrl._internal import arguments

# Those of dm_control 1.0, which is not asked: importing it takes a second.
_TASKS = {
    "acrobot": "swingup swingup_sparse",
    "ball_in_cup": "catch",
    "cartpole": "balance balance_sparse swingup swingup_sparse two_poles three_poles",
    "cheetah": "run",
    "dog": "stand walk trot run fetch",
    "finger": "spin turn_easy turn_hard",
    "fish": "upright swim",
    "hopper": "stand hop",
    "humanoid": "stand walk run run_pure_state",
    "humanoid_CMU": "stand walk run",
    "lqr": "lqr_2_1 lqr_6_2",
    "manipulator": "bring_ball bring_peg insert_ball insert_peg",
    "pendulum": "swingup",
    "point_mass": "easy hard",
    "quadruped": "walk run escape fetch",
    "reacher": "easy hard",
    "stacker": "stack_2 stack_4",
    "swimmer": "swimmer6 swimmer15",
    "walker": "stand walk run",
}


def make_dmc(
    domain: str,
    task: str,
    seed: int = 0,
    max_episode_steps: int = 1000,
    height: int = 84,
    width: int = 84,
    camera_id: int = 0,
) -> gym.Env:
    """Makes an environment of a task of the DeepMind Control Suite.

    An episode that the task ends with discount 0 is `terminated`; one that runs out of
    time, the task's or `max_episode_steps`, is `truncated`.

    Args:
        domain: such as `"cartpole"`.
        task: such as `"swingup"`.
        seed: of the task, for resets that give none.
        max_episode_steps: time limit in steps. Most tasks have their own limit, 1000.
        height: of the frames that `render` returns, in pixels.
        width: of them, in pixels.
        camera_id: which camera takes them.

    Returns:
        An environment with render mode `"rgb_array"`. Its observations are those of
        the task side by side in one float32 vector, in the order of the task's
        `observation_spec`; its actions are the task's, a float32 Box.

    Raises:
        ImportError: if `dm_control` is missing or does not work with this `mujoco`.
        TypeError: if a number is no int.
        ValueError: if there is no such task, `seed` has more than 32 bits or is
            negative, or another number is not positive.

    Example:
        >>> env = make_dmc("cartpole", "swingup")  # doctest: +SKIP
        >>> env.observation_space.shape  # doctest: +SKIP
        (5,)

    References:
        Tunyasuvunakool et al., "dm_control: Software and tasks for continuous
        control", 2020.
    """
    frame, check = {"height": height, "width": width}, arguments.check_whole_number
    check("make_dmc", "seed", seed, 0, (1 << 32) - 1)
    for name, value in {"max_episode_steps": max_episode_steps, **frame}.items():
        check("make_dmc", name, value, 1, (1 << 31) - 1)
    task_kwargs = {"domain": domain, "task": task, "seed": seed}
    spec = gym.envs.registration.EnvSpec(
        id=f"dm_control/{domain}-{task}-v0",
        entry_point=f"{__name__}:ControlSuite",
        max_episode_steps=max_episode_steps,
        kwargs={**task_kwargs, **frame, "camera_id": camera_id},
    )
    return gym.make(spec, render_mode="rgb_array")


class ControlSuite(gym.Env):
    """A task of the DeepMind Control Suite; `make_dmc` adds the time limit.

    Args:
        domain: such as `"cartpole"`.
        task: such as `"swingup"`.
        seed: of the task.
        height: of rendered frames, in pixels.
        width: of them, in pixels.
        camera_id: which camera takes them.
        render_mode: `"rgb_array"`, or None for no frames.

    Attributes:
        dmc_env: the task's own environment.

    Raises:
        ImportError: if `dm_control` is missing or does not work with this `mujoco`.
        ValueError: if there is no such task or render mode.

    Example:
        >>> env = ControlSuite("cartpole", "swingup")  # doctest: +SKIP
        >>> env.action_space.shape  # doctest: +SKIP
        (1,)
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}

    def __init__(
        self,
        domain: str,
        task: str,
        seed: int = 0,
        height: int = 84,
        width: int = 84,
        camera_id: int = 0,
        render_mode: str | None = None,
    ) -> None:
        modes = (None, "rgb_array")
        arguments.check_one_of("ControlSuite", "render_mode", render_mode, modes)
        self.render_mode = render_mode
        self._task = (domain, task)
        self._frame = {"height": height, "width": width, "camera_id": camera_id}
        self.dmc_env = _loaded(domain, task, seed)
        self.action_space = _box([self.dmc_env.action_spec()])
        self.observation_space = _box([*self.dmc_env.observation_spec().values()])
        step_seconds = self.dmc_env.control_timestep()
        self.metadata = {**self.metadata, "render_fps": max(1, round(1 / step_seconds))}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins an episode; a seed recreates the task."""
        super().reset(seed=seed, options=options)
        if seed is not None:
            self.dmc_env.close()
            self.dmc_env = _loaded(*self._task, seed)
        return _flat(self.dmc_env.reset().observation), {}

    def step(
        self, action: np.ndarray
    ) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Acts; the info holds the task's own `discount`."""
        step = self.dmc_env.step(action)
        ended = bool(step.last())
        terminated = ended and step.discount == 0.0
        flags = terminated, ended and not terminated
        info = {"discount": step.discount}
        return _flat(step.observation), float(step.reward), *flags, info

    def render(self) -> np.ndarray | None:
        """Returns a frame, `[height, width, 3]` uint8."""
        if self.render_mode is None:
            return None
        return self.dmc_env.physics.render(**self._frame)

    def close(self) -> None:
        """Frees the simulation."""
        self.dmc_env.close()


def _register(domain: str, task: str) -> None:
    name = f"dmc/{domain}-{task}-v0"
    if name not in gym.registry:
        gym.register(
            name,
            entry_point=f"{__name__}:ControlSuite",
            max_episode_steps=1000,
            kwargs={"domain": domain, "task": task},
        )


for _domain, _tasks in _TASKS.items():
    for _task in _tasks.split():
        _register(_domain, _task)


def _loaded(domain: str, task: str, seed: int) -> Any:
    try:
        from dm_control import suite  # noqa: PLC0415
    except (ImportError, AttributeError, RuntimeError) as error:
        # With a mujoco it does not know it fails by an AttributeError.
        raise ImportError(
            "`make_dmc`: expected a `dm_control` that can be imported; got "
            f"{type(error).__name__}: {error}; run: pip install dm-control 'mujoco<4' "
            "(the extra `tfrl[dmc]`)"
        ) from error
    if (domain, task) not in suite.ALL_TASKS:
        domains = sorted({name for name, _ in suite.ALL_TASKS})
        tasks = sorted(name for of, name in suite.ALL_TASKS if of == domain)
        raise ValueError(
            "`make_dmc`: `domain` and `task` expected a task of the suite; got "
            f"{domain!r}, {task!r}; there are "
            + (f"the tasks {tasks}" if tasks else f"the domains {domains}")
        )
    return suite.load(domain, task, task_kwargs={"random": seed})


def _box(specs: Sequence[Any]) -> spaces.Box:
    """The Box of the specs' arrays side by side; a side without a bound is open."""
    sides = (
        np.concatenate(
            [np.full(x.shape, getattr(x, name, default)).ravel() for x in specs]
        )
        for name, default in (("minimum", -np.inf), ("maximum", np.inf))
    )
    low, high = (side.astype(np.float32) for side in sides)
    return spaces.Box(low, high, dtype=np.float32)


def _flat(observation: Mapping[str, Any]) -> np.ndarray:
    parts = [np.ravel(part) for part in observation.values()]
    return np.concatenate(parts).astype(np.float32)
