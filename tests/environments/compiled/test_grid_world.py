"""Grid worlds of tensors beside a plain one."""

import collections

import compiled_games
import numpy as np
import pytest
import refusals

from tfrl.environments.compiled import grid_world

MOVES = {0: (-1, 0), 1: (0, 1), 2: (1, 0), 3: (0, -1)}


class Plain:
    def __init__(self, walls, flat):
        self.walls, self.flat = walls, flat
        self.free = [(r, c) for r, c in np.argwhere(~walls).tolist()]

    def reset(self, noise):
        count = len(self.free)
        start = int(noise[0] * np.float32(count))
        other = int(noise[1] * np.float32(count - 1))
        self.walker = self.free[start]
        self.goal = self.free[(start + 1 + other) % count]

    def step(self, action, noise):
        there = tuple(np.add(self.walker, MOVES[int(action)]).tolist())
        if not self.walls[there]:
            self.walker = there
        return float(self.walker == self.goal), self.walker == self.goal

    def board(self):
        if self.flat:
            places = np.array([*self.walker, *self.goal], np.float32)
            return places / np.float32(len(self.walls) - 1)
        board = np.zeros((*self.walls.shape, 3))
        board[..., 0] = self.walls
        board[(*self.walker, 1)] = board[(*self.goal, 2)] = 1
        return board


@pytest.mark.parametrize(
    ("layout", "size", "flat"), [("four_rooms", 7, False), ("maze", 5, True)]
)
def test_steps(layout, size, flat):
    env = grid_world.GridWorld(layout, size, flat)
    steps = compiled_games.check(env, lambda: Plain(env.walls, flat))
    seen = {tuple(x) for x in np.argwhere(~env.walls).tolist()}
    for cells in steps.state:
        places = {divmod(int(x), size) for x in np.unique(cells)}
        assert places == seen
    assert not np.any(np.equal(steps.state.walker, steps.state.goal))


def reachable(walls):
    """Number of cells from which others are reached, and of ways between them."""
    free = {tuple(x) for x in np.argwhere(~walls).tolist()}
    queue = collections.deque([min(free)])
    found, ways = set(queue), 0
    while queue:
        here = queue.popleft()
        for move in MOVES.values():
            there = tuple(np.add(here, move).tolist())
            ways += there in free
            if there in free and there not in found:
                found.add(there)
                queue.append(there)
    assert found == free
    return len(free), ways // 2


@pytest.mark.parametrize("size", [5, 7, 13, 21])
def test_all_cells_are_reached_and_a_maze_has_one_way(size):
    cells, ways = reachable(grid_world.GridWorld("maze", size).walls)
    assert cells == 2 * (size // 2) ** 2 - 1 and ways == cells - 1
    rooms = grid_world.GridWorld("four_rooms", size).walls
    reachable(rooms)
    assert not rooms[size // 2].all() and rooms[0].all() and rooms[:, -1].all()


def test_seeds_make_mazes():
    walls = [grid_world.GridWorld("maze", 11, seed=x).walls for x in (0, 0, 1)]
    assert np.array_equal(*walls[:2]) and not np.array_equal(*walls[1:])


def test_modes_and_picture():
    compiled_games.check_modes(grid_world.GridWorld("maze", 5))
    compiled_games.check_picture(grid_world.GridWorld("maze", 9), 4)
    flat = grid_world.GridWorld("maze", 5, flat=True)
    assert flat.frame(grid_world.GridWorldState(6, 8)).shape == (80, 80, 3)


@refusals.table(
    (
        grid_world.GridWorld,
        refusals.bad(ValueError, "layout", "five_rooms"),
        refusals.bad(ValueError, "size", "maze", 3),
        refusals.bad(ValueError, "size", "maze", 8),
        refusals.bad(TypeError, "size", "maze", 7.0),
        refusals.bad(TypeError, "flat", "maze", 7, 1),
        refusals.bad(ValueError, "seed", "maze", 7, False, -1),
    ),
)
def test_refusals(row):
    row()
