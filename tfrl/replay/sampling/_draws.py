"""Random numbers on the host that go on after a checkpoint where they were."""

import json
from typing import Any

import numpy as np
import tensorflow as tf


class Draws(tf.train.experimental.PythonState):
    """A NumPy generator whose state a checkpoint keeps.

    `seed` is an int, a generator to draw from, or None for a seed of the system's.

    Attributes:
        generator: the generator.
        contents: its kind, which has to be the same where a state is restored.
    """

    def __init__(self, seed: int | np.random.Generator | None) -> None:
        self.generator = np.random.default_rng(seed)
        kind = type(self.generator.bit_generator).__name__
        self.contents = f"state of the generator {kind}"

    def serialize(self) -> str:
        """Returns what a checkpoint keeps."""
        return json.dumps(self.generator.bit_generator.state, default=np.ndarray.tolist)

    def deserialize(self, string_value: Any) -> None:
        """Takes back what a checkpoint kept, of the same kind of generator."""
        self.generator.bit_generator.state = json.loads(string_value)
