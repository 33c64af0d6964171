"""Gymnasium's environments, and whether ours of tensors step as they do."""

import functools

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from tfrl.environments.compiled import wrappers

MODES = {
    "eager": lambda function: function,
    "graph": tf.function,
    "xla": lambda function: tf.function(function, jit_compile=True),
}
# XLA takes a second or more to compile one.
MODE = pytest.mark.parametrize(
    "mode", ["eager", pytest.param("xla", marks=pytest.mark.slow)]
)
# With 8 copies: 2,000 steps, or 10,000.
EPISODES = pytest.mark.parametrize(
    "mode, n_rows", [("graph", 250), pytest.param("xla", 1250, marks=pytest.mark.slow)]
)


def make(env_id, **options):
    """Gymnasium's own, without its checks of what is given."""
    unwrapped = {name: value for name, value in options.items() if name[0] == "_"}
    options = {name: options[name] for name in options.keys() - unwrapped.keys()}
    env = gym.make(env_id, disable_env_checker=True, **options)
    for name, value in unwrapped.items():
        setattr(env.unwrapped, name[1:], value)
    return env


def random_actions(space, shape):
    """Actions `[*shape, ...]`; of a Box also some beyond its bounds."""
    rng = np.random.default_rng(1)
    if isinstance(space, gym.spaces.Discrete):
        return rng.integers(space.n, size=shape)
    return rng.uniform(
        1.5 * space.low, 1.5 * space.high, (*shape, *space.shape)
    ).astype(space.dtype)


@functools.cache
def played(env_id, low, high, n_steps=10_000, **options):
    """What Gymnasium makes of random actions, `n_steps` in a row.

    Every other episode starts from a state drawn between `low` and `high`, so that ends
    come which random actions do not find.

    Args:
        env_id: the id.
        low: one number for each of a state, a tuple.
        high: likewise.
        n_steps: how many.
        **options: of `gym.make`; with an underscore ahead, attributes to set.

    Returns:
        A dict of arrays `[n_steps, ...]`: states, actions and what came of them.
    """
    env = make(env_id, max_episode_steps=100, **options)
    inner, rng = env.unwrapped, np.random.default_rng(0)
    env.reset(seed=0)
    rows, is_wide = [], False
    for action in random_actions(env.action_space, (n_steps,)):
        state = np.array(inner.state)
        observation, reward, terminated, truncated, _ = env.step(action)
        rows.append((state, action, np.array(observation), reward, terminated))
        if terminated or truncated:
            is_wide = not is_wide
            env.reset()
            if is_wide:
                inner.state = rng.uniform(low, high)
    names = ("states", "actions", "observations", "rewards", "terminated")
    return dict(zip(names, map(np.stack, zip(*rows, strict=True)), strict=True))


def check_steps(env, expected, mode, rtol=1e-6, atol=1e-6, ends=True, dtype=tf.float32):
    """Steps `env` once from each of the states, as one batch of copies."""
    assert np.any(expected["terminated"]) == ends
    states = tf.constant(expected["states"], dtype)
    noise = tf.zeros([len(states), env.n_noise])
    step = MODES[mode](env.step)(states, tf.constant(expected["actions"]), noise)
    np.testing.assert_array_equal(step.terminated, expected["terminated"])
    assert not np.any(step.truncated)
    tolerance = {"rtol": rtol, "atol": atol}
    for seen in (step.observations, step.final_observations):
        assert seen.dtype == dtype
        np.testing.assert_allclose(seen, expected["observations"], **tolerance)
    assert step.rewards.dtype == tf.float32
    np.testing.assert_allclose(step.rewards, expected["rewards"], **tolerance)


def check_episodes(env, n_steps, mode, n_rows, n_envs=8, **tolerance):
    """Episodes of at most `n_steps` at random, ends and cuts; `n_rows` of each copy.

    The copies reset by themselves; Gymnasium, with its own time limit, takes each step
    from the state that its copy had.
    """
    played = wrappers.AutoReset(wrappers.TimeLimit(env, n_steps))
    state, _ = played.reset(0, n_envs)
    actions = random_actions(env.action_space, (n_rows, n_envs))
    inputs = tf.constant(actions), played.draw(1, [n_rows, n_envs])

    def rollout():
        first = played.step(state, inputs[0][0], inputs[1][0])
        first = tf.nest.map_structure(tf.zeros_like, first)._replace(state=state)

        def advance(before, taken):
            return played.step(before.state, *taken)

        return tf.scan(advance, inputs, first)

    steps = tf.nest.map_structure(np.asarray, MODES[mode](rollout)())
    starts = np.concatenate([state.env[None], steps.state.env[:-1]])
    theirs = make(env.gymnasium_id, max_episode_steps=n_steps)
    ended = steps.terminated | steps.truncated
    expected = []
    for n in range(n_envs):
        theirs.reset(seed=0)
        for t in range(n_rows):
            theirs.unwrapped.state = starts[t, n].astype(np.float64)
            expected.append(theirs.step(actions[t, n])[:-1])
            if ended[t, n]:
                theirs.reset()
    seen = (steps.final_observations, steps.rewards, steps.terminated, steps.truncated)
    for ours, wanted in zip(seen, zip(*expected, strict=True), strict=True):
        wanted = np.stack(wanted).astype(ours.dtype)
        ours = np.swapaxes(ours, 0, 1).reshape(wanted.shape)
        tolerance = {"rtol": 1e-6, "atol": 1e-6, **tolerance}
        np.testing.assert_allclose(ours, wanted, **tolerance)
    assert np.any(steps.truncated)
    same = np.all(steps.observations == steps.final_observations, axis=-1)
    np.testing.assert_array_equal(same, ~ended)


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
