"""Sampling and scoring: tfrl, TensorFlow Probability, torch, distrax and JAX.

Every contender draws a batch of actions and their log-probabilities and sums both: of a
normal squashed by tanh, of a truncated normal and of a beta distribution, independent
along the last axis. The log-probabilities are checked against float64 arithmetic before
the clock starts. All run on one core and one thread.
Compiled ones repeat the computation inside one compiled function, each time with
parameters the last result has moved and a seed of its own, so that nothing can be
hoisted out and no call overhead counts; torch does the same from Python. Contenders
take turns, and each figure is the median over the rounds: a machine shared with others
then slows all of them alike.

Nobody else has all of it: torch and distrax have no truncated normal, so the formula
programs write with torch's error function stands there, which is right for locations
near the bounds only, and `jax.scipy.stats.truncnorm`.

    tools/bench distributions
    tools/bench distributions --rounds 51 --sizes 256x6
"""

import argparse
import functools
import importlib.metadata
import math
import os
import platform
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}
SIZES = ("256x6", "256x17")
KINDS = ("squashed normal", "truncated normal", "beta")
PEERS = {"distrax": "distrax and JAX", "torch": "torch"}


def on_one_core():
    """Starts this script again, on one core, with single-threaded libraries."""
    if all(os.environ.get(name) == value for name, value in ONE_THREAD.items()):
        return
    command = [sys.executable, *sys.argv]
    if shutil.which("taskset"):
        core = str(max(os.sched_getaffinity(0)))
        command = ["taskset", "-c", core, *command]
    os.execvpe(command[0], command, {**os.environ, **ONE_THREAD})


on_one_core()

import numpy as np  # noqa: E402
import rich.console  # noqa: E402
import rich.table  # noqa: E402
import scipy.stats  # noqa: E402
import tensorflow as tf  # noqa: E402
import tensorflow_probability as tfp  # noqa: E402

from tfrl import distributions  # noqa: E402

try:
    import distrax
    import jax
    import jax.numpy as jnp
except ImportError:
    distrax = jax = jnp = None
try:
    import torch
except ImportError:
    torch = None

tfd, tfb = tfp.distributions, tfp.bijectors


class Parameters:
    """Two numbers for each action, whose bounds are -1 and 1 (a beta's 0 and 1)."""

    def __init__(self, kind, batch, size):
        rng = np.random.default_rng(0)
        one, other = rng.normal(size=(2, batch, size)).astype(np.float32)
        if kind == "beta":
            self.arrays = np.exp(0.5 * one) + 1, np.exp(0.5 * other) + 1
        else:
            self.arrays = 0.5 * one, np.exp(0.5 * other - 1)
        self.bounds = np.full(size, -1.0, np.float32), np.full(size, 1.0, np.float32)
        # About 50 ms, so that the one call around the loop does not count.
        self.repeats = max(5, int(1e6 // (batch * size)))
        self.few = max(3, self.repeats // 5)


def truth(kind, parameters, actions):
    """Log-probabilities of actions in float64."""
    one, other = (np.float64(array) for array in parameters.arrays)
    if kind == "beta":
        each = scipy.stats.beta.logpdf(actions, one, other)
    elif kind == "truncated normal":
        low, high = (-1.0 - one) / other, (1.0 - one) / other
        each = scipy.stats.truncnorm.logpdf(actions, low, high, one, other)
    else:
        raw = np.arctanh(actions)
        each = scipy.stats.norm.logpdf(raw, one, other) - np.log1p(-(actions**2))
    return each.sum(-1)


def check(name, kind, parameters, actions, log_probs):
    """Log-probabilities are those of the actions."""
    actions, log_probs = (np.float64(np.asarray(x)) for x in (actions, log_probs))
    # Near a bound that of the rounded action is another.
    low = 0.0 if kind == "beta" else -1.0
    inner = np.all((actions > low + 0.01) & (actions < 0.99), axis=-1)
    expected = truth(kind, parameters, actions)
    np.testing.assert_allclose(
        log_probs[inner], expected[inner], rtol=1e-3, atol=1e-2, err_msg=name
    )


def tfrl_distribution(kind, bounds):
    make = {
        "squashed normal": distributions.SquashedNormal,
        "truncated normal": distributions.TruncatedNormal,
    }
    if kind == "beta":
        return distributions.DiagMultivariateBeta
    return lambda loc, scale: make[kind](loc, scale, *bounds)


def plain_distribution(kind, bounds):
    """As TensorFlow Probability offers it."""

    def independent(distribution):
        return tfd.Independent(distribution, reinterpreted_batch_ndims=1)

    return {
        "squashed normal": lambda loc, scale: tfd.TransformedDistribution(
            tfd.MultivariateNormalDiag(loc, scale), tfb.Tanh()
        ),
        "truncated normal": lambda loc, scale: independent(
            tfd.TruncatedNormal(loc, scale, *bounds)
        ),
        "beta": lambda one, other: independent(tfd.Beta(one, other)),
    }[kind]


def in_tensorflow(make):
    def step(one, other, seed):
        return make(one, other).experimental_sample_and_log_prob(seed=seed)

    return step


def in_jax(kind):
    """distrax where it has the distribution, JAX alone otherwise."""

    def truncated(loc, scale, key):
        low, high = (-1.0 - loc) / scale, (1.0 - loc) / scale
        actions = loc + scale * jax.random.truncated_normal(key, low, high, loc.shape)
        each = jax.scipy.stats.truncnorm.logpdf(actions, low, high, loc, scale)
        return actions, each.sum(-1)

    def squashed(loc, scale, key):
        normal = distrax.MultivariateNormalDiag(loc, scale)
        squash = distrax.Block(distrax.Tanh(), 1)
        return distrax.Transformed(normal, squash).sample_and_log_prob(seed=key)

    def beta(one, other, key):
        each = distrax.Independent(distrax.Beta(one, other), 1)
        return each.sample_and_log_prob(seed=key)

    return dict(zip(KINDS, (squashed, truncated, beta), strict=True))[kind]


def in_torch(kind):
    """torch.distributions where it has the distribution."""
    td = torch.distributions if torch else None

    def truncated(loc, scale):
        root = math.sqrt(2.0)
        low, high = (
            0.5 * (1 + torch.erf((bound - loc) / scale / root)) for bound in (-1.0, 1.0)
        )
        share = low + (high - low) * torch.rand_like(loc)
        z = root * torch.erfinv(2 * share - 1)
        log_probs = -0.5 * z**2 - 0.5 * math.log(2 * math.pi)
        log_probs = log_probs - torch.log(scale * (high - low))
        return torch.clamp(loc + scale * z, -1.0, 1.0), log_probs.sum(-1)

    def squashed(loc, scale):
        normal = td.Normal(loc, scale, validate_args=False)
        squash = td.transforms.TanhTransform(cache_size=1)
        each = td.TransformedDistribution(normal, squash, validate_args=False)
        return scored(td.Independent(each, 1, validate_args=False))

    def beta(one, other):
        each = td.Beta(one, other, validate_args=False)
        return scored(td.Independent(each, 1, validate_args=False))

    def scored(distribution):
        actions = distribution.rsample()
        return actions, distribution.log_prob(actions)

    return dict(zip(KINDS, (squashed, truncated, beta), strict=True))[kind]


def repeated_in_tensorflow(step, arrays, repeats, jit_compile):
    """A function that computes `repeats` times inside one compiled function."""

    @tf.function(jit_compile=jit_compile, autograph=False)
    def repeated(one, other):
        def body(count, shift, total):
            actions, log_probs = step(one + shift, other, tf.stack([count, 1]))
            shift = 1e-6 * tf.reduce_mean(actions)
            return count + 1, shift, total + tf.reduce_mean(log_probs)

        start = (0, 0.0, 0.0)
        return tf.while_loop(lambda count, *_: count < repeats, body, start)[1:]

    return lambda: [part.numpy() for part in repeated(*arrays)]


def repeated_in_jax(step, arrays, repeats):
    @jax.jit
    def repeated(one, other):
        def body(count, state):
            shift, total = state
            key = jax.random.fold_in(jax.random.PRNGKey(0), count)
            actions, log_probs = step(one + shift, other, key)
            return 1e-6 * actions.mean(), total + log_probs.mean()

        return jax.lax.fori_loop(0, repeats, body, (0.0, 0.0))

    return lambda: jax.block_until_ready(repeated(*arrays))


def repeated_in_torch(step, arrays, repeats):
    def run():
        one, other = arrays
        shift = total = torch.zeros(())
        for _ in range(repeats):
            actions, log_probs = step(one + shift, other)
            shift, total = 1e-6 * actions.mean(), total + log_probs.mean()
        return float(total)

    return run


class Entry(NamedTuple):
    """`run` computes `repeats` times what `once` does."""

    once: Callable
    run: Callable
    repeats: int


def contenders(kind, parameters):
    """Entries by name, of those who are installed and can do it."""
    tensors, repeats = tuple(map(tf.constant, parameters.arrays)), parameters.repeats
    entries = {}
    for name, make in (
        ("tfrl", tfrl_distribution(kind, parameters.bounds)),
        ("TFP", plain_distribution(kind, parameters.bounds)),
    ):
        step = in_tensorflow(make)
        for where, jit_compile in (("in XLA", True), ("in a graph", False)):
            once = tf.function(step, autograph=False, jit_compile=jit_compile)
            run = repeated_in_tensorflow(step, tensors, repeats, jit_compile)
            once = functools.partial(once, *tensors, tf.constant([1, 2]))
            entries[f"{name} {where}"] = Entry(once, run, repeats)
    if distrax:
        arrays, step = tuple(map(jnp.asarray, parameters.arrays)), in_jax(kind)
        name = "JAX" if kind == "truncated normal" else "distrax"
        once = functools.partial(jax.jit(step), *arrays, jax.random.PRNGKey(1))
        run = repeated_in_jax(step, arrays, repeats)
        entries[f"{name} in XLA"] = Entry(once, run, repeats)
    if torch:
        arrays, few = tuple(map(torch.tensor, parameters.arrays)), parameters.few
        step = in_torch(kind)
        run = repeated_in_torch(step, arrays, few)
        entries["torch"] = Entry(functools.partial(step, *arrays), run, few)
    return entries


def measure(kind, parameters, rounds):
    """Name -> microseconds for one computation, one entry for each round."""
    entries, refused = contenders(kind, parameters), {}
    for name, entry in entries.items():
        try:
            check(name, kind, parameters, *entry.once())
            entry.run()
        except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError) as error:
            refused[name] = str(error).splitlines()[0]
    times = {name: [] for name in entries if name not in refused}
    for _ in range(rounds):
        for name, each in times.items():
            start = time.perf_counter()
            entries[name].run()
            each.append((time.perf_counter() - start) / entries[name].repeats * 1e6)
    return times, refused


def report(results, sizes, kind):
    """One table: the median, and how many times the time of `tfrl in XLA` that is."""
    table = rich.table.Table(
        title=f"{kind}: microseconds, median (times `tfrl in XLA`, round by round)"
    )
    table.add_column("", no_wrap=True)
    for size in sizes:
        table.add_column(size, justify="right", no_wrap=True)
    for name in results[sizes[0]]:
        cells = []
        for size in sizes:
            times, base = results[size][name], results[size]["tfrl in XLA"]
            ratios = [t / b for t, b in zip(times, base, strict=True)]
            cells.append(
                f"{statistics.median(times):,.1f} ({statistics.median(ratios):,.2f})"
            )
        table.add_row(name, *cells)
    return table


def versions():
    found = [f"python {platform.python_version()}"]
    for name in ("tensorflow-cpu", "tensorflow-probability", "jax", "distrax", "torch"):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), metavar="BxD")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds expects at least 1")
    if torch:
        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
    console = rich.console.Console()
    if not console.is_terminal:
        console.width = 120
    console.print(versions(), highlight=False)
    for name, module in {"distrax": distrax, "torch": torch}.items():
        if module is None:
            console.print(
                f"{PEERS[name]} left out: {name} is missing; tfrl[bench] has it"
            )
    for kind in arguments.kinds:
        results = {}
        for size in arguments.sizes:
            parameters = Parameters(kind, *map(int, size.split("x")))
            results[size], refused = measure(kind, parameters, arguments.rounds)
            for name, why in refused.items():
                console.print(f"{kind}, {size}: {name} cannot: {why}", highlight=False)
        console.print(report(results, arguments.sizes, kind))


if __name__ == "__main__":
    main()
