"""Every row of the table keeps every promise."""

import default_rows
import pytest
from conformance import battery, table

ROWS = table.ROWS
# What checks of seconds run on by default: of each way of computing the row that has
# most to lose, if its room's own tests do not run it in graphs and by XLA.
DEFAULT = (
    # Over time.
    "ops.generalized_advantage_estimation",
    # Over shapes that graphs do not know, choices and draws.
    "ops.BatchSquash",
    "ops.select_from_mask",
    "ops.shuffle",
    # Bounds, inverses, gradients of their own.
    "ops.Sqrt1pTransform-inverse",
    # Losses.
    "losses.action_importance_ratio-capping",
    "losses.categorical_td_loss",
)
# What the tests of the rooms take to the edges by default, and what takes a second.
AT_THE_EDGES = {
    *("ops.q_lambda_return", "ops.get_magnitude_quantiles", "losses.two_hot"),
    *(f"ops.{name}" for name in ("swish", "softsign", "reverse_cumprod")),
    *(f"ops.{name}" for name in ("softlower", "softupper", "softclip", "softclip_tf")),
    *(f"ops.{name}" for name in ("Log1pTransform", "Sqrt1pTransform")),
    *("ops.SqrtLinearTransform", "ops.explained_variance"),
    *(f"ops.{name}" for name in ("global_norm", "clip_by_global_norm")),
    # They solve what `vtrace` does, and what `categorical_q_target` does.
    *(f"ops.{name}" for name in ("discounted_return", "td_lambda_return")),
    "losses.categorical_projection",
    *(f"losses.{name}" for name in ("categorical_td_loss", "classification_loss")),
    *("losses.DiscreteRegressionLoss", "losses.OrderedDiscreteRegressionLoss"),
    *("losses.multi_quantile_huber_loss", "losses.conservative_q_loss"),
    *("losses.categorical_q_target", "losses.quantile_td_loss", "ops.n_step_return"),
    *("losses.QuantileRegressionLoss", "ops.importance_corrected_td_errors"),
    "ops.normalize_min_max",
}


def named(row):
    return row.name.removeprefix("tfrl.").replace(": ", "-").replace(" ", "_")


if not AT_THE_EDGES <= {row.covers for row in ROWS}:
    raise ValueError("AT_THE_EDGES expected names of what rows cover")
every_row = pytest.mark.parametrize("row", ROWS, ids=named)


def some_of(rows):
    table = {named(row): (row,) for row in rows}
    return pytest.mark.parametrize("row", default_rows.params(table, DEFAULT))


@some_of(ROWS)
def test_graph_and_xla_equal_eager(row):
    battery.check_compiled(row)


@pytest.mark.slow
@every_row
def test_graph_by_autograph_equals_eager(row):
    battery.check_converted(row)


@some_of([row for row in ROWS if row.differentiable or row.stopped])
def test_gradients_equal_differences(row):
    battery.check_gradients(row)


@some_of(ROWS)
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


@pytest.mark.parametrize(
    "row",
    default_rows.params(
        {named(row): (row,) for row in ROWS if row.extremes},
        [named(row) for row in ROWS if row.extremes and row.covers not in AT_THE_EDGES],
    ),
)
def test_extremes_stay_numbers(row):
    battery.check_extremes(row)


@pytest.mark.parametrize(
    "row",
    default_rows.params(
        {named(row): (row,) for row in ROWS},
        # Without numbers it is `compiled` alone that keeps sizes out.
        [named(row) for row in ROWS if row.scalars],
    ),
)
def test_numbers_and_sizes_do_not_retrace(row):
    battery.check_traces(row)
