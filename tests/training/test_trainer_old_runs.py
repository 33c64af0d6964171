"""Runs of a version whose trainers took `n_steps` open, resume and are exported.

`golden/old_runs/ppo_n_steps` was written by it: PPO on CartPole, 96 steps. Its events,
plot and exported policy are left out.
"""

import pathlib
import shutil

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from tiny_agents import build

from tfrl import rl_trainer
from tfrl.agents.on_policy import ppo
from tfrl.configuring import configs
from tfrl.core import spaces
from tfrl.environments import vector
from tfrl.exporting import export
from tfrl.policies import _observation_kinds
from tfrl.saving import checkpoints
from tfrl.stats import moments
from tfrl.summaries import run_log
from tfrl.training import doctor, experience, saved_run

OLD = pathlib.Path(__file__).parents[1] / "golden" / "old_runs" / "ppo_n_steps"
ROWS = np.linspace(-0.1, 0.1, 20, dtype=np.float32).reshape(5, 4)


@pytest.fixture(params=["run.json", "config.gin"])
def run(request, tmp_path):
    """What either of both tells alone."""
    shutil.copytree(OLD, tmp_path / "run")
    other = {"run.json": "config.gin", "config.gin": "run.json"}[request.param]
    (tmp_path / "run" / other).unlink()
    if request.param == "run.json":
        # Of which it is known that there was one: it is put aside.
        shutil.copy(OLD / "config.gin", tmp_path / "run" / "config.gin")
    yield tmp_path / "run"
    configs.clear()


@pytest.mark.slow
def test_an_old_run_opens_and_is_exported(run, tmp_path):
    with rl_trainer.open_run(run) as opened:
        assert opened.step == 96
        assert len(opened.evaluate(2).returns) == 2
        opened.export(tmp_path / "policy")
        assert opened.policy.act(ROWS).actions.shape == (5,)
    assert max(export.verify(tmp_path / "policy").values()) <= 1e-5
    assert doctor.find_nonfinite(run) == []
    with pytest.raises(ValueError, match="has kept no best policy"):
        rl_trainer.open_run(run, "best")


@pytest.mark.slow
def test_an_old_run_is_resumed_by_its_own_words(run, tmp_path):
    old = tmp_path / "old.gin"
    shutil.copy(OLD / "config.gin", old)
    more = "--config=Trainer.total_env_steps = 160"
    assert rl_trainer.main([str(old), f"--output_dir={run}", "--resume", more]) == 0
    assert checkpoints.latest_step(run) == 160
    columns, before = (run_log.read_metrics(x / "metrics.csv") for x in (run, OLD))
    np.testing.assert_array_equal(columns["env_steps"], 32 * np.arange(1, 6))
    for name, values in before.items():
        np.testing.assert_array_equal(columns[name][:3], values, err_msg=name)
    text = (run / "config.gin").read_text()
    assert "Trajectories.n_steps = 16" in text and "Trainer.n_steps" not in text
    assert doctor.find_nonfinite(run) == []


def test_an_old_number_of_steps_is_compared(tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(OLD, run)
    words = "--config=Trainer.n_steps = 8", "--config=PPO.minibatch_size = 8"
    flags = [str(OLD / "config.gin"), f"--output_dir={run}", "--resume", *words]
    try:
        assert rl_trainer.main(flags) == 2
    finally:
        configs.clear()
    assert "experience.n_steps = 8 (was 16)" in capsys.readouterr().err


def test_old_words_are_todays():
    configs.register({name: getattr(rl_trainer.trainer, name) for name in ["Trainer"]})
    configs.register({"Trajectories": experience.Trajectories})
    configs.parse(bindings=["Trainer.n_steps = 7"])
    found = configs.configured()
    assert "Trainer.experience = @Trajectories()" in found
    assert "Trajectories.n_steps = 7" in found
    configs.clear()


def whole_numbers(env):
    space = gym.spaces.Box(-1000, 1000, (4,), np.int32)
    return gym.wrappers.TransformObservation(
        env, lambda seen: np.clip(100 * seen, -1000, 1000).astype(np.int32), space
    )


def make_envs(n_envs):
    return vector.make_vec("CartPole-v1", n_envs, wrappers=[whole_numbers])


def of_floats_alone(space, is_kept):
    specs = tf.nest.flatten(spaces.spec_from_space(space)) if is_kept else ()
    return tuple(
        moments.RunningMoments.create(x.shape) if x.dtype.is_floating else ()
        for x in specs
    )


def test_a_run_whose_integers_had_no_moments_goes_on_without(tmp_path, monkeypatch):
    config = ppo.PPO(hidden_units=(8,), normalize_observations=True, minibatch_size=16)
    settings = {"agent": config, "make_envs": make_envs}
    with monkeypatch.context() as before:
        before.setattr(_observation_kinds, "moments_of", of_floats_alone)
        with build(tmp_path, n_epochs=1, **settings) as first:
            first.run(quiet=True)
        assert first.agent.policy.observation_moments == ((),)
    rows = make_envs(2).reset(seed=0)[0]
    with build(tmp_path, n_epochs=2, resume=True, **settings) as again:
        like = first.agent.policy.parameters(rows)
        np.testing.assert_array_equal(again.agent.policy.parameters(rows), like)
        again.run(quiet=True)
    with saved_run.SavedRun.reopen(tmp_path) as opened:
        assert opened.step == 64 and len(opened.evaluate(1).returns) == 1
    # Now integers are normalized.
    assert config.create(*again_spaces()).policy.observation_moments != ((),)


def again_spaces():
    envs = make_envs(1)
    return envs.single_observation_space, envs.single_action_space
