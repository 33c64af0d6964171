"""A walker among walls that must find a goal."""

from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from tfrl._internal import checks
from tfrl.environments.compiled import _actions, _boards, protocol

_MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])
_COLOURS = (120, 120, 120), (80, 200, 120), (240, 200, 60)


class GridWorldState(NamedTuple):
    """State of `GridWorld`, both `[N]` int32.

    Attributes:
        walker: its cell, counted row by row.
        goal: likewise.

    Example:
        >>> GridWorldState([12], [14]).goal
        [14]
    """

    walker: Any
    goal: Any


class GridWorld(protocol.CompiledEnv):
    """A walker looks for a goal in four rooms or a maze; both begin anywhere.

    Actions go up, right, down and left (0 to 3); a wall blocks them. At the goal the
    episode ends with a reward of 1; all other rewards are 0. The walls, including those
    around the board, are the same in all episodes; walker and goal are drawn anew, in
    two cells without a wall.

    Args:
        layout: "four_rooms", two walls with two doors each, or "maze", with one way
            between any two cells.
        size: rows and columns of the board, odd, from 5 on.
        flat: show `[N, 4]`, row and column of the walker and of the goal from 0 to 1,
            instead of the board `[N, size, size, 3]` of walls, walker and goal; both
            float32.
        seed: of the maze.

    Attributes:
        walls: `[size, size]` bool.

    Raises:
        TypeError: if an argument is of another kind.
        ValueError: if one is outside its range.

    References:
        Sutton, Precup, Singh, 1999, Between MDPs and semi-MDPs, figure 2 (the rooms).

    Example:
        >>> env = GridWorld("maze", 7)
        >>> state, observations = env.reset(0, 2)
        >>> observations.shape
        TensorShape([2, 7, 7, 3])
        >>> bool(env.walls[0].all()), bool(env.walls[1, 1]), int((~env.walls).sum())
        (True, False, 17)
    """

    metadata: ClassVar[dict[str, Any]] = {"render_fps": 10}
    n_noise, n_step_noise = 2, 0

    def __init__(
        self,
        layout: str = "four_rooms",
        size: int = 13,
        flat: bool = False,
        seed: int = 0,
    ) -> None:
        where = "GridWorld"
        checks.check_one_of(where, "layout", layout, ("four_rooms", "maze"))
        checks.check_whole_number(where, "size", size, low=5)
        checks.check_type(where, "flat", flat, bool, "a bool")
        checks.check_whole_number(where, "seed", seed, low=0)
        if size % 2 == 0:
            raise ValueError(f"`{where}`: `size` expected an odd number; got {size}")
        self.size, self.flat = size, flat
        self.walls = _rooms(size) if layout == "four_rooms" else _maze(size, seed)
        self._free = np.flatnonzero(~self.walls).astype(np.int32)
        self._next = _neighbours(self.walls)
        shape = (4,) if flat else (size, size, 3)
        self.observation_space = spaces.Box(0.0, 1.0, shape, np.float32)
        self.action_space = spaces.Discrete(4)

    def initial(self, noise: tf.Tensor) -> tuple[Any, Any]:
        """Begins an episode in every copy, see `CompiledEnv.initial`."""
        count = len(self._free)
        start = _boards.whole(noise[:, 0], count)
        # Any other cell than that.
        goal = (start + 1 + _boards.whole(noise[:, 1], count - 1)) % count
        state = GridWorldState(
            tf.gather(self._free, start), tf.gather(self._free, goal)
        )
        return state, self._seen(state)

    def step(
        self, state: GridWorldState, actions: Any, noise: tf.Tensor
    ) -> protocol.CompiledStep:
        """Steps every copy, see `CompiledEnv.step`."""
        del noise
        actions = _actions.as_actions(self, actions, state.walker.shape[0])
        walker = tf.gather(self._next, 4 * state.walker + tf.cast(actions, tf.int32))
        state = GridWorldState(walker, state.goal)
        found = tf.equal(walker, state.goal)
        seen = self._seen(state)
        rewards, never = tf.cast(found, tf.float32), tf.zeros_like(found)
        return protocol.CompiledStep(state, seen, rewards, found, never, seen)

    def frame(self, state: GridWorldState) -> np.ndarray:
        """Returns a picture of one copy, see `CompiledEnv.frame`."""
        return _boards.picture(_boards.of_one(self._board, state), _COLOURS)

    def _seen(self, state: GridWorldState) -> tf.Tensor:
        return self._places(state) if self.flat else self._board(state)

    def _board(self, state: GridWorldState) -> tf.Tensor:
        size = self.size
        lit = [tf.one_hot(x, size * size) for x in (state.walker, state.goal)]
        walls = tf.constant(self.walls.reshape(1, -1), tf.float32)
        channels = [tf.broadcast_to(walls, lit[0].shape), *lit]
        return tf.reshape(tf.stack(channels, -1), [-1, size, size, 3])

    def _places(self, state: GridWorldState) -> tf.Tensor:
        cells = tf.stack([state.walker, state.goal], 1)
        places = tf.stack([cells // self.size, cells % self.size], 2)
        places = tf.reshape(tf.cast(places, tf.float32), [-1, 4])
        return places / (self.size - 1.0)


def _rooms(size: int) -> np.ndarray:
    walls = np.zeros((size, size), bool)
    middle = size // 2
    for index in (0, middle, size - 1):
        walls[index], walls[:, index] = True, True
    for door in ((middle + 1) // 2, size - 1 - (middle + 1) // 2):
        walls[middle, door] = walls[door, middle] = False
    return walls


def _maze(size: int, seed: int) -> np.ndarray:
    """Digs from cell to cell two apart, back where all around are dug."""
    rng = np.random.default_rng(seed)
    walls = np.ones((size, size), bool)
    walls[1, 1] = False
    path = [np.array([1, 1])]
    while path:
        here = path[-1]
        ahead = [here + 2 * move for move in _MOVES]
        ahead = [x for x in ahead if np.all((x > 0) & (x < size)) and walls[tuple(x)]]
        if not ahead:
            path.pop()
            continue
        there = ahead[rng.integers(len(ahead))]
        walls[tuple(there)] = walls[tuple((here + there) // 2)] = False
        path.append(there)
    return walls


def _neighbours(walls: np.ndarray) -> np.ndarray:
    """The cell that an action leads to, `[4 * cells]` int32."""
    size = len(walls)
    found = np.repeat(np.arange(size * size, dtype=np.int32), 4)
    for cell in np.flatnonzero(~walls):
        for action, (down, right) in enumerate(_MOVES):
            there = cell + size * down + right
            if not walls.flat[there]:
                found[4 * cell + action] = there
    return found
