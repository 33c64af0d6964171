import sys

import av
import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

from tfrl.summaries.filming import video


class Counting(gym.Env):
    """Shows how many steps were taken, in grey; ends after five."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = gym.spaces.Discrete(100)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, render_mode="rgb_array"):
        self.render_mode = render_mode
        self.steps, self.taken, self.rendered = 0, [], 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return 0, {}

    def step(self, action):
        self.taken.append(action)
        self.steps += 1
        return self.steps, 1.0, self.steps == 5, False, {}

    def render(self):
        self.rendered += 1
        return np.full((6, 4, 3), 40 * self.steps, np.uint8)


def frames(path):
    with Image.open(path) as picture:
        assert picture.info["loop"] == 0
        found = []
        for index in range(picture.n_frames):
            picture.seek(index)
            shown = picture.convert("L")
            found.append((shown.size, shown.getpixel((0, 0)), picture.info["duration"]))
        return found


def test_every_step_is_a_picture(tmp_path):
    env, path = Counting(), tmp_path / "episode.gif"
    video.generate_gif(env, path, lambda observation: observation % 2, duration=80)
    assert frames(path) == [((4, 6), 40 * step, 80) for step in range(6)]
    assert env.taken == [0, 1, 0, 1, 0]
    assert list(tmp_path.iterdir()) == [path]


def test_an_episode_is_a_video_or_a_gif(tmp_path):
    env = Counting()
    for ending in (".gif", ".mp4"):
        video.record_episode(env, tmp_path / f"a{ending}", resize_to=(20, 30))
    assert frames(tmp_path / "a.gif") == [
        ((20, 30), 40 * step, 100) for step in range(6)
    ]
    with av.open(str(tmp_path / "a.mp4")) as film:
        assert film.streams.video[0].average_rate == 10
        shown = [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]
    assert [frame.shape for frame in shown] == [(30, 20, 3)] * 6
    levels = [frame.mean() for frame in shown]
    np.testing.assert_allclose(levels, np.arange(0, 240, 40), atol=3)


def test_frames_that_change_their_size(tmp_path, monkeypatch):
    env = Counting()
    monkeypatch.setattr(
        env, "render", lambda: np.zeros((6 + env.steps, 4, 3), np.uint8)
    )
    with pytest.raises(
        ValueError, match=r"`env` expected frames of one size; got \(6, "
    ):
        video.record_episode(env, tmp_path / "a.mp4")
    assert not list(tmp_path.iterdir())
    video.record_episode(env, tmp_path / "a.gif", resize_to=(4, 4))


def test_size_and_length(tmp_path):
    env, path = Counting(), str(tmp_path / "short.gif")
    video.generate_gif(env, path, None, (8, 2), max_episode_steps=2, seed=3)
    assert frames(path) == [((8, 2), 40 * step, 50) for step in range(3)]
    env.action_space.seed(3)
    assert env.taken == [env.action_space.sample() for _ in range(2)]


def test_a_failing_episode_leaves_the_old_file(tmp_path):
    path = tmp_path / "episode.gif"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError):
        video.generate_gif(Counting(), path, lambda observation: 1 // observation)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_render_episode(monkeypatch):
    env, slept = Counting("human"), []
    monkeypatch.setattr(video.time, "sleep", slept.append)
    video.render_episode(env, lambda observation: 1, step_delay_ms=20)
    assert (env.rendered, env.taken, slept) == (6, [1] * 5, [0.02] * 6)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"filepath": "episode.mp4"}, "`filepath` expected to end in .gif; got"),
        (
            {"filepath": "no/a.gif"},
            "`filepath` expected a file in a folder that exists",
        ),
        ({"env": Counting("human")}, "`env` expected render_mode 'rgb_array'; got 'hu"),
        ({"duration": 0}, "`duration` expected numbers in"),
        ({"max_episode_steps": 0}, "`max_episode_steps` expected an int of at least 1"),
        ({"resize_to": (0, 5)}, "`resize_to` expected an int of at least 1; got 0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_arguments_write_nothing(change, match, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=match):
        video.generate_gif(**{"env": Counting(), "filepath": "episode.gif", **change})
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="`step_delay_ms` expected numbers in"):
        video.render_episode(Counting(), step_delay_ms=-1)


def test_missing_pillow(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"pip install pillow .*tfrl\[video\]"):
        video.generate_gif(Counting(), tmp_path / "episode.gif")
