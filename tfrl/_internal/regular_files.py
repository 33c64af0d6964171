"""Reading of files that others may have put there: what is none is not waited for."""

import errno
import io
import os
import stat

from tfrl._internal import durable


def open_file(path: durable.Path) -> io.FileIO:
    """Opens a file for reading, without a buffer; never waits for a pipe.

    Args:
        path: the file, or a link to one.

    Returns:
        The file, open.

    Raises:
        OSError: if there is none, or something else.

    Example:
        >>> open_file(os.devnull)
        Traceback (most recent call last):
        ...
        OSError: [Errno 22] no regular file: '/dev/null'
    """
    flags = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    file = os.open(path, os.O_RDONLY | flags)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "no regular file", os.fspath(path))
    return open(file, "rb", buffering=0)


def read_file(path: durable.Path) -> bytes:
    """Returns the content of a file; never waits for a pipe.

    Args:
        path: the file, or a link to one.

    Returns:
        Its bytes.

    Raises:
        OSError: if there is none, or something else.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/notes.txt"
        >>> durable.replace_file(path, b"new")
        >>> read_file(path)
        b'new'
    """
    with open_file(path) as file:
        return file.read()
