"""Actor processes: environment steps a second, memory, and the time to the first step.

An environment's step takes a millisecond: it sleeps (as behind a network or a
simulator of its own), or it computes. Played are one actor and `--actors` of them, by
turns, for `--seconds` each, and as a peer Gymnasium's `AsyncVectorEnv` of as many
environments, whose steps wait for each other, under the same network in this process.
Ratios are taken round by round. On a machine shared with others they say little of
environments that compute; the processor time does:

    steps/s     that arrived in the learner's process
    CPU         ms of processor time a step, of the actors + of the learner
    start       seconds until the first step of every actor arrived
    RSS, PSS    MB of the largest actor; PSS counts shared pages in part

    tools/bench actors
    tools/bench actors --rounds 9 --actors 2 4 8
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gymnasium as gym  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
import rich.table  # noqa: E402
from harness import turns  # noqa: E402

import tfrl  # noqa: E402

STEP_SECONDS = 1e-3


class Sleeping(gym.Env):
    """Steps that wait."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,))
    action_space = gym.spaces.Discrete(3)
    steps = 0

    def reset(self, *, seed=None, options=None):  # noqa: ARG002
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.random(4, np.float32), {}

    def step(self, action):  # noqa: ARG002
        self.wait()
        self.steps += 1
        seen = np.full(4, self.steps, np.float32)
        return seen, 1.0, False, self.steps == 200, {}

    def wait(self):
        time.sleep(STEP_SECONDS)


class Computing(Sleeping):
    """Steps that take processor time, however long that is on a shared machine."""

    def wait(self):
        end = time.thread_time() + STEP_SECONDS
        while time.thread_time() < end:
            pass


KINDS = {"sleeping": Sleeping, "computing": Computing}


def draw(outputs, rng):
    return (outputs + rng.gumbel(size=outputs.shape)).argmax(-1)


def new_network():
    layers = [keras.layers.Dense(64, "tanh") for _ in range(2)]
    return keras.Sequential([keras.Input([4]), *layers, keras.layers.Dense(3)])


def megabytes(pid):
    """Resident and proportional memory of a process."""
    found = {}
    with open(f"/proc/{pid}/smaps_rollup") as file:
        for line in file:
            name, value, *_ = line.split()
            if name in ("Rss:", "Pss:"):
                found[name] = int(value) / 1024
    return found["Rss:"], found["Pss:"]


def children():
    me = os.getpid()
    with open(f"/proc/{me}/task/{me}/children") as file:
        return set(map(int, file.read().split()))


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def ignore(trajectory, env_ids):
    pass


def measured(seconds, pids, steps, play):
    """What is reported, of steps that `play` plays or waits for."""
    sizes = [megabytes(pid) for pid in pids]
    me = [os.getpid()]
    before = [sum(map(processor_seconds, each)) for each in (pids, me)]
    first, start = steps(), time.perf_counter()
    play(seconds)
    taken, count = time.perf_counter() - start, steps() - first
    after = [sum(map(processor_seconds, each)) for each in (pids, me)]
    spent = [1e3 * (y - x) / count for x, y in zip(before, after, strict=True)]
    return count / taken, *spent, *map(max, zip(*sizes, strict=True))


def play_actors(kind, count, seconds):
    before, start = children(), time.perf_counter()
    with tfrl.training.Actors(KINDS[kind], new_network(), ignore, count, draw) as found:
        while not found.env_steps_by_actor.all():
            time.sleep(1e-3)
        started = time.perf_counter() - start
        pids = children() - before
        return started, *measured(seconds, pids, lambda: found.env_steps, time.sleep)


class Together:
    """A vector whose environments step together, made once: that takes long."""

    def __init__(self):
        self.envs = None

    def __call__(self, kind, count, seconds):
        if self.envs is None:
            self.begin(kind, count)
        return self.started, *measured(
            seconds, self.pids, lambda: self.steps, self.play
        )

    def begin(self, kind, count):
        before, start = children(), time.perf_counter()
        make = gym.vector.AsyncVectorEnv
        self.envs = make([KINDS[kind]] * count, context="spawn")
        self.network = tfrl.policies.numpy_copy(new_network())
        self.rng, self.steps = np.random.default_rng(0), 0
        self.seen, _ = self.envs.reset(seed=0)
        self.play(0.0)
        self.started = time.perf_counter() - start
        self.pids = children() - before

    def play(self, seconds):
        end = time.perf_counter() + seconds
        while True:
            self.seen = self.envs.step(draw(self.network(self.seen), self.rng))[0]
            self.steps += self.envs.num_envs
            if time.perf_counter() >= end:
                return

    def close(self):
        self.envs.close()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=turns.positive, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--actors", type=turns.positive, nargs="+", default=[4])
    arguments = parser.parse_args()
    console = turns.console()
    console.print(turns.versions(("numpy", "gymnasium", "tensorflow")), highlight=False)
    for kind in KINDS:
        runs = {"1 actor": (play_actors, 1)}
        for count in arguments.actors:
            runs[f"{count} actors"] = play_actors, count
            runs[f"AsyncVectorEnv of {count}"] = Together(), count
        figures = {name: [] for name in runs}
        for _ in range(arguments.rounds):
            for name, (play, count) in runs.items():
                figures[name].append(play(kind, count, arguments.seconds))
        console.print(table(kind, figures))
        for play, _ in runs.values():
            if isinstance(play, Together):
                play.close()


def table(kind, figures):
    found = rich.table.Table(
        title=f"{kind}, a step of {1e3 * STEP_SECONDS:g} ms: medians"
    )
    found.add_column("", no_wrap=True)
    heads = "steps/s", "times 1 actor (least to most)", "CPU", "start", "RSS", "PSS"
    for head in heads:
        found.add_column(head, justify="right", no_wrap=True)
    base = [rate for _, rate, *_ in figures["1 actor"]]
    for name, rounds in figures.items():
        starts, rates, theirs, mine, residents, shares = zip(*rounds, strict=True)
        ratios = [rate / one for rate, one in zip(rates, base, strict=True)]
        middle = statistics.median
        found.add_row(
            name,
            f"{middle(rates):,.0f}",
            f"{middle(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
            f"{middle(theirs):.2f} + {middle(mine):.2f}",
            f"{middle(starts):.2f}",
            f"{max(residents):.0f}",
            f"{max(shares):.0f}",
        )
    return found


if __name__ == "__main__":
    main()
