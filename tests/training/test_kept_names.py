"""Names of environments that a run keeps, and the names' meaning."""

import functools
import importlib
import sys

import gymnasium as gym
import numpy as np
import pytest
import tiny_agents
from gymnasium.envs.classic_control import cartpole
from tiny_agents import Tiny, train

from tfrl.environments import vector
from tfrl.training import (
    _kept_names,
    _run_record,
    cadence,
    experience,
    saved_run,
    trainer,
)

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
    train(tmp_path / "run", n_epochs=1, make_envs=make_envs)
    record = _run_record.read("test", tmp_path / "run")
    module, registration = record.environment
    assert (module, registration["id"]) == ("kept_pole", "Pole-v0") and not record.lost
    named = {"Trainer": trainer.Trainer, "make_vec": vector.make_vec, "Tiny": Tiny}
    named["Trajectories"] = experience.Trajectories
    text = record.as_gin({**named, "Intervals": cadence.Intervals})
    assert text.startswith("import kept_pole\ntrain_rl.light_rl_trainer = @Trainer\n")
    assert record.as_gin(named) is None
    forget()
    with saved_run.SavedRun.reopen(tmp_path / "run") as run:
        assert len(run.evaluate(1).returns) == 1
    forget()
    sys.path.remove(str(tmp_path))
    # Who has no such environment can still look into the run.
    with saved_run.SavedRun.reopen(tmp_path / "run") as run:
        assert run.policy.act(np.zeros([2, 4], np.float32)).actions.shape == (2,)
        with pytest.raises(ValueError, match=r"needs `kept_pole` \(No module.*PYTHONP"):
            run.evaluate(1)


def test_what_the_program_registers_of_a_module_is_registered_again(tmp_path):
    entry = functools.partial(cartpole.CartPoleEnv, sutton_barto_reward=True)
    gym.register("Pole-v0", entry, max_episode_steps=9)
    try:
        make_envs = functools.partial(vector.make_vec, "Pole-v0", vectorization="sync")
        train(tmp_path, n_epochs=1, make_envs=make_envs)
        forget()
        with saved_run.SavedRun.reopen(tmp_path) as run:
            played = run.evaluate(3)
        assert set(played.returns) <= {0.0, -1.0} and max(played.lengths) <= 9
    finally:
        forget()


LAMBDA = MODULE.replace('"kept_pole:Pole"', "lambda **given: Pole(**given)")


def of_module(folder, monkeypatch):
    """Trains in an environment of a lambda, whose id names the module; forgets it."""
    (folder / "kept_pole.py").write_text(LAMBDA)
    monkeypatch.syspath_prepend(folder)
    make_envs = functools.partial(
        vector.make_vec, "kept_pole:Pole-v0", vectorization="sync"
    )
    train(folder / "run", n_epochs=1, make_envs=make_envs)
    forget()
    return folder / "run", make_envs


def test_an_id_that_names_its_module_needs_nothing_else(tmp_path, monkeypatch):
    directory, make_envs = of_module(tmp_path, monkeypatch)
    record = _run_record.read("test", directory)
    assert record.environment == ["kept_pole"] and record.notice is None
    with saved_run.SavedRun.reopen(directory) as run:
        assert len(run.evaluate(1).returns) == 1
    forget()
    assert record.made() and "Pole-v0" in gym.registry
    forget()
    options = {"n_epochs": 2, "make_envs": make_envs, "resume": True}
    train(directory, **options)
    forget()


def test_what_earlier_versions_kept_of_such_an_id_is_not_needed(tmp_path, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(_kept_names, "needed", lambda environment, _: environment)
        directory, _ = of_module(tmp_path, monkeypatch)
        old = _run_record.read("test", directory)
    assert list(old.lost) == ["make_envs.env_id"]
    assert _run_record.read("test", directory).environment == ["kept_pole"]
    with saved_run.SavedRun.reopen(directory) as run:
        assert len(run.evaluate(1).returns) == 1
    forget()


def test_no_module_registers_what_is_of_the_program_itself():
    lost = {"=lost": "function <lambda> of __main__"}
    make_envs = {"=partial": "tfrl.environments:make_vec", "env_id": "other:Mine-v0"}
    assert _kept_names.needed(["other", lost], make_envs) == ["other", lost]


def test_an_environment_of_the_program_itself_is_named(tmp_path, monkeypatch):
    class Mine(cartpole.CartPoleEnv):
        pass

    Mine.__module__, Mine.__qualname__ = "__main__", "Mine"
    spec = gym.envs.registration.EnvSpec("Mine-v0", entry_point=Mine)
    monkeypatch.setitem(gym.registry, "Mine-v0", spec)
    make_envs = functools.partial(vector.make_vec, "Mine-v0", vectorization="sync")
    with tiny_agents.build(tmp_path, make_envs=make_envs) as running:
        assert running.record.lost == {"make_envs.env_id": "class Mine of __main__"}
        assert running.record.as_gin({}) is None
        with pytest.raises(ValueError, match="make_envs.env_id = class Mine of __main"):
            running.record.made()
