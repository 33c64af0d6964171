"""Where commands print tables."""

import errno
import os

import rich.console


class Tables(rich.console.Console):
    """Prints what has columns. That nobody reads on is an error here, not an end.

    Example:
        >>> Tables().print("median [5]")
        median [5]
    """

    def __init__(self) -> None:
        super().__init__(highlight=False, markup=False)

    def on_broken_pipe(self) -> None:
        """Raises an error, where rich would end the process."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
