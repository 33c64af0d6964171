"""Tests of `tfrl._internal.json_shapes`."""

import pytest

from tfrl._internal import json_shapes


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
    assert json_shapes.fits(value, like) is expected
