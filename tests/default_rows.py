"""Tables of tests of which the default run takes some rows and leaves out others."""

import pytest


def params(table, default):
    """Parameters for `pytest.mark.parametrize`; rows not in `default` are slow tests.

    Args:
        table: the arguments of the test by name of the row.
        default: names of the rows that the default run takes.
    """
    unknown = sorted(set(default) - set(table))
    if unknown:
        raise ValueError(f"`default` expected names of rows; got {unknown}")
    return [
        pytest.param(
            *arguments, id=name, marks=[] if name in default else [pytest.mark.slow]
        )
        for name, arguments in table.items()
    ]


def slow(*values):
    """Parameters that the default run leaves out."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]
