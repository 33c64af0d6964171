import functools
import importlib
import os
import sys

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.envs.classic_control import cartpole

from tfrl._internal import sealed_folder
from tfrl.agents import ppo
from tfrl.configuring import configs
from tfrl.environments import vector
from tfrl.saving import checkpoints
from tfrl.training import _run_record, cadence, experience, saved_run, trainer

AGENT = ppo.PPO(n_epochs=1, minibatch_size=16, hidden_units=(4,))
MAKE = functools.partial(vector.make_vec, "CartPole-v1", vectorization="sync")
OTHERS = [
    ({"agent": ppo.PPO(minibatch_size=16, hidden_units=(4,))}, "agent.n_epochs = 10"),
    ({"make_envs": functools.partial(MAKE, max_episode_steps=9)}, "max_episode_steps"),
    ({"experience": experience.Trajectories(8)}, r"experience.n_steps = 8 \(was 16\)"),
    ({"n_envs": 1}, r"n_envs = 1 \(was 2\)"),
    ({"seed": 3}, r"seed = 3 \(was 0\)"),
]


def build(folder, **settings):
    settings = {
        "n_epochs": 1,
        "agent": AGENT,
        "make_envs": MAKE,
        "n_envs": 2,
        "experience": experience.Trajectories(16),
        "intervals": cadence.Intervals(eval_episodes=1),
        **settings,
    }
    return trainer.Trainer(folder, **settings)


def train(folder, **settings):
    with build(folder, **settings) as running:
        running.run(quiet=True)
    return _run_record.read("test", folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    assert train(folder).overrides == ()
    return folder


def test_a_run_opens_by_its_folder_alone(folder):
    with saved_run.SavedRun(build(folder)) as expected:
        with saved_run.SavedRun.reopen(folder) as run:
            assert run.step == expected.step
            for one, other in zip(
                *map(tf.nest.flatten, (run.agent, expected.agent)), strict=True
            ):
                np.testing.assert_array_equal(one, other)
            played, again = run.evaluate(3, seed=5), expected.evaluate(3, seed=5)
            np.testing.assert_array_equal(played.returns, again.returns)
        # Closed environments are made anew.
        assert len(run.evaluate(1).returns) == 1


def test_no_environment_is_made_unless_it_plays(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(gym, "make_vec", None)
    monkeypatch.setattr(vector, "make_vec", None)
    with saved_run.SavedRun.reopen(folder) as run:
        run.export(tmp_path / "policy")
        acted = run.policy.act(np.zeros([2, 4], np.float32))
        assert acted.actions.shape == (2,)
        run.draw_critic(tmp_path / "critic.png", (0, -1, 1), (1, -1, 1), cells=2)
        with pytest.raises(TypeError):
            run.evaluate(1)


MODULE = """
import gymnasium as gym
from gymnasium.envs.classic_control.cartpole import CartPoleEnv as Pole
gym.register("Pole-v0", "kept_pole:Pole", max_episode_steps=20)
"""


def forget():
    sys.modules.pop("kept_pole", None)
    gym.registry.pop("Pole-v0", None)


def test_what_registers_an_environment_is_imported_again(tmp_path, monkeypatch):
    (tmp_path / "kept_pole.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("kept_pole")
    make_envs = functools.partial(vector.make_vec, "Pole-v0", vectorization="sync")
    record = train(tmp_path / "run", make_envs=make_envs)
    assert record.environment == ["kept_pole"] and not record.lost
    named = {"Trainer": trainer.Trainer, "make_vec": vector.make_vec, "PPO": ppo.PPO}
    named["Trajectories"] = experience.Trajectories
    text = record.as_gin({**named, "Intervals": cadence.Intervals})
    assert text.startswith("import kept_pole\ntrain_rl.light_rl_trainer = @Trainer\n")
    assert record.as_gin(named) is None
    forget()
    with saved_run.SavedRun.reopen(tmp_path / "run") as run:
        assert len(run.evaluate(1).returns) == 1
    forget()
    sys.path.remove(str(tmp_path))
    # Who has no such environment can still look into the run, and export it.
    with saved_run.SavedRun.reopen(tmp_path / "run") as run:
        run.export(tmp_path / "policy")
        with pytest.raises(ValueError, match=r"needs `kept_pole` \(No module.*PYTHONP"):
            run.evaluate(1)


def test_an_environment_of_the_program_itself_is_named(tmp_path, monkeypatch):
    class Mine(cartpole.CartPoleEnv):
        pass

    Mine.__module__, Mine.__qualname__ = "__main__", "Mine"
    spec = gym.envs.registration.EnvSpec("Mine-v0", entry_point=Mine)
    monkeypatch.setitem(gym.registry, "Mine-v0", spec)
    make_envs = functools.partial(vector.make_vec, "Mine-v0", vectorization="sync")
    with build(tmp_path, make_envs=make_envs) as running:
        assert running.record.lost == {"make_envs.env_id": "class Mine of __main__"}


def test_other_environments_are_refused(folder, tmp_path, monkeypatch):
    with saved_run.SavedRun.reopen(folder) as run:
        record = _run_record.read("test", folder)
        record.arguments["make_envs"]["env_id"] = "Acrobot-v1"
        monkeypatch.setattr(run._like, "_record", record)
        with pytest.raises(ValueError, match="environments with the spaces of the run"):
            run.evaluate(1)


def test_what_cannot_be_kept_is_told_and_all_else_is_kept(tmp_path, capsys):
    with build(tmp_path, make_envs=lambda n_envs: MAKE(n_envs=n_envs)) as running:
        running.run()
    what = "make_envs = function test_what_cannot_be_kept_is_told_and_all_else_is_kept."
    assert what in " ".join(capsys.readouterr().out.split())
    with saved_run.SavedRun.reopen(tmp_path) as run:
        acted = run.policy.act(np.zeros([2, 4], np.float32))
        assert acted.actions.shape == (2,)
        with pytest.raises(
            ValueError, match=r"whose `make_envs` could be kept; got fu"
        ):
            run.evaluate(1)
    # The same code goes on with it.
    train(
        tmp_path, n_epochs=2, resume=True, make_envs=lambda n_envs: MAKE(n_envs=n_envs)
    )


@pytest.mark.parametrize(("settings", "words"), OTHERS)
def test_other_arguments_are_refused(settings, words, folder):
    before = (folder / "run.json").read_bytes()
    with pytest.raises(ValueError, match=rf"`Trainer`: `resume` expected .*{words}"):
        train(folder, n_epochs=2, resume=True, **settings)
    assert (folder / "run.json").read_bytes() == before


def test_overrides_are_recorded(tmp_path):
    train(tmp_path)
    settings = {"n_epochs": 2, "resume": True, "override": True}
    agent = ppo.PPO(n_epochs=1, minibatch_size=16, hidden_units=(4,), gamma=0.1)
    changes = {"agent.gamma": ["0.99", "0.1"]}
    record = train(tmp_path, agent=agent, **settings)
    assert record.overrides == ({"env_steps": 32, "changes": changes},)
    assert _run_record.told(record.overrides[0]) == (
        "overridden after 32 environment steps: agent.gamma from 0.99 to 0.1"
    )
    # From now on these are the arguments of the run.
    settings = {"n_epochs": 3, "resume": True}
    assert len(train(tmp_path, agent=agent, **settings).overrides) == 1
    with pytest.raises(ValueError, match=r"agent.gamma = 0.99 \(was 0.1\)"):
        train(tmp_path, **settings)
    assert len(train(tmp_path, override=True, **settings).overrides) == 2


def test_other_spaces_are_no_matter_of_overriding(tmp_path):
    train(tmp_path)
    other = functools.partial(vector.make_vec, "Acrobot-v1", vectorization="sync")
    message = r"env_id = 'Acrobot-v1' .*spaces differ, observations Box.* \(was"
    with pytest.raises(ValueError, match=message) as error:
        train(tmp_path, n_epochs=2, resume=True, make_envs=other)
    assert "verride" not in str(error.value) and "output_dir" in str(error.value)


def test_what_may_differ_freely(tmp_path):
    train(tmp_path)
    record = train(
        tmp_path,
        n_epochs=9,
        resume=True,
        total_env_steps=64,
        stop_at_return=500.0,
        intervals=cadence.Intervals(
            eval_epochs=1, eval_episodes=2, checkpoint_epochs=1
        ),
        strategy=tf.distribute.OneDeviceStrategy("CPU:0"),
    )
    assert record.overrides == () and record.arguments["total_env_steps"] == 64


def test_a_run_of_old_has_no_record_and_goes_on(tmp_path, capfd):
    train(tmp_path)
    (tmp_path / "run.json").unlink()
    assert saved_run.SavedRun.reopen(tmp_path) is None
    with build(tmp_path, n_epochs=2, resume=True) as running:
        running.run()
    told = "this run keeps no record of its arguments (neither run.json nor config.gin)"
    assert "".join(capfd.readouterr()).count(told) == 1
    with build(tmp_path, n_epochs=3, resume=True) as running:
        running.run()
    assert told not in "".join(capfd.readouterr())


def test_any_changed_byte_is_damage(folder, tmp_path):
    data = (folder / "run.json").read_bytes()
    path = tmp_path / "run.json"
    for place in range(0, len(data), 97):
        changed = bytearray(data)
        changed[place] ^= 1
        for damaged in (bytes(changed), data[:place]):
            path.write_bytes(damaged)
            with pytest.raises(ValueError, match=r"`x`: .*as they were written; got"):
                _run_record.read("x", tmp_path)
    body = sealed_folder.unsealed(data)
    forgeries = [[], {}, {**body, "run": []}, {**body, "run": {"arguments": {}}}]
    for name, other in (("arguments", {}), ("overrides", [{}]), ("spaces", 3)):
        forgeries.append({**body, "run": {**body["run"], name: other}})
    for forged in forgeries:
        path.write_bytes(sealed_folder.sealed(forged))
        with pytest.raises(ValueError, match=r"`x`: .*as they were written; got"):
            _run_record.read("x", tmp_path)
    path.write_bytes(sealed_folder.sealed({"format": 2}))
    with pytest.raises(ValueError, match="expected a run of format 1; got format 2"):
        _run_record.read("x", tmp_path)


def test_a_config_that_changed_is_damage(folder, tmp_path):
    text = "make_vec.env_id = 'CartPole-v1'\n"
    record = _run_record.read("x", folder)
    # A run of old, of which nothing is known.
    (tmp_path / "config.gin").write_text(text)
    assert _run_record.read("x", tmp_path) is None
    _run_record.write(tmp_path, record)
    assert str(_run_record.read("x", tmp_path)) == str(record)
    # Killed between the two files, old or new: each tells of itself.
    path = configs.write(tmp_path, text=text)
    assert str(_run_record.read("x", tmp_path)) == str(record)
    _run_record.write(tmp_path, record)
    data = path.read_bytes()
    for damaged in (data[:-1], data.replace(b"v1", b"v0"), text.encode(), b""):
        path.write_bytes(damaged)
        with pytest.raises(
            ValueError, match=r"config.gin', which is not; restore it; or"
        ):
            _run_record.read("x", tmp_path)
    # Whoever means the change says so.
    (tmp_path / "run.json").unlink()
    path.write_text(text)
    assert _run_record.read("x", tmp_path) is None


def test_a_kill_at_any_write_leaves_a_run_that_goes_on(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    intervals = cadence.Intervals(eval_episodes=1, checkpoint_epochs=1)
    rename, left = os.rename, []

    def dying(*paths):
        if not left.pop():
            raise Killed
        return rename(*paths)

    for survived in range(3):
        run = tmp_path / str(survived)
        left[:] = [False, *[True] * survived]
        monkeypatch.setattr(os, "rename", dying)
        with pytest.raises(Killed):
            train(run, n_epochs=2, intervals=intervals)
        monkeypatch.setattr(os, "rename", rename)
        resume = checkpoints.latest_step(run) is not None
        assert resume == (survived > 1)
        assert train(run, n_epochs=3, resume=resume).overrides == ()
