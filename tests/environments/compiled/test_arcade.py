"""Three games of tensors beside plain ones."""

import compiled_games
import numpy as np
import pytest
import tensorflow as tf

from tfrl.environments.compiled import arcade


def whole(noise, n):
    return int(noise * np.float32(n))


class PlainBricks:
    def reset(self, noise):
        self.row, self.column = 4, whole(noise[0], 10)
        self.down, self.right = 1, 1 if whole(noise[1], 2) else -1
        self.before = 3, self.column - self.right
        self.paddle = 4
        self.fresh_wall()

    def fresh_wall(self):
        self.bricks = {(r, c) for r in (1, 2, 3) for c in range(10)}

    def step(self, action, noise):
        move = int(action) - 1
        self.paddle = min(max(self.paddle + move, 0), 9)
        self.before = self.row, self.column
        if not 0 <= self.column + self.right <= 9:
            self.right = -self.right
        self.column += self.right
        if self.row + self.down < 0:
            self.down = 1
        ahead = self.row + self.down
        if (ahead, self.column) in self.bricks:
            self.bricks.remove((ahead, self.column))
            if not self.bricks:
                self.fresh_wall()
            self.down = -self.down
            return 1.0, False
        if ahead == 9 and self.column == self.paddle:
            self.down = -1
            self.right = move or self.right
            return 0.0, False
        self.row = ahead
        return 0.0, ahead == 9

    def board(self):
        board = np.zeros((10, 10, 4))
        for place in self.bricks:
            board[(*place, 0)] = 1
        if 0 <= self.before[1] <= 9:
            board[(*self.before, 1)] = 1
        board[9, self.paddle, 2] = 1
        board[self.row, self.column, 3] = 1
        return board


class PlainLanes:
    def reset(self, noise):
        self.row = self.column = 5
        self.things = {}  # by lane: column, course, gold
        self.clock = 1

    def touch(self):
        thing = self.things.get(self.row)
        if thing is None or thing[0] != self.column:
            return
        if thing[2]:
            self.paid += 1
            del self.things[self.row]
        else:
            self.over = True

    def step(self, action, noise):
        self.paid, self.over = 0.0, False
        down, right = [(0, 0), (0, -1), (-1, 0), (0, 1), (1, 0)][action]
        self.row = min(max(self.row + down, 1), 8)
        self.column = min(max(self.column + right, 0), 9)
        lane = 1 + whole(noise[1], 8)
        if noise[0] < np.float32(0.3) and lane not in self.things:
            left = noise[2] < np.float32(0.5)
            gold = noise[3] < np.float32(1 / 3)
            self.things[lane] = [0 if left else 9, 1 if left else -1, gold]
        self.touch()
        if self.clock == 0:
            for lane, thing in list(self.things.items()):
                thing[0] += thing[1]
                if not 0 <= thing[0] <= 9:
                    del self.things[lane]
        # What it stood on and did not take ended the episode already.
        self.touch()
        self.clock = 1 - self.clock
        return self.paid, self.over

    def board(self):
        board = np.zeros((10, 10, 5))
        for lane, (column, course, gold) in self.things.items():
            if 0 <= column - course <= 9:
                board[lane, column - course, 0] = 1
            if self.clock == 0 and 0 <= column + course <= 9:
                board[lane, column + course, 1] = 1
            board[lane, column, 2 if gold else 3] = 1
        board[self.row, self.column, 4] = 1
        return board


class PlainMeteors:
    def reset(self, noise):
        self.ship, self.reload, self.clock = 5, 0, 1
        self.shots, self.rocks = {}, {}  # by column: row

    def step(self, action, noise):
        can = self.reload == 0
        self.reload = max(self.reload - 1, 0)
        self.shots = {c: r - 1 for c, r in self.shots.items() if r > 0}
        if action != 3:
            self.ship = min(max(self.ship + int(action) - 1, 0), 9)
        elif can:
            self.reload = 2
            self.shots[self.ship] = 8
        column = whole(noise[1], 10)
        comes = noise[0] < np.float32(0.25) and column not in self.rocks
        if self.clock == 0:
            self.rocks = {c: r + 1 for c, r in self.rocks.items()}
        if comes:
            self.rocks[column] = 0
        paid, over = 0.0, False
        for c in list(self.rocks):
            if c in self.shots and self.shots[c] <= self.rocks[c]:
                del self.shots[c], self.rocks[c]
                paid += 1
            elif self.rocks[c] == 9:
                over |= c == self.ship
                del self.rocks[c]
        self.clock = 1 - self.clock
        return paid, over

    def board(self):
        board = np.zeros((10, 10, 5))
        for c, r in self.shots.items():
            board[r, c, 0] = 1
        for c, r in self.rocks.items():
            board[r, c, 1] = 1
            board[r, c, 2] = self.clock == 0
        board[9, self.ship, 3] = 1
        board[9, self.ship, 4] = self.reload == 0
        return board


GAMES = {
    "Bricks": (arcade.Bricks, PlainBricks, 5),
    "Lanes": (arcade.Lanes, PlainLanes, 2),
    "Meteors": (arcade.Meteors, PlainMeteors, 2),
}
games = pytest.mark.parametrize(("make", "plain", "colours"), GAMES.values(), ids=GAMES)


@pytest.mark.slow
@games
def test_steps(make, plain, colours):
    compiled_games.check(make(), plain)


@pytest.mark.slow
@games
def test_modes(make, plain, colours):
    compiled_games.check_modes(make())


@games
def test_pictures(make, plain, colours):
    compiled_games.check_picture(make(), colours)


def test_a_new_wall_stands_when_the_last_brick_is_gone():
    env = arcade.Bricks()
    state, _ = env.reset(0, 1)
    last = np.zeros((1, 3, 10), bool)
    last[0, 2, 5] = True
    state = state._replace(
        ball=np.array([[4, 4]], np.int32),
        course=np.array([[-1, 1]], np.int32),
        bricks=last,
    )
    state = tf.nest.map_structure(tf.convert_to_tensor, state)
    step = env.step(state, [1], env.draw(0, [1]))
    assert step.rewards.numpy().tolist() == [1.0] and np.all(step.state.bricks)
