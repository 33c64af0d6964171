"""Every public numeric name has a row, or a reason why it has none."""

import collections
import importlib

from conformance import table


def public_names():
    for room in table.ROOMS:
        door = importlib.import_module(f"tfrl.{room}")
        yield from (f"{room}.{name}" for name in door.__all__)


def test_every_public_name_has_a_row_or_a_reason():
    covered = {row.covers for row in table.ROWS}
    assert covered & set(table.WITHOUT_ROW) == set(), "one of the two is too much"
    missing = set(public_names()) - covered - set(table.WITHOUT_ROW)
    assert sorted(missing) == [], "add rows, or reasons to `table.WITHOUT_ROW`"


def test_table_knows_no_other_names():
    known = {row.covers for row in table.ROWS} | set(table.WITHOUT_ROW)
    assert sorted(known - set(public_names())) == []


def test_row_names_are_unique():
    counts = collections.Counter(row.name for row in table.ROWS)
    assert [name for name, count in counts.items() if count > 1] == []


def test_rows_say_what_they_test():
    for row in table.ROWS:
        inputs = set(row.inputs())
        flows = {*row.differentiable, *row.stopped}
        assert flows | {*row.extremes, *row.kinks} <= inputs, row.name
        assert not set(row.differentiable) & set(row.stopped), row.name
        assert not set(row.options) & inputs, row.name
        assert set(row.scalars) <= inputs | set(row.options), row.name
        assert row.extremes or not flows, f"{row.name}: no domain to try the edges of"
