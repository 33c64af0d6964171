"""Tests of `tfrl.saving._lz4_frame`."""

import io

import lz4.frame
import numpy as np
import pytest

from tfrl.saving import _lz4_frame

NOISE = np.random.default_rng(0).bytes(300)
CONTENT = NOISE + b"y" * 3000


# Those of lz4, and of what is no frame, or is more than one.
ERRORS = (ValueError, RuntimeError, EOFError)


def unpack(data, limit=None):
    source = _lz4_frame.Unpacked(io.BytesIO(data), limit)
    content = source.rest()
    source.finish()
    return content


@pytest.mark.parametrize(
    "parts",
    [[], [b""], [b"abc", b"", NOISE], [np.arange(700_000.0), b"end"]],
    ids=["nothing", "empty", "pieces", "blocks"],
)
def test_content_comes_back_here_and_elsewhere(parts):
    content = b"".join(bytes(memoryview(part).cast("B")) for part in parts)
    data = _lz4_frame.packed(parts)
    assert lz4.frame.decompress(data) == content
    assert unpack(data) == content


def test_blocks_and_the_whole_have_checksums():
    info = lz4.frame.get_frame_info(_lz4_frame.packed([CONTENT]))
    assert info["content_checksum"] and info["block_checksum"]


def test_pieces_are_taken_in_order():
    source = _lz4_frame.Unpacked(io.BytesIO(_lz4_frame.packed([CONTENT])), None)
    assert source.read(2).tobytes() == NOISE[:2]
    assert source.read(298).tobytes() == NOISE[2:]
    assert source.read(2999).tobytes() == b"y" * 2999
    with pytest.raises(ValueError, match="goes on after its end"):
        source.finish()


def test_the_end_of_the_content_shows():
    source = _lz4_frame.Unpacked(io.BytesIO(_lz4_frame.packed([b"abc"])), None)
    assert source.read(3).tobytes() == b"abc"
    with pytest.raises(ValueError, match="content ends early"):
        source.read(1)
    source.finish()


def test_every_flipped_bit_shows():
    data = _lz4_frame.packed([CONTENT])
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ERRORS, match="LZ4F|it begins with|ended before|goes on"):
            unpack(bytes(damaged))


def test_every_truncation_shows():
    data = _lz4_frame.packed([CONTENT])
    for length in range(len(data)):
        with pytest.raises(ERRORS, match="ended before|it begins with"):
            unpack(data[:length])


@pytest.mark.parametrize("more", [b"a", _lz4_frame.packed([b"a"]), bytes(2**21)])
def test_what_follows_shows(more):
    with pytest.raises(ERRORS, match="goes on after its end|LZ4F|ended before"):
        source = _lz4_frame.Unpacked(
            io.BytesIO(_lz4_frame.packed([CONTENT]) + more), None
        )
        assert source.read(len(CONTENT)).tobytes() == CONTENT
        source.finish()


def test_memory_is_granted_up_to_the_limit():
    source = _lz4_frame.Unpacked(io.BytesIO(_lz4_frame.packed([b"abc"])), 100)
    source.reserve(60)
    source.reserve(40)
    with pytest.raises(ValueError, match="101 bytes of memory, more than .* 100"):
        source.reserve(1)
    with pytest.raises(ValueError, match="-1 is no number of bytes"):
        source.reserve(-1)
