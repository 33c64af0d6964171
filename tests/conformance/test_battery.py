"""Each check of the battery passes a sound component and finds what is planted."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from conformance import battery

from tfrl.core import compile


def pairs(rng, batch):
    x, y = rng.normal(size=(2, batch))
    return {"x": x, "y": y}


def weighed(x, y, weight=0.5):
    return weight * x * x + tf.stop_gradient(y)


SOUND = battery.Row(
    name="room.weighed",
    call=weighed,
    make=pairs,
    differentiable=("x",),
    stopped=("y",),
    extremes={"x": battery.between(-1e15, 1e15), "y": battery.EVERYWHERE},
    scalars={"weight": (0.0, 1.0)},
)


def check_every_dtype(row):
    for dtype in row.dtypes:
        battery.check_dtype(row, dtype)
    battery.check_numbers(row)


CHECKS = {
    "compiled": battery.check_compiled,
    "converted": battery.check_converted,
    "gradients": battery.check_gradients,
    "dtype": check_every_dtype,
    "extremes": battery.check_extremes,
    "traces": battery.check_traces,
}


def eager_or_graph(x, y):
    return weighed(x, y) + (0.0 if tf.executing_eagerly() else 1e-3)


def needs_sizes(x, y):
    return weighed(x, y) / x.shape[0]


def one_gradient_in_graphs(x, y):
    return weighed(x if tf.executing_eagerly() else tf.stop_gradient(x), y)


@tf.custom_gradient
def _square(x):
    return 0.5 * x * x, lambda upstream: upstream * x * 1.001


def leaky(x, y):
    return 0.5 * x * x + y


def narrowed(x, y):
    return tf.cast(weighed(x, y), tf.float32)


def cancels(x, y):
    return weighed(x, y) + 1000.0 - 1000.0


def number_by_float32(x, y, weight):
    return weighed(x, y, tf.cast(weight, x.dtype))


def overflows(x, y):
    return weighed(x, y) + tf.math.log(tf.exp(x)) - x


def slope_overflows(x, y):
    # The value is that of `leaky` everywhere, the slope of the unused branch is not.
    return weighed(x, y) + tf.where(tf.abs(x) < 1, tf.exp(tf.abs(x)), 0 * y)


def host(x, y):
    return tf.numpy_function(np.add, [x, y], x.dtype)


@compile.compiled(static=("weight",))
def static_number(x, y, weight=0.5):
    return weighed(x, y, weight)


# What the check says of a component; the check's name is first.
PLANTED = {
    "graph differs": ("compiled", {"call": eager_or_graph}, "graph: value"),
    "autograph differs": ("converted", {"call": eager_or_graph}, "graph by autograph"),
    "sizes needed": ("compiled", {"call": needs_sizes}, "None values"),
    "graph's gradient": ("compiled", {"call": one_gradient_in_graphs}, "gradient"),
    "host callback": ("compiled", {"call": host, "differentiable": ()}, "Func"),
    "stale flag": ("compiled", {"not_xla": "it was so"}, "out of date"),
    "wrong gradient": ("gradients", {"call": lambda x, y: _square(x) + 0 * y}, "of x"),
    "no gradient": ("gradients", {"call": lambda x, y: y}, "gradient of x: none"),
    "leaking gradient": ("gradients", {"call": leaky}, "gradient of y"),
    "dtype lost": ("dtype", {"call": narrowed}, "became"),
    "digits lost": ("dtype", {"call": cancels}, "value"),
    "number rounded": (
        "dtype",
        {"call": number_by_float32, "options": {"weight": 0.1}},
        "numpy number",
    ),
    "value overflows": ("extremes", {"call": overflows}, "value"),
    "gradient overflows": ("extremes", {"call": slope_overflows}, "gradient"),
    "number traced": ("traces", {"call": static_number}, "traced"),
}


@pytest.mark.parametrize("check", CHECKS)
def test_sound_component_passes(check):
    CHECKS[check](SOUND)


@pytest.mark.parametrize("case", PLANTED)
def test_planted_fault_is_found(case, monkeypatch):
    check, changes, message = PLANTED[case]
    if case == "number traced":  # the battery counts what the package's modules hold
        monkeypatch.setattr(compile, "planted", static_number, raising=False)
    with pytest.raises(Exception, match=message):
        CHECKS[check](dataclasses.replace(SOUND, **changes))


def test_kinks_are_kept_away_from():
    row = dataclasses.replace(
        SOUND, kinks={"x": (0.0,)}, make=lambda rng, batch: {"x": np.zeros(3)}
    )
    np.testing.assert_allclose(row.inputs()["x"], 0.02)


def test_extremes_come_in_all_pairs():
    made = battery.extreme_inputs(SOUND)
    low = battery.between(-1e15, 1e15)
    assert set(zip(made["x"], made["y"], strict=True)) == {
        (x, y) for x in low for y in battery.EVERYWHERE
    }


def test_extremes_fill_whole_samples():
    row = dataclasses.replace(
        SOUND, make=lambda rng, batch: {"x": np.ones([3, batch])}, batch_axis=1
    )
    made = battery.extreme_inputs(
        dataclasses.replace(row, extremes={"x": battery.between(0.0, 2.0)})
    )
    constant = made["x"][:, (made["x"] == made["x"][0]).all(axis=0)]
    assert set(constant[0]) >= {0.0, 1e-38, 1e-30, 1e-3, 0.5, 1.0, 2.0}
