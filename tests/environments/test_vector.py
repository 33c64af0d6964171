"""Tests of `tfrl.environments.vector`."""

import functools
import os
import signal
import subprocess
import sys
import time

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from running_processes import gone

from tfrl._internal import gym_checks
from tfrl.environments import vector, wrappers
from tfrl.host import stepping


def play(envs, n_steps):
    """Rewards and observations of fixed actions, episodes reset by mask."""
    seen = [envs.reset(seed=3)[0]]
    for t in range(n_steps):
        actions = (np.arange(envs.num_envs) + t) % 2
        observations, rewards, terminated, truncated, _ = envs.step(actions)
        seen += [observations, rewards]
        ended = terminated | truncated
        if ended.any():
            seen.append(envs.reset(options={"reset_mask": ended})[0])
    return np.concatenate([np.ravel(x) for x in seen])


@pytest.mark.parametrize(
    ("env_id", "vectorization", "kind", "mode"),
    [
        ("CartPole-v1", "auto", "CartPoleVectorEnv", "NEXT_STEP"),
        ("CartPole-v1", "vector_entry_point", "CartPoleVectorEnv", "NEXT_STEP"),
        ("CartPole-v1", "sync", "SyncVectorEnv", "DISABLED"),
        ("Pendulum-v1", "auto", "SyncVectorEnv", "DISABLED"),
    ],
)
def test_vectorizations(env_id, vectorization, kind, mode):
    envs = vector.make_vec(env_id, 3, vectorization)
    assert type(envs.unwrapped).__name__ == kind
    assert envs.num_envs == 3
    assert stepping.autoreset_mode(envs).name == mode
    assert envs.reset(seed=0)[0].shape[0] == 3
    envs.close()


def test_async_plays_as_sync_does():
    played = []
    for vectorization in ("sync", "async"):
        envs = vector.make_vec("CartPole-v1", 2, vectorization)
        assert stepping.autoreset_mode(envs) == AutoresetMode.DISABLED
        # Terminals and schedulers send them to all processes; the first one decides.
        for process in getattr(envs.unwrapped, "processes", ()):
            os.kill(process.pid, signal.SIGINT)
            os.kill(process.pid, signal.SIGHUP)
            os.kill(process.pid, signal.SIGTERM)
        played.append(play(envs, 40))
        envs.close()
    np.testing.assert_array_equal(*played)


class Hanging(gym.Wrapper):
    """A step that never returns."""

    def step(self, action):
        time.sleep(1000)


def test_hanging_processes_are_ended():
    envs = vector.make_vec("CartPole-v1", 2, "async", wrappers=[Hanging])
    envs.reset(seed=0)
    envs.step_async(np.zeros(2, int))
    with pytest.warns(UserWarning, match="a pending call to `step`"):
        envs.close(timeout=0.1)
    assert [process.exitcode for process in envs.processes] == [-signal.SIGKILL] * 2


def test_processes_end_quietly_with_the_one_that_started_them(tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(
        "import os, signal, tfrl\n"
        "if __name__ == '__main__':\n"
        "    envs = tfrl.environments.make_vec('CartPole-v1', 2, 'async')\n"
        "    print(*[process.pid for process in envs.processes], flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert gone(*map(int, done.stdout.split()))
    assert "Traceback" not in done.stderr


def test_a_script_without_a_guard_is_told_of_it(tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import tfrl\n"
        "tfrl.environments.make_vec('CartPole-v1', 2, vectorization='async')\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == 1
    told = 'be done under `if __name__ == "__main__":`, as each process imports it'
    assert told in done.stderr


@pytest.mark.parametrize("vectorization", ["sync", "vector_entry_point"])
def test_time_limit(vectorization):
    envs = vector.make_vec("CartPole-v1", 2, vectorization, max_episode_steps=3)
    envs.reset(seed=0)
    truncated = [envs.step(np.array([t % 2] * 2))[3].tolist() for t in range(3)]
    assert truncated == [[False, False], [False, False], [True, True]]
    envs.close()


@pytest.mark.parametrize("vectorization", ["sync", "vector_entry_point"])
def test_env_kwargs_reach_the_environment_and_stay_the_callers(vectorization):
    kwargs = {"sutton_barto_reward": True}
    envs = vector.make_vec(
        "CartPole-v1", 1, vectorization, max_episode_steps=5, env_kwargs=kwargs
    )
    envs.reset(seed=0)
    assert envs.step(np.zeros(1, int))[1].tolist() == [0.0]
    assert kwargs == {"sutton_barto_reward": True}
    envs.close()


def test_wrappers_are_around_each_copy():
    hidden = functools.partial(wrappers.PartialObservation, indices=[0, 2])
    stacked = functools.partial(wrappers.StackChannels, n_frames=3)
    envs = vector.make_vec("CartPole-v1", 2, wrappers=[hidden, stacked])
    assert envs.reset(seed=0)[0].shape == (2, 6)
    envs.close()
    for given, error in (([3], TypeError), (hidden, TypeError)):
        with pytest.raises(error, match="`make_vec`: `wrappers` expected"):
            vector.make_vec("CartPole-v1", 2, wrappers=given)
    with pytest.raises(ValueError, match="`make_vec`: `wrappers` expected none"):
        vector.make_vec("CartPole-v1", 2, "vector_entry_point", wrappers=[hidden])


class Silent(gym.vector.VectorEnv):
    def __init__(self, metadata):
        self.metadata = metadata


def test_autoreset_mode_of_each_vector():
    make = gym.envs.classic_control.CartPoleEnv
    for mode in AutoresetMode:
        envs = SyncVectorEnv([make], autoreset_mode=mode)
        assert stepping.autoreset_mode(envs) == mode
        wrapped = gym.wrappers.vector.RecordEpisodeStatistics(envs)
        assert stepping.autoreset_mode(wrapped) == mode
        assert stepping.autoreset_mode(Silent({"autoreset_mode": mode})) == mode
        assert stepping.autoreset_mode(Silent({"autoreset_mode": mode.value})) == mode
    assert stepping.autoreset_mode(Silent({})) == AutoresetMode.NEXT_STEP
    with pytest.raises(ValueError, match="`autoreset_mode`: `envs` .*got 'Sometimes'"):
        stepping.autoreset_mode(Silent({"autoreset_mode": "Sometimes"}))


def test_what_makes_environments_is_to_be_registered():
    given = [Refusing, lambda: gym.make("CartPole-v1"), gym.make("CartPole-v1")]
    shown = ["<class", "<function", "<TimeLimit<"]
    for env_id, got in zip(given, shown, strict=True):
        with pytest.raises(TypeError, match=f"`gymnasium.register.* got {got}"):
            vector.make_vec(env_id, 2)


def test_what_is_no_vector():
    with pytest.raises(TypeError, match="`play`: `envs` expected a vector environment"):
        gym_checks.check_vector("play", "envs", gym.make("CartPole-v1"))
    envs = vector.make_vec("CartPole-v1", 2)
    gym_checks.check_vector("play", "envs", envs, 2)
    with pytest.raises(ValueError, match="`envs` expected to make 3 env.* got 2"):
        gym_checks.check_vector("play", "envs", envs, 3)


class Refusing(gym.Env):
    def __init__(self):
        raise gym.error.DependencyNotInstalled("run `pip install simulator`")


class Importing(gym.Env):
    def __init__(self):
        raise ModuleNotFoundError("No module named 'simulator'")


@pytest.fixture
def registered():
    ids = {"tfrl/Refusing-v0": Refusing, "tfrl/Importing-v0": Importing}
    for env_id, entry_point in ids.items():
        gym.register(env_id, entry_point)
    yield
    for env_id in ids:
        del gym.registry[env_id]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        *[({"n_envs": 0}, "`n_envs` expected"), ({"n_envs": -2}, "`n_envs` expected")],
        ({"vectorization": "thread"}, "`vectorization` expected one of"),
        ({"max_episode_steps": 0}, "`max_episode_steps` expected"),
        ({"env_id": "NoSuch-v0"}, "`env_id` expected a registered .* got 'NoSuch-v0'"),
        ({"env_id": "CartPole-v99"}, "`env_id` expected a registered .*v99"),
        (
            {"env_id": "nosuch.envs:Mine-v0"},
            "`env_id` .*; put the folder .* PYTHONPATH",
        ),
        ({"env_kwargs": {"wheels": 3}}, r".*env_kwargs=\{'wheels': 3\}; got: .*'wheel"),
        ({"env_id": "tfrl/Refusing-v0"}, "`env_id` .*pip install simulator"),
        ({"env_id": "tfrl/Importing-v0"}, "`env_id` .*No module named 'simulator'"),
        (
            {"env_id": "Pendulum-v1", "vectorization": "vector_entry_point"},
            "`env_id` 'Pendulum-v1' expected to be makeable .*vector_entry_point",
        ),
    ],
    ids=str,
)
def test_errors(registered, arguments, match):
    with pytest.raises(ValueError, match=f"`make_vec`: {match}"):
        vector.make_vec(**{"env_id": "CartPole-v1", "n_envs": 1, **arguments})


@pytest.mark.parametrize("extra", ["mujoco", "box2d"])
def test_what_is_missing_is_named_by_the_extra(extra, registered, monkeypatch):
    def refuse(self):
        raise gym.error.DependencyNotInstalled(f'pip install "gymnasium[{extra}]"')

    monkeypatch.setattr(Refusing, "__init__", refuse)
    told = rf"got: pip .*; the extra `tfrl\[{extra}\]` brings it"
    with pytest.raises(ValueError, match=told):
        vector.make_vec("tfrl/Refusing-v0", 1)


def test_atari_is_named_by_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    gone = {k: x for k, x in gym.registry.items() if not k.startswith("ALE/")}
    monkeypatch.setattr(gym.envs.registration, "registry", gone)
    for env_id, told in (
        ("ale_py:ALE/Pong-v5", r"; the extra `tfrl\[atari\]` brings it$"),
        ("ALE/Pong-v5", r"; write ale_py:ALE/..., with the extra `tfrl\[atari\]`$"),
    ):
        with pytest.raises(ValueError, match=told):
            vector.make_vec(env_id, 1)


def test_arguments_of_other_types():
    arguments = {"n_envs": 2.5, "max_episode_steps": 2.5, "env_id": None}
    pairs = [*arguments.items(), ("n_envs", "2"), ("n_envs", True), ("env_kwargs", 3)]
    for name, value in pairs:
        with pytest.raises(TypeError, match=f"`make_vec`: `{name}` expected"):
            vector.make_vec(**{"env_id": "CartPole-v1", name: value})


def test_the_module_of_an_environment_is_imported(tmp_path, monkeypatch):
    text = "import gymnasium as gym\ngym.register('Here-v0', entry_point='{}')"
    entry = "gymnasium.envs.classic_control:CartPoleEnv"
    (tmp_path / "module_of_here.py").write_text(text.format(entry))
    monkeypatch.syspath_prepend(tmp_path)
    envs = vector.make_vec("module_of_here:Here-v0", 2)
    assert envs.reset(seed=0)[0].shape == (2, 4)
    gym.registry.pop("Here-v0")
    with pytest.raises(ValueError, match="got 'no_such_module:Here-v0': No module"):
        vector.make_vec("no_such_module:Here-v0", 2)
