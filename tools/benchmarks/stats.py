"""Running normalization: tfrl, TF-Agents' way, Stable-Baselines3, torch and NumPy.

Every contender takes in a batch and normalizes it by all batches so far, checked
against float64 arithmetic before the clock starts, on one core and one thread. Compiled
ones repeat that inside one compiled function, each time on the last result, so that
nothing can be hoisted or left out and no call overhead counts; the others do the same
from Python. Contenders take turns, and each figure is the median over the rounds: a
machine shared with others then slows all of them alike.

A second table shows the largest error of each on data of mean 1e6 and deviation 1.

    tools/bench stats
    tools/bench stats --rounds 51 --sizes 256x376
"""

import functools

from harness import one_core

one_core.start_again()

import numpy as np  # noqa: E402
import rich.table  # noqa: E402
import tensorflow as tf  # noqa: E402
from harness import turns  # noqa: E402

from tfrl import stats  # noqa: E402

try:
    import torch
except ImportError:
    torch = None
try:
    from stable_baselines3.common import running_mean_std
except ImportError:
    running_mean_std = None

SIZES = ("8x4", "256x17", "256x376", "4096x376")
EPSILON, CLIP = 1e-8, 10.0
BASE = "NumPy prototype"


class Tfrl:
    """All batches weigh the same: what the peers compute."""

    def __init__(self, width):
        self.normalizer = stats.AdaptiveNormalizer(
            tf.TensorSpec([width]), speed=1.0, variance_epsilon=EPSILON
        )

    def __call__(self, batch):
        return self.normalizer.normalize(batch, CLIP)


class TfAgents:
    """TF-Agents' streaming normalizer: float32 sums of squares, merged in pairs.

    What the merged sum loses to rounding is carried into the next merge.
    """

    def __init__(self, width):
        names = ("count", "mean", "squares", "carry")
        self.state = [tf.Variable(tf.zeros([width]), name=name) for name in names]
        self.state[0].assign(tf.fill([width], 1e-8))

    def __call__(self, batch):
        count, mean, squares, carry = self.state
        rows = tf.cast(tf.shape(batch)[0], tf.float32)
        batch_mean = tf.reduce_mean(batch, 0)
        batch_squares = tf.reduce_sum(tf.square(batch - batch_mean), 0)
        total = count + rows
        gap = batch_mean - mean
        term = batch_squares + tf.square(gap) * count * rows / total - carry
        merged = squares + term
        lost = (merged - squares) - term
        updates = (total, mean + gap * rows / total, merged, lost)
        for variable, new in zip(self.state, updates, strict=True):
            variable.assign(new)
        result = tf.nn.batch_normalization(
            batch, updates[1], merged / total, None, None, EPSILON
        )
        return tf.clip_by_value(result, -CLIP, CLIP)


class StableBaselines3:
    """Its `RunningMeanStd`, and the normalization of its `VecNormalize`."""

    def __init__(self, width):
        self.known = running_mean_std.RunningMeanStd(shape=(width,))

    def __call__(self, batch):
        self.known.update(batch)
        spread = np.sqrt(self.known.var + EPSILON)
        scaled = (batch - self.known.mean) / spread
        return np.clip(scaled, -CLIP, CLIP).astype(np.float32)


class NumpyPrototype:
    """The same in a few lines: float32 batches, float64 statistics."""

    def __init__(self, width):
        self.count, self.mean, self.variance = 0, np.zeros(width), np.ones(width)

    def __call__(self, batch):
        self.count += len(batch)
        share = len(batch) / self.count
        gap = batch.mean(0) - self.mean
        self.mean = self.mean + share * gap
        spread = (1 - share) * (self.variance + share * gap**2)
        self.variance = spread + share * batch.var(0)
        scale = (1 / np.sqrt(self.variance + EPSILON)).astype(np.float32)
        result = batch - self.mean.astype(np.float32)
        result *= scale
        return np.clip(result, -CLIP, CLIP, out=result)


class Torch:
    """The prototype with torch's own moments."""

    def __init__(self, width):
        self.count, self.mean = 0, torch.zeros(width, dtype=torch.float64)
        self.variance = torch.ones(width, dtype=torch.float64)

    def __call__(self, batch):
        self.count += len(batch)
        share = len(batch) / self.count
        variance, mean = torch.var_mean(batch, 0, correction=0)
        gap = mean - self.mean
        self.mean = self.mean + share * gap
        spread = (1 - share) * (self.variance + share * gap**2)
        self.variance = spread + share * variance
        scale = torch.rsqrt(self.variance + EPSILON).float()
        return ((batch - self.mean.float()) * scale).clamp_(-CLIP, CLIP)


def in_tensorflow(make, jit_compile):
    """A contender whose repetitions run inside one compiled function."""

    def prepared(data):
        normalize = make(data.shape[1])

        @tf.function(jit_compile=jit_compile, autograph=False)
        def repeated(batch, repeats):
            return tf.while_loop(
                lambda count, _: count < repeats,
                lambda count, batch: (count + 1, normalize(batch)),
                (0, batch),
            )[1]

        batch = tf.constant(data)
        once = tf.function(normalize, jit_compile=jit_compile, autograph=False)
        return (
            lambda repeats: repeated(batch, tf.constant(repeats)).numpy(),
            lambda x: once(tf.constant(x)).numpy(),
        )

    return prepared


def in_python(make, convert=np.asarray):
    """A contender that is called from Python each time."""

    def prepared(data):
        normalize, batch = make(data.shape[1]), convert(data)

        def run(repeats):
            result = batch
            for _ in range(repeats):
                result = normalize(result)
            return np.asarray(result)

        return run, lambda x: np.asarray(normalize(convert(x)))

    return prepared


def contenders():
    """Name -> function of the data, of those who are installed."""
    found = {
        "tfrl in XLA": in_tensorflow(Tfrl, True),
        "tfrl in a graph": in_tensorflow(Tfrl, False),
        "tfrl eager": in_python(Tfrl, tf.constant),
        "TF-Agents' way in XLA": in_tensorflow(TfAgents, True),
        "TF-Agents' way in a graph": in_tensorflow(TfAgents, False),
        BASE: in_python(NumpyPrototype),
    }
    if running_mean_std:
        found["Stable-Baselines3"] = in_python(StableBaselines3)
    if torch:
        found["torch"] = in_python(Torch, torch.tensor)
    return found


def errors(prepare, offset, batches=8):
    """Largest error of each batch's result against float64 arithmetic."""
    rng = np.random.default_rng(1)
    data = (offset + rng.normal(size=(batches, 64, 8))).astype(np.float32)
    _, normalize = prepare(data[0])
    worst = 0.0
    for count, batch in enumerate(data, start=1):
        seen = data[:count].reshape(-1, 8).astype(np.float64)
        expected = (batch - seen.mean(0)) / np.sqrt(seen.var(0) + EPSILON)
        worst = max(worst, np.abs(normalize(batch) - expected).max())
    return worst


def measure(size, rounds):
    """Name -> microseconds for one batch, one entry for each round."""
    rows, width = map(int, size.split("x"))
    data = np.random.default_rng(0).normal(size=(rows, width)).astype(np.float32)
    runs = {}
    for name, prepare in contenders().items():
        run, _ = prepare(data)
        run(2)
        # 40 ms and more a run, so that the one call around the loop does not count.
        repeats = 2
        while (taken := turns.seconds(functools.partial(run, repeats))) < 0.02:
            repeats *= 4
        repeats = max(2, int(repeats * 0.04 / taken))
        runs[name] = functools.partial(run, repeats), repeats
    return turns.measure(runs, rounds)


def accuracies():
    table = rich.table.Table(title="largest error of the normalized values")
    table.add_column("", no_wrap=True)
    for title in ("mean 0, deviation 1", "mean 1e6, deviation 1"):
        table.add_column(title, justify="right")
    for name, prepare in contenders().items():
        plain = errors(prepare, 0.0)
        if plain > 1e-3:
            raise RuntimeError(f"{name} computes something else: error {plain:.1e}")
        table.add_row(name, f"{plain:.1e}", f"{errors(prepare, 1e6):.1e}")
    return table


def main():
    arguments = turns.parser(__doc__, SIZES, "BxD").parse_args()
    if torch:
        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
    console = turns.console()
    packages = ("tensorflow-cpu", "numpy", "torch", "stable-baselines3")
    console.print(turns.versions(packages), highlight=False)
    for name, module in (("torch", torch), ("stable-baselines3", running_mean_std)):
        if module is None:
            console.print(f"{name} left out: it is missing; tfrl[bench] has it")
    console.print(accuracies())
    results = {size: measure(size, arguments.rounds) for size in arguments.sizes}
    console.print(turns.table("a batch", results, BASE))


if __name__ == "__main__":
    main()
