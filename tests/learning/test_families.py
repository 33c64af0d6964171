"""A short run in each family of environments, through the commands a user has."""

import ctypes.util
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

from tfrl.summaries import run_log

FOLDER = pathlib.Path(__file__).parent
# Family, id, what must be installed, whether resumed runs begin new episodes, and
# whether frames are drawn by OpenGL.
FAMILIES = [
    ("classic", "CartPole-v1", "pygame", False, False),
    ("classic", "MountainCarContinuous-v0", "pygame", False, False),
    ("box2d", "LunarLander-v3", "Box2D", True, False),
    ("box2d", "BipedalWalker-v3", "Box2D", True, False),
    ("mujoco", "InvertedPendulum-v5", "mujoco", True, True),
    ("mujoco", "HalfCheetah-v5", "mujoco", True, True),
    ("atari", "family_envs:Pong84-v0", "ale_py", True, False),
    ("toy_text", "FrozenLake-v1", "pygame", False, False),
    ("toy_text", "Taxi-v4", "pygame", False, False),
    ("toy_text", "Blackjack-v1", "pygame", False, False),
    ("dmc", "family_envs:Balance-v0", "dm_control", True, True),
    ("custom", "family_envs:Odd-v0", "pygame", False, False),
]
CONFIG = """
train_rl.light_rl_trainer = @Trainer
Trainer.agent = @PPO()
Trainer.make_envs = @make_vec
Trainer.n_envs = 2
Trainer.experience = @Trajectories()
Trajectories.n_steps = 16
Trainer.total_env_steps = 64
Trainer.intervals = @Intervals()
Intervals.log_epochs = 1
Intervals.eval_episodes = 2
Intervals.checkpoint_epochs = 1
PPO.n_epochs = 2
PPO.minibatch_size = 16
make_vec.env_id = "{env_id}"
make_vec.vectorization = "{vectorization}"
make_vec.max_episode_steps = 20
"""
# Each command is told, and ends the script if it fails.
SCRIPT = """
import sys
from tfrl import command

def call(*argv):
    print("$", *argv, flush=True)
    code = command.main(list(argv))
    if code:
        sys.exit(f"{argv[0]} ended with {code}")

if __name__ == "__main__":
    call("train", "config.gin", "--output_dir=run")
    longer = "--config=Trainer.total_env_steps = 128"
    call("train", "config.gin", "--output_dir=run", longer, "--resume")
    call("evaluate", "run", "--episodes=3")
    call("export", "run", "policy")
    call("verify", "policy")
    call("verify", "run/policy")
    call("doctor", "run")
    call("check-env", sys.argv[1], "--steps=100")
"""
FILM = "record", "run", "--max_episode_steps=3", "--output=film.gif"


def play(tmp_path, env_id, vectorization="sync"):
    config = CONFIG.format(env_id=env_id, vectorization=vectorization)
    (tmp_path / "config.gin").write_text(config)
    (tmp_path / "script.py").write_text(SCRIPT)
    return run(tmp_path, "script.py", env_id)


def run(tmp_path, *arguments, check=True):
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(FOLDER), str(FOLDER.parents[1])]),
        # Mesa's renderer may hold an LLVM, which crashes beside TensorFlow's: OpenGL
        # is loaded for films alone, and then another renderer.
        "MUJOCO_GL": "egl" if FILM[0] in arguments else "disabled",
        "GALLIUM_DRIVER": "softpipe",
        "SDL_VIDEODRIVER": "dummy",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0 or not check, done.stdout[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env_id", "module", "begins_anew", "by_opengl"),
    [family[1:] for family in FAMILIES],
    ids=[f"{family[0]}-{family[1].split(':')[-1]}" for family in FAMILIES],
)
def test_a_short_run(env_id, module, begins_anew, by_opengl, tmp_path):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    told = play(tmp_path, env_id)
    assert told.count("a resumed run will begin new episodes") == begins_anew
    assert told.count("resumed with new episodes") == begins_anew
    metrics = run_log.read_metrics(tmp_path / "run" / "metrics.csv")
    assert metrics["env_steps"].tolist() == [32, 64, 96, 128]
    assert metrics["eval/length_mean"][-1] <= 20
    if not by_opengl or ctypes.util.find_library("EGL") is not None:
        # Libraries of OpenGL may end the process badly when all is done.
        run(tmp_path, "-m", "tfrl", *FILM, check=not by_opengl)
        assert (tmp_path / "film.gif").read_bytes()[:6] == b"GIF89a"


@pytest.mark.slow
def test_environments_in_processes_of_their_own(tmp_path):
    told = play(tmp_path, "family_envs:Odd-v0", vectorization="async")
    assert told.count("a resumed run will begin new episodes") == 1
    assert told.count("resumed with new episodes") == 1


@pytest.mark.slow
@pytest.mark.parametrize("env_id", ["Pong84-v0", "Pong84x1-v0"])
def test_stacks_of_frames_are_convolved(env_id, monkeypatch):
    pytest.importorskip("ale_py")
    from tfrl.environments import vector
    from tfrl.policies import networks

    monkeypatch.syspath_prepend(FOLDER)
    envs = vector.make_vec(f"family_envs:{env_id}", 2)
    shown, _ = envs.reset(seed=0)
    kinds = networks.SpaceEncoder.describe(envs.single_observation_space)
    assert kinds[0] == "image"
    features = networks.SpaceEncoder(kinds)(shown)
    assert features.shape[0] == 2 and features.shape[1] < 84 * 84
    envs.close()
