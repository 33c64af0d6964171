"""The base of compiled environments: what `reset` and `draw` do for all of them."""

import numpy as np
import pytest
import refusals

from tfrl.environments.compiled import cartpole, protocol


def test_reset_draws_what_initial_takes():
    env = cartpole.CartPole()
    noise = env.draw(3, [5])
    assert noise.shape == (5, env.n_noise)
    state, observations = env.reset(3, 5)
    np.testing.assert_array_equal(state, env.initial(noise)[0])
    np.testing.assert_array_equal(observations, env.initial(noise)[1])
    assert np.any(env.reset(4, 5)[0] != state)
    assert env.draw(0, (2, 3)).shape == (2, 3, env.n_noise)


def test_frame_is_not_there_by_default():
    with pytest.raises(NotImplementedError, match="CartPole draws no pictures"):
        protocol.CompiledEnv.frame(cartpole.CartPole(), None)


@refusals.table(
    (
        cartpole.CartPole().reset,
        refusals.bad(ValueError, "n", 0, 0),
        refusals.bad(TypeError, "n", 0, 2.0),
    )
)
def test_refusals(row):
    row()
