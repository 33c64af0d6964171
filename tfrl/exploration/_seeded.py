"""A module's own random numbers: a stream that is saved and restored with it."""

from typing import Any

import tensorflow as tf

from tfrl.core import random


class Seeded(tf.Module):
    """A module with a stream of seeds, whose state is a checkpointed variable.

    The stream is the same on every device, eagerly, in `tf.function` and under XLA.

    Args:
        seed: int, integer tensor of shape `[]` or `[2]`, or None for a stream that
            TensorFlow's global seed chooses.

    Attributes:
        start: the seed as one int.

    Example:
        >>> first, second = Seeded(7), Seeded(7)
        >>> bool(tf.reduce_all(first.next_seed() == second.next_seed()))
        True
    """

    def __init__(self, seed: Any) -> None:
        super().__init__()
        with tf.init_scope():
            self.start = _as_int(seed)
            self._generator = tf.random.Generator.from_seed(self.start, alg="philox")
        # `tf.Module.variables` does not look into a generator.
        self._state = self._generator.state

    def restart(self, seed: Any) -> None:
        """Starts the stream anew, by what the constructor takes as seed."""
        self.start = _as_int(seed)
        self._generator.reset_from_seed(self.start)

    def next_seed(self, seed: Any = None) -> tf.Tensor:
        """Returns an int32 `[2]` seed: the given one, or the next of the stream."""
        return self._drawn() if seed is None else random.new_seed(seed)

    @tf.function(autograph=False)
    def _drawn(self) -> tf.Tensor:
        return self._generator.uniform_full_int([2], tf.int32)


def _as_int(seed: Any) -> int:
    return int(tf.bitcast(random.new_seed(seed), tf.int64))
