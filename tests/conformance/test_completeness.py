"""Every public numeric name has a row, or a reason why it has none."""

import importlib

import pytest
from conformance import table


def public_names():
    for room in table.ROOMS:
        door = importlib.import_module(f"tfrl.{room}")
        yield from (f"{room}.{name}" for name in door.__all__)


@pytest.mark.parametrize("name", list(public_names()))
def test_public_name_has_a_row_or_a_reason(name):
    rows = [row for row in table.ROWS if row.covers == name]
    assert bool(rows) != (name in table.WITHOUT_ROW), (
        f"{name}: {len(rows)} rows; add a row, or a reason to `WITHOUT_ROW`, not both"
    )


def test_table_knows_no_other_names():
    known = {row.covers for row in table.ROWS} | set(table.WITHOUT_ROW)
    assert sorted(known - set(public_names())) == []


def test_row_names_are_unique():
    names = [row.name for row in table.ROWS]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("row", table.ROWS, ids=lambda row: row.name)
def test_row_says_what_it_tests(row):
    inputs = row.inputs()
    mentioned = {*row.differentiable, *row.stopped, *row.extremes, *row.kinks}
    assert mentioned <= set(inputs)
    assert not set(row.differentiable) & set(row.stopped)
    assert not set(row.options) & set(inputs)
    flows = row.differentiable or row.stopped
    assert row.extremes or not flows, "there is a domain whose edges can be tried"
