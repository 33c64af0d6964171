"""Rows of the ops that arrange, select, accumulate and locate."""

import numpy as np
import tensorflow as tf
from conformance.battery import EVERYWHERE, Row, between
from conformance.inputs import both, integers, normal, uniform

from tfrl import ops


def plain_row(name, call=None, make=None, **changes):
    """A row of an op of one tensor `x` of `[B, 3]` through which gradients flow."""
    return Row(
        name=f"ops.{name}",
        call=call or getattr(ops, name.split(":")[0]),
        make=make or normal(x=["B", 3]),
        **{"differentiable": ("x",), "extremes": {"x": EVERYWHERE}, **changes},
    )


def some(name):
    """Makes a mask that selects every other element."""
    return lambda rng, batch: {name: np.arange(batch) % 2 == 0}


def squashed(x):
    squash = ops.BatchSquash(2)
    return squash.unflatten(tf.square(squash.flatten(x)))


def updated(x, mask, increments):
    # What is not selected must not reach the logarithm.
    return ops.conditional_update(
        x, mask, lambda y: tf.math.log(1 + tf.square(y)), increments
    )


ARRANGED = (
    plain_row(
        "BatchSquash",
        squashed,
        normal(x=["B", 2, 3]),
        extremes={"x": between(-1e10, 1e10)},
    ),
    plain_row("tensor_extend", make=normal(x=["B", 3], y=[3])),
    plain_row("tensor_prepend", make=normal(x=["B", 3], y=[3])),
    plain_row("tensor_extend_zero", options={"dim": 1}),
    plain_row("tensor_prepend_zero"),
    plain_row("tensor_extend_new_dim", options={"dim": 1, "n": 2}),
    plain_row("expand_dims_as", make=normal(x=["B"], y=["B", 2])),
    plain_row("to_tensor", lambda x: ops.to_tensor(x)),
    plain_row("idx", lambda x: ops.idx(x, axis=1), differentiable=(), extremes={}),
    plain_row(
        "cast_transformer", lambda x: ops.cast_transformer({"x": x}, dtype=x.dtype)
    ),
    plain_row(
        "image_scale_transformer",
        lambda x, **named: ops.image_scale_transformer(tf.cast(x, tf.uint8), **named),
        integers(256, x=["B", 2, 2]),
        options={"min": 0.1, "max": 0.7},
        scalars={"min": (-1.0, 0.0), "max": (0.5, 1.0)},
        differentiable=(),
        extremes={},
        keeps_dtype=False,
    ),
    plain_row(
        "append_coordinate",
        lambda x: ops.append_coordinate(x),
        normal(x=["B", 2, 3, 7]),
    ),
    plain_row("spatial_broadcast", lambda x: ops.spatial_broadcast(x, (2, 3))),
    plain_row(
        "diff_transform",
        lambda x: ops.diff_transform(x, dtype=x.dtype),
        normal(x=["B", 4]),
        known_axes=1,
    ),
    plain_row(
        "diff_transform_matrix",
        lambda x: ops.diff_transform_matrix(5, dtype=x.dtype),
        differentiable=(),
        extremes={},
    ),
)
SELECTED = (
    plain_row(
        "conditional_update",
        updated,
        both(normal(x=["B", 2], increments=["B", 2]), some("mask")),
        differentiable=("x", "increments"),
        extremes={"x": EVERYWHERE, "increments": between(-1e10, 1e10)},
    ),
    plain_row(
        "select_from_mask",
        make=both(normal(data=["B", 2]), some("mask")),
        differentiable=("data",),
        extremes={"data": EVERYWHERE},
    ),
    plain_row(
        "reset_state_if_necessary",
        make=both(normal(state=["B", 2], initial_state=["B", 2]), some("reset_mask")),
        differentiable=("state", "initial_state"),
        extremes={"state": EVERYWHERE, "initial_state": EVERYWHERE},
    ),
)
QUANTILES = (
    plain_row(
        "quantiles",
        lambda x: ops.quantiles(tf.shape(x)[0], 5, dtype=x.dtype),
        differentiable=(),
        extremes={},
    ),
    plain_row(
        "quantiles_uniform",
        lambda x: ops.quantiles_uniform(3, tf.shape(x)[0], 5, dtype=x.dtype),
        differentiable=(),
        extremes={},
        own_draws="float64 has more random bits",
    ),
    plain_row(
        "quantile_cos_embedding",
        lambda x, n: ops.quantile_cos_embedding(x, n),
        uniform(x=["B", 2]),
        options={"n": 4},
        extremes={"x": between(0.0, 1.0)},
        rounding=16,  # of angles up to four times pi
    ),
)
ACCUMULATED = (
    # The variance of numbers beyond 1e19 is beyond float32.
    plain_row(
        "cov",
        lambda x: ops.cov(x),
        normal(x=["B", 5, 3]),
        extremes={"x": between(-1e10, 1e10)},
        rounding=16,
    ),
    plain_row(
        "explained_variance",
        make=both(
            normal(ypred=["B", 5], y=["B", 5]),
            lambda rng, batch: {"valid_mask": rng.random((batch, 5)) < 0.7},
        ),
        options={"dim": 1},
        differentiable=("ypred", "y"),
        # The square of their ratio is within float32.
        extremes={"ypred": between(-1e10, 1e10), "y": between(-1e10, 1e10, least=1e-3)},
        rounding=16,
    ),
    plain_row("reverse_cumsum", options={"dim": 1}),
    plain_row("reverse_cumprod", options={"dim": 1}, rounding=8),
)
ROWS = (*ARRANGED, *SELECTED, *QUANTILES, *ACCUMULATED)
