"""What lies in the event files of a folder, as TensorBoard reads them.

Scalars of TensorFlow 2 are tensors there.
"""

import contextlib

import numpy as np
import pytest
import tensorflow as tf
from modes import in_mode
from tensorboard.backend.event_processing import event_accumulator

EVERYTHING = {"tensors": 0}
# Values are the same in a graph; what a graph does otherwise has tests of its own.
eagerly_and_slow = pytest.mark.parametrize(
    "mode", ["eager", pytest.param("graph", marks=pytest.mark.slow)]
)
both = pytest.mark.parametrize("mode", ["eager", "graph"])


class Untouchable:
    """An array that may be looked at from outside only."""

    shape, dtype = tf.TensorShape([4, 2]), tf.float32

    def __array__(self, *args, **kwargs):
        raise AssertionError("was computed with")

    __tf_tensor__ = __array__


@contextlib.contextmanager
def writing(directory, step=0):
    """A writer in force; closed at the end, so that all of it can be read."""
    writer = tf.summary.create_file_writer(str(directory))
    with writer.as_default(step=step):
        yield writer
    writer.close()


def written(directory, function, mode="eager", record=True):
    """What `function` writes at step 0."""

    def body():
        function()
        return tf.constant(0)

    with writing(directory), tf.summary.record_if(record):
        in_mode(mode, body)()
    return last(directory)


def _read(directory):
    accumulator = event_accumulator.EventAccumulator(
        str(directory), size_guidance=EVERYTHING
    )
    return accumulator.Reload()


def points(directory):
    """Tag -> points (step, value), histograms as `[buckets, 3]`."""
    accumulator = _read(directory)
    return {
        tag: [
            (event.step, tf.make_ndarray(event.tensor_proto))
            for event in accumulator.Tensors(tag)
        ]
        for tag in accumulator.Tags()["tensors"]
    }


def plugins(directory):
    """Tag -> name of the TensorBoard plugin that shows it."""
    accumulator = _read(directory)
    return {
        tag: accumulator.SummaryMetadata(tag).plugin_data.plugin_name
        for tag in accumulator.Tags()["tensors"]
    }


def last(directory):
    """Tag -> its only value."""
    found = points(directory)
    assert all(len(values) == 1 for values in found.values()), found
    return {tag: value for tag, [(_, value)] in found.items()}


def check_calls(found, calls, **tolerance):
    """The values are those of recorded calls: scalars, and histograms of their data."""
    calls = {call["name"].removeprefix("/"): call for call in calls}
    assert set(found) == set(calls)
    for tag, call in calls.items():
        data = np.asarray(call["data"], np.float64)
        if call["op"] == "scalar":
            np.testing.assert_allclose(found[tag], data, **tolerance)
            continue
        bins = call["bins"]
        if bins is None:
            bins = np.linspace(data.min(), data.max(), 31)
        bins = np.asarray(bins, np.float64)
        np.testing.assert_allclose(found[tag][:, 0], bins[:-1], **tolerance)
        np.testing.assert_allclose(found[tag][:, 1], bins[1:], **tolerance)
        edges = np.append(found[tag][:, 0], found[tag][-1, 1])
        clamped = np.clip(data, edges[0], edges[-1])
        np.testing.assert_array_equal(
            found[tag][:, 2], np.histogram(clamped, edges)[0], err_msg=tag
        )
