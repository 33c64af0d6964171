"""Gymnasium's environments, and whether ours of tensors step as they do."""

import functools

import gymnasium as gym
import numpy as np
import tensorflow as tf

MODES = {
    "eager": lambda function: function,
    "graph": tf.function,
    "xla": lambda function: tf.function(function, jit_compile=True),
}


def make(env_id, **options):
    """Gymnasium's own, without its checks of what is given."""
    unwrapped = {name: value for name, value in options.items() if name[0] == "_"}
    options = {name: options[name] for name in options.keys() - unwrapped.keys()}
    env = gym.make(env_id, disable_env_checker=True, **options)
    for name, value in unwrapped.items():
        setattr(env.unwrapped, name[1:], value)
    return env


@functools.cache
def played(env_id, spread, n_steps=10_000, **options):
    """What Gymnasium makes of random actions, `n_steps` in a row.

    Every other episode starts from a state drawn between `-spread` and `spread`, so
    that ends come which random actions do not find; it is the state that was set that
    the next step starts from.

    Args:
        env_id: the id.
        spread: one number for each of a state.
        n_steps: how many.
        **options: of `gym.make`; with an underscore ahead, attributes to set.

    Returns:
        A dict of arrays `[n_steps, ...]`: states, actions and what came of them.
    """
    env = make(env_id, **options)
    inner, rng = env.unwrapped, np.random.default_rng(0)
    env.action_space.seed(0)
    env.reset(seed=0)
    rows, is_wide = [], False
    for _ in range(n_steps):
        state, action = np.array(inner.state), env.action_space.sample()
        observation, reward, terminated, truncated, _ = env.step(action)
        rows.append((state, action, np.array(observation), reward, terminated))
        if terminated or truncated:
            is_wide = not is_wide
            env.reset()
            if is_wide:
                inner.state = rng.uniform(-1.0, 1.0, len(spread)) * spread
    names = ("states", "actions", "observations", "rewards", "terminated")
    return dict(zip(names, map(np.stack, zip(*rows, strict=True)), strict=True))


def check_steps(env, expected, mode, rtol=1e-6, atol=1e-6, ends=True):
    """Steps `env` once from each of the states, as one batch of copies."""
    assert np.any(expected["terminated"]) == ends
    states = tf.constant(expected["states"], tf.float32)
    noise = tf.zeros([len(states), env.n_noise])
    step = MODES[mode](env.step)(states, tf.constant(expected["actions"]), noise)
    np.testing.assert_array_equal(step.terminated, expected["terminated"])
    assert not np.any(step.truncated)
    tolerance = {"rtol": rtol, "atol": atol}
    for seen in (step.observations, step.final_observations):
        assert seen.dtype == tf.float32
        np.testing.assert_allclose(seen, expected["observations"], **tolerance)
    assert step.rewards.dtype == tf.float32
    np.testing.assert_allclose(step.rewards, expected["rewards"], **tolerance)


def check_spaces(env):
    """Both spaces, the rate of pictures and a picture are Gymnasium's."""
    theirs = make(env.gymnasium_id, render_mode="rgb_array")
    assert env.observation_space == theirs.observation_space
    assert env.action_space == theirs.action_space
    assert env.metadata["render_fps"] == theirs.metadata["render_fps"]
    theirs.reset(seed=3)
    state = np.array(theirs.unwrapped.state)
    np.testing.assert_array_equal(env.frame(state.astype(np.float32)), theirs.render())
    assert env.frame(state + 0.5).shape == theirs.render().shape
    assert np.any(env.frame(state + 0.5) != theirs.render())
    theirs.close()


def check_first_states(env, low, high):
    """Episodes begin between the bounds, all over them, as Gymnasium's do."""
    state, observations = env.reset(0, 4096)
    assert state.dtype == tf.float32 and observations.dtype == tf.float32
    assert observations.shape == (4096, *env.observation_space.shape)
    low, high = np.float32(low), np.float32(high)
    assert np.all(state >= low) and np.all(state <= high)
    np.testing.assert_allclose(np.min(state, 0), low, atol=0.002 * np.max(high - low))
    np.testing.assert_allclose(np.max(state, 0), high, atol=0.002 * np.max(high - low))
