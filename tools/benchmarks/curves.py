"""Curves out of event files: tfrl's reader beside TensorBoard's EventAccumulator.

Timed is, per run, from the files to the mean curve (tfrl) or to lists of steps and
values (TensorBoard); files lie in the cache of the disk. TensorBoard reads a fifth of
the runs, for it is slow; its time is multiplied. Both must find the same numbers.

    tools/bench curves
    tools/bench curves --runs 50 --points 10000
"""

import argparse
import pathlib
import tempfile
import time

import numpy as np
import tensorflow as tf
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.compat.proto import event_pb2
from tensorboard.plugins.scalar import summary_v2

from tfrl.summaries.plotting import readers

TAG = "eval/return_mean"


def write(folder, points, seed):
    folder.mkdir()
    values = np.random.default_rng(seed).normal(size=points)
    with tf.io.TFRecordWriter(str(folder / "events.out.tfevents.1")) as writer:
        head = event_pb2.Event(file_version="brain.Event:2")
        writer.write(head.SerializeToString())
        for step, value in enumerate(values):
            summary = summary_v2.scalar_pb(TAG, float(value))
            event = event_pb2.Event(step=256 * step, summary=summary)
            writer.write(event.SerializeToString())
    return folder


def by_tensorboard(folder):
    events = event_accumulator.EventAccumulator(
        str(folder), size_guidance={"tensors": 0}
    ).Reload()
    found = [(e.step, tf.make_ndarray(e.tensor_proto)) for e in events.Tensors(TAG)]
    return np.array(found, np.float64).T


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--points", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        folders = [
            write(pathlib.Path(root, str(seed)), options.points, seed)
            for seed in range(options.runs)
        ]
        steps = 256 * np.arange(options.points)
        readers.MeanCurveReader(folders[:1], steps, tag=TAG)
        start = time.perf_counter(), time.process_time()
        reader = readers.MeanCurveReader(folders, steps, tag=TAG)
        end = time.perf_counter(), time.process_time()
        print(f"{options.runs} runs of {options.points} points")
        print(
            f"tfrl         {end[0] - start[0]:6.2f} s ({end[1] - start[1]:.2f} s CPU)"
        )
        few = folders[: max(1, options.runs // 5)]
        begin = time.perf_counter()
        found = [by_tensorboard(folder) for folder in few]
        seconds = (time.perf_counter() - begin) * options.runs / len(few)
        print(f"TensorBoard  {seconds:6.2f} s (from {len(few)} runs)")
        for (theirs, values), ours in zip(found, reader.ys, strict=False):
            np.testing.assert_array_equal(theirs, steps)
            np.testing.assert_allclose(ours, values, rtol=1e-12)


if __name__ == "__main__":
    main()
