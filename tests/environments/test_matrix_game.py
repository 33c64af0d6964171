"""Tests of `tfrl.environments.matrix_game`."""

import numpy as np
import refusals
from refusals import bad

from tfrl.environments import MatrixGame


def test_each_pair_of_choices_pays_what_the_matrix_says():
    payoffs = np.random.default_rng(0).normal(size=(4, 4))
    game = MatrixGame(payoffs)
    for row in range(4):
        for column in range(4):
            seen, _ = game.reset(seed=0)
            assert game.agents == ["player_0", "player_1"]
            assert [seen[x].tolist() for x in game.agents] == [[1, 0], [0, 1]]
            actions = {"player_0": np.int64(row), "player_1": column}
            _, rewards, terminated, truncated, _ = game.step(actions)
            assert rewards["player_0"] == payoffs[row, column] == -rewards["player_1"]
            assert all(terminated.values()) and not any(truncated.values())
            assert game.agents == []


def test_default_is_rock_paper_scissors():
    payoffs = MatrixGame().payoffs
    np.testing.assert_array_equal(payoffs, -payoffs.T)
    for choice in range(3):  # what comes after beats it
        assert payoffs[(choice + 1) % 3, choice] == 1
    np.testing.assert_array_equal(payoffs @ np.full(3, 1 / 3), np.zeros(3))


@refusals.table(
    (
        MatrixGame,
        bad(TypeError, "payoffs", "rock"),
        bad(TypeError, "payoffs", [[1, 2], [3]]),
        bad(ValueError, "payoffs", [[1.0]]),
        bad(ValueError, "payoffs", [1.0, 2.0]),
        bad(ValueError, "payoffs", np.ones((2, 3))),
        bad(ValueError, "payoffs", [[0.0, np.nan], [0.0, 1.0]]),
    )
)
def test_refusals(row):
    row()
