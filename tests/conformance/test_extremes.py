"""Every class of distributions and bijectors at ten thousand extreme points and more.

By default each class runs eagerly in float32 and in a graph in float64, and those that
XLA compiles fast in float32; all else is slow.
"""

import functools

import pytest
from conformance import extremes, families, maps

from tfrl import bijectors, distributions

ROWS = (*families.ROWS, *maps.ROWS)
# Events of single numbers, whose rows do the same.
EVENTS = (
    distributions.DiagMultivariateBeta,
    distributions.DiagMultivariateCauchy,
    distributions.DiagMultivariateNormal,
)
# Gradients that take long to trace: in a graph only.
HEAVY = (
    distributions.Beta,
    distributions.TruncatedCauchy,
    distributions.TruncatedT2,
)
FAST_XLA = (
    bijectors.AffineTransform,
    bijectors.PowerTransform,
    bijectors.StableTanh,
    distributions.AffineTransformedDistribution,
    distributions.Normal,
    distributions.OneHotCategoricalGumbelSoftmax,
    distributions.SquashedNormal,
)


def by_default(row, mode, dtype):
    if mode == "xla":
        return dtype == "float32" and row.cls in FAST_XLA
    if row.cls in EVENTS or (row.cls in HEAVY and mode == "eager"):
        return False
    return (mode, dtype) in (("eager", "float32"), ("graph", "float64"))


def cases():
    for row in ROWS:
        for dtype in extremes.ULPS:
            for mode in ("eager", "graph", "xla"):
                marks = [] if by_default(row, mode, dtype) else [pytest.mark.slow]
                label = f"{row.cls.__name__}-{dtype}-{mode}"
                yield pytest.param(row, mode, dtype, marks=marks, id=label)


@functools.lru_cache(maxsize=1)
def questions(row, dtype):
    return row.questions(dtype)


@pytest.mark.parametrize(("row", "mode", "dtype"), list(cases()))
def test_results_and_gradients_are_right(row, mode, dtype):
    extremes.check(questions(row, dtype), mode)
