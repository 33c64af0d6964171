"""Rows of the ops of gradients and of functions that recompute."""

import tensorflow as tf
from conformance.battery import EVERYWHERE, Row
from conformance.inputs import normal

from tfrl import ops


def weights(rng, batch):
    """A nest of weights or gradients, one without a value."""
    return {"tensors": {"w": rng.normal(size=(batch, 2)), "b": rng.normal(size=3)}}


OF_WEIGHTS = {
    "make": weights,
    "differentiable": ("tensors",),
    "extremes": {"tensors": EVERYWHERE},
}


def row(name, call=None, **changes):
    return Row(
        name=f"ops.{name}",
        call=call or getattr(ops, name),
        **{
            "make": normal(x=["B"]),
            "differentiable": ("x",),
            "extremes": {"x": EVERYWHERE},
            **changes,
        },
    )


ROWS = (
    row("global_norm", **OF_WEIGHTS),
    row(
        "clip_by_global_norm",
        options={"clip_norm": 0.7},
        scalars={"clip_norm": (0.1, 2.0)},
        rounding=8,
        **OF_WEIGHTS,
    ),
    row(
        "clip_by_norms",
        options={"clip_norm": 0.7},
        scalars={"clip_norm": (0.1, 2.0)},
        rounding=8,
        **OF_WEIGHTS,
    ),
    # Twice, so that the gradient is that of the value again.
    row(
        "scale_gradient",
        lambda x, scale: ops.scale_gradient(ops.scale_gradient(x, scale), 1 / scale),
        options={"scale": 0.3},
        scalars={"scale": (0.1, 2.0)},
    ),
    # Between bounds that no gradient here reaches.
    row(
        "clip_gradient",
        lambda x, low: ops.clip_gradient(x, low, 10.0),
        options={"low": -10.0},
        scalars={"low": (-10.0, -5.0)},
    ),
    row(
        "get_grads_diagnostics",
        lambda tensors: ops.get_grads_diagnostics(tensors),
        **OF_WEIGHTS,
    ),
    row(
        "get_magnitude_quantiles",
        lambda tensors: ops.get_magnitude_quantiles(tensors),
        **OF_WEIGHTS,
    ),
    row(
        "lean_function",
        lambda x, y: ops.lean_function(lambda x, y: {"out": tf.sin(x) * y})(x, y=y),
        make=normal(x=["B"], y=["B"]),
        differentiable=("x", "y"),
        extremes={"x": EVERYWHERE, "y": EVERYWHERE},
        rounding=16,  # of the sine
    ),
)
