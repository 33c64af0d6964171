"""IQL: gradient steps of tfrl and of one jitted update of flax and optax in turns.

Both learn from 10,000 random transitions of a task with as many numbers as Hopper-v5
(11 observed, 3 chosen), by minibatches of 256 and networks of two hidden layers of 256.
tfrl takes 50 of them in a call, flax one, as published implementations do. What is
measured is drawing the minibatches and stepping on one core and one thread, per
gradient step.

    tools/bench iql
    tools/bench iql --rounds 51
"""

from harness import one_core

one_core.start_again()

import functools  # noqa: E402

import gymnasium as gym  # noqa: E402
import numpy as np  # noqa: E402
from harness import turns  # noqa: E402

import tfrl  # noqa: E402
from tfrl.training import experience  # noqa: E402

try:
    import flax.linen as nn
    import jax
    import jax.numpy as jnp
    import optax
except ImportError:
    jax = None

S = gym.spaces
N_STEPS, BATCH, N_ROWS = 50, 256, 10_000
SEEN, CHOSEN = S.Box(-np.inf, np.inf, (11,)), S.Box(-1.0, 1.0, (3,))
PACKAGES = ("tensorflow", "jax", "flax", "optax")


def rows():
    """Transitions at random."""
    rng = np.random.default_rng(0)
    path = rng.normal(size=(N_ROWS + 1, 11)).astype(np.float32)
    return tfrl.core.Transition(
        observations=path[:-1],
        actions=rng.uniform(-1.0, 1.0, (N_ROWS, 3)).astype(np.float32),
        rewards=rng.normal(size=N_ROWS).astype(np.float32),
        discounts=np.full(N_ROWS, 0.99, np.float32),
        next_observations=path[1:],
    )


def of_tfrl():
    columns = rows()._asdict()
    settings = {"agent": tfrl.agents.IQL(), "make_envs": make_envs}
    learned = experience.FromDataset(columns, BATCH, N_STEPS)
    trainer = tfrl.training.Trainer("unused", experience=learned, **settings)
    kept = [trainer.agent]

    def run():
        kept[0], info = kept[0].update(trainer.gather())
        float(info["critic_loss"])

    return run


class Task(gym.Env):
    """Has spaces, and shows zeros; nobody plays it."""

    observation_space, action_space = SEEN, CHOSEN

    def reset(self, **_):
        return np.zeros(11, np.float32), {}


def make_envs(n_envs):
    return gym.vector.SyncVectorEnv([Task] * n_envs)


def of_flax():
    data, update, state = rows(), *jitted_update()
    rng, kept = np.random.default_rng(0), [state]

    def run():
        for _ in range(N_STEPS):
            at = rng.integers(0, N_ROWS, BATCH)
            kept[0] = update(kept[0], *(x[at] for x in data))
        jax.block_until_ready(kept[0])

    return run


def jitted_update():
    """One update of all networks, and what it starts from."""

    class Net(nn.Module):
        n: int

        @nn.compact
        def __call__(self, x):
            for _ in range(2):
                x = nn.relu(nn.Dense(256)(x))
            return nn.Dense(self.n)(x)

    class Actor(nn.Module):
        @nn.compact
        def __call__(self, x):
            return Net(3)(x), self.param("log_std", nn.initializers.zeros, (3,))

    both = nn.vmap(
        Net, variable_axes={"params": 0}, split_rngs={"params": True}, in_axes=None,
        out_axes=0, axis_size=2,
    )  # fmt: skip
    actor, value, critic, tx = Actor(), Net(1), both(1), optax.adam(3e-4)
    x, xa = np.zeros((1, 11), np.float32), np.zeros((1, 14), np.float32)
    keys = jax.random.split(jax.random.key(0), 3)
    inputs = ((actor, x), (value, x), (critic, xa))
    params = [net.init(key, at) for key, (net, at) in zip(keys, inputs, strict=True)]
    state = *params, params[2], *(tx.init(p) for p in params)

    def stepped(loss, params, opt):
        updates, opt = tx.update(jax.grad(loss)(params), opt, params)
        return optax.apply_updates(params, updates), opt

    @functools.partial(jax.jit, donate_argnums=0)
    def update(state, seen, actions, rewards, discounts, following):
        pi, v, q, target, pi_opt, v_opt, q_opt = state
        pair = jnp.concatenate([seen, actions], -1)
        least = critic.apply(target, pair)[..., 0].min(0)
        gains = least - value.apply(v, seen)[:, 0]
        weights = jnp.minimum(jnp.exp(3.0 * gains), 100.0)

        def value_loss(v):
            apart = least - value.apply(v, seen)[:, 0]
            return (jnp.where(apart < 0, 0.3, 0.7) * apart**2).mean()

        def policy_loss(pi):
            mean, log_std = actor.apply(pi, seen)
            each = -0.5 * ((actions - mean) / jnp.exp(log_std)) ** 2 - log_std
            return -(weights * each.sum(-1)).mean()

        v, v_opt = stepped(value_loss, v, v_opt)
        pi, pi_opt = stepped(policy_loss, pi, pi_opt)
        y = rewards + discounts * value.apply(v, following)[:, 0]

        def critic_loss(q):
            return ((critic.apply(q, pair)[..., 0] - y) ** 2).mean(1).sum()

        q, q_opt = stepped(critic_loss, q, q_opt)
        target = jax.tree.map(lambda old, new: 0.995 * old + 0.005 * new, target, q)
        return pi, v, q, target, pi_opt, v_opt, q_opt

    # Apart, as what is donated may be there but once.
    return update, jax.tree.map(jnp.array, state)


def contenders():
    runs = {"tfrl": of_tfrl()}
    if jax is not None:
        runs["flax and optax"] = of_flax()
    for run in runs.values():
        run()
    return {label: (run, N_STEPS) for label, run in runs.items()}


def main() -> None:
    arguments = turns.parser(__doc__, ["IQL"], "NAME").parse_args()
    console = turns.console()
    console.print(turns.versions(PACKAGES), highlight=False)
    results = {"IQL": turns.measure(contenders(), arguments.rounds)}
    console.print(turns.table("a gradient step", results, "tfrl"))


if __name__ == "__main__":
    main()
