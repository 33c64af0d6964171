"""Rehearsals on a CPU for TPUs: what can be proven without one, and what cannot."""

import collections
import dataclasses
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import rich.console
import rich.markup
import rich.table
import tensorflow as tf

from tfrl._internal import arguments
from tfrl.schedules import progress
from tfrl.training.rehearsing import _tpu_fitness

PASSED, WARNED, FAILED = "passed", "warned", "failed"
_COLOURS = {PASSED: "green", WARNED: "yellow", FAILED: "bold red"}
_MOST_DISTANCE = 1e-6
# Sums in another order than one replica's differ by more than the one rounding error
# that measures how an agent's updates let such errors grow.
_MOST_ROUNDINGS = 10.0
# Where an update computes with less than its weights have, such an error is made in
# each of its steps, not once before them.
_MOST_COARSE_ROUNDINGS = 3.0
_LAST_BIT = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23}
_LAST_BIT["float64"] = 2.0**-52
_UNREAD = "this TensorFlow prints graphs otherwise: only the compiler was asked"
_NOT_PROVEN = (
    "that it runs at all: XLA compiled for this CPU, and our list of what TPUs lack is "
    "drawn from their documentation",
    "speed: neither of a step nor of what it waits for",
    "numbers: TPUs multiply matrices in bfloat16 unless told otherwise (8 bits of "
    "mantissa), and emulate float64",
    "memory: parameters, optimizer state and the batch must fit each core's own",
    "several hosts: start-up, their network, and a host that fails",
)
_OF_UPDATES = (
    "feeding: how fast batches get from the environments on the host to the cores",
)
_OF_PROGRAMS = (
    "that all stays on the cores: replicas meet in loops around their programs, so "
    "trajectories, rows of each gradient step and new parameters may go through the "
    "host, where a replay is",
)


@dataclasses.dataclass(frozen=True)
class RehearsalCheck:
    """One check of a rehearsal.

    Attributes:
        step: what was checked: `update` (or `collect and learn`), `act`, `replicas`.
        name: what it was checked for.
        verdict: `"passed"`, `"warned"` or `"failed"`.
        details: why, and where in the source.

    Example:
        >>> RehearsalCheck("update", "static shapes", "passed").details
        ()
    """

    step: str
    name: str
    verdict: str
    details: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Rehearsal:
    """What `rehearse` found.

    Attributes:
        title: what was rehearsed.
        checks: in the order in which they were made.
        not_proven: what no check here can show.

    Example:
        >>> check = RehearsalCheck("update", "traced as a graph", "failed")
        >>> Rehearsal("an agent", (check,)).passed
        False
    """

    title: str
    checks: tuple[RehearsalCheck, ...]
    not_proven: tuple[str, ...] = (*_NOT_PROVEN, *_OF_UPDATES)

    @property
    def passed(self) -> bool:
        """Whether no check failed; warnings do not count."""
        return all(check.verdict != FAILED for check in self.checks)

    def show(self, console: rich.console.Console | None = None) -> None:
        """Prints the report.

        Args:
            console: where to; None takes standard output.
        """
        console = rich.console.Console() if console is None else console
        console.print(f"[bold]Rehearsal for TPUs, on a CPU:[/] {self.title}")
        for step in dict.fromkeys(check.step for check in self.checks):
            console.print(f"\n[bold]{step}[/]")
            table = _table(6, 28, None)
            for check in self.checks:
                if check.step == step:
                    verdict = f"[{_COLOURS[check.verdict]}]{check.verdict}[/]"
                    details = rich.markup.escape("\n".join(check.details))
                    table.add_row(verdict, check.name, details)
            console.print(table)
        console.print("\n[bold]Not proven without a TPU[/]")
        table = _table(1, None)
        for text in self.not_proven:
            table.add_row("-", text)
        console.print(table)
        verdicts = collections.Counter(check.verdict for check in self.checks)
        counts = [f"{verdicts[each]} {each}" for each in _COLOURS]
        colour = _COLOURS[PASSED if self.passed else FAILED]
        console.print(f"\n[{colour}]{', '.join(counts)}[/]")


def _table(*widths: int | None) -> rich.table.Table:
    table = rich.table.Table.grid(padding=(0, 2))
    for width in widths:
        table.add_column(width=width)
    return table


def rehearse(
    agent: Any,
    batch: Any,
    observations: Any,
    *,
    strategy: tf.distribute.Strategy | None = None,
    n_updates: int = 3,
    update: Callable[..., Any] | None = None,
) -> Rehearsal:
    """Checks on a CPU whether an agent is fit for TPUs, as far as a CPU can show.

    Its update and its acting are traced for the shapes given, searched, with all
    functions they call, for what a TPU cannot do, and compiled by XLA. Then the
    replicas of `strategy` take some updates and must learn what one replica learns
    from the same global batch:

        max |w(N replicas) - w(1 replica)| <= 1e-6

    over all floating leaves of the agent. Where more than that is explained by how
    rounding errors grow in so many gradient steps, it is a warning: an agent whose
    weights differ in their last bit is updated too, for comparison. If the update
    computes in bfloat16 or float16, so do weights that differ in the last bit of that,
    and how they move may explain it; a rehearsal in float32 proves more.

    Args:
        agent: a `PyTreeNode` with `update(batch) -> (agent, info)` and a `policy`, see
            `tfrl.agents.Agent`; PPO's, for instance.
        batch: what `update` takes, such as a `Trajectory`, of the sizes to be used.
        observations: what its policy acts on, `[B, ...]`.
        strategy: its replicas are compared with one, such as eight virtual ones by
            `tfrl.distribute.strategy("rehearsal:8")`, to be made first thing in the
            process; None leaves that check out.
        n_updates: how many updates the replicas take.
        update: a program that collects too, in place of the agent's own update: from
            the agent and `batch`, where it starts, to the new agent and anything else;
            `Trainer.rehearsed` returns batch and update.

    Returns:
        The report; `report.show()` prints it.

    Raises:
        ValueError: if `n_updates` is not positive.
        TypeError: if `agent` has no policy.

    Example:
        >>> agent = tfrl.agents.BC(hidden_units=(4,)).create(
        ...     gym.spaces.Box(-1.0, 1.0, (2,)), gym.spaces.Discrete(2), seed=0)
        >>> observations = np.zeros((4, 2), np.float32)
        >>> batch = {"observations": observations, "actions": np.zeros(4, np.int64)}
        >>> report = rehearse(agent, batch, observations)
        >>> report.passed, len(report.checks)
        (True, 18)
    """
    arguments.check_whole_number("rehearse", "n_updates", n_updates, low=1)
    if not hasattr(agent, "policy") or not hasattr(agent, "update"):
        raise TypeError(
            "`rehearse`: `agent` expected one with `update` and `policy`; got "
            f"{agent!r:.80}"
        )
    batch, observations = tf.nest.map_structure(
        tf.convert_to_tensor, (batch, observations)
    )
    step, own = "collect and learn", update
    if own is None:
        step, own = "update", lambda agent, batch: agent.update(batch)
    learn = _compiled(own)
    drawn = _compiled(lambda agent, *given: _acted(agent.policy, *given))
    greedy = _compiled(lambda agent, *given: _acted(agent.policy, *given, greedy=True))
    seed = tf.constant([0, 1])
    state = agent.policy.initial_state(len(tf.nest.flatten(observations)[0]))
    with tf.device("CPU:0"):
        found = list(_checked_step(step, learn, agent, batch))
        if found[-1].verdict == FAILED:
            learn = own  # as it is, to compare the replicas with
        found += _checked_step("act", drawn, agent, observations, state, seed)
        found += _checked_step("act, greedy", greedy, agent, observations, state, seed)
    if strategy is not None:
        # Agents cut their updates by themselves; a program is one graph.
        shared = own if update is None else tf.function(own, autograph=False)
        # All updates are the first ones of a run.
        with progress.progress_context(progress.Progress(percent=0.0)):
            found.append(
                _checked_replicas(agent, (learn, shared), batch, strategy, n_updates)
            )
    if update is not None:
        title = f"{type(agent).__name__}, collecting and learning"
        return Rehearsal(title, tuple(found), (*_NOT_PROVEN, *_OF_PROGRAMS))
    shapes = {f"{np.shape(leaf)[:2]}" for leaf in tf.nest.flatten(batch)}
    title = f"{type(agent).__name__}, update of {' '.join(sorted(shapes))}"
    return Rehearsal(title, tuple(found))


def _acted(
    policy: Any, observations: Any, state: Any, seed: tf.Tensor, *, greedy: bool = False
) -> Any:
    temperature = 0.0 if greedy else 1.0
    acted = policy.act(observations, state, seed=seed, temperature=temperature)
    return acted.actions, acted.state


def _compiled(function: Callable[..., Any]) -> Any:
    return tf.function(function, autograph=False, jit_compile=True)


def _checked_step(step: str, compiled: Any, *nests: Any) -> Iterator[RehearsalCheck]:
    """Traces, searches and compiles a function of nests of tensors."""
    try:
        concrete = compiled.get_concrete_function(*nests)
    except Exception as error:  # noqa: BLE001 - whatever the agent's code raises
        yield RehearsalCheck(step, "traced as a graph", FAILED, (_brief(error),))
        return
    found = _tpu_fitness.operations(concrete)
    if not found:
        yield RehearsalCheck(step, "operations read", WARNED, (_UNREAD,))
    for name, required, findings_of in _tpu_fitness.CHECKS if found else ():
        findings = findings_of(found)
        bad = FAILED if required else WARNED
        details = _tpu_fitness.described(findings)
        yield RehearsalCheck(step, name, bad if findings else PASSED, details)
    start = time.perf_counter()
    try:
        compiled(*nests)
    except (tf.errors.OpError, ValueError, TypeError) as error:
        yield RehearsalCheck(step, "compiled by XLA", FAILED, (_brief(error),))
        return
    spent = f"{len(found)} operations in {time.perf_counter() - start:.1f} s"
    yield RehearsalCheck(step, "compiled by XLA", PASSED, (spent,))


def _checked_replicas(
    agent: Any,
    updates: tuple[Callable[..., Any], Callable[..., Any]],
    batch: Any,
    strategy: tf.distribute.Strategy,
    n_updates: int,
) -> RehearsalCheck:
    """Holds what the second of two updates does on replicas against the first alone."""
    learn, learn_together = updates
    step, name = "replicas", f"{strategy.num_replicas_in_sync} learn what 1 learns"
    alone, shared, nudged = agent, agent, _nudged(agent)
    coarse = _coarsest(learn, agent, batch)
    start = rounded = None if coarse is None else _nudged(agent, coarse)
    try:
        for _ in range(n_updates):
            alone, _ = learn(alone, batch)
            nudged, _ = learn(nudged, batch)
            if rounded is not None:
                rounded, _ = learn(rounded, batch)
            with strategy.scope():
                shared, _ = learn_together(shared, batch)
    except Exception as error:  # noqa: BLE001 - whatever the agent's code raises
        return RehearsalCheck(step, name, FAILED, (_brief(error),))
    distance, rounding = _distance(alone, shared), _distance(alone, nudged)
    text = f"max |dw| = {distance:.1e} after {n_updates} updates of the same batch"
    if distance <= _MOST_DISTANCE:
        return RehearsalCheck(step, name, PASSED, (text,))
    text += f", {_MOST_DISTANCE:.0e} allowed"
    explained = _MOST_ROUNDINGS * rounding
    grown = f"one rounding error in each weight grows to {rounding:.1e} meanwhile"
    more = "fewer gradient steps per update"
    if rounded is not None:
        # Not how far the weights were put, which their own dtype resolves.
        moved = _distance(_moves(agent, alone), _moves(start, rounded))
        explained = max(explained, _MOST_COARSE_ROUNDINGS * moved)
        compute = f"one of {coarse}, in which the update computes, moves them"
        grown += f", and {compute} {moved:.1e}"
        more = "a rehearsal in float32"
    if distance <= explained:
        text += f"; {grown}: {more} would prove more"
        return RehearsalCheck(step, name, WARNED, (text,))
    text += f"; {grown}: is something summed, or normalized, by replica?"
    return RehearsalCheck(step, name, FAILED, (text,))


def _coarsest(learn: Any, agent: Any, batch: Any) -> str | None:
    """The half-precision dtype in which a compiled update computes, if any."""
    if not hasattr(learn, "get_concrete_function"):
        return None
    operations = _tpu_fitness.operations(learn.get_concrete_function(agent, batch))
    return _tpu_fitness.half_precision(operations)


def _nudged(agent: Any, dtype: str | None = None) -> Any:
    """The agent with the last bits of its floats changed, as other sums would.

    They are those of another dtype, if that has fewer bits.
    """

    def nudge(leaf: Any) -> Any:
        if not (tf.is_tensor(leaf) and leaf.dtype.is_floating):
            return leaf
        signs = tf.random.stateless_uniform(leaf.shape, [0, 1], -1, 2, tf.int32)
        own = leaf.dtype.name
        bit = max(_LAST_BIT[own], _LAST_BIT[dtype or own])
        return leaf * (1 + tf.cast(signs, leaf.dtype) * bit)

    return tf.nest.map_structure(nudge, agent)


def _moves(one: Any, other: Any) -> Any:
    """How far each floating leaf has come; of other leaves, the first."""
    return tf.nest.map_structure(
        lambda x, y: y - x if tf.is_tensor(x) and x.dtype.is_floating else x, one, other
    )


def _distance(one: Any, other: Any) -> float:
    """The greatest distance between floating leaves; NaN if one is NaN."""
    pairs = zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True)
    distances = [
        np.abs(np.asarray(x, np.float64) - np.asarray(y, np.float64)).ravel()
        for x, y in pairs
        if tf.is_tensor(x) and x.dtype.is_floating
    ]
    return float(np.max(np.concatenate([np.zeros(1), *distances])))


def _brief(error: BaseException) -> str:
    """The first words of an error; compilers tell long stories."""
    text = re.sub(r"\[_XlaMustCompile[^\]]*\]", "", " ".join(str(error).split()))
    text = text if len(text) <= 300 else f"{text[:300]} ..."
    return f"{type(error).__name__}: {text}"
