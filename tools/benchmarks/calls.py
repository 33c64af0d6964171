"""What one call from Python costs, the call included on both sides.

Advantages, lambda returns and their gradient, V-trace, losses and draws: tfrl called
eagerly and compiled, from tensors and from NumPy to NumPy, beside what rlax, distrax
and JAX do under `jax.jit`, torch, and a NumPy loop as Stable-Baselines3 writes it. In
front stands the first call with a length that was not met before, where tfrl and JAX
may compile. All compute the same numbers from the same arrays, checked before the
clock starts (draws are not), on one core and one thread; contenders take turns.

    tools/bench calls
    tools/bench calls --rounds 51 --only vtrace projection
"""

import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

from harness import one_core

one_core.start_again()

import distributions as draws  # noqa: E402
import losses as heavier  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
import value_ops  # noqa: E402
from harness import turns  # noqa: E402

from tfrl import core, distributions, losses, ops  # noqa: E402

jax, jnp, torch, rlax = value_ops.jax, value_ops.jnp, value_ops.torch, value_ops.rlax

BASE = "tfrl"
LONG = ("128x8", "2048x16", "512x1024", "128x4096")
FLAT = ("32x51", "256x51", "256x201")
LENGTHS = (100, 103, 97, 110, 99, 108, 105, 101)


class Case(NamedTuple):
    """`arrays(steps, batch)` makes what the functions take; None is what one lacks."""

    sizes: tuple[str, ...]
    arrays: Callable
    tfrl: Callable
    theirs: dict[str, Callable]
    compared: bool = True


def rollout(steps, batch):
    return value_ops.Arrays(steps, batch).steps()


def transitions(steps, batch):
    return value_ops.Arrays(steps, batch).transitions("returns")


def off_policy(steps, batch):
    data = value_ops.Arrays(steps, batch)
    rhos = np.random.default_rng(1).uniform(0.5, 1.5, (steps, batch))
    rows = data.values[:-1], data.values[1:], data.rewards[1:], data.discounts[1:]
    return (*map(np.ascontiguousarray, rows), np.float32(rhos))


def vtrace(*arrays):
    return ops.vtrace(*arrays, value_ops.LAMBDA).advantages


def gradient(next_values, rewards, discounts):
    next_values = tf.convert_to_tensor(next_values)
    with tf.GradientTape() as tape:
        tape.watch(next_values)
        returns = value_ops.tfrl_returns(next_values, rewards, discounts)
    return tape.gradient(returns, next_values)


def squashed(loc, scale):
    bound = np.ones(loc.shape[-1], np.float32)
    found = distributions.SquashedNormal(loc, scale, -bound, bound)
    return found.experimental_sample_and_log_prob(seed=(1, 2))[1]


def of_steps(function):
    """A function of transitions, given what the step form takes."""
    return lambda values, rewards, _, discounts: function(
        values, rewards[1:], discounts[1:]
    )


def numpy_loop(what):
    def looped(*arrays):
        decays, inputs, later = value_ops.coefficients(what, *arrays)
        out = np.empty_like(inputs)
        for step in range(len(inputs) - 1, -1, -1):
            later = inputs[step] + decays[step] * later
            out[step] = later
        return out

    return looped


def in_jax():
    """The functions of rlax and distrax by name of the case."""
    returns = value_ops.rlax_function("returns")

    def traced(*arrays):
        function = jax.vmap(
            lambda *column: (
                rlax.vtrace_td_error_and_advantage(
                    *column, lambda_=value_ops.LAMBDA
                ).pg_advantage
            ),
            in_axes=1,
            out_axes=1,
        )
        return function(*arrays)

    def drawn(loc, scale):
        key = jax.random.PRNGKey(1)
        return draws.distributions_jax.squashed_normal(loc, scale, key)[1]

    return {
        "advantages": of_steps(value_ops.rlax_function("advantages")),
        "returns": returns,
        "gradient": jax.grad(lambda *arrays: returns(*arrays).sum()),
        "vtrace": traced,
        "projection": heavier.losses_jax.project,
        "quantile_huber": lambda *pair: heavier.losses_jax.multi_quantile_huber(
            *pair, heavier.DELTA
        ),
        "ppo_clip": lambda *given: heavier.losses_jax.ppo_clip(*given, heavier.CLIP),
        "squashed_normal": drawn,
    }


def cases():
    theirs: dict[str, dict[str, Callable]] = {
        "advantages": {"NumPy loop": of_steps(numpy_loop("advantages"))},
        "returns": {"NumPy loop": numpy_loop("returns")},
    }

    def add(name, peer, function):
        theirs.setdefault(name, {})[peer] = function

    for name, function in in_jax().items() if jax else ():
        add(name, "JAX", jax.jit(function))
    if torch:
        peers = heavier.losses_torch
        add("projection", "torch", peers.project)
        add("quantile_huber", "torch", bound(peers.multi_quantile_huber, heavier.DELTA))
        add("ppo_clip", "torch", bound(peers.ppo_clip, heavier.CLIP))
        function = draws.distributions_torch.squashed_normal
        add("squashed_normal", "torch", lambda *pair: function(*pair)[1])

    def case(name, sizes, arrays, function, compared=True):
        return Case(sizes, arrays, function, theirs.get(name, {}), compared)

    def of(make):
        return lambda batch, count: tuple(
            np.asarray(array, np.float32)
            for array in make(np.random.default_rng(0), batch, count)
        )

    return {
        "advantages": case("advantages", LONG, rollout, value_ops.tfrl_advantages),
        "returns": case("returns", LONG, transitions, value_ops.tfrl_returns),
        "gradient": case("gradient", LONG, transitions, gradient),
        "vtrace": case("vtrace", LONG, off_policy, vtrace),
        "projection": case(
            "projection", FLAT, of(heavier.projection_inputs), heavier.project
        ),
        "quantile_huber": case(
            "quantile_huber",
            FLAT,
            of(heavier.quantile_inputs),
            bound(losses.multi_quantile_huber_loss, heavier.DELTA),
        ),
        "ppo_clip": case(
            "ppo_clip",
            FLAT,
            of(heavier.policy_inputs),
            lambda *given: losses.ppo_clip_loss(*given, heavier.CLIP).loss,
        ),
        "squashed_normal": case(
            "squashed_normal",
            ("8x3", "256x17"),
            lambda batch, size: tuple(draws.numbers("squashed_normal", batch, size)),
            squashed,
            compared=False,
        ),
    }


def bound(function, *options):
    return lambda *arrays: function(*arrays, *options)


def contenders(case, arrays):
    """Functions without arguments by name, those of tfrl first."""
    tensors = tuple(map(tf.constant, arrays))
    found = {
        BASE: lambda: case.tfrl(*tensors),
        "tfrl in core.jit": called(core.jit(case.tfrl), tensors),
        "tfrl, NumPy in and out": lambda: np.asarray(case.tfrl(*arrays)),
    }
    for peer, function in case.theirs.items():
        if peer == "JAX":
            given = tuple(map(jnp.asarray, arrays))
            found["JAX (jit)"] = waited_for(function, given)
            found["JAX (jit), NumPy in and out"] = as_numpy(function, arrays)
        elif peer == "torch":
            found[peer] = called(function, tuple(map(torch.tensor, arrays)))
        else:
            found[peer] = called(function, arrays)
    return found


def called(function, arrays):
    return lambda: function(*arrays)


def waited_for(function, arrays):
    return lambda: jax.block_until_ready(function(*arrays))


def as_numpy(function, arrays):
    return lambda: np.asarray(function(*arrays))


def measure(name, case, size, rounds):
    """Name -> microseconds for one call, one entry for each round."""
    arrays = case.arrays(*map(int, size.split("x")))
    runs: dict[str, Any] = {}
    for contender, call in contenders(case, arrays).items():
        if case.compared:
            # Some peers return the mean of the losses.
            got, wanted = np.asarray(call()), np.asarray(case.tfrl(*arrays))
            wanted = wanted if got.shape else wanted.mean()
            scale = 1e-3 * np.abs(wanted).max()
            np.testing.assert_allclose(
                got, wanted, rtol=1e-3, atol=scale, err_msg=f"{name} of {contender}"
            )
        runs[contender] = turns.prepared(call, [()])
    return turns.measure(runs, rounds)


def first_calls():
    """Milliseconds of the first call with each length, by contender."""
    ours = {"tfrl, advantages": value_ops.tfrl_advantages, "NumPy loop": None}
    ours["NumPy loop"] = of_steps(numpy_loop("advantages"))
    if jax:
        ours["JAX (jit), advantages"] = jax.jit(in_jax()["advantages"])
    table: dict[str, list[float]] = {name: [] for name in ours}
    for steps in LENGTHS:
        arrays = rollout(steps, 8)
        for name, function in ours.items():
            run = as_numpy(function, arrays)
            table[name].append(turns.seconds(run) * 1e3)
    return table


def main():
    parser = turns.parser(__doc__, (), "TxB")
    found = cases()
    parser.add_argument("--only", nargs="+", default=list(found), choices=found)
    arguments = parser.parse_args()
    if torch:
        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
    console = turns.console()
    packages = ("tensorflow-cpu", "jax", "rlax", "distrax", "torch")
    console.print(turns.versions(packages), highlight=False)
    for peer, module in {"JAX": jax, "torch": torch}.items():
        if module is None:
            console.print(f"{peer} left out: it is missing; tfrl[bench] has it")
    for name, times in first_calls().items():
        console.print(
            f"first call with a length, {name}: the very first {times[0]:.1f} ms, "
            f"then {statistics.median(times[1:]):.1f} ms (median of {len(times) - 1})"
        )
    for name in arguments.only:
        case = found[name]
        sizes = arguments.sizes or case.sizes
        results = {s: measure(name, case, s, arguments.rounds) for s in sizes}
        console.print(turns.table(f"{name}, called", results, BASE))


if __name__ == "__main__":
    main()
