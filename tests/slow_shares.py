"""The option `--share K/N` of pytest: of the slow tests, only share K of N runs.

A test is in the same share for ever, whatever is added or removed around it.
"""

import argparse
import zlib

import pytest


def share(text: str) -> tuple[int, int]:
    """Reads K/N, where K is counted from 0."""
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and int(index) < int(count)):
        raise argparse.ArgumentTypeError(f"expected K/N with 0 <= K < N; got {text!r}")
    return int(index), int(count)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--share", type=share, metavar="K/N", help="of the slow tests, share K of N"
    )


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leaves out the slow tests of other shares."""
    if config.option.share is None:
        return
    index, count = config.option.share
    others = [
        item
        for item in items
        if item.get_closest_marker("slow")
        and zlib.crc32(item.nodeid.encode()) % count != index
    ]
    config.hook.pytest_deselected(items=others)
    left_out = set(others)
    items[:] = [item for item in items if item not in left_out]
