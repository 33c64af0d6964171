"""Every class of distributions and bijectors at ten thousand extreme points and more.

By default classes run eagerly in float32, and two compiled by XLA too; those of many
operations and all else is slow.
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
# Bounds on one side, which are the others' with an infinite one.
ONE_SIDED = (bijectors.Softlower, bijectors.Softupper)
# Of many operations; the tests of their files take them to their tails.
HEAVY = (
    *(distributions.Beta, distributions.TruncatedCauchy, distributions.TruncatedT2),
    *(distributions.TruncatedNormal, distributions.TruncatedDistribution),
    *(bijectors.Softclip, bijectors.SoftclipTF),
)
FAST_XLA = (bijectors.StableTanh, distributions.Normal)


def by_default(row, mode, dtype):
    if row.cls in (*EVENTS, *ONE_SIDED, *HEAVY):
        return False
    if (mode, dtype) == ("xla", "float32"):
        return row.cls in FAST_XLA
    return (mode, dtype) == ("eager", "float32")


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
