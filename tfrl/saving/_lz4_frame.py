"""Bytes in one LZ4 frame with checksums, written and read piece by piece.

Every block of the frame carries a checksum, and so does the whole, so that a changed
bit shows before a byte of its block is used.
"""

import io
from collections.abc import Iterable
from typing import Any, BinaryIO

import lz4.frame
import numpy as np

_MAGIC = b"\x04\x22\x4d\x18"
_STEP = 1 << 20


def packed(parts: Iterable[Any]) -> bytes:
    """Packs bytes into one frame.

    Args:
        parts: bytes-like objects, contiguous, in order.

    Returns:
        The frame; `Unpacked` reads it, and any other reader of LZ4 frames.

    Example:
        >>> packed([b"a" * 1000, b"b"])[:4].hex()
        '04224d18'
    """
    compressor = lz4.frame.LZ4FrameCompressor(
        block_size=lz4.frame.BLOCKSIZE_MAX1MB,
        content_checksum=True,
        block_checksum=True,
    )
    pieces = [compressor.begin()]
    for part in parts:
        view = memoryview(part).cast("B")
        for start in range(0, len(view), _STEP):
            pieces.append(compressor.compress(view[start : start + _STEP]))
    pieces.append(compressor.flush())
    return b"".join(pieces)


class Unpacked:
    """The content of a frame, read once from front to back, within a limit of memory.

    Args:
        file: open for reading bytes, at the start of the frame.
        limit: how many bytes of memory `reserve` grants in all; None for any number.

    Raises:
        ValueError: if the file does not begin with an LZ4 frame. Every method raises
            an error of lz4 for a frame that is cut off or damaged.

    Example:
        >>> content = Unpacked(io.BytesIO(packed([b"abc", b"de"])), limit=100)
        >>> content.read(3).tobytes(), content.rest()
        (b'abc', b'de')
        >>> content.finish()
    """

    def __init__(self, file: BinaryIO, limit: int | None) -> None:
        start = file.read(len(_MAGIC))
        if start != _MAGIC:
            raise ValueError(f"it begins with {start!r}, which no frame does")
        file.seek(-len(start), io.SEEK_CUR)
        self._content = lz4.frame.LZ4FrameFile(file)
        self._limit = limit
        self._reserved = 0

    def reserve(self, count: int) -> None:
        """Accounts for memory before it is taken.

        Args:
            count: how many bytes will be taken.

        Raises:
            ValueError: if that makes more than the limit, or is negative.
        """
        if count < 0:
            raise ValueError(f"{count} is no number of bytes")
        self._reserved += count
        if self._limit is not None and self._reserved > self._limit:
            raise ValueError(
                f"it takes about {self._reserved} bytes of memory, more than "
                f"`max_bytes` {self._limit}, which you may raise"
            )

    def read(self, count: int) -> np.ndarray:
        """Returns the next bytes in new memory, for which it accounts.

        Args:
            count: how many.

        Raises:
            ValueError: if the content ends before.
        """
        self.reserve(count)
        memory = np.empty(count, np.uint8)
        for start in range(0, count, _STEP):
            part = memory[start : start + _STEP]
            if self._content.readinto(part.data) != len(part):
                raise ValueError("its content ends early")
        return memory

    def rest(self) -> bytes:
        """Returns all further bytes, and accounts for them."""
        pieces = []
        while piece := self._content.read(_STEP):
            self.reserve(len(piece))
            pieces.append(piece)
        return b"".join(pieces)

    def finish(self) -> None:
        """Compares the checksum of the whole.

        Raises:
            ValueError: if something follows.
        """
        if self._content.read(1):
            raise ValueError("its content goes on after its end")
