"""Every configuration reaches, over ten seeds, the scores its header promises."""

import pathlib
import re

import numpy as np
import pytest
import scipy.stats

from tfrl import rl_trainer
from tfrl.configuring import configs
from tfrl.summaries import run_log

CONFIGS = sorted((pathlib.Path(__file__).parents[2] / "configs").glob("*.gin"))
PROMISE = re.compile(
    r"Expected over seeds 0 to 9, 20 greedy episodes each after (?P<steps>[\d,]+) "
    r"environment steps: interquartile mean (?P<middle>-?\d+) or more, worst seed "
    r"(?P<worst>-?\d+) or more "
    r"\(measured: (?P<measured>-?[\d.]+), (?P<least>-?[\d.]+)\)"
)


def promise(config):
    lines = [line for line in config.read_text().splitlines() if line[:1] == "#"]
    text = " ".join(" ".join(lines).replace("#", "").split())
    found = PROMISE.search(text)
    assert found, f"{config.name} says no scores"
    return {name: float(x.replace(",", "")) for name, x in found.groupdict().items()}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.stem)
def test_promises_what_was_measured(config):
    said = promise(config)
    assert said["middle"] <= said["measured"]
    assert said["worst"] <= said["least"] <= said["measured"]


def final_return(config, seed, steps, folder):
    try:
        flags = [f"--config_file={config}", f"--output_dir={folder}"]
        assert rl_trainer.main([*flags, f"--config=train_rl.seed = {seed}"]) == 0
    finally:
        configs.clear()
    metrics = run_log.read_metrics(folder / "metrics.csv")
    assert metrics["env_steps"][-1] <= steps * 1.02
    return metrics["eval/return_mean"][-1]


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.stem)
def test_ten_seeds_reach_the_scores(config, tmp_path):
    said = promise(config)
    scores = [
        final_return(config, seed, said["steps"], tmp_path / str(seed))
        for seed in range(10)
    ]
    middle = scipy.stats.trim_mean(scores, 0.25)
    print(f"{config.stem}: {middle:.1f}, {min(scores):.1f} of {np.sort(scores)}")
    assert middle >= said["middle"]
    assert min(scores) >= said["worst"]
