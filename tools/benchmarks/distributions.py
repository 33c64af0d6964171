"""Sampling and scoring: tfrl, TensorFlow Probability, torch, distrax and JAX.

Every contender draws a batch of actions with their log-probabilities: of a normal
squashed by tanh, of a truncated normal and of a beta distribution, independent along
the last axis. The log-probabilities are checked against float64 arithmetic before the
clock starts. All run on one core and one thread. Compiled ones repeat the computation
inside one compiled function, each time with parameters the last result has moved and a
seed of its own, so that nothing can be hoisted out and no call overhead counts; torch
is called from Python. Contenders take turns, and each figure is the median over the
rounds: a machine shared with others then slows all of them alike.

Nobody else has all of it: torch and distrax have no truncated normal, so the formula
programs write with torch's error function stands there, which is right for locations
near the bounds only, and `jax.scipy.stats.truncnorm`.

    tools/bench distributions
    tools/bench distributions --rounds 51 --sizes 256x6 --kinds beta
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

from harness import one_core

one_core.start_again()

import numpy as np  # noqa: E402
import scipy.stats  # noqa: E402
import tensorflow as tf  # noqa: E402
import tensorflow_probability as tfp  # noqa: E402
from harness import turns  # noqa: E402

from tfrl import distributions  # noqa: E402

try:
    import jax
    import jax.numpy as jnp
    from peers import distributions_jax
except ImportError:
    jax = jnp = distributions_jax = None
try:
    import torch
    from peers import distributions_torch
except ImportError:
    torch = distributions_torch = None

tfd, tfb = tfp.distributions, tfp.bijectors

SIZES = ("256x6", "256x17")
KINDS = ("squashed_normal", "truncated_normal", "beta")
BASE = "tfrl in XLA"
ROUND_SECONDS = 0.03
SEED = (1, 2)


def numbers(kind, batch, size):
    """Two parameters for each action, whose bounds are -1 and 1 (a beta's 0 and 1)."""
    one, other = np.random.default_rng(0).normal(size=(2, batch, size))
    if kind == "beta":
        pair = np.exp(0.5 * one) + 1, np.exp(0.5 * other) + 1
    else:
        pair = 0.5 * one, np.exp(0.5 * other - 1)
    return [np.float32(each) for each in pair]


def check(name, kind, arrays, actions, log_probs):
    """Log-probabilities are those of the actions."""
    actions, log_probs, one, other = (
        np.float64(np.asarray(each)) for each in (actions, log_probs, *arrays)
    )
    if kind == "beta":
        each = scipy.stats.beta.logpdf(actions, one, other)
    elif kind == "truncated_normal":
        low, high = (-1.0 - one) / other, (1.0 - one) / other
        each = scipy.stats.truncnorm.logpdf(actions, low, high, one, other)
    else:
        with np.errstate(divide="ignore"):
            raw, slope = np.arctanh(actions), np.log1p(-(actions**2))
        each = scipy.stats.norm.logpdf(raw, one, other) - slope
    # Near a bound that of the rounded action is another.
    low = 0.01 if kind == "beta" else -0.99
    inner = np.all((actions > low) & (actions < 0.99), axis=-1)
    np.testing.assert_allclose(
        log_probs[inner], each.sum(-1)[inner], rtol=1e-3, atol=1e-2, err_msg=name
    )


def of_tfrl(kind, size):
    if kind == "beta":
        return distributions.DiagMultivariateBeta
    bounds = np.full(size, -1.0, np.float32), np.full(size, 1.0, np.float32)
    make = {
        "squashed_normal": distributions.SquashedNormal,
        "truncated_normal": distributions.TruncatedNormal,
    }[kind]
    return lambda loc, scale: make(loc, scale, *bounds)


def of_tfp(kind):
    if kind == "squashed_normal":
        return lambda loc, scale: tfd.TransformedDistribution(
            tfd.MultivariateNormalDiag(loc, scale), tfb.Tanh()
        )
    each = {
        "truncated_normal": lambda loc, scale: tfd.TruncatedNormal(loc, scale, -1, 1),
        "beta": tfd.Beta,
    }[kind]
    return lambda *pair: tfd.Independent(each(*pair), reinterpreted_batch_ndims=1)


class Entry(NamedTuple):
    """`once()` is what is computed, `run(n)` computes it n times."""

    once: Callable
    run: Callable


def in_tensorflow(make, arrays, jit_compile):
    tensors = tuple(map(tf.constant, arrays))

    def computed(one, other, seed):
        return make(one, other).experimental_sample_and_log_prob(seed=seed)

    @tf.function(jit_compile=jit_compile, autograph=False)
    def repeated(repeats, one, other):
        def body(count, shift, total):
            seed = tf.stack([count, 1])
            actions, log_probs = computed(one + shift, other, seed)
            shift = 1e-6 * tf.reduce_mean(actions)
            return count + 1, shift, total + tf.reduce_mean(log_probs)

        start = (0, 0.0, 0.0)
        return tf.while_loop(lambda count, *_: count < repeats, body, start)[1:]

    def once():
        function = tf.function(computed, jit_compile=jit_compile, autograph=False)
        return function(*tensors, tf.constant(SEED))

    def run(repeats):
        return [part.numpy() for part in repeated(tf.constant(repeats), *tensors)]

    return Entry(once, run)


def in_jax(function, arrays):
    tensors = tuple(map(jnp.asarray, arrays))

    @jax.jit
    def repeated(repeats, one, other):
        def body(count, state):
            shift, total = state
            key = jax.random.fold_in(jax.random.PRNGKey(0), count)
            actions, log_probs = function(one + shift, other, key)
            return 1e-6 * actions.mean(), total + log_probs.mean()

        return jax.lax.fori_loop(0, repeats, body, (0.0, 0.0))

    return Entry(
        lambda: jax.jit(function)(*tensors, jax.random.PRNGKey(1)),
        lambda repeats: jax.block_until_ready(repeated(repeats, *tensors)),
    )


def in_torch(function, arrays):
    tensors = tuple(map(torch.tensor, arrays))

    def run(repeats):
        one, other = tensors
        shift = total = torch.zeros(())
        for _ in range(repeats):
            actions, log_probs = function(one + shift, other)
            shift, total = 1e-6 * actions.mean(), total + log_probs.mean()
        return float(total)

    return Entry(lambda: function(*tensors), run)


def contenders(kind, arrays):
    """Entries by name, of those who are installed."""
    entries = {}
    makers = {"tfrl": of_tfrl(kind, arrays[0].shape[-1]), "TFP": of_tfp(kind)}
    for where, jit_compile in (("in XLA", True), ("in a graph", None)):
        for name, make in makers.items():
            entries[f"{name} {where}"] = in_tensorflow(make, arrays, jit_compile)
    if jax:
        name = "JAX" if kind == "truncated_normal" else "distrax"
        function = getattr(distributions_jax, kind)
        entries[f"{name} in XLA"] = in_jax(function, arrays)
    if torch:
        entries["torch"] = in_torch(getattr(distributions_torch, kind), arrays)
    return entries


def measure(kind, batch, size, rounds):
    """Name -> microseconds for one computation, one entry for each round."""
    arrays, runs = numbers(kind, batch, size), {}
    for name, entry in contenders(kind, arrays).items():
        check(name, kind, arrays, *entry.once())
        entry.run(1)
        repeats = 1
        # Not from a few: the one call around them costs as much as many.
        while turns.seconds(functools.partial(entry.run, repeats)) < ROUND_SECONDS:
            repeats *= 2
        runs[name] = functools.partial(entry.run, repeats), repeats
    return turns.measure(runs, rounds)


def main():
    parser = turns.parser(__doc__, SIZES, "BxD")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    arguments = parser.parse_args()
    if torch:
        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
    console = turns.console()
    packages = ("tensorflow-cpu", "tensorflow-probability", "jax", "distrax", "torch")
    console.print(turns.versions(packages), highlight=False)
    for name, module in {"distrax": jax, "torch": torch}.items():
        if module is None:
            console.print(f"{name} left out: it is missing; tfrl[bench] has it")
    for kind in arguments.kinds:
        results = {}
        for size in arguments.sizes:
            batch, width = map(int, size.split("x"))
            results[size] = measure(kind, batch, width, arguments.rounds)
        console.print(turns.table(kind, results, BASE))


if __name__ == "__main__":
    main()
