"""PPO in one JAX program, environments within, for tools/benchmarks/ppo.py.

Trains on CartPole with the settings of configs/ppo_cartpole.gin: rollouts, advantages
and all gradient steps of an epoch are one `lax.scan`, many epochs one call. With
--members several agents are trained by `vmap`. Plays 20 greedy episodes and prints one
line of JSON: `marks`, environment steps and CPU seconds of the process after every
call, and the return_mean of the episodes.
"""

import argparse
import json
import math
import time

import jax
import jax.numpy as jnp
import optax

GAMMA, LAMBDA, CLIP, RATE = 0.98, 0.8, 0.2, 1e-3
LIMIT = 500
# Epochs of a call, of so many steps at most.
EPOCHS_PER_CALL, STEPS_PER_CALL = 10, 2**20
# Epochs between greedy episodes, where they may end the training.
EPISODES_EVERY = 40


def begun(key, n):
    state = jax.random.uniform(key, (n, 4), minval=-0.05, maxval=0.05)
    return state, jnp.zeros(n, jnp.int32)


def stepped(key, state, ages, actions):
    """CartPole as Gymnasium has it, episodes anew where they have ended."""
    x, v, angle, turning = state.T
    force = jnp.where(actions == 1, 10.0, -10.0)
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    push = (force + 0.05 * turning**2 * sin) / 1.1
    turn = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
    pull = push - 0.05 * turn * cos / 1.1
    change = jnp.stack([v, pull, turning, turn], 1)
    after = state + 0.02 * change
    fell = (jnp.abs(after[:, 0]) > 2.4) | (jnp.abs(after[:, 2]) > math.radians(12))
    ages += 1
    late = ages >= LIMIT
    ended = fell | late
    fresh, _ = begun(key, len(state))
    state = jnp.where(ended[:, None], fresh, after)
    return state, jnp.where(ended, 0, ages), after, fell, ended


def layers(key, outputs, gain):
    sizes = [4, 64, 64, outputs]
    gains = [math.sqrt(2.0), math.sqrt(2.0), gain]
    keys = jax.random.split(key, 3)
    return [
        (jax.nn.initializers.orthogonal(g)(k, (a, b)), jnp.zeros(b))
        for k, a, b, g in zip(keys, sizes[:-1], sizes[1:], gains, strict=True)
    ]


def network(params, x):
    *hidden, (kernel, bias) = params
    for w, b in hidden:
        x = jnp.tanh(x @ w + b)
    return x @ kernel + bias


def loss_of(params, rows, clip):
    seen, actions, old, advantages, returns = rows
    logits = jax.nn.log_softmax(network(params["policy"], seen))
    log_probs = jnp.take_along_axis(logits, actions[:, None], 1)[:, 0]
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    ratio = jnp.exp(log_probs - old)
    clipped = jnp.clip(ratio, 1 - clip, 1 + clip)
    policy = -jnp.minimum(ratio * advantages, clipped * advantages).mean()
    value = jnp.square(network(params["value"], seen)[:, 0] - returns).mean()
    return policy + 0.5 * value


def taught(tx, carry, batch, clip, keys, size):
    """The parameters after a pass over all rows for each key, in another order each."""
    rows = len(batch[1])

    def learn(carry, part):
        params, opt_state = carry
        grads = jax.grad(loss_of)(params, part, clip)
        updates, opt_state = tx.update(grads, opt_state)
        return (optax.apply_updates(params, updates), opt_state), None

    def once(carry, key):
        if size == rows:
            return learn(carry, batch)
        order = jax.random.permutation(key, rows)
        mixed = jax.tree.map(lambda x: x[order].reshape(-1, size, *x.shape[1:]), batch)
        return jax.lax.scan(learn, carry, mixed)

    return jax.lax.scan(once, carry, keys)[0]


def programs(n_envs, n_steps, total, n_epochs, size, per_call):
    """The first carry of a key, and the function that trains for some epochs."""
    rows = n_envs * n_steps
    steps = n_epochs * (rows // size)

    def rate(count):
        return RATE * (1 - count // steps / total)

    tx = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(rate, eps=1e-5))

    def start(key):
        one, other, third, key = jax.random.split(key, 4)
        params = {"policy": layers(one, 2, 0.01), "value": layers(other, 1, 1.0)}
        return params, tx.init(params), *begun(third, n_envs), key, jnp.zeros((), int)

    def epoch(carry, _):
        params, opt_state, state, ages, key, done = carry
        key, acting, mixing = jax.random.split(key, 3)

        def play(carry, key):
            state, ages = carry
            one, other = jax.random.split(key)
            logits = jax.nn.log_softmax(network(params["policy"], state))
            actions = jax.random.categorical(one, logits)
            log_probs = jnp.take_along_axis(logits, actions[:, None], 1)[:, 0]
            later, ages, after, fell, ended = stepped(other, state, ages, actions)
            return (later, ages), (state, actions, log_probs, after, fell, ended)

        (state, ages), played = jax.lax.scan(
            play, (state, ages), jax.random.split(acting, n_steps)
        )
        seen, actions, old, after, fell, ended = played
        values = network(params["value"], seen)[..., 0]
        later = network(params["value"], after)[..., 0]
        gains = 1.0 + GAMMA * jnp.where(fell, 0.0, later) - values

        def back(advantage, given):
            gain, ended = given
            advantage = gain + GAMMA * LAMBDA * jnp.where(ended, 0.0, advantage)
            return advantage, advantage

        zeros = jnp.zeros(n_envs)
        _, advantages = jax.lax.scan(back, zeros, (gains, ended), reverse=True)
        batch = seen, actions, old, advantages, advantages + values
        batch = jax.tree.map(lambda x: x.reshape(rows, *x.shape[2:]), batch)
        clip = CLIP * (1 - done / total)
        keys = jax.random.split(mixing, n_epochs)
        learned = taught(tx, (params, opt_state), batch, clip, keys, size)
        return (*learned, state, ages, key, done + 1), None

    def train(carry):
        return jax.lax.scan(epoch, carry, None, per_call)[0]

    return start, train


def greedy(params, key):
    """The mean return of 20 episodes."""

    def play(carry, key):
        state, ages, returns, over = carry
        actions = network(params["policy"], state).argmax(-1)
        state, ages, _, _, ended = stepped(key, state, ages, actions)
        return (state, ages, returns + ~over, over | ended), None

    first = (*begun(key, 20), jnp.zeros(20), jnp.zeros(20, bool))
    return jax.lax.scan(play, first, jax.random.split(key, LIMIT))[0][2].mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--n-envs", type=int, default=8)
    parser.add_argument("--n-steps", type=int, default=32)
    parser.add_argument("--n-epochs", type=int, default=20)
    parser.add_argument("--minibatch-size", type=int, default=256)
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--stop-at", type=float, default=math.inf)
    arguments = parser.parse_args()
    n_envs, n_steps, members = arguments.n_envs, arguments.n_steps, arguments.members
    total = -(-arguments.steps // (n_envs * n_steps))
    per_call = max(1, min(EPOCHS_PER_CALL, STEPS_PER_CALL // (n_envs * n_steps)))
    given = arguments.n_epochs, arguments.minibatch_size, per_call
    start, train = programs(n_envs, n_steps, total, *given)
    keys = jax.random.key(arguments.seed)
    judged = greedy
    if members > 1:
        keys = jax.random.split(keys, members)
        start, train, judged = map(jax.vmap, (start, train, judged))
    train, judged = jax.jit(train), jax.jit(judged)
    carry, done = start(keys), 0
    marks, returns = [(0, time.process_time())], -math.inf
    while done < total and returns < arguments.stop_at:
        carry = jax.block_until_ready(train(carry))
        done += per_call
        marks.append((done * n_envs * n_steps * members, time.process_time()))
        if arguments.stop_at < math.inf and done % EPISODES_EVERY == 0:
            returns = float(judged(carry[0], keys).mean())
    returns = float(judged(carry[0], keys).mean())
    print(json.dumps({"marks": marks, "return_mean": returns}))


if __name__ == "__main__":
    main()
