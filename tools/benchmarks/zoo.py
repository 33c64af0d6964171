"""The zoo again: configurations retrained, beside what their headers recorded.

With --quick each is trained to the first point of its recorded curve, a tenth of the
steps, by the seeds of its header: the mean must not lie below the recorded range by
more than its width (and a tenth of the least return, where the seeds were alike). In
full, mean and worst seed must be as expected. A seed is a process; they take turns.

    tools/bench zoo --quick
    tools/bench zoo --quick --only cartpole --seeds 1
    tools/bench zoo --only sac_pendulum --jobs 2
"""

import argparse
import os
import pathlib
import sys
import tempfile

from tfrl.experiments import measuring, seeds, zoo
from tfrl.summaries import run_log

# Ends a run there, with all schedules as those of the whole.
STOP = """
import keras
from tfrl.configuring import configs


class StopAtShare(keras.callbacks.Callback):
    def __init__(self, share: float = 1.0) -> None:
        super().__init__()
        self.share = share

    def on_epoch_end(self, epoch, logs=None):
        done = self.model.env_steps / self.model.total_env_steps
        if done >= self.share or (epoch + 1) / self.model.n_epochs >= self.share:
            self.model.stop_training = True


configs.register({"StopAtShare": StopAtShare})
"""


def retrained(entry, options, folder):
    """Trains an entry; returns the columns of each seed's metrics.csv."""
    train = [str(entry.path)]
    if options.quick:
        (folder / "stop_at_share.py").write_text(STOP)
        (folder / "stop.gin").write_text(
            "import stop_at_share\nTrainer.callbacks = [@StopAtShare()]\n"
            f"StopAtShare.share = {entry.curve[0].share}\n"
        )
        train.append(str(folder / "stop.gin"))
    chosen = entry.seeds[: options.seeds]
    found = seeds.train_seeds(train, chosen, folder / "runs", jobs=options.jobs)
    if {*found.values()} != {"done"}:
        raise RuntimeError(f"seeds ended as {found}")
    runs = [folder / "runs" / f"seed_{seed}" for seed in chosen]
    return [run_log.read_metrics(run / "metrics.csv") for run in runs]


def judged(entry, tables, options):
    """A line about an entry, and whether it is as recorded."""
    if options.quick:
        known = entry.curve[0]
        (point,) = measuring.curve_of(tables, entry.steps, [known.share])
        slack = max(known.high - known.low, 0.1 * abs(known.low))
        told = f"{point.mean:.1f} at {known.share:.0%}, recorded {known.mean:.1f} "
        told += f"({known.low:.1f} to {known.high:.1f})"
        return told, point.mean >= known.low - slack
    returns = [table["eval/return_mean"][-1] for table in tables]
    mean, worst = sum(returns) / len(returns), min(returns)
    told = f"mean {mean:.1f}, worst {worst:.1f}, expected {entry.expected}"
    return told, mean >= entry.expected[0] and worst >= entry.expected[1]


def tell(entry, text):
    """Prints a line about an entry at once, for those who watch a file."""
    print(f"{entry.path.stem}: {text}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of each")
    parser.add_argument("--only", nargs="*", default=[], help="all of these words")
    parser.add_argument("--seeds", type=int, help="how many of each at most")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    wrong, known = [], [*filter(None, [os.environ.get("PYTHONPATH")])]
    for entry in zoo.list_zoo():
        if not all(word.lower() in entry.words for word in options.only):
            continue
        if entry.not_measured:
            tell(entry, f"not measured: {entry.not_measured}")
            continue
        with tempfile.TemporaryDirectory() as root:
            folder = pathlib.Path(root)
            os.environ["PYTHONPATH"] = os.pathsep.join([root, *known])
            try:
                tables = retrained(entry, options, folder)
            except (ValueError, RuntimeError) as error:
                if "expected the library" in str(error):
                    tell(entry, f"not trained: {error}")
                    continue
                told, is_right = f"did not train: {error}", False
            else:
                told, is_right = judged(entry, tables, options)
        tell(entry, f"{told}: {'as recorded' if is_right else 'WRONG'}")
        wrong += [] if is_right else [entry.path.stem]
    sys.exit(f"not as recorded: {', '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
