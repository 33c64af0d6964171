"""Trains what a configuration of tfrl says, for the others to be measured beside.

Takes the flags of `python -m tfrl.rl_trainer` and does what it does. Prints one line of
JSON: `marks`, environment steps and CPU seconds of the process at the begin of every
epoch, and the return_mean of the last evaluation.
"""

from tfrl import entry

if __name__ == "__main__":
    entry.begin()  # before TensorFlow is loaded, as there

import csv
import json
import math
import pathlib
import sys
import time

import gin
import keras

from tfrl import rl_trainer

MARKS: list[tuple[int, float]] = []


@gin.register
class Clock(keras.callbacks.Callback):
    """Takes the time at the begin of every epoch."""

    def on_epoch_begin(self, *_):
        MARKS.append((self.model.env_steps, time.process_time()))


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    flags = [f"--output_dir={folder}", "--config=Trainer.callbacks = [@Clock()]"]
    rl_trainer.main([*flags, *sys.argv[2:]])
    with (folder / "metrics.csv").open(newline="") as file:
        returns = [float(x["eval/return_mean"] or "nan") for x in csv.DictReader(file)]
    return_mean = [value for value in returns if math.isfinite(value)][-1]
    print(json.dumps({"marks": MARKS, "return_mean": return_mean}))


if __name__ == "__main__":
    main()
