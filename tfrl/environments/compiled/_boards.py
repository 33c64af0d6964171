"""What games on boards of cells share: draws, lit cells and pictures."""

from typing import Any

import numpy as np
import tensorflow as tf

_CELL_PIXELS = 16
_DARK = 20


def whole(noise: tf.Tensor, n: int) -> tf.Tensor:
    """Returns whole numbers below `n`, int32, of uniform ones in (0, 1)."""
    return tf.minimum(tf.cast(noise * n, tf.int32), n - 1)


def cell(row: tf.Tensor, column: tf.Tensor, shape: tuple[int, int]) -> tf.Tensor:
    """Returns boards `[N, *shape]` float32 with one cell lit; none outside.

    Args:
        row: `[N]` int32.
        column: likewise.
        shape: rows and columns of a board.
    """
    rows = tf.one_hot(row, shape[0])[:, :, tf.newaxis]
    return rows * tf.one_hot(column, shape[1])[:, tf.newaxis, :]


def lit(index: tf.Tensor, axis: int, n: int, others: Any = None) -> tf.Tensor:
    """Returns boards `[N, rows, columns, channels]` float32, lit at an index of a line.

    One comparison makes all of it, which XLA writes at once.

    Args:
        index: `[N, columns, channels]` of rows, or `[N, rows, channels]` of columns,
            outside of the board where a line has nothing lit.
        axis: which of the board's axes it counts along, 1 or 2.
        n: length of that axis.
        others: bool that broadcasts to the board, what is lit beside.
    """
    shape = [1, 1, 1, 1]
    shape[axis] = n
    found = tf.equal(tf.expand_dims(index, axis), tf.reshape(tf.range(n), shape))
    return tf.cast(found if others is None else found | others, tf.float32)


def picture(board: Any, colours: Any) -> np.ndarray:
    """Draws a board in colours, later channels over earlier ones.

    Args:
        board: `[rows, columns, channels]`.
        colours: of the channels, red, green and blue from 0 to 255.

    Returns:
        `[height, width, 3]` uint8.
    """
    lit = np.asarray(board) > 0.5
    drawn = np.full((*lit.shape[:2], 3), _DARK, np.uint8)
    for channel, colour in enumerate(colours):
        drawn[lit[..., channel]] = colour
    return drawn.repeat(_CELL_PIXELS, 0).repeat(_CELL_PIXELS, 1)


def of_one(function: Any, state: Any) -> np.ndarray:
    """What a function of the states of copies returns of one, as an array."""
    batch = tf.nest.map_structure(lambda x: tf.constant(np.asarray(x))[None], state)
    return function(batch)[0].numpy()
