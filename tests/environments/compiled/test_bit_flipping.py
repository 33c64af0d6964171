"""Bits of tensors beside those of Gymnasium."""

import collections

import gymnasium as gym
import modes
import numpy as np
import pytest
import refusals
import tensorflow as tf

from tfrl.environments import goals
from tfrl.environments.compiled import bit_flipping, vector_env, wrappers

SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "n_bits", [1, pytest.param(3, marks=SLOW), pytest.param(8, marks=SLOW)]
)
def test_steps_are_those_of_gymnasium(n_bits):
    n, n_steps = 8, 1250
    env = wrappers.AutoReset(bit_flipping.BitFlipping(n_bits))
    noise = env.draw(1, [n_steps, n])
    rng = np.random.default_rng(0)
    actions = rng.integers(n_bits, size=(n_steps, n))

    def play():
        state, _ = env.reset(0, n)
        start = env.step(state, actions[0], noise[0])._replace(state=state)
        steps = tf.scan(
            lambda before, given: env.step(before.state, *given),
            (tf.constant(actions), noise),
            start,
        )
        return state, steps

    begun, steps = tf.nest.map_structure(np.asarray, modes.run("graph", play))
    theirs = [gym.make(env.env.gymnasium_id, n_bits=n_bits).unwrapped for _ in range(n)]
    n_found = n_cut = 0
    for i, copy in enumerate(theirs):
        copy.reset(seed=0)
        copy._bits, copy._goal = begun.bits[i].copy(), begun.goal[i].copy()
        for t in range(n_steps):
            seen, reward, *ended, _ = copy.step(actions[t, i])
            for key, value in seen.items():
                np.testing.assert_array_equal(
                    steps.final_observations[key][t, i], value
                )
            assert steps.rewards[t, i] == reward
            assert [steps.terminated[t, i], steps.truncated[t, i]] == ended
            n_found, n_cut = n_found + ended[0], n_cut + ended[1]
            if any(ended):
                copy.reset()
                copy._bits = steps.state.bits[t, i].copy()
                copy._goal = steps.state.goal[t, i].copy()
                assert steps.state.n_steps[t, i] == 0
    assert n_found and (n_cut or n_bits == 1)


def test_pairs_are_uniform_over_those_that_differ():
    state, seen = bit_flipping.BitFlipping(2).reset(0, 60_000)
    pairs = zip(*(map(tuple, x.numpy().tolist()) for x in state[:2]), strict=True)
    counts = collections.Counter(pairs)
    assert len(counts) == 12 and all(one != other for one, other in counts)
    assert max(abs(x - 5000) for x in counts.values()) < 350  # five deviations
    assert {x.dtype for x in seen.values()} == {tf.int8}


def test_goals_are_rewarded_for_who_relabels():
    envs = vector_env.make_compiled("BitFlipping-v0", 2, env_kwargs={"n_bits": 3})
    some = np.eye(3, dtype=np.int8)
    rewards = goals.goal_rewards(envs)(some, some[[0, 0, 2]])
    assert rewards.tolist() == [0.0, -1.0, 0.0]
    scaled = wrappers.NormalizeRewards(envs.compiled, 0.9)
    with pytest.raises(NotImplementedError):
        scaled.compute_reward(some, some)
    carts = vector_env.make_compiled("CartPole-v1", 2).compiled
    with pytest.raises(NotImplementedError, match="CartPole"):
        carts.compute_reward(some, some)


def test_modes():
    env = wrappers.AutoReset(bit_flipping.BitFlipping(4))
    state, _ = env.reset(0, 3)
    given = state, tf.constant([0, 1, 3]), env.draw(1, [3])
    modes.same(env.step(*given), tf.function(env.step, jit_compile=True)(*given))


@refusals.table(
    (
        bit_flipping.BitFlipping,
        refusals.bad(ValueError, "n_bits", 0),
        refusals.bad(TypeError, "n_bits", 2.0),
    ),
)
def test_refusals(row):
    row()
