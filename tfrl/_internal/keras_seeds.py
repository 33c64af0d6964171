"""Seeds of those initial weights of Keras that have none of their own."""

import contextlib
import random
from collections.abc import Iterator


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Lets Keras, which draws seeds of weights from Python's generator, repeat them."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
