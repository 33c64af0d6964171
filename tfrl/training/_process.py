"""What a run asks of its process: signals that wait, a collector that looks away."""

import contextlib
import gc
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yields a function that tells whether SIGINT or SIGTERM came once.

    Outside the main thread signals cannot be caught; there it never does.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before: dict[int, Any] = {}

    def ask(number: int, _: Any) -> None:
        asked.set()
        signal.signal(number, before[number])

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, ask)
    try:
        yield asked.is_set
    finally:
        for caught, handler in before.items():
            signal.signal(caught, handler)


@contextlib.contextmanager
def settled() -> Iterator[None]:
    """Spares the garbage collector what is alive now.

    TensorFlow and Keras make a great many objects that stay; looking through them again
    and again costs a fast training loop a tenth of its time and more.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
