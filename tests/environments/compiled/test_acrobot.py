"""Acrobot of tensors beside Gymnasium's."""

import compiled_oracle
import numpy as np
import pytest
import refusals
import tensorflow as tf

from tfrl.environments.compiled import acrobot

SLOW = (np.pi, np.pi, 2.0, 4.0)
# Here Runge-Kutta steps are so long that they enlarge the rounding of float32.
FAST = (np.pi, np.pi, 4 * np.pi, 9 * np.pi)


def check(env, mode, n_steps, high, dtype, **tolerance):
    low, options = tuple(-bound for bound in high), {"_book_or_nips": env.book_or_nips}
    expected = compiled_oracle.played(env.gymnasium_id, low, high, n_steps, **options)
    compiled_oracle.check_steps(env, expected, mode, dtype=dtype, **tolerance)


@compiled_oracle.MODE
def test_steps(mode):
    check(acrobot.Acrobot(), mode, 10_000, SLOW, tf.float32, atol=1e-5)


@compiled_oracle.MODE
@pytest.mark.parametrize("book_or_nips", ["book", "nips"])
def test_steps_at_all_speeds(mode, book_or_nips):
    check(acrobot.Acrobot(book_or_nips), mode, 2000, FAST, tf.float64)


@pytest.mark.slow
@compiled_oracle.EPISODES
def test_episodes(mode, n_rows):
    compiled_oracle.check_episodes(acrobot.Acrobot(), 100, mode, n_rows, atol=1e-5)


def test_as_gymnasium():
    compiled_oracle.check_spaces(acrobot.Acrobot())
    compiled_oracle.check_first_states(acrobot.Acrobot(), [-0.1] * 4, [0.1] * 4)


@refusals.table(
    (
        acrobot.Acrobot.step,
        *[
            refusals.bad(ValueError, "actions", env, state, wrong, env.draw(0, [1]))
            for env, state in [(acrobot.Acrobot(), tf.zeros([1, 4]))]
            for wrong in ([3], [-1], [0, 1])
        ],
    ),
    (acrobot.Acrobot, refusals.bad(ValueError, "book_or_nips", "paper")),
)
def test_refusals(row):
    row()
