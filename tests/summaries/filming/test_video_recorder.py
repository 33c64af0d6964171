"""Tests of videos made frame by frame."""

import golden_io
import gymnasium as gym
import numpy as np
import pytest
from matplotlib import figure
from PIL import Image
from refusals import bad, table

from tfrl.summaries.filming import video_recorder

[GOLDEN] = golden_io.load("alf/misc", symbol="VideoRecorder")
ROWS = GOLDEN["out"]["lastrepeats_blank_capture_cache_cachelen"]


class Grey(gym.Env):
    """A grey picture."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, level=7, render_mode="rgb_array"):
        self.level, self.render_mode = level, render_mode

    def render(self):
        return np.full((6, 4, 3), self.level, np.uint8)


def frames(path, duration=100):
    """The frames as arrays; Pillow joins equal neighbours to a longer one."""
    found = []
    with Image.open(path) as picture:
        assert picture.info["loop"] == 0
        for index in range(picture.n_frames):
            picture.seek(index)
            array = np.asarray(picture.convert("RGB"))
            found += [array] * round(picture.info["duration"] / duration)
    return found


def levels(path):
    return [int(frame.max()) for frame in frames(path)]


@pytest.mark.parametrize(("repeats", "blanks", "captured", "cached", "left"), ROWS)
def test_golden(repeats, blanks, captured, cached, left, tmp_path):
    given = {"last_step_repeats": repeats, "append_blank_frames": blanks}
    with video_recorder.VideoRecorder(Grey(), path=tmp_path / "a.gif", **given) as one:
        for step in range(3):
            one.capture_frame(is_last_step=step == 2)
    assert levels(tmp_path / "a.gif") == captured
    with video_recorder.VideoRecorder(Grey(), path=tmp_path / "b.gif", **given) as two:
        for _ in range(3):
            two.cache_frame_and_pred_info(np.full((6, 4, 3), 9, np.uint8))
        two.generate_video_from_cache()
        assert len(two._cache) == left
    assert levels(tmp_path / "b.gif") == cached


def test_golden_empty_cache(tmp_path):
    assert GOLDEN["out"]["empty_cache_with_blank"].endswith("Error")
    path = tmp_path / "a.gif"
    recorder = video_recorder.VideoRecorder(Grey(), append_blank_frames=2, path=path)
    with pytest.raises(ValueError, match="expected cached frames; got none"):
        recorder.generate_video_from_cache()


def test_cache_and_frames_in_order(tmp_path):
    env, path = Grey(10), tmp_path / "a.gif"
    with video_recorder.VideoRecorder(env, path=path) as recorder:
        recorder.cache_frame_and_pred_info(recorder.capture_env_frame())
        recorder.clear_cache()
        for level in (20, 30):
            env.level = level
            recorder.cache_frame_and_pred_info(recorder.capture_env_frame())
        env.level = 40
        recorder.capture_frame()
        recorder.generate_video_from_cache()
    assert levels(path) == [40, 20, 30]
    assert list(tmp_path.iterdir()) == [path]


def colour(size, rgb):
    return Image.new("RGB", size, rgb)


@pytest.mark.parametrize(
    ("panels", "shape", "place"),
    [
        ([(4, 3), (4, 3)], (6, 8), (0, 4)),
        ([(4, 3)], (9, 4), (6, 0)),
        ([(2, 2), (2, 2)], (8, 4), (6, 0)),
    ],
    ids=["beside", "one", "below"],
)
def test_panels_take_least_room(panels, shape, place, tmp_path):
    red, green = (255, 0, 0), (0, 255, 0)
    nest = {
        "a": colour(panels[0], red),
        "log_prob": np.float32(0.5),
        "rest": [colour(size, green) for size in panels[1:]],
        "state": (None, "text"),
    }
    with video_recorder.VideoRecorder(Grey(100), path=tmp_path / "a.gif") as recorder:
        recorder.capture_frame(nest)
    [frame] = frames(tmp_path / "a.gif")
    assert frame.shape == (*shape, 3)
    assert np.all(frame[:6, :4] == 100)
    y, x = place
    height, width = panels[0][::-1]
    assert np.all(frame[y : y + height, x : x + width] == red)
    n_green = sum(width * height for width, height in panels[1:])
    assert np.sum(np.all(frame == green, axis=-1)) == n_green


def test_figures_are_panels_and_sizes_may_differ(tmp_path):
    blue = figure.Figure(figsize=(0.1, 0.04), dpi=100, facecolor=(0, 0, 1))
    with video_recorder.VideoRecorder(Grey(100), path=tmp_path / "a.gif") as recorder:
        recorder.capture_frame()
        recorder.capture_frame([blue])
    plain, beside = frames(tmp_path / "a.gif")
    assert plain.shape == beside.shape == (6, 14, 3)
    assert np.all(plain[:, :4] == 100)
    assert np.all(plain[:, 4:] == 0)
    assert np.all(beside[:4, 4:] == (0, 0, 255))


def test_wide_frames_are_scaled(tmp_path):
    path = tmp_path / "a.gif"
    with video_recorder.VideoRecorder(Grey(), frame_max_width=2, path=path) as recorder:
        recorder.capture_frame()
    assert frames(path)[0].shape == (3, 2, 3)


def test_speed(tmp_path):
    env = Grey()
    with video_recorder.VideoRecorder(env, 10, 4, path=tmp_path / "a.gif") as recorder:
        for env.level in (7, 8):
            recorder.capture_frame()
    with Image.open(tmp_path / "a.gif") as picture:
        assert picture.info["duration"] == 250


def test_an_exception_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.gif"
    path.write_bytes(b"old")
    with (
        pytest.raises(KeyError),
        video_recorder.VideoRecorder(Grey(), path=path) as one,
    ):
        one.capture_frame()
        raise KeyError
    assert path.read_bytes() == b"old"
    with pytest.raises(
        ValueError, match="`VideoRecorder.capture_frame`: expected an o"
    ):
        one.capture_frame()
    one.close()
    assert path.read_bytes() == b"old"


def test_no_frames_are_an_error(tmp_path):
    recorder = video_recorder.VideoRecorder(Grey(), path=tmp_path / "a.gif")
    with pytest.raises(ValueError, match="`VideoRecorder.close`: expected a frame at"):
        recorder.close()
    assert not list(tmp_path.iterdir())
    recorder.capture_frame()
    recorder.close()
    recorder.close()
    assert len(frames(tmp_path / "a.gif")) == 1


FRAMES = [np.zeros((6, 4, 3)), *np.zeros((2, 6, 4, 4), np.uint8)]


@table(
    (
        video_recorder.VideoRecorder,
        bad(ValueError, "path", Grey(), path="a.avi"),
        bad(ValueError, "env", Grey(7, "human"), path="a.gif"),
        bad(ValueError, "frames_per_sec", Grey(), 9, 0, path="a.gif"),
        bad(ValueError, "frames_per_sec", Grey(), 9, 101, path="a.gif"),
        bad(ValueError, "frame_max_width", Grey(), 0, path="a.gif"),
        bad(ValueError, "last_step_repeats", Grey(), 9, 9, -1, path="a.gif"),
        bad(TypeError, "append_blank_frames", Grey(), 9, 9, 0, 1.0, path="a.gif"),
    ),
    (
        video_recorder.VideoRecorder(Grey(), path="a.gif").cache_frame_and_pred_info,
        *(bad(ValueError, "frame", x) for x in (*FRAMES[:2], FRAMES[1][..., 0])),
    ),
)
def test_refusals(row):
    row()
