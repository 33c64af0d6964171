"""A sound answer to a question passes, each planted fault is found."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from conformance import extremes, wide

X = np.float32([1e-30, 1e-3, 0.5, 2.0, 1e10, 1e30])


def square(points, settings):
    yield "result", lambda: settings["factor"] * points["x"] ** 2


SOUND = extremes.Question(
    asked=square,
    points={"x": X},
    settings={"factor": 3.0},
    formulas={"result": lambda x, factor: factor * (x * x)},
)


def asking(function):
    def asked(points, settings):
        yield "result", lambda: settings["factor"] * function(points["x"])

    return {"asked": asked}


@tf.custom_gradient
def half_slope(x):
    return x**2, lambda upstream: upstream * x


def no_slope(x):
    return x**2 + tf.sqrt(x - x)


def further(name, value):
    def asked(points, settings):
        yield from square(points, settings)
        yield name, lambda: value + 0.0 * points["x"]

    return asked


PLANTED = {
    "value": (asking(lambda x: 1.001 * x**2), "result : [1-9]"),
    "not finite": (asking(lambda x: x**2 + 0.0 / (x - 2.0)), "result : 1 of 6"),
    "slope": (asking(half_slope), "result dx: [1-9]"),
    "slope not finite": (asking(no_slope), "result dx: [1-9]"),
    "without formula": ({"asked": further("draw", np.nan)}, "draw : 6 of 6"),
    "beyond the limits": (
        {"asked": further("draw", 2.0), "limits": {"draw": (-1.0, 1.0)}},
        "draw : 6 of 6",
    ),
}


@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
def test_sound_answers_pass(mode):
    extremes.check([SOUND], mode, at_least=6)


def test_what_is_beyond_the_dtype_may_be_infinite():
    result = extremes.answers(square, *map(constants, (SOUND.points, SOUND.settings)))
    assert np.isinf(result["result"][""][-1])


def constants(arrays):
    return {name: tf.constant(x) for name, x in arrays.items()}


@pytest.mark.parametrize("case", PLANTED)
def test_planted_fault_is_found(case):
    changes, message = PLANTED[case]
    with pytest.raises(AssertionError, match=message):
        extremes.check([dataclasses.replace(SOUND, **changes)], "eager", at_least=6)


def test_too_few_points():
    with pytest.raises(AssertionError, match="6 points are less than 10000"):
        extremes.check([SOUND], "eager")


def test_values_are_not_compared_where_only_sizes_are_known():
    rough = {"units": None, **asking(lambda x: 1.5 * x**2)}
    extremes.check([dataclasses.replace(SOUND, **rough)], "eager", at_least=6)


def test_slack_is_that_of_moved_inputs():
    _, slack = SOUND.right["result"]
    moved = 64 * 2.0**-23 * 3.0 * X.astype(wide.LONG) ** 2
    assert np.all(slack[""] > moved)
    assert np.all(slack[""] < 10 * (moved + 64 * 2.0**-23))
