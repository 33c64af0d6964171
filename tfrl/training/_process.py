"""What a run asks of its process: signals that wait, a collector that looks away."""

import contextlib
import gc
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any


class Interrupted(KeyboardInterrupt):
    """A call was broken off, and nothing of it remains."""


class Interruption:
    """Whether the process was asked to end, and what may be broken off for it.

    Example:
        >>> interruption = Interruption()
        >>> interruption.call(abs, -1), interruption()
        (1, False)
    """

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._calling = False

    def __call__(self) -> bool:
        """Whether it was asked to end."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Asks the process to end; a signal handler calls it.

        Raises:
            Interrupted: within `call`.
        """
        self._asked.set()
        self._break_off()

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function, which changes nothing but what it returns.

        Args:
            function: hands control back to Python now and then.
            *args: its arguments.

        Returns:
            What it returns.

        Raises:
            Interrupted: if the process was, or meanwhile is, asked to end.
        """
        self._calling = True
        try:
            if self():
                self._break_off()
            return function(*args)
        finally:
            self._calling = False

    def _break_off(self) -> None:
        if self._calling:
            self._calling = False  # once: what cleans up goes on
            raise Interrupted


class Until:
    """A policy that raises Interrupted instead of acting, once it is asked to end.

    Args:
        asked_to_end: says whether it is.
        policy: what acts.
    """

    def __init__(self, asked_to_end: Callable[[], bool], policy: Any) -> None:
        self._asked_to_end, self._policy = asked_to_end, policy
        self.initial_state = policy.initial_state

    def act(self, observations: Any, state: Any = (), **options: Any) -> Any:
        """Acts as the policy does."""
        if self._asked_to_end():
            raise Interrupted
        return self._policy.act(observations, state, **options)


@contextlib.contextmanager
def interruptible() -> Iterator[Interruption]:
    """Yields what tells whether SIGINT or SIGTERM came once; a second one acts.

    Outside the main thread signals cannot be caught; there none ever comes.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before: dict[int, Any] = {}

    def ask(number: int, _: Any) -> None:
        signal.signal(number, before[number])
        interruption.ask()

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, ask)
    try:
        yield interruption
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
