"""The heavier losses: tfrl, rlax, torch, and TF-Agents' way of writing them.

Every contender computes the same numbers from the same arrays, checked before the
clock starts, on one core and one thread: the mean loss and its gradient in the first
argument; for the projection, which no gradient enters, the distributions. All repeat
that, each time from inputs the last result has moved: compiled ones inside one
compiled function, where nothing can be hoisted out then and no call overhead counts,
torch from Python. Contenders take turns, and each figure is the median over the
rounds: a machine shared with others then slows all of them alike.

    tools/bench losses
    tools/bench losses --rounds 51 --sizes 256x51 --losses ppo_clip_loss
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

from harness import one_core

one_core.start_again()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from harness import turns  # noqa: E402

from tfrl import losses  # noqa: E402

try:
    import jax
    import jax.numpy as jnp
    from peers import losses_jax
except ImportError:
    jax = jnp = losses_jax = None
try:
    import torch
    from peers import losses_torch
except ImportError:
    torch = losses_torch = None

SIZES = ("32x51", "256x51", "256x201")
DELTA, CLIP = 1.0, 0.2
ROUND_SECONDS = 0.03


# What tfrl computes: means of its losses per element.


def multi_quantile_huber(quantiles, target):
    return tf.reduce_mean(losses.multi_quantile_huber_loss(quantiles, target, DELTA))


def discrete_regression(logits, target):
    return tf.reduce_mean(losses.DiscreteRegressionLoss()(logits, target))


def ordered_discrete_regression(logits, target):
    return tf.reduce_mean(losses.OrderedDiscreteRegressionLoss()(logits, target))


def ppo_clip(log_probs, old_log_probs, advantages):
    info = losses.ppo_clip_loss(log_probs, old_log_probs, advantages, CLIP)
    return tf.reduce_mean(info.loss)


def project(probs, support, target_support):
    return losses.categorical_projection(support, probs, target_support)


# How TF-Agents writes two of them.


def ppo_clip_of_tf_agents(log_probs, old_log_probs, advantages):
    ratios = tf.exp(log_probs - old_log_probs)
    clipped = tf.clip_by_value(ratios, 1 - CLIP, 1 + CLIP)
    return -tf.reduce_mean(tf.minimum(ratios * advantages, clipped * advantages))


def project_of_tf_agents(probs, support, target_support):
    low, high = target_support[0], target_support[-1]
    gap = target_support[1] - target_support[0]
    sources = tf.clip_by_value(support, low, high)[:, tf.newaxis, :]
    sources = tf.tile(sources, [1, tf.size(target_support), 1])
    distances = tf.abs(sources - target_support[tf.newaxis, :, tf.newaxis]) / gap
    shares = tf.clip_by_value(1 - distances, 0, 1)
    return tf.reduce_sum(shares * probs[:, tf.newaxis, :], axis=2)


class Benchmark(NamedTuple):
    """`inputs` makes arrays; what a library lacks is None."""

    inputs: Callable
    tfrl: Callable
    tf_agents: Callable | None
    rlax: str | None
    torch: str
    options: tuple = ()
    is_loss: bool = True


def quantile_inputs(rng, batch, count):
    return tuple(rng.normal(size=(2, batch, count)))


def grid_inputs(rng, batch, count):
    return rng.normal(size=(batch, count)), rng.normal(size=batch) * count / 6


def policy_inputs(rng, batch, count):
    log_probs, noise, advantages = rng.normal(size=(3, batch * count))
    return log_probs, log_probs + 0.3 * noise, advantages


def projection_inputs(rng, batch, count):
    atoms = np.linspace(-10.0, 10.0, count)
    probs = rng.dirichlet(np.ones(count), size=batch)
    return probs, rng.normal(size=(batch, 1)) + 0.99 * atoms, atoms


BENCHMARKS = {
    "multi_quantile_huber_loss": Benchmark(
        quantile_inputs,
        multi_quantile_huber,
        None,
        "multi_quantile_huber",
        "multi_quantile_huber",
        (DELTA,),
    ),
    "DiscreteRegressionLoss": Benchmark(
        grid_inputs,
        discrete_regression,
        None,
        "discrete_regression",
        "discrete_regression",
    ),
    "OrderedDiscreteRegressionLoss": Benchmark(
        grid_inputs,
        ordered_discrete_regression,
        None,
        None,
        "ordered_discrete_regression",
    ),
    "categorical_projection": Benchmark(
        projection_inputs,
        project,
        project_of_tf_agents,
        "project",
        "project",
        is_loss=False,
    ),
    "ppo_clip_loss": Benchmark(
        policy_inputs,
        ppo_clip,
        ppo_clip_of_tf_agents,
        "ppo_clip",
        "ppo_clip",
        (CLIP,),
    ),
}


class Entry(NamedTuple):
    """`once()` is what is computed, `run(n)` computes it n times."""

    once: Callable
    run: Callable


def in_tensorflow(function, arrays, is_loss, jit_compile):
    tensors = tuple(map(tf.constant, arrays))

    def computed(first, *rest):
        if not is_loss:
            out = function(first, *rest)
            return out[0, 0], out
        with tf.GradientTape() as tape:
            tape.watch(first)
            loss = function(first, *rest)
        return loss, tape.gradient(loss, first)

    @tf.function(jit_compile=jit_compile, autograph=False)
    def repeated(repeats, first, *rest):
        def body(count, shift, total):
            moved = [array + 1e-9 * total for array in rest]
            loss, out = computed(first + shift, *moved)
            return count + 1, 1e-6 * out, total + loss

        start = (0, tf.zeros_like(first), tf.zeros([]))
        return tf.while_loop(lambda count, *_: count < repeats, body, start)[1:]

    def run(repeats):
        return [part.numpy() for part in repeated(tf.constant(repeats), *tensors)]

    return Entry(lambda: tf.function(computed, autograph=False)(*tensors), run)


def in_jax(function, arrays, is_loss):
    tensors = tuple(map(jnp.asarray, arrays))

    def computed(first, *rest):
        if is_loss:
            return jax.value_and_grad(function)(first, *rest)
        out = function(first, *rest)
        return out[0, 0], out

    @jax.jit
    def repeated(repeats, first, *rest):
        def body(_, state):
            moved = [array + 1e-9 * state[1] for array in rest]
            loss, out = computed(first + state[0], *moved)
            return 1e-6 * out, state[1] + loss

        start = (jnp.zeros_like(first), jnp.zeros([]))
        return jax.lax.fori_loop(0, repeats, body, start)

    return Entry(
        lambda: jax.jit(computed)(*tensors),
        lambda repeats: jax.block_until_ready(repeated(repeats, *tensors)),
    )


def in_torch(function, arrays, is_loss):
    tensors = tuple(map(torch.tensor, arrays))
    both = losses_torch.with_gradient(function) if is_loss else None

    def computed(*arrays):
        if both is not None:
            return both(*arrays)
        out = function(*arrays)
        return out[0, 0], out

    def run(repeats):
        first, *rest = tensors
        shift, total = torch.zeros_like(first), torch.zeros([])
        for _ in range(repeats):
            moved = [array + 1e-9 * total for array in rest]
            loss, out = computed(first + shift, *moved)
            shift, total = 1e-6 * out, total + loss
        return shift, total

    return Entry(lambda: computed(*tensors), run)


def contenders(case, arrays):
    """Entries by name, of those who are installed."""
    entries = {
        "tfrl in XLA": in_tensorflow(case.tfrl, arrays, case.is_loss, True),
        "tfrl in a graph": in_tensorflow(case.tfrl, arrays, case.is_loss, None),
    }
    if case.tf_agents:
        entries["TF-Agents' way in a graph"] = in_tensorflow(
            case.tf_agents, arrays, case.is_loss, None
        )
    if jax and case.rlax:
        function = with_options(getattr(losses_jax, case.rlax), case.options)
        entries["rlax in XLA"] = in_jax(function, arrays, case.is_loss)
    if torch:
        function = with_options(getattr(losses_torch, case.torch), case.options)
        entries["torch"] = in_torch(function, arrays, case.is_loss)
    return entries


def with_options(function, options):
    return lambda *arrays: function(*arrays, *options)


def measure(case, batch, count, rounds):
    """Name -> microseconds for one computation, one entry for each round."""
    made = case.inputs(np.random.default_rng(0), batch, count)
    arrays = [np.asarray(array, np.float32) for array in made]
    entries = contenders(case, arrays)
    expected = [np.asarray(part) for part in entries["tfrl in a graph"].once()]
    runs = {}
    for name, entry in entries.items():
        for got, wanted in zip(entry.once(), expected, strict=True):
            scale = np.abs(wanted).max()
            np.testing.assert_allclose(
                np.asarray(got), wanted, rtol=1e-3, atol=1e-3 * scale, err_msg=name
            )
        entry.run(1)
        once = turns.seconds(functools.partial(entry.run, 3)) / 3
        repeats = max(1, int(ROUND_SECONDS / once))
        runs[name] = functools.partial(entry.run, repeats), repeats
    return turns.measure(runs, rounds)


def main():
    parser = turns.parser(__doc__, SIZES, "BxN")
    parser.add_argument(
        "--losses", nargs="+", default=list(BENCHMARKS), choices=BENCHMARKS
    )
    arguments = parser.parse_args()
    if torch:
        torch.set_num_threads(1)
    console = turns.console()
    packages = ("tensorflow-cpu", "jax", "rlax", "torch")
    console.print(turns.versions(packages), highlight=False)
    for name, module in {"rlax": jax, "torch": torch}.items():
        if module is None:
            console.print(f"{name} left out: it is missing; tfrl[bench] has it")
    for what in arguments.losses:
        results = {}
        for size in arguments.sizes:
            batch, count = map(int, size.split("x"))
            results[size] = measure(BENCHMARKS[what], batch, count, arguments.rounds)
        console.print(turns.table(what, results, "tfrl in a graph"))


if __name__ == "__main__":
    main()
