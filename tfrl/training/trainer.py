"""Act, store, learn, report: the loop around any agent."""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

import keras
import tensorflow as tf
from gymnasium.vector import VectorEnv

from tfrl._internal import checks, kept_programs
from tfrl.agents import agent as agents
from tfrl.environments import vector
from tfrl.schedules import progress as schedule_progress
from tfrl.summaries import progress as progress_bar
from tfrl.summaries import run_log
from tfrl.training import _parts, _plan, _processes, _run_record, cadence, evaluation
from tfrl.training import experience as experiences
from tfrl.training.collecting import _compiled_collection, actor_collection, collection

# Of so many epochs one compares what acts with the network, which takes as long as two
# gradient steps of a small one. Whether its weights are finite, each asks.
_COMPARED_EPOCHS = 10
# An epoch that is shorter is not worth what it costs to know the way back.
_LONG_SECONDS = 1.0


class Trainer:
    """Trains an agent in a vector of environments, resumable to the bit.

    One epoch collects steps in each of `n_envs` environments and updates the agent once
    from its `experience`: the trajectory itself or a replay; with a data set it
    collects nothing. The constructor makes the environments and the agent and touches
    no file; entering the trainer as a context locks `output_dir`; `run` writes
    `run.json`, `metrics.csv`, TensorBoard events, `checkpoints/` and `best/` there. The
    trainer draws and exports nothing: `tfrl plot` and `tfrl export` do.

    A resumed run continues as if it had never stopped, bit for bit, where the
    environments' own state can be captured (see `environments.snapshots`); elsewhere it
    starts new episodes and reports that. It must be given its original arguments; only
    these may differ: `output_dir`, `n_epochs`, `total_env_steps`, `intervals`,
    `strategy`, `stop_at_return`, `callbacks`, the `vectorization` of `make_vec` and the
    `n_actors` of an `ActorPool`.

    `run.json` keeps the arguments for `tfrl.rl_trainer.open_run`, functions by their
    import path. A run whose functions cannot be imported, such as lambdas, is opened by
    the program that made it, which passes a trainer to `SavedRun`.

    The replicas of a strategy share each gradient step. With a
    `MultiWorkerMirroredStrategy` every worker runs this same program, `TF_CONFIG`
    aside, on one shared `output_dir`. Each worker collects in its own `n_envs`
    environments (so N is `n_envs` times the number of workers, and `minibatch_size`
    counts the rows of all workers) and learns from all workers' trajectories; only the
    chief writes files. When one worker is interrupted, all end after the same epoch.
    When one is lost, the others end with a `ConnectionError`, and all are resumed
    together.

    Args:
        output_dir: folder of the run.
        n_epochs: maximum number of epochs, counted over the whole run; None for as many
            as `total_env_steps` needs, 10,000 without it.
        seed: of everything random.
        resume: continue from the newest checkpoint in `output_dir`.
        agent: hyper-parameters with a `create` method; None for `PPO()`.
        make_envs: maps `n_envs=` to a vector environment.
        n_envs: training environments per worker.
        experience: what to learn from: `Trajectories`, `Replayed` or `FromDataset`;
            None for what the agent prefers, `Trajectories()` if it has no preference.
        total_env_steps: ends the run after the epoch that reaches it, counting rows in
            which environments only reset; None to use only `n_epochs`.
        intervals: how often to report, evaluate and save.
        strategy: strategy on whose replicas to learn; None for the one in scope, if
            any.
        override: resume with other arguments, which `run.json` records. If they change
            the environments, new episodes begin.
        stop_at_return: ends the run after an evaluation that reaches this mean return.
        callbacks: Keras callbacks, called at the beginning and end of training and of
            each epoch, with the row that is written, if any; their `model` is this
            trainer, whose `stop_training` they may set. One with a `monitor`, such as
            `EarlyStopping`, is called for epochs that report it: with
            "eval/return_mean", patience counts evaluations. Callbacks that need a Keras
            model or batches are refused.
        network: a Keras model, or a function of both spaces that returns one, for the
            agent to learn with.
        collector: "host" steps environments in Python; "compiled" plays environments of
            `tfrl.environments.compiled` in the graph in which the agent learns, many
            epochs per call, which callbacks see as one epoch; "actors" or an
            `ActorPool` plays environments in separate processes, also while the agent
            learns. A run with actors is not reproducible to the bit, and resumes with
            new episodes.

    Attributes:
        agent: the agent as trained so far; it may be replaced, also by a callback, with
            one of the same networks and settings.
        env_steps: steps of experience so far, over all environments of all workers.
        eval_envs: the environments that `evaluate` plays in.
        stop_training: if set, ends the run after the current epoch.

    Raises:
        TypeError: if `agent` makes no agent, or `make_envs` no vector environment.
        ValueError: if an argument is invalid or no policy fits the spaces; on entering,
            if a resumed run had other arguments.

    Example:
        >>> import functools, tempfile
        >>> make_envs = functools.partial(tfrl.environments.make_vec, "CartPole-v1")
        >>> with tempfile.TemporaryDirectory() as folder, Trainer(
        ...     folder, n_epochs=1, agent=tfrl.agents.PPO(minibatch_size=8),
        ...     make_envs=make_envs, n_envs=2,
        ...     experience=tfrl.training.Trajectories(n_steps=4),
        ...     intervals=tfrl.training.Intervals(eval_episodes=1),
        ... ) as trainer:
        ...     played = trainer.run(quiet=True)
        >>> len(played.returns)
        1
    """

    def __init__(
        self,
        output_dir: str | os.PathLike[str],
        n_epochs: int | None = None,
        seed: int = 0,
        resume: bool = False,
        *,
        agent: agents.AgentConfig | None = None,
        make_envs: Callable[..., VectorEnv] = vector.make_vec,
        n_envs: int = 8,
        experience: Any = None,
        total_env_steps: int | None = None,
        intervals: cadence.Intervals | None = None,
        strategy: tf.distribute.Strategy | None = None,
        override: bool = False,
        stop_at_return: float | None = None,
        callbacks: Sequence[keras.callbacks.Callback] = (),
        network: Any = None,
        collector: str | actor_collection.ActorPool = "host",
    ) -> None:
        self._workers = _processes.Workers(strategy)
        given: dict[str, Any] = {"agent": agent, "make_envs": make_envs}
        given |= {"n_envs": n_envs, "experience": experience}
        given |= {"seed": seed, "n_epochs": n_epochs, "collector": collector}
        given |= {"total_env_steps": total_env_steps, "network": network}
        given |= {"intervals": intervals, "stop_at_return": stop_at_return}
        plan = _plan.planned(given, self._workers, callbacks)
        self.directory = checks.as_path("Trainer", "output_dir", output_dir)
        self.seed, self.intervals = (plan.arguments[x] for x in ("seed", "intervals"))
        self.n_epochs, self.total_env_steps = plan.n_epochs, plan.env_steps
        self.epoch = self.env_steps = 0
        self._resume, self._override = resume, override
        self._is_open, self._open = False, contextlib.ExitStack()
        self.notice: str | None = None
        self.stop_training, self._standing = False, cadence.Standing(stop_at_return)
        made = _parts.made(plan, self._workers, self._open, self.directory, resume)
        self.record, self.eval_envs = made.record, made.eval_envs
        self.agent, self._host = made.agent, made.host
        self._checkpoints = made.checkpoints
        self._rng, self._collector, self._source = made.rng, made.collector, made.source
        self.observation_space, self.action_space = made.spaces
        # Workers wait for each other, and a replay knows no way back.
        alone = self._workers.count == 1 and type(self._source) is experiences.Latest
        alone &= collector == "host"
        self._may_break_off = self._is_long = alone
        self._callbacks = cadence.Callbacks(
            [*callbacks], model=self, epochs=plan.n_epochs
        )
        self._seconds, self._log_position = 0.0, run_log.RunLog.START
        self._saved: int | None = None
        self._config, self._is_between_epochs = plan.arguments["agent"], True
        self._told = [_plan.unused_parts(self._config, made.eval_envs)]

    def __enter__(self) -> Self:
        """Locks the folder and, when resuming, loads its newest checkpoint."""
        with contextlib.ExitStack() as undo:
            undo.push(self._open)
            lock = _run_record.locked(self.directory, self._resume, self.is_chief)
            self._checkpoints.lock = self._open.enter_context(lock)
            self.notice = self._restore() if self._resume else None
            undo.pop_all()
        self._is_open = True
        return self

    def __exit__(self, *error: object) -> None:
        """Closes environments and lock."""
        self.close()

    def close(self) -> None:
        """Closes the environments and releases the lock; may be called twice."""
        self._is_open = False
        self._open.close()

    def run(self, *, quiet: bool = False) -> evaluation.Evaluation:
        """Trains to the end, saves and evaluates; to be called within a context.

            with Trainer(...) as trainer:
                played = trainer.run()

        The first Ctrl-C (SIGTERM, SIGHUP) ends the run with a checkpoint and a
        `KeyboardInterrupt`: after the current epoch, or, where epochs or waiting for
        actors take seconds, of the end of the previous epoch. An evaluation stops at
        its next step; a resumed run plays it from the beginning. A second Ctrl-C stops
        at once and leaves the previous checkpoint.

        Args:
            quiet: show no progress; notices to the user become warnings.

        Returns:
            The final evaluation.

        Raises:
            KeyboardInterrupt: if the run was asked to end before; it is saved.
            ConnectionError: if a worker process of the environments or another worker
                of the strategy is lost, or actors are lost repeatedly.
            RuntimeError: outside of a context, or if an environment raises in an actor.
            ValueError: if an environment returns what it should not.
            Exception: whatever a callback or an environment raises. If that, or a lost
                process, ends a single-worker run, the previous epochs are saved; the
                resumed run begins new episodes if it was playing.
        """
        if not self._is_open:
            raise RuntimeError(
                "`Trainer.run`: expected a trainer whose folder is locked; got one "
                "outside of a context; call it within `with Trainer(...) as trainer:`"
            )
        bar = None
        if self.is_chief and not quiet:
            total, name = max(self.total_env_steps, self.env_steps), self.directory.name
            bar = progress_bar.Progress(
                total, description=name, start_env_steps=self.env_steps
            )
        folder = self.directory if self.is_chief else None
        report = cadence.Report(folder, self._log_position, bar, self.record)
        with (
            self._workers.guarded(),
            report,
            _processes.interruptible() as interrupted,
            _processes.settled(),
            interrupted.saving_if_it_fails(lambda: self._keep(report), self._is_whole),
        ):
            hint = collection.forewarning(self._collector)
            report.say(self.notice, self.record.notice, *self._told, hint=hint)
            self._workers.stop_when(interrupted)
            self._workers.check_alike(
                {**self.record.common, "env_steps": self.env_steps}
            )
            if self.is_chief:
                _run_record.write(self.directory, self.record)
            self._callbacks.on_train_begin()
            played = None
            with contextlib.suppress(_processes.Interrupted):
                played = self._train(report, interrupted)
            if played is None and self._saved != self.env_steps:
                self._save(report)
            self._callbacks.on_train_end()
            # Who left now would be missed by those that still write.
            self._workers.gather(b"")
        return _processes.finished(played, "Trainer", f"step {self.env_steps:,}")

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the files; False for workers but the chief."""
        return self._workers.is_chief

    @property
    def return_mean(self) -> float:
        """Mean return of this worker's last training episodes; NaN before any."""
        return cadence.mean(self._collector.episode_returns)

    @property
    def observations(self) -> Any:
        """Current observations of this worker's environments, nest of `[N, *shape]`.

        With actors they are those of the evaluation environments.
        """
        return self._collector.observations

    def evaluate(self) -> evaluation.Evaluation:
        """Plays greedy episodes in separate environments."""
        return self._evaluated(lambda: False)

    def gather(self) -> Any:
        """Plays one epoch, or reads the next rows of the data set.

        Returns:
            What the agent learns from next; trajectories `[T, N]` hold those of all
            workers side by side. None if there is too little yet.
        """
        given, self.env_steps = self._source.gathered(
            lambda: self._workers.join(self._collector.collect(self._host, self._rng)),
            self.env_steps,
        )
        return given

    def rehearsed(self) -> tuple[Any, Callable[..., Any] | None]:
        """Plays for a rehearsal, which does not use this trainer afterwards.

        Returns:
            The argument of an update, and what `rehearse` uses as the update, None for
            the agent's own.
        """
        if isinstance(self._collector, _compiled_collection.CompiledCollector):
            return self._collector.rehearsed(self.agent, self.n_epochs)
        given = self.gather()
        while given is None:  # a replay that is too small yet
            given = self.gather()
        return given, None

    def _train(
        self, report: cadence.Report, interrupted: _processes.Interruption
    ) -> evaluation.Evaluation | None:
        """Returns the final evaluation; None if the run is to end before it.

        Raises:
            Interrupted: if an epoch or an evaluation was broken off.
        """
        played, row, info, since = None, None, None, (self.env_steps, self._seconds)
        if self._standing.row is not None:
            played = self._judge(report, interrupted)
        while self.epoch < self.n_epochs and not (
            self.stop_training or self._workers.stopped
        ):
            start = time.perf_counter()
            self._callbacks.on_epoch_begin(self.epoch)
            self._is_between_epochs = False
            with schedule_progress.progress_context(self._done()):
                info = self._epoch(interrupted)
            self._push(report, info, since)
            self._is_between_epochs = True
            self._seconds += time.perf_counter() - start
            start = time.perf_counter()
            last = self.epoch == self.n_epochs or self.stop_training
            judged = last or self._due(self.intervals.eval_epochs)
            row = None
            if judged or self._due(self.intervals.log_epochs):
                kept_programs.seal_new()  # a kill costs no compilation from here on
                row = self._row(info, since)
                since = (self.env_steps, self._seconds)
                if judged:
                    self._standing.row = row
                    if last:
                        self._save(report)
                    before = time.perf_counter()
                    played = self._judge(report, interrupted)
                    row = {**row, **cadence.judged(played)}
                    # Time spent judging is not time spent training.
                    start += time.perf_counter() - before
                else:
                    report.write(self.env_steps, row, self.env_steps)
            self._callbacks.on_epoch_end(self.epoch - 1, row)
            if not last and self._due(self.intervals.checkpoint_epochs):
                self._save(report)
            self._seconds += time.perf_counter() - start
        if self.epoch < self.n_epochs and not self.stop_training:
            return None
        if not self._standing.knows(self.epoch):  # a callback ended the run
            self._standing.row = row or self._row(info, since)
        if self._saved != self.env_steps:
            self._save(report)
        played = self._judge(report, interrupted) if self._standing.row else played
        return played or self._played(interrupted)

    def _judge(
        self, report: cadence.Report, interrupted: _processes.Interruption
    ) -> evaluation.Evaluation:
        """Evaluates, and writes the row that waited for it."""
        report.say(None, hint=evaluation.endless(self._collector, self._standing.last))
        played = self._played(interrupted)
        row = {**(self._standing.row or {}), **cadence.judged(played)}
        self._checkpoints.lock.check()
        # Reset steps do not count, so the last step may lie below.
        least = self.total_env_steps if self.epoch >= self.n_epochs else 0
        report.write(self.env_steps, row, max(self.env_steps, least))
        mean = float(played.returns.mean())
        if self._standing.judge(self.epoch, mean):
            self._checkpoints.save_best(self.env_steps, self.agent, mean)
        self.stop_training |= self._standing.is_reached(self.epoch)
        return played

    def _played(self, interrupted: _processes.Interruption) -> evaluation.Evaluation:
        """Evaluates, unless this or another worker is asked to end meanwhile."""
        return self._workers.unless_broken_off(lambda: self._evaluated(interrupted))

    def _evaluated(self, asked_to_end: Callable[[], bool]) -> evaluation.Evaluation:
        acting = _processes.Until(asked_to_end, self._host)
        judge = getattr(self._collector, "evaluated", evaluation.evaluate)
        seed = self.seed + 1_000_003 * (self.epoch + 1)
        return judge(acting, self.eval_envs, self.intervals.eval_episodes, seed=seed)

    def _epoch(self, interrupted: _processes.Interruption) -> dict[str, Any] | None:
        """Gathers and learns; returns what the update informs about, None without one.

        Raises:
            Interrupted: if a long epoch, or its wait for actors, was broken off; it has
                never been then.
        """
        if isinstance(self._collector, _compiled_collection.CompiledCollector):
            return self._epochs_in_graph(self._collector)
        start, own = time.perf_counter(), (self._rng, self._collector)
        info: dict[str, Any] | None = None
        before = collection.captured(*own) if self._is_long else None
        try:
            given = self.gather()
            if given is not None:
                with self._workers.scope():
                    update = self.agent.update
                    learned = (
                        interrupted.call(update, given) if before else update(given)
                    )
                    self.agent, info = _plan.checked_update(learned)
        except _processes.Interrupted:
            # Without it, nothing had come of the actors that were waited for.
            if before is not None:
                collection.restore(before, *own, self.seed)
                self.env_steps = self._collector.env_steps
            raise
        if info is not None:
            self._source.learned(info.pop("priorities", None))
            if self.epoch % _COMPARED_EPOCHS == 0:
                self._checkpoints.check(self.agent)
        seconds = time.perf_counter() - start
        self._is_long = self._may_break_off and seconds > _LONG_SECONDS
        self.epoch += 1
        return info

    def _epochs_in_graph(
        self, collector: _compiled_collection.CompiledCollector
    ) -> dict[str, Any]:
        """Gathers and learns until something is due, or for a part of a second."""
        most = self.intervals.until_due(self.epoch, self.n_epochs)
        with self._workers.scope():
            given = self.agent, self.epoch, most, self.n_epochs
            count, self.agent, info = collector.learn(*given)
        self.env_steps = collector.env_steps
        self.epoch += count
        return info

    def _push(self, report: cadence.Report, info: dict | None, since: tuple) -> None:
        """Lets what was learned act; of an epoch after which it cannot, tells first."""
        report.expect(info or {})
        if info is None:
            return
        in_graph = isinstance(self._collector, _compiled_collection.CompiledCollector)
        is_due = in_graph or self.epoch % _COMPARED_EPOCHS == 1
        probe = self._collector.observations if is_due else None
        try:
            self._host.push(self.agent.policy, probe=probe)
        except ValueError:
            if self._workers.count == 1:  # others might not be asked to give theirs
                report.write(self.env_steps, self._row(info, since), self.env_steps)
            raise

    def _done(self) -> schedule_progress.Progress:
        """What schedules called without an argument read during an epoch."""
        done = self.epoch / self.n_epochs, self.epoch, self.env_steps, self.env_steps
        return schedule_progress.Progress(*done)

    def _due(self, epochs: int | None) -> bool:
        return epochs is not None and self.epoch % epochs == 0

    def _row(self, info: dict | None, since: tuple[int, float]) -> dict[str, float]:
        steps, seconds = self.env_steps - since[0], self._seconds - since[1]
        speed, own = steps / max(seconds, 1e-9), self._collector.episodes()
        episodes = self._workers.gather_values(own)
        info = {**(info or {}), **self._collector.facts()}
        return cadence.row(self.epoch, self._seconds, speed, episodes, info)

    def _save(self, report: cadence.Report) -> None:
        self._saved, self._log_position = self.env_steps, report.position()
        facts = {"epoch": self.epoch, **self._standing.facts()}
        facts |= {"seconds": self._seconds, "log": self._log_position}
        self._checkpoints.save(self.env_steps, self.agent, facts, self.eval_envs)

    def _keep(self, report: cadence.Report) -> None:
        """Saves the epochs that are finished, where the run fails."""
        if self._workers.count == 1 and self.epoch and self._saved != self.env_steps:
            self._save(report)

    def _is_whole(self) -> bool:
        return self._is_between_epochs or self._collector.is_playing

    def _restore(self) -> str | None:
        """Loads the newest checkpoint; returns what the user should know."""
        self._told.append(_run_record.lacking(self.directory, self.record))
        asked = self._override, self._config
        self.record = _run_record.continued(self.record, self.directory, *asked)
        with _parts.blaming_overrides(self.record.overrides if self._override else ()):
            given = self.agent, self.record, self._override, self.eval_envs
            self.agent, facts, self.env_steps, notice = self._checkpoints.load(*given)
        self._saved, self.epoch = self.env_steps, facts["epoch"]
        self._seconds, self._log_position = facts["seconds"], facts["log"]
        self._standing.take_up(facts)
        self.stop_training = self._standing.is_reached(self.epoch)
        self._host.push(self.agent.policy)
        return notice
