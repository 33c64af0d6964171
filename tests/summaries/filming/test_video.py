"""Tests of episodes and frames written as videos and animated GIFs."""

import sys

import av
import gymnasium as gym
import numpy as np
import pytest
from PIL import Image
from refusals import bad, table

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


def decoded(path):
    with av.open(str(path)) as film:
        [stream] = film.streams.video
        rate, frames = stream.average_rate, film.decode(video=0)
        return rate, [frame.to_ndarray(format="rgb24") for frame in frames]


def test_an_episode_is_a_video_or_a_gif(tmp_path):
    env = Counting()
    for ending in (".gif", ".mp4"):
        video.record_episode(env, tmp_path / f"a{ending}", resize_to=(20, 30))
    shown = [((20, 30), 40 * step, 100) for step in range(6)]
    assert frames(tmp_path / "a.gif") == shown
    rate, shown = decoded(tmp_path / "a.mp4")
    assert rate == 10
    assert [frame.shape for frame in shown] == [(30, 20, 3)] * 6
    levels = [frame.mean() for frame in shown]
    np.testing.assert_allclose(levels, np.arange(0, 240, 40), atol=3)


def grey(*levels, size=(8, 6)):
    return iter([Image.new("RGB", size, (level,) * 3) for level in levels])


@pytest.mark.parametrize("speed", [20.0, 100 / 3, 29.97])
def test_a_video_shows_every_picture(speed, tmp_path):
    path, levels = tmp_path / "a.mp4", [0, 60, 120, 120, 240]
    video.write(str(path), grey(*levels), speed, "film")
    rate, shown = decoded(path)
    assert float(rate) == pytest.approx(speed, rel=1e-3)
    assert [frame.shape for frame in shown] == [(6, 8, 3)] * 5
    np.testing.assert_allclose([frame.mean() for frame in shown], levels, atol=3)
    assert list(tmp_path.iterdir()) == [path]


def test_pictures_of_an_odd_size_get_a_black_margin(tmp_path):
    video.write(str(tmp_path / "a.MP4"), grey(200, size=(33, 17)), 10, "film")
    _, [frame] = decoded(tmp_path / "a.MP4")
    assert frame.shape == (18, 34, 3)
    np.testing.assert_allclose(frame[:16, :32], 200, atol=3)
    assert frame[-1].mean() < 60 > frame[:, -1].mean()


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


@pytest.mark.parametrize("ending", [".gif", ".mp4"])
def test_a_failing_episode_leaves_the_old_file(ending, tmp_path):
    path = tmp_path / f"episode{ending}"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError):
        video.record_episode(Counting(), path, lambda observation: 1 // observation)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_render_episode(monkeypatch):
    env, slept = Counting("human"), []
    monkeypatch.setattr(video.time, "sleep", slept.append)
    video.render_episode(env, lambda observation: 1, step_delay_ms=20)
    assert (env.rendered, env.taken, slept) == (6, [1] * 5, [0.02] * 6)


@pytest.mark.parametrize(
    ("of_env", "given", "speed"),
    [(10, None, 10), (125, None, 100), (0, None, 30), (9, 4, 4)],
)
def test_speed(of_env, given, speed):
    env = Counting()
    env.metadata = {"render_fps": of_env}
    assert video.checked_speed("film", env, given) == speed


class Odd(Counting):
    def __init__(self, frame):
        super().__init__()
        self.render = lambda: frame


ENV = Counting()
FRAMES = [np.zeros((6, 4, 3)), np.zeros((6, 4), np.uint8), None]
FRAMES.append(np.zeros((6, 4, 4), np.uint8))


@table(
    (
        video.generate_gif,
        bad(ValueError, "filepath", ENV, "episode.mp4"),
        bad(ValueError, "filepath", ENV, "no/a.gif"),
        bad(ValueError, "env", Counting("human"), "a.gif"),
        bad(ValueError, "duration", ENV, "a.gif", duration=0),
        bad(ValueError, "max_episode_steps", ENV, "a.gif", max_episode_steps=0),
        bad(ValueError, "resize_to", ENV, "a.gif", resize_to=(0, 5)),
    ),
    (
        video.record_episode,
        bad(ValueError, "path", ENV, "a.png"),
        *(
            bad(ValueError, "frames_per_sec", ENV, "a.gif", frames_per_sec=speed)
            for speed in (0, -1, 101, np.nan)
        ),
        *(bad(ValueError, "env", Odd(frame), "a.gif") for frame in FRAMES),
    ),
    (video.render_episode, bad(ValueError, "step_delay_ms", ENV, step_delay_ms=-1)),
)
def test_bad_arguments_write_nothing(row, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("module", "found", "ending"), [("PIL", "pillow", "gif"), ("av", "av", "mp4")]
)
def test_what_is_missing_is_asked_for(module, found, ending, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, module, None)
    match = rf"`record_episode`: .*pip install {found} .*tfrl\[video\]"
    with pytest.raises(ImportError, match=match):
        video.record_episode(Counting(), tmp_path / f"episode.{ending}")
