"""Rows of the moments of batches and of streams of them, which are float64."""

import tensorflow as tf
from conformance.battery import EVERYWHERE, Row, between
from conformance.inputs import normal

from tfrl.stats.moment_streams import (
    Moments,
    advance_moment_stream,
    start_moment_stream,
)

# Squares of what is within are far within float64, and float32 is left in time.
MEAN, VARIANCE = [0.3, 1e3, -7.1], [0.5, 2.3, 1e-3]


def standardized(values, **options):
    start = start_moment_stream([[3]], "adaptive", 1.0)
    known = Moments(tf.constant(MEAN, tf.float64), tf.constant(VARIANCE, tf.float64))
    stream = start._replace(count=tf.constant(1, tf.int64), moments=[known])
    return stream.normalize([values], **options)[0]


def stream_row(rule, setting):
    def after_two_batches(values):
        stream = start_moment_stream([[3]], rule, setting)
        for batch in (values, 2 * values):
            stream = advance_moment_stream(stream, [batch], rule, setting)
        return stream

    return Row(
        name=f"stats.Normalizer: {rule}",
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
        name="stats.Normalizer: clipped",
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
        name="stats.Normalizer: not clipped",
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
