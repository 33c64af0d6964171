"""CartPole of tensors beside Gymnasium's."""

import compiled_oracle
import numpy as np
import pytest
import refusals
import tensorflow as tf

from tfrl.environments.compiled import cartpole

HIGH = (2.4, 2.0, 0.2, 2.0)
LOW = tuple(-bound for bound in HIGH)


@pytest.mark.parametrize("mode", compiled_oracle.MODES)
def test_steps(mode):
    env = cartpole.CartPole()
    expected = compiled_oracle.played(env.gymnasium_id, LOW, HIGH)
    compiled_oracle.check_steps(env, expected, mode)


def test_sutton_barto_reward():
    env, options = cartpole.CartPole(True), {"sutton_barto_reward": True}
    expected = compiled_oracle.played(env.gymnasium_id, LOW, HIGH, 2000, **options)
    assert set(expected["rewards"]) == {0.0, -1.0}
    compiled_oracle.check_steps(env, expected, "eager")


@compiled_oracle.EPISODES
def test_episodes(mode, n_rows):
    compiled_oracle.check_episodes(cartpole.CartPole(), 20, mode, n_rows)


def test_as_gymnasium():
    compiled_oracle.check_spaces(cartpole.CartPole())
    compiled_oracle.check_first_states(cartpole.CartPole(), -0.05, 0.05)


def call(actions, mode="eager"):
    env = cartpole.CartPole()
    state, _ = env.reset(0, 2)
    return compiled_oracle.MODES[mode](env.step)(state, actions, env.draw(0, [2]))


@refusals.table(
    (
        cartpole.CartPole.step,
        *[
            refusals.bad(error, "actions", env, state, actions, env.draw(0, [2]))
            for env in [cartpole.CartPole()]
            for state in [tf.zeros([2, 4])]
            for error, actions in [
                (TypeError, [0.0, 1.0]),
                (TypeError, None),
                (ValueError, [[0], [1]]),
                (ValueError, [0, 1, 0]),
                (ValueError, [0, 2]),
                (ValueError, [-1, 0]),
            ]
        ],
    ),
    (cartpole.CartPole, refusals.bad(TypeError, "sutton_barto_reward", 1)),
)
def test_refusals(row):
    row()


def test_actions_of_a_graph_are_refused_by_shape_and_dtype_while_tracing():
    with pytest.raises(ValueError, match=r"`CartPole.step`: `actions` expected shape"):
        call(tf.zeros([3], tf.int32), "graph")
    with pytest.raises(TypeError, match=r"`CartPole.step`: `actions` expected int"):
        call(tf.zeros([2]), "graph")
    outside = call(tf.constant([0, 7]), "graph")
    assert np.all(np.isfinite(outside.observations))
