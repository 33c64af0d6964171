"""Sum trees of prioritised replay: tfrl, coax, torchrl's C++, cpprb and plain NumPy.

Timed are, on one core and one thread: setting a batch of priorities, finding the
indices of a batch of fractions, drawing a batch by priority together with reading the
priorities drawn, and setting and drawing in turns, as who leaves work for later does it
then. Every contender is checked against running sums in float64 before the clock
starts. Batches are other ones every call, as in training, and contenders take turns;
each figure is the median over the rounds.

cpprb draws inside its buffer only, so it is in two tables, and its sample also brings
importance weights and one field of the rows. A size is the capacity x the batch.

    tools/bench trees
    tools/bench trees --rounds 51 --sizes 131072x8
"""

import functools
import importlib.util
import pathlib

from harness import one_core

one_core.start_again()

import numpy as np  # noqa: E402
from harness import turns  # noqa: E402

from tfrl.replay.sampling import segment_tree  # noqa: E402

try:
    import cpprb
except ImportError:
    cpprb = None
try:
    from peers import torchrl_trees

    SumSegmentTreeFp64 = torchrl_trees.load().SumSegmentTreeFp64
except ImportError:
    SumSegmentTreeFp64 = None

SIZES = ("131072x256", "1048576x256", "131072x8")
BASE = "coax"
BATCHES = 64


class Tfrl:
    def __init__(self, priorities):
        self.tree = segment_tree.SumTree(len(priorities), random_seed=0)
        self.tree.set_values(..., priorities)
        self.set, self.find = self.tree.set_values, self.tree.inverse_cdf

    def sample(self, n):
        found = self.tree.sample(n)
        return found, self.tree.values.take(found)


def load_coax():
    """The module of coax's trees by itself: the package wants a jax of its own."""
    package = importlib.util.find_spec("coax")
    if package is None:
        return None
    file = pathlib.Path(package.origin).parent / "utils" / "_segment_tree.py"
    spec = importlib.util.spec_from_file_location("coax_segment_tree", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Coax:
    def __init__(self, module, priorities):
        self.tree = module.SumTree(len(priorities), random_seed=0)
        self.tree.set_values(..., priorities)
        self.set, self.find = self.tree.set_values, self.tree.inverse_cdf

    def sample(self, n):
        found = self.tree.sample(n)
        return found, self.tree.values[found]


class Torchrl:
    """As its `PrioritizedSampler` uses it, with NumPy arrays, which it takes faster."""

    def __init__(self, priorities):
        self.tree, self.size = SumSegmentTreeFp64(len(priorities)), len(priorities)
        self.tree[np.arange(self.size)] = priorities
        self.rng = np.random.RandomState(0)
        self.set = self.tree.__setitem__

    def find(self, u):
        return self.tree.scan_lower_bound(u * self.tree.query(0, self.size))

    def sample(self, n):
        found = self.find(self.rng.rand(n))
        return found, self.tree[found]


class Cpprb:
    def __init__(self, priorities):
        np.random.seed(0)
        size, part = len(priorities), 4096
        self.buffer = cpprb.PrioritizedReplayBuffer(size, {"x": {}}, alpha=1.0, eps=0.0)
        for start in range(0, size, part):
            some = priorities[start : start + part]
            self.buffer.add(x=np.zeros(len(some)), priorities=some)
        self.set = self.buffer.update_priorities

    def sample(self, n):
        drawn = self.buffer.sample(n, beta=0.4)
        return drawn["indexes"], None


class Plain:
    """No tree: a running sum of everything at each draw."""

    def __init__(self, priorities):
        self.values, self.rng = priorities.copy(), np.random.RandomState(0)

    def set(self, index, priorities):
        self.values[index] = priorities

    def find(self, u):
        sums = np.cumsum(self.values)
        return sums.searchsorted(u * sums[-1], "right")

    def sample(self, n):
        found = self.find(self.rng.rand(n))
        return found, self.values.take(found)


def contenders():
    """Name -> function of the priorities, and what is missing."""
    module = load_coax()
    found = {
        "tfrl": Tfrl,
        "coax": module and functools.partial(Coax, module),
        "torchrl (C++)": SumSegmentTreeFp64 and Torchrl,
        "cpprb (C++)": cpprb and Cpprb,
        "NumPy without a tree": Plain,
    }
    missing = [name for name, make in found.items() if make is None]
    return {name: make for name, make in found.items() if make}, missing


def check(name, make):
    """Raises unless it finds and draws by the priorities that were set last.

    Returns how many of how many draws had the priority 0: in float32 a few do.
    """
    rng = np.random.default_rng(1)
    priorities = rng.random(4096)
    contender = make(priorities)
    for _ in range(50):
        index = rng.choice(4096, 256, replace=False)
        priorities[index] = rng.random(256) * (rng.random(256) < 0.5)
        contender.set(index, priorities[index])
    sums = np.concatenate([[0.0], np.cumsum(priorities)])
    if hasattr(contender, "find"):
        u = rng.random(5000)
        found = np.asarray(contender.find(u))
        slack = 1e-9 * sums[-1]
        inside = (sums[found] - slack <= u * sums[-1]) & (
            u * sums[-1] <= sums[found + 1] + slack
        )
        if not inside.all():
            raise RuntimeError(f"{name} finds {(~inside).sum()} of 5000 elsewhere")
    counts = np.zeros(4096)
    for _ in range(400):
        drawn, read = contender.sample(256)
        np.add.at(counts, np.asarray(drawn), 1)
        if read is not None and not np.allclose(read, priorities[np.asarray(drawn)]):
            raise RuntimeError(f"{name} reads other priorities than were set")
    shares = counts.reshape(64, -1).sum(1) / counts.sum()
    expected = priorities.reshape(64, -1).sum(1) / sums[-1]
    # Strata make draws more even than chance, never less.
    if (np.abs(shares - expected) > 6 * np.sqrt(expected / counts.sum())).any():
        raise RuntimeError(f"{name} does not draw by priority")
    wrong, draws = counts[priorities == 0].sum(), counts.sum()
    if wrong > 1e-4 * draws:
        raise RuntimeError(f"{name} draws what has the priority 0")
    return f"{wrong:,.0f} of {draws:,.0f} draws had the priority 0"


def operations(contender):
    """Name -> function of a batch."""

    def turn(index, priorities):
        contender.set(index, priorities)
        return contender.sample(len(index))

    found = {"set": contender.set, "sample": contender.sample, "turn": turn}
    if hasattr(contender, "find"):
        found["find"] = contender.find
    return found


def measure(makers, size, rounds):
    """Operation -> name -> microseconds a batch, one entry for each round."""
    capacity, n = map(int, size.split("x"))
    rng = np.random.default_rng(0)
    made = {name: make(rng.random(capacity)) for name, make in makers.items()}
    inputs = {
        "set": [(rng.integers(0, capacity, n), rng.random(n)) for _ in range(BATCHES)],
        "find": [(rng.random(n),) for _ in range(BATCHES)],
        "sample": [(n,)],
    }
    inputs["turn"] = inputs["set"]
    return {
        operation: turns.measure(
            {
                name: turns.prepared(call, batches)
                for name, contender in made.items()
                if (call := operations(contender).get(operation))
            },
            rounds,
        )
        for operation, batches in inputs.items()
    }


def main():
    arguments = turns.parser(__doc__, SIZES, "CxB").parse_args()
    console = turns.console()
    packages = ("numpy", "coax", "torchrl", "torch", "cpprb")
    console.print(turns.versions(packages), highlight=False)
    makers, missing = contenders()
    for name in missing:
        console.print(f"{name} left out: it is missing or does not load")
    for name, make in makers.items():
        console.print(f"{name}: {check(name, make)}", highlight=False)
    base = BASE if BASE in makers else "tfrl"
    results = {
        size: measure(makers, size, arguments.rounds) for size in arguments.sizes
    }
    titles = {
        "set": "set a batch of priorities",
        "find": "find the indices of a batch of fractions",
        "sample": "draw a batch and read its priorities",
        "turn": "set a batch, then draw one and read its priorities",
    }
    for operation, title in titles.items():
        times = {size: found[operation] for size, found in results.items()}
        console.print(turns.table(title, times, base))


if __name__ == "__main__":
    main()
