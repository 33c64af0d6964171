"""A run of `AgentModel.fit` made again from its record, and trained on."""

import contextlib
import os
import pathlib
from typing import Any, Self

import numpy as np
import tensorflow as tf
from gymnasium.vector import VectorEnv

from tfrl._internal import dtype_policies
from tfrl.policies import host_policy
from tfrl.training import (
    _environments,
    _plan,
    _processes,
    _run_record,
    evaluation,
)
from tfrl.training import experience as experiences
from tfrl.training.collecting import collection
from tfrl.training.fitting import (
    _fit_data,
    _recorded,
    agent_model,
    fit_callbacks,
    run_checkpoint,
)

_NAMES = {
    *("agent", "evaluation", "experience", "fit", "intervals", "make_envs"),
    *("n_envs", "network", "stop_at_return"),
}


class FitTrainer:
    """Makes model, data and callbacks of a run of `fit`, and calls `fit` again.

    It takes what `run.json` has of such a run, and what a `Trainer` has beside that, so
    that `tfrl.rl_trainer.train_rl` continues either.

    Args:
        output_dir: folder of the run.
        n_epochs: most epochs, counted over the whole run.
        seed: of the agent.
        resume: continue the run in `output_dir`.
        strategy: strategy on whose replicas to learn; None for the one in scope, if
            any.
        override: resume with other hyper-parameters, which `run.json` records.
        **arguments: as in `run.json`: agent, make_envs, n_envs, experience, network,
            intervals, stop_at_return, evaluation, fit.

    Raises:
        TypeError: if arguments are missing or unknown.
        ValueError: if they do not fit, or the folder is not as `resume` says.
    """

    def __init__(
        self,
        output_dir: str | os.PathLike[str],
        n_epochs: int,
        seed: int = 0,
        resume: bool = False,
        strategy: tf.distribute.Strategy | None = None,
        override: bool = False,
        **arguments: Any,
    ) -> None:
        if {*arguments} != _NAMES:
            raise TypeError(
                f"`FitTrainer`: `arguments` expected {sorted(_NAMES)}; got "
                f"{sorted(arguments)}"
            )
        self.directory, self.is_chief = pathlib.Path(output_dir), True
        self._given, self._seed = arguments, seed
        self._resume, self._override = resume, override
        fit, learned = arguments["fit"], arguments["experience"]
        scope = contextlib.nullcontext() if strategy is None else strategy.scope()
        precision = _run_record.dtype_policy_of(self.directory, resume)
        with (
            contextlib.ExitStack() as undo,
            scope,
            dtype_policies.used(precision),
        ):
            envs = self._opened(undo, fit, arguments["n_envs"])
            self.observation_space = envs.single_observation_space
            self.action_space = envs.single_action_space
            create = {**fit["create"], "seed": seed}
            if arguments["network"] is not None:
                create["network"] = arguments["network"]
            config = _plan.checked_agent(arguments["agent"])
            spaces = self.observation_space, self.action_space
            self._model = agent_model.AgentModel.create(config, *spaces, **create)
            self._model.compile(steps_per_execution=fit["steps_per_execution"])
            x, player = self._players(envs, learned, fit["seed"])
            judge = self._judge(undo)
            played = [player] if x is player else [player, x]
            intervals = arguments["intervals"]
            saved = run_checkpoint.RunCheckpoint(
                self.directory,
                dict(zip(fit["parts"], played, strict=True)),
                intervals.checkpoint_epochs,
                intervals.checkpoints_kept,
                arguments["make_envs"],
                override,
            )
            self._asked = _fit_data.Asked(
                x,
                getattr(learned, "batch_size", None),
                n_epochs,
                fit["steps_per_epoch"],
                [player, *judge, saved],
            )
            self._model.asked = self._asked
            self.record = _recorded.recorded(self._model, saved)
            self._open = undo.pop_all()

    def _opened(self, undo: contextlib.ExitStack, told: Any, n_envs: int) -> VectorEnv:
        """Makes environments; `undo` closes them."""
        maker = told["make_envs"] or self._given["make_envs"]
        (envs,) = _environments.made_envs(maker, [n_envs], undo, is_new=False)
        return envs

    def _players(self, envs: VectorEnv, learned: Any, seed: int) -> tuple[Any, Any]:
        """Returns the data of `fit`, and who plays for it."""
        if isinstance(learned, experiences.Trajectories):
            rollouts = fit_callbacks.Rollouts(envs, learned.n_steps, seed=seed)
            return rollouts, rollouts
        host = host_policy.HostPolicy(self._model.agent.policy)
        collector = collection.Collector(envs, learned.n_steps, seed)
        specs = experiences.step_specs(host, collector)
        dtypes = self._given["fit"]["dtypes"]
        kept = [
            tf.TensorSpec(spec.shape, dtype)
            for spec, dtype in zip(tf.nest.flatten(specs), dtypes, strict=True)
        ]
        replay = experiences.replay_of(
            learned,
            tf.nest.pack_sequence_as(specs, kept),
            envs.num_envs,
            np.random.default_rng(seed),
            envs,
        )
        collect = fit_callbacks.Collect(
            envs,
            replay.store,
            steps_per_batch=learned.n_steps,
            warm_up_steps=learned.learning_starts,
            seed=seed,
            every_batches=learned.n_gradient_steps(envs.num_envs),
        )
        return replay, collect

    def _judge(self, undo: contextlib.ExitStack) -> list[fit_callbacks.Evaluate]:
        told, intervals = self._given["evaluation"], self._given["intervals"]
        if told is None:
            return []
        return [
            fit_callbacks.Evaluate(
                self._opened(undo, told, told["n_envs"]),
                n_episodes=intervals.eval_episodes,
                every_epochs=intervals.eval_epochs,
                seed=told["seed"],
                stop_at=self._given["stop_at_return"],
            )
        ]

    @property
    def agent(self) -> Any:
        """The agent with the current weights."""
        return self._model.agent

    def __enter__(self) -> Self:
        """Makes sure that the folder holds this run, and no other process uses it."""
        with contextlib.ExitStack() as undo:
            undo.push(self._open)
            with _run_record.locked(self.directory, self._resume):
                asked = self._override, self._given["agent"]
                _run_record.continued(self.record, self.directory, *asked)
            undo.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        """Closes the environments."""
        self.close()

    def close(self) -> None:
        """Closes the environments; may be called twice."""
        self._open.close()

    def run(self, *, quiet: bool = False) -> evaluation.Evaluation:
        """Trains to the end and evaluates; to be called within a context.

        The first Ctrl-C (SIGTERM, SIGHUP) ends the run with a checkpoint and a
        `KeyboardInterrupt` after the current epoch, a second one at once.

        Args:
            quiet: show no progress.

        Returns:
            The final evaluation.

        Raises:
            KeyboardInterrupt: if the run was asked to end before; it is saved.
        """
        asked = self._asked
        with _processes.interruptible() as interrupted, _processes.settled():
            ending = fit_callbacks.Ending(interrupted)
            self._model.fit(
                asked.x,
                batch_size=asked.batch_size,
                steps_per_epoch=asked.steps_per_epoch,
                epochs=asked.epochs,
                callbacks=[ending, *asked.callbacks],
                verbose=0 if quiet else 2,
            )
        is_cut = interrupted() and ending.epoch < asked.epochs
        played = None if is_cut else self._evaluated()
        return _processes.finished(played, "FitTrainer", f"epoch {ending.epoch}")

    def _evaluated(self) -> evaluation.Evaluation:
        policy = host_policy.HostPolicy(self.agent.policy)
        count = self._given["intervals"].eval_episodes
        with contextlib.closing(self._given["make_envs"](n_envs=count)) as envs:
            return evaluation.evaluate(policy, envs, count, seed=self._seed)
