"""A disk that takes no more, as far as this process is concerned."""

import contextlib
import resource


@contextlib.contextmanager
def no_file_above(size):
    """Lets no file grow beyond so many bytes within the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
