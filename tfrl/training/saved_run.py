"""Saved runs, finished or still running: their policies played, recorded, exported."""

import contextlib
import copy
import io
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, Self

import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf
from gymnasium.vector import VectorEnv

from tfrl._internal import arguments, dtype_policies, durable
from tfrl.agents import chosen_optimizers
from tfrl.environments import action_masks
from tfrl.exporting import export
from tfrl.policies import host_policy, network_policy
from tfrl.saving import checkpoints
from tfrl.summaries.filming import panels, video
from tfrl.training import (
    _kept_arguments,
    _kept_names,
    _older_agents,
    _parts,
    _plan,
    _run_record,
    evaluation,
    trainer,
)
from tfrl.training.collecting import collection, recording
from tfrl.training.fitting import _recipes

_OF_VECTORS = ("num_envs", "vectorization_mode", "vector_kwargs", "wrappers")


def metadata_of(directory: durable.Path, step: int | None) -> dict[str, Any]:
    """Returns what an exported policy tells of the run and checkpoint it is of.

    Args:
        directory: folder of the run.
        step: of the environments, after which the checkpoint was written.

    Example:
        >>> metadata_of("runs/seven", 1024)
        {'run': 'seven', 'step': 1024}
    """
    name = os.path.basename(os.path.abspath(directory))
    return {"run": name, "step": step}


class SavedRun:
    """The agent of a checkpoint, and environments like those that it learned in.

    Only reads the folder of the run and takes no lock, so the run may continue
    meanwhile. As a context it closes the trainer's environments at the end.

    Args:
        like: a `Trainer` of the run's folder, built like the run's own and not entered;
            `reopen` and `tfrl.rl_trainer.open_run` need none.
        step: the checkpoint, by its environment steps; None for the newest, "best" for
            the policy that had the highest mean return of all evaluations.

    Attributes:
        agent: as it was saved.
        step: environment steps after which it was saved.

    Raises:
        ValueError: if there is no such checkpoint, or it is of another agent.

    Example:
        >>> import tempfile
        >>> def make_envs(n_envs):
        ...     return tfrl.environments.make_vec("CartPole-v1", n_envs)
        >>> like = tfrl.training.Trainer(tempfile.mkdtemp(), make_envs=make_envs)
        >>> _ = tfrl.saving.save_run(like.directory, 1024, like.agent, {})
        >>> with SavedRun(like) as run:
        ...     run.step, len(run.evaluate(n_episodes=3).returns)
        (1024, 3)
    """

    def __init__(
        self,
        like: "trainer.Trainer | _RecordedRun",
        step: int | str | None = None,
    ) -> None:
        self._like = like
        directory = like.directory
        if isinstance(step, str):
            directory, step = _best_of(directory, step), None
        self.agent, _, self.step = _older_agents.load_run(
            directory, like.agent, like.observation_space, step=step
        )

    @classmethod
    def reopen(
        cls, directory: str | os.PathLike[str], step: int | str | None = None
    ) -> Self | None:
        """Opens a run from its `run.json`.

        Environments are made only when they are played. Functions that the record names
        are imported: open only what you would execute.

        Args:
            directory: folder of the run.
            step: as in the constructor.

        Returns:
            The run; None for one without `run.json`, or that only gin describes fully.

        Raises:
            ValueError: if the record is damaged or names something that is not here; or
                as in the constructor.
        """
        record = record_of(directory)
        if record is None:
            return None
        return cls(_RecordedRun(directory, record), step)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._like.close()

    @property
    def policy(self) -> Any:
        """The policy of the agent, to act with: `run.policy.act(observations)`.

        Raises:
            ValueError: if one of its weights is NaN or infinite.
        """
        policy = self.agent.policy
        is_network = isinstance(policy, network_policy.NetworkPolicy)
        leaves = tf.nest.flatten(policy.without_optimizer() if is_network else policy)
        weights = [x for x in leaves if tf.is_tensor(x) and x.dtype.is_floating]
        if not all(np.isfinite(tf.cast(x, tf.float64)).all() for x in weights):
            raise ValueError(
                f"`SavedRun.policy`: expected finite weights at step {self.step}; got "
                "one with NaN or infinity; see `find_nonfinite`, and take an earlier "
                "step"
            )
        return policy

    def evaluate(
        self, n_episodes: int | None = None, *, seed: int = 0
    ) -> evaluation.Evaluation:
        """Plays greedy episodes; see `tfrl.training.evaluate`.

        Args:
            n_episodes: how many; None for 20, or the next multiple of the agents where
                environments have several.
            seed: of the environments.

        Returns:
            Their results.

        Raises:
            ValueError: if `n_episodes` is not positive or no multiple of the agents.
        """
        acting, envs = host_policy.HostPolicy(self.policy), self._like.eval_envs
        if n_episodes is None:
            n_episodes = evaluation.rounded_up(20, evaluation.agents_of(envs))
        return evaluation.evaluate(acting, envs, n_episodes, seed=seed)

    def collect(self, n_steps: int, *, policy: Any = (), **options: Any) -> Any:
        """Plays steps and returns them as rows for offline learners.

        If the step limit of episodes is known, only as many environments play as get a
        whole episode each, at most as many as the run is evaluated in.

        Args:
            n_steps: how many transitions.
            policy: a policy in place of the run's; None for uniform actions.
            **options: as in `tfrl.training.record_transitions`.

        Returns:
            Nests of arrays `[n_steps, ...]` by name.
        """
        acting = host_policy.HostPolicy(self.policy) if policy == () else policy
        envs, limit = self._like.eval_envs, None
        if self.env_spec is not None and not evaluation.agents_of(envs):
            limit = self.env_spec.max_episode_steps
        make = getattr(self._like, "made_envs", None)
        few = max(1, n_steps // limit) if limit and make else envs.num_envs
        with contextlib.ExitStack() as undo:
            if make and few < envs.num_envs:
                envs = undo.enter_context(contextlib.closing(make(few)))
            return recording.record_transitions(acting, envs, n_steps, **options)

    @property
    def spaces(self) -> tuple[gym.Space, gym.Space]:
        """Observation and action space of one environment."""
        return self._like.observation_space, self._like.action_space

    @property
    def env_spec(self) -> Any:
        """The Gymnasium spec of one environment, unwrapped; None if it has none."""
        spec = copy.deepcopy(self._like.eval_envs.spec)
        if spec is not None:
            for name in _OF_VECTORS:
                spec.kwargs.pop(name, None)
            limit = spec.kwargs.pop("max_episode_steps", spec.max_episode_steps)
            spec.max_episode_steps = limit
        return spec

    def record(
        self, path: str | os.PathLike[str], *, seed: int = 0, **options: Any
    ) -> None:
        """Plays one greedy episode and writes it as a video or an animated GIF.

        Without a GPU for drawing, Mesa's LLVM renderer kills a process that has loaded
        TensorFlow: set the environment variable `GALLIUM_DRIVER` to "softpipe" before
        OpenGL is loaded, as the command does.

        Args:
            path: what to write, ending in `.mp4` or `.gif`; replaced if it exists.
            seed: of the environment.
            **options: as in `tfrl.summaries.record_episode`.

        Raises:
            ImportError: if a library to draw with is missing (extra `tfrl[video]`).
            ValueError: if the environment cannot be drawn, or an argument is invalid.
        """
        act = collection.of_one(host_policy.HostPolicy(self.policy))
        try:
            with contextlib.closing(self._drawable()) as env:
                video.record_episode(env, path, act, seed=seed, **options)
        except gym.error.DependencyNotInstalled as error:
            raise ImportError(
                "`SavedRun.record`: `path` expected an environment that can draw; got "
                f"{error}; install it (for classic environments by the extra "
                "`tfrl[video]`, or: pip install 'gymnasium[classic-control]')"
            ) from error

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        tolerance: float = 1e-5,
        overwrite: bool = False,
    ) -> None:
        """Writes the policy as a SavedModel; see `tfrl.exporting.export_policy`."""
        spaces = self._like.observation_space, self._like.action_space
        export.export_policy(
            self.agent,
            path,
            *spaces,
            tolerance=tolerance,
            overwrite=overwrite,
            metadata=metadata_of(self._like.directory, self.step),
        )

    def draw_critic(
        self,
        path: str | os.PathLike[str],
        across: tuple[int, float, float],
        down: tuple[int, float, float],
        *,
        cells: int = 100,
        size: tuple[int, int] = (640, 480),
    ) -> None:
        """Draws the values of a plane of observations in colours, as a PNG.

        Two components of the observation vary, all others are 0.

        Args:
            path: what to write, ending in `.png`; replaced if it exists.
            across: a component, and its values at the left and the right end.
            down: another component, and its values at the upper and the lower end.
            cells: observations across, and down.
            size: width and height of the picture in pixels.

        Raises:
            ImportError: if matplotlib or Pillow is missing.
            ValueError: if the policy has no state values, observations are not vectors
                or lack these components, or an argument is invalid.
        """
        where, policy = "SavedRun.draw_critic", self.policy
        durable.check_output_file(where, "path", path, [".png"])
        if not hasattr(policy, "values"):
            raise ValueError(
                f"`{where}`: expected a policy that values states, such as an "
                f"ActorCriticPolicy; got {type(policy).__name__}"
            )
        shape = self._like.observation_space.shape
        if shape is None or len(shape) != 1:
            raise ValueError(
                f"`{where}`: `across` expected observations that are vectors; got "
                f"{self._like.observation_space}; draw by `run.policy.values`"
            )
        if across[0] == down[0]:
            raise ValueError(
                f"`{where}`: `down` expected another component than `across`; got "
                f"{down[0]} twice"
            )
        arguments.check_whole_number(where, "cells", cells, low=1)
        rows = np.zeros([cells, cells, *shape], np.float32)
        for name, (part, start, end) in (("across", across), ("down", down)):
            arguments.check_whole_number(where, name, part, low=0, high=shape[0] - 1)
            varied = np.linspace(start, end, cells)
            rows[..., part] = varied if name == "across" else varied[:, np.newaxis]
        values = np.reshape(policy.values(rows.reshape(-1, *shape)), [cells, cells])
        title = "value of observations: [{}] from {:g} to {:g} across, ".format(*across)
        title += "[{}] from {:g} to {:g} down".format(*down)
        picture = panels.render_heatmap(title, values, size=size)
        data = io.BytesIO()
        picture.save(data, "PNG")
        with durable.explain_refusals(where, "path", path):
            durable.replace_file(path, data.getvalue())

    def _wrappers(self) -> list[Callable[[gym.Env], gym.Env]]:
        """What `make_vec` puts around each environment."""
        envs = self._like.eval_envs
        wrappers = list(envs.spec.kwargs.get("wrappers") or ())
        if isinstance(envs, action_masks.VectorActionMasks):
            wrappers.append(action_masks.ActionMasks)
        return wrappers

    def _drawable(self) -> gym.Env:
        """One environment like those of the run, drawing to arrays."""
        envs, where = self._like.eval_envs, "`SavedRun.record`: `path` expected"
        if players := evaluation.agents_of(envs):
            raise ValueError(
                "`SavedRun.record`: expected a run in an environment of one agent; got "
                f"one of {players!s:.80}; draw each copy of several agents by "
                "`envs.render()` of a vector made with `render_mode='rgb_array'`"
            )
        if "rgb_array" not in envs.metadata.get("render_modes", ()):
            raise ValueError(
                f"{where} an environment that draws to arrays (render mode "
                f"'rgb_array'); got render modes {envs.metadata.get('render_modes')}; "
                "a compiled one draws by its `frame`"
            )
        if hasattr(envs, "drawable"):
            return envs.drawable()
        spec = self.env_spec
        if spec is not None:
            env = gym.make(spec, render_mode="rgb_array")
            for wrap in self._wrappers():
                env = wrap(env)
            if env.observation_space == self._like.observation_space:
                return env
            env.close()
        raise ValueError(
            f"{where} environments that can be made one at a time, by `gym.make` of "
            f"their spec; got {envs.spec}; use `tfrl.summaries.record_episode` "
            "with an environment of your own and `run.policy`"
        )


def record_of(directory: str | os.PathLike[str]) -> _run_record.RunRecord | None:
    """Returns what is in `run.json`; None of a run that gin knows better, or of old."""
    record = _run_record.read("open_run", directory)
    return None if record is None or record.is_of_gin(directory) else record


def config_in(place: str, directory: durable.Path) -> pathlib.Path:
    """Returns the configuration in the folder of a run.

    Args:
        place: function and argument that the folder was given to, for the message.
        directory: the folder.

    Raises:
        ValueError: if it holds none, with the name of a run that is in it, if any is.

    Example:
        >>> config_in("`open_run`: `directory`", "no/such/run")
        Traceback (most recent call last):
        ...
        ValueError: `open_run`: `directory` expected the folder of a run, with \
run.json or config.gin; got 'no/such/run' without
    """
    config = pathlib.Path(directory) / "config.gin"
    if not config.is_file():
        runs = sorted(config.parent.glob("*/run.json"))
        hint = f"; give one of the runs in it, such as {runs[0].parent}" if runs else ""
        raise ValueError(
            f"{place} expected the folder of a run, with run.json or config.gin; got "
            f"{str(directory)!r} without{hint}"
        )
    return config


@contextlib.contextmanager
def as_recorded(directory: str | os.PathLike[str]) -> Iterator[None]:
    """Has Keras make layers as it made those of a run, for the while."""
    record = _run_record.read("open_run", directory)
    with dtype_policies.used(record and record.dtype_policy):
        yield


def _best_of(directory: pathlib.Path, step: str) -> pathlib.Path:
    if step != "best":
        raise ValueError(
            "`SavedRun`: `step` expected environment steps, 'best' or None; got "
            f"{step!r}"
        )
    best = directory / "best"
    if checkpoints.latest_step(best) is None:
        raise ValueError(
            "`SavedRun`: `step` expected steps of a checkpoint, as the run in "
            f"{str(directory)!r} has kept no best policy: it was never evaluated, or "
            "began before such were kept; got 'best'"
        )
    return best


class _RecordedRun:
    """The agent and the environments of a record, made when they are asked for.

    Args:
        directory: folder of the run.
        record: its `run.json`.

    Raises:
        ValueError: if the agent cannot be made.
    """

    def __init__(self, directory: durable.Path, record: _run_record.RunRecord) -> None:
        self.directory = pathlib.Path(directory)
        self._record = record
        self._envs: VectorEnv | None = None
        config = _plan.checked_agent(self._made("agent"))
        if any(_kept_arguments.lost(space, "") for space in record.spaces):
            spaces = self._opened()
        else:
            observations, actions = map(_kept_arguments.made, record.spaces)
            spaces = (observations, actions)
        self.observation_space, self.action_space = spaces
        network = self._made("network") if "network" in record.arguments else None
        if "fit" in record.arguments and isinstance(network, keras.layers.Layer):
            network = _recipes.as_from_a_file(network)  # as `AgentModel.create` does
        with dtype_policies.used(record.dtype_policy), chosen_optimizers.going_on():
            self.agent = _parts.made_agent(config, *spaces, record.numbers, network)

    @property
    def seed(self) -> int:
        """Of the run."""
        return self._record.numbers["seed"]

    @property
    def eval_envs(self) -> VectorEnv:
        """Environments like those that the run was evaluated in."""
        spaces = (self.observation_space, self.action_space)
        found = spaces if self._envs is not None else self._opened()
        if found != spaces:
            self.close()
            raise ValueError(
                f"`open_run`: `directory` expected environments with the spaces of the "
                f"run, {spaces}; got {found}; install the versions of then"
            )
        return self._envs

    def close(self) -> None:
        """Closes the environments, if there are any; may be called twice."""
        if self._envs is not None:
            self._envs.close()
            self._envs = None

    def made_envs(self, n_envs: int) -> VectorEnv:
        """Makes environments, which the caller closes."""
        make_envs = self._made("make_envs")
        _kept_names.make_known(self._record.environment)
        return make_envs(n_envs=n_envs)

    def _opened(self) -> tuple[gym.Space, gym.Space]:
        """Makes the environments, and returns their spaces."""
        envs = self._envs = self.made_envs(self._made("intervals").eval_episodes)
        return envs.single_observation_space, envs.single_action_space

    def _made(self, name: str) -> Any:
        lost = self._record.lost
        for place in [x for x in lost if x.startswith(name)]:
            how = "open it by `SavedRun` of a `Trainer` made with the same arguments"
            if name == "make_envs":
                how += ", or evaluate its `policy` by `tfrl.training.evaluate`"
            if self._record.made_by == "FitTrainer":
                how = "make its agent, load it by `tfrl.saving.Checkpointer(directory, "
                how += "agent=agent).load()`, and go on with that of the `Checkpointer`"
                if name == "make_envs":
                    how = "evaluate its `policy` by `tfrl.training.evaluate`, or give "
                    how += "`RunCheckpoint` a `make_envs` that can be imported"
            raise ValueError(
                f"`open_run`: `directory` expected a run whose `{place}` could be "
                f"kept; got {lost[place]} in {str(self.directory)!r}; {how}"
            )
        return _kept_arguments.made(self._record.arguments[name])
