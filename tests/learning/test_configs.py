"""Every configuration has a header of the one form, and reaches what it promises."""

import pathlib
import re

import pytest

from tfrl.experiments import measuring, seeds, zoo
from tfrl.summaries import run_log

CONFIGS = sorted((pathlib.Path(__file__).parents[2] / "configs").glob("*.gin"))
TRAINED = [path for path in CONFIGS if "train_rl.light_rl_trainer" in path.read_text()]
# Of longer ones `tools/bench zoo` trains what it is asked for.
LONG_CPU_SECONDS = 60.0


def bound(path, name):
    """What a configuration binds, if it does."""
    found = re.search(rf"^{re.escape(name)} = (.+)$", path.read_text(), re.MULTILINE)
    return None if found is None else found[1]


@pytest.mark.parametrize("path", TRAINED, ids=lambda path: path.stem)
def test_a_header_says_what_the_bindings_say(path):
    entry = zoo.read_entry(path)
    assert bound(path, "Trainer.agent") == f"@{entry.agent.split(' (')[0]}()"
    steps = bound(path, "Trainer.total_env_steps")
    assert steps is not None and int(steps) == entry.steps
    environment = bound(path, "make_vec.env_id")
    assert environment in (None, repr(entry.environment), f'"{entry.environment}"')
    game = bound(path, "make_atari.game")
    assert game in (None, f'"{entry.environment[11:-3]}"')
    assert game is None or entry.environment.startswith("ale_py:ALE/")
    assert all(len(line) <= 88 for line in path.read_text().splitlines())


@pytest.mark.parametrize("path", TRAINED, ids=lambda path: path.stem)
def test_a_header_promises_no_more_than_was_measured(path):
    entry = zoo.read_entry(path)
    if entry.expected is None:
        assert entry.not_measured and not entry.measured
        return
    mean, worst = entry.expected
    assert mean <= entry.mean and worst <= min(entry.measured)
    assert all(p.low <= p.mean <= p.high for p in entry.curve)


@pytest.mark.slow
@pytest.mark.parametrize("path", TRAINED, ids=lambda path: path.stem)
def test_seeds_reach_the_scores(path, tmp_path):
    entry = zoo.read_entry(path)
    if entry.expected is None or entry.cpu_seconds > LONG_CPU_SECONDS:
        pytest.skip("not measured, or long: tools/bench zoo trains it")
    if bound(path, "MinariDataset.name") is not None:
        pytest.skip("its data set is made by the commands of its header")
    found = seeds.train_seeds([str(path)], entry.seeds, tmp_path / "runs")
    assert {*found.values()} == {"done"}
    returns = []
    for seed in entry.seeds:
        run = tmp_path / "runs" / f"seed_{seed}"
        table = run_log.read_metrics(run / "metrics.csv")
        assert table["env_steps"][-1] <= entry.steps * 1.02
        returns.append(measuring.final_return("zoo", run, table))
    print(f"{path.stem}: {returns}")
    mean, worst = entry.expected
    assert sum(returns) / len(returns) >= mean and min(returns) >= worst
