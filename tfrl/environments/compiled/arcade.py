"""Three small games on boards of 10 by 10 cells, a channel for each kind of thing."""

from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from tfrl.environments.compiled import _actions, _boards, protocol

_SIZE = 10
_SHAPE = (_SIZE, _SIZE)
_WHITE, _RED, _GOLD = (235, 235, 235), (220, 80, 70), (240, 200, 60)
_BLUE, _GREY, _GREEN = (80, 150, 240), (90, 90, 90), (80, 200, 120)
_LANES = 8  # of `Lanes`, from the second row on
_TWICE = 2  # steps for which things stay where they are, or rocks
_RELOAD = 3  # steps from a shot to the next


class _Game(protocol.CompiledEnv):
    """A game on a board: the observations are what `_seen` makes of the state."""

    metadata: ClassVar[dict[str, Any]] = {"render_fps": 10}
    colours: ClassVar[list[tuple[int, int, int]]]
    n_actions: ClassVar[int]

    def __init__(self) -> None:
        shape = (*_SHAPE, len(self.colours))
        self.observation_space = spaces.Box(0.0, 1.0, shape, np.float32)
        self.action_space = spaces.Discrete(self.n_actions)

    def frame(self, state: Any) -> np.ndarray:
        """Returns a picture of one copy, see `CompiledEnv.frame`."""
        return _boards.picture(_boards.of_one(self._seen, state), self.colours)

    def _seen(self, state: Any) -> tf.Tensor:
        raise NotImplementedError

    def _taken(self, actions: Any, n: int) -> tf.Tensor:
        return tf.cast(_actions.as_actions(self, actions, n), tf.int32)

    def _stepped(self, state: Any, rewards: Any, ended: Any) -> protocol.CompiledStep:
        seen, never = self._seen(state), tf.zeros_like(ended)
        rewards = tf.cast(rewards, tf.float32)
        return protocol.CompiledStep(state, seen, rewards, ended, never, seen)


class BricksState(NamedTuple):
    """State of `Bricks`, int32.

    Attributes:
        ball: `[N, 2]`, row and column.
        before: `[N, 2]`, where it was a step earlier; at first the cell that it comes
            from, even off the board.
        course: `[N, 2]`, rows and columns that it moves per step, -1 or 1 each.
        paddle: `[N]`, column of the paddle in the lowest row.
        bricks: `[N, 3, 10]` bool, the remaining ones in rows 1 to 3.

    Example:
        >>> BricksState([[4, 0]], [[3, 1]], [[1, -1]], [4], ()).paddle
        [4]
    """

    ball: Any
    before: Any
    course: Any
    paddle: Any
    bricks: Any


class Bricks(_Game):
    """A paddle keeps a ball from falling, which knocks bricks out of a wall.

    Actions move the paddle: 0 to the left, 1 not at all, 2 to the right. The ball moves
    one cell diagonally and bounces off the sides, the top, bricks and the paddle; a
    moving paddle sends it the way it moves. Each brick is a reward of 1. When all are
    gone there is a new wall. The episode ends when the ball passes the paddle.

    Observations are `[N, 10, 10, 4]` float32: bricks, where the ball was, the paddle,
    the ball.

    Example:
        >>> env = Bricks()
        >>> state, observations = env.reset(0, 2)
        >>> env.step(state, [0, 2], env.draw(1, [2])).state.paddle.numpy()
        array([3, 5], dtype=int32)
    """

    colours: ClassVar = [_RED, _GREY, _BLUE, _WHITE]
    n_actions: ClassVar = 3
    n_noise, n_step_noise = 2, 0

    def initial(self, noise: tf.Tensor) -> tuple[Any, Any]:
        """Begins an episode in every copy, see `CompiledEnv.initial`."""
        n = noise.shape[0]
        row, column = tf.fill([n], 4), _boards.whole(noise[:, 0], _SIZE)
        side = 2 * _boards.whole(noise[:, 1], 2) - 1
        ball, course = (
            tf.stack([row, column], 1),
            tf.stack([tf.ones_like(row), side], 1),
        )
        bricks = tf.ones([n, 3, _SIZE], tf.bool)
        state = BricksState(ball, ball - course, course, row, bricks)
        return state, self._seen(state)

    def step(
        self, state: BricksState, actions: Any, noise: tf.Tensor
    ) -> protocol.CompiledStep:
        """Steps every copy, see `CompiledEnv.step`."""
        del noise
        move = self._taken(actions, state.paddle.shape[0]) - 1
        paddle = tf.clip_by_value(state.paddle + move, 0, _SIZE - 1)
        (row, column), (down, right) = (
            tf.unstack(x, axis=1) for x in (state.ball, state.course)
        )
        beside = column + right
        right = tf.where((beside < 0) | (beside >= _SIZE), -right, right)
        down = tf.where(row + down < 0, -down, down)
        column, next_row = column + right, row + down
        # There is no brick outside of rows 1 to 3: `one_hot` is 0 there.
        struck = _boards.cell(next_row - 1, column, (3, _SIZE)) > 0.5
        struck &= state.bricks
        is_struck = tf.reduce_any(struck, [1, 2])
        bricks = state.bricks & ~struck
        bricks |= ~tf.reduce_any(bricks, [1, 2], keepdims=True)
        at_bottom = tf.equal(next_row, _SIZE - 1)
        caught = at_bottom & tf.equal(column, paddle)
        right = tf.where(caught & tf.not_equal(move, 0), move, right)
        back = is_struck | caught
        down, next_row = tf.where(back, -down, down), tf.where(back, row, next_row)
        ball, course = tf.stack([next_row, column], 1), tf.stack([down, right], 1)
        state = BricksState(ball, state.ball, course, paddle, bricks)
        return self._stepped(state, is_struck, at_bottom & ~caught)

    def _seen(self, state: BricksState) -> tf.Tensor:
        places = [(x[:, :1], x[:, 1:]) for x in (state.before, state.ball)]
        places.insert(1, (tf.constant([[_SIZE - 1]]), state.paddle[:, tf.newaxis]))
        rows = tf.range(_SIZE)[tf.newaxis]
        columns = [tf.where(tf.equal(rows, row), at, -1) for row, at in places]
        columns = tf.stack([-tf.ones_like(columns[0]), *columns], -1)
        bricks = tf.pad(state.bricks, [[0, 0], [1, 6], [0, 0]])[..., tf.newaxis]
        return _boards.lit(columns, 2, _SIZE, bricks & [True, False, False, False])


class LanesState(NamedTuple):
    """State of `Lanes`, int32.

    Attributes:
        player: `[N, 2]`, row and column.
        columns: `[N, 8]`, of the thing in each lane, -1 where it is empty.
        courses: `[N, 8]`, columns that it moves at a time, -1 or 1.
        gold: `[N, 8]` bool, whether it is to be collected.
        clock: `[N]`, steps until things move, 0 or 1.

    Example:
        >>> LanesState([[5, 5]], (), (), (), [1]).clock
        [1]
    """

    player: Any
    columns: Any
    courses: Any
    gold: Any
    clock: Any


class Lanes(_Game):
    """Things cross the board from either side: gold to collect, others to dodge.

    Actions do nothing (0), or go left, up, right and down (1 to 4) within the rows 1 to
    8, the lanes. A lane holds at most one thing; all move every other step, and leave
    at the end. Each step one enters with probability 0.3 if the drawn lane is empty; a
    third of them are gold. Gold is a reward of 1; touching any other ends the episode.

    Observations are `[N, 10, 10, 5]` float32: the cells behind things, those ahead when
    they move next, gold, the others, the player.

    Example:
        >>> env = Lanes()
        >>> state, observations = env.reset(0, 2)
        >>> env.step(state, [1, 2], env.draw(1, [2])).state.player.numpy().tolist()
        [[5, 4], [4, 5]]
    """

    colours: ClassVar = [_GREY, _GREY, _GOLD, _RED, _GREEN]
    n_actions: ClassVar = 5
    n_noise = 4

    def initial(self, noise: tf.Tensor) -> tuple[Any, Any]:
        """Begins an episode in every copy, see `CompiledEnv.initial`."""
        n = noise.shape[0]
        none = tf.fill([n, _LANES], -1)
        clock = tf.fill([n], _TWICE - 1)
        gold = tf.zeros([n, _LANES], tf.bool)
        state = LanesState(tf.fill([n, 2], 5), none, -none, gold, clock)
        return state, self._seen(state)

    def step(
        self, state: LanesState, actions: Any, noise: tf.Tensor
    ) -> protocol.CompiledStep:
        """Steps every copy, see `CompiledEnv.step`."""
        actions = self._taken(actions, state.clock.shape[0])
        moves = tf.constant([(0, 0), (0, -1), (-1, 0), (0, 1), (1, 0)])
        player = state.player + tf.gather(moves, actions)
        player = tf.clip_by_value(player, [1, 0], [_LANES, _SIZE - 1])
        columns, courses, gold = self._entered(state, noise)
        touched = [self._touching(player, columns)]
        columns = tf.where(touched[0] & gold, -1, columns)
        moving = tf.equal(state.clock, 0)
        ahead = columns + courses
        ahead = tf.where((ahead < 0) | (ahead >= _SIZE), -1, ahead)
        going = moving[:, tf.newaxis] & (columns >= 0)
        columns = tf.where(going, ahead, columns)
        touched.append(self._touching(player, columns))
        columns = tf.where(touched[1] & gold, -1, columns)
        collected = [tf.cast(x & gold, tf.float32) for x in touched]
        rewards = tf.reduce_sum(tf.add_n(collected), 1)
        ended = tf.reduce_any((touched[0] | touched[1]) & ~gold, 1)
        clock = tf.where(moving, _TWICE - 1, state.clock - 1)
        state = LanesState(player, columns, courses, gold, clock)
        return self._stepped(state, rewards, ended)

    def _entered(self, state: LanesState, noise: tf.Tensor) -> tuple[Any, Any, Any]:
        """Things after one may have entered at an end of a lane."""
        lane = tf.one_hot(_boards.whole(noise[:, 1], _LANES), _LANES) > 0.5
        comes = lane & (noise[:, :1] < 0.3) & (state.columns < 0)
        from_left = noise[:, 2:3] < 0.5
        columns = tf.where(from_left, 0, _SIZE - 1)
        return (
            tf.where(comes, columns, state.columns),
            tf.where(comes, tf.where(from_left, 1, -1), state.courses),
            tf.where(comes, noise[:, 3:4] < 1.0 / 3.0, state.gold),
        )

    def _touching(self, player: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
        lane = tf.one_hot(player[:, 0] - 1, _LANES) > 0.5
        return lane & tf.equal(columns, player[:, 1:])

    def _seen(self, state: LanesState) -> tf.Tensor:
        behind, ahead = state.columns - state.courses, state.columns + state.courses
        goes = tf.equal(state.clock, 0)[:, tf.newaxis]
        things = [
            tf.where(state.columns >= 0, behind, -1),
            tf.where(goes & (state.columns >= 0), ahead, -1),
            tf.where(state.gold, state.columns, -1),
            tf.where(state.gold, -1, state.columns),
        ]
        rows = tf.range(_SIZE)[tf.newaxis]
        player = tf.where(tf.equal(rows, state.player[:, :1]), state.player[:, 1:], -1)
        above = [[0, 0], [1, 1]]
        things = [tf.pad(x, above, constant_values=-1) for x in things]
        return _boards.lit(tf.stack([*things, player], -1), 2, _SIZE)


class MeteorsState(NamedTuple):
    """State of `Meteors`, int32.

    Attributes:
        ship: `[N]`, column of the ship in the lowest row.
        reload: `[N]`, steps until it can shoot.
        shots: `[N, 10]`, row of the shot in each column, -1 where there is none.
        rocks: `[N, 10]`, row of the rock in each column, likewise.
        clock: `[N]`, steps until rocks fall, 0 or 1.

    Example:
        >>> MeteorsState([5], [0], (), (), [1]).ship
        [5]
    """

    ship: Any
    reload: Any
    shots: Any
    rocks: Any
    clock: Any


class Meteors(_Game):
    """Rocks fall; a ship must shoot them without being hit.

    Actions move the ship left (0), not at all (1) or right (2), or shoot (3), which can
    be done every third step. A shot rises one cell per step, rocks fall one cell every
    other step; each column has at most one of each, and their meeting is a reward of 1.
    Each step a rock enters with probability 0.25 if the drawn column has none. A rock
    that falls onto the ship ends the episode; others disappear.

    Observations are `[N, 10, 10, 5]` float32: shots, rocks, rocks that fall next, the
    ship, the ship when it can shoot.

    Example:
        >>> env = Meteors()
        >>> state, observations = env.reset(0, 2)
        >>> env.step(state, [0, 3], env.draw(1, [2])).state.reload.numpy()
        array([0, 2], dtype=int32)
    """

    colours: ClassVar = [_GOLD, _GREY, _RED, _BLUE, _GREEN]
    n_actions: ClassVar = 4
    n_noise = 2

    def initial(self, noise: tf.Tensor) -> tuple[Any, Any]:
        """Begins an episode in every copy, see `CompiledEnv.initial`."""
        n = noise.shape[0]
        none, now = tf.fill([n, _SIZE], -1), tf.zeros([n], tf.int32)
        clock = tf.fill([n], _TWICE - 1)
        state = MeteorsState(tf.fill([n], _SIZE // 2), now, none, none, clock)
        return state, self._seen(state)

    def step(
        self, state: MeteorsState, actions: Any, noise: tf.Tensor
    ) -> protocol.CompiledStep:
        """Steps every copy, see `CompiledEnv.step`."""
        actions = self._taken(actions, state.ship.shape[0])
        shoots = tf.equal(actions, 3) & tf.equal(state.reload, 0)
        move = tf.where(tf.equal(actions, 3), 0, actions - 1)
        ship = tf.clip_by_value(state.ship + move, 0, _SIZE - 1)
        at_ship = tf.one_hot(ship, _SIZE) > 0.5
        reload = tf.where(shoots, _RELOAD - 1, tf.maximum(state.reload - 1, 0))
        shots = tf.where(state.shots >= 0, state.shots - 1, -1)
        shots = tf.where(at_ship & shoots[:, tf.newaxis], _SIZE - 2, shots)
        column = tf.one_hot(_boards.whole(noise[:, 1], _SIZE), _SIZE) > 0.5
        comes = column & (noise[:, :1] < 0.25) & (state.rocks < 0)
        falling = tf.equal(state.clock, 0)
        rocks = tf.where(state.rocks >= 0, state.rocks, -1)
        rocks = tf.where(falling[:, tf.newaxis] & (rocks >= 0), rocks + 1, rocks)
        rocks = tf.where(comes, 0, rocks)
        met = (shots >= 0) & (rocks >= 0) & (shots <= rocks)
        shots, rocks = tf.where(met, -1, shots), tf.where(met, -1, rocks)
        landed = rocks >= _SIZE - 1
        ended = tf.reduce_any(landed & at_ship, 1)
        rocks = tf.where(landed, -1, rocks)
        clock = tf.where(falling, _TWICE - 1, state.clock - 1)
        state = MeteorsState(ship, reload, shots, rocks, clock)
        rewards = tf.reduce_sum(tf.cast(met, tf.float32), 1)
        return self._stepped(state, rewards, ended)

    def _seen(self, state: MeteorsState) -> tf.Tensor:
        columns = tf.range(_SIZE)[tf.newaxis]
        ship = tf.where(tf.equal(columns, state.ship[:, tf.newaxis]), _SIZE - 1, -1)
        can = tf.equal(state.reload, 0)[:, tf.newaxis]
        falls = tf.equal(state.clock, 0)[:, tf.newaxis]
        rows = [state.shots, state.rocks, tf.where(falls, state.rocks, -1)]
        rows += [ship, tf.where(can, ship, -1)]
        return _boards.lit(tf.stack(rows, -1), 1, _SIZE)
