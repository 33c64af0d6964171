"""Every configuration has a header of the one form, and reaches what it promises."""

import contextlib
import itertools
import pathlib
import re
import sys

import pytest

from tfrl import datasets, environments, experiments
from tfrl.environments import compiled
from tfrl.experiments import measuring, seeds, zoo
from tfrl.summaries import run_log

CONFIGS = sorted((pathlib.Path(__file__).parents[2] / "configs").glob("*.gin"))
TRAINED = [path for path in CONFIGS if "train_rl.light_rl_trainer" in path.read_text()]
# Of longer ones `tools/bench zoo` trains what it is asked for.
LONG_CPU_SECONDS = 60.0


def block(library, monkeypatch):
    """Makes a library one that is not installed."""
    users = (f"{library}.", "gymnasium.envs.mujoco", "gymnasium.envs.box2d")
    for name in [name for name in sys.modules if name.startswith(users)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)


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


# What each extra brings that is imported.
LIBRARIES = {
    "mujoco": ["mujoco"],
    "box2d": ["Box2D"],
    "atari": ["ale_py", "cv2"],
    "dmc": ["dm_control"],
    "gymnax": ["gymnax"],
    "brax": ["brax"],
    "playground": ["mujoco_playground"],
    "minari": ["minari"],
    "tune": ["optuna"],
}


def use(path, folder):
    """Makes what a configuration lives in, and what it learns from."""
    text = path.read_text()
    if "Tuning.config" in text:
        experiments.tune([str(path)], folder)
        return
    if game := bound(path, "make_atari.game"):
        environments.make_atari(game.strip('"'), 1).close()
    elif env_id := bound(path, "make_compiled.env_id"):
        compiled.make_compiled(env_id.strip('"'))
    else:
        env_id = bound(path, "make_vec.env_id").strip('"')
        environments.make_vec(env_id, 1, vectorization="sync").close()
    if name := bound(path, "MinariDataset.name"):
        with contextlib.suppress(ValueError):  # the set is not there
            datasets.MinariDataset(name.strip('"'), download=False)()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_header_names_the_extra_that_its_bindings_need(path, tmp_path, monkeypatch):
    """And so do errors where it is missing; without one, nothing is missing."""
    found = re.search(r"^# Needs: tfrl\[(\w+)\]$", path.read_text(), re.MULTILINE)
    needed = LIBRARIES[found[1]] if found else []
    for library in {*itertools.chain(*LIBRARIES.values())} - {*needed}:
        block(library, monkeypatch)
    if not needed:
        use(path, tmp_path)
    for library in needed:
        with monkeypatch.context() as without:
            block(library, without)
            with pytest.raises((ImportError, ValueError), match=r"tfrl\[") as error:
                use(path, tmp_path)
        assert re.findall(r"tfrl\[\w+\]", str(error.value)) == [f"tfrl[{found[1]}]"]


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
