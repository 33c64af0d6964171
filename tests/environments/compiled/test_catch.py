"""Catch of tensors beside a plain one."""

import compiled_games
import numpy as np
import refusals

from tfrl.environments.compiled import catch


class Plain:
    def __init__(self, rows=10, columns=5):
        self.rows, self.columns = rows, columns

    def reset(self, noise):
        self.ball = [0, int(noise[0] * np.float32(self.columns))]
        self.paddle = self.columns // 2

    def step(self, action, noise):
        if action == 0 and self.paddle > 0:
            self.paddle -= 1
        elif action == 2 and self.paddle < self.columns - 1:
            self.paddle += 1
        self.ball[0] += 1
        if self.ball[0] < self.rows - 1:
            return 0.0, False
        return (1.0 if self.paddle == self.ball[1] else -1.0), True

    def board(self):
        board = np.zeros((self.rows, self.columns))
        board[tuple(self.ball)] = board[-1, self.paddle] = 1
        return board


def test_steps():
    steps = compiled_games.check(catch.Catch(), Plain)
    assert set(np.unique(steps.rewards)) == {-1.0, 0.0, 1.0}
    balls = steps.state.ball_column.numpy()
    assert np.unique(balls).tolist() == [0, 1, 2, 3, 4]


def test_other_boards():
    compiled_games.check(catch.Catch(3, 7), lambda: Plain(3, 7), 20, 3)


def test_modes_and_picture():
    compiled_games.check_modes(catch.Catch())
    compiled_games.check_picture(catch.Catch(), 2)


@refusals.table(
    (
        catch.Catch,
        refusals.bad(ValueError, "rows", 1),
        refusals.bad(TypeError, "columns", 3, 2.0),
    ),
)
def test_refusals(row):
    row()
