"""Every configuration reaches the score its header promises."""

import pathlib

import pytest

from tfrl import rl_trainer
from tfrl.summaries import run_log
from tfrl.training.configuring import configs

CONFIGS = pathlib.Path(__file__).parents[2] / "configs"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("name", "steps", "score"),
    [
        ("ppo_cartpole", 100_000, 475.0),
        ("ppo_acrobot", 300_000, -100.0),
        ("ppo_pendulum", 300_000, -300.0),
        ("policy_gradient_cartpole", 300_000, 195.0),
    ],
)
def test_reaches_its_score(name, steps, score, seed, tmp_path):
    try:
        flags = [f"--config_file={CONFIGS / name}.gin", f"--output_dir={tmp_path}"]
        assert rl_trainer.main([*flags, f"--config=train_rl.seed = {seed}"]) == 0
    finally:
        configs.clear()
    metrics = run_log.read_metrics(tmp_path / "metrics.csv")
    assert metrics["env_steps"][-1] <= steps * 1.02
    assert metrics["eval/return_mean"][-1] >= score
