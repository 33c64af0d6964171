"""The front door: trains what a gin file describes.

    python -m tfrl.rl_trainer --config_file=configs/ppo_cartpole.gin --output_dir=...

A gin file is code: what it imports runs. Train only what you would execute. With
`--resume` and `--output_dir` alone, a run continues as its folder describes it.
"""

import sys

from tfrl import entry
from tfrl._internal import lazy_doors, output

if __name__ == "__main__":
    # TensorFlow is loaded below: neither --help nor a wrong flag waits for it.
    entry.train_flags(None, "python -m tfrl.rl_trainer")
    entry.begin(may_lose_output=True)
else:
    lazy_doors.imported("keras")  # and with it TensorFlow

import argparse
import contextlib
import functools
import importlib.util
import logging
import os
import pathlib
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import gin
import numpy as np
import tensorflow as tf

from tfrl._internal import acting, checks, dtype_policies
from tfrl.configuring import configs
from tfrl.distribute import strategies
from tfrl.exporting import export, policies
from tfrl.policies import network_policy
from tfrl.saving import checkpoints
from tfrl.summaries import run_log
from tfrl.summaries.plotting import curves
from tfrl.training import configurables, evaluation, saved_run, trainer
from tfrl.training.rehearsing import rehearsal

_INSTEAD = {f"Trainer.{name}": f"train_rl.{name}" for name in ("n_epochs", "seed")}
_UNSAID = "# See run.json: gin has no words for this run."
configs.register(configurables.CONFIGURABLES)


def _configurable(function: Callable[..., Any]) -> Callable[..., Any]:
    denylist = ["output_dir", "resume", "strategy", "rehearsal_strategy", "override"]
    # A configuration may have been parsed before this module is imported.
    with gin.unlock_config():
        return gin.configurable("train_rl", module="tfrl", denylist=denylist)(function)


@_configurable
def train_rl(
    output_dir: str | os.PathLike[str],
    n_epochs: int | None = None,
    light_rl: bool = True,
    light_rl_trainer: Callable[..., trainer.Trainer] = trainer.Trainer,
    seed: int = 0,
    resume: bool = False,
    strategy: tf.distribute.Strategy | None = None,
    rehearsal_strategy: tf.distribute.Strategy | None = None,
    override: bool = False,
    dtype_policy: str | None = None,
) -> evaluation.Evaluation | rehearsal.Rehearsal:
    """Trains an agent and leaves everything of the run in `output_dir`.

    That is `config.gin` (what was used, enough to repeat the run where gin can say it),
    `run.json` (the same for programs: enough to open the run), `metrics.csv`,
    TensorBoard events, `checkpoints/`, `best/` (the agent that was evaluated best), and
    at the end `policy/` (a SavedModel, of a policy of `tfrl.policies`) and
    `learning_curve.png` (with matplotlib installed, of episodes that ended).

    Args:
        output_dir: folder of the run.
        n_epochs: most epochs, counted over the whole run, each a trajectory collected
            and learned from; None as with `Trainer`.
        light_rl: kept for old configurations; has no effect.
        light_rl_trainer: makes the trainer from `output_dir`, `n_epochs`, `seed` and
            `resume`: `Trainer`, or a partial of it. Another process must be able to
            import functions among its arguments.
        seed: of everything random.
        resume: continue the run in `output_dir`.
        strategy: passed on to the trainer if given; with several workers, each calls
            this function, and the chief writes the files.
        rehearsal_strategy: train nothing and write nothing, but rehearse on these
            replicas, see `tfrl.training.rehearse`.
        override: resume with other hyper-parameters; see `Trainer`.
        dtype_policy: name of the dtype policy of Keras by which networks are made, such
            as "mixed_bfloat16"; None for that of the run that is resumed, or the one in
            force.

    Returns:
        The final evaluation; for a rehearsal, its report.

    Raises:
        KeyboardInterrupt: if the run was asked to end before; it can be resumed.
        ValueError: if anything asked for does not fit, before a file is written.

    Example:
        >>> import functools, tempfile
        >>> make_trainer = functools.partial(
        ...     tfrl.training.Trainer,
        ...     agent=tfrl.agents.PPO(minibatch_size=8),
        ...     make_envs=functools.partial(tfrl.environments.make_vec, "CartPole-v1"),
        ...     n_envs=2, experience=tfrl.training.Trajectories(n_steps=4),
        ...     intervals=tfrl.training.Intervals(eval_episodes=2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     played = train_rl(folder, n_epochs=2, light_rl_trainer=make_trainer)
        ...     print(sorted(os.listdir(folder))[:3])
        tmp... 100%  16/16 steps ...
        ['best', 'checkpoints', 'config.gin']
    """
    del light_rl
    seed = checks.check_whole_number("train_rl", "seed", seed, low=0)
    options: dict[str, Any] = {} if strategy is None else {"strategy": strategy}
    options |= {"override": True} if override else {}
    options |= {"n_epochs": n_epochs, "seed": seed, "resume": resume}
    dtype_policies.check("train_rl", dtype_policy)
    with dtype_policies.asked(dtype_policy):
        running = light_rl_trainer(output_dir=output_dir, **options)
    try:
        configs.check_all_used(["Trainer.override"] if override else [], _INSTEAD)
        config = "" if rehearsal_strategy else _config_of(running)
        spaces = running.observation_space, running.action_space
        if not resume:  # a run of earlier versions may have other names
            policies.policy_inputs(spaces[0], policies.taken(running.agent, spaces[1]))
    except BaseException:
        running.close()
        raise
    if rehearsal_strategy is not None:
        with contextlib.closing(running):
            given, update = running.rehearsed()
            agent, seen = running.agent, running.observations
            return rehearsal.rehearse(
                agent, given, seen, strategy=rehearsal_strategy, update=update
            )
    with running:
        if running.is_chief:
            configs.write(running.directory, text=config)
        before = checkpoints.latest_step(running.directory)
        played = running.run()
        if not running.is_chief:
            return played
        if before == checkpoints.latest_step(running.directory):
            output.say("the run had already ended its training; it was evaluated again")
        if isinstance(running.agent.policy, network_policy.NetworkPolicy):
            step = checkpoints.latest_step(running.directory)
            export.export_policy(
                running.agent,
                running.directory / "policy",
                *spaces,
                overwrite=True,
                metadata=saved_run.metadata_of(running.directory, step),
            )
    metrics = run_log.read_metrics(running.directory / "metrics.csv")
    is_known = any(np.isfinite(metrics.get(x, np.nan)).any() for x in curves.RETURNS)
    picture = running.directory / "learning_curve.png"
    if is_known and importlib.util.find_spec("matplotlib") is not None:
        curves.plot_learning_curve(metrics, picture, title=running.directory.name)
    return played


def _config_of(running: trainer.Trainer) -> str:
    """The text of `config.gin`; a run of which nothing tells how to open it ends."""
    if "light_rl_trainer" in gin.get_bindings(train_rl, resolve_references=False):
        return configs.operative()
    for place, what in running.record.lost.items():
        raise ValueError(
            "`train_rl`: `light_rl_trainer` expected arguments that another process "
            f"can make again, to open the run; got {place} = {what}; define it in a "
            "module that can be imported, or use `functools.partial` of what is in "
            "one; of a network, a function that makes it"
        )
    text = running.record.as_gin(configurables.CONFIGURABLES)
    return f"{_UNSAID}\n" if text is None else text


def open_run(
    directory: str | os.PathLike[str], step: int | str | None = None
) -> saved_run.SavedRun:
    """Rebuilds the agent of a run from its files, and environments if played.

    The files are `run.json`, which names what is imported, and for older runs
    `config.gin`, which is code: open only what you would execute. `config.gin` replaces
    a configuration parsed before and is forgotten when the run is built, and
    environments are made at once.

    Args:
        directory: folder of the run.
        step: the checkpoint, by its environment steps; None for the newest, "best" for
            the policy with the highest mean return of all evaluations.

    Returns:
        The run, to be used as a context: it evaluates, records and exports.

    Raises:
        ValueError: if the folder holds no run, or what it holds does not fit together.

    Example:
        >>> open_run("no/such/run")
        Traceback (most recent call last):
        ...
        ValueError: `open_run`: `directory` expected the folder of a run, with \
run.json or config.gin; got 'no/such/run' without
    """
    recorded = saved_run.SavedRun.reopen(directory, step)
    if recorded is not None:
        return recorded
    config = saved_run.config_in("`open_run`: `directory`", directory)
    try:
        configs.parse([config])
        bound = gin.get_bindings(train_rl)
        make: Any = bound.pop("light_rl_trainer", trainer.Trainer)
        bound.pop("light_rl", None)
        policy = bound.pop("dtype_policy", None)
        with dtype_policies.used(policy), saved_run.as_recorded(directory):
            like = make(output_dir=directory, **bound)
    finally:
        configs.clear()
    try:
        return saved_run.SavedRun(like, step)
    except BaseException:
        like.close()
        raise


def in_one_line(error: BaseException) -> str:
    r"""Returns the message of an error in one line, without the calls that gin lists.

    Args:
        error: from a call that gin made, or any other.

    Returns:
        The text; for an error from an actor, all its lines.

    Example:
        >>> in_one_line(ValueError("got 7\n  In call to configurable 'PPO' (<class>)"))
        'got 7'
    """
    text, *_ = str(error).split("\n  In call to configurable '")
    return text if isinstance(error, acting.ActorFailed) else " ".join(text.split())


def main(
    argv: Sequence[str] | None = None, prog: str = "python -m tfrl.rl_trainer"
) -> int:
    """Runs the command line.

    Args:
        argv: arguments without the program's name; those of the process by default.
        prog: how the program is called, for its messages.

    Returns:
        0 after a complete run, 130 after an interrupted one, with a line on stdout on
        how to resume what was saved, 1 after a rehearsal with a failure, 75 if another
        worker or a process of the environments is gone, or nobody answers at an
        address, and the run is to be resumed, 2 for bad input. For the last two, one
        line on stderr gives the reason; an environment that raises in an actor gives 2,
        and its traceback follows.

    Example:
        >>> main(["absent.gin"])
        2
    """
    flags = entry.train_flags(argv, prog)
    logging.basicConfig(level=flags.log_level.upper())
    files = [*flags.config, *flags.config_file]
    output_dir = entry.output_dir(flags)
    try:
        played = _train(flags, files, output_dir)
    except KeyboardInterrupt:
        played = None
    except (ValueError, TypeError, OSError, ImportError, acting.ActorFailed) as error:
        if flags.log_level == "debug":
            raise
        output.complain(f"{entry.short(prog)}: error: {in_one_line(error)}")
        return 75 if isinstance(error, ConnectionError) else 2
    if isinstance(played, rehearsal.Rehearsal):
        played.show()
        return 0 if played.passed else 1
    if played is None:
        if checkpoints.latest_step(output_dir) is None:
            output.say("interrupted before anything was saved")
            return 130
        again = [*files, *(f"--config={binding}" for binding in flags.binding)]
        again += [] if flags.strategy is None else [f"--strategy={flags.strategy}"]
        again += [f"--output_dir={output_dir}", "--resume"]
        output.say(f"interrupted and saved; resume with: {prog} {shlex.join(again)}")
        return 130
    output.say(
        f"final evaluation: return {played.returns.mean():.1f} "
        f"(standard deviation {played.returns.std():.1f}, "
        f"{len(played.returns)} episodes)\n"
        f"everything is in {output_dir}; watch it: tensorboard "
        f"{shlex.quote(f'--logdir={output_dir}')}"
    )
    return 0


def _train(
    flags: argparse.Namespace, files: Sequence[str], output_dir: str
) -> evaluation.Evaluation | rehearsal.Rehearsal | None:
    # First of all: TensorFlow takes its devices when it first computes.
    chosen, replicas = None, None
    if flags.strategy is not None:
        chosen = strategies.strategy(flags.strategy)
    if flags.rehearse is not None:
        replicas = strategies.strategy(f"rehearsal:{flags.rehearse}")
    options: dict[str, Any] = {}
    if files or not flags.resume:
        configs.parse(files, flags.binding)
    else:
        options = _as_recorded(output_dir, flags.binding)
    return train_rl(
        output_dir,
        **options,
        resume=flags.resume,
        strategy=chosen,
        rehearsal_strategy=replicas,
        override=flags.override,
    )


def _as_recorded(directory: str, bindings: Sequence[str]) -> dict[str, Any]:
    """Configures a run as its folder says, and by bindings; returns the other part.

    Raises:
        ValueError: if the folder does not say enough.
    """
    record = saved_run.record_of(directory)
    config = pathlib.Path(directory, "config.gin")
    is_told = config.is_file() and _UNSAID not in config.read_text("utf-8")
    if record is None or (is_told and record.made_by == "Trainer"):
        found = saved_run.config_in("`train_rl`: `output_dir`", directory)
        configs.parse([found], bindings)
        return {}
    given, text = record.made(), record.as_gin(configurables.CONFIGURABLES)
    if text is not None:
        configs.parse(bindings=[*filter(None, text.splitlines()), *bindings])
        return {}
    front = [f"train_rl.{name} = {given.pop(name)}" for name in ("n_epochs", "seed")]
    configs.parse(bindings=[*front, *bindings])
    # What is bound takes the place of what the folder says.
    made_by = gin.get_configurable(record.made_by)
    for name in gin.get_bindings(record.made_by, resolve_references=False):
        given.pop(name, None)
    return {"light_rl_trainer": functools.partial(made_by, **given)}


if __name__ == "__main__":
    entry.loaded()
    sys.exit(main())
