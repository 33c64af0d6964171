"""Calls that must be refused, as rows of a table: one check for all of them.

    @refusals.table(
        (td.td_target, bad(ValueError, "rewards", zeros(2, 1), 1.0, zeros(2))),
    )
    def test_refusals(row):
        row()

The error must have the type and name the function and the argument, as all our errors
do; its wording is free.
"""

import re

import numpy as np
import pytest


def table(*groups):
    """A parameter `row` of a test: each group is a function and the bad calls of it."""
    rows = [row(function) for function, *rows in groups for row in rows]
    return pytest.mark.parametrize("row", rows)


def bad(error, argument, *args, **kwargs):
    """A call that is refused because of `argument`."""

    def of(function):
        name = getattr(function, "__qualname__", type(function).__name__).split(".")[-1]
        where = r"[\w. ]+" if "lambda" in name else re.escape(name)
        match = rf"(?s)`([\w.]+\.)?{where}`: .*`{re.escape(argument)}"

        def refused():
            with pytest.raises(error, match=match):
                function(*args, **kwargs)

        return pytest.param(refused, id=f"{name}-{argument}")

    return of


def zeros(*shape):
    return np.zeros(shape)
