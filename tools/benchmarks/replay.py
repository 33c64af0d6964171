"""Replay buffers: tfrl, Stable-Baselines3, cpprb, torchrl, TF-Agents and flashbax.

Timed are, on one core and one thread: adding a step of 8 environments, and of 256;
drawing 256 transitions uniformly, and by priority; setting the priorities of 256; and
these together, as training does them: who leaves work for later does it then. Buffers
are full before the clock starts, of two kinds of rows:

    floats   4 float32, capacity 100,000
    images   84x84x4 uint8, capacity 20,000

What is drawn is checked against what was added. Everyone gets steps as what it takes
fastest, arrays or tensors made before the clock starts, other ones every call, and
contenders take turns; each figure is the median over the rounds.

Whole transitions with both observations are kept by Stable-Baselines3, cpprb, torchrl,
and tfrl's `DataBuffer` and `RingBuffer`; observations are kept once by TF-Agents,
flashbax and tfrl's `EpisodeStore`. With `out=` samples are read into the arrays of an
earlier one. The floor is `numpy.take(out=)` of the five arrays of transitions alone.

    tools/bench replay
    tools/bench replay --rounds 51 --sizes images
"""

import functools
import gc
import statistics

from harness import one_core

one_core.start_again()

import numpy as np  # noqa: E402
import rich.table  # noqa: E402
from harness import turns  # noqa: E402
from peers import replay_steps, replay_tfrl  # noqa: E402

try:
    from peers import replay_torch
except ImportError:
    replay_torch = None
try:
    from peers import replay_cpprb
except ImportError:
    replay_cpprb = None
try:
    from peers import replay_tf_agents
except ImportError:
    replay_tf_agents = None
try:
    from peers import replay_jax
except ImportError:
    replay_jax = None

BATCH = 256
FLOOR = "floor: take(out=)"
BASE = "tfrl EpisodeStore"
CASES = {
    "floats": replay_steps.Case((4,), np.float32, 100_000),
    "images": replay_steps.Case((84, 84, 4), np.uint8, 20_000),
}


def contenders():
    """Names of makers, those that draw uniformly and by priority; what is missing."""
    uniform = {
        "tfrl EpisodeStore": replay_tfrl.Episodes,
        "tfrl DataBuffer": replay_tfrl.Rows,
        "tfrl RingBuffer": replay_tfrl.RowsOfEnvironments,
        "Stable-Baselines3": replay_torch and replay_torch.StableBaselines3,
        "cpprb": replay_cpprb and replay_cpprb.Cpprb,
        "torchrl": replay_torch and replay_torch.Torchrl,
        "TF-Agents": replay_tf_agents and replay_tf_agents.TfAgents,
        "flashbax": replay_jax and replay_jax.Flashbax,
        FLOOR: replay_tfrl.Floor,
    }
    has_trees = replay_torch and replay_torch.has_trees
    prioritized = {
        "tfrl EpisodeStore": replay_tfrl.ByPriority,
        "cpprb": replay_cpprb and replay_cpprb.CpprbPrioritized,
        "torchrl": has_trees and replay_torch.TorchrlPrioritized,
        "flashbax": replay_jax and replay_jax.FlashbaxPrioritized,
        FLOOR: replay_tfrl.Floor,
    }
    missing = [name for name, make in uniform.items() if not make]
    missing += [f"{name} by priority" for name, make in prioritized.items() if not make]
    return (
        {name: make for name, make in uniform.items() if make},
        {name: make for name, make in prioritized.items() if make},
        missing,
    )


def check(name, make):
    """Raises unless a contender gives back what was added, by priority if it can."""
    case, width, count = replay_steps.Case((3, 2), np.uint8, 512), 8, 100
    contender = make(case, width)
    if not hasattr(contender, "read"):
        return
    steps = replay_steps.episodes(case, width, count)
    for step in steps:
        contender.add(*contender.ready(step))
    added = [
        np.concatenate([step[k] for step in steps])
        for k in range(len(replay_steps.Step._fields))
    ]
    for _ in range(20):
        found = [np.array(leaf) for leaf in contender.read(contender.sample(BATCH))]
        order = found[2].astype(int)
        # Who keeps observations once and knows no episodes gives others after an end.
        inside = ~(added[3] | added[4])[order]
        same = [
            np.array_equal(leaf, added[k][order]) for k, leaf in enumerate(found[:4])
        ]
        same.append(np.array_equal(found[4][inside], added[5][order][inside]))
        recent = order.min() >= (count * width - case.capacity - width)
        if not all(same) or not recent:
            raise RuntimeError(f"{name} draws other transitions than were added")
    if hasattr(contender, "set"):
        check_priorities(name, contender, contender.sample(BATCH))


def check_priorities(name, contender, found):
    chosen = np.unique(np.array(contender.read(found)[2]), return_index=True)
    numbers = contender.priorities(np.full(BATCH, 1000.0, np.float32))
    contender.set(contender.indices(found), numbers)
    share = np.mean(
        [
            np.isin(contender.read(contender.sample(BATCH))[2], chosen[0]).mean()
            for _ in range(20)
        ]
    )
    mass = len(chosen[0]) * 1000.0**0.6
    expected = mass / (mass + 512 - len(chosen[0]))
    if abs(share - expected) > 0.02:
        raise RuntimeError(f"{name} draws {share:.3f}, not {expected:.3f}, by priority")


def filled(makers, case, width):
    """Contenders whose buffers are full, and the steps they add, without an end."""
    made, ready = {}, {}
    for name, make in makers.items():
        contender = made[name] = make(case, width)
        if hasattr(contender, "add"):
            ready[name] = replay_steps.filled(contender, case, width)
    return made, ready


def adding(made, ready):
    return {name: (made[name].add, batches) for name, batches in ready.items()}


def drawing(made):
    found = {}
    for name, contender in made.items():
        if hasattr(contender, "sample"):
            found[name] = contender.sample, [(BATCH,)]
        if hasattr(contender, "sample_into"):
            found[f"{name}, out="] = (
                contender.sample_into,
                [(BATCH, contender.sample(BATCH))],
            )
    return found


def setting(made):
    rng, found = np.random.default_rng(0), {}
    for name, contender in made.items():
        if hasattr(contender, "set"):
            found[name] = (
                contender.set,
                [
                    (
                        contender.indices(contender.sample(BATCH)),
                        contender.priorities(rng.random(BATCH, np.float32)),
                    )
                    for _ in range(64)
                ],
            )
    return found


def training(made, ready):
    """What comes between two updates: a step is added, a batch drawn and weighed."""
    found = {}
    for name, batches in ready.items():
        if hasattr(made[name], "sample"):
            found[name] = functools.partial(turn, made[name]), batches
        if hasattr(made[name], "turn"):
            found[f"{name}, one call"] = made[name].turn, batches
    return found


def turn(contender, *step):
    contender.add(*step)
    found = contender.sample(BATCH)
    if hasattr(contender, "set"):
        numbers = contender.priorities(np.ones(BATCH, np.float32))
        contender.set(contender.indices(found), numbers)


def measure(uniform, by_priority, case, rounds):
    """Operation -> name -> microseconds a call, one entry for each round."""

    def timed(calls):
        runs = {name: turns.prepared(*call) for name, call in calls.items()}
        return turns.measure(runs, rounds)

    results = {}
    made, ready = filled(uniform, case, 256)
    results["add 256"] = timed(adding(made, ready))
    del made, ready
    gc.collect()
    made, ready = filled(uniform, case, 8)
    results["add 8"] = timed(adding(made, ready))
    results["draw"] = timed(drawing(made))
    results["turn"] = timed(training(made, ready))
    del made, ready
    gc.collect()
    made, ready = filled(by_priority, case, 8)
    results["draw by priority"] = timed(drawing(made))
    results["set priorities"] = timed(setting(made))
    results["turn by priority"] = timed(training(made, ready))
    return results


def summary(results):
    """The best of tfrl beside the best peer, and beside the floor, round by round."""
    found = rich.table.Table(title="tfrl beside the best peer, and beside the floor")
    for head in ("", "tfrl", "best peer", "tfrl / peer", "tfrl / floor"):
        found.add_column(head, justify="right" if head else "left")
    for size, operations in results.items():
        for operation in TITLES:
            times = operations[operation]
            mine = [name for name in times if name.startswith("tfrl")]
            ours = fastest(times, mine)
            peer = fastest(times, [*{*times} - {FLOOR, *mine}])
            found.add_row(
                f"{size}: {operation}",
                text(ours, times).removeprefix("tfrl "),
                text(peer, times),
                ratio(times, ours, peer),
                ratio(times, ours, FLOOR),
            )
    return found


def fastest(times, names):
    return min(names, key=lambda name: statistics.median(times[name]), default=None)


def text(name, times):
    return "" if name is None else f"{name} {statistics.median(times[name]):,.1f}"


def ratio(times, mine, other):
    if other not in times:
        return ""
    pairs = zip(times[mine], times[other], strict=True)
    return f"{statistics.median(one / two for one, two in pairs):.2f}"


TITLES = {
    "add 8": "add a step of 8 environments",
    "add 256": "add a step of 256 environments",
    "draw": "draw 256 uniformly",
    "turn": "add a step of 8 environments, draw 256 uniformly",
    "draw by priority": "draw 256 by priority",
    "set priorities": "set the priorities of 256",
    "turn by priority": "add a step of 8, draw 256 by priority, set their priorities",
}


def main():
    arguments = turns.parser(__doc__, tuple(CASES), "ROWS").parse_args()
    console = turns.console()
    packages = ("numpy", "tensorflow", "stable-baselines3", "cpprb", "torch", "torchrl")
    packages += ("tf-agents", "jax", "flashbax")
    console.print(turns.versions(packages), highlight=False)
    uniform, by_priority, missing = contenders()
    for name in missing:
        console.print(f"{name} left out: it is missing or does not load")
    for name, make in (*uniform.items(), *by_priority.items()):
        check(name, make)
    results = {
        size: measure(uniform, by_priority, CASES[size], arguments.rounds)
        for size in arguments.sizes
    }
    for operation, title in TITLES.items():
        times = {size: found[operation] for size, found in results.items()}
        console.print(turns.table(title, times, BASE))
    console.print(summary(results))


if __name__ == "__main__":
    main()
