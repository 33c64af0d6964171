"""Rows of the moments of batches and of streams of them, which are float64."""

import tensorflow as tf
from conformance.battery import EVERYWHERE, Row, between
from conformance.inputs import both, normal, uniform

from tfrl import ops

# Squares of what is within are far within float64, and float32 is left in time.
MEAN, VARIANCE = [0.3, 1e3, -7.1], [0.5, 2.3, 1e-3]


def moments(name, *shape):
    """Makes moments of one name."""
    made = both(normal(mean=shape), uniform(0.1, 2.0, variance=shape))
    return lambda rng, batch: {name: ops.Moments(**made(rng, batch))}


def standardized(values, **options):
    known = ops.Moments(
        tf.constant(MEAN, tf.float64), tf.constant(VARIANCE, tf.float64)
    )
    return ops.standardize(values, known, **options)


def stream_row(rule, setting):
    def after_two_batches(values):
        stream = ops.start_moment_stream([[3]], rule, setting)
        for batch in (values, 2 * values):
            stream = ops.advance_moment_stream(stream, [batch], rule, setting)
        return stream

    return Row(
        name=f"ops.advance_moment_stream: {rule}",
        call=after_two_batches,
        make=normal(values=["B", 3]),
        stopped=("values",),
        extremes={"values": between(-1e10, 1e10)},
        known_axes=1,
        keeps_dtype=False,
        rounding=32,
    )


ROWS = (
    Row(
        name="ops.batch_moments",
        call=ops.batch_moments,
        make=both(normal(values=["B", 5, 2]), uniform(weights=["B", 5])),
        options={"event_rank": 1},
        differentiable=("values",),
        extremes={"values": EVERYWHERE, "weights": between(0.0, 1e4)},
        keeps_dtype=False,
        rounding=32,
    ),
    Row(
        name="ops.merge_moments",
        call=ops.merge_moments,
        make=both(moments("old", "B"), moments("new", "B")),
        options={"share": 0.3},
        differentiable=("old", "new"),
        extremes={"old": between(0, 1e10), "new": between(0, 1e10)},
        scalars={"share": (0.0, 1.0)},
        rounding=8,
    ),
    Row(
        name="ops.pool_moments",
        call=ops.pool_moments,
        make=both(moments("parts", "B", 2), uniform(weights=["B"])),
        differentiable=("parts", "weights"),
        extremes={"parts": between(0, 1e10), "weights": between(0.0, 1e10)},
        rounding=8,
    ),
    Row(
        name="ops.standardize",
        call=standardized,
        make=normal(values=["B", 3]),
        options={"variance_epsilon": 1e-3, "clip_value": 1.3},
        differentiable=("values",),
        extremes={"values": EVERYWHERE},
        known_axes=1,
        scalars={"variance_epsilon": (1e-6, 1e-2), "clip_value": (1.0, 5.0)},
        rounding=16,
    ),
    Row(
        name="ops.standardize: not clipped",
        call=standardized,
        make=normal(values=["B", 3]),
        options={"zero_mean": False},
        differentiable=("values",),
        extremes={"values": EVERYWHERE},
        known_axes=1,
        rounding=16,
    ),
    stream_row("adaptive", 1.7),
    stream_row("window", 3),
)
