"""Act, store, learn, report: the loop around any on-policy agent."""

import contextlib
import dataclasses
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import tensorflow as tf
from gymnasium.vector import VectorEnv

from tfrl.agents import agent as agents
from tfrl.agents import ppo
from tfrl.core import checks
from tfrl.environments import snapshots, vector
from tfrl.schedules import progress as schedule_progress
from tfrl.summaries import progress, run_log
from tfrl.training import _process, checkpoints, collection, evaluation, host_policy

_COLUMNS = (
    "epoch",
    "seconds",
    "env_steps_per_second",
    "train/return_mean",
    "train/length_mean",
    "eval/return_mean",
    "eval/return_std",
    "eval/length_mean",
    "train/loss",
    "train/policy_loss",
    "train/value_loss",
    "train/entropy",
    "train/approx_kl",
    "train/clip_fraction",
    "train/explained_variance",
    "train/learning_rate",
    "train/gradient_steps",
)


@dataclasses.dataclass(frozen=True)
class Intervals:
    """How often a `Trainer` reports, evaluates and saves, in epochs.

    Attributes:
        log_epochs: epochs between rows of `metrics.csv`.
        eval_epochs: epochs between evaluations; None for the final one alone.
        eval_episodes: greedy episodes per evaluation.
        checkpoint_epochs: epochs between checkpoints.
        checkpoints_kept: number of newest checkpoints that stay on disk.

    Example:
        >>> Intervals(log_epochs=1).checkpoints_kept
        3
    """

    log_epochs: int = 10
    eval_epochs: int | None = None
    eval_episodes: int = 20
    checkpoint_epochs: int = 100
    checkpoints_kept: int = 3

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if value is not None:
                checks.check_whole_number("Intervals", name, value, low=1)


class Trainer:
    """Trains an agent in a vector of environments, resumable to the bit.

    One epoch collects `n_steps` steps in each of `n_envs` environments and updates the
    agent once. The constructor makes environments and agent and touches no file;
    entering the trainer as a context locks `output_dir`; `run` writes there
    `metrics.csv`, TensorBoard events and `checkpoints/`.

    A resumed run continues as if it had never stopped, bit for bit, where the
    environments' own state can be captured (see `environments.snapshots`); elsewhere
    it starts new episodes and says so.

    Args:
        output_dir: folder of the run.
        n_epochs: most epochs to train, counted over the whole run.
        seed: of everything random.
        resume: continue from the newest checkpoint in `output_dir`.
        agent: hyper-parameters with a `create` method, such as `PPO()`.
        make_envs: maps `n_envs=` to a vector environment.
        n_envs: environments trained in, N.
        n_steps: steps per environment and epoch, T.
        total_env_steps: ends the run after the epoch that reaches it; None for
            `n_epochs` alone.
        intervals: how often to report, evaluate and save.

    Raises:
        ValueError: if an argument is off or the spaces fit no policy.

    Example:
        >>> import tempfile
        >>> def make_envs(n_envs):
        ...     return tfrl.environments.make_vec("CartPole-v1", n_envs)
        >>> with tempfile.TemporaryDirectory() as folder, Trainer(
        ...     folder, n_epochs=1, agent=tfrl.agents.PPO(minibatch_size=8),
        ...     make_envs=make_envs, n_envs=2, n_steps=4,
        ...     intervals=Intervals(eval_episodes=1),
        ... ) as trainer:
        ...     played = trainer.run(quiet=True)
        >>> len(played.returns)
        1
    """

    def __init__(
        self,
        output_dir: str | os.PathLike[str],
        n_epochs: int = 10_000,
        seed: int = 0,
        resume: bool = False,
        *,
        agent: agents.AgentConfig | None = None,
        make_envs: Callable[..., VectorEnv] = vector.make_vec,
        n_envs: int = 8,
        n_steps: int = 128,
        total_env_steps: int | None = None,
        intervals: Intervals | None = None,
    ) -> None:
        checks.check_whole_number("Trainer", "n_epochs", n_epochs, low=1)
        checks.check_whole_number("Trainer", "n_envs", n_envs, low=1)
        checks.check_whole_number("Trainer", "n_steps", n_steps, low=1)
        per_epoch = n_envs * n_steps
        if total_env_steps is not None:
            checks.check_whole_number(
                "Trainer", "total_env_steps", total_env_steps, low=1
            )
            n_epochs = min(n_epochs, -(-total_env_steps // per_epoch))
        self.directory = pathlib.Path(output_dir)
        self.n_epochs = n_epochs
        self.total_env_steps = n_epochs * per_epoch
        self.seed = seed
        self.intervals = Intervals() if intervals is None else intervals
        self.epoch = 0
        self._resume = resume
        self._open = contextlib.ExitStack()
        envs = make_envs(n_envs=n_envs)
        self._open.callback(envs.close)
        self.observation_space = envs.single_observation_space
        self.action_space = envs.single_action_space
        config = ppo.PPO() if agent is None else agent
        self.agent = config.create(
            self.observation_space,
            self.action_space,
            n_envs=n_envs,
            n_steps=n_steps,
            n_updates=n_epochs,
            seed=seed,
        )
        self._eval_envs = make_envs(n_envs=self.intervals.eval_episodes)
        self._open.callback(self._eval_envs.close)
        self._host = host_policy.HostPolicy(self.agent.policy)
        self._rng = np.random.default_rng(seed)
        self._collector = collection.Collector(envs, n_steps, seed)
        self._seconds = 0.0
        self._log_position: Any = run_log.RunLog.START

    def __enter__(self) -> Self:
        """Locks the folder and, when resuming, loads its newest checkpoint."""
        with contextlib.ExitStack() as undo:
            undo.push(self._open)
            saved = checkpoints.latest_step(self.directory)
            if self._resume and saved is None:
                raise ValueError(
                    "`Trainer`: `output_dir` expected a checkpoint to resume from; got "
                    f"{str(self.directory)!r} without one; start without resuming"
                )
            if not self._resume and saved is not None:
                raise ValueError(
                    f"`Trainer`: `output_dir` expected a folder without a run; got "
                    f"{str(self.directory)!r} with one at {saved} environment steps; "
                    "resume it (--resume) or choose another folder"
                )
            self._open.enter_context(checkpoints.RunLock(self.directory))
            self.notice = self._restore() if self._resume else None
            undo.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        """Closes environments and lock."""
        self.close()

    def close(self) -> None:
        """Closes environments and lock; may be called twice."""
        self._open.close()

    def run(self, *, quiet: bool = False) -> evaluation.Evaluation | None:
        """Trains to the end, evaluates and saves.

        The first Ctrl-C (or SIGTERM) ends the run after the current epoch with a
        checkpoint; a second one breaks off at once, leaving the checkpoint before.

        Args:
            quiet: show no progress.

        Returns:
            The final evaluation; None if the run was interrupted.
        """
        bar = contextlib.nullcontext(None) if quiet else self._progress()
        log = run_log.RunLog(
            self.directory, columns=_COLUMNS, resume_at=self._log_position
        )
        with (
            log,
            bar as shown,
            _process.interruptible() as interrupted,
            _process.settled(),
        ):
            if shown is not None and self.notice is not None:
                shown.say(self.notice)
            played, since = None, (self._collector.env_steps, self._seconds)
            while self.epoch < self.n_epochs and not interrupted():
                start = time.perf_counter()
                with schedule_progress.progress_context(self._done()):
                    info = self._epoch()
                last = self.epoch == self.n_epochs
                values: dict[str, float] = {}
                if last or self._due(self.intervals.eval_epochs):
                    before = time.perf_counter()
                    played = self.evaluate()
                    values = _describe(played)
                    # Time spent judging is not time spent training.
                    start += time.perf_counter() - before
                self._seconds += time.perf_counter() - start
                start = time.perf_counter()
                if values or self._due(self.intervals.log_epochs):
                    log.write(self._collector.env_steps, self._row(info, values, since))
                    since = (self._collector.env_steps, self._seconds)
                    if shown is not None:
                        # Reset steps do not count, so the last step may lie below.
                        done = self.total_env_steps if last else self.env_steps
                        shown.update(done, self.return_mean)
                if last or self._due(self.intervals.checkpoint_epochs):
                    self._save(log)
                self._seconds += time.perf_counter() - start
            if self.epoch < self.n_epochs:
                if checkpoints.latest_step(self.directory) != self.env_steps:
                    self._save(log)
                return None
        return played if played is not None else self.evaluate()

    @property
    def env_steps(self) -> int:
        """Steps of experience so far, over all environments."""
        return self._collector.env_steps

    @property
    def return_mean(self) -> float:
        """Mean return of the last 100 training episodes; NaN before the first."""
        returns = self._collector.episode_returns
        return float(np.mean(returns)) if returns else float("nan")

    def evaluate(self) -> evaluation.Evaluation:
        """Plays greedy episodes in environments of their own."""
        head = self.agent.policy.head
        return evaluation.evaluate(
            lambda observations: head.host_to_env(
                head.host_mode(self._host(observations))
            ),
            self._eval_envs,
            self.intervals.eval_episodes,
            seed=self.seed + 1_000_003 * (self.epoch + 1),
        )

    def _epoch(self) -> dict[str, Any]:
        head = self.agent.policy.head
        trajectory = self._collector.collect(
            lambda observations: head.host_sample(self._host(observations), self._rng),
            head.host_to_env,
        )
        self.agent, info = self.agent.update(trajectory)
        self._host.push(
            self.agent.policy,
            probe=tf.nest.map_structure(lambda x: x[-1], trajectory.observations),
            parameters=info.pop("parameters"),
        )
        self.epoch += 1
        return info

    def _done(self) -> schedule_progress.Progress:
        """What schedules called without an argument read during an epoch."""
        return schedule_progress.Progress(
            percent=self.epoch / self.n_epochs,
            iterations=self.epoch,
            env_steps=self.env_steps,
            global_counter=self.env_steps,
        )

    def _due(self, epochs: int | None) -> bool:
        return epochs is not None and self.epoch % epochs == 0

    def _row(self, info: dict, values: dict, since: tuple[int, float]) -> dict:
        steps = self._collector.env_steps - since[0]
        lengths = self._collector.episode_lengths
        return {
            "epoch": self.epoch,
            "seconds": self._seconds,
            "env_steps_per_second": steps / max(self._seconds - since[1], 1e-9),
            "train/return_mean": self.return_mean,
            "train/length_mean": float(np.mean(lengths)) if lengths else float("nan"),
            **values,
            **{f"train/{name}": float(value) for name, value in info.items()},
        }

    def _progress(self) -> progress.Progress:
        return progress.Progress(
            self.total_env_steps,
            description=self.directory.name,
            start_env_steps=self._collector.env_steps,
        )

    def _save(self, log: run_log.RunLog) -> None:
        self._log_position = log.position()
        metadata = {
            "epoch": self.epoch,
            "seconds": self._seconds,
            "rng": self._rng.bit_generator.state,
            "collector": self._collector.state(),
            "environments": snapshots.capture(self._collector.envs),
            "log": self._log_position,
        }
        checkpoints.save_run(
            self.directory,
            self._collector.env_steps,
            self.agent,
            metadata,
            keep=self.intervals.checkpoints_kept,
        )

    def _restore(self) -> str | None:
        """Loads the newest checkpoint; returns what the user should know."""
        self.agent, metadata, _ = checkpoints.load_run(self.directory, self.agent)
        self.epoch = metadata["epoch"]
        self._seconds = metadata["seconds"]
        self._rng.bit_generator.state = metadata["rng"]
        self._log_position = metadata["log"]
        self._host.push(self.agent.policy)
        snapshot = metadata["environments"]
        if snapshot is not None:
            snapshots.restore(self._collector.envs, snapshot)
        else:
            self._collector.reset(self.seed + 7_919 * self.epoch)
        self._collector.set_state(
            metadata["collector"], same_episodes=snapshot is not None
        )
        if snapshot is not None:
            return None
        return (
            "resumed with new episodes: the state of these environments cannot be "
            f"captured ({snapshots.uncapturable(self._collector.envs)})"
        )


def _describe(played: evaluation.Evaluation) -> dict[str, float]:
    return {
        "eval/return_mean": float(played.returns.mean()),
        "eval/return_std": float(played.returns.std()),
        "eval/length_mean": float(played.lengths.mean()),
    }
