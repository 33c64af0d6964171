"""Every row of the table keeps every promise."""

import default_rows
import pytest
from conformance import battery, table

ROWS = table.ROWS
# What checks of seconds run on by default: of each way of computing the row that has
# most to lose.
DEFAULT = (
    # Over time, and over shapes that graphs do not know.
    "ops.discounted_return",
    "ops.generalized_advantage_estimation",
    "ops.vtrace",
    "ops.BatchSquash",
    "ops.spatial_broadcast",
    "ops.tensor_extend",
    # Choices and draws.
    "ops.select_from_mask",
    "ops.shuffle",
    # Means and variances.
    "ops.explained_variance",
    "ops.weighted_reduce_mean",
    "stats.Normalizer-adaptive",
    # Bounds, inverses, gradients of their own.
    "ops.Sqrt1pTransform-inverse",
    "ops.clip_by_global_norm",
    "ops.scale_gradient",
    "ops.softclip",
    "ops.softlower",
    # Losses and their targets, of every kind.
    "losses.BipartiteMatchingLoss",
    "losses.OrderedDiscreteRegressionLoss",
    "losses.SquareLoss-expectation",
    "losses.action_importance_ratio-capping",
    "losses.categorical_td_loss",
    "losses.clipped_double_q_target-entropy",
    "losses.multi_quantile_huber_loss",
    "losses.ppo_clip_loss",
    "losses.td_loss-huber",
    "losses.value_loss-clipped",
    "schedules.CyclicalScheduler",
)


def named(row):
    return row.name.removeprefix("tfrl.").replace(": ", "-").replace(" ", "_")


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


@pytest.mark.parametrize("row", [row for row in ROWS if row.extremes], ids=named)
def test_extremes_stay_numbers(row):
    battery.check_extremes(row)


@every_row
def test_numbers_and_sizes_do_not_retrace(row):
    battery.check_traces(row)
