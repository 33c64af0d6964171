"""Updates cut into calls that return within about a second.

TensorFlow hands nothing back to Python, neither Ctrl-C nor SIGTERM, while a call of a
compiled function lasts. A brief update is therefore one call; a long one is several,
of which each takes as many gradient steps as fit into a fraction of a second. The steps
are those of one compiled loop however they are cut, so that the results are the same to
the bit.
"""

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfrl.agents import _compiler_choice, replicated, train_state

# Floating-point operations that no processor takes a second for, and what a step costs
# besides those of its network.
_BRIEF_WORK = 3e9
_STEP_WORK = 1e6
_PIECE_SECONDS = 0.3
# The fewest rows of a call that only looks; so many images take some 50 milliseconds.
_FORWARD_ROWS = 128


class Work(NamedTuple):
    """What an update costs, from sizes alone: every worker finds the same.

    Attributes:
        state: `TrainState` of the network.
        n_steps: gradient steps.
        n_rows: of each.

    Example:
        >>> dense = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        >>> Work(train_state.TrainState.create(dense), 100, 64).is_brief
        True
    """

    state: train_state.TrainState
    n_steps: int
    n_rows: int

    @property
    def is_brief(self) -> bool:
        """Whether the update is over in much less than a second, in one call."""
        return self.n_steps <= self.n_brief_steps

    @property
    def n_brief_steps(self) -> int:
        """The most steps that are; 0 where there are convolutions."""
        return int(_BRIEF_WORK / (6 * self._row_work * self.n_rows + _STEP_WORK))

    @property
    def n_forward_rows(self) -> int:
        """Rows of which the outputs are computed in much less than a second."""
        return max(_FORWARD_ROWS, int(_BRIEF_WORK / (2 * self._row_work + 1)))

    @property
    def _row_work(self) -> float:
        model = self.state.model_def
        if isinstance(model, keras.layers.Layer):
            return _compiler_choice.row_work(model)
        return float(
            sum(math.prod(x.shape) for x in tf.nest.flatten(self.state.params))
        )


def in_pieces(
    work: Work, advance: Callable[[Any, tf.Tensor], Any], progress: Any
) -> Any:
    """Takes the steps of an update in calls of a fraction of a second each.

    How many steps a call takes is measured. Replicas may have to meet in every step, so
    that all workers must cut alike: there it follows from the sizes.

    Args:
        work: what the update costs.
        advance: from `progress` and a number of steps to the progress after as many
            steps, counted from the first, or when it has come to its end before.
        progress: record with `step`, the number of steps taken, and `stop`, whether no
            more are to be taken.

    Returns:
        The last progress.

    Example:
        >>> class Count(NamedTuple):
        ...     step: tf.Tensor
        ...     stop: tf.Tensor
        >>> dense = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        >>> work = Work(train_state.TrainState.create(dense), 100, 64)
        >>> int(in_pieces(work, lambda count, until: count._replace(step=until),
        ...               Count(tf.constant(0), tf.constant(False))).step)
        100
    """
    measured = replicated.n_replicas() == 1
    size = 1 if measured else max(1, work.n_brief_steps)
    done = int(progress.step)
    while done < work.n_steps and not bool(progress.stop):
        start = time.perf_counter()
        progress = advance(progress, tf.constant(min(done + size, work.n_steps)))
        before, done = done, int(progress.step)
        if measured:
            seconds = (time.perf_counter() - start) / max(1, done - before)
            size = max(1, min(4 * size, int(_PIECE_SECONDS / seconds)))
    return progress
