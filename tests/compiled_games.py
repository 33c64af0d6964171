"""Games of tensors beside plain ones of one copy, by the same noise and actions."""

import modes
import numpy as np
import tensorflow as tf

from tfrl.environments.compiled import wrappers


def rollout(env, n, n_steps, mode="graph"):
    """First observations, a record of `n_steps` steps `[T, N, ...]`, and what it took.

    Args:
        env: which resets itself.
        n: number of copies.
        n_steps: T.
        mode: see `modes`.
    """
    noise = env.draw(1, [n_steps, n])
    rng = np.random.default_rng(0)
    actions = tf.constant(rng.integers(0, env.action_space.n, (n_steps, n)))

    def play():
        state, first = env.reset(0, n)
        start = env.step(state, actions[0], noise[0])._replace(state=state)
        steps = tf.scan(
            lambda before, given: env.step(before.state, *given),
            (actions, noise),
            start,
        )
        return first, steps

    first, steps = modes.run(mode, play)
    begun = env.draw(0, [n])
    return first.numpy(), steps, actions.numpy(), noise.numpy(), begun.numpy()


def check(env, make, n_steps=625, n=16):
    """`n_steps * n` steps are those of plain copies: all that is seen, paid and ended.

    Args:
        env: the game.
        make: makes a plain copy, with `reset(noise)`, `step(action, noise)` that
            returns reward and end, and `board()`.
        n_steps: T.
        n: number of copies.
    """
    around = wrappers.AutoReset(env)
    first, steps, actions, noise, begun = rollout(around, n, n_steps)
    taken = around.n_noise - env.n_noise
    seen, finals = (x.numpy() for x in (steps.observations, steps.final_observations))
    rewards, ended = np.zeros((n_steps, n), np.float32), np.zeros((n_steps, n), bool)
    shown, last = np.empty_like(seen), np.empty_like(finals)
    for i in range(n):
        copy = make()
        copy.reset(begun[i, taken:])
        np.testing.assert_array_equal(first[i], copy.board())
        for t in range(n_steps):
            rewards[t, i], ended[t, i] = copy.step(actions[t, i], noise[t, i, :taken])
            last[t, i] = copy.board()
            if ended[t, i]:
                copy.reset(noise[t, i, taken:])
            shown[t, i] = copy.board()
    np.testing.assert_array_equal(finals, last)
    np.testing.assert_array_equal(seen, shown)
    np.testing.assert_array_equal(steps.rewards, rewards)
    np.testing.assert_array_equal(steps.terminated, ended)
    assert not np.any(steps.truncated)
    assert np.any(ended) and np.any(rewards)
    space = env.observation_space
    assert first.dtype == space.dtype and first.shape[1:] == space.shape
    assert np.min(steps.observations) >= 0 and np.max(steps.observations) <= 1
    return steps


def check_modes(env):
    """Eagerly, of one copy, and under XLA it is the same."""
    around = wrappers.AutoReset(env)
    state, _ = around.reset(0, 1)
    step = tf.function(around.step, jit_compile=True)
    for t in range(3):
        given = state, tf.constant([t % env.action_space.n]), around.draw(t, [1])
        one, two = around.step(*given), step(*given)
        modes.same(one, two, rtol=1e-6)
        assert one.observations.shape == (1, *env.observation_space.shape)
        state = one.state


def check_picture(env, colours):
    """A picture of a copy shows a colour for everything."""
    state, seen = env.reset(0, 2)
    one = tf.nest.map_structure(lambda x: x.numpy()[1], state)
    picture = env.frame(one)
    size = seen.shape[1] * 16, seen.shape[2] * 16, 3
    assert picture.shape == size and picture.dtype == np.uint8
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) == colours
