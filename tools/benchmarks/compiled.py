"""Compiled environments: random rollouts of tfrl, and the same loops in a jit of JAX.

Each contender plays N copies for T steps in one call: actions at random, a new episode
where one has ended, rewards summed. CartPole is tfrl's own, that of gymnax by
`from_jax_env` and that of gymnax in JAX by `lax.scan`; Breakout is that of MinAtar in
gymnax, likewise; Ant is Brax's by `from_jax_env` and in JAX, without new episodes, as
Brax begins none anew at random.
One core and one thread; what is measured is a call. Random numbers are drawn in it, by
each as it does: JAX's cost more. The steps/s are of CPU time, which others on the
machine change less than they change the clock's; the ratios of the table are the
clock's, round by round.

    tools/bench compiled
    tools/bench compiled --rounds 5 --sizes cartpole ant
"""

from harness import one_core

one_core.start_again()

import functools  # noqa: E402
import statistics  # noqa: E402
import time  # noqa: E402

import gymnasium as gym  # noqa: E402
import tensorflow as tf  # noqa: E402
from harness import turns  # noqa: E402

from tfrl.environments import compiled  # noqa: E402
from tfrl.environments.compiled import jax_env  # noqa: E402

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    jax = None
try:
    import gymnax
except ImportError:
    gymnax = None
try:
    from brax import envs as brax
except ImportError:
    brax = None

# Copies and steps of a call.
SIZES = {"cartpole": (1024, 128), "breakout": (1024, 128), "ant": (64, 16)}
OF_GYMNAX = {"cartpole": "CartPole-v1", "breakout": "Breakout-MinAtar"}
BACKEND = "spring"
PACKAGES = ("tensorflow-cpu", "jax", "gymnax", "brax")


def rollout_of_tfrl(env, n, n_steps):
    """One call of XLA that plays, from the state that the last one left."""
    space = env.action_space
    width = 1 if isinstance(space, gym.spaces.Discrete) else space.shape[0]

    @tf.function(jit_compile=True, autograph=False)
    def rollout(seed, state):
        noise = env.draw(seed, (n_steps, n))
        drawn = _uniform(seed + 1, (n_steps, n, width))
        if isinstance(space, gym.spaces.Discrete):
            actions = tf.cast(drawn[..., 0] * float(space.n), tf.int32)
        else:
            actions = space.low + drawn * (space.high - space.low)

        def body(t, state, total):
            went = env.step(state, actions[t], noise[t])
            return t + 1, went.state, total + went.rewards

        start = (0, state, tf.zeros([n]))
        _, state, total = tf.while_loop(lambda t, *_: t < n_steps, body, start)
        return state, tf.reduce_sum(total)

    kept, count = [env.reset(0, n)[0]], [0]

    def run():
        count[0] += 1
        kept[0], total = rollout(tf.constant([7, count[0]]), kept[0])
        float(total)

    return run


def _uniform(seed, shape):
    """The draws of compiled environments, for actions."""
    drawer = compiled.CartPole()
    drawer.n_noise = shape[-1]
    return drawer.draw(seed, shape[:-1])


def rollout_of_jax(step, state, draw, n, n_steps, *, keys):
    """The same in one jit: `step(key, state, action)` returns a state and a reward."""

    @jax.jit
    def rollout(key, state):
        one, other = jax.random.split(key)
        actions = draw(one, (n_steps, n))
        each = jax.random.split(other, (n_steps, n)) if keys else None

        def body(carry, given):
            state, total = carry
            state, rewards = step(given[1], state, given[0])
            return (state, total + rewards), None

        start = (state, jnp.zeros(n))
        (state, total), _ = jax.lax.scan(body, start, (actions, each), length=n_steps)
        return state, total.sum()

    kept, count = [state], [0]

    def run():
        count[0] += 1
        kept[0], total = rollout(jax.random.key(count[0]), kept[0])
        float(total)

    return run


def of_gymnax(env, params, n, n_steps):
    stepped = jax.vmap(env.step, (0, 0, 0, None))

    def step(keys, state, actions):
        _, state, rewards, _, _ = stepped(keys, state, actions, params)
        return state, rewards

    keys = jax.random.split(jax.random.key(0), n)
    state = jax.vmap(env.reset, (0, None))(keys, params)[1]
    draw = functools.partial(jax.random.randint, minval=0, maxval=env.num_actions)
    return rollout_of_jax(step, state, draw, n, n_steps, keys=True)


def of_brax(env, n, n_steps):
    def step(_, state, actions):
        state = jax.vmap(env.step)(state, actions)
        return state, state.reward

    state = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.PRNGKey(0), n))

    def draw(key, shape):
        return jax.random.uniform(key, (*shape, env.action_size), minval=-1.0)

    return rollout_of_jax(step, state, draw, n, n_steps, keys=False)


def contenders(task, n, n_steps):
    """Rollouts by name, of those that are installed."""
    found = {}
    if task == "cartpole":
        own = compiled.AutoReset(compiled.TimeLimit(compiled.CartPole(), 500))
        found["tfrl"] = rollout_of_tfrl(own, n, n_steps)
    if task in OF_GYMNAX and gymnax is not None:
        made = gymnax.make(OF_GYMNAX[task])
        env = compiled.AutoReset(jax_env.from_jax_env(*made))
        found["of JAX in tfrl"] = rollout_of_tfrl(env, n, n_steps)
        found["JAX"] = of_gymnax(*made, n, n_steps)
    elif task == "ant" and brax is not None:
        ant = brax.get_environment("ant", backend=BACKEND)
        found["of JAX in tfrl"] = rollout_of_tfrl(jax_env.from_jax_env(ant), n, n_steps)
        found["JAX"] = of_brax(ant, n, n_steps)
    return found


def main():
    arguments = turns.parser(__doc__, list(SIZES), "TASK").parse_args()
    console = turns.console()
    console.print(turns.versions(PACKAGES), highlight=False)
    for task in arguments.sizes:
        n, n_steps = SIZES[task]
        runs = contenders(task, n, n_steps)
        if not runs:
            console.print(f"{task} left out: JAX or its library is missing")
            continue
        for run in runs.values():
            # Twice: JAX compiles anew for the state that the first call returned.
            run()
            run()
        each = {name: (run, 1) for name, run in runs.items()}
        times = turns.measure(each, arguments.rounds)
        base = "JAX" if "JAX" in times else "tfrl"
        title = f"a rollout of {task}"
        console.print(turns.table(title, {f"{n}x{n_steps}": times}, base))
        for name, run in runs.items():
            rate = n * n_steps / cpu_seconds(run, arguments.rounds)
            console.print(f"{name}: {rate:,.0f} steps/s of CPU time", highlight=False)


def cpu_seconds(run, rounds):
    """The median of one call."""
    found = []
    for _ in range(rounds):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return statistics.median(found)


if __name__ == "__main__":
    main()
