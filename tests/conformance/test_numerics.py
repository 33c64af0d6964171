"""Every row of the table keeps every promise."""

import pytest
from conformance import battery, table

ROWS = table.ROWS


def named(row):
    return row.name.removeprefix("tfrl.").replace(": ", "-").replace(" ", "_")


every_row = pytest.mark.parametrize("row", ROWS, ids=named)


@every_row
def test_graph_and_xla_equal_eager(row):
    battery.check_compiled(row)


@pytest.mark.slow
@every_row
def test_graph_by_autograph_equals_eager(row):
    battery.check_converted(row)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.differentiable or row.stopped], ids=named
)
def test_gradients_equal_differences(row):
    battery.check_gradients(row)


@every_row
def test_dtype_is_kept(row):
    for dtype in row.dtypes:
        battery.check_dtype(row, dtype)


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if any(isinstance(v, float) for v in row.options.values())],
    ids=named,
)
def test_numbers_are_not_rounded(row):
    battery.check_numbers(row)


@pytest.mark.parametrize("row", [row for row in ROWS if row.extremes], ids=named)
def test_extremes_stay_numbers(row):
    battery.check_extremes(row)


@every_row
def test_numbers_and_sizes_do_not_retrace(row):
    battery.check_traces(row)
