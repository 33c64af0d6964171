"""Tests of `tfrl.core._json_shapes`."""

import pytest

from tfrl.core import _json_shapes


@pytest.mark.parametrize(
    ("value", "like", "expected"),
    [
        (3, int, True),
        (True, int, False),
        (1 << 63, int, False),
        (1.0, int, False),
        (None, None, True),
        (None, (int, None), True),
        ("a", (int, None), False),
        ([], [int], True),
        ([1, "a"], [int], False),
        ([1, "a"], [int, str], True),
        ([1], [int, str], False),
        ({}, [int], False),
        ({"a": 1, "b": 2}, {str: int}, True),
        ({"a": 1, "b": "2"}, {str: int}, False),
        ({"a": 1, "b": "2"}, {"a": int}, True),
        ({}, {"a": int}, False),
        ([], {"a": int}, False),
    ],
)
def test_shapes(value, like, expected):
    assert _json_shapes.fits(value, like) is expected
