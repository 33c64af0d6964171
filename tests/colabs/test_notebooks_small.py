"""Each notebook runs from top to bottom with small settings and says what it should."""

import html
import json
import re
import shutil
import subprocess

import gymnasium as gym
import nbformat
import notebook_files as notebooks
import numpy as np
import pytest

# Settings, how many pictures there are, and what is printed.
RUNS = {
    "actors": (
        {"env_steps": 2_560, "milliseconds": 0.1, "n_actors": 2},
        *(0, r"host: [\d,]+ steps/s, greedy return \d+", "actors: lag [01]"),
        *(r"killed: [\d,]+ steps/s", r"envpool: [\d,]+ steps/s"),
    ),
    "as_keras": (
        {"epochs": 20, "env_steps": 1_500},
        *(0, r"\(8, 64\)", r"largest difference: (0\.0|\S+e-0[6-9])\n"),
        r"greedy return \d+ of 500",
    ),
    "curves_and_statistics": (
        {"n_seeds": 2, "env_steps": 6_000, "resamples": 50},
        *(2, r"reuse_4: mean +[\d.]+, inter", r"P\(reuse_20 > reuse_4\) = [01]\.\d\d"),
    ),
    "debugging": (
        {"checked_steps": 300},
        *(0, "error observation_overwritten", "error reset_incomplete"),
        *("CopyingWalk: 0 errors", "warning time_limit", "RightWalk: 0 errors, 0 warn"),
        *("ends: done_only_mask", "discount: gamma_missing", "right: no bug found"),
        *(
            r"step \d+: train/loss is (inf|nan) in metrics.csv",
            r"ValueError: .* nested\['critic'\]",
        ),
    ),
    "distributions": (
        {"n_samples": 2_000, "epochs": 3},
        *(1, r"TFP:  \[ *(nan|-?inf)\]", r"tfrl: \[-22\.5\d*\] gradient \[8\.66\d*\]"),
        *(r"probabilities \[0\.5 0\.  0\.5\]", r"divergence: \[0\. 0\. 0\. 0\. 0\.\]"),
    ),
    "dqn_from_parts": (
        {"env_steps": 2_400},
        *(1, r"double:  \[3\.\]\nwithout: \[4\.\]", "17,410 weights, step 1"),
        *(r"2160 steps, mean return \d+", r"greedy returns:( \d+){10}"),
    ),
    "keras_fit": (
        {"epochs": 2, "steps_per_epoch": 2, "dqn_epochs": 1, "dqn_steps_per_epoch": 9},
        *(1, r"logs: (.|\n)*\sval_return_mean", "says the same: True"),
        r"epoch: \[ *\d+\.\]",
    ),
    "offline_rl": (
        {"player_steps": 40_960, "data_steps": 2_000, "gradient_steps": 200},
        *(2, "after 20480 40960 steps", r"actions +\(2000, 1\) float32"),
        *(r"bc: greedy return -\d+", r"iql: greedy return -\d+"),
    ),
    "sac_mujoco": (
        {"env_steps": 600, "hidden_units": 8, "learning_starts": 300},
        *(1, r"at random: return \d+", r"greedy return \d+, worst \d+", "temperature"),
    ),
    "savedmodel_export": (
        {"env_steps": 2_048},
        *(0, "'serving_default': 0.0", r"bytes; actions \[[01], [01], [01]\]"),
    ),
    "self_play": (
        {"updates": 10, "poker_updates": 5, "n_envs": 16},
        *(1, r"rock: \[ 2\. -2\.  1\. -1\.\]", r"l: 0\.33\nequilibrium: 0\.00"),
        *(r"its past: a league of 3", r"its past: average 0\.\d\d, last policy"),
        *(r"never bets: [+-]\d\.\d\d a game", r"bets card 0, 1, 2: \["),
    ),
    "your_own_algorithm": (
        {"env_steps": 1_500},
        *(1, r"greedy return \d+ of 500", r"2 replicas and one differ by \S+e-0[5-9]"),
    ),
}


def test_every_notebook_is_run_small():
    others = {"quickstart", "tpu", "compiled"}  # by tests of their own
    assert {path.stem for path in notebooks.NOTEBOOKS} - others == set(RUNS)


def test_notebooks_are_short():
    for name in RUNS:
        notebook = nbformat.read(notebooks.COLABS / f"{name}.ipynb", as_version=4)
        lines = [line for cell in notebook.cells for line in cell.source.split("\n")]
        assert len(lines) <= 150, name
        assert all(len(x) <= 92 or x.startswith("[![") for x in lines), name


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_it_runs_small(name, execute):
    settings, n_pictures, *expected = RUNS[name]
    if name == "sac_mujoco":
        pytest.importorskip("mujoco")
    notebook = nbformat.read(notebooks.COLABS / f"{name}.ipynb", as_version=4)
    execute(notebooks.with_parameters(notebook, **settings))
    text = notebooks.printed(notebook.cells)
    for pattern in expected:
        assert re.search(pattern, text), (pattern, text)
    assert len(notebooks.pictures(notebook.cells)) == n_pictures
    if name == "savedmodel_export":
        check_page(notebook, text)


PLAYED = """
console.log(JSON.stringify([
  [[0, 0, 0.1, 0.5], [0, 0, -0.1, -0.5], [1, 1, 0, 0]].map(act),
  step([0.01, 0.02, 0.03, 0.04], 10),
]));
"""


def check_page(notebook, text):
    """The page says in JavaScript what the policy and Gymnasium do."""
    (actions,) = re.findall(r"bytes; actions (\[.*\])", text)
    assert f"actions {actions.replace(',', '')}" in text  # in TensorFlow alone
    shown = notebook.cells[-1].outputs[-1].data["text/html"]
    page = html.unescape(re.search('srcdoc="(.*?)"', shown, re.S)[1])
    assert "http" not in page and page.count("<script>") == 1
    if shutil.which("node") is None:
        return
    script = page.split("<script>")[1].split("</script>")[0] + PLAYED
    told = subprocess.run(["node", "-e", script], capture_output=True, check=True)
    acted, state = json.loads(told.stdout)
    assert acted == json.loads(actions)
    env = gym.make("CartPole-v1")
    env.reset(seed=0)
    env.unwrapped.state = np.array([0.01, 0.02, 0.03, 0.04])
    np.testing.assert_allclose(state, env.step(1)[0], rtol=1e-5)
