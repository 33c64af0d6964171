"""Wrappers of compiled environments beside plain loops over each copy."""

import gymnasium as gym
import modes
import numpy as np
import pytest
import refusals
import tensorflow as tf

from tfrl.environments.compiled import cartpole, protocol, wrappers


class Hops(protocol.CompiledEnv):
    """Hops by 1 to 3 along a line, from 0 or 1 until 6; the reward is what is seen."""

    observation_space = gym.spaces.Box(0.0, 9.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(3)
    n_noise, n_step_noise = 2, 1

    def _seen(self, state):
        return tf.stack([state, tf.zeros_like(state)], 1)

    def initial(self, noise):
        state = tf.floor(2.0 * noise[:, 1])
        return state, self._seen(state)

    def step(self, state, actions, noise):
        # Now and then it stays where it is, by noise.
        hop = tf.cast(actions, tf.float32) + 1.0
        state += tf.where(noise[:, 0] < 0.2, 0.0, hop)
        ended, seen = state >= 6.0, self._seen(state)
        return protocol.CompiledStep(
            state, seen, state, ended, tf.zeros_like(ended), seen
        )

    def frame(self, state):
        return np.full((2, 2, 3), state, np.uint8)


def play(env, n=3, n_steps=40, mode="graph", jumps=1):
    """Everything of `n_steps` steps, and the noise they took."""
    state, first = env.reset(0, n)
    noise = env.draw(1, [n_steps, n])
    actions = np.random.default_rng(0).integers(0, 3, (n_steps, n)).astype(np.int32)
    step = modes.in_mode(mode, env.step)
    steps = []
    for t in range(n_steps):
        steps.append(step(state, tf.constant(actions[t]), noise[t]))
        state = steps[-1].state
    return first.numpy(), steps, actions, noise.numpy()


def by_hand(n, n_steps, limit):
    """Rewards, ends, what is seen and the true successors, copy by copy, step by step.

    The noise of a step is that of `AutoReset`: one number for the step, two for what
    begins.
    """
    env = wrappers.AutoReset(wrappers.TimeLimit(Hops(), limit))
    noise, actions = play(env, n, n_steps)[3], play(env, n, n_steps)[2]
    place = np.floor(2.0 * env.draw(0, [n]).numpy()[:, 2])
    length, rows = np.zeros(n, int), []
    for t in range(n_steps):
        final, seen = np.zeros(n), np.zeros(n)
        terminated, truncated = np.zeros((2, n), bool)
        for i in range(n):
            if noise[t, i, 0] >= np.float32(0.2):
                place[i] += actions[t, i] + 1
            length[i] += 1
            final[i] = place[i]
            terminated[i], truncated[i] = place[i] >= 6, length[i] >= limit
            if terminated[i] or truncated[i]:
                place[i], length[i] = np.floor(2.0 * noise[t, i, 2]), 0
            seen[i] = place[i]
        rows.append((final, terminated, truncated, seen))
    return [np.stack(column) for column in zip(*rows, strict=True)]


def column(steps, name):
    return np.stack([getattr(step, name) for step in steps])


@pytest.mark.parametrize("n", [1, 3])
def test_time_limit_and_auto_reset_are_those_of_a_loop(n):
    env = wrappers.AutoReset(wrappers.TimeLimit(Hops(), 4))
    assert env.n_noise == 3
    _, steps, _, _ = play(env, n)
    final, terminated, truncated, seen = by_hand(n, 40, 4)
    assert terminated.any() and (truncated & ~terminated).any()
    np.testing.assert_array_equal(column(steps, "rewards"), final)
    np.testing.assert_array_equal(column(steps, "terminated"), terminated)
    np.testing.assert_array_equal(column(steps, "truncated"), truncated)
    np.testing.assert_array_equal(column(steps, "observations")[..., 0], seen)
    finals = column(steps, "final_observations")
    np.testing.assert_array_equal(finals[..., 0], final)


def test_frame_stack_begins_anew_with_each_episode():
    env = wrappers.AutoReset(
        wrappers.FrameStack(wrappers.TimeLimit(Hops(), 4), 3),
    )
    assert env.observation_space == gym.spaces.Box(0.0, 9.0, (6,), np.float32)
    first, steps, _, _ = play(env)
    final, terminated, truncated, seen = by_hand(3, 40, 4)
    frames = [[value] * 3 for value in first[:, 0]]
    np.testing.assert_array_equal(first[:, ::2], frames)
    for t in range(40):
        for i in range(3):
            frames[i] = [*frames[i][1:], final[t, i]]
            last = steps[t].final_observations[i].numpy()[::2].tolist()
            assert last == frames[i]
            if terminated[t, i] or truncated[t, i]:
                frames[i] = [seen[t, i]] * 3
            assert steps[t].observations[i].numpy()[::2].tolist() == frames[i]


class Shown(Hops):
    """Shows where it is by an image whose channels come first."""

    observation_space = gym.spaces.Box(0, 255, (3, 40, 40), np.uint8)

    def _seen(self, state):
        pixels = tf.ones([1, 3, 40, 40]) * state[:, None, None, None]
        return tf.cast(pixels, tf.uint8)


def test_frames_of_images_are_channels():
    env = wrappers.FrameStack(Shown(), 2)
    first, (step,), _, _ = play(env, n_steps=1, mode="eager")
    assert first.shape[1:] == env.observation_space.shape == (6, 40, 40)
    stack, place = step.observations.numpy(), step.state.env.numpy()
    np.testing.assert_array_equal(stack[:, :3], first[:, 3:])
    assert (stack[:, 3:] == place[:, None, None, None]).all()
    np.testing.assert_array_equal(stack, step.final_observations)


def test_statistics_of_episodes():
    inside = wrappers.AutoReset(wrappers.TimeLimit(Hops(), 4))
    env = wrappers.NormalizeRewards(wrappers.EpisodeStatistics(inside), 0.9)
    _, steps, _, _ = play(env)
    final, terminated, truncated, _ = by_hand(3, 40, 4)
    returns, lengths, n_ended = np.zeros((3, 3))
    last_returns, last_lengths = np.zeros((2, 3))
    for t in range(40):
        returns, lengths = returns + final[t], lengths + 1
        ended = terminated[t] | truncated[t]
        last_returns = np.where(ended, returns, last_returns)
        last_lengths = np.where(ended, lengths, last_lengths)
        returns, lengths = np.where(ended, 0, returns), np.where(ended, 0, lengths)
        n_ended = n_ended + ended
        known = wrappers.EpisodeStatistics.of(steps[t].state)
        expected = (returns, lengths, last_returns, last_lengths, n_ended)
        np.testing.assert_array_equal(np.stack(known), np.stack(expected))
    with pytest.raises(ValueError, match="`EpisodeStatistics.of`: `state` expected"):
        wrappers.EpisodeStatistics.of(steps[0].state.env.env)


def test_normalized_observations_have_the_moments_of_all_seen():
    inside = wrappers.AutoReset(wrappers.TimeLimit(Hops(), 4))
    env = wrappers.NormalizeObservations(inside, clip=1.5)
    assert env.observation_space == gym.spaces.Box(-1.5, 1.5, (2,), np.float32)
    first, steps, _, _ = play(env)
    final, _, _, shown = by_hand(3, 40, 4)
    seen = [play(inside)[0][:, 0], *shown]
    for t in range(40):
        every = np.concatenate(seen[: t + 2])
        scale = np.sqrt(every.var() + 1e-8)
        for got, plain in (
            (steps[t].observations, shown[t]),
            (steps[t].final_observations, final[t]),
        ):
            expected = np.clip((plain - every.mean()) / scale, -1.5, 1.5)
            np.testing.assert_allclose(got[:, 0], expected, rtol=1e-5, atol=1e-6)
            assert got.dtype == tf.float32
        assert float(steps[t].state.own.count) == every.size
    assert np.abs(column(steps, "observations")).max() == 1.5
    np.testing.assert_array_equal(first[:, 1], 0.0)


def test_normalized_rewards_are_over_the_spread_of_returns():
    inside = wrappers.AutoReset(wrappers.TimeLimit(Hops(), 4))
    env = wrappers.NormalizeRewards(inside, 0.9)
    _, steps, _, _ = play(env)
    final, terminated, truncated, _ = by_hand(3, 40, 4)
    running, every = np.zeros(3), []
    for t in range(40):
        running = 0.9 * running + final[t]
        every.extend(running)
        scaled = final[t] / np.sqrt(np.var(every) + 1e-8)
        np.testing.assert_allclose(
            steps[t].rewards, np.clip(scaled, -10, 10), rtol=1e-5
        )
        running = np.where(terminated[t] | truncated[t], 0.0, running)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["eager", "xla"])
def test_all_of_them_are_the_same_eagerly_and_under_xla(mode):
    stacked = wrappers.FrameStack(wrappers.TimeLimit(Hops(), 4), 2)
    counted = wrappers.EpisodeStatistics(wrappers.AutoReset(stacked))
    scaled = wrappers.NormalizeObservations(wrappers.NormalizeRewards(counted, 0.9))
    played = [play(scaled, n_steps=12, mode=x)[1] for x in ("graph", mode)]
    modes.same(*played, rtol=1e-6, atol=1e-6)


def test_what_resets_draws_no_more_noise_than_it_takes():
    def noise_of(**fields):
        env = Hops()
        vars(env).update(fields)
        return wrappers.AutoReset(wrappers.TimeLimit(env, 4)).n_noise

    assert noise_of() == 3
    assert noise_of(n_step_noise=None) == 4
    assert noise_of(n_step_noise=0) == 2
    assert wrappers.AutoReset(cartpole.CartPole()).n_noise == 4


def test_pictures_are_those_of_the_environment_inside():
    env = wrappers.EpisodeStatistics(
        wrappers.AutoReset(wrappers.TimeLimit(wrappers.FrameStack(Hops(), 2), 4))
    )
    state, _ = env.reset(0, 2)
    one = tf.nest.map_structure(lambda x: x.numpy()[1], state)
    picture = env.frame(one)
    np.testing.assert_array_equal(picture, Hops().frame(float(state.env.env.env[1])))
    assert [type(x).__name__ for x in wrappers.layers(env)] == [
        *["EpisodeStatistics", "AutoReset", "TimeLimit", "FrameStack", "Hops"],
    ]


class Doubled(wrappers.Wrapper):
    def step(self, state, actions, noise):
        step = self.env.step(state, actions, noise)
        return step._replace(rewards=2.0 * step.rewards)


class Farther(wrappers.Wrapper):
    """Begins one further along, in the state of the environment inside."""

    def initial(self, noise):
        state, observations = self.env.initial(noise)
        return state + 1.0, observations + [1.0, 0.0]


class Lit(wrappers.TimeLimit):
    """Draws what it keeps too."""

    def frame(self, state):
        return super().frame(state) + np.uint8(100 * state.own)


def test_what_is_not_overridden_is_that_of_the_environment_inside():
    inside = Lit(Farther(Hops()), 4)
    plain, env = (wrappers.AutoReset(x) for x in (inside, Doubled(inside)))
    (first, steps, *_), (other, doubled, *_) = map(play, (plain, env))
    np.testing.assert_array_equal(first, other)
    assert first[:, 0].max() == 2.0
    for one, two in zip(steps, doubled, strict=True):
        modes.same(one._replace(rewards=2.0 * one.rewards), two)
    one = tf.nest.map_structure(lambda x: x.numpy()[0], doubled[1].state)
    assert one.own == 2
    np.testing.assert_array_equal(env.frame(one), Hops().frame(one.env) + 200)


class Counted(Hops):
    observation_space = gym.spaces.Discrete(9)


class Scalar(Hops):
    observation_space = gym.spaces.Box(0.0, 9.0, ())


RESET = wrappers.AutoReset(Hops())


@refusals.table(
    (
        wrappers.TimeLimit,
        refusals.bad(TypeError, "env", gym.make("CartPole-v1"), 3),
        refusals.bad(ValueError, "env", RESET, 3),
        refusals.bad(ValueError, "env", wrappers.EpisodeStatistics(RESET), 3),
        refusals.bad(ValueError, "n_steps", Hops(), 0),
        refusals.bad(TypeError, "n_steps", Hops(), 2.5),
    ),
    (
        wrappers.FrameStack,
        refusals.bad(ValueError, "env", RESET, 3),
        refusals.bad(TypeError, "env", Counted(), 3),
        refusals.bad(ValueError, "env", Scalar(), 3),
        refusals.bad(ValueError, "n", Hops(), 0),
    ),
    (
        wrappers.AutoReset,
        refusals.bad(ValueError, "env", RESET),
        refusals.bad(TypeError, "env", Hops),
    ),
    (wrappers.EpisodeStatistics, refusals.bad(ValueError, "env", Hops())),
    (
        wrappers.NormalizeObservations,
        refusals.bad(ValueError, "env", Hops()),
        refusals.bad(TypeError, "env", wrappers.AutoReset(Counted())),
        refusals.bad(ValueError, "clip", RESET, 0.0),
    ),
    (
        wrappers.NormalizeRewards,
        refusals.bad(ValueError, "env", Hops(), 0.9),
        refusals.bad(ValueError, "gamma", RESET, 1.1),
        refusals.bad(ValueError, "clip", RESET, 0.9, -1.0),
    ),
)
def test_refusals(row):
    row()
