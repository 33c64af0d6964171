import functools
import pathlib
import types

import full_disks
import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from PIL import Image

from tfrl.agents import policy_gradient
from tfrl.environments import vector
from tfrl.policies import policy
from tfrl.summaries.filming import panels
from tfrl.training import cadence, experience, saved_run, trainer


class Slide(gym.Env):
    """Ends when 1 was chosen `goal` times; draws as many white rows."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, goal=3, render_mode=None):
        self.goal, self.render_mode = goal, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self.observe(), {}

    def observe(self):
        return np.array([self.place, self.goal], np.float32)

    def step(self, action):
        self.place += int(action)
        return self.observe(), float(action), self.place >= self.goal, False, {}

    def render(self):
        if self.goal == 13:
            raise gym.error.DependencyNotInstalled("a brush is missing")
        picture = np.zeros([16, 16, 3], np.uint8)
        picture[: self.place] = 255
        return picture


class Dark(Slide):
    metadata = {"render_modes": ["ansi"], "render_fps": 30}


gym.register("Slide-v0", Slide, max_episode_steps=9)
gym.register("Dark-v0", Dark)
MAKE = functools.partial(
    vector.make_vec, env_id="Slide-v0", env_kwargs={"goal": 5}, max_episode_steps=7
)


def build(folder, make_envs=MAKE, resume=False):
    return trainer.Trainer(
        folder,
        n_epochs=2,
        resume=resume,
        agent=policy_gradient.PolicyGradient(hidden_units=(4,)),
        make_envs=make_envs,
        n_envs=2,
        experience=experience.Trajectories(4),
        intervals=cadence.Intervals(eval_episodes=3, checkpoint_epochs=1),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    with build(folder) as running:
        running.run(quiet=True)
    return folder


def files(folder):
    return {path: path.stat().st_mtime_ns for path in pathlib.Path(folder).rglob("*")}


def test_it_plays_as_the_trainer_did(folder):
    before = files(folder)
    with build(folder, resume=True) as resumed:
        expected = resumed.evaluate()
        seed = resumed.seed + 1_000_003 * (resumed.epoch + 1)
        inputs = np.ones([4, 2], np.float32)
        actions = resumed.agent.policy.act(inputs, temperature=0.0).actions
        # Meanwhile the run holds its lock.
        with saved_run.SavedRun(build(folder)) as run:
            played = run.evaluate(3, seed=seed)
            acted = run.policy.act(inputs, temperature=0.0)
            np.testing.assert_array_equal(acted.actions, actions)
            assert run.step == resumed.env_steps
            for one, other in zip(
                tf.nest.flatten(run.agent), tf.nest.flatten(resumed.agent), strict=True
            ):
                np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(played.returns, expected.returns)
    changed = {path.name for path, time in files(folder).items() if before[path] < time}
    assert changed <= {"run.lock"}


def test_an_earlier_step(folder):
    with saved_run.SavedRun(build(folder), step=8) as run:
        assert run.step == 8
        early = [np.asarray(leaf) for leaf in tf.nest.flatten(run.agent)]
    with saved_run.SavedRun(build(folder)) as run:
        late = tf.nest.flatten(run.agent)
    assert not all(np.array_equal(a, b) for a, b in zip(early, late, strict=True))
    with pytest.raises(ValueError, match=r"one of \[8, "):
        saved_run.SavedRun(build(folder), step=3)


def test_a_policy_of_nan_does_not_play(folder):
    with saved_run.SavedRun(build(folder)) as run:
        saved = run.agent.policy
        params = tf.nest.map_structure(lambda x: x * np.nan, saved.state.params)
        broken = saved.replace(state=saved.state.replace(params=params))
        run.agent = run.agent.replace(policy=broken)
        for play in (run.evaluate, run.record, lambda _: run.policy):
            with pytest.raises(
                ValueError, match="finite weights at step 16; got one w"
            ):
                play("film.gif" if play == run.record else 1)


def choosing(choose):
    return types.SimpleNamespace(policy=policy.FunctionPolicy(choose))


def test_a_film_shows_the_environment_of_the_run(folder, tmp_path):
    path = tmp_path / "episode.gif"
    with saved_run.SavedRun(build(folder)) as run:
        run.agent = choosing(lambda rows: np.ones(len(rows), np.int64))
        run.record(path, seed=3, resize_to=(32, 32))
        with Image.open(path) as film:
            assert (film.n_frames, film.size) == (1 + 5, (32, 32))
        run.agent = choosing(lambda rows: rows[:, 0].astype(int) % 2)
        run.record(path, frames_per_sec=20)
        with Image.open(path) as film:
            assert film.info["duration"] == 8 * 50
        run.record(tmp_path / "episode.mp4")
        with pytest.raises(ValueError, match=r"expected to end in \.gif or \.mp4; got"):
            run.record(tmp_path / "episode.avi")
    assert {file.name for file in tmp_path.iterdir()} == {"episode.gif", "episode.mp4"}
    assert (tmp_path / "episode.mp4").read_bytes()[4:8] == b"ftyp"


class Wider(gym.ObservationWrapper):
    """Changes the observations, which the spec does not tell."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def observation(self, observation):
        return observation


def wrapped(n_envs):
    make = functools.partial(gym.make, "Slide-v0")
    return SyncVectorEnv(
        [lambda: Wider(make())] * n_envs, autoreset_mode=AutoresetMode.DISABLED
    )


@pytest.mark.parametrize(
    ("make_envs", "error", "match"),
    [
        (wrapped, ValueError, "made one at a time"),
        (functools.partial(MAKE, env_kwargs={"goal": 13}), ImportError, "a brush is"),
        (
            functools.partial(MAKE, env_id="Dark-v0"),
            ValueError,
            r"render modes \['ansi'\]",
        ),
    ],
    ids=["wrapped", "no_brush", "dark"],
)
def test_what_cannot_be_filmed(make_envs, error, match, folder, tmp_path):
    with (
        saved_run.SavedRun(build(folder, make_envs)) as run,
        pytest.raises(error, match=match),
    ):
        run.record(tmp_path / "episode.gif")
    assert not list(tmp_path.iterdir())


def test_the_critic_on_a_plane(folder, tmp_path, monkeypatch):
    path = tmp_path / "critic.png"
    drawn = []

    def keep(title, data, size):
        drawn.append((title, np.asarray(data), size))
        return Image.new("RGB", size)

    monkeypatch.setattr(panels, "render_heatmap", keep)
    with saved_run.SavedRun(build(folder)) as run:
        run.draw_critic(path, (1, -2.0, 2.0), (0, 3.0, 0.0), cells=4, size=(30, 20))
        rows = np.array([[3, -2], [3, 2], [0, -2]], np.float32)
        corners = run.policy.values(rows).numpy()
        for bad, match in (
            ({"path": "critic.jpg"}, r"expected to end in \.png"),
            ({"across": (2, 0.0, 1.0)}, "`across` expected"),
            ({"down": (-1, 0.0, 1.0)}, "`down` expected"),
            ({"down": (0, 0.0, 1.0)}, "`down` expected another component than `acr"),
            ({"cells": 0}, "`cells` expected"),
        ):
            given = {"path": path, "across": (0, 0.0, 1.0), "down": (1, 0.0, 1.0)}
            with pytest.raises(ValueError, match=match):
                run.draw_critic(**{**given, **bad})
        with (
            full_disks.no_file_above(10),
            pytest.raises(OSError, match="`path` expected a disk that takes the file"),
        ):
            run.draw_critic(path, (1, -2.0, 2.0), (0, 3.0, 0.0), cells=4, size=(40, 20))
    (title, data, size), _ = drawn
    assert title == (
        "value of observations: [1] from -2 to 2 across, [0] from 3 to 0 down"
    )
    assert (data.shape, size) == ((4, 4), (30, 20))
    found = [data[0, 0], data[0, -1], data[-1, 0]]
    np.testing.assert_allclose(found, corners, rtol=1e-5, atol=1e-6)
    with Image.open(path) as picture:
        assert picture.size == (30, 20)


def test_an_agent_of_another_shape(folder):
    other = functools.partial(vector.make_vec, "CartPole-v1")
    with pytest.raises(ValueError, match="another agent or shape"):
        saved_run.SavedRun(build(folder, other))


def test_the_exported_policy_acts_alike(folder, tmp_path):
    with saved_run.SavedRun(build(folder)) as run:
        run.export(tmp_path / "policy")
        with pytest.raises(ValueError, match="overwrite"):
            run.export(tmp_path / "policy")
        rows = np.random.default_rng(0).normal(size=[50, 2]).astype(np.float32)
        expected = run.policy.act(rows, temperature=0.0).actions
    model = tf.saved_model.load(tmp_path / "policy")
    served = model.signatures["serving_default"](observations=tf.constant(rows))
    np.testing.assert_array_equal(served["actions"], expected)
