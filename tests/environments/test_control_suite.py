"""Tests of `tfrl.environments.control_suite`, on a stand-in for dm_control.

The last test plays the true suite where it is installed.
"""

import importlib.util
import subprocess
import sys
import types

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from tfrl.environments import control_suite, vector


def array(shape, **bounds):
    return types.SimpleNamespace(shape=shape, **bounds)


class Step:
    def __init__(self, observation, reward=None, discount=None, last=False):
        self.observation, self.reward, self.discount = observation, reward, discount
        self.last = lambda: last


class Camera:
    def render(self, height, width, camera_id):
        return np.full((height, width, 3), camera_id, np.uint8)


class Task:
    """A scalar, a matrix and a bounded vector; ends after 4 steps."""

    physics = Camera()

    def __init__(self, seed, last_discount):
        self.rng = np.random.RandomState(seed)
        self.last_discount, self.closed = last_discount, False

    def observation_spec(self):
        bounded = array((2,), minimum=np.array([0.0, -1.0]), maximum=1.0)
        return {"z": array(()), "m": array((2, 2)), "a": bounded}

    def action_spec(self):
        high = np.array([1.0, 2.0, 3.0])
        return array((3,), minimum=-high, maximum=high)

    def control_timestep(self):
        return 0.025

    def seen(self):
        m = np.arange(4.0).reshape(2, 2)
        return {"z": self.rng.rand(), "m": m, "a": np.array([0.5, self.t / 4])}

    def reset(self):
        self.t = 0
        return Step(self.seen())

    def step(self, action):
        self.t += 1
        last = self.t == 4
        return Step(self.seen(), 0.5, self.last_discount if last else 1.0, last)

    def close(self):
        self.closed = True


@pytest.fixture
def suite(monkeypatch):
    """A suite of two tasks in dm_control's place; `made` lists what it loaded."""
    made = []

    def load(domain, task, task_kwargs):
        made.append(Task(task_kwargs["random"], {"fall": 0.0, "run": 1.0}[task]))
        return made[-1]

    tasks = (("ball", "fall"), ("ball", "run"), ("pole", "fall"))
    suite = types.SimpleNamespace(ALL_TASKS=tasks, load=load, made=made)
    module = types.ModuleType("dm_control")
    module.suite = suite
    monkeypatch.setitem(sys.modules, "dm_control", module)
    return suite


def test_spaces(suite):
    env = control_suite.make_dmc("ball", "run")
    low = np.float32([-np.inf] * 5 + [0.0, -1.0])
    high = np.float32([np.inf] * 5 + [1.0, 1.0])
    assert env.observation_space == gym.spaces.Box(low, high)
    high = np.float32([1, 2, 3])
    assert env.action_space == gym.spaces.Box(-high, high)
    assert env.metadata["render_fps"] == 40


def test_observations_lie_side_by_side(suite):
    env = control_suite.make_dmc("ball", "run", seed=3)
    seen, info = env.reset()
    assert seen.dtype == np.float32 and info == {}
    expected = [np.random.RandomState(3).rand(), 0, 1, 2, 3, 0.5, 0]
    np.testing.assert_allclose(seen, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("task", "ends"),
    [("fall", (True, False)), ("run", (False, True))],
    ids=["discount_0_terminates", "discount_1_truncates"],
)
def test_ends(suite, task, ends):
    env = control_suite.make_dmc("ball", task)
    env.reset()
    steps = [env.step(np.zeros(3, np.float32)) for _ in range(4)]
    assert [step[2:4] for step in steps] == [(False, False)] * 3 + [ends]
    assert [step[1] for step in steps] == [0.5] * 4
    assert steps[-1][4]["discount"] == (0.0 if task == "fall" else 1.0)


def test_time_limit(suite):
    env = control_suite.make_dmc("ball", "fall", max_episode_steps=2)
    env.reset()
    steps = [env.step(np.zeros(3, np.float32))[2:4] for _ in range(2)]
    assert steps == [(False, False), (False, True)]


def test_seeds_make_the_task_anew(suite):
    env = control_suite.make_dmc("ball", "run", seed=1)
    first, second = env.reset()[0], env.reset()[0]
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(env.reset(seed=1)[0], first)
    assert [task.closed for task in suite.made] == [True, False]
    env.close()
    assert all(task.closed for task in suite.made)


def test_two_environments_of_a_task_are_two(suite):
    one = control_suite.make_dmc("ball", "run", seed=1, height=8, max_episode_steps=1)
    two = control_suite.make_dmc("ball", "run", seed=2)
    assert not np.array_equal(one.reset()[0], two.reset()[0])
    assert one.render().shape == (8, 84, 3) and two.render().shape == (84, 84, 3)
    assert one.spec.max_episode_steps == 1 and two.spec.max_episode_steps == 1000
    assert one.spec.id not in gym.registry


def test_frames(suite):
    env = control_suite.make_dmc("pole", "fall", height=4, width=6, camera_id=2)
    env.reset()
    frame = env.render()
    assert frame.shape == (4, 6, 3) and frame.dtype == np.uint8 and frame.min() == 2
    assert control_suite.ControlSuite("pole", "fall").render() is None


@pytest.mark.filterwarnings("ignore:.*A Box observation space m.*:UserWarning")
@pytest.mark.filterwarnings("ignore:.*For Box action spaces, we rec.*:UserWarning")
def test_gymnasium_accepts(suite):
    env = control_suite.ControlSuite("ball", "run", render_mode="rgb_array")
    check_env(env, skip_render_check=True)


@pytest.mark.parametrize(
    ("domain", "task", "message"),
    [
        ("ball", "fly", r"got 'ball', 'fly'; there are the tasks \['fall', 'run'\]"),
        ("bill", "run", r"got 'bill', 'run'; there are the domains \['ball', 'pole'\]"),
    ],
    ids=["task", "domain"],
)
def test_unknown_tasks(suite, domain, task, message):
    with pytest.raises(ValueError, match=message):
        control_suite.make_dmc(domain, task)


def test_bad_arguments(suite):
    for name, value, error in (
        ("max_episode_steps", 0, ValueError),
        ("max_episode_steps", 2.5, TypeError),
        ("height", 0, ValueError),
        ("width", "84", TypeError),
        ("seed", -1, ValueError),
    ):
        with pytest.raises(error, match=f"`make_dmc`: `{name}` expected an int in"):
            control_suite.make_dmc("ball", "fall", **{name: value})
    with pytest.raises(ValueError, match="`ControlSuite`: `render_mode` expected"):
        control_suite.ControlSuite("ball", "run", render_mode="human")


def test_tasks_have_names(suite, monkeypatch):
    name = "dmc/ball_in_cup-catch-v0"
    assert gym.spec(name).max_episode_steps == 1000
    with pytest.raises(ValueError, match="got 'ball_in_cup', 'catch'"):
        vector.make_vec(name, 2)
    suite.ALL_TASKS = [("ball_in_cup", "catch")]
    suite.load = lambda *_, task_kwargs: Task(task_kwargs["random"], 0.0)
    vector.make_vec(name, 2).close()
    monkeypatch.setitem(sys.modules, "dm_control", None)
    with pytest.raises(ValueError, match=r"`make_vec`: `env_id` 'dmc/.*tfrl\[dmc\]"):
        vector.make_vec(name, 2)


def test_missing_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "dm_control", None)
    with pytest.raises(ImportError, match=r"'mujoco<4' .*tfrl\[dmc\]"):
        control_suite.make_dmc("cartpole", "swingup")


TRUE_SUITE = """
import gymnasium as gym
import numpy as np
from dm_control import suite
from tfrl.environments import control_suite

named = {name for name in gym.registry if name.startswith("dmc/")}
assert named == {f"dmc/{domain}-{task}-v0" for domain, task in suite.ALL_TASKS}
env = control_suite.make_dmc("cartpole", "swingup", seed=1, max_episode_steps=5)
first = env.reset(seed=3)[0]
assert first.shape == (5,) and env.action_space.shape == (1,)
np.testing.assert_array_equal(env.reset(seed=3)[0], first)
ends = [env.step(env.action_space.sample())[2:4] for _ in range(5)]
assert ends == [(False, False)] * 4 + [(False, True)]
env.close()
print("played")
"""


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("dm_control") is None, reason="needs the extra dmc"
)
def test_true_suite():
    # A process of its own: beside TensorFlow the simulator's end can abort it.
    command = [sys.executable, "-c", TRUE_SUITE]
    played = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "played" in played.stdout, played.stderr
