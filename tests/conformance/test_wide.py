"""`Wide` numbers: their values, their slopes, and their range."""

import numpy as np
import pytest
import scipy.special
from conformance import wide
from conformance.wide import LONG

X = np.array([1e-4, 0.02, 0.4, 0.7, 1.3, 5.0, 39.0, 41.0, 900.0, 1100.0, 3e5])
BOTH = np.concatenate([-X, X])
FUNCTIONS = {
    "absolute": (wide.absolute, np.abs, BOTH),
    "digamma": (wide.digamma, scipy.special.digamma, X),
    "exp": (wide.exp, np.exp, BOTH[np.abs(BOTH) < 500]),
    "expm1": (wide.expm1, np.expm1, BOTH[np.abs(BOTH) < 500]),
    "log": (wide.log, np.log, X),
    "log1mexp": (wide.log1mexp, lambda x: np.log(-np.expm1(-x)), X[:6]),
    "log1p": (wide.log1p, np.log1p, X),
    "log_gamma": (wide.log_gamma, scipy.special.gammaln, X),
    "quotient": (lambda x: (2 - x) / (x * x + 3), lambda x: (2 - x) / (x * x + 3), X),
    "sigmoid": (wide.sigmoid, scipy.special.expit, BOTH),
    "softplus": (wide.softplus, lambda x: np.logaddexp(0.0, x), BOTH),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_slopes(name):
    function, expected, at = FUNCTIONS[name]
    got = function(wide.inputs({"x": at.astype(LONG)})["x"])
    np.testing.assert_allclose(got.value.astype(float), expected(at), rtol=1e-9)
    step = at.astype(LONG) * LONG(1e-6)
    up, down = (function(wide.wide(at + move)).value for move in (step, -step))
    # On either side of where one series gives way to another, not across.
    np.testing.assert_allclose(
        got.slopes["x"].astype(float), (up - down) / (2 * step), rtol=2e-6, atol=1e-12
    )


def test_slopes_by_several_inputs():
    x, y = wide.inputs({"x": np.array([2.0]), "y": np.array([3.0])}).values()
    result = wide.where(np.array([True]), x * y - y / x, x) + 1
    assert result.value == 6 - 1.5 + 1
    assert result.slopes["x"] == 3 + 3 / 4
    assert result.slopes["y"] == 2 - 1 / 2


@pytest.mark.parametrize(
    ("a", "b"), [(0.5, 0.5), (3.0, 70.0), (1e-4, 2e3), (1e6, 2.0), (300.0, 1e4)]
)
def test_log_beta(a, b):
    for one, two in ((a, b), (b, a)):
        given = wide.inputs({"a": np.array([one], LONG), "b": np.array([two], LONG)})
        got = wide.log_beta(**given)
        np.testing.assert_allclose(got.value, scipy.special.betaln(one, two), rtol=1e-9)
        rises = scipy.special.digamma([one, two]) - scipy.special.digamma(one + two)
        np.testing.assert_allclose(got.slopes["a"], rises[0], rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(got.slopes["b"], rises[1], rtol=1e-7, atol=1e-9)


def test_range():
    x = wide.inputs({"x": np.array([1e300], LONG)})["x"]
    result = x * x * x / 1e-300
    assert np.isfinite(result.value).all()
    assert np.isfinite(result.slopes["x"]).all()
