"""Pendulum of tensors beside Gymnasium's."""

import compiled_oracle
import numpy as np
import refusals
import tensorflow as tf

from tfrl.environments.compiled import pendulum


def check(g, n_steps, mode):
    env, low, high = pendulum.Pendulum(g), (-3 * np.pi, -8.0), (3 * np.pi, 8.0)
    expected = dict(compiled_oracle.played(env.gymnasium_id, low, high, n_steps, g=g))
    angle, speed = expected["states"].T
    assert np.any(np.abs(angle) > np.pi)
    expected["states"] = np.stack([(angle + np.pi) % (2 * np.pi) - np.pi, speed], 1)
    compiled_oracle.check_steps(env, expected, mode, ends=False)


@compiled_oracle.MODE
def test_steps(mode):
    check(10.0, 10_000, mode)


def test_g():
    check(9.81, 2000, "eager")


@compiled_oracle.EPISODES
def test_episodes(mode, n_rows):
    compiled_oracle.check_episodes(pendulum.Pendulum(), 60, mode, n_rows)


def test_as_gymnasium():
    compiled_oracle.check_spaces(pendulum.Pendulum())
    compiled_oracle.check_first_states(pendulum.Pendulum(), [-np.pi, -1], [np.pi, 1])


def test_an_angle_of_many_turns_is_taken_within_one():
    env = pendulum.Pendulum()
    angles = tf.constant([0.5, 0.5 + 4 * np.pi, 0.5 - 6 * np.pi])
    state = tf.stack([angles, tf.ones(3)], axis=1)
    step = env.step(state, tf.zeros([3, 1]), env.draw(0, [3]))
    np.testing.assert_allclose(step.state, step.state[:1] + tf.zeros([3, 1]), atol=5e-6)
    np.testing.assert_allclose(step.rewards, step.rewards[0] + tf.zeros(3), atol=5e-6)


@refusals.table(
    (
        pendulum.Pendulum.step,
        *[
            refusals.bad(error, "actions", env, state, actions, env.draw(0, [2]))
            for env, state in [(pendulum.Pendulum(), tf.zeros([2, 2]))]
            for error, actions in [
                (TypeError, np.zeros([2, 1], np.int64)),
                (TypeError, tf.zeros([2, 1], tf.int32)),
                (TypeError, "left"),
                (ValueError, [0.0, 1.0]),
                (ValueError, tf.zeros([3, 1])),
            ]
        ],
    ),
    (pendulum.Pendulum, refusals.bad(TypeError, "g", None)),
)
def test_refusals(row):
    row()
