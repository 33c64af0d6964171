"""Advantages and lambda returns: tfrl, rlax, TF-Agents' way, torch and torchrl.

Every contender computes the same numbers from the same arrays, checked before the
clock starts, on one core and one thread. Compiled ones repeat the computation inside
one compiled function, each time from values the last result has moved, so that nothing
can be hoisted out and no call overhead counts; "eager" rows are calls from Python.
Contenders take turns, and each figure is the median over the rounds: a machine shared
with others then slows all of them alike.

    tools/bench value_ops
    tools/bench value_ops --rounds 51 --sizes 2048x16
"""

import statistics
from collections.abc import Callable
from typing import NamedTuple

from harness import one_core

one_core.start_again()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from harness import turns  # noqa: E402

from tfrl import ops  # noqa: E402

try:
    import jax
    import jax.numpy as jnp
    import rlax
except ImportError:
    jax = jnp = rlax = None
try:
    import torch
except ImportError:
    torch = None
try:
    from torchrl.objectives.value import functional as torchrl
except ImportError:
    torchrl = None

SIZES = ("128x8", "128x64", "2048x16", "512x1024", "128x4096")
GAMMA, LAMBDA = 0.99, 0.95
VECTORISED = ("vec_generalized_advantage_estimate",)
PEERS = {"jax": "rlax", "rlax": "rlax", "torch": "torch loop", "torchrl": "torchrl"}


class Arrays:
    """One rollout of `steps` transitions in `batch` environments."""

    def __init__(self, steps, batch):
        rng = np.random.default_rng(0)
        shape = (steps + 1, batch)
        self.values, self.rewards = rng.normal(size=(2, *shape)).astype(np.float32)
        self.done = rng.random(shape) < 0.02
        self.discounts = np.float32(GAMMA) * ~self.done
        # Ends are told by discounts alone, which is what all contenders understand.
        self.step_types = np.ones(shape, np.int32)
        # About 50 ms, so that the one call around the loop does not count.
        self.repeats = max(3, int(8e7 // (steps * batch + 60 * steps)))
        self.few = max(1, 2000 // steps)

    def steps(self):
        """Values first, then what tfrl's step form takes."""
        return self.values, self.rewards, self.step_types, self.discounts

    def transitions(self, what):
        """Values first, then rewards and discounts of the transitions."""
        values = self.values[1:] if what == "returns" else self.values
        return values, self.rewards[1:], self.discounts[1:]

    def batch_first(self):
        """What torchrl wants: batch, time, a last axis of one; laid out beforehand."""
        arrays = self.values, self.rewards[1:], self.done[1:]
        return tuple(np.ascontiguousarray(array.T)[..., None] for array in arrays)


def tfrl_advantages(values, rewards, step_types, discounts):
    return ops.generalized_advantage_estimation(
        rewards, values, step_types, discounts, LAMBDA
    )


def tfrl_returns(next_values, rewards, discounts):
    return ops.td_lambda_return(rewards, discounts, next_values, LAMBDA)


def coefficients(what, values, rewards, discounts):
    """Decays, inputs and last carry of the recurrence, for any library's arrays."""
    if what == "returns":
        return (
            discounts * LAMBDA,
            rewards + discounts * (1 - LAMBDA) * values,
            values[-1],
        )
    deltas = rewards + discounts * values[1:] - values[:-1]
    return discounts * LAMBDA, deltas, 0 * values[0]


def scan(what):
    """How TF-Agents writes it: a reversed scan of a plain graph."""

    def scanned(*arrays):
        decays, inputs, last = coefficients(what, *arrays)
        return tf.scan(
            lambda later, now: now[0] + now[1] * later,
            (inputs, decays),
            last,
            reverse=True,
        )

    return scanned


def torch_loop(what):
    """The loop of the single-file programs: each step written out."""

    def advantages(values, rewards, discounts):
        out, later = torch.empty_like(rewards), torch.zeros_like(rewards[0])
        for step in range(len(rewards) - 1, -1, -1):
            on = discounts[step]
            delta = rewards[step] + on * values[step + 1] - values[step]
            later = delta + on * LAMBDA * later
            out[step] = later
        return out

    def returns(values, rewards, discounts):
        out, later = torch.empty_like(rewards), values[-1]
        for step in range(len(rewards) - 1, -1, -1):
            mixed = (1 - LAMBDA) * values[step] + LAMBDA * later
            later = rewards[step] + discounts[step] * mixed
            out[step] = later
        return out

    return {"advantages": advantages, "returns": returns}[what]


def torch_hoisted(what):
    """The same with all that can be computed before the loop taken out of it."""

    def looped(*arrays):
        decays, inputs, later = coefficients(what, *arrays)
        out = torch.empty_like(inputs)
        for step in range(len(inputs) - 1, -1, -1):
            later = inputs[step] + decays[step] * later
            out[step] = later
        return out

    return looped


def rlax_function(what):
    if what == "returns":
        function = jax.vmap(rlax.lambda_returns, (1, 1, 1, None), 1)
        return lambda values, rewards, discounts: function(
            rewards, discounts, values, LAMBDA
        )
    function = jax.vmap(
        rlax.truncated_generalized_advantage_estimation, (1, 1, None, 1), 1
    )
    return lambda values, rewards, discounts: function(
        rewards, discounts, LAMBDA, values
    )


def torchrl_function(name):
    function = getattr(torchrl, name)

    def advantages(values, rewards, done):
        got = function(
            GAMMA, LAMBDA, values[:, :-1], values[:, 1:], rewards, done, done
        )
        return got[0][..., 0].T

    return advantages


def repeated_in_tensorflow(function, arrays, repeats, jit_compile):
    """A function that computes `repeats` times inside one compiled function."""

    @tf.function(jit_compile=jit_compile, autograph=False)
    def repeated(values, *rest):
        def body(count, shift, total):
            out = function(values + shift, *rest)
            return count + 1, 1e-3 * out[0], total + out[-1]

        start = (0, tf.zeros_like(values[0]), tf.zeros_like(values[0]))
        return tf.while_loop(lambda count, *_: count < repeats, body, start)[1:]

    return lambda: [part.numpy() for part in repeated(*arrays)]


def repeated_in_jax(function, arrays, repeats):
    @jax.jit
    def repeated(values, *rest):
        def body(_, state):
            out = function(values + state[0], *rest)
            return 1e-3 * out[0], state[1] + out[-1]

        start = (jnp.zeros_like(values[0]), jnp.zeros_like(values[0]))
        return jax.lax.fori_loop(0, repeats, body, start)

    return lambda: jax.block_until_ready(repeated(*arrays))


def called(function, arrays, repeats, finish=np.asarray):
    """A function that calls another `repeats` times from Python."""

    def run():
        for _ in range(repeats):
            out = function(*arrays)
        finish(out)

    return run


class Entry(NamedTuple):
    """`run` computes what `function(*arrays)` does `repeats` times."""

    function: Callable
    arrays: tuple
    repeats: int
    run: Callable


def contenders(data, what):
    """Entries by name, of those who are installed."""
    ours = {"advantages": tfrl_advantages, "returns": tfrl_returns}[what]
    plain = data.transitions(what)
    mine = tuple(map(tf.constant, data.steps() if what == "advantages" else plain))
    entries = {}

    def add(name, function, arrays, repeats, run):
        entries[name] = Entry(function, arrays, repeats, run)

    for name, jit_compile in (("tfrl in XLA", True), ("tfrl in a graph", False)):
        run = repeated_in_tensorflow(ours, mine, data.repeats, jit_compile)
        add(name, ours, mine, data.repeats, run)
    add("tfrl eager", ours, mine, 20, called(ours, mine, 20))
    arrays = tuple(map(tf.constant, plain))
    function = tf.function(scan(what), autograph=False)
    run = called(function, arrays, data.few)
    add("TF-Agents' scan", function, arrays, data.few, run)
    if rlax:
        function, arrays = rlax_function(what), tuple(map(jnp.asarray, plain))
        run = repeated_in_jax(function, arrays, data.repeats)
        add("rlax in XLA", function, arrays, data.repeats, run)
        run = called(jax.jit(function), arrays, 20, jax.block_until_ready)
        add("rlax(jit) called", function, arrays, 20, run)
    if torch:
        arrays = tuple(map(torch.tensor, plain))
        loops = {"torch loop": torch_loop, "torch loop, hoisted": torch_hoisted}
        for name, loop in loops.items():
            run = called(loop(what), arrays, data.few)
            add(name, loop(what), arrays, data.few, run)
    if torchrl and what == "advantages":
        arrays = tuple(map(torch.tensor, data.batch_first()))
        for name in ("generalized_advantage_estimate", *VECTORISED):
            function = torchrl_function(name)
            run = called(function, arrays, data.few)
            shown = "torchrl vectorised" if name in VECTORISED else "torchrl"
            add(shown, function, arrays, data.few, run)
    return entries


def measure(data, what, rounds):
    """Name -> microseconds for one computation, one entry for each round."""
    entries = contenders(data, what)
    ours = entries["tfrl eager"]
    expected = np.asarray(ours.function(*ours.arrays))
    for name, entry in entries.items():
        got = np.asarray(entry.function(*entry.arrays))
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3, err_msg=name)
        entry.run()
    runs = {name: (entry.run, entry.repeats) for name, entry in entries.items()}
    return turns.measure(runs, rounds)


def call_overhead(rounds):
    """Microseconds of a call whose computation is nothing: two steps of one."""
    arrays = tuple(map(tf.constant, Arrays(1, 1).steps()))
    run = called(tfrl_advantages, arrays, 200)
    run()
    return statistics.median(turns.seconds(run) / 200 * 1e6 for _ in range(rounds))


def main():
    arguments = turns.parser(__doc__, SIZES, "TxB").parse_args()
    if torch:
        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
    console = turns.console()
    packages = ("tensorflow-cpu", "jax", "rlax", "torch", "torchrl")
    console.print(turns.versions(packages), highlight=False)
    present = {"jax": jax, "rlax": rlax, "torch": torch, "torchrl": torchrl}
    for name, module in present.items():
        if module is None:
            console.print(
                f"{PEERS[name]} left out: {name} is missing; tfrl[bench] has it"
            )
    console.print(
        f"a call of tfrl from Python costs {call_overhead(arguments.rounds):.0f} us "
        "before any computation"
    )
    for what in ("advantages", "returns"):
        results = {}
        for size in arguments.sizes:
            steps, batch = map(int, size.split("x"))
            results[size] = measure(Arrays(steps, batch), what, arguments.rounds)
        console.print(turns.table(what, results, "tfrl in XLA"))


if __name__ == "__main__":
    main()
