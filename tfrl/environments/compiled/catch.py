"""A ball falls, and a paddle must be where it lands."""

from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from tfrl._internal import checks
from tfrl.environments.compiled import _actions, _boards, protocol


class CatchState(NamedTuple):
    """State of `Catch`, all `[N]` int32.

    Attributes:
        ball_row: from 0, the top.
        ball_column: where it falls.
        paddle: column of the paddle in the lowest row.

    Example:
        >>> CatchState([0], [3], [2]).paddle
        [2]
    """

    ball_row: Any
    ball_column: Any
    paddle: Any


class Catch(protocol.CompiledEnv):
    """A ball falls one row per step from a random column; a paddle must catch it.

    Actions move the paddle, which begins in the middle: 0 to the left, 1 not at all, 2
    to the right. In the lowest row the episode ends, with a reward of 1 if the paddle
    is there, else -1. Observations are the board, `[N, rows, columns]` float32, 1 where
    the ball and the paddle are.

    Args:
        rows: of the board, at least 2.
        columns: likewise, at least 1.

    Raises:
        TypeError: if one is no int.
        ValueError: if one is too small.

    References:
        Osband et al., 2020, Behaviour Suite for Reinforcement Learning, "Catch".

    Example:
        >>> env = Catch(3, 3)
        >>> state, observations = env.reset(1, 1)
        >>> for noise in env.draw(1, [2, 1]):
        ...     step = env.step(state, [1], noise)
        ...     state = step.state
        >>> bool(step.terminated[0]), abs(float(step.rewards[0]))
        (True, 1.0)
    """

    metadata: ClassVar[dict[str, Any]] = {"render_fps": 10}
    n_noise, n_step_noise = 1, 0

    def __init__(self, rows: int = 10, columns: int = 5) -> None:
        self.rows = checks.check_whole_number("Catch", "rows", rows, low=2)
        self.columns = checks.check_whole_number("Catch", "columns", columns, low=1)
        self.observation_space = spaces.Box(0.0, 1.0, (rows, columns), np.float32)
        self.action_space = spaces.Discrete(3)

    def initial(self, noise: tf.Tensor) -> tuple[Any, Any]:
        """Begins an episode in every copy, see `CompiledEnv.initial`."""
        column = _boards.whole(noise[:, 0], self.columns)
        middle = tf.fill([noise.shape[0]], self.columns // 2)
        state = CatchState(tf.zeros_like(column), column, middle)
        return state, self._seen(state)

    def step(
        self, state: CatchState, actions: Any, noise: tf.Tensor
    ) -> protocol.CompiledStep:
        """Steps every copy, see `CompiledEnv.step`."""
        del noise
        actions = _actions.as_actions(self, actions, state.paddle.shape[0])
        paddle = state.paddle + tf.cast(actions, tf.int32) - 1
        paddle = tf.clip_by_value(paddle, 0, self.columns - 1)
        state = CatchState(state.ball_row + 1, state.ball_column, paddle)
        ended = state.ball_row >= self.rows - 1
        rewards = tf.where(tf.equal(paddle, state.ball_column), 1.0, -1.0)
        rewards = tf.where(ended, rewards, 0.0)
        seen = self._seen(state)
        never = tf.zeros_like(ended)
        return protocol.CompiledStep(state, seen, rewards, ended, never, seen)

    def frame(self, state: CatchState) -> np.ndarray:
        """Returns a picture of one copy, see `CompiledEnv.frame`."""
        board = _boards.of_one(self._seen, state)
        return _boards.picture(board[..., np.newaxis], [(240, 200, 60)])

    def _seen(self, state: CatchState) -> tf.Tensor:
        shape = self.rows, self.columns
        lowest = tf.fill([state.paddle.shape[0]], self.rows - 1)
        ball = _boards.cell(state.ball_row, state.ball_column, shape)
        return tf.maximum(ball, _boards.cell(lowest, state.paddle, shape))
